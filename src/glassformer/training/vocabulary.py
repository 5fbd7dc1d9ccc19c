"""The vocabulary of a run: learned from its corpus, or brought along by the model it starts from."""

import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from glassformer.errors import UserError
from glassformer.options import TokenizerOptions
from glassformer.text.tokenizer import Tokenizer

# How many characters a vocabulary is learned from, evenly over the corpus: more adds no piece worth having, and takes memory.
# Unigram counts every substring; words and characters are merely counted.
CHARACTERS = {"bpe": 10_000_000, "unigram": 2_000_000, "word": 100_000_000, "character": 100_000_000}

Texts = Callable[[], Iterator[str]]  # can be read more than once


def sampled(texts: Texts, kind: str) -> Texts:
    """Every n-th two texts, so that at most the characters a vocabulary is learned from remain; two, since sides alternate."""
    if kind == "imported":
        raise UserError("tokenizer.kind = 'imported' comes with a model to start from (--from); a new one is learned as 'bpe'.")
    characters = sum(map(len, texts()))
    every = max(1, math.ceil(characters / CHARACTERS[kind]))
    return lambda: (text for i, text in enumerate(texts()) if i // 2 % every == 0)


def vocabulary(run: Path, options: TokenizerOptions, texts: Texts, start: Path | None, tags: list[str] | None = None) -> None:
    """Puts tokenizer.json into the run folder."""
    if start:
        shutil.copyfile(start / "tokenizer.json", run / "tokenizer.json")
        return
    Tokenizer.train(sampled(texts, options.kind)(), options, tags or []).save(run / "tokenizer.json")
