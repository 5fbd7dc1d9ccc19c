"""Masks, built in one place: boolean, True = may look."""

import torch
from torch import Tensor


def padding(ids: Tensor, pad: int) -> Tensor | None:
    """Keys that are real tokens: ids (B, S) → (B, 1, 1, S), or None where nothing is padded and all may look."""
    real = ids != pad
    return None if bool(real.all()) else real[:, None, None, :]


def causal(length: int) -> Tensor:
    """Token t may look at 0 … t: (T, T)."""
    return torch.ones(length, length, dtype=torch.bool).tril()
