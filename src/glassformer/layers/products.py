"""x W + b for few rows x (B, D), as fast as PyTorch can."""

from collections.abc import Callable
from contextvars import ContextVar

import torch
from torch import Tensor

LARGE = 130_000  # weights of a matrix, from which on it pays to have it packed
FEW = 64  # rows, up to which it does

Product = Callable[[Tensor], Tensor]
cores: ContextVar[int] = ContextVar("cores", default=1)  # that may share a large product, where all else is left to one


def product(weight: Tensor, bias: Tensor | None = None, *, turned: bool) -> Product:
    """By a weight (outputs, D). `turned`: kept a second time as (D, outputs), which halves the time of one row."""
    w = weight.t().contiguous() if turned else weight.t()
    plain: Product = (lambda x: torch.mm(x, w)) if bias is None else (lambda x: torch.addmm(bias, x, w))
    return Packed(weight, bias, plain) if turned and weight.numel() >= LARGE and weight.dtype == torch.float32 else plain


class Packed:
    """With a large W.

    `mm` copies W into another order at every call, which takes longer than to multiply five rows. oneDNN can be given W in its
    order once. PyTorch has that for what `torch.compile` makes, under names of its own; where it has not, all is as without.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, plain: Product) -> None:
        self.weight, self.bias, self.plain = weight, bias, plain
        self.packed: Tensor | None = None
        self.packs = True

    def __call__(self, x: Tensor) -> Tensor:
        rows, threads = x.size(0), cores.get()
        if not 1 < rows <= FEW or not self._packed():
            return self.plain(x)
        if threads == 1:
            return self._multiply(x, self.packed)
        torch.set_num_threads(threads)
        try:
            return self._multiply(x, self.packed)
        finally:
            torch.set_num_threads(1)

    def _multiply(self, x: Tensor, packed: Tensor | None) -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, self.bias, "none", [], "")
        return found

    def _packed(self) -> bool:
        """Whether W is packed; it is when it is first asked for, if this PyTorch and this processor have such a thing."""
        if self.packed is None and self.packs:
            try:
                packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())
                self._multiply(self.weight.new_zeros(2, self.weight.size(1)), packed)
                self.packed = packed
            except (AttributeError, RuntimeError, TypeError):
                self.packs = False
        return self.packs
