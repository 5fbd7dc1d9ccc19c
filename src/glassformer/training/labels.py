"""Training on labelled text: one label for a text or a pair of texts, or one for each word."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from glassformer.config import LabelData, Recipe, TagData
from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.tasks import compare
from glassformer.tasks.classify import Classify
from glassformer.tasks.compare import Score
from glassformer.tasks.reading import ReadBatch, write_labels
from glassformer.tasks.tag import Tag, joined
from glassformer.text.batches import Batches, Place, Prepared, chunks, prepare
from glassformer.text.labelled import Example, Sentence, read_examples, read_sentences
from glassformer.training.vocabulary import vocabulary
from glassformer.training.work import Find, Report, Validation, Work, once

T = TypeVar("T", Example, Sentence)


class Parted(Generic[T]):
    """Training and dev examples; without a dev corpus, perhaps the last part of the training examples."""

    def __init__(self, train: Any, dev: Any, share: float) -> None:
        self._train, self._dev = train, dev  # each, called, reads from the beginning
        self._cut: int | None = None
        if not dev and share:
            count = sum(1 for _ in train())
            self._cut = count - max(1, round(count * share))

    def train(self) -> Iterator[T]:
        return islice(self._train(), self._cut)

    def dev(self) -> list[T]:
        if self._dev:
            return list(self._dev())
        return [] if self._cut is None else list(islice(self._train(), self._cut, None))


class LabelWork(Work):
    """classify and compare."""

    def __init__(self, recipe: Recipe, run: Path, find: Find, report: Report, start: Path | None = None) -> None:
        assert isinstance(recipe.data, LabelData)
        data, prepared = recipe.data, run / "prepared"
        fresh = once(prepared)
        if fresh:
            report("Reading the examples …")
            parted: Parted[Example] = Parted(
                lambda: read_examples(data.train, data, find, training=True),
                (lambda: read_examples(data.dev, data, find)) if data.dev else None,
                data.dev_share,
            )
            kept = _scale(parted.train()) if data.score else _labels(example.label for example in parted.train())
            dev = parted.dev()
            if data.score:
                _check_score(dev)
            else:
                check_known(dev, list(kept), lambda example: [example.label])
            vocabulary(run, recipe.tokenizer, lambda: (text for e in parted.train() for text in e.texts), start)
            write_labels(run, kept)
            write_text(prepared / "dev.json", json.dumps([[*example.texts, example.label] for example in dev]))
        torch.manual_seed(recipe.seed)
        self.task: Classify | Score = (compare.of(recipe) if recipe.task == "compare" else Classify).build(run, recipe)
        self._known = {} if isinstance(self.task, Score) else {label: i for i, label in enumerate(self.task.labels)}
        if fresh:
            rows = (row for chunk in chunks(parted.train()) for row in self._rows(chunk))
            largest = 2**32 - 1 if data.score else self.task.tokenizer.size + len(self._known)
            prepare(prepared, "train", rows, largest=largest, max_length=data.max_length + 2)
        self.corpus = Prepared(prepared, "train")
        saved = json.loads((prepared / "dev.json").read_text(encoding="utf-8"))
        most = self.task.options.max_length
        reads = self.task.encode([tuple(row[:-1]) for row in saved]) if saved else []
        self.dev = [row for row, (ids, _) in zip(saved, reads, strict=True) if len(ids) <= most]
        self.has_dev = bool(self.dev)
        about = self.corpus.about
        self.data = f"{', '.join(data.train)}: {about['pairs']:,} examples, {about['skipped']:,} left out as too long"
        left = f" ({about['skipped']:,} longer than {data.max_length} tokens left out)" if about["skipped"] else ""
        report(f"{about['pairs']:,} training examples{left}; {len(self.dev):,} dev examples.")
        if isinstance(self.task, Classify):
            report(self._balance())

    def _rows(self, examples: Sequence[Example]) -> Iterator[tuple[list[int], list[int]]]:
        """The ids around the texts and, as one more, the label's number."""
        reads = self.task.encode([example.texts for example in examples])
        for (ids, types), example in zip(reads, examples, strict=True):
            second = sum(types)
            if isinstance(self.task, Classify):
                label = self._known[example.label]
            else:
                label = int(np.float32(example.label).view(np.uint32))  # the bits of the number: ids are whole
            yield ids, [label, second]

    def _unpacked(self, ids: list[int], kept: list[int]) -> tuple[tuple[list[int], list[int]], Any]:
        label, second = kept
        types = [0] * (len(ids) - second) + [1] * second
        if isinstance(self.task, Classify):
            return (ids, types), label
        return (ids, types), float(np.uint32(label).view(np.float32))

    def batches(self, place: Place) -> Iterator[tuple[ReadBatch, Place]]:
        recipe = self.task.recipe
        made = Batches(self.corpus, tokens=recipe.training.batch_tokens, seed=recipe.seed, marks=0)
        for rows, after in made.iterate(place):
            each = [self._unpacked(*self.corpus.read(record)) for record, _ in rows]
            yield self.task.batch([row for row, _ in each], [label for _, label in each]), after

    def validate(self) -> Validation:
        texts = [tuple(row[:-1]) for row in self.dev]
        if isinstance(self.task, Classify):
            found = self.task.evaluate(texts, [row[-1] for row in self.dev])
            entry = {"dev_loss": found.loss, "accuracy": found.accuracy, "macro_f1": found.macro_f1}
            return Validation({key: round(x, 4) for key, x in entry.items()}, found.accuracy, found.loss)
        judged = self.task.evaluate(texts, [float(row[-1]) for row in self.dev])
        entry = {"dev_loss": judged.loss, "pearson": judged.pearson, "spearman": judged.spearman, "mse": judged.mse}
        return Validation({key: round(x, 4) for key, x in entry.items()}, judged.pearson, judged.loss)

    def _balance(self) -> str:
        """How uneven the labels are, and what the commonest would score by itself."""
        assert isinstance(self.task, Classify)
        numbers = self.corpus.records(np.arange(self.corpus.count))
        counted = Counter(self.task.labels[self.corpus.read(record)[1][0]] for record in numbers)
        return balance(counted, Counter(row[-1] for row in self.dev))


