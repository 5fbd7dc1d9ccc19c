"""Both cores: each goes its own way through some of the sentences, instead of all cores sharing every small operation."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from threading import RLock
from typing import TypeVar

import torch

from glassformer.layers import blas, products
from glassformer.memory import keep_memory

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def one_core() -> Iterator[None]:
    """Within this block PyTorch and NumPy compute by this thread alone: what a single step computes is too little to be shared,
    but for products with the whole vocabulary (`products.Shared`)."""
    with numpy_alone():
        before, shared = torch.get_num_threads(), products.cores.get()
        try:
            torch.set_num_threads(1)
            products.cores.set(before)
            yield
        finally:
            products.cores.set(shared)
            torch.set_num_threads(before)


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
                self.before = blas.threads()
                blas.set_threads(1)
            self.inside += 1

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                blas.set_threads(*self.before)


_limit = _Limit()


def spread(work: Callable[[T], R], parts: Sequence[T]) -> Iterator[tuple[int, R]]:
    """The results of all parts as they are done, each with its number; as many at a time as PyTorch has threads."""
    threads = min(torch.get_num_threads(), len(parts))
    if len(parts) > 1:
        keep_memory()
    if threads < 2:
        with one_core():
            yield from ((i, work(part)) for i, part in enumerate(parts))
        return
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    with numpy_alone():
        try:
            going = {pool.submit(copy_context().run, work, part): i for i, part in enumerate(parts)}
            while going:
                done, _ = wait(going, return_when=FIRST_COMPLETED)
                for each in done:
                    yield going.pop(each), each.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C nothing new begins
