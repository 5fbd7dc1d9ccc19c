"""Convolution over a text: filters that answer to a few neighbouring tokens, wherever they stand."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.layers.feedforward import ACTIVATIONS
from glassformer.trace import tap, traced


class BatchNorm(nn.Module):
    """γ · (x − μ) / √(σ² + ε) + β, where μ and σ² are each filter's over the batch, or while not training over all there was.

    Only real tokens count: padding would shift both.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, filters: int, epsilon: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.epsilon, self.momentum = epsilon, momentum
        self.weight = nn.Parameter(torch.ones(filters))  # γ
        self.bias = nn.Parameter(torch.zeros(filters))  # β
        self.register_buffer("mean", torch.zeros(filters))
        self.register_buffer("variance", torch.ones(filters))

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """x (B, T, F), real (B, T) → (B, T, F)."""
        if traced() and not self.training:
            return tap(self, "out", self.weight * (x - self.mean) / (self.variance + self.epsilon).sqrt() + self.bias)
        training = self.training and int(real.sum()) > 1  # one number has no variance
        found = F.batch_norm(
            x[real], self.mean, self.variance, self.weight, self.bias, training, self.momentum, self.epsilon
        )  # (N, F)
        return x.new_zeros(x.shape).masked_scatter(real.unsqueeze(2), found)


class Convolution(nn.Module):
    """f(BatchNorm(Σ_k W_k x_{t+k} + b)) for `size` neighbouring tokens around t; what is beyond the text counts as 0."""

    def __init__(self, width: int, filters: int, size: int, *, activation: str) -> None:
        super().__init__()
        self.size = size
        self.w = nn.Linear(size * width, filters)
        self.norm = BatchNorm(filters)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """x (B, T, D), 0 at padding, real (B, T) → (B, T, F)."""
        before = (self.size - 1) // 2
        around = F.pad(x, (0, 0, before, self.size - 1 - before)).unfold(1, self.size, 1)  # (B, T, D, size)
        pre = tap(self, "pre", self.w(around.transpose(2, 3).flatten(2)))
        return tap(self, "act", self.activation(self.norm(pre, real)))
