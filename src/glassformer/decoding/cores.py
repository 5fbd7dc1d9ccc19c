"""Both cores: each goes its own way through some of the sentences, instead of all cores sharing every small operation."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

import torch

from glassformer.layers.threads import cores, numpy_alone
from glassformer.memory import keep_memory

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def one_core() -> Iterator[None]:
    """Within this block PyTorch and NumPy compute by this thread alone: what a single step computes is too little to be shared,
    but for products with the whole vocabulary (`threads.Shared`)."""
    with numpy_alone():
        before, shared = torch.get_num_threads(), cores.get()
        try:
            torch.set_num_threads(1)
            cores.set(before)
            yield
        finally:
            cores.set(shared)
            torch.set_num_threads(before)


def spread(work: Callable[[T], R], parts: Sequence[T]) -> Iterator[tuple[int, R]]:
    """The results of all parts as they are done, each with its number; as many at a time as PyTorch has threads."""
    count = min(torch.get_num_threads(), len(parts))
    if len(parts) > 1:
        keep_memory()
    if count < 2:
        with one_core():
            yield from ((i, work(part)) for i, part in enumerate(parts))
        return
    pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))
    with numpy_alone():
        try:
            going = {pool.submit(copy_context().run, work, part): i for i, part in enumerate(parts)}
            while going:
                done, _ = wait(going, return_when=FIRST_COMPLETED)
                for each in done:
                    yield going.pop(each), each.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C nothing new begins
