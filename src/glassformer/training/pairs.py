"""Training a translator: sentence pairs, tokenised once and found again when a run goes on."""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import torch

from glassformer.files import write_text
from glassformer.options import PairData, Recipe
from glassformer.tasks.evaluation import directions, evaluate, loss
from glassformer.tasks.translate import Batch, Translate
from glassformer.tasks.translator import load_tokenizers, save_tokenizers
from glassformer.text.batches import Batches, Place, Prepared, chunks, prepare
from glassformer.text.corpus import read_pairs
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.vocabulary import sampled, vocabulary
from glassformer.training.work import Find, Report, Validation, Work, once

Pairs = Callable[[], Iterator[tuple[str, str]]]


class PairWork(Work):
    def __init__(self, recipe: Recipe, run: Path, find: Find, report: Report, start: Path | None = None) -> None:
        assert isinstance(recipe.data, PairData)
        data = recipe.data

        def pairs(specs: tuple[str, ...]) -> Iterator[tuple[str, str]]:
            return ((pair.source, pair.target) for pair in read_pairs(specs, data, find))

        prepared = run / "prepared"
        fresh = once(prepared)
        dev = _dev(prepared / "dev.json", pairs(data.dev) if data.dev else ())
        if fresh:
            report("Reading the corpus and training the tokenizer …")
            _tokenizers(recipe, run, lambda: pairs(data.train), start)
            source, target = load_tokenizers(run, recipe)
            words = "" if source is target else f" source, {target.size:,} target"
            report(f"Vocabulary: {source.size:,}{words} pieces. Tokenising …")
            rows = (
                row
                for chunk in chunks(pairs(data.train))
                for row in zip(
                    source.encode_batch([a for a, _ in chunk]), target.encode_batch([b for _, b in chunk]), strict=True
                )
            )
            prepare(prepared, "train", rows, largest=max(source.size, target.size), max_length=data.max_length)
        self.corpus = Prepared(prepared, "train")
        about = self.corpus.about
        torch.manual_seed(recipe.seed)
        self.task: Translate = Translate.build(run, recipe)
        self.dev = [pair for pair in dev if self.task.fits(*pair)]
        self.has_dev = bool(self.dev)
        self.data = f"{', '.join(data.train)}: {about['pairs']:,} pairs, {about['skipped']:,} left out as too long"
        skipped = f"; {about['skipped']:,} longer than {data.max_length} pieces left out" if about["skipped"] else ""
        long = f" ({len(dev) - len(self.dev):,} longer than the model's positions left out)" if len(self.dev) < len(dev) else ""
        report(f"{about['pairs']:,} training pairs, {about['tokens']:,} pieces{skipped}; {len(self.dev):,} dev pairs{long}.")

    def batches(self, place: Place) -> Iterator[tuple[Batch, Place]]:
        recipe = self.task.recipe
        tokens, both = recipe.training.batch_tokens, self.task.data.both_ways
        for rows, after in Batches(self.corpus, tokens=tokens, both_ways=both, seed=recipe.seed).iterate(place):
            pairs = [(*self.corpus.read(record), reverse) for record, reverse in rows]
            yield self.task.training_batch(pairs, random.Random(f"{recipe.seed} {after}")), after

    def validate(self) -> Validation:
        """Dev loss, and BLEU on the first pairs; both ways round if the model does both."""
        recipe = self.task.recipe
        losses, scores, entry = [], [], {}
        for to, pairs in directions(self.task, self.dev):
            losses.append(loss(self.task, pairs, to))
            entry[f"dev_loss_{to}"] = round(losses[-1], 4)
            if recipe.training.bleu_sentences:
                chosen = pairs[: recipe.training.bleu_sentences]
                result = evaluate(self.task, chosen, to, replace(recipe.decoding, beam=1))  # greedy: a glance
                scores.append(round(result.scores[0].value, 2))
                entry[f"bleu_{to}"] = scores[-1]
        mean_loss = sum(losses) / len(losses)
        return Validation(entry, sum(scores) / len(scores) if scores else -mean_loss, mean_loss)


def _dev(kept: Path, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The dev pairs, kept with the run: going on judges by the same ones, wherever their corpus is by then."""
    if not kept.exists():
        write_text(kept, json.dumps(list(pairs)))
    return [(source, target) for source, target in json.loads(kept.read_text(encoding="utf-8"))]


def _tokenizers(recipe: Recipe, run: Path, pairs: Pairs, start: Path | None) -> None:
    data, options = recipe.data, recipe.tokenizer
    assert isinstance(data, PairData)
    if options.shared:
        tags = [f"<2{data.source}>", f"<2{data.target}>"] if data.both_ways else []
        vocabulary(run, options, lambda: chain.from_iterable(pairs()), start, tags)
    elif start:
        save_tokenizers(run, recipe, *load_tokenizers(start, recipe))
    else:
        source = Tokenizer.train(sampled(lambda: (a for a, _ in pairs()), options.kind)(), options)
        target = Tokenizer.train(sampled(lambda: (b for _, b in pairs()), options.kind)(), options)
        save_tokenizers(run, recipe, source, target)
