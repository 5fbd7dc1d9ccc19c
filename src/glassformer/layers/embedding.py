"""From ids to vectors: a row of a trained matrix for the token, plus where it stands."""

import math

import torch
from torch import Tensor, nn

from glassformer.layers.dropout import Dropout
from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.layers.positions import sinusoids
from glassformer.trace import tap


class Embedding(nn.Module):
    """√D · E[id] + position, with dropout on the sum (paper, sections 3.4, 3.5 and 5.4).

    GPT and BERT leave out √D; BERT also adds a vector for the token's type and normalises the sum.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        positions: str,
        max_length: int,
        dropout: float,
        scale: bool = True,
        types: int = 0,
        norm: LayerNorm | RMSNorm | None = None,
    ) -> None:
        super().__init__()
        self.scale = math.sqrt(width) if scale else 1.0
        std = width**-0.5 if scale else 0.02  # √D · E then has variance 1, as the positions nearly have
        self.token = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.token.weight, std=std)
        self.types = nn.Embedding(types, width) if types else None
        if self.types is not None:
            nn.init.normal_(self.types.weight, std=std)
        if positions == "learned":
            self.position: Tensor | None = nn.Parameter(torch.empty(max_length, width))
            nn.init.normal_(self.position, std=std)
        else:  # rotary positions act inside attention, and "none" has none: nothing is added here
            table = sinusoids(max_length, width) if positions == "sinusoidal" else None
            self.register_buffer("position", table, persistent=False)
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, start: int = 0, types: Tensor | None = None) -> Tensor:
        """ids (B, T), the first at position `start`, and their types (B, T) → (B, T, D)."""
        x = self.token(ids)
        x = tap(self, "token", x * self.scale if self.scale != 1 else x)
        if self.types is not None:
            x = x + tap(self, "type", self.types(torch.zeros_like(ids) if types is None else types))
        if self.position is not None:
            x = x + tap(self, "position", self.position[start : start + ids.size(1)].unsqueeze(0))
        x = tap(self, "sum", x)
        return self.dropout(self.norm(x) if self.norm else x)
