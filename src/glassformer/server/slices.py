"""Parts of tensors, as raw numbers: `0,:,2:5` takes the first of axis 0, all of axis 1 and three of axis 2."""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from glassformer.server.refusal import bad, too_large

_ENTRY = re.compile(r"(\d{1,9})|(\d{0,9}):(\d{0,9})", re.ASCII)
Floats = NDArray[np.float32]


def parse(text: str | None, shape: Sequence[int]) -> tuple[int | slice, ...]:
    """One entry for each axis: an index, which drops it, or a range; missing ones mean all."""
    entries = [entry.strip() for entry in text.split(",")] if text and text.strip() else []
    if len(entries) > len(shape):
        raise bad(
            "bad-slice", f"The slice {text!r} has {len(entries)} entries; the tensor has {len(shape)} axes.", shape=list(shape)
        )
    return tuple(_entry(entry, axis, size, shape) for axis, (entry, size) in enumerate(zip(entries, shape, strict=False)))


def _entry(entry: str, axis: int, size: int, shape: Sequence[int]) -> int | slice:
    found = _ENTRY.fullmatch(entry)
    if not found:
        raise bad("bad-slice", f"A slice has entries such as 3, : or 2:5, not {entry!r}.", axis=axis, shape=list(shape))
    one, start, end = found.groups()
    if one is not None:
        if int(one) >= size:
            raise bad("out-of-range", f"Axis {axis} has {size} entries, from 0; there is no {one}.", axis=axis, shape=list(shape))
        return int(one)
    first, last = int(start or 0), int(end) if end else size
    if not first < last <= size:
        raise bad(
            "out-of-range",
            f"Axis {axis} has {size} entries; {entry!r} is no range of them, from below to above.",
            axis=axis,
            shape=list(shape),
        )
    return slice(first, last)


def cut(x: Tensor, places: tuple[int | slice, ...], axes: Sequence[str]) -> tuple[Tensor, list[str]]:
    """The part, sharing memory, and the letters of the axes it has."""
    kept = [axis for i, axis in enumerate(axes) if i >= len(places) or isinstance(places[i], slice)]
    return x[places] if places else x, kept


def numbers(x: Tensor, limit: int) -> Floats:
    """Little-endian float32, if they are not too many."""
    if x.numel() > limit:
        raise too_large(x.numel(), limit)
    return x.detach().clone().contiguous().numpy().astype("<f4", copy=False)


def pooled(x: Tensor, most: int, pooling: str, limit: int) -> tuple[Floats, list[int]]:
    """Each of the last two axes cut to at most `most` entries, each the mean or maximum of some neighbours; how many those are.

    −∞, which masked scores have, does not count in a mean unless there is nothing else.
    """
    factors = [math.ceil(size / most) for size in x.shape[-2:]]
    total = math.prod(x.shape[:-2]) * math.prod(math.ceil(n / f) for n, f in zip(x.shape[-2:], factors, strict=True))
    if total > limit:
        raise too_large(total, limit)
    values = x.detach().clone().numpy()
    ways = list(zip((-2, -1)[-len(factors) :], factors, strict=True))
    if pooling == "max":
        return _reduced(np.maximum, values, ways).astype("<f4", copy=False), factors
    finite = np.isfinite(values)
    if not finite.all():
        values = np.where(finite, values, np.float32(0))
    sums, counts = _reduced(np.add, values, ways, np.float64), _reduced(np.add, finite, ways, np.float64)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)
    return means.astype("<f4"), factors


def _reduced(combine: np.ufunc, values: NDArray[Any], ways: list[tuple[int, int]], dtype: type | None = None) -> NDArray[Any]:
    for axis, factor in ways:
        values = combine.reduceat(values, range(0, values.shape[axis], factor), axis=axis, dtype=dtype)
    return values
