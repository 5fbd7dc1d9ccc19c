"""Skip-gram with negative sampling beside gensim: quality and speed, in one run.

    pip install gensim
    python benchmarks/word_vectors.py

What is the same: the text (recipes/word2vec.toml, WikiText-2, cut into the same words), the vocabulary, the width of vectors,
window, negatives, subsampling, the learning rate and its decay, the epochs and the threads. What differs is the code: gensim's is
compiled C that takes one pair after another; ours is the update of `glassformer train` itself, which takes some hundred words at
once and shares drawn words among neighbours.

The two take turns, an epoch each, so that whatever else the machine does meets both alike. Making batches is timed on both sides,
counting words and reading files on neither. A word counts each time it is read, also if subsampling leaves it out.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from gensim.models import Word2Vec

from glassformer import config
from glassformer.memory import keep_memory
from glassformer.options import Word2VecOptions
from glassformer.tasks import wordtests
from glassformer.tasks.space import Space
from glassformer.text.batches import Place
from glassformer.text.datasets import find
from glassformer.text.labelled import read_texts
from glassformer.training.checkpoints import Progress
from glassformer.training.loop import Trainer
from glassformer.training.run import prepare_run
from glassformer.training.words import VectorsWork

RECIPE = Path(__file__).parent.parent / "recipes" / "word2vec.toml"
TESTS = ("word-eval/wordsim353.tsv", "word-eval/simlex999.txt", "word-eval/questions-words.txt")


@dataclass
class Times:
    """Words a second of each epoch, by the clock and by the processor's."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def measure(self, words: int, work: Callable[[], None]) -> None:
        clock, processor = time.perf_counter(), time.process_time()
        work()
        self.clock.append(words / (time.perf_counter() - clock))
        self.processor.append(words / (time.process_time() - processor))


class Ours:
    def __init__(self, work: VectorsWork, folder: Path) -> None:
        self.work, self.trainer = work, Trainer(work, folder)
        self.progress, self.batches = Progress(), work.batches(Place())

    def epoch(self) -> None:
        self.trainer.model.train()
        for _ in range(self.work.epoch):
            self.progress.update += 1
            self.trainer._update(self.progress, [next(self.batches)[0]])

    def space(self) -> Space:
        return self.work.task.space()


class Theirs:
    def __init__(
        self, texts: list[list[str]], options: Word2VecOptions, rate: float, epochs: int, threads: int, seed: int
    ) -> None:
        self.texts, self.rate, self.epochs, self.done = texts, rate, epochs, 0
        self.model = Word2Vec(
            vector_size=options.width,
            window=options.window,
            negative=options.negatives,
            ns_exponent=options.power,
            sample=options.subsample,
            sg=1,
            min_count=1,  # the texts hold words of the vocabulary alone
            workers=threads,
            seed=seed,
        )
        self.model.build_vocab(texts)

    def epoch(self) -> None:
        first, last = (self.rate * max(1e-3, 1 - part / self.epochs) for part in (self.done, self.done + 1))
        self.model.train(self.texts, total_examples=len(self.texts), epochs=1, start_alpha=first, end_alpha=last)
        self.done += 1

    def space(self) -> Space:
        vectors = self.model.wv
        return Space(vectors.index_to_key, torch.from_numpy(vectors.vectors), normalise=str.lower)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="whole trainings, each with another seed")
    parser.add_argument("--set", action="append", default=[], help="changes the recipe for both: model.width=200")
    parser.add_argument("--json", type=Path, help="also write the results here")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_memory(one_store=True)
    results = [compare(seed, arguments) for seed in range(1, arguments.seeds + 1)]
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def compare(seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    recipe = config.read(RECIPE, [*arguments.set, f"seed={seed}"])
    assert isinstance(recipe.model, Word2VecOptions)
    with tempfile.TemporaryDirectory() as folder:
        work = prepare_run(recipe, Path(folder), find, lambda text: None)
        assert isinstance(work, VectorsWork)
        updates = f"training.updates={work.epoch * arguments.epochs}"
        recipe = config.read(RECIPE, [*arguments.set, f"seed={seed}", updates])
        work = prepare_run(recipe, Path(folder), find, lambda text: None)
        assert isinstance(work, VectorsWork)
        known = work.task.tokenizer.words()
        texts = [
            [word for word in work.task.words.of(text) if word in known]
            for text in read_texts(recipe.data.train, recipe.data, find)  # type: ignore[arg-type]
        ]
        words = sum(map(len, texts))
        ours = Ours(work, Path(folder))
        theirs = Theirs(texts, recipe.model, recipe.training.rate, arguments.epochs, arguments.threads, seed)
        assert set(theirs.model.wv.index_to_key) == set(known)
        times = {"glassformer": Times(), "gensim": Times()}
        for epoch in range(1, arguments.epochs + 1):
            times["glassformer"].measure(words, ours.epoch)
            times["gensim"].measure(words, theirs.epoch)
            print(f"epoch {epoch}: " + ", ".join(f"{name} {t.clock[-1]:,.0f} words/s" for name, t in times.items()), flush=True)
        spaces = {"glassformer": ours.space(), "gensim": theirs.space()}
    judged = {name: [wordtests.evaluate(space, find(test))[0] for test in TESTS] for name, space in spaces.items()}
    print(f"\nseed {seed}: {words:,} words, {len(known):,} different; {arguments.epochs} epochs, threads: {arguments.threads}")
    result: dict[str, Any] = {"seed": seed, "words": words, "vocabulary": len(known), "epochs": arguments.epochs}
    for name, t in times.items():
        clock, processor = statistics.median(t.clock), statistics.median(t.processor)
        scores = {each.name: each.score for each in judged[name]}
        result[name] = {"words_per_second": round(clock), "by_processor_time": round(processor), **scores}
        shown = ", ".join(f"{each.name} {each.score or 0:.4f} ({each.covered} of {each.total})" for each in judged[name])
        print(f"  {name:12} {clock:9,.0f} words/s, {processor:9,.0f} by processor time; {shown}")
    ratio = statistics.median(a / b for a, b in zip(times["glassformer"].clock, times["gensim"].clock, strict=True))
    result["speed_ratio"] = ratio
    print(f"  speed, ours ÷ theirs: {ratio:.2f} (median of the epochs)")
    return result


if __name__ == "__main__":
    main()
