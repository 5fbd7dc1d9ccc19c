"""A film of a training: at some of its updates, what the model answered to a few probes and where each of its heads looked.

A film is one or more safetensors files. Their tensors are attention patterns (H, T, S) as bytes, round(255 · p), under
`UPDATE/PROBE/decoder.1.cross`; their headers hold in JSON what a probe is (`probes`), what was answered (`frames`) and, in the
film of a bundled model, the course of the training (`curve`). A run has a file for each frame in `film/`, a bundled model one
`film.safetensors`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from glassformer.errors import UserError
from glassformer.weights import write_tensors

FORMAT = "glassformer film 1"
STEPS = 255  # a weight from 0 to 1 is kept in steps of 1/255
FRAMES, PACKED = "film", "film.safetensors"  # the frames of a run, and the film of a bundled model
LARGEST = 4_000_000  # bytes of a film that a bundled model keeps
POINTS = 400  # lines of the log that are kept with it, of each kind
KINDS = 6  # of lines in a log; one with more is no log of ours
HEADER = 32_000_000  # bytes of a header that is read


def in_bytes(pattern: Tensor) -> Tensor:
    """Weights in [0, 1] → 0 … 255; off by 1/510 at most."""
    return (pattern * STEPS).round().clamp(0, STEPS).to(torch.uint8)


@dataclass(frozen=True)
class Film:
    """What a film's headers say; its patterns are read when they are asked for."""

    task: str
    weights: str  # "plain", or "ema": the moving average
    probes: list[dict[str, Any]]  # text, tokens, and the shape of each pattern
    frames: list[dict[str, Any]]  # in the order of their updates
    curve: list[dict[str, Any]] | None  # lines of the log, if the film carries them
    files: list[Path]

    def patterns(self, probe: int, first: int, count: int) -> bytes:
        """The patterns of one probe in some frames, one after another, each in the order of its shapes."""
        names = self.probes[probe]["patterns"]
        out = []
        for frame in self.frames[first : first + count]:
            with safe_open(frame["file"], framework="pt") as file:
                for name, shape in names.items():
                    x = file.get_tensor(f"{frame['update']:08d}/{probe}/{name}")
                    if x.dtype != torch.uint8 or list(x.shape) != shape:
                        raise UserError(f"{frame['file']} is damaged: {name} is not {shape} bytes. Copy or record it again.")
                    out.append(x.numpy().tobytes())
        return b"".join(out)


def frame_path(folder: Path, update: int) -> Path:
    return folder / FRAMES / f"{update:08d}.safetensors"


def recorded(folder: Path) -> list[int]:
    """The updates of a run's frames."""
    return sorted(int(path.stem) for path in (folder / FRAMES).glob("*.safetensors") if path.stem.isdigit())


def files_of(folder: Path) -> list[Path]:
    if (folder / PACKED).is_file():
        return [folder / PACKED]
    return [frame_path(folder, update) for update in recorded(folder)]


def write(
    path: Path,
    about: Mapping[str, Any],
    frames: Sequence[Mapping[str, Any]],
    patterns: Mapping[str, Tensor],
    curve: Sequence[Mapping[str, Any]] | None = None,
) -> None:
    """`about` is the task, the weights and the probes."""
    words = {"format": FORMAT, **about, "frames": list(frames), **({} if curve is None else {"curve": list(curve)})}
    path.parent.mkdir(exist_ok=True)
    written = json.dumps(_finite(words), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    write_tensors(path, patterns, about={"film": written})  # one key: several would lie in the file in any order


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON has no word for: a model may diverge."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(folder: Path) -> Film | None:
    """The film in a folder, if there is one."""
    files = files_of(folder)
    films = [(path, _header(path)) for path in files]
    if not films:
        return None
    first = films[0][1]
    for path, film in films:
        if any(film[key] != first[key] for key in ("task", "weights", "probes")):
            raise UserError(f"{path} belongs to another film than {files[0]}: their probes differ. Remove the one that is wrong.")
    frames = [{**frame, "file": path} for path, film in films for frame in film["frames"]]
    frames.sort(key=lambda frame: frame["update"])
    return Film(first["task"], first["weights"], first["probes"], frames, first.get("curve"), files)


def _header(path: Path) -> dict[str, Any]:
    damaged = UserError(f"{path} is not a whole film: it was cut short or changed. Copy it again, or train again.")
    try:
        with path.open("rb") as raw:
            if int.from_bytes(raw.read(8), "little") > HEADER:
                raise damaged
        with safe_open(path, framework="pt") as file:
            film = json.loads((file.metadata() or {})["film"])
    except (OSError, SafetensorError, ValueError, KeyError, RecursionError):
        raise damaged from None
    if (
        not isinstance(film, dict)
        or film.get("format") != FORMAT
        or not all(isinstance(film.get(key), list) for key in ("probes", "frames"))
    ):
        raise damaged
    if not all(isinstance(frame, dict) and type(frame.get("update")) is int for frame in film["frames"]):
        raise damaged
    if not all(isinstance(film.get(key), str) for key in ("task", "weights")):
        raise damaged
    return film


def pack(run: Path, folder: Path, largest: int = LARGEST) -> int | None:
    """A run's film as one file in another folder, with the course of the training; its size, or None if there is none or it is
    larger than allowed, and so was left out."""
    film = read(run)
    if film is None:
        return None
    patterns: dict[str, Tensor] = {}
    for path in film.files:
        with safe_open(path, framework="pt") as file:
            patterns |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    frames = [{key: value for key, value in frame.items() if key != "file"} for frame in film.frames]
    about = {"task": film.task, "weights": film.weights, "probes": film.probes}
    log = run / "log.jsonl"
    curve = film.curve or (log_lines(log)[0] if log.is_file() else [])
    write(folder / PACKED, about, frames, patterns, thinned(curve, POINTS))
    size = (folder / PACKED).stat().st_size
    if size > largest:
        (folder / PACKED).unlink()
        return None
    return size


def log_lines(path: Path, largest: int = 64_000_000) -> tuple[list[dict[str, Any]], list[int]]:
    """The entries of a log, and the numbers of the lines that are none. A last line that is still being written is not counted,
    nor read, and of a very long log only the beginning is."""
    with path.open("rb") as file:
        text = file.read(largest)
    *lines, _ = text.split(b"\n")
    entries, broken = [], []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if isinstance(entry, dict) and _counts(entry.get("update")):
            entries.append({key: value for key, value in entry.items() if _counts(value)})
        elif line.strip():
            broken.append(number)
    return entries, broken


def _counts(x: object) -> bool:
    """Whether it is a number that can be drawn."""
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < 1e30  # neither nan nor infinite


def thinned(entries: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many entries of each kind (a line of the loss, a validation), evenly chosen; the last of each stays. None is
    averaged: every entry is one of the log's."""
    kinds: dict[tuple[str, ...], list[int]] = {}
    for i, entry in enumerate(entries):
        kinds.setdefault(tuple(sorted(entry)), []).append(i)
    groups = list(kinds.values()) if len(kinds) <= KINDS else [list(range(len(entries)))]
    kept = sorted(i for places in groups for i in places[::-1][:: -(-len(places) // most)])
    return [entries[i] for i in kept]
