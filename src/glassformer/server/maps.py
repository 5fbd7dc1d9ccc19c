"""Maps of vectors that take a while: computed one at a time beside the requests, looked at as they come, stopped when asked."""

import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from glassformer.server.limits import Limits
from glassformer.server.refusal import Refusal
from glassformer.tasks.plane import Stage

_NAME = re.compile(r"[0-9a-f]{16}")
Begin = Callable[[], Iterator[Stage]]


@dataclass
class Map:
    """One that is waited for, computed, done, stopped or failed."""

    id: str
    steps: int
    state: str = "waiting"
    stage: Stage | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def told(self) -> dict[str, Any]:
        stage = self.stage
        places = {} if stage is None else dict(zip("xy", rounded(stage.places), strict=True))
        done, divergence = (0, None) if stage is None else (stage.done, stage.divergence)
        return {"id": self.id, "state": self.state, "done": done, "steps": self.steps, "divergence": divergence, **places}


def rounded(places: Any) -> list[list[float]]:
    """The columns of places, with as many digits as a screen can show."""
    most = max(float(places.abs().max()), 1e-9) if len(places) else 1.0
    digits = max(0, 5 - len(str(int(most)))) if most >= 1 else 5
    return [[round(x, digits) for x in column.tolist()] for column in places.double().unbind(1)]


class Maps:
    """The latest ones; the same map is not computed twice while it is kept."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: OrderedDict[Hashable, Map] = OrderedDict()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="glassformer-map")

    def begin(self, key: Hashable, steps: int, begin: Begin) -> Map:
        with self._lock:
            known = self._kept.get(key)
            if known is not None and known.state not in ("stopped", "failed"):
                self._kept.move_to_end(key)
                return known
            under_way = [map for map in self._kept.values() if map.state in ("waiting", "running")]
            if len(under_way) >= self._limits.maps_at_once:
                sentence = f"{len(under_way)} maps are being computed already. Stop one, or wait until it is done."
                raise Refusal(429, "busy", sentence, limit=self._limits.maps_at_once)
            made = self._kept[key] = Map(secrets.token_hex(8), steps)
            self._kept.move_to_end(key)
            for old in [key for key, map in self._kept.items() if map not in under_way and map is not made]:
                if len(self._kept) > self._limits.maps:
                    del self._kept[old]
        self._pool.submit(self._run, made, begin)
        return made

    def _run(self, map: Map, begin: Begin) -> None:
        try:
            map.state = "stopped" if map.stop.is_set() else "running"
            if map.state == "running":
                for stage in begin():
                    map.stage = stage
                    if map.stop.is_set():
                        break
                map.state = "stopped" if map.stop.is_set() else "done"
        except (MemoryError, RuntimeError):
            map.state = "failed"

    def get(self, id: str) -> Map:
        with self._lock:
            found = next((map for map in self._kept.values() if map.id == id), None)
        if found is not None:
            return found
        if _NAME.fullmatch(id):
            raise Refusal(410, "map-expired", "This map is no longer kept: only the latest are. Ask for it again.", id=id)
        raise Refusal(404, "unknown-map", "There is no such map. POST /api/vectors/map makes one.")

    def end(self, id: str) -> Map:
        """Stops it, if it is not done: what it has come to stays."""
        map = self.get(id)
        map.stop.set()
        if map.state == "waiting":
            map.state = "stopped"
        return map

    def close(self) -> None:
        with self._lock:
            for map in self._kept.values():
                map.stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
