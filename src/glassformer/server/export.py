"""One pass as a folder for any web server: the page, what the API would answer it, and the numbers it draws.

export/manifest.json names what there is. `replies` has answers as JSON. `arrays` has the tensors of the pass, the weights that
its cells are computed from and the logits of each round: little-endian float32 in parts of PART numbers, compressed by gzip.
`cells` has how each number came about, in the order of its tensor, CELLS to a file; operands are named there, their values are
in the arrays. web/src/lib/archive.ts reads all this.
"""

import gzip
import itertools
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer import __version__, notation
from glassformer.answers import tokenizer_of
from glassformer.errors import UserError
from glassformer.explain import Cell, Explainer
from glassformer.server import page
from glassformer.server.guard import POLICY
from glassformer.server.limits import Limits
from glassformer.server.looking import ToLens, ToReach, reach, through_the_lens
from glassformer.server.refusal import Refusal
from glassformer.server.requests import ToBeam, ToNext, ToSpell, ToTokenize, as_the_page, readable
from glassformer.server.runs import Runs
from glassformer.server.shelf import Shelf, read_by
from glassformer.server.work import Work
from glassformer.trace import Trace

FORMAT = "glassformer export 1"
PART = 1 << 18  # numbers in a file
CELLS = 2048  # cells in a file
MOST = 3_000_000  # cells of an export: minutes, and about 150 MB
Progress = Callable[[int], None]

_SERVED = (
    "This page is read from a web server: python -m http.server --directory THIS_FOLDER<br>"
    "<span lang='zh'>本页需经网页服务器打开：python -m http.server --directory 本文件夹</span>"
)


def export(
    folder: Path,
    model: str | Path,
    text: str,
    *,
    second: str | None = None,
    to: str | None = None,
    force: bool = False,
    engine: str = "auto",
    watch: Callable[[int], Progress] = lambda total: lambda done: None,
) -> None:
    """Writes the folder, whole or not at all. `watch` is told how many cells there are, and then of each that is done."""
    index = built_page()
    limits = Limits()
    readable(limits, text, second)
    work = Work(Shelf([model], limits, engine), limits)
    (id,) = work.shelf.folders()
    try:
        with new_folder(folder, force) as part:
            Recording(part / "export", work, id).make(text, second, to, watch)
            shutil.copytree(page.FOLDER, part, dirs_exist_ok=True)
            (part / "index.html").write_text(index, encoding="utf-8")
    except Refusal as refusal:
        raise UserError(refusal.sentence) from None
    finally:
        work.maps.close()


def built_page() -> str:
    """index.html, marked as an export's, and as careful as the server is about what a page may load."""
    try:
        index = (page.FOLDER / "index.html").read_text(encoding="utf-8")
    except OSError:
        raise UserError("The page is not built: cd web && npm install --no-save && npm run build") from None
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}" />'
    marks = f'<meta name="glassformer-export" content="{FORMAT}" />\n    {policy}'
    index = index.replace('<meta charset="utf-8" />', f'<meta charset="utf-8" />\n    {marks}', 1)
    return index.replace('<div id="page"></div>', f'<div id="page"><p>{_SERVED}</p></div>', 1)


@contextmanager
def new_folder(folder: Path, force: bool) -> Iterator[Path]:
    """A folder to write to, whose files become those of `folder` when the block ends well; when it does not, all is as before."""
    folder = folder.resolve()
    earlier = _earlier(folder)
    if earlier and not force:
        raise UserError(f"{folder} has an export already; --force replaces it.")
    part, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{end}") for end in ("part", "old"))
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        for path in (folder, part, old):
            path.mkdir(parents=True, exist_ok=path == folder)
    except OSError as error:
        _remove(part, old, made)
        why = (
            "something on the way there is a file" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        )
        raise UserError(f"{folder} cannot be written: {why}.") from None
    moved = []
    try:
        yield part
        for path in earlier:
            path.rename(old / path.name)
        for path in sorted(part.iterdir(), key=lambda path: path.name == "index.html"):  # which comes when all else is there
            moved.append(path.rename(folder / path.name))
    except BaseException:
        for path in moved:
            path.rename(part / path.name)
        for path in old.iterdir():
            path.rename(folder / path.name)
        _remove(part, old, made)
        raise
    _remove(part, old)


