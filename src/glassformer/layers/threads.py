"""How many threads multiply: NumPy's for all it does, and who shares a large product with other cores. No torch is needed."""

import ctypes
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from threading import RLock
from typing import Any, TypeVar

import numpy  # noqa: F401 (brings the library it multiplies with)
from threadpoolctl import ThreadpoolController

from glassformer.memory import keep_memory

T = TypeVar("T")
R = TypeVar("R")
SHARED = 500_000  # weights, from which on a row is worth sharing
LATE = (1.5e-3, 5e-10, 5e-11)  # seconds, for each weight, for each of its rows: who takes longer has waited for a busy core
MOST_CORES = 4  # that share one
ALONE = (16, 1024)  # products after that which are not shared: the fewest, the most

cores: ContextVar[int] = ContextVar("cores", default=1)  # that may share a large product, where all else is left to one


@cache
def libraries() -> list[Any]:
    """What NumPy multiplies with, as threadpoolctl knows it."""
    found = list(ThreadpoolController().select(user_api="blas").lib_controllers)
    own = [library for library in found if "numpy" in library.filepath]  # PyTorch may have brought another
    return own or found


def threads() -> list[int]:
    """How many NumPy multiplies with, of each library."""
    return [library.get_num_threads() for library in libraries()]


def set_threads(*counts: int) -> None:
    """Sets them, one number for each library or one for all, in the whole process."""
    for setter, count in zip(_setters(), itertools.cycle(counts), strict=False):
        setter(count)


@cache
def _setters() -> list[Callable[[int], Any]]:
    """OpenBLAS's own where its threads are its own: threadpoolctl takes ten times as long to ask it, and newer ones hear nobody
    but the thread that came first."""
    return [_own_setter(library) or library.set_num_threads for library in libraries()]


def _own_setter(library: Any) -> Callable[[int], Any] | None:
    if library.internal_api != "openblas" or library.threading_layer != "pthreads":
        return None
    names = (f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "_64", ""))
    return next((found for name in names if (found := getattr(ctypes.CDLL(library.filepath), name, None))), None)


@contextmanager
def numpy_alone() -> Iterator[None]:
    """Within this block NumPy's products take one thread, unless somebody asks for more. The setting is the process's: the first
    that comes lowers it, the last that goes brings it back."""
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


class _Limit:
    def __init__(self) -> None:
        self.lock, self.inside = RLock(), 0
        self.before: list[int] = []

    def enter(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.before = threads()
                set_threads(1)
            self.inside += 1

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                set_threads(*self.before)


_limit = _Limit()


def each_its_own(
    work: Callable[[T], R], parts: Sequence[T], count: int, begin: Callable[..., object] | None = None, *told: Any
) -> Iterator[tuple[int, R]]:
    """The results of all parts as they are done, each with its number, by so many threads, each of which begins so. NumPy's
    products take one each."""
    if len(parts) > 1:
        keep_memory()
    with numpy_alone():
        if count < 2 or len(parts) < 2:
            yield from ((i, work(part)) for i, part in enumerate(parts))
            return
        pool = ThreadPoolExecutor(count, initializer=begin, initargs=told)
        try:
            going = {pool.submit(copy_context().run, work, part): i for i, part in enumerate(parts)}
            while going:
                done, _ = wait(going, return_when=FIRST_COMPLETED)
                for each in done:
                    yield going.pop(each), each.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C nothing new begins


class Shared:
    """Multiplication of a few rows by a large matrix, shared by up to MOST_CORES cores: on two it takes half the time while they
    have nothing else to do. Rows are a tensor's, or an array's.

    A product that comes late has waited for a core that is busy with something else. Then one core multiplies alone for a while:
    twice as long each time, and half as long after each product that came in time.
    """

    def __init__(self, multiply: Callable[[Any], Any], set_threads: Callable[[int], None], weights: int) -> None:
        self.multiply, self.set_threads, self.weights = multiply, set_threads, weights
        self.alone, self.next = 0, ALONE[0]

    def __call__(self, x: Any) -> Any:
        threads = min(cores.get(), MOST_CORES)
        if threads == 1 or self.alone:
            self.alone = max(0, self.alone - 1)
            return self.multiply(x)
        began = time.perf_counter()
        self.set_threads(threads)
        try:
            return self.multiply(x)
        finally:
            self.set_threads(1)
            first, weight, row = LATE
            if time.perf_counter() - began > first + self.weights * (weight + len(x) * row):
                self.alone, self.next = self.next, min(2 * self.next, ALONE[1])
            else:
                self.next = max(self.next // 2, ALONE[0])
