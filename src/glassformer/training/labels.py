"""Training on labelled text: one label for a text or a pair of texts, or one for each word."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.options import LabelData, Recipe, TagData
from glassformer.tasks import compare
from glassformer.tasks.classify import Classify
from glassformer.tasks.compare import Score, number_of
from glassformer.tasks.reading import ReadBatch, Row, write_labels
from glassformer.tasks.tag import Tag, cut, joined
from glassformer.text.batches import Batches, Place, Prepared, chunks, prepare
from glassformer.text.labelled import Example, Sentence, read_examples, read_sentences
from glassformer.training.vocabulary import vocabulary
from glassformer.training.work import Find, Report, Validation, Work, once

T = TypeVar("T")


class Parted(Generic[T]):
    """Training and dev examples; without a dev corpus, perhaps the last part of the training examples."""

    def __init__(self, train: Callable[[], Iterator[T]], dev: Callable[[], Iterator[T]] | None, share: float) -> None:
        self._train = train  # each, called, reads from the beginning
        self._dev = dev
        self._cut: int | None = None
        if not dev and share:
            count = sum(1 for _ in train())
            self._cut = count - max(1, round(count * share))
            if not self._cut:
                raise UserError("data.dev_share needs at least two examples to share out; the training data has one.")

    def train(self) -> Iterator[T]:
        return islice(self._train(), self._cut)

    def dev(self) -> list[T]:
        if self._dev:
            return list(self._dev())
        return [] if self._cut is None else list(islice(self._train(), self._cut, None))


def parted_examples(data: LabelData, find: Find) -> Parted[Example]:
    dev = (lambda: read_examples(data.dev, data, find)) if data.dev else None
    return Parted(lambda: read_examples(data.train, data, find, training=True), dev, data.dev_share)


def parted_sentences(data: TagData, find: Find) -> Parted[Sentence]:
    dev = (lambda: read_sentences(data.dev, data, find)) if data.dev else None
    return Parted(lambda: read_sentences(data.train, data, find), dev, data.dev_share)


class LabelWork(Work):
    """classify and compare."""

    def __init__(self, recipe: Recipe, run: Path, find: Find, report: Report, start: Path | None = None) -> None:
        assert isinstance(recipe.data, LabelData)
        data, prepared = recipe.data, run / "prepared"
        fresh = once(prepared)
        if fresh:
            report("Reading the examples …")
            parted = parted_examples(data, find)
            dev = parted.dev()
            if data.score:
                write_labels(run, _scale(parted.train()))
                for example in dev:
                    number_of(example)
            else:
                labels = _labels(example.label for example in parted.train())
                check_known(dev, labels)
                write_labels(run, labels)
            vocabulary(run, recipe.tokenizer, lambda: (text for e in parted.train() for text in e.texts), start)
            write_text(prepared / "dev.json", json.dumps([astuple(example) for example in dev]))
        torch.manual_seed(recipe.seed)
        self.task: Classify | Score = (compare.of(recipe) if recipe.task == "compare" else Classify).build(run, recipe)
        self._marks = 3 if recipe.task == "compare" else 2  # around the pieces, see Reader.around
        self._known = {} if isinstance(self.task, Score) else {label: i for i, label in enumerate(self.task.labels)}
        if fresh:
            rows = (row for chunk in chunks(parted.train()) for row in self._rows(chunk))
            largest = 2**32 - 1 if data.score else self.task.tokenizer.size + len(self._known)
            most = min(data.max_length, self.task.options.max_length - self._marks)
            prepare(prepared, "train", rows, largest=largest, max_length=most)
        self.corpus = Prepared(prepared, "train")
        saved = json.loads((prepared / "dev.json").read_text(encoding="utf-8"))
        self.dev = [Example(tuple(texts), label, place) for texts, label, place in saved]
        self.has_dev = bool(self.dev)
        about = self.corpus.about
        self.data = f"{', '.join(data.train)}: {about['pairs']:,} examples, {about['skipped']:,} left out as too long"
        left = f" ({about['skipped']:,} longer than {data.max_length} tokens left out)" if about["skipped"] else ""
        report(f"{about['pairs']:,} training examples{left}; {len(self.dev):,} dev examples.")
        if isinstance(self.task, Classify):
            numbers = (kept[0] for _, kept in _each(self.corpus))
            report(balance(Counter(self.task.labels[i] for i in numbers), Counter(example.label for example in self.dev)))

    def _rows(self, examples: Sequence[Example]) -> Iterator[tuple[list[int], list[int]]]:
        """The pieces of the texts; the label as a whole number, and how many of the pieces are the second text's."""
        for pieces, example in zip(self.task.pieces([example.texts for example in examples]), examples, strict=True):
            if isinstance(self.task, Classify):
                label = self._known[example.label]
            else:
                label = int(np.float32(number_of(example)).view(np.uint32))  # the bits of the number: ids are whole
            yield [id for ids in pieces for id in ids], [label, sum(map(len, pieces[1:]))]

    def _unpacked(self, ids: list[int], kept: list[int], rng: random.Random) -> tuple[Row, Any]:
        label, second = kept
        first = len(ids) - second
        pieces = (ids[:first], ids[first:]) if self._marks == 3 else (ids,)
        row = self.task.around(*(self.task.sampled(pieces, rng) if self.task.dropout else pieces))
        return row, label if isinstance(self.task, Classify) else float(np.uint32(label).view(np.float32))

    def batches(self, place: Place) -> Iterator[tuple[ReadBatch, Place]]:
        recipe = self.task.recipe
        made = Batches(self.corpus, tokens=recipe.training.batch_tokens, seed=recipe.seed, marks=self._marks)
        for rows, after in made.iterate(place):
            rng = random.Random(f"{recipe.seed} {after}")
            each = [self._unpacked(*self.corpus.read(record), rng) for record, _ in rows]
            yield self.task.batch([row for row, _ in each], [label for _, label in each]), after

    def validate(self) -> Validation:
        if isinstance(self.task, Classify):
            found = self.task.evaluate(self.dev)
            entry = {"dev_loss": found.loss, "accuracy": found.accuracy, "macro_f1": found.macro_f1}
            return Validation({key: round(x, 4) for key, x in entry.items()}, found.accuracy, found.loss)
        judged = self.task.evaluate(self.dev)
        entry = {"dev_loss": judged.loss, "pearson": judged.pearson, "spearman": judged.spearman, "mse": judged.mse}
        return Validation({key: round(x, 4) for key, x in entry.items()}, judged.pearson, judged.loss)


