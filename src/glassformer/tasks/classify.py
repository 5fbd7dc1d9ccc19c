"""Classify: which of some labels a text has."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from glassformer.config import Recipe
from glassformer.models.bert import Bert, PooledHead
from glassformer.tasks.reading import Pooled, ReadBatch, Texts, by_budget, read_labels, write_labels
from glassformer.tasks.task import Ids
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Classified:
    texts: Texts
    label: str
    probability: float
    probabilities: dict[str, float]  # of every label, the likeliest first


@dataclass(frozen=True)
class Accuracy:
    """How often the label is right, beside what saying the commonest label every time would give."""

    accuracy: float
    macro_f1: float  # the mean over labels, so that rare ones count as much
    majority: float
    commonest: str
    loss: float
    count: int


class Classify(Pooled):
    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, labels: list[str]) -> None:
        super().__init__(recipe, tokenizer)
        self.labels = labels
        self.model = Bert(self.options, tokenizer.size, PooledHead(self.options, len(labels)), pad=tokenizer.pad)

    @classmethod
    def build(cls, folder: Path, recipe: Recipe) -> "Classify":
        return cls(recipe, Tokenizer.load(folder / "tokenizer.json", recipe.tokenizer), read_labels(folder))

    def save_words(self, folder: Path) -> None:
        super().save_words(folder)
        write_labels(folder, self.labels)

    def batch(self, rows: Sequence[tuple[Ids, Ids]], labels: Sequence[int]) -> ReadBatch:
        return self.gather(rows, labels)

    @torch.inference_mode()
    def classify_all(
        self, texts: Sequence[Texts], *, first: int = 0, progress: Callable[[int], None] = lambda n: None
    ) -> list[Classified]:
        """One answer for each; `first` is how many came before these, for messages that number them."""
        rows = self.encode(texts)
        for number, (ids, _) in enumerate(rows, start=first + 1):
            self.check_length(len(ids), f"Text {number}")
        found: dict[int, Classified] = {}
        for group in by_budget([len(ids) for ids, _ in rows]):
            probabilities = self.logits(self.gather([rows[i] for i in group])).softmax(-1)
            for i, row in zip(group, probabilities, strict=True):
                ranked = row.argsort(descending=True).tolist()
                each = {self.labels[k]: row[k].item() for k in ranked}
                found[i] = Classified(texts[i], self.labels[ranked[0]], row[ranked[0]].item(), each)
            progress(len(group))
        return [found[i] for i in range(len(texts))]

    @torch.inference_mode()
    def evaluate(
        self, texts: Sequence[Texts], labels: Sequence[str], *, progress: Callable[[int], None] = lambda n: None
    ) -> Accuracy:
        wanted = torch.tensor([self.labels.index(label) for label in labels])
        rows = self.encode(texts)
        given = torch.zeros_like(wanted)
        loss = 0.0
        for group in by_budget([len(ids) for ids, _ in rows]):
            log_p = self.logits(self.gather([rows[i] for i in group])).log_softmax(-1)
            loss -= log_p.gather(1, wanted[group].unsqueeze(1)).sum().item()
            given[group] = log_p.argmax(-1)
            progress(len(group))
        commonest, most = Counter(labels).most_common(1)[0]
        accuracy = (given == wanted).double().mean().item()
        return Accuracy(accuracy, macro_f1(given, wanted), most / len(labels), commonest, loss / len(labels), len(labels))


def macro_f1(given: torch.Tensor, wanted: torch.Tensor) -> float:
    """The mean of 2 · right / (given + wanted) over the labels that occur."""
    scores = []
    for label in torch.cat((given, wanted)).unique():
        right = int(((given == label) & (wanted == label)).sum())
        scores.append(2 * right / (int((given == label).sum()) + int((wanted == label).sum())))
    return sum(scores) / len(scores)