def _earlier(folder: Path) -> list[Path]:
    """The files of an earlier export, if there is one and nothing else."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; --export names a folder.")
    found = list(folder.iterdir()) if folder.is_dir() else []
    try:
        known = bool(found) and json.loads((folder / "export/manifest.json").read_text(encoding="utf-8"))["format"] == FORMAT
    except (OSError, ValueError, TypeError, KeyError):
        known = False
    if found and not known:
        raise UserError(f"{folder} is not empty, and no earlier export: --export names a new or empty folder.")
    ours = {"export", *(path.name for path in page.FOLDER.iterdir())}
    others = sorted(path.name for path in found if path.name not in ours)
    if others:
        raise UserError(
            f"{folder} has more than an export in it ({', '.join(others[:3])}): --export names a new or empty folder."
        )
    return found


def _remove(part: Path, old: Path, made: Sequence[Path] = ()) -> None:
    for path in (part, old):
        shutil.rmtree(path, ignore_errors=True)
    for path in made:
        with suppress(OSError):
            path.rmdir()


class Recording:
    """What the page would ask about one pass, asked and written down."""

    def __init__(self, folder: Path, work: Work, model: str) -> None:
        self.folder, self.work, self.model = folder, work, model
        self.task: Any = work.shelf.load(model)
        self.arrays: dict[str, dict[str, Any]] = {}
        self._written: dict[tuple[Any, ...], tuple[dict[str, Any], NDArray[Any]]] = {}  # by memory: tied weights are one

    def make(self, text: str, second: str | None, to: str | None, watch: Callable[[int], Progress]) -> None:
        if self.task.recipe.task == "vectors":
            raise UserError(f"An export is of a text's way through a model; {self.model} is word vectors, which read none.")
        asked = as_the_page(self.model, self.task.recipe.task, text, second, to)
        told = self.work.trace(asked)
        trace = self.work.traces.get(told["id"]).trace
        count = sum(x.numel() for x in trace.values())
        if count > MOST:
            sentence = f"This pass has {count:,} numbers, each of which an export explains; {MOST:,} are allowed."
            raise UserError(f"{sentence} Shorten the text, or choose a smaller model.")
        for name in ("replies", "arrays", "cells"):
            (self.folder / name).mkdir(parents=True)
        self.reply("trace", told)
        self.models(text, second)
        self.writing(told)
        self.looking(told, trace)
        self.training()
        for name, x in trace.items():
            self.array(f"tensor/{name}", x)
        self.cells(trace, watch(count))
        ask = {**asked.model_dump(include={"model", "text", "second", "max_tokens"}), "to": told["to"]}
        parts = {"part": PART, "cells": CELLS, "arrays": self.arrays}
        self.json("manifest.json", {"format": FORMAT, "version": __version__, "ask": ask, "id": told["id"], **parts})

    # -- answers

    def models(self, text: str, second: str | None) -> None:
        listed = self.work.shelf.list()
        if listed["problems"]:
            raise UserError(listed["problems"][self.model])
        (about,) = listed["models"]
        own = {"examples": [text], "checkpoints": [], **({"seconds": [second]} if second is not None else {})}
        self.reply("models", {**listed, "models": [{**about, **own}]})
        self.reply("notation", {"rows": notation.rows()})
        sides = ["source"] if tokenizer_of(self.task) is read_by(self.task) else ["source", "target"]
        self.reply("words", {side: self.words(side) for side in sides})
        texts = [text] if second is None else [text, second]
        cut = [{"text": each, "side": side} for each in texts for side in sides]
        self.reply(
            "tokenize",
            [{**ask, "told": self.work.tokenize(ToTokenize.model_validate({"model": self.model, **ask}))} for ask in cut],
        )

    def words(self, side: str) -> list[list[Any]]:
        """The whole vocabulary: the text of each id, and whether it is a mark."""
        size = (read_by(self.task) if side == "source" else tokenizer_of(self.task)).size
        found = []
        for first in range(0, size, self.work.limits.words):
            ids = list(range(first, min(size, first + self.work.limits.words)))
            asked = ToSpell(model=self.model, ids=ids, side=side)  # type: ignore[arg-type]
            found += [[word["text"], word["special"]] for word in self.work.words(asked)["words"]]
        return found

    def writing(self, told: dict[str, Any]) -> None:
        """The logits of every round of the answer, and a tree for every width of the beam."""
        if told["task"] not in ("translate", "language"):
            return
        asked = {"model": self.model, "text": told["text"], "to": told["to"]}
        ids = told["answer"]["ids"]
        room = self.task.recipe.model.max_length - len(told["target"])  # nothing comes after the last position
        rounds = [ids[:i] for i in range(len(ids) + (room >= 0))]
        logits = [self.work.next(ToNext(**asked, written=written, full=True)) for written in rounds]
        self.array("next", torch.stack([each for each in logits if isinstance(each, Tensor)]))
        if told["task"] == "translate":
            for width in range(1, self.work.limits.beam + 1):
                self.reply(f"beam-{width}", self.work.beam(ToBeam(**asked, beam=width)))

    def looking(self, told: dict[str, Any], trace: Trace) -> None:
        """The logit lens over every prediction, where there is a residual stream; else how far gradients reach, in a recurrent
        model."""
        if any(notation.describe(name).name == "recurrent.hidden" for name in trace):
            asked = ToReach.model_validate({"model": self.model})
            self.reply("distance", {"asked": asked.length, "told": reach(self.work, asked)})
        if not any(notation.describe(name).name == "block.resid_post" for name in trace):
            return
        first = through_the_lens(self.work, told["id"], ToLens(place=None))
        for place in range(len(first["predictions"])):
            self.reply(f"lens-{place}", through_the_lens(self.work, told["id"], ToLens(place=place)))

    def training(self) -> None:
        """The model's own course and film, if it has some."""
        runs = Runs(self.work)
        home = self.work.shelf.folders()[self.model].resolve()
        id = next((id for id, folder in runs.folders().items() if folder.resolve() == home), None)
        told = [run for run in runs.all()["runs"] if run["id"] == id]
        self.reply("runs", {"runs": told, "problems": {}, "more": 0})
        if not told or id is None:
            return
        self.reply("log", runs.course(id, ""))
        if told[0]["film"]:
            self.reply("film", runs.told(id))
            film = runs.film(id)
            for probe in range(len(film.probes)):
                data = film.patterns(probe, 0, len(film.frames))
                (self.folder / f"arrays/film-{probe}.bin").write_bytes(gzip.compress(data, 6, mtime=0))

    # -- numbers

    def array(self, name: str, x: Tensor | NDArray[Any]) -> None:
        """Under this name, in parts; numbers that are there already are not written twice."""
        data = x.detach().numpy() if isinstance(x, Tensor) else x
        place = (data.ctypes.data, data.shape, data.strides)
        if place in self._written:
            self.arrays[name] = self._written[place][0]
            return
        flat = np.ascontiguousarray(data).astype("<f4", copy=False).ravel()
        file = name.replace("/", "-")
        for i in range(max(1, math.ceil(flat.size / PART))):
            packed = gzip.compress(flat[i * PART : (i + 1) * PART].tobytes(), 6, mtime=0)
            (self.folder / f"arrays/{file}.{i}.bin").write_bytes(packed)
        self.arrays[name] = {"file": file, "shape": list(data.shape)}
        self._written[place] = (self.arrays[name], data)  # which keeps its memory from being used again

    def cells(self, trace: Trace, done: Progress) -> None:
        """How every number of the pass came about, and the weights that were needed for it."""
        explainer = Explainer(self.task.model, trace)
        weights: set[str] = set()
        for name, x in trace.items():
            found = (explainer.cell(name, index) for index in itertools.product(*map(range, x.shape)))
            for number in range(math.ceil(x.numel() / CELLS)):
                lines = [bare(cell, weights) for cell in itertools.islice(found, CELLS)]
                data = json.dumps(lines, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
                (self.folder / f"cells/{name}.{number}.bin").write_bytes(gzip.compress(data, 5, mtime=0))
                done(len(lines))
        for name in sorted(weights):
            found_weight = explainer.around.weight(name)
            assert found_weight is not None
            self.array(f"weight/{name}", found_weight)

    # -- files

    def reply(self, name: str, data: Any) -> None:
        self.json(f"replies/{name}.json", data)

    def json(self, path: str, data: Any) -> None:
        body = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        (self.folder / path).write_bytes(body.encode("utf-8", "replace"))


def bare(cell: Cell, weights: set[str]) -> list[Any]:
    """Equation, terms, result and steps, ready for JSON; of operands where they are. The set gets the weights among them."""

    def told(term: Any) -> Any:
        if isinstance(term, float):
            return term if math.isfinite(term) else None
        if isinstance(term, list):
            return [told(each) for each in term]
        if not isinstance(term, dict):
            return term
        if "index" not in term:
            return {key: told(each) for key, each in term.items()}
        if term["weight"]:
            weights.add(term["name"])
        return {"name": term["name"], "index": term["index"], "weight": term["weight"]}

    return [cell.equation, told(cell.terms), told(cell.result), cell.steps]


def size_of(folder: Path) -> tuple[int, int]:
    """Files and bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)