class TagWork(Work):
    def __init__(self, recipe: Recipe, run: Path, find: Find, report: Report, start: Path | None = None) -> None:
        assert isinstance(recipe.data, TagData)
        data, prepared = recipe.data, run / "prepared"
        fresh = once(prepared)
        if fresh:
            report("Reading the sentences …")
            parted = parted_sentences(data, find)
            labels = _labels(label for sentence in parted.train() for label in sentence.labels)
            dev = parted.dev()
            check_known(dev, labels)
            vocabulary(run, recipe.tokenizer, lambda: (word for s in parted.train() for word in cut(*joined(s))), start)
            write_labels(run, labels)
            write_text(prepared / "dev.json", json.dumps([astuple(sentence) for sentence in dev]))
        torch.manual_seed(recipe.seed)
        self.task: Tag = Tag.build(run, recipe)
        known = {label: i for i, label in enumerate(self.task.labels)}
        if fresh:
            rows = (
                (ids, _pack(places, [known[label] for label in sentence.labels]))
                for chunk in chunks(parted.train())
                for sentence, (ids, places) in zip(chunk, self.task.encode_sentences(chunk), strict=True)
            )
            largest = max(self.task.tokenizer.size, len(known), data.max_length)
            prepare(prepared, "train", rows, largest=largest, max_length=data.max_length, max_target=2 * data.max_length)
        self.corpus = Prepared(prepared, "train")
        kept = json.loads((prepared / "dev.json").read_text(encoding="utf-8"))
        saved = [Sentence(tuple(words), tuple(labels), tuple(spaces), place) for words, labels, spaces, place in kept]
        self.dev = self.task.fitting(saved)
        self.has_dev = bool(self.dev)
        about = self.corpus.about
        self.data = f"{', '.join(data.train)}: {about['pairs']:,} sentences, {about['skipped']:,} left out as too long"
        left = f" ({about['skipped']:,} longer than {data.max_length} tokens left out)" if about["skipped"] else ""
        long = f" ({len(saved) - len(self.dev):,} longer than the model reads left out)" if len(self.dev) < len(saved) else ""
        report(f"{about['pairs']:,} training sentences{left}; {len(self.dev):,} dev sentences{long}.")
        train = Counter(self.task.labels[i] for _, kept in _each(self.corpus) for i in _unpack(kept)[1])
        report(balance(train, Counter(label for sentence in self.dev for label in sentence.labels)))
        if self.task.scheme != "none":
            report(f"They make up spans ({self.task.scheme}).")

    def batches(self, place: Place) -> Iterator[tuple[ReadBatch, Place]]:
        recipe = self.task.recipe
        for rows, after in Batches(self.corpus, tokens=recipe.training.batch_tokens, seed=recipe.seed, marks=2).iterate(place):
            read = [self.corpus.read(record) for record, _ in rows]
            each = [(ids, *_unpack(kept)) for ids, kept in read]
            texts = [(ids, places) for ids, places, _ in each]
            if self.task.dropout:
                rng = random.Random(f"{recipe.seed} {after}")
                texts = [self.task.sampled(ids, places, rng) for ids, places in texts]
            yield self.task.batch(texts, [labels for _, _, labels in each]), after

    def validate(self) -> Validation:
        found = self.task.evaluate(self.dev)
        entry = {"dev_loss": round(found.loss, 4), "accuracy": round(found.accuracy, 4)}
        if found.f1 is not None:
            entry["span_f1"] = round(found.f1, 4)
        return Validation(entry, found.accuracy if found.f1 is None else found.f1, found.loss)


