"""Trainings on this machine: the courses of runs, and the films of runs and bundled models.

What a client names is looked up among the folders that are known; it never becomes a path.
"""

import os
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from glassformer import config, film, store
from glassformer.errors import UserError
from glassformer.film import Film
from glassformer.server.limits import Gate
from glassformer.server.refusal import Refusal, bad
from glassformer.server.replies import RAW, RESPONSES, as_json
from glassformer.server.work import Work

MOST = 200  # runs in a list
POINTS = 800  # entries of a log in an answer, of each kind
LOG = 64_000_000  # bytes of a log that are read
KEPT = 8  # films whose headers are kept

RunId = Annotated[str, Query(max_length=400, description="An id of /api/runs.")]
Known = Annotated[
    str, Query(max_length=100, description="The `stamp` of an earlier answer: if nothing changed, no entries are sent.")
]
Number = Annotated[int, Query(ge=0, le=10_000)]
Count = Annotated[int, Query(ge=1, le=10_000)]
_BYTES: dict[int | str, dict[str, Any]] = {**RESPONSES, 200: {"description": "Bytes, 255 · the weight.", "content": {RAW: {}}}}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, strict=True)


class _Token(_Strict):
    text: str
    special: bool


class _Probe(_Strict):
    text: str
    second: str | None = None
    to: str | None = None
    reference: str | None = None
    source: list[_Token]
    target: list[_Token]
    patterns: dict[str, Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=3, max_length=3)]]


class _Word(_Strict):
    text: str
    label: str
    probability: float


class _Candidate(_Strict):
    text: str
    p: float


class _Answer(_Strict):
    text: str | None = None
    score: float | None = None
    log_probs: list[float | None] | None = None
    label: str | None = None
    probability: float | None = None
    labels: dict[str, float] | None = None
    words: list[_Word] | None = None
    candidates: list[list[_Candidate]] | None = None


class _Frame(_Strict):
    update: int = Field(ge=0)
    tokens: int = Field(ge=0)
    loss: float | None = None
    dev: dict[str, float | None] | None = None
    answers: list[_Answer]


class _Told(_Strict):
    """A film as the page gets it, whoever wrote the file."""

    task: str
    weights: str
    probes: list[_Probe]
    frames: list[_Frame]


class Runs:
    def __init__(self, work: Work) -> None:
        self.work = work
        self._films: dict[Path, tuple[str, Film, dict[str, Any]]] = {}

    def folders(self) -> dict[str, Path]:
        """Runs under their path, such as runs/mine, the latest first; then models with a film or a log, under their names."""
        found = {str(folder): folder for folder in sorted(store.runs(), key=_begun, reverse=True)}
        known = {folder.resolve() for folder in found.values()}
        for id, folder in self.work.shelf.folders().items():
            if folder.resolve() not in known and (film.files_of(folder) or (folder / "log.jsonl").is_file()):
                found[id if id not in found else f"{id}'"] = folder
        return found

    def all(self) -> dict[str, Any]:
        folders = self.folders()
        told, problems = [], {}
        for id, folder in list(folders.items())[:MOST]:
            try:
                told.append({"id": id, **_tell(folder)})
            except (UserError, OSError) as error:
                problems[id] = str(error)
        return {"runs": told, "problems": problems, "more": max(0, len(folders) - MOST)}

    def find(self, id: str) -> Path:
        folder = self.folders().get(id)
        if folder is None:
            raise Refusal(404, "unknown-run", f"There is no run {id!r} here, or it is no longer there.", run=id)
        return folder

    def course(self, id: str, known: str) -> dict[str, Any]:
        """The entries of a log, thinned, and which of its lines could not be read."""
        folder = self.find(id)
        path = folder / "log.jsonl"
        try:
            stamp = f"{_stamp(path if path.is_file() else folder / film.PACKED)}-{_state(folder)}"
            about = {"id": id, "stamp": stamp, **_tell(folder)}
            if stamp == known:
                return {**about, "same": True}
            entries, broken = film.log_lines(path, LOG) if path.is_file() else (self.film(id).curve or [], [])
            cut = path.is_file() and path.stat().st_size > LOG
        except (OSError, UserError) as error:
            raise bad("broken-log", f"The log of {id} cannot be read: {error}", run=id) from None
        few = film.thinned(entries, POINTS)
        return {**about, "entries": few, "count": len(entries), "broken": broken[:20], "brokenCount": len(broken), "cut": cut}

    def film(self, id: str) -> Film:
        return self._film(id)[0]

    def told(self, id: str) -> dict[str, Any]:
        return {"id": id, **self._film(id)[1]}

    def _film(self, id: str) -> tuple[Film, dict[str, Any]]:
        folder = self.find(id)
        try:
            stamp = " ".join(_stamp(path) for path in film.files_of(folder))
            if folder in self._films and self._films[folder][0] == stamp:
                return self._films[folder][1:]
            found = film.read(folder)
            if found is None:
                raise bad("no-film", f"{id} has no film: its recipe had no film.probes.", run=id)
            told = _Told.model_validate(vars(found)).model_dump(exclude_none=True)
            for frame in told["frames"]:
                if len(frame["answers"]) != len(found.probes):
                    raise UserError(f"the frame of update {frame['update']} does not answer all probes")
        except (UserError, OSError, ValidationError) as error:
            said = (
                str(error)
                if not isinstance(error, ValidationError)
                else f"{error.errors()[0]['loc']}: {error.errors()[0]['msg']}"
            )
            raise bad("broken-film", f"The film of {id} cannot be read: {said}", run=id) from None
        if len(self._films) >= KEPT:
            self._films.pop(next(iter(self._films)))
        self._films[folder] = (stamp, found, told)
        return found, told

    def patterns(self, id: str, probe: int, first: int, count: int) -> bytes:
        found = self.film(id)
        if probe >= len(found.probes):
            raise bad("out-of-range", f"The film has {len(found.probes)} probes, counted from 0.", size=len(found.probes))
        count = max(0, min(count, len(found.frames) - first))
        size = sum(h * t * s for h, t, s in found.probes[probe]["patterns"].values()) * count
        limit = self.work.limits.answer
        if size > limit:
            sentence = f"These frames are {size:,} bytes; an answer holds {limit:,}. Ask for fewer."
            raise bad("too-large", sentence, bytes=size, limit=limit)
        try:
            return found.patterns(probe, first, count)
        except Exception as error:  # whatever may be in a file that somebody made
            raise bad("broken-film", f"The film of {id} cannot be read: {error}", run=id) from None


