"""What the training loop asks of a task and its data, and which task brings what."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.tasks.task import Task
from glassformer.text.batches import Place

Find = Callable[[str], Path]
Report = Callable[[str], None]


@dataclass(frozen=True)
class Validation:
    entry: dict[str, Any]  # what the log says
    score: float  # what decides which checkpoint is the best: larger is better
    loss: float  # decides between equal scores


class Work(ABC):
    """A task with fresh weights, its training data and its dev data."""

    task: Task
    has_dev: bool
    data: str  # a line about the training data, for the card

    @abstractmethod
    def batches(self, place: Place) -> Iterator[tuple[Any, Place]]:
        """Batches for ever, from a place in the data on, each with the place after it."""

    @abstractmethod
    def validate(self) -> Validation:
        """How good the model is on the dev data."""


def once(prepared: Path) -> bool:
    """Whether the corpus in this folder is still to be prepared; what a run that was killed meanwhile left there is removed."""
    if (prepared / "train.json").exists():
        return False
    prepared.mkdir(parents=True, exist_ok=True)
    for file in prepared.iterdir():
        file.unlink()
    return True
