"""Models that a notebook holds in memory, beside those in folders."""

import weakref
from collections import deque
from itertools import chain, count
from typing import Any

from glassformer.server.limits import Limits
from glassformer.server.refusal import Refusal
from glassformer.server.shelf import Shelf, about
from glassformer.tasks.task import Task


class Held(Shelf):
    """All that are bundled and trained here, and tasks that were given, each under a name that no folder and no other has or had.
    The latest few are kept alive; of the others, those that somebody else still holds."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits=limits)
        self._tasks: dict[str, weakref.ref[Task]] = {}  # also of those that are gone, so that no id ever means another
        self._latest: deque[Task] = deque(maxlen=limits.models)

    def hold(self, task: Task) -> str:
        """The id under which the page knows it."""
        if task in self._latest:
            self._latest.remove(task)
        self._latest.append(task)
        for id, known in self._tasks.items():
            if known() is task:
                return id
        name = task.name or task.recipe.task
        taken = {*self._tasks, *self.folders()}
        id = next(id for id in chain([name], (f"{name} #{n}" for n in count(2))) if id not in taken)
        self._tasks[id] = weakref.ref(task)
        return id

    def load(self, id: str) -> Task:
        if id not in self._tasks:
            return super().load(id)
        task = self._tasks[id]()
        if task is None:
            raise Refusal(410, "model-gone", f"The model {id} is no longer in memory. Run its cell again.", model=id)
        return task

    def list(self) -> dict[str, Any]:
        told = super().list()
        for id, task in [(id, made()) for id, made in self._tasks.items()]:
            if task is None:
                continue
            model = {"id": id, **tell(task), "checkpoints": []}
            kind = "vectors" if model["task"] == "vectors" else "models"
            told[kind].insert(0, model)
        return told


def tell(task: Task) -> dict[str, Any]:
    weights = {parameter.data_ptr(): parameter for parameter in task.model.parameters()}.values()  # tied ones count once
    size = sum(each.numel() * each.element_size() for each in weights)
    return about(task, task.recipe, sum(each.numel() for each in weights), size)
