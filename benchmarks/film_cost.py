"""What a film costs the training: the time of a frame beside that of an update, at the sizes of a recipe.

    python benchmarks/film_cost.py recipes/zh-en.toml

Updates and frames take turns, so that whatever else the machine does meets both alike. A round is some updates of `glassformer
train` itself and one frame of its film, written to the disk and synced; its ratio is the frame's time in updates. The cost of the
film is the median ratio × its frames ÷ the recipe's updates. The corpus is the recipe's where it is found, else made-up text.
Validation and checkpoints, which every training has, are not counted.
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from contextlib import closing
from itertools import islice
from pathlib import Path

import torch
from made_up_text import pairs

from glassformer import config, film
from glassformer.errors import UserError
from glassformer.memory import keep_memory
from glassformer.options import PairData, Recipe
from glassformer.text.batches import Place
from glassformer.text.datasets import find
from glassformer.training.checkpoints import Progress
from glassformer.training.film import frame_updates
from glassformer.training.loop import Trainer
from glassformer.training.run import prepare_run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path, nargs="?", default=Path("recipes/zh-en.toml"))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--updates", type=int, default=6, help="of a round")
    parser.add_argument("--threads", type=int, default=0, help="0 means one per core")
    options = parser.parse_args()
    recipe = config.read(options.recipe, [f"training.threads={options.threads}"])
    with tempfile.TemporaryDirectory() as folder:
        measure(recipe, Path(folder), options.rounds, options.updates)


def measure(recipe: Recipe, folder: Path, rounds: int, updates: int) -> None:
    run = folder / "run"
    run.mkdir()
    work = prepare_run(with_corpus(recipe, folder), run, lambda name: find(name, None, folder), lambda text: None)
    trainer = Trainer(work, run)
    if trainer.film is None:
        raise UserError("The recipe has no film.probes: there is nothing to measure.")
    keep_memory(one_store=True)
    torch.set_num_threads(trainer.threads)
    trainer.model.train()
    progress, times, ratios, frames, worked = Progress(), [], [], [], []
    with closing(trainer.gradients):
        batches = [batch for batch, _ in islice(work.batches(Place()), 40)]
        for number in range(rounds + 1):
            began, used = time.perf_counter(), time.process_time()
            for _ in range(updates):
                progress.update += 1
                trainer._update(progress, [batches[progress.update % len(batches)]])
            between, halfway = time.perf_counter(), time.process_time()
            trainer._record(progress)
            ended = time.perf_counter()
            if number:  # the first round warms up
                times.append((between - began) / updates)
                frames.append(ended - between)
                ratios.append(frames[-1] / times[-1])
                worked.append((time.process_time() - halfway) / ((halfway - used) / updates))
    print(f"processor time: a frame takes as much as {statistics.median(worked):.2f} updates")
    share = statistics.median(ratios) * len(frame_updates(recipe.training.updates, recipe.film.frames)) / recipe.training.updates
    size = statistics.mean(path.stat().st_size for path in film.files_of(run))
    print(f"{len(recipe.film.probes)} probes, {trainer.threads} threads, {rounds} rounds of {updates} updates and a frame")
    print(f"an update {statistics.median(times):.3f} s, a frame {statistics.median(frames):.3f} s and {size / 1e3:.0f} kB")
    print(
        f"a frame takes as long as {statistics.median(ratios):.2f} updates (in the rounds {min(ratios):.2f} to {max(ratios):.2f})"
    )
    print(f"{recipe.film.frames} frames in {recipe.training.updates:,} updates: {share:.3%} of the training")


def with_corpus(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe, with made-up text if its own is not found."""
    assert isinstance(recipe.data, PairData)
    try:
        for name in recipe.data.train:
            find(name, None, folder)
        data = recipe.data
    except UserError:
        (folder / "made-up.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in islice(pairs(20_000, 1), 20_000)), encoding="utf-8")
        data = dataclasses.replace(recipe.data, train=("made-up.tsv",), columns=(1, 2))
    return dataclasses.replace(recipe, data=dataclasses.replace(data, dev=(), test=()))


if __name__ == "__main__":
    main()