class TagWork(Work):
    def __init__(self, recipe: Recipe, run: Path, find: Find, report: Report, start: Path | None = None) -> None:
        assert isinstance(recipe.data, TagData)
        data, prepared = recipe.data, run / "prepared"
        fresh = once(prepared)
        if fresh:
            report("Reading the sentences …")
            parted: Parted[Sentence] = Parted(
                lambda: read_sentences(data.train, data, find),
                (lambda: read_sentences(data.dev, data, find)) if data.dev else None,
                data.dev_share,
            )
            labels = _labels(label for sentence in parted.train() for label in sentence.labels)
            dev = parted.dev()
            check_known(dev, labels, lambda sentence: sentence.labels)
            vocabulary(run, recipe.tokenizer, lambda: (joined(sentence)[0] for sentence in parted.train()), start)
            write_labels(run, labels)
            write_text(prepared / "dev.json", json.dumps([[s.words, s.labels, s.spaces, s.place] for s in dev]))
        torch.manual_seed(recipe.seed)
        self.task: Tag = Tag.build(run, recipe)
        known = {label: i for i, label in enumerate(self.task.labels)}
        if fresh:
            rows = (
                (ids, _pack(places, [known[x] for x in s.labels]))
                for s in parted.train()
                for ids, places in [self.task.encode_sentence(s)]
            )
            largest = max(self.task.tokenizer.size, len(known), data.max_length)
            prepare(prepared, "train", rows, largest=largest, max_length=data.max_length, max_target=2 * data.max_length)
        self.corpus = Prepared(prepared, "train")
        kept = json.loads((prepared / "dev.json").read_text(encoding="utf-8"))
        saved = [Sentence(tuple(words), tuple(labels), tuple(spaces), place) for words, labels, spaces, place in kept]
        self.dev = [s for s in saved if len(self.task.encode_sentence(s)[0]) + 2 <= self.task.options.max_length]
        self.has_dev = bool(self.dev)
        about = self.corpus.about
        self.data = f"{', '.join(data.train)}: {about['pairs']:,} sentences, {about['skipped']:,} left out as too long"
        report(f"{about['pairs']:,} training sentences; {len(self.dev):,} dev sentences.")
        report(f"{len(known)} labels" + ("." if self.task.scheme == "none" else f", which make up spans ({self.task.scheme})."))

    def batches(self, place: Place) -> Iterator[tuple[ReadBatch, Place]]:
        recipe = self.task.recipe
        for rows, after in Batches(self.corpus, tokens=recipe.training.batch_tokens, seed=recipe.seed, marks=2).iterate(place):
            read = [self.corpus.read(record) for record, _ in rows]
            each = [(ids, *_unpack(kept)) for ids, kept in read]
            yield self.task.batch([(ids, places) for ids, places, _ in each], [labels for _, _, labels in each]), after

    def validate(self) -> Validation:
        found = self.task.evaluate(self.dev)
        entry = {"dev_loss": round(found.loss, 4), "accuracy": round(found.accuracy, 4)}
        if found.f1 is not None:
            entry["span_f1"] = round(found.f1, 4)
        return Validation(entry, found.accuracy if found.f1 is None else found.f1, found.loss)


def check_known(examples: Sequence[T], labels: Sequence[str], of: Any) -> None:
    """Labels come from the training data; one that it has not is a mistake in one of the two."""
    known = set(labels)
    for example in examples:
        for label in of(example):
            if label not in known:
                shown = ", ".join(labels[:20]) + (f" and {len(labels) - 20} more" if len(labels) > 20 else "")
                raise UserError(f"{example.place}: the label {label!r} is not in the training data, which has: {shown}.")


def balance(train: Counter[str], dev: Counter[str]) -> str:
    commonest, most = train.most_common(1)[0]
    rarest, least = train.most_common()[-1]
    words = f"{len(train)} labels: from {rarest!r} ({least:,}) to {commonest!r} ({most:,}, {most / train.total():.1%} of all)."
    if dev:
        words += f" Saying {commonest!r} every time scores {dev[commonest] / dev.total():.1%} on the dev examples."
    return words


def _labels(found: Iterator[str]) -> list[str]:
    labels = sorted(set(found))
    if len(labels) < 2:
        raise UserError(
            f"The training data has one label only, {labels[0]!r}: there is nothing to tell apart. Check data.columns."
        )
    return labels


def _scale(examples: Iterator[Example]) -> dict[str, float]:
    numbers = np.array([_number(example) for example in examples])
    if not numbers.std():
        raise UserError(f"All scores of the training data are {numbers[0]}: there is nothing to tell apart. Check data.columns.")
    return {"mean": float(numbers.mean()), "deviation": float(numbers.std())}


def _check_score(examples: Sequence[Example]) -> None:
    for example in examples:
        _number(example)


def _number(example: Example) -> float:
    try:
        number = float(example.label)
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise UserError(f"{example.place}: with data.score = true the label must be a number; found {example.label!r}.")
    return number


def _pack(places: list[int], labels: list[int]) -> list[int]:
    return [*places, *labels]


def _unpack(kept: list[int]) -> tuple[list[int], list[int]]:
    return kept[: len(kept) // 2], kept[len(kept) // 2 :]
