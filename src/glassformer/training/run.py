"""Beginning a run, or going on with one: the folder, its recipe, its lock."""

import dataclasses
import fcntl
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer import config
from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.options import Recipe
from glassformer.store import BUNDLED, find_model
from glassformer.text.datasets import find
from glassformer.training.card import write_card
from glassformer.training.checkpoints import Progress
from glassformer.training.labels import LabelWork, TagWork
from glassformer.training.loop import Stopped, Trainer
from glassformer.training.pairs import PairWork
from glassformer.training.texts import FillWork, LanguageWork
from glassformer.training.words import VectorsWork
from glassformer.training.work import Find, Report, Work
from glassformer.weights import load_part

MAY_CHANGE = {"training.updates", "training.patience", "training.log_every", "training.threads"}  # when going on

LOCK = ".lock"  # also the mark of a folder that is a run


WORK: dict[str, Callable[..., Work]] = {
    "translate": PairWork,
    "language": LanguageWork,
    "fill": FillWork,
    "classify": LabelWork,
    "compare": LabelWork,
    "tag": TagWork,
    "vectors": VectorsWork,
}


def start(recipe_path: Path, out: Path | None, overrides: list[str], data_dir: Path | None, model: str | None = None) -> None:
    """`glassformer train`: a new run from a recipe, or an old one from where it stopped. `model` is one to begin with."""
    if recipe_path.is_dir():
        if out not in (None, recipe_path):
            raise UserError(f"{recipe_path} is a run folder; going on with it needs no --out.")
        if not (recipe_path / "recipe.toml").exists():
            raise UserError(f"{recipe_path} is not a run folder: it has no recipe.toml. Begin a run with a recipe file.")
        run, recipe_path = recipe_path, recipe_path / "recipe.toml"
    else:
        run = out or Path("runs") / recipe_path.stem
    recipe = _begun_with(model, recipe_path, overrides) if model else config.read(recipe_path, overrides)
    near = recipe_path.resolve().parent
    with going_on_with(f"glassformer train {run}"):
        train_in(run, anchored(recipe, near), lambda name: find(name, data_dir, near))
    command = {"language": "generate", "vectors": "vectors neighbours"}.get(recipe.task, recipe.task)
    say(f"Try it: glassformer {command} --model {run} …    or: glassformer evaluate --model {run}")


def train_in(run: Path, recipe: Recipe, find: Find, *, alone: bool = True) -> tuple[Work, Progress]:
    """Trains in a run folder, from the beginning or from where it stopped; leaves the model and its card there. A run that is
    not `alone` is one of a race, and not to be trained longer than the others."""
    _check_folder(run, recipe)
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The run folder {run} cannot be made: {error.strerror}.") from None
    with _lock(run):
        write_text(run / "recipe.toml", config.to_toml(recipe))
        work = prepare_run(recipe, run, find, say)
        trainer = Trainer(work, run, alone)
        progress = trainer.train()
        write_card(run, work, progress)
        if trainer.signal:  # it came when there was nothing left to stop here, but perhaps in what called this
            raise Stopped(trainer.signal, progress.update)
    return work, progress


@contextmanager
def going_on_with(command: str) -> Iterator[None]:
    """Stopped by a signal, a training has been saved: says with which command it goes on, and leaves."""
    try:
        yield
    except Stopped as stop:
        say(f"Saved at update {stop.update:,}. Go on with: {command}")
        sys.exit(128 + stop.number)
    except KeyboardInterrupt:  # before the first update, or a second time
        say(f"\nStopped at once. Go on with: {command}")
        sys.exit(130)


def prepare_run(recipe: Recipe, run: Path, find: Find, report: Report) -> Work:
    """The task with its data; its weights are fresh, or those of the model it starts from."""
    if not recipe.data.train:
        raise UserError(f"The recipe has no data.train: give {NEEDED[recipe.task]}.")
    begun = any((run / "checkpoints").glob("[0-9]*"))  # a run that goes on has its weights, and may have outlived that model
    folder = find_model(recipe.start) if recipe.start and not begun else None
    work = WORK[recipe.task](recipe, run, find, report, folder)
    if folder:
        taken, fresh = load_part(
            work.task.model, folder / "model.safetensors", same=config.read(folder / "recipe.toml").task == recipe.task == "fill"
        )
        report(f"Begins with {taken:,} tensors of {recipe.start}; fresh: {', '.join(fresh) or 'none'}.")
    return work


