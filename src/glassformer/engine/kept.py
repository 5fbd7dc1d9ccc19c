"""Models as CTranslate2 reads them, kept in the user's cache folder so that each is converted once.

An entry is named by a hash of the model's files and of the versions that made it. It lists its files with a hash of each; that
is checked before the entry is believed. Where the folder cannot be written, the model is converted every time.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from glassformer.arrays import read_weights
from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.interop import ctranslate2 as interop
from glassformer.interop.folders import folder_aside
from glassformer.options import Recipe
from glassformer.text.datasets import cache_dir
from glassformer.text.tokenizer import Tokenizer

T = TypeVar("T")

LAYOUT = 2  # of what is written here: another number makes all earlier entries strangers
LIST = "glassformer.json"
OLD = 3600.0  # seconds after which a folder that was left half written is nobody's any more
SHARING = 4  # threads at most that share one text, as CTranslate2 has it by itself


def home() -> Path:
    return cache_dir().parent / "ctranslate2"


def load(folder: Path, recipe: Recipe, words: tuple[Tokenizer, Tokenizer], precision: str, make: Callable[[str], T]) -> T:
    """What `make` makes of the converted model's folder."""
    entry = home() / _name(folder, precision)
    if _whole(entry):
        with suppress(RuntimeError, OSError):  # it went away, or was damaged together with its list
            return _in_passing(make, entry)

    def write(part: Path) -> None:
        source, target = words
        weights = read_weights(folder / "model.safetensors")
        interop.convert(recipe, weights, source.names(), target.names(), part, precision)

    try:
        with folder_aside(entry) as part:
            write(part)
            files = {path.name: _hash(path) for path in part.iterdir()}
            write_text(part / LIST, json.dumps({"model": str(folder.resolve()), "files": files}, indent=2) + "\n")
        _tidy(entry, folder)
        return _in_passing(make, entry)
    except (UserError, OSError):  # no room, no right, or another process was quicker
        with tempfile.TemporaryDirectory(prefix="glassformer-") as passing:
            write(Path(passing))
            return _in_passing(make, Path(passing))


def _in_passing(make: Callable[[str], T], folder: Path) -> T:
    """In a thread that ends with it.

    Loading a model, CTranslate2 takes a team of OpenMP's threads, which stays with the thread that loads. Together with the team
    that computes later they are more than there are cores; then OpenMP's threads no longer wait for each other awake, and two
    cores that share a sentence take twice as long. A thread that has ended has no team.
    """
    with ThreadPoolExecutor(1) as passing:
        return passing.submit(make, str(folder)).result()


def _name(folder: Path, precision: str) -> str:
    about = hashlib.sha256(f"{LAYOUT} {interop.library().__version__} {precision}".encode())
    for path in (folder / "recipe.toml", *sorted(folder.glob("tokenizer*.json")), folder / "model.safetensors"):
        about.update(_hash(path).encode())
    return about.hexdigest()[:32]


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _whole(entry: Path) -> bool:
    try:
        files = json.loads((entry / LIST).read_text(encoding="utf-8"))["files"]
        found = {path.name: _hash(path) for path in entry.iterdir() if path.name != LIST}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return found == files and "model.bin" in found


def _tidy(entry: Path, folder: Path) -> None:
    """Removes the entries of models that are gone or were trained on, and what was left half written."""
    with suppress(OSError):
        for other in entry.parent.iterdir():
            if other.name.startswith("."):
                stale = time.time() - other.stat().st_mtime > OLD
            else:
                model = _model(other)
                stale = other != entry and (model is None or not model.is_dir() or _outdated(other, model, folder))
            if stale:
                shutil.rmtree(other, ignore_errors=True)


def _model(entry: Path) -> Path | None:
    try:
        return Path(json.loads((entry / LIST).read_text(encoding="utf-8"))["model"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _outdated(entry: Path, model: Path, folder: Path) -> bool:
    """Whether an entry is of this folder, but of none of the precisions it has now."""
    return model == folder.resolve() and entry.name not in {_name(folder, precision) for precision in interop.PRECISIONS}


def cores() -> int:
    """How many threads to compute with: as many as there are cores for us, or fewer if OMP_NUM_THREADS says so."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(here, int(asked)) if asked.isdecimal() and int(asked) else here


def share(precision: str) -> int:
    """How many threads are to share one text, in a process where they come one by one, and CTranslate2 loaded for that.

    In eight bits one is the fastest of narrow models. CTranslate2 asks the environment when it is imported; what a person has set
    there stays. On Intel's processors it would take MKL, whose products of few rows two cores do not make faster; oneDNN's, which
    it takes on all others, they do. And where another program uses a core, threads that wait awake for each other for a thousand
    turns lose less by it; for 300,000, as it would be by itself, a sentence took more than ten times as long.
    """
    threads = 1 if precision == "int8" else min(cores(), SHARING)
    if threads > 1 and "ctranslate2" not in sys.modules:
        asked = {"CT2_USE_MKL": "0"} | ({} if "OMP_WAIT_POLICY" in os.environ else {"GOMP_SPINCOUNT": "1000"})
        added = {name: value for name, value in asked.items() if name not in os.environ}
        os.environ.update(added)
        try:
            interop.library()
        finally:
            for name in added:
                del os.environ[name]
    return threads
