"""Decoding with PyTorch: translating with one model's weights, by us and by others, in batches and one sentence at a time.

The model is `--model` (a run or a bundled model; default: the bundled zh-en), the sentences are Multi30k's test of 2016 if the
model reads English and they are found, else made of templates. Others get the same weights, the same sources sorted by length in
batches of 128, and may write as much. It is checked that 95 of 100 answers are the same, but for JoeyNMT's beam: rules of
stopping differ, and JoeyNMT's length penalty does.
"""

import gzip
import itertools
import json
import random
import shutil
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

import glassformer
from benchmarks.training import hugging_face
from benchmarks.turns import OURS, Build, Case, Turn, Unavailable, about_of
from glassformer import config
from glassformer.decoding.cores import one_core
from glassformer.errors import UserError
from glassformer.store import find_model
from glassformer.tasks.task import pad
from glassformer.tasks.translate import Translate
from glassformer.text.datasets import find
from glassformer.weights import named_weights

TEST = "multi30k/tok/test_2016_flickr.lc.norm.tok.en.gz"
WHO = ["The teacher", "My brother", "A young woman", "The old man", "Our neighbour", "The doctor", "She", "He"]
WHAT = ["is reading a book", "wants to buy a new car", "went home", "has never been", "was waiting for the bus", "eats breakfast"]
WHERE = ["in the garden", "at school", "near the station", "with two friends", "", "in a small town by the sea"]
WHEN = ["today.", "every morning before work.", "yesterday.", "because it was raining.", "."]
ROWS = 128  # of a batch that others are given; fewer were slower for them, greedily


def cases(model: str, *, quick: bool, tiny: bool) -> list[Case]:
    many, few = (8, 2) if tiny else (128, 16) if quick else (400, 40)
    found = [
        Case(
            f"{kind}, {how}",
            "target tokens/s",
            preparing(model, count),
            sides(beam, rows),
            checking(beam, rows),
            apart=not tiny,
        )
        for kind, beam in (("greedy", 1), ("beam 5", 5))
        for how, count, rows in (("in batches", many, ROWS), ("one by one", few, 1))
    ]
    return found[:: len(found) - 1] if tiny else found


def preparing(model: str, count: int) -> Any:
    def prepare(folder: Path) -> dict[str, Any]:
        task = glassformer.load(model)
        if not isinstance(task, Translate):
            raise SystemExit(f"{model} does not translate; --model takes a translator.")
        texts, corpus = sentences(task, count)
        save_file({n: x.contiguous().clone() for n, x in named_weights(task.model).items()}, folder / "weights.safetensors")
        (folder / "model").mkdir()
        for file in find_model(model).iterdir():
            if file.suffix in (".toml", ".json", ".safetensors"):
                shutil.copyfile(file, folder / "model" / file.name)
        shown = {"model": Path(model).name, "corpus": corpus, "sentences": len(texts)}
        tags = [task.target.tag(tag) for tag in task.target.tags]
        more = {
            "texts": texts,
            "to": task.data.target,
            "sources": [task.source_ids(ids, task.data.target) for ids in task.source.encode_batch(texts)],
            "vocabulary": task.target.size,
            "pad": task.source.pad,
            "eos": task.target.eos,
            "banned": sorted({task.target.pad, task.target.bos, *tags} - {-1}),
        }
        (folder / "about.json").write_text(json.dumps(shown | more, ensure_ascii=False), encoding="utf-8")
        return shown

    return prepare


def sentences(task: Translate, count: int) -> tuple[list[str], str]:
    if task.data.source == "en":
        try:
            with gzip.open(find(TEST), "rt", encoding="utf-8") as file:
                lines = [line for line in file.read().splitlines() if task.fits(line, line)]
            return random.Random(1).sample(lines, min(count, len(lines))), "Multi30k, test of 2016"
        except UserError:
            pass
    made = [" ".join(filter(None, words)).replace(" .", ".") for words in itertools.product(WHO, WHAT, WHERE, WHEN)]
    return random.Random(1).sample(made, min(count, len(made))), "sentences made of templates"


