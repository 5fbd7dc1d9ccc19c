"""Models that a notebook holds in memory, beside those in folders."""

import weakref
from collections import deque
from typing import Any

from glassformer.server.limits import Limits
from glassformer.server.shelf import Shelf, about
from glassformer.tasks.task import Task


class Held(Shelf):
    """All that are bundled and trained here, and tasks that were given, each under its name. A folder of the same name is hidden
    while the task is there. The latest few are kept alive; of the others, those that somebody else still holds."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits=limits)
        self._tasks: dict[str, weakref.ref[Task]] = {}
        self._latest: deque[Task] = deque(maxlen=limits.models)

    def hold(self, task: Task) -> str:
        """The id under which the page knows it."""
        if task in self._latest:
            self._latest.remove(task)
        self._latest.append(task)
        living = self._living()
        for id, known in living.items():
            if known is task:
                return id
        id = task.name or task.recipe.task
        while id in living:
            id += "'"
        self._tasks[id] = weakref.ref(task)
        return id

    def _living(self) -> dict[str, Task]:
        found = {id: made() for id, made in self._tasks.items()}
        self._tasks = {id: made for id, made in self._tasks.items() if found[id] is not None}
        return {id: task for id, task in found.items() if task is not None}

    def load(self, id: str) -> Task:
        return self._living().get(id) or super().load(id)

    def list(self) -> dict[str, Any]:
        told, held = super().list(), self._living()
        for id, task in held.items():
            model = {"id": id, **tell(task), "checkpoints": []}
            kind = "vectors" if model["task"] == "vectors" else "models"
            told[kind] = [model, *(each for each in told[kind] if each["id"] != id)]
            told["problems"].pop(id, None)
        return told


def tell(task: Task) -> dict[str, Any]:
    weights = {parameter.data_ptr(): parameter for parameter in task.model.parameters()}.values()  # tied ones count once
    size = sum(each.numel() * each.element_size() for each in weights)
    return about(task, task.recipe, sum(each.numel() for each in weights), size)
