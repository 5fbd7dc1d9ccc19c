"""A convolutional classifier: filters of several sizes over the text, and the strongest answer of each (Kim 2014)."""

import torch
from torch import Tensor, nn

from glassformer.layers.convolution import Convolution
from glassformer.layers.embedding import Embedding
from glassformer.models.heads import LinearHead
from glassformer.options import TextCNNOptions
from glassformer.trace import tap


class TextCNN(nn.Module):
    """Convolution, batch norm, activation, pooling, dropout, and a linear layer on top."""

    def __init__(self, options: TextCNNOptions, vocabulary: int, outputs: int, pad: int = 0) -> None:
        super().__init__()
        o = options
        self.options = options
        self.pad = pad
        self.encoder = Filters(options, vocabulary)
        self.head = LinearHead(o.filters * len(o.sizes), outputs, pooling=o.pooling, dropout=o.dropout)

    def forward(self, ids: Tensor, types: Tensor | None = None) -> Tensor:
        """ids (B, T) → what every filter answers at every token (B, T, filters of all sizes)."""
        return self.encoder(ids, ids != self.pad)

    def logits(self, states: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, filters) → (B, outputs); `real` (B, T) is False where a row is padded."""
        return tap(self, "logits", self.head(tap(self.head, "in", states), real))


class Filters(nn.Module):
    """An embedding, and convolutions side by side, named conv3 for three neighbouring tokens and so on."""

    def __init__(self, options: TextCNNOptions, vocabulary: int) -> None:
        super().__init__()
        o = options
        self.sizes = o.sizes
        self.embed = Embedding(vocabulary, o.width, positions="none", max_length=o.max_length, dropout=0.0)
        for size in o.sizes:
            self.add_module(f"conv{size}", Convolution(o.width, o.filters, size, activation=o.activation))

    def forward(self, ids: Tensor, real: Tensor) -> Tensor:
        """ids (B, T), real (B, T) False for padding → (B, T, filters of all sizes)."""
        x = self.embed(ids) * real.unsqueeze(2)
        return torch.cat([self.get_submodule(f"conv{size}")(x, real) for size in self.sizes], dim=-1)
