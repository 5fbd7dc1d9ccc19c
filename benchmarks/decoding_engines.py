"""Translating with CTranslate2 through Glassformer, beside CTranslate2 called directly on the same weights, and beside PyTorch.

python benchmarks/decoding_engines.py --model runs/multi30k --input sentences.txt

Text goes in and text comes out of each. All take turns within every repeat, and what is told is the median of the ratios of a
repeat, with the least and the greatest. CTranslate2 is called with its own batching, on all cores, with the options that make its
search ours: a patience of 2, the end mark counted in the length. Where the outputs differ, it is told how many do.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2

from glassformer import config, store
from glassformer.decoding.state import PATIENCE
from glassformer.engine import kept
from glassformer.engine.translator import FastTranslator

Solve = Callable[[list[str]], list[str]]
BATCHES = (1024, 2048, 4096)  # of source tokens, which CTranslate2 called directly is tried with; its best is taken


class Direct:
    """CTranslate2 as its own documentation calls it, with our tokenizer."""

    def __init__(self, fast: FastTranslator, folder: Path, precision: str, beam: int, *, many: bool, size: int = 0) -> None:
        threads: dict[str, Any] = {"inter_threads": kept.cores(), "intra_threads": 1} if many else {}
        path = str(kept.home() / kept._name(folder, precision))
        self.fast, self.beam, self.size = fast, beam, size
        self.engine = ctranslate2.Translator(path, compute_type=precision, **threads)
        self.names = fast.source.names()
        self.ids = {name: id for id, name in enumerate(fast.target.names())}

    def __call__(self, texts: list[str]) -> list[str]:
        sources = [
            self.fast.source_ids(ids, self.fast.direction(text))
            for text, ids in zip(texts, self.fast.source.encode_batch(texts), strict=True)
        ]
        results = self.engine.translate_batch(
            [[self.names[id] for id in ids] for ids in sources],
            max_batch_size=self.size,
            batch_type="tokens" if self.size else "examples",
            beam_size=self.beam,
            patience=PATIENCE if self.beam > 1 else 1,
            length_penalty=self.fast.recipe.decoding.length_penalty,
            return_end_token=True,
            min_decoding_length=0,
            max_decoding_length=self.fast.recipe.model.max_length - 1,
        )
        return [self.fast.target.decode([self.ids[name] for name in result.hypotheses[0]]) for result in results]


def one_by_one(solve: Solve) -> Solve:
    return lambda texts: [answer for text in texts for answer in solve([text])]


def through(translator: Any, beam: int) -> Solve:
    options = replace(translator.recipe.decoding, beam=beam)
    return lambda texts: [answer.text for answer in translator.translate_all(texts, options=options)]


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
    recipe = config.read(folder / "recipe.toml")
    fast = FastTranslator(folder, recipe, asked.precision, many=not asked.one)
    solvers: dict[str, Solve] = {"glassformer": through(fast, asked.beam)}
    if asked.one:
        solvers["ctranslate2"] = Direct(fast, folder, asked.precision, asked.beam, many=False)
    else:
        tried = {size: Direct(fast, folder, asked.precision, asked.beam, many=True, size=size) for size in BATCHES}
        seconds = {size: timed(solve, texts)[0] for size, solve in tried.items()}
        solvers["ctranslate2"] = tried[min(seconds, key=lambda size: seconds[size])]
    if asked.pytorch:
        from glassformer.tasks.translate import Translate

        solvers["pytorch"] = through(Translate.load(folder), asked.beam)
    if asked.one:
        solvers = {name: one_by_one(solve) for name, solve in solvers.items()}
    answers = {name: solve(texts) for name, solve in solvers.items()}  # and warm
    took: dict[str, list[float]] = {name: [] for name in solvers}
    for repeat in range(asked.repeats):
        names = list(solvers) if repeat % 2 == 0 else list(solvers)[::-1]
        for name in names:
            took[name].append(timed(solvers[name], texts)[0])
    found = {
        "model": asked.model,
        "precision": asked.precision,
        "beam": asked.beam,
        "sentences": len(texts),
        "one by one": bool(asked.one),
        "cores": kept.cores(),
        "processor": os.uname().machine,
        "seconds": {name: round(statistics.median(each), 4) for name, each in took.items()},
    }
    for name in list(solvers)[1:]:
        ratios = sorted(theirs / ours for theirs, ours in zip(took[name], took["glassformer"], strict=True))
        found[f"times {name}"] = [round(x, 3) for x in (statistics.median(ratios), ratios[0], ratios[-1])]
        found[f"unlike {name}"] = sum(a != b for a, b in zip(answers["glassformer"], answers[name], strict=True))
    print(json.dumps(found, ensure_ascii=False))
    if asked.json:
        asked.json.write_text(json.dumps(found, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def timed(solve: Solve, texts: list[str]) -> tuple[float, list[str]]:
    began = time.perf_counter()
    answers = solve(texts)
    return time.perf_counter() - began, answers


if __name__ == "__main__":
    main()
