"""From ids to vectors: a row of a trained matrix for the token, plus where it stands."""

import math

import torch
from torch import Tensor, nn

from glassformer.layers.dropout import Dropout
from glassformer.layers.positions import sinusoids
from glassformer.trace import tap


class Embedding(nn.Module):
    """√D · E[id] + position, with dropout on the sum (paper, sections 3.4, 3.5 and 5.4)."""

    def __init__(self, vocabulary: int, width: int, *, positions: str, max_length: int, dropout: float) -> None:
        super().__init__()
        self.scale = math.sqrt(width)
        self.token = nn.Embedding(vocabulary, width)
        if positions == "learned":
            self.position: Tensor | None = nn.Parameter(torch.empty(max_length, width))
            nn.init.normal_(self.position, std=width**-0.5)
        else:  # rotary positions act inside attention, so nothing is added here
            table = sinusoids(max_length, width) if positions == "sinusoidal" else None
            self.register_buffer("position", table, persistent=False)
        nn.init.normal_(self.token.weight, std=width**-0.5)  # so that √D · E has variance 1, as the positions nearly have
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """ids (B, T), the first at position `start` → (B, T, D)."""
        x = tap(self, "token", self.token(ids) * self.scale)
        if self.position is not None:
            x = x + tap(self, "position", self.position[start : start + ids.size(1)].unsqueeze(0))
        return self.dropout(tap(self, "sum", x))
