"""Masks, built in one place: boolean, True = may look."""

import torch
from torch import Tensor


def padding(ids: Tensor, pad: int) -> Tensor | None:
    """Keys that are real tokens: ids (B, S) → (B, 1, 1, S), or None where nothing is padded and all may look."""
    real = ids != pad
    return None if bool(real.all()) else real[:, None, None, :]


def causal(length: int, start: int = 0) -> Tensor:
    """The tokens at start … start + T − 1 may look at themselves and whatever is before them: (T, start + T)."""
    return torch.ones(length, start + length, dtype=torch.bool).tril(start)
