"""Taking turns: all that are compared do the same work one after another, round after round, so that whatever else the machine
does meets all alike. The order is drawn anew each time; the first round warms up and is not counted."""

import json
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

OURS = "glassformer"
BREATH = 0.02  # seconds between turns, in which waiting threads of the one before fall asleep
Turn = Callable[[], float]  # does its work once, or the next slice of it, and says how much it was: tokens
Build = Callable[[Path], Turn]  # from what was prepared in a folder
Tell = Callable[[str], None]


class Unavailable(Exception):
    """A peer that cannot take part, and why."""


@dataclass(frozen=True)
class Case:
    """One piece of work that several can do."""

    name: str
    unit: str  # of which more a second is better
    prepare: Callable[[Path], dict[str, Any]]  # writes what the sides need into a folder; what is worth knowing about it
    sides: Mapping[str, Build]  # by name, ours first
    check: Callable[[Path], None] = lambda folder: None  # whether all compute the same; else SystemExit
    apart: bool = True  # each in a process of its own: no threads and no allocator settings but those that it makes itself
    environment: Mapping[str, str] = field(default_factory=dict)  # of those processes
    slices: int = 1  # turns that each takes in a round: where all are nearly alike, a slow second should meet all of them


@dataclass
class Result:
    case: str
    unit: str
    about: dict[str, Any]
    speeds: dict[str, list[float]] = field(default_factory=dict)  # one a round
    absent: dict[str, str] = field(default_factory=dict)  # who did not take part, and why
    peak_mb: dict[str, float] = field(default_factory=dict)  # resident, each in a process of its own

    def ratios(self, name: str) -> list[float]:
        """How many times as fast ours was, a round each."""
        return [ours / theirs for ours, theirs in zip(self.speeds[OURS], self.speeds[name], strict=True)]


def build(case: Case, folder: Path, threads: int) -> tuple[dict[str, Turn], dict[str, str]]:
    """Those that can take part, with so many threads of PyTorch each, and why the others cannot."""
    turns: dict[str, Turn] = {}
    absent: dict[str, str] = {}
    with patch.dict(os.environ, case.environment):
        for name, make in case.sides.items():
            try:
                turns[name] = _apart(make, folder, threads) if case.apart else make(folder)
            except (Unavailable, ImportError) as error:
                absent[name] = str(error)
    return turns, absent


def _apart(make: Build, folder: Path, threads: int) -> Turn:
    """A side that works in another process, which ends when nobody holds its turn any more."""
    spawn = multiprocessing.get_context("spawn")
    pipe, theirs = spawn.Pipe()
    spawn.Process(target=_serve, args=(theirs, make, folder, threads), daemon=True).start()
    theirs.close()

    def heard() -> float:
        answer = pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def turn() -> float:
        pipe.send(True)
        return heard()

    heard()
    return turn


def _serve(pipe: Connection, make: Build, folder: Path, threads: int) -> None:
    try:
        share(threads)
        turn = make(folder)
        pipe.send(0.0)
        while pipe.recv():
            pipe.send(turn())
    except EOFError:
        return
    except Exception as error:
        pipe.send(error)


def share(threads: int) -> None:
    """PyTorch gets so many threads, in a process that has it: who works without is measured without."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


def about_of(folder: Path) -> dict[str, Any]:
    """What was prepared in a folder."""
    return json.loads((folder / "about.json").read_text(encoding="utf-8"))


def take_turns(turns: Mapping[str, Turn], rounds: int, tell: Tell, slices: int = 1) -> dict[str, list[float]]:
    """What each did a second, in each round."""
    speeds: dict[str, list[float]] = {name: [] for name in turns}
    drawn = random.Random(0)
    for number in range(rounds + 1):
        done, spent = dict.fromkeys(turns, 0.0), dict.fromkeys(turns, 0.0)
        for part in range(slices):
            for name in drawn.sample(list(turns), len(turns)):
                if part == 0:
                    tell(f"round {number} of {rounds}: {name}" if number else f"warming up: {name}")
                time.sleep(BREATH)
                began = time.perf_counter()
                done[name] += turns[name]()
                spent[name] += time.perf_counter() - began
        if number:
            for name, all_speeds in speeds.items():
                all_speeds.append(done[name] / spent[name])
    return speeds


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
