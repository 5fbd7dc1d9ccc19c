"""Both cores: each goes its own way through some of the sentences, instead of all cores sharing every small operation."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch

from glassformer.layers.threads import cores, each_its_own, numpy_alone

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
    if count < 2:
        with one_core():
            yield from each_its_own(work, parts, 1)
    else:
        yield from each_its_own(work, parts, count, torch.set_num_threads, 1)
