"""A model's weights as NumPy's arrays, for engines that work without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Unfit(Exception):
    """Weights that are not those of the recipe."""


def read_weights(path: Path) -> dict[str, Array]:
    """All tensors of a safetensors file as float32."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found = load_file(path)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, AttributeError):  # also bfloat16, which numpy lacks
        from glassformer.weights import read_tensors

        return {name: x.float().numpy() for name, x in read_tensors(path).items()}
    return {name: x.astype(np.float32, copy=False) for name, x in found.items()}


class Weights:
    """The tensors by name, each of the shape that the recipe asks for."""

    def __init__(self, found: Mapping[str, Array]) -> None:
        self._found = found
        self._left = set(found)

    def __call__(self, name: str, *shape: int) -> Array:
        x = self._found.get(name)
        if x is None or x.shape != shape:
            raise Unfit(f"{name} is {'missing' if x is None else x.shape}; the recipe asks for {shape}")
        if not np.isfinite(x).all():
            raise Unfit(f"{name} is not all finite")
        self._left.discard(name)
        return np.ascontiguousarray(x)

    def check_all_taken(self) -> None:
        if self._left:
            raise Unfit(f"unexpected: {', '.join(sorted(self._left)[:5])}")