def check_known(examples: Sequence[Example] | Sequence[Sentence], labels: Sequence[str]) -> None:
    """Labels come from the training data; one that it has not is a mistake in one of the two."""
    known = set(labels)
    for example in examples:
        given = zip(example.words, example.labels, strict=True) if isinstance(example, Sentence) else [("", example.label)]
        for word, label in given:
            if label not in known:
                of = f" of {word!r} in this sentence" if word else ""
                shown = ", ".join(labels[:20]) + (f" and {len(labels) - 20} more" if len(labels) > 20 else "")
                raise UserError(f"{example.place}: the label {label!r}{of} is not in the training data, which has: {shown}.")


def balance(train: Counter[str], dev: Counter[str]) -> str:
    """How uneven the labels are, and what the commonest would score by itself."""
    commonest, most = train.most_common(1)[0]
    rarest, least = train.most_common()[-1]
    words = f"{len(train)} labels: from {rarest!r} ({least:,}) to {commonest!r} ({most:,}, {most / train.total():.1%} of all)."
    if dev:
        words += f" Saying {commonest!r} every time scores {dev[commonest] / dev.total():.1%} on the dev data."
    return words


def _labels(found: Iterator[str]) -> list[str]:
    labels = sorted(set(found))
    if len(labels) < 2:
        raise UserError(
            f"The training data has one label only, {labels[0]!r}: there is nothing to tell apart. Check data.columns."
        )
    return labels


def _scale(examples: Iterator[Example]) -> dict[str, float]:
    numbers = np.array([number_of(example) for example in examples])
    if not numbers.std():
        raise UserError(f"All scores of the training data are {numbers[0]}: there is nothing to tell apart. Check data.columns.")
    return {"mean": float(numbers.mean()), "deviation": float(numbers.std())}


def _each(corpus: Prepared) -> Iterator[tuple[list[int], list[int]]]:
    return (corpus.read(record) for record in corpus.records(np.arange(corpus.count)))


def _pack(places: list[int], labels: list[int]) -> list[int]:
    return [*places, *labels]


def _unpack(kept: list[int]) -> tuple[list[int], list[int]]:
    return kept[: len(kept) // 2], kept[len(kept) // 2 :]
