"""Both cores: each goes its own way through some of the sentences, instead of all cores sharing every small operation."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

import torch

from glassformer.layers import products
from glassformer.memory import keep_memory

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def one_core() -> Iterator[None]:
    """Within this block PyTorch computes by this thread alone: what a single step computes is too little to be shared, but for
    the products with the whole vocabulary."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    shared = products.cores.get()
    products.cores.set(before)
    try:
        yield
    finally:
        products.cores.set(shared)
        torch.set_num_threads(before)


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
    try:
        going = {pool.submit(copy_context().run, work, part): i for i, part in enumerate(parts)}
        while going:
            done, _ = wait(going, return_when=FIRST_COMPLETED)
            for each in done:
                yield going.pop(each), each.result()
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C nothing new begins
