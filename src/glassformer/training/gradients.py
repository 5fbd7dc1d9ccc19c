"""The gradient of a batch, by all cores: each has a part of the rows and goes its own way through the model.

That keeps two cores busier than sharing every single operation does, since they meet once a batch and not a thousand times.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.decoding.cores import one_core
from glassformer.layers import by_hand
from glassformer.layers.convolution import BatchNorm
from glassformer.layers.dropout import drawing
from glassformer.layers.threads import numpy_alone
from glassformer.tasks.batch import Rows
from glassformer.tasks.task import Task

SMALL = 500_000_000  # multiplications in the matrices of a pass; below this Python takes longer than they do, and cores wait


class Gradients:
    def __init__(self, task: Task, smoothing: float, threads: int) -> None:
        self.task, self.smoothing = task, smoothing
        self.parameters = [p for p in task.model.parameters() if p.requires_grad]
        products = (module for module in task.model.modules() if not isinstance(module, nn.Embedding))  # rows of those are taken
        self.matrices = sum(p.numel() for module in products for p in module.parameters(recurse=False) if p.dim() > 1)
        shared = any(isinstance(module, BatchNorm) for module in task.model.modules())
        self.threads = 1 if shared else threads  # a batch norm is of the whole batch
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) if self.threads > 1 else None

    def add(self, batch: Any, count: int) -> float:
        """Adds the gradient of the batch's loss ÷ count to the parameters; returns the summed −log p."""
        with numpy_alone():
            found = self._found(batch, count)
        with one_core() if len(found) > 1 else nullcontext():
            for gradient, _ in found:  # in their order, so that the sum is the same every time
                for parameter, g in zip(self.parameters, gradient, strict=True):
                    if g is not None:
                        parameter.grad = g if parameter.grad is None else parameter.grad.add_(g)
        return sum(nll for _, nll in found)

    def _found(self, batch: Any, count: int) -> list[tuple[tuple[Tensor | None, ...], float]]:
        if self._pool is None or not self.parted(batch):
            return [self._of(batch, count, None)]
        parts = batch.split(self.threads)
        seeds = torch.randint(1 << 62, (len(parts),)).tolist()  # drawn here, so that they do not depend on who is faster
        return list(self._pool.map(self._of, parts, [count] * len(parts), seeds))

    def parted(self, batch: Any) -> bool:
        """Whether each core has its own part of such a batch."""
        return self._pool is not None and isinstance(batch, Rows) and batch.read.numel() * self.matrices >= SMALL

    def _of(self, batch: Any, count: int, seed: int | None) -> tuple[tuple[Tensor | None, ...], float]:
        if seed is not None:
            with drawing(seed):
                return self._of(batch, count, None)
        with by_hand.switched_on():
            trained, plain = self.task.loss(batch, self.smoothing)
        return torch.autograd.grad(trained / count, self.parameters, allow_unused=True), plain.item()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
