"""How good trained models are on the same texts, and how that depends on the length of what they read."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

import torch

from glassformer.options import LabelData, PairData, TagData
from glassformer.tasks import evaluation
from glassformer.tasks.classify import Classify
from glassformer.tasks.metrics import bleu, bleu_tokenizer
from glassformer.tasks.tag import Tag
from glassformer.tasks.translate import Translate
from glassformer.text.corpus import read_pairs
from glassformer.text.labelled import read_examples, read_sentences, spans
from glassformer.training.labels import parted_examples, parted_sentences
from glassformer.training.work import Find

UNIT = re.compile(r"[\u3400-\u9fff]|[^\s\u3400-\u9fff]+")  # a word, or a Chinese character


@dataclass(frozen=True)
class Measure:
    """What a number says of a model."""

    name: str
    larger: bool = True  # whether larger is better

    def best(self, values: Sequence[float]) -> float:
        return max(values) if self.larger else min(values)

    def worst(self, values: Sequence[float]) -> float:
        return min(values) if self.larger else max(values)

    def reached(self, value: float, wanted: float) -> bool:
        return value >= wanted if self.larger else value <= wanted


def quality(task: str, entry: dict[str, Any]) -> tuple[Measure, float]:
    """What a validation says of a model: if there is one, a number that does not depend on how texts are cut into pieces."""
    if task == "translate" and (scores := [value for key, value in entry.items() if key.startswith("bleu_")]):
        return Measure("BLEU"), _mean(scores)
    if task == "language":
        return Measure("bits a character", larger=False), entry["bits_per_character"]
    if task in ("translate", "fill"):
        return Measure("loss", larger=False), _mean([value for key, value in entry.items() if key.startswith("dev_loss")])
    for key, name in (("span_f1", "span F1"), ("accuracy", "accuracy")):
        if key in entry:
            return Measure(name), entry[key]
    return Measure("Pearson"), entry["pearson"]


def of_pieces(task: str, bleu_sentences: int) -> bool:
    """Whether that number is one of pieces, so that only recipes with the same ones can be compared."""
    return task == "fill" or (task == "translate" and not bleu_sentences)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True)
class Judged:
    """Answers to one text that a score can be made of."""

    text: str
    answer: Any
    wanted: Any
    to: str = ""
    number: int = 0  # of the text among those that were read

    @property
    def length(self) -> int:
        return len(UNIT.findall(self.text))


@dataclass(frozen=True)
class Judgement:
    """What a model answered to some texts, and how any part of them is scored; larger is better."""

    measure: str
    answers: list[Judged]
    score: Callable[[Sequence[Judged]], float]
    total: int = 0  # texts that there are
    long: int = 0  # of them without an answer, since they are longer than the model reads
    cut: int = 0  # of which the model read the beginning alone

    def by_length(self, edges: Sequence[int]) -> list[tuple[int, float | None]]:
        """How many texts have a length in [edges[i], edges[i + 1]), and the score on them; none if there are none."""
        found: list[tuple[int, float | None]] = []
        for low, high in pairwise(edges):
            part = [each for each in self.answers if low <= each.length < high]
            found.append((len(part), self.score(part) if part else None))
        return found

    @property
    def numbers(self) -> set[int]:
        return {each.number for each in self.answers}


def on_shared_texts(judgements: Sequence[Judgement]) -> list[Judgement]:
    """The same judgements by those texts alone that every model has answered."""
    shared = set.intersection(*(judgement.numbers for judgement in judgements))
    return [replace(each, answers=[answer for answer in each.answers if answer.number in shared]) for each in judgements]


def length_edges(lengths: Sequence[int], parts: int = 5) -> list[int]:
    """Where to cut lengths so that each part has about as many texts: edges e₀ < e₁ < …, part i being e_i ≤ length < e_{i+1}."""
    ranked = sorted(lengths)
    cuts = {ranked[len(ranked) * i // parts] for i in range(parts)}
    return [*sorted(cuts), ranked[-1] + 1]


def judge(task: Any, find: Find, limit: int = 0) -> Judgement | None:
    """The test data of the recipe, or the dev data if it has none; None for tasks whose answers are not of single texts."""
    task.model.eval()
    if isinstance(task, Translate):
        return _translate(task, find, limit)
    if isinstance(task, Classify):
        return _classify(task, find, limit)
    if isinstance(task, Tag):
        return _tag(task, find, limit)
    return None


def _translate(task: Translate, find: Find, limit: int) -> Judgement:
    data = task.data
    assert isinstance(data, PairData)
    pairs = [(p.source, p.target) for p in islice(read_pairs(data.test or data.dev, data, find), limit or None)]
    numbers = [number for number, pair in enumerate(pairs) if task.fits(*pair)]
    answers = []
    for to, chosen in evaluation.directions(task, [pairs[number] for number in numbers]):
        found = task.translate_all([source for source, _ in chosen], to)
        answers += [
            Judged(source, t.text, target, to, number) for (source, target), t, number in zip(chosen, found, numbers, strict=True)
        ]

    def score(part: Sequence[Judged]) -> float:
        scores = []
        for to in sorted({each.to for each in part}):
            here = [each for each in part if each.to == to]
            texts, references = [each.answer for each in here], [each.wanted for each in here]
            scores.append(bleu(texts, references, bleu_tokenizer(data.bleu, to)).value)
        return _mean(scores)

    return Judgement("BLEU", answers, score, len(pairs), len(pairs) - len(numbers))


def _share(part: Sequence[Judged]) -> float:
    return _mean([float(each.answer == each.wanted) for each in part])


def _classify(task: Classify, find: Find, limit: int) -> Judgement:
    data = task.recipe.data
    assert isinstance(data, LabelData)
    specs = data.test or data.dev
    every = read_examples(specs, data, find) if specs else parted_examples(data, find).dev()
    examples = list(islice(every, limit or None))
    rows, cut = task.encode_cut([example.texts for example in examples])
    given = torch.stack(task.each_logits(rows, lambda n: None)).argmax(-1).tolist()
    answers = [
        Judged(" ".join(e.texts), task.labels[k], e.label, number=number)
        for number, (e, k) in enumerate(zip(examples, given, strict=True))
    ]
    return Judgement("accuracy", answers, _share, len(examples), cut=cut)


def _tag(task: Tag, find: Find, limit: int) -> Judgement:
    """By spans if the labels make up any, as a validation does."""
    data = task.recipe.data
    assert isinstance(data, TagData)
    specs = data.test or data.dev
    every = list(islice(read_sentences(specs, data, find) if specs else parted_sentences(data, find).dev(), limit or None))
    answers = []
    with torch.inference_mode():
        for number, sentence in enumerate(every):
            if not task.fitting([sentence]):
                continue
            row = task.encode_sentences([sentence])[0]
            given = [task.labels[k] for k in task.logits(task.batch([row])).argmax(-1).tolist()]
            answers.append(Judged(" ".join(sentence.words), given, list(sentence.labels), number=number))

    def accuracy(part: Sequence[Judged]) -> float:
        right = sum(a == b for each in part for a, b in zip(each.answer, each.wanted, strict=True))
        return right / sum(len(each.wanted) for each in part)

    def span_f1(part: Sequence[Judged]) -> float:
        both = [(set(spans(each.answer, task.scheme)), set(spans(each.wanted, task.scheme))) for each in part]
        return 2 * sum(len(ours & theirs) for ours, theirs in both) / max(1, sum(len(a) + len(b) for a, b in both))

    long = len(every) - len(answers)
    if task.scheme == "none":
        return Judgement("accuracy", answers, accuracy, len(every), long)
    return Judgement("span F1", answers, span_f1, len(every), long)
