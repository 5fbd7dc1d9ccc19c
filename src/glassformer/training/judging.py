"""How good trained models are on the same texts, and how that depends on the length of what they read."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import torch

from glassformer.config import LabelData, PairData, Recipe, TagData
from glassformer.tasks import evaluation
from glassformer.tasks.classify import Classify
from glassformer.tasks.metrics import bleu, bleu_tokenizer
from glassformer.tasks.tag import Tag
from glassformer.tasks.translate import Translate
from glassformer.text.corpus import read_pairs
from glassformer.text.labelled import read_examples, read_sentences
from glassformer.training.labels import parted_examples, parted_sentences
from glassformer.training.work import Find

UNIT = re.compile(r"[\u3400-\u9fff]|[^\s\u3400-\u9fff]+")  # a word, or a Chinese character


@dataclass(frozen=True)
class Judged:
    """Answers to one text that a score can be made of."""

    text: str
    answer: Any
    wanted: Any
    to: str = ""

    @property
    def length(self) -> int:
        return len(UNIT.findall(self.text))


@dataclass(frozen=True)
class Judgement:
    """What a model answered to some texts, and how any part of them is scored; larger is better."""

    measure: str
    answers: list[Judged]
    score: Callable[[Sequence[Judged]], float]

    def by_length(self, edges: Sequence[int]) -> list[tuple[int, float | None]]:
        """How many texts have a length in [edges[i], edges[i + 1]), and the score on them; none if there are none."""
        found: list[tuple[int, float | None]] = []
        for low, high in pairwise(edges):
            part = [each for each in self.answers if low <= each.length < high]
            found.append((len(part), self.score(part) if part else None))
        return found


def length_edges(lengths: Sequence[int], parts: int = 5) -> list[int]:
    """Where to cut lengths so that each part has about as many texts: edges e₀ < e₁ < …, part i being e_i ≤ length < e_{i+1}."""
    ranked = sorted(lengths)
    cuts = {ranked[len(ranked) * i // parts] for i in range(parts)}
    return [*sorted(cuts), ranked[-1] + 1]


# What a validation says of a model, by task: its name, and the number, larger being better.
QUALITY: dict[str, tuple[str, Callable[[dict[str, Any]], float]]] = {
    "translate": ("BLEU", lambda e: _mean([value for key, value in e.items() if key.startswith("bleu_")] or [-_loss(e)])),
    "language": ("− loss", lambda e: -_loss(e)),
    "fill": ("− loss", lambda e: -_loss(e)),
    "classify": ("accuracy", lambda e: e["accuracy"]),
    "compare": ("score", lambda e: e.get("accuracy", e.get("pearson", 0.0))),
    "tag": ("score", lambda e: e.get("span_f1", e["accuracy"])),
}


def _loss(entry: dict[str, Any]) -> float:
    return _mean([value for key, value in entry.items() if key.startswith("dev_loss")])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def judge(task: Any, find: Find, limit: int = 0) -> Judgement | None:
    """The test data of the recipe, or the dev data if it has none; None for tasks whose answers are not of single texts."""
    recipe: Recipe = task.recipe
    task.model.eval()
    if isinstance(task, Translate):
        return _translate(task, find, limit)
    if isinstance(task, Classify):
        return _classify(task, find, limit)
    if isinstance(task, Tag):
        return _tag(task, find, limit)
    assert recipe.task in QUALITY
    return None


def _translate(task: Translate, find: Find, limit: int) -> Judgement:
    data = task.data
    assert isinstance(data, PairData)
    pairs = [(p.source, p.target) for p in islice(read_pairs(data.test or data.dev, data, find), limit or None)]
    answers = []
    for to, chosen in evaluation.directions(task, [pair for pair in pairs if task.fits(*pair)]):
        found = task.translate_all([source for source, _ in chosen], to)
        answers += [Judged(source, t.text, target, to) for (source, target), t in zip(chosen, found, strict=True)]

    def score(part: Sequence[Judged]) -> float:
        scores = []
        for to in sorted({each.to for each in part}):
            here = [each for each in part if each.to == to]
            texts, references = [each.answer for each in here], [each.wanted for each in here]
            scores.append(bleu(texts, references, bleu_tokenizer(data.bleu, to)).value)
        return _mean(scores)

    return Judgement("BLEU", answers, score)


def _share(part: Sequence[Judged]) -> float:
    return _mean([float(each.answer == each.wanted) for each in part])


def _classify(task: Classify, find: Find, limit: int) -> Judgement:
    data = task.recipe.data
    assert isinstance(data, LabelData)
    specs = data.test or data.dev
    every = read_examples(specs, data, find) if specs else parted_examples(data, find).dev()
    examples = list(islice(every, limit or None))
    rows, _ = task.encode_cut([example.texts for example in examples])
    given = torch.stack(task.each_logits(rows, lambda n: None)).argmax(-1).tolist()
    answers = [Judged(" ".join(e.texts), task.labels[k], e.label) for e, k in zip(examples, given, strict=True)]
    return Judgement("accuracy", answers, _share)


def _tag(task: Tag, find: Find, limit: int) -> Judgement:
    data = task.recipe.data
    assert isinstance(data, TagData)
    specs = data.test or data.dev
    every = read_sentences(specs, data, find) if specs else parted_sentences(data, find).dev()
    sentences = task.fitting(list(islice(every, limit or None)))
    answers = []
    with torch.inference_mode():
        for sentence, row in zip(sentences, task.encode_sentences(sentences), strict=True):
            given = task.logits(task.batch([row])).argmax(-1).tolist()
            right = sum(task.labels[k] == label for k, label in zip(given, sentence.labels, strict=True))
            answers.append(Judged(" ".join(sentence.words), right, len(sentence.labels)))

    def share(part: Sequence[Judged]) -> float:
        return sum(each.answer for each in part) / sum(each.wanted for each in part)

    return Judgement("accuracy", answers, share)
