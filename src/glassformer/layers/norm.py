"""Normalisation of each token's vector, with what is trained in it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.trace import tap, traced


class LayerNorm(nn.Module):
    """γ · (x − μ) / √(σ² + ε) + β, over the D numbers of each token."""

    def __init__(self, width: int, epsilon: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))  # γ
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None  # β

    def forward(self, x: Tensor) -> Tensor:
        if not traced():
            return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)
        x = tap(self, "in", x)
        mean = tap(self, "mean", x.mean(-1, keepdim=True))
        deviation = tap(self, "deviation", (x.var(-1, keepdim=True, unbiased=False) + self.epsilon).sqrt())
        scaled = tap(self, "scaled", (x - mean) / deviation)
        out = self.weight * scaled
        return tap(self, "out", out if self.bias is None else out + self.bias)


class RMSNorm(nn.Module):
    """γ · x / √(mean(x²) + ε): neither centred nor shifted."""

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))  # γ

    def forward(self, x: Tensor) -> Tensor:
        if not traced():
            return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)
        x = tap(self, "in", x)
        rms = tap(self, "rms", (x.square().mean(-1, keepdim=True) + self.epsilon).sqrt())
        scaled = tap(self, "scaled", x / rms)
        return tap(self, "out", self.weight * scaled)


def normalisation(kind: str, width: int, epsilon: float, bias: bool) -> LayerNorm | RMSNorm:
    return RMSNorm(width, epsilon) if kind == "rms" else LayerNorm(width, epsilon, bias)
