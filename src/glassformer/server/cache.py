"""Traces that were asked for lately, under names that cannot be guessed."""

import re
import secrets
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from glassformer.server.limits import Limits
from glassformer.server.refusal import Refusal
from glassformer.tasks.task import Task
from glassformer.trace import Trace

_NAME = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Kept:
    """A trace, and the model that made it, which explains its numbers even when the folder has gone since. How many models
    stay in memory is for the shelf to say."""

    id: str
    model: str
    made_by: "weakref.ref[Task]"
    trace: Trace
    told: dict[str, Any]  # what the page was told of it

    @property
    def task(self) -> Task:
        found = self.made_by()
        if found is None:
            raise expired(self.id, "The model of this trace is no longer in memory. Trace the text again.")
        return found


class Traces:
    """The least recently used ones leave when there are too many or too large ones."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: OrderedDict[str, tuple[Kept, int]] = OrderedDict()
        self._lock = threading.Lock()

    @staticmethod
    def name() -> str:
        return secrets.token_hex(8)

    def add(self, kept: Kept) -> None:
        with self._lock:
            self._kept[kept.id] = (kept, kept.trace.nbytes)
            while len(self._kept) > 2 and self._too_many():
                self._kept.popitem(last=False)

    def _too_many(self) -> bool:
        return len(self._kept) > self._limits.traces or sum(size for _, size in self._kept.values()) > self._limits.memory

    def get(self, id: str) -> Kept:
        with self._lock:
            if id in self._kept:
                self._kept.move_to_end(id)
                return self._kept[id][0]
        if _NAME.fullmatch(id):
            raise expired(id, "This trace is no longer kept: only the latest are. Trace the text again.")
        raise Refusal(404, "unknown-trace", "There is no such trace. POST /api/trace makes one.")


def expired(id: str, sentence: str) -> Refusal:
    return Refusal(410, "expired", sentence, id=id)
