"""The encoder alone: every token looks both ways. A head on top says what is made of its states."""

from torch import Tensor, nn

from glassformer.layers import masks
from glassformer.layers.dropout import Dropout
from glassformer.layers.feedforward import ACTIVATIONS
from glassformer.layers.norm import LayerNorm
from glassformer.models.stack import Stack, initialise_small
from glassformer.options import BertOptions, RnnOptions
from glassformer.trace import tap


class Bert(nn.Module):
    """An encoder with token types, and one of the heads below."""

    def __init__(self, options: BertOptions, vocabulary: int, head: nn.Module, pad: int = 0) -> None:
        super().__init__()
        self.options = options
        self.pad = pad
        self.encoder = Stack(options, vocabulary, options.layers)
        self.head = head
        initialise_small(self, options.layers)
        if isinstance(head, MaskedHead):
            head.output.weight = self.encoder.embed.token.weight

    def forward(self, ids: Tensor, types: Tensor | None = None) -> Tensor:
        """ids (B, T) and the type of each (B, T) → the last states (B, T, D)."""
        states, _ = self.encoder(ids, types=types, mask=masks.padding(ids, self.pad))
        return states

    def logits(self, states: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, D) → whatever the head predicts; `real` (B, T) is False where a row is padded."""
        return tap(self, "logits", self.head(tap(self.head, "in", states), real))


class MaskedHead(nn.Module):
    """Which word stood there: LayerNorm(f(x W + b)) Eᵀ + b, where E is the embedding matrix."""

    def __init__(self, options: BertOptions, vocabulary: int) -> None:
        super().__init__()
        self.dense = nn.Linear(options.width, options.width)
        self.activation = ACTIVATIONS[options.activation]
        self.norm = LayerNorm(options.width, options.epsilon)
        self.output = nn.Linear(options.width, vocabulary)

    def forward(self, states: Tensor, real: Tensor | None = None) -> Tensor:
        """(…, D) → (…, V)."""
        return self.output(tap(self, "transformed", self.norm(self.activation(self.dense(states)))))


class PooledHead(nn.Module):
    """One answer for a text: W · tanh(dense(pooled)) + b, where pooled is the first token's state or the mean of all."""

    def __init__(self, options: BertOptions, outputs: int) -> None:
        super().__init__()
        self.pooling = options.pooling
        self.dense = nn.Linear(options.width, options.width)
        self.dropout = Dropout(options.dropout)
        self.output = nn.Linear(options.width, outputs)

    def forward(self, states: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, D) → (B, outputs)."""
        pooled = tap(self, "pooled", states[:, 0] if self.pooling == "first" else _mean(states, real))
        return self.output(self.dropout(tap(self, "dense", self.dense(pooled).tanh())))


class TokenHead(nn.Module):
    """An answer for each token: x W + b."""

    def __init__(self, options: BertOptions | RnnOptions, outputs: int) -> None:
        super().__init__()
        self.dropout = Dropout(options.dropout)
        self.output = nn.Linear(options.width, outputs)

    def forward(self, states: Tensor, real: Tensor | None = None) -> Tensor:
        """(…, D) → (…, outputs)."""
        return self.output(self.dropout(states))


def _mean(states: Tensor, real: Tensor | None) -> Tensor:
    if real is None:
        return states.mean(1)
    kept = real.unsqueeze(2).to(states.dtype)
    return (states * kept).sum(1) / kept.sum(1)
