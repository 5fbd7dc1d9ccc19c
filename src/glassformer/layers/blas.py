"""Products of matrices by the library that NumPy brings (OpenBLAS), which can also add them to what is there already."""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from glassformer.layers.threads import libraries

_ROWS, _AS_IS, _TURNED = 101, 111, 112  # cblas.h: rows lie one after another; a matrix is taken as it is, or turned


def add_product(a: Tensor, b: Tensor, to: Tensor) -> Tensor:
    """to += a b, and returns it: a (M, K), b (K, N), to (M, N) with its rows one after another. Without a gradient."""
    return _multiply(a, b, to, 1.0)


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b, without a gradient."""
    return _multiply(a, b, a.new_empty(a.size(0), b.size(1)), 0.0)


def there() -> bool:
    return _sgemm() is not None


def _multiply(a: Tensor, b: Tensor, c: Tensor, kept: float) -> Tensor:
    """c ← a b + kept · c."""
    sgemm, (m, n), k = _sgemm(), c.shape, a.size(1)
    assert sgemm is not None and a.shape == (m, k) and b.shape == (k, n)
    assert all(x.dtype == torch.float32 and x.device.type == "cpu" for x in (a, b, c)) and c.is_contiguous()
    (a, how_a, step_a), (b, how_b, step_b) = _laid(a), _laid(b)
    sgemm(_ROWS, how_a, how_b, m, n, k, 1.0, a.data_ptr(), step_a, b.data_ptr(), step_b, kept, c.data_ptr(), max(n, 1))
    return c


def _laid(x: Tensor) -> tuple[Tensor, int, int]:
    """A matrix whose rows or columns lie one after another, which of them, and how many numbers each has."""
    if not x.is_contiguous() and x.t().is_contiguous():
        return x, _TURNED, max(x.size(0), 1)
    return x.contiguous(), _AS_IS, max(x.size(1), 1)


@cache
def _sgemm() -> Callable[..., None] | None:
    """cblas_sgemm of NumPy's OpenBLAS, under whichever of its names; None where NumPy multiplies with something else."""
    wide, short, number, place = ctypes.c_int64, ctypes.c_int, ctypes.c_float, ctypes.c_void_p
    for library in (each for each in libraries() if each.internal_api == "openblas"):
        for name, size in (("scipy_cblas_sgemm64_", wide), ("cblas_sgemm64_", wide), ("cblas_sgemm", short)):
            found: Any = getattr(ctypes.CDLL(library.filepath), name, None)
            if found is not None:
                found.argtypes = [short] * 3 + [size] * 3 + [number] + [place, size] * 2 + [number, place, size]
                found.restype = None
                return found
    return None
