"""The stretches of text that word vectors learn from: words, what stands around them, and words drawn by chance."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import UserError
from glassformer.options import Word2VecOptions
from glassformer.text.batches import Place, permuted
from glassformer.text.stream import Stream

WINDOW = 1 << 15  # tokens that are prepared together
STRETCH = 32  # words of a stretch: their contexts overlap, so that one product of matrices serves them all
DRAWN = 32  # words drawn for a stretch, to be shared by its words

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Stretches:
    """N stretches of C words, with W more on either side."""

    words: Ints  # (N, C)
    around: Ints  # (N, C + 2W)
    near: NDArray[np.bool_]  # (N, C, C + 2W): which of those around are in the context of each word
    drawn: Ints  # (N, K)
    tokens: int  # of the corpus, before frequent words were left out

    def part(self, first: int, last: int, tokens: int) -> "Stretches":
        chosen = slice(first, last)
        return Stretches(self.words[chosen], self.around[chosen], self.near[chosen], self.drawn[chosen], tokens)


class Contexts:
    """Batches of stretches, about `tokens` words of the corpus each, for ever; decided by (seed, epoch, place)."""

    def __init__(self, stream: Stream, counts: Ints, options: Word2VecOptions, *, end: int, tokens: int, seed: int) -> None:
        self.stream, self.options, self.end, self.tokens, self.seed = stream, options, end, tokens, seed
        self.keep = kept(counts, options.subsample)
        self.cumulative = np.cumsum(drawing(counts, options.power)) if options.negatives else np.ones(1)

    def updates(self) -> int:
        """In how many batches the whole corpus is read once."""
        return sum(self._batches(length) for length in self._lengths())

    def _lengths(self) -> Iterator[int]:
        return (min(WINDOW, len(self.stream) - first) for first in range(0, len(self.stream), WINDOW))

    def _batches(self, length: int) -> int:
        return max(1, round(length / self.tokens))

    def iterate(self, place: Place) -> Iterator[tuple[Stretches, Place]]:
        epoch, window, skip = place.epoch, place.window, place.batch
        empty = 0  # parts of the text in a row of which nothing was left
        windows = -(-len(self.stream) // WINDOW)
        while True:
            chosen = int(permuted(np.array([window]), windows, key=(self.seed, epoch))[0])
            ids = np.asarray(self.stream.ids[chosen * WINDOW : (chosen + 1) * WINDOW], np.int64)
            made = self.stretches(ids, np.random.default_rng((self.seed, epoch, window)))
            count = self._batches(len(ids))
            after = Place(epoch, window + 1) if window + 1 < windows else Place(epoch + 1)
            for i in range(skip, count):
                first, last = (part * len(made.words) // count for part in (i, i + 1))
                tokens = (i + 1) * made.tokens // count - i * made.tokens // count
                if first < last:  # else subsampling has left nothing of it
                    empty = 0
                    yield made.part(first, last, tokens), (Place(epoch, window, i + 1) if i + 1 < count else after)
            empty += 1
            if empty > windows:
                raise UserError(
                    f"Of so small a text model.subsample = {self.options.subsample} leaves nothing to learn from; set it to 0."
                )
            epoch, window, skip = after.epoch, after.window, 0

    def stretches(self, ids: Ints, rng: np.random.Generator) -> Stretches:
        """All stretches of a piece of text, shuffled, so that a batch has words from many places."""
        reach = self.options.window
        document = np.cumsum(ids == self.end)
        words = ids != self.end
        ids, document = ids[words], document[words]
        tokens = len(ids)
        if self.options.subsample:
            stays = rng.random(tokens) < self.keep[ids]
            ids, document = ids[stays], document[stays]
        n = len(ids)
        place = np.arange(n)
        size = rng.integers(1, reach + 1, n) if self.options.shrink else np.full(n, reach)
        low = np.maximum(np.searchsorted(document, document, "left"), place - size)
        high = np.minimum(np.searchsorted(document, document, "right") - 1, place + size)
        count = -(-n // STRETCH)
        spare = count * STRETCH - n  # words missing in the last stretch, which have no context
        starts = rng.permutation(count) * STRETCH
        within, beside = np.arange(STRETCH), np.arange(-reach, STRETCH + reach)
        low = np.append(low, np.full(spare, n + reach))[starts[:, None] + within] - starts[:, None]
        high = np.append(high, np.full(spare, -reach - 1))[starts[:, None] + within] - starts[:, None]
        near = (beside >= low[:, :, None]) & (beside <= high[:, :, None]) & (beside != within[:, None])
        padded = np.concatenate([np.zeros(reach, np.int64), ids, np.zeros(spare + reach, np.int64)])
        drawn = np.searchsorted(self.cumulative, rng.random((count, DRAWN)) * self.cumulative[-1], "right")
        return Stretches(padded[starts[:, None] + reach + within], padded[starts[:, None] + reach + beside], near, drawn, tokens)


def kept(counts: Ints, threshold: float) -> Floats:
    """The chance that a word is kept: √(t/f) + t/f, at most 1, where f is its share of the text (word2vec.c's form)."""
    share = counts / max(1, counts.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = np.sqrt(threshold / share) + threshold / share
    return np.where(counts > 0, np.minimum(1.0, chance), 0.0)


def drawing(counts: Ints, power: float) -> Floats:
    """The chance that a word is drawn: count^power / Σ count^power; words that never occur are never drawn."""
    weights = np.where(counts > 0, counts.astype(np.float64) ** power, 0.0)
    drawn: Floats = weights / weights.sum()
    return drawn
