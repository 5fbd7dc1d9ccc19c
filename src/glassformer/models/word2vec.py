"""Word2Vec (Mikolov et al. 2013): two matrices, no bias, no activation."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.layers.negative_sampling import negative_sampling
from glassformer.options import Word2VecOptions
from glassformer.text.words import bucket, ngrams
from glassformer.trace import tap


@dataclass(frozen=True)
class Neighbourhoods:
    """N stretches of text, each of C words that read or are predicted, all at once.

    Skip-gram reads the words and predicts those around them; CBOW reads the words around (`reads` says which belong to which) and
    predicts the words. Either way each of the C hidden states is held against the J targets of its stretch: the real ones first,
    then the drawn ones, which are shared.
    """

    inputs: Tensor  # (N, I) ids
    targets: Tensor  # (N, J) ids
    weights: Tensor  # (N, C, J): how much a target counts for a word; 0 if it does not belong to it
    positives: int  # how many of the J are real
    labels: Tensor  # the real targets of all states, one after another
    reads: Tensor | None = None  # (N, C, I): what of the inputs each state is made of; none if state and input are one
    tokens: int = 0  # of the corpus, before frequent words were left out


class Word2Vec(nn.Module):
    """h = x W_in for a word, or for the sum (or mean) of its context; scores of the vocabulary are h W_outᵀ.

    With n-grams a row of W_in is the mean of the word's own row and those of its n-grams (Bojanowski et al. 2017).
    """

    def __init__(self, options: Word2VecOptions, words: Sequence[str]) -> None:
        super().__init__()
        self.options = options
        self.size = len(words)
        rows = self.size + (options.buckets if options.ngrams else 0)
        self.input = nn.Embedding(rows, options.width, sparse=True)
        nn.init.uniform_(self.input.weight, -0.5 / options.width, 0.5 / options.width)
        self.output = nn.Embedding(self.size, options.width, sparse=bool(options.negatives)) if options.output else None
        if self.output is not None:
            nn.init.zeros_(self.output.weight)
        if options.ngrams:
            parts = [[id, *self._rows(word)] for id, word in enumerate(words)]
            self.register_buffer("parts", torch.tensor([row for each in parts for row in each]), persistent=False)
            self.register_buffer("lengths", torch.tensor([len(each) for each in parts]), persistent=False)
            self.register_buffer("starts", self.lengths.cumsum(0) - self.lengths, persistent=False)

    parts: Tensor  # the rows that each word is the mean of, one word after another
    lengths: Tensor  # (V)
    starts: Tensor  # (V)

    def rows(self, id: int) -> list[int]:
        """The rows that the vector of a word is the mean of."""
        if not self.options.ngrams:
            return [id]
        start = int(self.starts[id])
        rows: list[int] = self.parts[start : start + int(self.lengths[id])].tolist()
        return rows

    def _rows(self, word: str) -> list[int]:
        """Those of a word's n-grams."""
        return [self.size + bucket(gram, self.options.buckets) for gram in ngrams(word, self.options.ngrams)]

    def embed(self, ids: Tensor) -> Tensor:
        """ids (…) → x W_in (…, D)."""
        if not self.options.ngrams:
            return self.input(ids)
        lengths = self.lengths[ids.flatten()]
        offsets = lengths.cumsum(0) - lengths
        shift = (self.starts[ids.flatten()] - offsets).repeat_interleave(lengths)
        flat = self.parts[shift + torch.arange(len(shift))]
        return F.embedding_bag(flat, self.input.weight, offsets, mode="mean", sparse=True).view(*ids.shape, self.options.width)

    def forward(self, ids: Tensor) -> Tensor:
        """A text (B, T) → hidden states (B, T, D): of each word (skip-gram), or of the words around it (CBOW)."""
        x = tap(self, "word", self.embed(ids))
        if self.options.architecture == "skip-gram":
            return tap(self, "hidden", x)
        place = torch.arange(ids.size(1))
        distance = (place.unsqueeze(0) - place.unsqueeze(1)).abs()
        around = ((distance > 0) & (distance <= self.options.window)).to(x.dtype)  # (T, T)
        return tap(self, "hidden", self._weighed(around) @ x)

    def _weighed(self, around: Tensor) -> Tensor:
        """A row's ones as a sum or a mean."""
        return around / around.sum(-1, keepdim=True).clamp(min=1) if self.options.context == "mean" else around

    def logits(self, hidden: Tensor) -> Tensor:
        """h W_outᵀ: (…, D) → (…, V)."""
        assert self.output is not None
        return tap(self, "logits", hidden @ self.output.weight.T)

    def loss(self, batch: Neighbourhoods) -> Tensor:
        """Σ −log p(target | h) over the pairs of a batch: of the softmax, or of telling the target from drawn words."""
        assert self.output is not None
        x = self.embed(batch.inputs)
        hidden = x if batch.reads is None else self._weighed(batch.reads) @ x  # (N, C, D)
        if self.options.negatives:
            return negative_sampling(hidden, self.output(batch.targets), batch.weights, batch.positives)
        log_p = (hidden @ self.output.weight.T).log_softmax(-1)  # (N, C, V)
        targets = batch.targets.unsqueeze(1).expand(-1, hidden.size(1), -1)  # (N, C, J)
        return -(log_p.gather(2, targets) * batch.weights).sum()

    @torch.inference_mode()
    def vectors(self) -> Tensor:
        """(V, D): the vector of every word."""
        chunks = torch.arange(self.size).split(10_000)
        return torch.cat([self.embed(ids) for ids in chunks])

    @torch.inference_mode()
    def guess(self, word: str) -> Tensor | None:
        """(D): a vector for a word that is not in the vocabulary, from its n-grams; None if the model knows none."""
        rows = self._rows(word) if self.options.ngrams else []
        return self.input.weight[rows].mean(0) if rows else None
