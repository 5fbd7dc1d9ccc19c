"""How much the server does at once, and for how long."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from glassformer.server.refusal import Refusal

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    characters: int = 4000  # of a text
    passage: int = 10_000  # characters of a text that is only cut into pieces
    body: int = 256 * 1024  # bytes of a request
    answer: int = 1_000_000  # bytes of an answer
    requests: int = 8  # that compute something, at a time
    reads: int = 32  # requests for parts of what was computed, at a time
    threads: int = 2  # that compute at a time; each may use all cores
    seconds: float = 20.0  # for one of them
    traces: int = 16  # kept
    memory: int = 512_000_000  # bytes of traces kept; the latest two stay whatever their size, as a pass and its edit
    trace: int = 1_500_000_000  # bytes of one trace
    models: int = 4  # kept
    beam: int = 10
    tokens: int = 200  # to go on by
    words: int = 1000  # spelled at a time
    drawn: int = 20_000  # words on a plane
    mapped: int = 3000  # words of a map that looks at every pair
    maps: int = 8  # kept
    maps_at_once: int = 3  # computed or waiting

    @property
    def elements(self) -> int:
        """Numbers in an answer, of four bytes each."""
        return self.answer // 4


class Gate:
    """Lets so many requests compute at a time and refuses the others at once. A request that takes too long is answered, but
    keeps its place until its thread is done: threads cannot be stopped."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.inside = 0
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="glassformer")

    async def run(self, work: Callable[[], T]) -> T:
        if self.inside >= self.limits.requests:
            sentence = f"The server computes for {self.limits.requests} requests already. Try again in a moment."
            raise Refusal(429, "busy", sentence, limit=self.limits.requests)
        self.inside += 1  # on the event loop alone, so no lock is needed
        loop = asyncio.get_running_loop()
        future = self._pool.submit(work)

        def done(_: "Future[T]") -> None:
            with suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(self._leave)

        future.add_done_callback(done)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self.limits.seconds)
        except TimeoutError:
            future.cancel()  # if it has not begun
            future.add_done_callback(_forget)
            sentence = f"This took longer than {self.limits.seconds:g} s. Shorten the text, or choose a smaller model."
            raise Refusal(503, "timeout", sentence, seconds=self.limits.seconds) from None

    def _leave(self) -> None:
        self.inside -= 1

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _forget(done: "Future[T]") -> None:
    """Nobody waits for its result, nor for its error."""
    if not done.cancelled():
        done.exception()
