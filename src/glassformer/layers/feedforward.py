"""The position-wise feed-forward network."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.trace import tap

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W₁ + b₁) W₂ + b₂ (paper, equation 2), or with GELU in place of max(0, ·)."""

    def __init__(self, width: int, inner: int, *, activation: str) -> None:
        super().__init__()
        self.w1 = nn.Linear(width, inner)
        self.w2 = nn.Linear(inner, width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        pre = tap(self, "pre", self.w1(x))
        act = tap(self, "act", self.activation(pre))
        return tap(self, "out", self.w2(act))