def add(app: FastAPI, work: Work, gate: Gate) -> None:
    runs = Runs(work)

    @app.get("/api/runs", tags=["training"])
    async def every() -> Response:
        """The trainings on this machine, the latest first: what each is, how far it is, and whether it has a film."""
        return as_json(await gate.run(runs.all), work.limits)

    @app.get("/api/runs/log", tags=["training"])
    async def log(run: RunId, known: Known = "") -> Response:
        """The course of a training: the entries of its log, evenly chosen if there are many."""
        return as_json(await gate.run(lambda: runs.course(run, known)), work.limits)

    @app.get("/api/runs/film", tags=["training"])
    async def told(run: RunId) -> Response:
        """A film without its pictures: the probes, and what was answered in every frame."""
        return as_json(await gate.run(lambda: runs.told(run)), work.limits)

    @app.get("/api/runs/film/patterns", tags=["training"], responses=_BYTES, response_class=Response)
    async def patterns(run: RunId, probe: Number = 0, first: Number = 0, count: Count = 1) -> Response:
        """Where the heads looked in some frames: for each frame the patterns (H, T, S) in the order that the probe names them."""
        found = await gate.run(lambda: runs.patterns(run, probe, first, count))
        return Response(found, media_type=RAW, headers={"Cache-Control": "no-store"})


def _stamp(path: Path) -> str:
    found = path.stat()
    return f"{found.st_mtime_ns}-{found.st_size}"


def _begun(run: Path) -> float:
    """When it was begun, or gone on with."""
    try:
        return (run / "recipe.toml").stat().st_mtime
    except OSError:
        return 0.0


def _tell(folder: Path) -> dict[str, Any]:
    recipe = config.read(folder / "recipe.toml")
    return {
        "task": recipe.task,
        "kind": recipe.model.kind,
        "title": store.title(recipe),
        "updates": recipe.training.updates,
        "state": _state(folder),
        "film": bool(film.files_of(folder)),
    }


def _state(folder: Path) -> str:
    """bundled, finished, running or stopped. The weights are written after the last line of the log; a run that goes on has later
    lines, and its process lives."""
    if folder.parent == store.BUNDLED:
        return "bundled"
    model, log = folder / "model.safetensors", folder / "log.jsonl"
    if model.is_file() and (not log.is_file() or model.stat().st_mtime_ns >= log.stat().st_mtime_ns):
        return "finished"
    try:
        os.kill(int((folder / ".lock").read_text()), 0)  # asks whether the process is there
    except PermissionError:
        return "running"
    except (OSError, ValueError, OverflowError):
        return "stopped"
    return "running"
