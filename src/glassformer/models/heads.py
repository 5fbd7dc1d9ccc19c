"""What is made of one vector for a whole text by recurrent and convolutional readers."""

import math

import torch
from torch import Tensor, nn

from glassformer.layers.dropout import Dropout
from glassformer.trace import tap


class LinearHead(nn.Module):
    """One answer for a text: W · pooled + b.

    Pooled is the mean of all states, the largest of each of their numbers, or what a recurrent layer ended in: of the first
    `ahead` numbers the last token's, of the others, which were read from the end, the first token's.
    """

    def __init__(self, width: int, outputs: int, *, pooling: str, dropout: float, ahead: int = 0) -> None:
        super().__init__()
        self.pooling = pooling
        self.ahead = ahead or width
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(width, outputs)

    def forward(self, states: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, D) → (B, outputs)."""
        return self.output(self.dropout(tap(self, "pooled", self._pooled(states, real))))

    def _pooled(self, states: Tensor, real: Tensor | None) -> Tensor:
        if real is None:
            real = torch.ones(states.shape[:2], dtype=torch.bool)
        if self.pooling == "max":
            return states.masked_fill(~real.unsqueeze(2), -math.inf).amax(1)
        if self.pooling == "mean":
            return (states * real.unsqueeze(2)).sum(1) / real.sum(1, keepdim=True)
        last = states[torch.arange(len(states)), real.sum(1) - 1]
        return torch.cat((last[:, : self.ahead], states[:, 0, self.ahead :]), dim=1)
