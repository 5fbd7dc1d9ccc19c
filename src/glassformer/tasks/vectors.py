"""Vectors: words as points, learned from the words around them."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import UserError
from glassformer.models.word2vec import Neighbourhoods, Word2Vec
from glassformer.options import Recipe, Word2VecOptions, WordData
from glassformer.tasks import tokens
from glassformer.tasks.space import Near, Space, space_words
from glassformer.tasks.task import Ids, Task
from glassformer.text.neighbourhoods import DRAWN, Stretches
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.words import Words
from glassformer.trace import Edit, Token, Trace, run


class Vectors(Task):
    """A word2vec model, its vocabulary, and how texts are made words of."""

    model: Word2Vec

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, words: Words) -> None:
        assert isinstance(recipe.model, Word2VecOptions) and isinstance(recipe.data, WordData)
        self.recipe, self.options = recipe, recipe.model
        self.tokenizer, self.words = tokenizer, words
        self.model = Word2Vec(recipe.model, tokenizer.spell_each())
        self._ids = tokenizer.words() if self.by_word else {}
        self._space: Space | None = None

    @property
    def by_word(self) -> bool:
        """Whether the vocabulary is of whole words, not of pieces."""
        return self.recipe.tokenizer.kind in ("word", "imported")

    @classmethod
    def build(cls, folder: Path, recipe: Recipe) -> "Vectors":
        assert isinstance(recipe.data, WordData)
        tokenizer = Tokenizer.load(folder / "tokenizer.json", recipe.tokenizer)
        return cls(recipe, tokenizer, Words.load(folder, recipe.data, recipe.tokenizer))

    def save_words(self, folder: Path) -> None:
        self.tokenizer.save(folder / "tokenizer.json")
        self.words.save(folder)

    # -- training

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        """The words of each text that are in the vocabulary; others are passed over."""
        if self.by_word:
            return [[self._ids[word] for word in self.words.of(text) if word in self._ids] for text in texts]
        return self.tokenizer.encode_batch(texts)

    def batch(self, stretches: Stretches) -> Neighbourhoods:
        """What is read and what is predicted, by the architecture."""
        words, around, near = stretches.words, stretches.around, stretches.near
        drawn = stretches.drawn[:, : DRAWN if self.options.negatives else 0]
        if self.options.architecture == "skip-gram":
            inputs, real, belongs, reads = words, around, near, None
        else:  # a word without a context is not predicted
            inputs, real, reads = around, words, torch.from_numpy(near).float()
            belongs = np.eye(words.shape[1], dtype=bool) & near.any(2, keepdims=True)
        share = belongs.sum(2, keepdims=True) * (self.options.negatives / DRAWN)  # so many for every real one
        weights = np.empty((*words.shape, real.shape[1] + drawn.shape[1]), np.float32)
        weights[:, :, : real.shape[1]], weights[:, :, real.shape[1] :] = belongs, share
        labels = np.broadcast_to(real[:, None], belongs.shape)[belongs]
        return Neighbourhoods(
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(np.concatenate([real, drawn], 1)),
            weights=torch.from_numpy(weights),
            positives=real.shape[1],
            labels=torch.from_numpy(labels),
            reads=reads,
            tokens=stretches.tokens,
        )

    def loss(self, batch: Neighbourhoods, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        loss = self.model.loss(batch)
        return loss, loss.detach()

    # -- answers

    def space(self) -> Space:
        """The words and their vectors, as they are now if the model is being trained."""
        if self._space is None or self.model.training:
            words, vectors = space_words(self)
            normalise = self.words.normalised if self.by_word else str
            self._space = Space(words, vectors, normalise=normalise, guess=self.model.guess)
        return self._space

    def neighbours(self, word: str, count: int = 10) -> list[Near]:
        return self.space().neighbours(word, count)

    def analogy(self, a: str, b: str, c: str, count: int = 10) -> list[Near]:
        """a − b + c: king − man + woman."""
        return self.space().analogy(a, b, c, count)

    def similarity(self, a: str, b: str) -> float:
        return self.space().similarity(a, b)

    # -- looking inside

    def trace(self, text: str, *, edits: dict[str, Edit] | None = None) -> Trace:
        """One pass over a text: each word's vector, the hidden state, and the scores of the vocabulary."""
        if self.model.output is None:
            raise UserError("This model has vectors alone, without the second matrix, so it predicts nothing to look at.")
        read = self._read(text)
        if not read:
            raise UserError(f"No word of {text[:60]!r} is in the vocabulary of this model.")
        if len(read) > self.options.max_length:
            raise UserError(f"The text has {len(read)} words; at most {self.options.max_length} are looked into. Shorten it.")
        return run(self.model, source=read, about={"task": self.recipe.task, "text": text}, edits=edits, made_by=self)

    def _read(self, text: str) -> list[Token]:
        if not self.by_word:
            return tokens.read(self.tokenizer, text)
        return [Token(word, self._ids[word]) for word in self.words.of(text) if word in self._ids]
