"""Translating with CTranslate2 through Glassformer, beside CTranslate2 called directly on the same weights, and beside PyTorch.

python benchmarks/decoding_engines.py --model runs/multi30k --input sentences.txt

Text goes in and text comes out of each. All take turns within every repeat, and what is told is the median of the ratios of a
repeat, with the least and the greatest. CTranslate2 is called with its own batching, on all cores, with the options that make its
search ours: a patience of 2, the end mark counted in the length. Where the outputs differ, it is told how many do.
"""

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ctranslate2

from glassformer import config, store
from glassformer.config import PairData
from glassformer.decoding.state import PATIENCE
from glassformer.engine import kept
from glassformer.engine.translator import FastTranslator
from glassformer.tasks.languages import guess
from glassformer.tasks.translator import load_tokenizers

Solve = Callable[[list[str]], list[str]]
BATCHES = (1024, 2048, 4096)  # of source tokens, which CTranslate2 called directly is tried with


class Direct:
    """CTranslate2 as its own documentation calls it, with our tokenizer."""

    def __init__(self, folder: Path, asked: argparse.Namespace, size: int) -> None:
        many: dict[str, Any] = {"inter_threads": kept.cores(), "intra_threads": 1}
        path = str(kept.home() / kept._name(folder, asked.precision))
        self.recipe = config.read(folder / "recipe.toml")
        self.beam, self.size = asked.beam, size
        self.source, self.target = load_tokenizers(folder, self.recipe)
        self.engine = ctranslate2.Translator(path, compute_type=asked.precision, **({} if asked.one else many))
        self.names = self.source.names()
        self.ids = {name: id for id, name in enumerate(self.target.names())}

    def __call__(self, texts: list[str]) -> list[str]:
        tags = [f"<2{asked_for(self.recipe.data, text)}>" for text in texts] if self.recipe.data.both_ways else None
        sources = [[self.names[id] for id in ids] + [self.recipe.tokenizer.eos] for ids in self.source.encode_batch(texts)]
        results = self.engine.translate_batch(
            [[tag, *names] for tag, names in zip(tags, sources, strict=True)] if tags else sources,
            max_batch_size=self.size,
            batch_type="tokens" if self.size else "examples",
            beam_size=self.beam,
            patience=PATIENCE if self.beam > 1 else 1,
            length_penalty=self.recipe.decoding.length_penalty,
            return_end_token=True,
            min_decoding_length=0,
            max_decoding_length=self.recipe.model.max_length - 1,
        )
        return [self.target.decode([self.ids[name] for name in result.hypotheses[0]]) for result in results]


def asked_for(data: PairData, text: str) -> str:
    return data.target if guess(text, (data.source, data.target)) == data.source else data.source


def solver(name: str, folder: Path, asked: argparse.Namespace) -> Solve:
    recipe = config.read(folder / "recipe.toml")
    kind, _, size = name.partition(" ")
    if kind == "ctranslate2":
        solve: Solve = Direct(folder, asked, int(size or 0))
    else:
        if kind == "pytorch":
            from glassformer.tasks.translate import Translate

            translator: Any = Translate.load(folder)
        else:
            translator = FastTranslator(folder, recipe, asked.precision, many=not asked.one)
        options = replace(recipe.decoding, beam=asked.beam)
        solve = lambda texts: [answer.text for answer in translator.translate_all(texts, options=options)]  # noqa: E731
    return (lambda texts: [answer for text in texts for answer in solve([text])]) if asked.one else solve


def serve(pipe: Connection, name: str, folder: Path, asked: argparse.Namespace, texts: list[str]) -> None:
    """A process of its own, so that the threads of one library do not stand in another's way. It answers when asked."""
    solve = solver(name, folder, asked)
    while pipe.recv():
        began = time.perf_counter()
        answers = solve(texts)
        pipe.send((time.perf_counter() - began, answers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="zh-en")
    parser.add_argument("--input", type=Path, required=True, help="sentences, one a line")
    parser.add_argument("--precision", default="float32", choices=["float32", "int8"])
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--one", type=int, default=0, help="translate this many sentences one by one, instead of all in batches")
    parser.add_argument("--pytorch", action="store_true", help="also PyTorch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    asked = parser.parse_args()
    texts = asked.input.read_text(encoding="utf-8").splitlines()
    texts = texts[: asked.one] if asked.one else texts
    folder = store.find_model(asked.model)
    FastTranslator(folder, config.read(folder / "recipe.toml"), asked.precision)  # converts it, if that has not been done
    names = ["glassformer", *(["ctranslate2"] if asked.one else [f"ctranslate2 {size}" for size in BATCHES])]
    names += ["pytorch"] if asked.pytorch else []
    pipes = {}
    spawn = multiprocessing.get_context("spawn")
    for name in names:
        pipes[name], theirs = spawn.Pipe()
        spawn.Process(target=serve, args=(theirs, name, folder, asked, texts), daemon=True).start()
    answers = {name: ask(pipe)[1] for name, pipe in pipes.items()}  # and warm
    took: dict[str, list[float]] = {name: [] for name in names}
    for repeat in range(asked.repeats):
        for name in names if repeat % 2 == 0 else names[::-1]:
            took[name].append(ask(pipes[name])[0])
    for pipe in pipes.values():
        pipe.send(False)
    found: dict[str, Any] = {
        "model": asked.model,
        "precision": asked.precision,
        "beam": asked.beam,
        "sentences": len(texts),
        "one by one": bool(asked.one),
        "cores": kept.cores(),
        "seconds": {name: round(statistics.median(each), 4) for name, each in took.items()},
    }
    for name in names[1:]:
        ratios = sorted(theirs / ours for theirs, ours in zip(took[name], took["glassformer"], strict=True))
        found[f"times {name}"] = [round(x, 3) for x in (statistics.median(ratios), ratios[0], ratios[-1])]
        found[f"unlike {name}"] = sum(a != b for a, b in zip(answers["glassformer"], answers[name], strict=True))
    print(json.dumps(found, ensure_ascii=False))
    if asked.json:
        asked.json.write_text(json.dumps(found, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def ask(pipe: Connection) -> tuple[float, list[str]]:
    pipe.send(True)
    return pipe.recv()


if __name__ == "__main__":
    main()
