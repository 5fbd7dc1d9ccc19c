"""Training word vectors: words counted, left out or kept, and read through windows."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from glassformer.errors import UserError
from glassformer.models.word2vec import Neighbourhoods
from glassformer.options import Recipe, Word2VecOptions, WordData
from glassformer.tasks import wordtests
from glassformer.tasks.vectors import Vectors
from glassformer.text.batches import Place
from glassformer.text.labelled import read_texts
from glassformer.text.neighbourhoods import Contexts
from glassformer.text.stream import Stream, prepare_stream
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.words import Words, frequent
from glassformer.training.vocabulary import vocabulary
from glassformer.training.work import Find, Report, Validation, Work, once


class VectorsWork(Work):
    def __init__(self, recipe: Recipe, run: Path, find: Find, report: Report, start: Path | None = None) -> None:
        assert isinstance(recipe.data, WordData) and isinstance(recipe.model, Word2VecOptions)
        if not recipe.model.output:
            raise UserError(
                "model.output = false: vectors without the second matrix, such as imported ones, cannot be trained on."
            )
        self.data_options, self._find = recipe.data, find
        self.tests = [find(name) for name in recipe.data.dev]
        self.has_dev = bool(self.tests)
        prepared = run / "prepared"
        fresh = once(prepared)
        if fresh:
            report("Reading the text and counting words …")
            self._vocabulary(recipe, run, start)
        torch.manual_seed(recipe.seed)
        self.task: Vectors = Vectors.build(run, recipe)
        tokenizer = self.task.tokenizer
        end = tokenizer.size  # no word's id: it ends a document
        if fresh:
            report(f"Vocabulary: {len(tokenizer.words()):,} words. Writing the text as ids …")
            encode = lambda chunk: ([*ids, end] for ids in self.task.encode_batch(chunk))  # noqa: E731
            prepare_stream(prepared, "train", self._texts(), encode, _counts, largest=end + 1)
        self.train = Stream(prepared, "train")
        counts = _occurrences(self.train, end)
        if counts.sum() < 2:
            raise UserError("The text has fewer than two words of the vocabulary; there is nothing to learn from.")
        options = recipe.training
        self.contexts = Contexts(self.train, counts, self.task.options, end=end, tokens=options.batch_tokens, seed=recipe.seed)
        self.epoch = self.contexts.updates()  # in how many updates all is read once
        about = self.train.about
        self.data = f"{', '.join(recipe.data.train)}: {about['documents']:,} texts, {counts.sum():,} words of the vocabulary"
        report(
            f"{about['documents']:,} texts, {counts.sum():,} words; {self.epoch:,} updates read all of it once, "
            f"so {options.updates:,} read it {options.updates / self.epoch:.1f} times."
        )

    def _texts(self) -> Iterator[str]:
        return read_texts(self.data_options.train, self.data_options, self._find)

    def _vocabulary(self, recipe: Recipe, run: Path, start: Path | None) -> None:
        """tokenizer.json, and segmenter.json if Chinese is cut."""
        if recipe.tokenizer.kind != "word":
            return vocabulary(run, recipe.tokenizer, self._texts, start)
        words = Words.load(start or run, self.data_options, recipe.tokenizer)
        if start:
            vocabulary(run, recipe.tokenizer, self._texts, start)
        else:
            words.learn(self._texts())
            counts = words.counted(self._texts())
            if not counts:
                raise UserError(f"No word of the text occurs at least data.min_count = {self.data_options.min_count} times.")
            specials = 4 + bool(recipe.tokenizer.mask)
            chosen = frequent(counts, recipe.tokenizer.vocabulary - specials)
            Tokenizer.of_words(chosen, recipe.tokenizer).save(run / "tokenizer.json")
        words.save(run)

    def batches(self, place: Place) -> Iterator[tuple[Neighbourhoods, Place]]:
        for stretches, after in self.contexts.iterate(place):
            yield self.task.batch(stretches), after

    def validate(self) -> Validation:
        """What the tests of word vectors say; their mean decides."""
        space = self.task.space()
        judged = [wordtests.evaluate(space, path)[0] for path in self.tests]
        score = sum(each.score or 0.0 for each in judged) / len(judged)
        return Validation({each.name: round(each.score or 0.0, 4) for each in judged}, score, -score)


def _counts(texts: list[str]) -> tuple[int, int]:
    """Characters and words, by spaces."""
    return sum(map(len, texts)), sum(len(text.split()) for text in texts)


def _occurrences(stream: Stream, end: int) -> np.ndarray:
    """(V): how often each word occurs."""
    counts = np.zeros(end + 1, np.int64)
    for first in range(0, len(stream), 1 << 20):
        counts += np.bincount(stream.ids[first : first + (1 << 20)], minlength=end + 1)
    return counts[:end]
