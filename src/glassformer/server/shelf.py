"""The models that the page offers: which there are, what each is, and those that are loaded."""

import dataclasses
import json
import struct
import threading
from collections import OrderedDict
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from glassformer import config, store
from glassformer.answers import tokenizer_of
from glassformer.engine import choice
from glassformer.errors import UserError
from glassformer.notation import describe
from glassformer.options import PairData, Recipe
from glassformer.server.examples import examples
from glassformer.server.limits import Limits
from glassformer.server.refusal import Refusal
from glassformer.tasks import registry
from glassformer.tasks.language import Language
from glassformer.tasks.task import Task
from glassformer.tasks.translate import Translate
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace

FILES = ("recipe.toml", "model.safetensors", "tokenizer.json", "tokenizer.source.json", "tokenizer.target.json", "labels.json")
Stamp = tuple[tuple[int, int] | None, ...]  # of the files: when they were written last, and their size


class Shelf:
    """The given models, or all that are bundled and trained here. Loaded when first asked for; the latest few are kept.

    A folder may come, change or go at any time: its files are looked at whenever it is asked for.
    """

    def __init__(self, models: Sequence[str | Path] = (), limits: Limits | None = None, engine: str = "auto") -> None:
        self._engine = engine
        self._given = [store.find_model(name) for name in models]
        self._limits = limits or Limits()
        self._loaded: OrderedDict[Path, tuple[Stamp, Task]] = OrderedDict()
        self._told: dict[Path, tuple[Stamp, dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._locks: dict[Path, threading.Lock] = {}

    def folders(self) -> dict[str, Path]:
        """Every model's folder under its id: its name, and the folder it is in where two have one name."""
        found = self._given or [*store.bundled(), *store.trained()]
        names = [folder.resolve().name for folder in found]
        ids: dict[str, Path] = {}
        for folder, name in zip(found, names, strict=True):
            id = name if names.count(name) == 1 or folder.parent == store.BUNDLED else f"{folder.resolve().parent.name}/{name}"
            while id in ids:
                id += "'"
            ids[id] = folder
        return ids

    def load(self, id: str) -> Task:
        """The model, or a checkpoint of it (NAME@UPDATE), from memory if its files have not changed."""
        folder, weights, stamp = self._find(id)
        with self._lock:
            known = self._loaded.get(weights)
            if known and known[0] == stamp:
                self._loaded.move_to_end(weights)
                return known[1]
            lock = self._locks.setdefault(weights, threading.Lock())
        with lock:  # two requests for one model load it once; others do not wait
            with self._lock:
                known = self._loaded.get(weights)
            if known and known[0] == stamp:
                return known[1]
            try:
                task: Any = registry.load(folder, weights)
                if isinstance(task, Translate | Language) and weights == folder / "model.safetensors":
                    task.beside = choice.beside(folder, task.recipe, self._engine)
            except Exception as error:  # whatever may be in a folder that somebody made
                if _stamp(folder, weights) is None:
                    raise self._gone(id) from None
                raise Refusal(422, "broken-model", f"The model {id} cannot be loaded: {error}", model=id) from None
            with self._lock:
                self._loaded[weights] = (stamp, task)
                while len(self._loaded) > self._limits.models:
                    self._loaded.popitem(last=False)
            return task

    def _find(self, id: str) -> tuple[Path, Path, Stamp]:
        """The folder of a model, the file with its weights, and when its files were written."""
        folders = self.folders()
        name, at, update = (id, "", "") if id in folders else id.rpartition("@")
        if name not in folders:
            raise Refusal(
                404, "unknown-model", f"There is no model {id!r}. There are: {', '.join(folders)}.", models=list(folders)
            )
        folder, weights = folders[name], folders[name] / "model.safetensors"
        if at:
            kept = checkpoints(folder)
            if not update.isascii() or not update.isdigit() or int(update[:9]) not in kept:
                known = f"There are: {', '.join(map(str, kept))}." if kept else "It has none."
                raise Refusal(404, "unknown-model", f"{name} has no checkpoint of update {update}. {known}", model=id)
            weights = kept[int(update[:9])]
        stamp = _stamp(folder, weights)
        if stamp is None:
            raise self._gone(id)
        return folder, weights, stamp

    def _gone(self, id: str) -> Refusal:
        return Refusal(404, "model-gone", f"The folder of the model {id} is no longer there. Choose another model.", model=id)

    def list(self) -> dict[str, Any]:
        """What the page says of each. A broken folder does not hide the others, nor do too many. Word vectors, through which
        no text passes, are told of apart."""
        told: list[dict[str, Any]] = []
        problems, room = {}, 0.9 * self._limits.answer
        for id, folder in self.folders().items():
            try:
                about = {"id": id, **self._tell(folder), "checkpoints": _told(checkpoints(folder))}
                room -= len(json.dumps(about))
                if room < 0:
                    raise UserError("There are too many models for one list. Name those to explore: glassformer explore MODEL …")
                told.append(about)
            except Exception as error:  # whatever may be in a folder that somebody made
                problems[id] = str(error)
        models, vectors = ([about for about in told if (about["task"] == "vectors") is apart] for apart in (False, True))
        default = "zh-en" if any(model["id"] == "zh-en" for model in models) else models[0]["id"] if models else None
        return {"models": models, "vectors": vectors, "default": default, "problems": problems}

    def _tell(self, folder: Path) -> dict[str, Any]:
        stamp = _stamp(folder)
        if stamp is None:
            raise UserError(f"{folder} is no longer there.")
        known = self._told.get(folder)
        if known is None or known[0] != stamp:
            known = self._told[folder] = (stamp, tell(folder))
        return known[1]


def checkpoints(folder: Path) -> dict[int, Path]:
    """The weights that a run has kept, by update: of the moving average if there is one, by which the run is judged."""
    found = {}
    for path in sorted((folder / "checkpoints").glob("[0-9]*")):
        weights = next((path / name for name in ("ema.safetensors", "model.safetensors") if (path / name).is_file()), None)
        if weights and path.name.isascii() and path.name.isdigit():
            found[int(path.name)] = weights
    return found


def _told(kept: dict[int, Path]) -> list[dict[str, Any]]:
    return [{"update": update, "average": weights.name.startswith("ema")} for update, weights in kept.items()]


def _stamp(folder: Path, weights: Path | None = None) -> Stamp | None:
    """When the files of a model were written last; of a checkpoint other weights than the model's."""
    recipe, usual, *words = (_written(folder / name) for name in FILES)
    found = _written(weights) if weights else usual
    return None if recipe is None or found is None else (recipe, found, *words)


def _written(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def tell(folder: Path) -> dict[str, Any]:
    """What a model is, from its recipe, vocabulary and the beginning of its weights file; the weights are not loaded."""
    recipe, weights = config.read(folder / "recipe.toml"), folder / "model.safetensors"
    task: Any = registry.task_of(recipe).build(folder, smallest(recipe))
    return about(task, recipe, count_parameters(weights), weights.stat().st_size)


def about(task: Any, recipe: Recipe, parameters: int, size: int) -> dict[str, Any]:
    """What a model of this recipe is; `task` may be a smaller one of its kind."""
    tokenizer = read_by(task)
    found: dict[str, Any] = {
        "task": recipe.task,
        "kind": recipe.model.kind,
        "title": store.title(recipe),
        "parameters": parameters,
        "megabytes": round(size / 1e6, 1),
        "options": dataclasses.asdict(recipe.model),
        "vocabulary": tokenizer.size,
    }
    if recipe.task == "vectors":
        return found
    found |= {"eos": end_of(task), "max_length": recipe.model.max_length, "map": architecture(shortest_trace(task))}
    if tokenizer_of(task) is not tokenizer:
        found["target_vocabulary"] = tokenizer_of(task).size
    data = recipe.data
    if isinstance(data, PairData):
        found |= {"languages": [data.source, data.target], "both_ways": data.both_ways}
    if isinstance(labels := getattr(task, "labels", None), list):
        found["labels"] = labels
    return found | examples(recipe, tokenizer)


def read_by(task: Any) -> Tokenizer:
    """The vocabulary of what a model reads."""
    return task.source if isinstance(task, Translate) else task.tokenizer


def end_of(task: Any) -> int | None:
    """The token that ends what a model writes."""
    eos = tokenizer_of(task).eos if isinstance(task, Translate | Language) else -1
    return eos if eos >= 0 else None


def count_parameters(path: Path) -> int:
    """How many numbers a safetensors file holds, by its header."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, 100_000_000)))
        return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    except (struct.error, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path} is not a whole safetensors file.") from None


def smallest(recipe: Recipe) -> Recipe:
    """The same architecture with vectors of a few numbers: what it computes is nonsense, what it is made of is not."""
    model = recipe.model
    sizes: dict[str, Any] = {"width": 2 * getattr(model, "heads", 1)}
    sizes |= {name: 2 for name in ("inner", "key_width", "value_width") if getattr(model, name, 0)}
    return dataclasses.replace(recipe, model=dataclasses.replace(model, **sizes))


def shortest_trace(task: Any) -> Trace:
    """A pass over as little as the model can read."""
    learns = task.model.training
    task.model.eval()
    try:
        if task.recipe.task == "translate":
            return task.trace("", task.languages[1], target=[])
        return task.trace("", "") if task.recipe.task == "compare" else task.trace("")
    finally:
        task.model.train(learns)


def architecture(trace: Trace) -> list[dict[str, Any]]:
    """The steps of a pass in the order they are computed, grouped by the part of the model that makes them.

    A block's own tensors, the residual stream, stand at its end, where the last of them is made.
    """
    steps: dict[str, list[str]] = {}
    for name in trace:
        parent = name.rpartition(".")[0] or name
        tensors = steps.pop(parent, []) if describe(name).name.startswith("block.") else steps.get(parent, [])
        steps[parent] = [*tensors, name]
    stacks: dict[str, list[dict[str, Any]]] = {}
    for id, tensors in steps.items():
        first, _, rest = id.partition(".")
        number = rest.partition(".")[0]
        step: dict[str, Any] = {"id": id, "kind": describe(tensors[0]).name.partition(".")[0], "tensors": tensors}
        if number.isdigit():
            step["layer"] = int(number)
        stacks.setdefault(first if first in ("encoder", "decoder") else "output", []).append(step)
    return [{"name": name, "steps": steps} for name, steps in stacks.items()]
