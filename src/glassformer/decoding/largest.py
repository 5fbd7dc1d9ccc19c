"""The largest numbers of each row, found in less time than by `topk`, which looks at them one by one."""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.layers.cache import Array

PARTS = range(64, 128)  # how many numbers may stand in a part
ENOUGH = 30_000  # numbers; fewer are found sooner by PyTorch
FEW = 4  # rows, which NumPy goes through one by one
STEP = 512  # parts of such a row: each has every 512th number


def largest(x: Array, count: int) -> tuple[Array, NDArray[np.int64]]:
    """The `count` largest of each row of x (B, n), largest first, and where they stand: as `topk`.

    The maxima of parts of a row come eight at a time. The `count` largest numbers lie in the `count` parts with the largest
    maxima. A row that cannot be cut into equal parts of such a size is left to `topk`.
    """
    rows, size = x.shape
    if rows <= FEW and size >= ENOUGH and count < STEP:
        found = [_of_one(row, count) for row in x]
        if all(len(places) == count for places in found):
            at = np.stack(found)
            return np.take_along_axis(x, at, 1), at
    part = _part(size)
    if x.size < ENOUGH or not count < size // part:
        return _topk(x, count)
    cut, row = x.reshape(rows, -1, part), np.arange(rows)[:, None]
    _, chosen = _topk(torch.from_numpy(cut).amax(2).numpy(), count)  # (B, count)
    values, at = _topk(cut[row, chosen].reshape(rows, -1), count)
    which, place = np.divmod(at, part)
    return values, chosen[row, which] * part + place


def _of_one(row: Array, count: int) -> NDArray[np.int64]:
    """Where its `count` largest numbers stand, largest first: none is below the `count`-th largest maximum. Where some are not
    numbers, fewer may be found."""
    rest = len(row) % STEP
    maxima = row[: len(row) - rest].reshape(-1, STEP).max(0)
    maxima[:rest] = np.maximum(maxima[:rest], row[len(row) - rest :])
    at = np.flatnonzero(row >= np.partition(maxima, -count)[-count])
    return at[(-row[at]).argsort(kind="stable")[:count]]


def _topk(x: Array, count: int) -> tuple[Array, NDArray[np.int64]]:
    values, places = torch.from_numpy(x).topk(count, dim=1)
    return values.numpy(), places.numpy()


@cache
def _part(size: int) -> int:
    """The size of parts into which a row can be cut; of all, if there is no such."""
    return next((part for part in PARTS if size % part == 0), size)
