"""How a model knows the order of tokens: added sinusoids (the paper's), added learned vectors, or rotated queries and keys."""

import torch
from torch import Tensor, nn

from glassformer.layers import tables


def sinusoids(length: int, width: int) -> Tensor:
    """The paper's positions (length, D)."""
    return torch.from_numpy(tables.sinusoids(length, width))


class Rotary(nn.Module):
    """Turns each pair of numbers of a query or key by an angle that grows with its position (RoFormer).

    Dot products then depend on the distance of two positions alone. Pairs are (x_i, x_{i + d/2}).
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, length: int, d_k: int, base: float = 10_000.0) -> None:
        super().__init__()
        for name, table in zip(("cos", "sin"), tables.turns(length, d_k, base), strict=True):
            self.register_buffer(name, torch.from_numpy(table), persistent=False)  # (length, d_k / 2)

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
