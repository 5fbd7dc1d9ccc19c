"""Compare: how two texts relate: a label such as entailment or paraphrase, or a number such as relatedness."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import UserError
from glassformer.models import readers
from glassformer.options import LabelData, Recipe
from glassformer.tasks.classify import Classify
from glassformer.tasks.reading import Pooled, ReadBatch, Row, Texts, read_json, write_labels
from glassformer.text.labelled import Example
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Correlation:
    pearson: float
    spearman: float
    mse: float
    mean_mse: float  # of saying the mean every time
    loss: float
    count: int
    cut: int  # pairs longer than the model reads, judged by their beginnings


class Compare(Classify):
    """Two texts read as one, `<bos> a <eos> b <eos>`, told apart by their token types; one of some labels is the answer."""


class Score(Pooled):
    """The same with a number as the answer: the head's one output is (number − mean) / deviation of the training data."""

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, mean: float, deviation: float) -> None:
        super().__init__(recipe, tokenizer)
        self.mean, self.deviation = mean, deviation
        self.model = readers.pooled(self.options, tokenizer.size, 1, tokenizer.pad)

    @classmethod
    def build(cls, folder: Path, recipe: Recipe) -> "Score":
        return cls(recipe, Tokenizer.load(folder / "tokenizer.json", recipe.tokenizer), *_read_scale(folder / "labels.json"))

    def save_words(self, folder: Path) -> None:
        super().save_words(folder)
        write_labels(folder, {"mean": self.mean, "deviation": self.deviation})

    def batch(self, rows: Sequence[Row], labels: Sequence[float]) -> ReadBatch:
        return self.gather(rows, [(label - self.mean) / self.deviation for label in labels])

    def loss(self, batch: ReadBatch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Σ (predicted − wanted)², in deviations."""
        squares = (self.logits(batch).squeeze(1) - batch.labels).square().sum()
        return squares, squares.detach()

    def score_all(
        self, texts: Sequence[Texts], *, first: int = 0, progress: Callable[[int], None] = lambda n: None
    ) -> list[float | None]:
        """A number for each pair, none for an empty one; `first` is how many came before these, for messages that number them."""
        found = self.answers(texts, first, progress)
        return [None if logits is None else logits.item() * self.deviation + self.mean for _, logits in found]

    def evaluate(self, examples: Sequence[Example], *, progress: Callable[[int], None] = lambda n: None) -> Correlation:
        wanted = np.array([number_of(example) for example in examples])
        rows, cut = self.encode_cut([example.texts for example in examples])
        given = torch.cat(self.each_logits(rows, progress)).double().numpy() * self.deviation + self.mean
        mse = float(((given - wanted) ** 2).mean())
        return Correlation(
            _pearson(given, wanted),
            _pearson(_ranks(given), _ranks(wanted)),
            mse,
            float(wanted.var()),
            mse / self.deviation**2,
            len(examples),
            cut,
        )


def of(recipe: Recipe) -> type[Compare] | type[Score]:
    """The class of a recipe's answer."""
    assert isinstance(recipe.data, LabelData)
    return Score if recipe.data.score else Compare


def number_of(example: Example) -> float:
    try:
        number = float(example.label)
    except ValueError:
        number = math.nan
    if not abs(number) < 1e30:  # also nan
        raise UserError(f"{example.place}: with data.score = true the label must be a number; found {example.label!r}.")
    return number


def _read_scale(path: Path) -> tuple[float, float]:
    scale = read_json(path)
    try:
        mean, deviation = float(scale["mean"]), float(scale["deviation"])
    except (KeyError, TypeError, ValueError):
        mean, deviation = math.nan, math.nan
    if not (math.isfinite(mean) and 0 < deviation < math.inf):
        raise UserError(f"{path} is damaged: it must have the mean and the deviation of the scores. Copy or train it again.")
    return mean, deviation


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else 0.0


def _ranks(x: np.ndarray) -> np.ndarray:
    """1, 2, …; equal numbers share the mean of their ranks."""
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[inverse]
