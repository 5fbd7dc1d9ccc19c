"""Layer normalisation with its two trained vectors."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.trace import tap, traced


class LayerNorm(nn.Module):
    """γ · (x − μ) / √(σ² + ε) + β, over the D numbers of each token."""

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))  # γ
        self.bias = nn.Parameter(torch.zeros(width))  # β

    def forward(self, x: Tensor) -> Tensor:
        if not traced():
            return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)
        x = tap(self, "in", x)
        mean = tap(self, "mean", x.mean(-1, keepdim=True))
        deviation = tap(self, "deviation", (x.var(-1, keepdim=True, unbiased=False) + self.epsilon).sqrt())
        scaled = tap(self, "scaled", (x - mean) / deviation)
        return tap(self, "out", self.weight * scaled + self.bias)
