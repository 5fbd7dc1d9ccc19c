"""Sentence pairs of invented words, as many as one likes: for benchmarks that need text but not its meaning.

Word r of the vocabulary comes with probability ∝ 1/r (Zipf's law), so a few words make up most of the text and new ones keep
turning up, as in any language. Lengths are those of Multi30k's captions.
"""

from collections.abc import Iterator
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

SYLLABLES = [a + b for a, b in product("bdfghklmnprstvwz", "aeiou")]
BLOCK = 10_000  # pairs drawn at a time


def vocabulary(size: int) -> list[str]:
    """The `size` shortest words: ba, be, …, baba, babe, …"""
    return list(islice(("".join(word) for length in range(1, 9) for word in product(SYLLABLES, repeat=length)), size))


def pairs(words: int, seed: int) -> Iterator[tuple[str, str]]:
    """Pairs of sentences over a vocabulary of that many words, without end; the same for the same seed."""
    rng = np.random.default_rng(seed)
    known = vocabulary(words)
    while True:
        sources = np.clip(rng.normal(13.0, 4.0, BLOCK), 4, 40).astype(int)
        targets = np.clip(sources + rng.normal(-0.6, 2.2, BLOCK), 3, 40).astype(int)
        yield from zip(_sentences(sources, known, rng), _sentences(targets, known, rng), strict=True)


def _sentences(lengths: NDArray[np.int64], known: list[str], rng: np.random.Generator) -> Iterator[str]:
    ranks = len(known) ** rng.random(lengths.sum())  # uniform in its logarithm, which is Zipf's law
    drawn = iter(ranks.astype(int).tolist())
    for length in lengths.tolist():
        yield " ".join([known[rank - 1] for rank in islice(drawn, length)]) + " ."
