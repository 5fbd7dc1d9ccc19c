"""Products and attention with gradients written out, for training: PyTorch's numbers but for rounding, sooner.

Large products are OpenBLAS's where MKL is behind it. Attention of short texts is thousands of tiny products, which
cost PyTorch twice what they cost NumPy, and one product by [W_Q W_K W_V] costs less than three. Modules go this way where it is
switched on; everywhere else they have PyTorch's own gradients.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from glassformer.layers.products import multiply, plain, sum_of_products
from glassformer.trace import traced

SHORT = 64  # places that a text may look at; PyTorch's kernel is as fast with more, and keeps no pattern

_on: ContextVar[bool] = ContextVar("by hand", default=False)


@contextmanager
def switched_on() -> Iterator[None]:
    """What this thread computes within this block has the gradients of this file."""
    before = _on.set(True)
    try:
        yield
    finally:
        _on.reset(before)


def wanted(x: Tensor) -> bool:
    """Whether x goes this way."""
    return _on.get() and plain(x) and not traced()


# -- products


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
    """`multiply`, with a gradient."""
    found: Tensor = _Linear.apply(x, weight, bias, relu)
    return found


class _Linear(torch.autograd.Function):
    """y = f(x Wᵀ + b):  dz = dy ⊙ f′,  dx = dz W,  dW = dzᵀ x,  db = Σ dz, for f the identity or max(0, ·)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        y = multiply(x, weight, bias, relu=relu)
        ctx.save_for_backward(x, weight, y if relu else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        dz = dy if y is None else torch.ops.aten.threshold_backward(dy, y, 0)
        dx = multiply(dz, weight.t()) if ctx.needs_input_grad[0] else None
        return dx, *_of_weights(dz, x, ctx.needs_input_grad[1:3]), None


def _of_weights(dz: Tensor, x: Tensor, needed: tuple[bool, ...]) -> tuple[Tensor | None, Tensor | None]:
    """dW and db, where they are needed."""
    dz, x = dz.reshape(-1, dz.size(-1)), x.reshape(-1, x.size(-1))
    return sum_of_products(dz, x) if needed[0] else None, _sum(dz) if needed[1] else None


def _sum(rows: Tensor) -> Tensor:
    """Σ of rows (M, N) → (N), as a product, which goes through wide rows in less time than a sum does."""
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.ones(len(rows), np.float32).dot(rows.numpy()))


# -- what dropout leaves


def add_kept(x: Tensor, out: Tensor, kept: Tensor) -> Tensor:
    """x + out ⊙ kept in one go, with a gradient but for what is kept."""
    found: Tensor = _AddKept.apply(x, out, kept)
    return found


class _AddKept(torch.autograd.Function):
    """y = x + out ⊙ kept:  dx = dy,  dout = dy ⊙ kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor, kept: Tensor) -> Tensor:
        ctx.save_for_backward(kept)
        return torch.addcmul(x, out, kept)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        return dy, dy * kept, None


# -- attention


def project(x: Tensor, projections: Sequence[nn.Linear]) -> Tensor:
    """By all at once: x (B, T, D) → [x W₁ᵀ + b₁, x W₂ᵀ + b₂, …] side by side. All have a bias or none has."""
    weight = torch.cat(tuple(each.weight for each in projections))
    biases = tuple(each.bias for each in projections if each.bias is not None)
    assert len(biases) in (0, len(projections))
    return linear(x, weight, torch.cat(biases) if biases else None)


def attend(made: Sequence[Tensor], mask: Tensor | None, heads: int) -> Tensor:
    """softmax(Q Kᵀ / √d_k) V → (B, T, H · d_k), all heads side by side, as in what is `made`: one tensor of q, k and v, or one of
    q and one of k and v. Whatever the mask hides, every query has a key left."""
    found: Tensor = _Attention.apply(mask, heads, *made)
    return found


class _Attention(torch.autograd.Function):
    """P = softmax(S), S = Q Kᵀ / √d_k, z = P V:

    dV = Pᵀ dz,  dP = dz Vᵀ,  dS = P ⊙ (dP − Σ P ⊙ dP),  dQ = dS K / √d_k,  dK = dSᵀ Q / √d_k
    """

    @staticmethod
    def forward(ctx: Any, mask: Tensor | None, heads: int, *made: Tensor) -> Tensor:
        q, k, v = heads_of(made, heads)
        s = _times(q, k.transpose(-1, -2)).mul_(q.size(-1) ** -0.5)
        if mask is not None:
            s.masked_fill_(~mask, -math.inf)
        p = torch.softmax(s, -1, out=s)
        z = q.new_empty(q.size(0), q.size(2), heads * q.size(3))
        _times(p, v, out=_split(z, 1, heads)[0])
        ctx.heads = heads
        ctx.save_for_backward(p, *made)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        p, *made = ctx.saved_tensors
        q, k, v = heads_of(made, ctx.heads)
        gradients = [torch.empty_like(y) for y in made]  # side by side too
        dq, dk, dv = heads_of(gradients, ctx.heads)
        dz = _split(dz, 1, ctx.heads)[0]
        _times(p.transpose(-1, -2), dz, out=dv)
        dp = _times(dz, v.transpose(-1, -2))
        ds = torch._softmax_backward_data(dp, p, -1, p.dtype).mul_(q.size(-1) ** -0.5)
        _times(ds, k, out=dq)
        _times(ds.transpose(-1, -2), q, out=dk)
        return None, None, *gradients


def heads_of(made: Sequence[Tensor], heads: int) -> tuple[Tensor, ...]:
    """q, k and v (B, H, T, d_k), in the same memory."""
    counts = (3,) if len(made) == 1 else (1, 2)
    return tuple(part for y, count in zip(made, counts, strict=True) for part in _split(y, count, heads))


def _split(y: Tensor, count: int, heads: int) -> tuple[Tensor, ...]:
    """(B, T, count · H · d_k) → `count` of (B, H, T, d_k)."""
    return y.unflatten(-1, (count, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


def _times(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """a · b for each text and head, by NumPy; numbers that are not finite are the trainer's to tell of."""
    with np.errstate(all="ignore"):
        found = np.matmul(a.numpy(), b.numpy(), out=None if out is None else out.numpy())
    return torch.from_numpy(found) if out is None else out