NEEDED = {
    "translate": "a TSV, a JSONL, two aligned files as train.{en,de}, or synthetic:reverse",
    "language": "a .txt, or a TSV, CSV or JSONL with data.columns",
    "fill": "a .txt, or a TSV, CSV or JSONL with data.columns",
    "classify": "a TSV, CSV or JSONL of texts and labels with data.columns",
    "compare": "a TSV, CSV or JSONL of two texts and a label with data.columns",
    "tag": "a .conllu, or a file of words and labels in columns",
    "vectors": "a .txt, or a TSV, CSV or JSONL with data.columns",
}


def _begun_with(model: str, recipe_path: Path, overrides: list[str]) -> Recipe:
    """The recipe with the vocabulary and the sizes of the model it starts from; what else it says of them must agree."""
    folder = find_model(model)
    other = config.read(folder / "recipe.toml")
    start = folder.name if folder.parent == BUNDLED else str(folder.resolve())  # found again from wherever the run goes on
    return config.read(recipe_path, [*overrides, f"start={json.dumps(start, ensure_ascii=False)}"], base=other)


def anchored(recipe: Recipe, near: Path) -> Recipe:
    """The recipe with whole paths for corpora that lie near it, so that the run finds them from wherever it goes on."""

    def whole(specs: tuple[str, ...]) -> tuple[str, ...]:
        # of two aligned files the first; of a .json without its #KEY
        first = [re.sub(r"\{([^{},]*),[^{}]*\}|(?<=\.json)#.*|(?<=\.json\.gz)#.*", r"\1", spec) for spec in specs]
        return tuple(str(near / spec) if (near / name).is_file() else spec for spec, name in zip(specs, first, strict=True))

    data = recipe.data
    data = dataclasses.replace(data, train=whole(data.train), dev=whole(data.dev), test=whole(data.test))
    return dataclasses.replace(recipe, data=data)


def _check_folder(run: Path, recipe: Recipe) -> None:
    """A folder that is not a run is left alone; a run goes on with its own recipe only."""
    if run.exists() and not run.is_dir():
        raise UserError(f"{run} is a file; a run needs a folder.")
    saved = run / "recipe.toml"
    if not (run / LOCK).exists() and run.is_dir() and any(run.iterdir()):
        raise UserError(f"{run} is not a run folder, and not empty; choose another --out.")
    if not saved.exists():
        return
    if (run / "model.safetensors").exists() and not any((run / "checkpoints").glob("*")):
        raise UserError(f"{run} holds a finished model without checkpoints to go on from; train anew with another --out.")
    if not (run / "prepared" / "train.json").exists():
        return  # nothing came of it yet, for instance because its corpus was not found: the recipe may be mended
    changed = sorted(differences(config.read(saved), recipe) - MAY_CHANGE)
    if changed:
        raise UserError(
            f"{run} was begun with another recipe; these differ: {', '.join(changed)}.\n"
            f"Go on with its own recipe: glassformer train {run}\nOr train the new one elsewhere: --out {run}-2"
        )


def differences(old: Recipe, new: Recipe) -> set[str]:
    """The keys in which two recipes differ."""

    def flat(recipe: Recipe) -> dict[str, object]:
        tree = dataclasses.asdict(recipe)
        return {
            f"{section}.{key}" if key else section: value
            for section, entry in tree.items()
            for key, value in (entry.items() if isinstance(entry, dict) else [("", entry)])
        }

    before, after = flat(old), flat(new)
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


@contextmanager
def _lock(run: Path) -> Iterator[None]:
    """Two trainings in one folder would undo each other's checkpoints. The system frees the lock however a run ends."""
    with open(run / LOCK, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"Another training is at work in {run}. Wait for it, or choose another --out.") from None
        file.write(str(os.getpid()))
        file.flush()
        yield


def say(text: str) -> None:
    print(text, file=sys.stderr)
