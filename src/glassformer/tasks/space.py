"""Words as points: which are near, what lies where another's step leads, how alike two are."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import UserError
from glassformer.text.tokenizer import Tokenizer

Guess = Callable[[str], Tensor | None]


@dataclass(frozen=True)
class Near:
    word: str
    cosine: float


class NoDirection(UserError):
    """A vector of zeros has no cosine with anything."""


class Space:
    """Words and their vectors (V, D), all brought to length 1: a dot product is a cosine. One of zeros stays, and is near none.

    `normalise` turns a word as typed into a word as the vocabulary has it; `guess` may give a vector to one that is in none.
    """

    def __init__(
        self,
        words: Sequence[str],
        vectors: Tensor,
        *,
        normalise: Callable[[str], str] = lambda word: word,
        guess: Guess = lambda word: None,
    ) -> None:
        self.words = list(words)
        self.unit = unit(vectors.float())
        self.zero = ~self.unit.any(1)  # (V)
        self._zeros = set(self.zero.nonzero().flatten().tolist())
        self._rows = {word: row for row, word in enumerate(self.words)}
        self._normalise, self._guess = normalise, guess

    def row(self, word: str) -> int | None:
        """Where a word stands, as typed or as the vocabulary would have it."""
        return self._rows.get(word, self._rows.get(self._normalise(word)))

    def directed(self, word: str) -> int | None:
        """Where a word stands whose vector is not 0."""
        row = self.row(word)
        return None if row in self._zeros else row

    def vector(self, word: str) -> Tensor:
        """(D); of a word that is not in the vocabulary an error that names those of nearest spelling."""
        row = self.row(word)
        if row is not None:
            if row in self._zeros:
                raise NoDirection(f"The vector of {word!r} is 0 in every place: it has no direction, so no word is near it.")
            return self.unit[row]
        guessed = self._guess(self._normalise(word))
        if guessed is None:
            near = self.spelled_like(word)
            hint = f" Nearest in spelling: {', '.join(near)}." if near else ""
            raise UserError(f"The word {word!r} is not among the {len(self.words):,} of this vocabulary.{hint}")
        return F.normalize(guessed.float(), dim=0)

    def spelled_like(self, word: str, count: int = 3) -> list[str]:
        """Words that differ little: of those that share a character with it and are about as long."""
        characters = set(self._normalise(word))
        likely = [other for other in self.words if abs(len(other) - len(word)) <= 3 and not characters.isdisjoint(other)]
        return difflib.get_close_matches(self._normalise(word), likely, n=count, cutoff=0.5)

    def similarity(self, a: str, b: str) -> float:
        """cos(a, b)."""
        for word in (a, b):
            if self.row(word) in self._zeros:
                raise NoDirection(f"The vector of {word!r} is 0 in every place: its cosine with any other is undefined.")
        return float(self.vector(a) @ self.vector(b))

    def neighbours(self, word: str, count: int = 10) -> list[Near]:
        return self.nearest(self.vector(word), count, without=[word])

    def analogy(self, a: str, b: str, c: str, count: int = 10) -> list[Near]:
        """What is nearest to a − b + c, such as king − man + woman; the three themselves are left out."""
        return self.nearest(self.vector(a) - self.vector(b) + self.vector(c), count, without=[a, b, c])

    def nearest(self, vector: Tensor, count: int, without: Sequence[str] = ()) -> list[Near]:
        """The words of largest cosine with a vector (D)."""
        if not vector.any():
            raise NoDirection("These vectors add up to 0 in every place: that is no direction, so no word is near it.")
        cosines = (self.unit @ F.normalize(vector, dim=0)).masked_fill(self.zero, -torch.inf)
        for word in without:
            if (row := self.row(word)) is not None:
                cosines[row] = -torch.inf
        best = cosines.topk(min(count, len(self.words)))
        found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [Near(self.words[row], cosine) for row, cosine in found if cosine > -torch.inf]


def unit(vectors: Tensor) -> Tensor:
    """Every row (V, D) brought to length 1; one of zeros stays as it is."""
    norms = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    found = vectors / norms.clamp(min=1e-30)
    odd = ((norms < 1e-15) | norms.isinf()).squeeze(1)  # whose squares are beyond what 32 bits can say
    found[odd] = F.normalize(vectors[odd].double(), dim=1, eps=1e-300).float()
    return found


def space_of(task: Any) -> Space:
    """The words of any model: those it has vectors for, or the pieces of what it reads with their token embedding."""
    if hasattr(task, "space"):
        space: Space = task.space()
        return space
    return Space(*space_words(task))


def space_words(task: Any) -> tuple[list[str], Tensor]:
    """The words of a model's vocabulary, or its pieces that are text by themselves, and their vectors (V, D)."""
    tokenizer: Tokenizer = task.source if hasattr(task, "source") else task.tokenizer
    vectors = task.model.vectors() if hasattr(task.model, "vectors") else embedding_of(task.model)[1].detach()
    words = tokenizer.words()
    return list(words), vectors[list(words.values())]


def embedding_of(model: nn.Module) -> tuple[str, Tensor]:
    """The matrix with a row for each word or piece (V, D) that a model reads first, and its name."""
    names = [name for name, _ in model.named_parameters() if name.endswith("embed.token.weight") or name == "input.weight"]
    if not names:
        raise UserError("This model has no token embedding to look at.")
    return names[0], model.get_parameter(names[0])
