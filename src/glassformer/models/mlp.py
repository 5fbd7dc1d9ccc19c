"""A text as one vector of features, and a network with one inner layer over it: the order of the words is lost."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import Embedding
from glassformer.layers.feedforward import FeedForward
from glassformer.options import MLPOptions
from glassformer.trace import tap


class MLP(nn.Module):
    """FFN(features), with dropout on the features."""

    def __init__(self, options: MLPOptions, vocabulary: int, outputs: int, pad: int = 0) -> None:
        super().__init__()
        self.options = options
        self.encoder = Features(options, vocabulary, pad)
        self.dropout = Dropout(options.dropout)
        self.ffn = FeedForward(self.encoder.size, options.inner, activation=options.activation, outputs=outputs)

    def forward(self, ids: Tensor, types: Tensor | None = None) -> Tensor:
        """ids (B, T) → features (B, N)."""
        return self.encoder(ids)

    def logits(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, N) → (B, outputs)."""
        return tap(self, "logits", self.ffn(self.dropout(features)))


class Features(nn.Module):
    """What is known of a text:

    one-hot  1 for every piece of the vocabulary that occurs
    bag      how often each occurs
    ngrams   the same of all sequences of 1 … n pieces, each counted in one of N buckets
    vectors  the mean of the pieces' vectors
    """

    def __init__(self, options: MLPOptions, vocabulary: int, pad: int) -> None:
        super().__init__()
        self.input, self.pad, self.longest = options.input, pad, options.ngrams
        self.size = {"ngrams": options.buckets, "vectors": options.width}.get(options.input, vocabulary)
        self.embed = None
        if options.input == "vectors":
            self.embed = Embedding(vocabulary, options.width, positions="none", max_length=options.max_length, dropout=0.0)

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T) → (B, N)."""
        real = ids != self.pad
        if self.embed is not None:
            return tap(self, "features", (self.embed(ids) * real.unsqueeze(2)).sum(1) / real.sum(1, keepdim=True))
        return tap(self, "features", self.count(ids, real))

    def count(self, ids: Tensor, real: Tensor) -> Tensor:
        found = torch.zeros(len(ids), self.size)
        for n in range(1, self.longest + 1 if self.input == "ngrams" else 2):
            if n > ids.size(1):
                break
            found.scatter_add_(1, self.buckets(ids, n), real[:, n - 1 :].float())  # an n-gram is real if its last piece is
        return found.clamp(max=1.0) if self.input == "one-hot" else found

    def buckets(self, ids: Tensor, n: int) -> Tensor:
        """Where each sequence of n pieces is counted: ids (B, T) → (B, T − n + 1)."""
        return self.bucket([ids[:, i : ids.size(1) - n + 1 + i] for i in range(n)])

    def bucket(self, gram: Sequence[Any]) -> Any:
        """Where a sequence of pieces is counted, each a number or many of them."""
        if self.input != "ngrams":
            return gram[0]
        key = gram[0] * 0
        for id in gram:  # a polynomial of the ids, modulo a prime so that no number outgrows 64 bits
            key = (key * 1_000_003 + id + 1) % 2_147_483_647
        return key % self.size
