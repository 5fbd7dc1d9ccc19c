"""Classify: which of some labels a text has."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from glassformer.models import readers
from glassformer.options import Recipe
from glassformer.tasks.reading import Pooled, ReadBatch, Row, Texts, read_labels, write_labels
from glassformer.text.labelled import Example
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Classified:
    texts: Texts
    label: str  # an empty text has none
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
    cut: int  # texts longer than the model reads, judged by their beginning


class Classify(Pooled):
    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, labels: list[str]) -> None:
        super().__init__(recipe, tokenizer)
        self.labels = labels
        self.model = readers.pooled(self.options, tokenizer.size, len(labels), tokenizer.pad)

    @classmethod
    def build(cls, folder: Path, recipe: Recipe) -> "Classify":
        return cls(recipe, Tokenizer.load(folder / "tokenizer.json", recipe.tokenizer), read_labels(folder))

    def save_words(self, folder: Path) -> None:
        super().save_words(folder)
        write_labels(folder, self.labels)

    def batch(self, rows: Sequence[Row], labels: Sequence[int]) -> ReadBatch:
        return self.gather(rows, labels)

    def classify_all(
        self, texts: Sequence[Texts], *, first: int = 0, progress: Callable[[int], None] = lambda n: None
    ) -> list[Classified]:
        """One answer for each; `first` is how many came before these, for messages that number them."""
        found = []
        for each, logits in self.answers(texts, first, progress):
            ranked = [] if logits is None else sorted(zip(logits.softmax(-1).tolist(), self.labels, strict=True), reverse=True)
            probability, label = ranked[0] if ranked else (0.0, "")
            found.append(Classified(each, label, probability, {name: p for p, name in ranked}))
        return found

    def evaluate(self, examples: Sequence[Example], *, progress: Callable[[int], None] = lambda n: None) -> Accuracy:
        number = {label: i for i, label in enumerate(self.labels)}
        wanted = torch.tensor([number[example.label] for example in examples])
        rows, cut = self.encode_cut([example.texts for example in examples])
        log_p = torch.stack(self.each_logits(rows, progress)).log_softmax(-1)
        given = log_p.argmax(-1)
        commonest, most = Counter(example.label for example in examples).most_common(1)[0]
        return Accuracy(
            (given == wanted).double().mean().item(),
            macro_f1(given, wanted),
            most / len(examples),
            commonest,
            -log_p.gather(1, wanted.unsqueeze(1)).mean().item(),
            len(examples),
            cut,
        )


def macro_f1(given: torch.Tensor, wanted: torch.Tensor) -> float:
    """The mean of 2 · right / (given + wanted) over the labels that occur."""
    scores = []
    for label in torch.cat((given, wanted)).unique():
        right = int(((given == label) & (wanted == label)).sum())
        scores.append(2 * right / (int((given == label).sum()) + int((wanted == label).sum())))
    return sum(scores) / len(scores)
