"""From a recipe to a run folder ready to train: tokenizers and the tokenised corpus, made once and found again when going on."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

import torch

from glassformer.config import Recipe
from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.tasks.translate import Translate, load_tokenizers, save_tokenizers
from glassformer.text.batches import Prepared, prepare
from glassformer.text.corpus import read_pairs
from glassformer.text.tokenizer import Tokenizer

# How many characters a vocabulary is learned from, evenly over the corpus: more adds no piece worth having, and takes memory.
# Unigram counts every substring; words and characters are merely counted.
TOKENIZER_CHARACTERS = {"bpe": 10_000_000, "unigram": 2_000_000, "word": 100_000_000, "character": 100_000_000}

Find = Callable[[str], Path]
Report = Callable[[str], None]


def prepare_run(recipe: Recipe, run: Path, find: Find, report: Report) -> tuple[Translate, Prepared, list[tuple[str, str]]]:
    """The translator with fresh weights, its training corpus, and the dev pairs."""
    data = recipe.data
    if not data.train:
        raise UserError(
            "The recipe has no data.train: give a TSV, a JSONL, two aligned files as train.{en,de}, or synthetic:reverse."
        )

    def pairs(specs: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        return ((pair.source, pair.target) for pair in read_pairs(specs, data, find))

    prepared = run / "prepared"
    begun = (prepared / "train.json").exists()
    if not begun:
        for file in ("train.ids", "train.index", "dev.json"):  # what a run that was killed while preparing left
            (prepared / file).unlink(missing_ok=True)
    dev = _dev(prepared / "dev.json", pairs(data.dev) if data.dev else ())
    if not begun:
        report("Reading the corpus and training the tokenizer …")
        tags = [f"<2{data.source}>", f"<2{data.target}>"] if data.both_ways else []
        source, target = _train_tokenizers(recipe, lambda: pairs(data.train), tags)
        save_tokenizers(run, recipe, source, target)
        report(
            f"Vocabulary: {source.size:,}"
            + ("" if source is target else f" source, {target.size:,} target")
            + " pieces. Tokenising …"
        )
        corpus = prepare(
            prepared,
            "train",
            pairs(data.train),
            (source.encode_batch, target.encode_batch),
            vocabulary=max(source.size, target.size),
            max_length=data.max_length,
        )
    else:
        corpus = Prepared(prepared, "train")
    about = corpus.about
    skipped = f"; {about['skipped']:,} longer than {data.max_length} pieces left out" if about["skipped"] else ""
    torch.manual_seed(recipe.seed)
    task = Translate(recipe, *load_tokenizers(run, recipe))
    fitting = [pair for pair in dev if task.fits(*pair)]
    long = f" ({len(dev) - len(fitting):,} longer than the model's positions left out)" if len(fitting) < len(dev) else ""
    report(f"{about['pairs']:,} training pairs, {about['tokens']:,} pieces{skipped}; {len(fitting):,} dev pairs{long}.")
    return task, corpus, fitting


def _dev(kept: Path, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The dev pairs, kept with the run: going on judges by the same ones, wherever their corpus is by then."""
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text(kept, json.dumps(list(pairs)))
    return [(source, target) for source, target in json.loads(kept.read_text(encoding="utf-8"))]


def _train_tokenizers(
    recipe: Recipe, pairs: Callable[[], Iterator[tuple[str, str]]], tags: list[str]
) -> tuple[Tokenizer, Tokenizer]:
    # One pass over everything first: a bad line is found now, not after an hour.
    characters = sum(len(source) + len(target) for source, target in pairs())
    every = math.ceil(characters / TOKENIZER_CHARACTERS[recipe.tokenizer.kind])
    chosen = lambda: (pair for i, pair in enumerate(pairs()) if i % every == 0)  # noqa: E731 (read twice)
    if recipe.tokenizer.shared:
        both = Tokenizer.train(chain.from_iterable(chosen()), recipe.tokenizer, tags)
        return both, both
    return (
        Tokenizer.train((source for source, _ in chosen()), recipe.tokenizer),
        Tokenizer.train((target for _, target in chosen()), recipe.tokenizer),
    )
