"""How a model knows the order of tokens: added sinusoids (the paper's), added learned vectors, or rotated queries and keys."""

import math

import torch
from torch import Tensor, nn


def sinusoids(length: int, width: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)), as (length, D).

    `pos` is the place of the token, `i` counts pairs of dimensions.
    """
    pos = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000) / width))
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(pos * rate)
    table[:, 1::2] = torch.cos(pos * rate[: width // 2])  # an odd width has one cosine fewer
    return table.float()


class Rotary(nn.Module):
    """Turns each pair of numbers of a query or key by an angle that grows with its position (RoFormer).

    Dot products then depend on the distance of two positions alone. Pairs are (x_i, x_{i + d/2}).
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, length: int, d_k: int, base: float = 10_000.0) -> None:
        super().__init__()
        rate = torch.exp(torch.arange(0, d_k, 2, dtype=torch.float64) * (-math.log(base) / d_k))
        angle = torch.arange(length, dtype=torch.float64).unsqueeze(1) * rate  # (length, d_k / 2)
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, H, T, d_k), its first token at position `start`."""
        cos, sin = self.cos[start : start + x.size(2)], self.sin[start : start + x.size(2)]
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    def back(self, x: Tensor) -> Tensor:
        """What was turned, as it was before; its first token at position 0."""
        cos, sin = self.cos[: x.size(2)], self.sin[: x.size(2)]
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos + b * sin, b * cos - a * sin), dim=-1)
