"""Training on plain text: a language model on full windows of it, or the filling of gaps in its lines."""

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from glassformer.options import Recipe, TextData
from glassformer.tasks.fill import Fill, check_mask
from glassformer.tasks.language import Batch, Fit, Language
from glassformer.tasks.reading import ReadBatch
from glassformer.text.batches import Batches, Place, Prepared, chunks, prepare
from glassformer.text.labelled import read_texts
from glassformer.text.stream import Stream, Windows, prepare_stream
from glassformer.training.vocabulary import vocabulary
from glassformer.training.work import Find, Report, Validation, Work, once


class LanguageWork(Work):
    def __init__(self, recipe: Recipe, run: Path, find: Find, report: Report, start: Path | None = None) -> None:
        texts = Texts(recipe, find)
        prepared = run / "prepared"
        fresh = once(prepared)
        if fresh:
            report("Reading the text and training the tokenizer …")
            vocabulary(run, recipe.tokenizer, texts.train, start)
        torch.manual_seed(recipe.seed)
        self.task: Language = Language.build(run, recipe)
        tokenizer = self.task.tokenizer
        if fresh:
            report(f"Vocabulary: {tokenizer.size:,} pieces. Tokenising …")

            def write(name: str, documents: Iterator[str]) -> None:
                encode = lambda chunk: map(self.task.marked, tokenizer.encode_batch(chunk))  # noqa: E731
                prepare_stream(prepared, name, documents, encode, self.task.counts, largest=tokenizer.size)

            if texts.has_dev:
                write("dev", texts.dev())
            write("train", texts.train())
        self.train = Stream(prepared, "train")
        self.dev = Stream(prepared, "dev") if (prepared / "dev.json").exists() else None
        self.has_dev = self.dev is not None
        about = self.train.about
        self.data = f"{', '.join(texts.data.train)}: {about['characters']:,} characters, {about['tokens']:,} tokens"
        report(f"{about['characters']:,} characters, {about['tokens']:,} tokens; {len(self.dev or ()):,} dev tokens.")

    def batches(self, place: Place) -> Iterator[tuple[Batch, Place]]:
        recipe = self.task.recipe
        rows = max(1, recipe.training.batch_tokens // self.task.window)
        for text, after in Windows(self.train, length=self.task.window, rows=rows, seed=recipe.seed).iterate(place):
            ids = torch.from_numpy(text)
            yield Batch(ids[:, :-1], ids[:, 1:].flatten()), after

    def validate(self) -> Validation:
        """−log p a token of the dev text, its windows side by side."""
        assert self.dev is not None
        about = self.dev.about
        nll = self.task.nll(self.dev.ids)
        fit = Fit(nll / (len(self.dev) - 1), len(self.dev) - 1, about["characters"], about["words"])
        entry = {
            "dev_loss": round(fit.loss, 4),
            "perplexity": round(fit.perplexity, 2),
            "bits_per_character": round(fit.bits_per_character, 4),
        }
        return Validation(entry, -fit.loss, fit.loss)


class FillWork(Work):
    def __init__(self, recipe: Recipe, run: Path, find: Find, report: Report, start: Path | None = None) -> None:
        check_mask(recipe)
        texts = Texts(recipe, find)
        prepared = run / "prepared"
        fresh = once(prepared)
        if fresh:
            report("Reading the text and training the tokenizer …")
            vocabulary(run, recipe.tokenizer, texts.train, start)
        torch.manual_seed(recipe.seed)
        self.task: Fill = Fill.build(run, recipe)
        if fresh:
            report(f"Vocabulary: {self.task.tokenizer.size:,} pieces. Tokenising …")
            most = self.task.options.max_length
            if texts.has_dev:
                prepare(prepared, "dev", self._rows(texts.dev()), largest=self.task.tokenizer.size, max_length=most)
            prepare(prepared, "train", self._rows(texts.train()), largest=self.task.tokenizer.size, max_length=most)
        self.train = Prepared(prepared, "train")
        self.dev = _whole(Prepared(prepared, "dev")) if (prepared / "dev.json").exists() else []
        self.has_dev = bool(self.dev)
        about = self.train.about
        self.data = f"{', '.join(texts.data.train)}: {about['pairs']:,} lines, {about['tokens']:,} tokens"
        report(f"{about['pairs']:,} lines, {about['tokens']:,} tokens; {len(self.dev):,} dev lines.")

    def _rows(self, documents: Iterator[str]) -> Iterator[tuple[list[int], list[int]]]:
        for chunk in chunks(documents):
            for ids in self.task.tokenizer.encode_batch(chunk):
                for part in self.task.parts(ids):
                    yield part, []

    def batches(self, place: Place) -> Iterator[tuple[ReadBatch, Place]]:
        recipe = self.task.recipe
        tokens, seed = recipe.training.batch_tokens, recipe.seed
        for rows, after in Batches(self.train, tokens=tokens, seed=seed, marks=2).iterate(place):
            texts = [self.train.read(record)[0] for record, _ in rows]
            yield self.task.masked_batch(texts, random.Random(f"{seed} {after}")), after

    def validate(self) -> Validation:
        """−log p of masked pieces, and how many are guessed right; the same pieces at every validation."""
        found = self.task.evaluate(self.dev)
        return Validation({"dev_loss": round(found.loss, 4), "accuracy": round(found.accuracy, 4)}, -found.loss, found.loss)


def _whole(corpus: Prepared) -> list[list[int]]:
    return [corpus.read(record)[0] for record in corpus.records(np.arange(corpus.count))]


class Texts:
    """The training and dev documents of a recipe; without a dev corpus, perhaps the last part of the training text."""

    def __init__(self, recipe: Recipe, find: Find) -> None:
        assert isinstance(recipe.data, TextData)
        self.data, self.find = recipe.data, find
        self.share = 0.0 if self.data.dev else self.data.dev_share
        self.has_dev = bool(self.data.dev or self.share)
        self._whole: int | None = None

    def train(self) -> Iterator[str]:
        return self._split(last=False) if self.share else self._all()

    def dev(self) -> Iterator[str]:
        if self.data.dev:
            return read_texts(self.data.dev, self.data, self.find)
        return self._split(last=True) if self.share else iter(())

    def _all(self) -> Iterator[str]:
        return read_texts(self.data.train, self.data, self.find)

    def _split(self, *, last: bool) -> Iterator[str]:
        if self.data.documents == "file":  # each file gives its own end
            for text in self._all():
                cut = round(len(text) * (1 - self.share))
                yield text[cut:] if last else text[:cut]
            return
        if self._whole is None:
            self._whole = sum(1 for _ in self._all())
        cut = self._whole - max(1, round(self._whole * self.share))
        yield from islice(self._all(), cut, None) if last else islice(self._all(), cut)