def sides(beam: int, rows: int) -> dict[str, Build]:
    return {
        OURS: partial(counted, OurSide, beam, rows),
        "transformers.generate": partial(counted, Generate, beam, rows),
        "JoeyNMT": partial(counted, Joey, beam, rows),
    }


def counted(side: Any, beam: int, rows: int, folder: Path) -> Turn:
    write = side(folder, beam, rows)
    return lambda: sum(len(ids) + 1 for ids in write())


class OurSide:
    def __init__(self, folder: Path, beam: int, rows: int) -> None:
        self.task = glassformer.load(folder / "model")
        about = about_of(folder)
        self.texts, self.to, self.one = about["texts"], about["to"], rows == 1
        self.options = replace(self.task.recipe.decoding, beam=beam)

    def __call__(self) -> list[list[int]]:
        if self.one:
            return [self.task.translate(text, self.to, self.options).ids for text in self.texts]
        return [answer.ids for answer in self.task.translate_all(self.texts, self.to, self.options)]


class Other:
    """Another library with the same weights. Nothing of ours is loaded, so that its memory is its own. One sentence at a time it
    is given one thread, which is faster for it too."""

    def __init__(self, folder: Path, beam: int, rows: int) -> None:
        self.recipe, self.about = config.read(folder / "model" / "recipe.toml"), about_of(folder)
        o: Any = self.recipe.model
        if o.norm_kind != "layer" or o.positions != "sinusoidal" or o.scores != "dot" or o.tie != "all":
            raise Unavailable("it has no model of this kind")
        self.beam, self.one = beam, rows == 1
        sources = self.about["sources"]
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        parts = [order[i : i + rows] for i in range(0, len(order), rows)]
        self.batches = [(part, pad([sources[i] for i in part], self.about["pad"])) for part in parts]

    @torch.inference_mode()
    def __call__(self) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        eos = self.about["eos"]
        with one_core() if self.one else nullcontext():
            for part, source in self.batches:
                for i, ids in zip(part, self.write(source, 2 * source.size(1) + 11), strict=True):
                    found[i] = ids[: ids.index(eos)] if eos in ids else ids
        return [found[i] for i in range(len(found))]

    def write(self, source: Tensor, most: int) -> list[list[int]]:
        """At most so many tokens for each row."""
        raise NotImplementedError


class Generate(Other):
    """transformers: a Marian, or a Pegasus where norms come first."""

    def __init__(self, folder: Path, beam: int, rows: int) -> None:
        super().__init__(folder, beam, rows)
        self.model = hugging_face(folder, self.recipe, self.about["vocabulary"]).eval()

    def write(self, source: Tensor, most: int) -> list[list[int]]:
        answers = self.model.generate(
            source,
            attention_mask=(source != self.about["pad"]).long(),
            num_beams=self.beam,
            do_sample=False,
            max_new_tokens=most,
            length_penalty=1.0,
            early_stopping=False,
            suppress_tokens=self.about["banned"],
        )
        return answers[:, 1:].tolist()


class Joey(Other):
    """JoeyNMT, whose search reads the whole target again at every step."""

    def __init__(self, folder: Path, beam: int, rows: int) -> None:
        super().__init__(folder, beam, rows)
        from benchmarks.joey import Search

        weights = folder / "weights.safetensors"
        self.search = Search(self.recipe, self.about["vocabulary"], weights, self.about["banned"])

    def write(self, source: Tensor, most: int) -> list[list[int]]:
        return self.search(source, self.beam, most)


def checking(beam: int, rows: int) -> Any:
    def check(folder: Path) -> None:
        ours = OurSide(folder, beam, rows)()
        for side in (Generate, Joey) if beam == 1 else (Generate,):
            try:
                theirs = side(folder, beam, rows)()
            except (Unavailable, ImportError):
                continue
            same = sum(a == b for a, b in zip(ours, theirs, strict=True))
            if same < 0.95 * len(ours) - 1:
                raise SystemExit(f"Only {same} of {len(ours)} answers of {side.__name__} are ours: nothing is compared.")

    return check
