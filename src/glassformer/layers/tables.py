"""Tables that are computed, not trained, by numpy alone: the engine that decodes without torch needs them too."""

import math

import numpy as np
from numpy.typing import NDArray


def turns(length: int, d_k: int, base: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosines and sines (length, d_k / 2) of the angles by which rotary positions turn: pos / base^(2i/d_k)."""
    rate = np.exp(np.arange(0, d_k, 2, dtype=np.float64) * (-math.log(base) / d_k))
    angle = np.arange(length, dtype=np.float64)[:, None] * rate
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def sinusoids(length: int, width: int) -> NDArray[np.float32]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)), as (length, D).

    `pos` is the place of the token, `i` counts pairs of dimensions.
    """
    pos = np.arange(length, dtype=np.float64)[:, None]
    rate = np.exp(np.arange(0, width, 2, dtype=np.float64) * (-math.log(10_000) / width))
    table = np.zeros((length, width))
    table[:, 0::2] = np.sin(pos * rate)
    table[:, 1::2] = np.cos(pos * rate[: width // 2])  # an odd width has one cosine fewer
    return table.astype(np.float32)
