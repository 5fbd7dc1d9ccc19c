"""x W + b, as fast as the libraries at hand can: for many rows in training, for few in decoding."""

import torch
from torch import Tensor, nn

from glassformer.layers import blas, one_dnn
from glassformer.layers.threads import Shared
from glassformer.processor import mkl_behind

LARGE = 130_000  # weights of a matrix, from which on it pays to have it packed
MOST = 64  # rows, up to which it does


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """x Wᵀ + b, or max(0, ·) of it, for many rows: x (…, K), W (N, K), b (N) → (…, N)."""
    if _elsewhere(x):
        rows, w = x.detach().reshape(x.shape[:-1].numel(), x.size(-1)), weight.detach().t()
        if bias is None:
            y = blas.product(rows, w)
        else:
            y = blas.add_product(rows, w, to=rows.new_empty(len(rows), len(bias)).copy_(bias.detach()))
        y = y.view(*x.shape[:-1], weight.size(0))
    else:
        y = nn.functional.linear(x, weight, bias)
    return y.relu_() if relu else y


def sum_of_products(y: Tensor, x: Tensor) -> Tensor:
    """yᵀ x, for many rows: y (M, N), x (M, K) → (N, K)."""
    return blas.product(y.detach().t(), x.detach()) if _elsewhere(x) else y.t() @ x


def add_products(total: Tensor, y: Tensor, x: Tensor) -> None:
    """Adds yᵀ x to the total (N, K)."""
    if _elsewhere(x):
        blas.add_product(y.detach().t(), x.detach(), to=total)
    else:
        total.addmm_(y.t(), x)


def _elsewhere(x: Tensor) -> bool:
    """Whether not PyTorch is to multiply, since MKL is behind; where it may use more than this core, it is not."""
    return plain(x) and mkl_behind() and torch.get_num_threads() == 1 and blas.there()


def plain(x: Tensor) -> bool:
    """Whether it has the numbers that NumPy and OpenBLAS are asked for here."""
    return x.dtype == torch.float32 and x.device.type == "cpu"


def product(weight: Tensor, bias: Tensor | None = None, *, turned: bool) -> "Product":
    """By a weight (outputs, D). `turned`: kept a second time as (D, outputs), which halves the time of one row."""
    large = turned and weight.numel() >= LARGE and plain(weight) and one_dnn.there()
    return (Packed if large else Product)(weight, bias, turned=turned)


class Product:
    def __init__(self, weight: Tensor, bias: Tensor | None, *, turned: bool) -> None:
        self.bias = bias
        self.w = weight.t().clone(memory_format=torch.contiguous_format) if turned else weight.t()

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.w) if self.bias is None else torch.addmm(self.bias, x, self.w)


class Packed(Product):
    """With a large W.

    `mm` copies W into another order at every call, which takes longer than to multiply five rows. oneDNN is given W in its order
    once, when a few rows first come.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, turned: bool) -> None:
        super().__init__(weight, bias, turned=turned)
        self.few: Shared | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if not 1 < x.size(0) <= MOST:
            return super().__call__(x)
        if self.few is None:
            packed, bias = one_dnn.pack(self.w.detach().t().contiguous()), self.bias
            self.few = Shared(lambda x: one_dnn.multiply(x, packed, bias), torch.set_num_threads, self.w.numel())
        return self.few(x)
