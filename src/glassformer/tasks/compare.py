"""Compare: how two texts relate: a label such as entailment or paraphrase, or a number such as relatedness."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glassformer.config import LabelData, Recipe
from glassformer.models.bert import Bert, PooledHead
from glassformer.tasks.classify import Classify
from glassformer.tasks.reading import Pooled, ReadBatch, Texts, by_budget, read_labels, write_labels
from glassformer.tasks.task import Ids
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Correlation:
    pearson: float
    spearman: float
    mse: float
    mean_mse: float  # of saying the mean every time
    loss: float
    count: int


class Compare(Classify):
    """Two texts read as one, `<bos> a <eos> b <eos>`, told apart by their token types; one of some labels is the answer."""


class Score(Pooled):
    """The same with a number as the answer: the head's one output is (number − mean) / deviation of the training data."""

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, scale: dict[str, float]) -> None:
        super().__init__(recipe, tokenizer)
        self.mean, self.deviation = scale["mean"], scale["deviation"]
        self.model = Bert(self.options, tokenizer.size, PooledHead(self.options, 1), pad=tokenizer.pad)

    @classmethod
    def build(cls, folder: Path, recipe: Recipe) -> "Score":
        return cls(recipe, Tokenizer.load(folder / "tokenizer.json", recipe.tokenizer), read_labels(folder))

    def save_words(self, folder: Path) -> None:
        super().save_words(folder)
        write_labels(folder, {"mean": self.mean, "deviation": self.deviation})

    def batch(self, rows: Sequence[tuple[Ids, Ids]], labels: Sequence[float]) -> ReadBatch:
        return self.gather(rows, [(label - self.mean) / self.deviation for label in labels])

    def loss(self, batch: ReadBatch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Σ (predicted − wanted)², in deviations."""
        squares = (self.logits(batch).squeeze(1) - batch.labels).square().sum()
        return squares, squares.detach()

    @torch.inference_mode()
    def score_all(
        self, texts: Sequence[Texts], *, first: int = 0, progress: Callable[[int], None] = lambda n: None
    ) -> list[float]:
        rows = self.encode(texts)
        for number, (ids, _) in enumerate(rows, start=first + 1):
            self.check_length(len(ids), f"Pair {number}")
        found = torch.zeros(len(rows))
        for group in by_budget([len(ids) for ids, _ in rows]):
            found[group] = self.logits(self.gather([rows[i] for i in group])).squeeze(1)
            progress(len(group))
        return (found * self.deviation + self.mean).tolist()

    def evaluate(
        self, texts: Sequence[Texts], labels: Sequence[float], *, progress: Callable[[int], None] = lambda n: None
    ) -> Correlation:
        given, wanted = np.array(self.score_all(texts, progress=progress)), np.array(labels)
        mse = float(((given - wanted) ** 2).mean())
        return Correlation(
            _pearson(given, wanted),
            _pearson(_ranks(given), _ranks(wanted)),
            mse,
            float(wanted.var()),
            mse / self.deviation**2,
            len(labels),
        )


def of(recipe: Recipe) -> type[Compare] | type[Score]:
    """The class of a recipe's answer."""
    assert isinstance(recipe.data, LabelData)
    return Score if recipe.data.score else Compare


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else 0.0


def _ranks(x: np.ndarray) -> np.ndarray:
    """1, 2, …; equal numbers share the mean of their ranks."""
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[inverse]
