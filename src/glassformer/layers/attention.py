"""Attention: a soft look-up of values by how well their keys answer a query.

Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V        ("Attention Is All You Need", equation 1)
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.layers import by_hand
from glassformer.layers.linear import Linear
from glassformer.layers.positions import Rotary
from glassformer.trace import tap, traced


@dataclass(frozen=True)
class KeyValues:
    """The keys (B, K, S, d_k) and values (B, K, S, d_v) that queries look up."""

    k: Tensor
    v: Tensor

    @property
    def length(self) -> int:
        return self.k.size(2)

    def extend(self, new: "KeyValues") -> "KeyValues":
        """These and then the new ones."""
        return KeyValues(torch.cat((self.k, new.k), dim=2), torch.cat((self.v, new.v), dim=2))

    def reorder(self, index: Tensor) -> "KeyValues":
        """Those whose row i is row index[i] of these."""
        return KeyValues(self.k.index_select(0, index), self.v.index_select(0, index))


class Attention(nn.Module):
    """Multi-head attention of `x` to itself, or to `memory` if there is one.

    All heads are one matrix product: W_Q is D × H·d_k. Q comes from `x`; K and V come from `memory` (errors in this are
    common: in the decoder's cross-attention the *queries* are the decoder's). Additive scores are Bahdanau's
    wᵀ tanh(q + k), where q and k are already projected. With fewer key/value heads K than H, each serves H / K query heads.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int = 0,
        d_k: int = 0,
        d_v: int = 0,
        scores: str = "dot",
        rotary: Rotary | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.kv_heads = kv_heads or heads
        self.d_k = d_k or width // heads
        self.d_v = d_v or width // heads
        self.rotary = rotary
        self.q = Linear(width, heads * self.d_k, bias)
        self.k = Linear(width, self.kv_heads * self.d_k, bias)
        self.v = Linear(width, self.kv_heads * self.d_v, bias)
        self.o = Linear(heads * self.d_v, width, bias)
        self.w = nn.Parameter(torch.empty(heads, 1, 1, self.d_k)) if scores == "additive" else None

    def forward(
        self, x: Tensor, memory: Tensor | None = None, *, mask: Tensor | None = None, state: KeyValues | None = None
    ) -> tuple[Tensor, KeyValues]:
        """x (B, T, D), memory (B, S, D), mask broadcastable to (B, H, T, S), True = may look → (B, T, D) and what was looked up.

        With `state`, self-attention adds its keys and values to the earlier ones; cross-attention uses those as they are.
        """
        if by_hand.wanted(x) and self._simple(x if memory is None else memory, state):
            return self._by_hand(x, memory, mask)
        q = _split(self.q(x), self.d_k)  # (B, H, T, d_k)
        if memory is None:
            start = state.length if state else 0
            q = self.rotary(q, start) if self.rotary else q
            new = self._look_up(x, start)
            known = state.extend(new) if state else new
        else:
            known = state or self._look_up(memory, 0)
        z = self._attend(q, known.k, known.v, mask)  # (B, H, T, d_v)
        out = self.o(z.transpose(1, 2).flatten(2))  # (B, T, H·d_v) → (B, T, D)
        return tap(self, "out", out), known

    def _simple(self, memory: Tensor, state: KeyValues | None) -> bool:
        """Whether `by_hand` has a way for this, and a sooner one: plain scores, heads alike, a short text."""
        plain = self.w is None and self.rotary is None and state is None
        return plain and self.d_k == self.d_v and self.heads == self.kv_heads and memory.size(1) <= by_hand.SHORT

    def _by_hand(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> tuple[Tensor, KeyValues]:
        if memory is None:
            made = [by_hand.project(x, (self.q, self.k, self.v))]
        else:
            made = [self.q(x), by_hand.project(memory, (self.k, self.v))]
        _, k, v = by_hand.heads_of(made, self.heads)
        return self.o(by_hand.attend(made, mask, self.heads)), KeyValues(k, v)

    def _look_up(self, memory: Tensor, start: int) -> KeyValues:
        k = _split(self.k(memory), self.d_k)  # (B, K, S, d_k)
        v = _split(self.v(memory), self.d_v)
        return KeyValues(self.rotary(k, start) if self.rotary else k, v)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if self.w is None and not traced():
            return self._fused(q, k, v, mask)
        q, k, v = tap(self, "q", q), tap(self, "k", k), tap(self, "v", v)
        k, v = (x.repeat_interleave(self.heads // self.kv_heads, dim=1) for x in (k, v))  # each query head beside its keys
        scores = tap(self, "scores", self._scores(q, k))  # (B, H, T, S)
        scaled = tap(self, "scaled", scores / math.sqrt(self.d_k) if self.w is None else scores)
        masked = tap(self, "masked", scaled if mask is None else scaled.masked_fill(~mask, -math.inf))
        pattern = tap(self, "pattern", masked.softmax(-1))  # e^−∞ = 0: what is masked gets no weight
        return tap(self, "z", pattern @ v)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """The same by PyTorch's kernel. Query heads that share keys stand one after another in one head of H / K · T queries."""
        group = self.heads // self.kv_heads
        if group == 1:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        length = q.size(2)
        q = q.reshape(q.size(0), self.kv_heads, group * length, self.d_k)
        if mask is not None and mask.size(-2) > 1:
            mask = mask.repeat(*[1] * (mask.dim() - 2), group, 1)
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return z.reshape(z.size(0), self.heads, length, self.d_v)

    def _scores(self, q: Tensor, k: Tensor) -> Tensor:
        if self.w is None:
            return q @ k.transpose(-1, -2)
        return (torch.tanh(q.unsqueeze(3) + k.unsqueeze(2)) * self.w).sum(-1)  # (B, H, T, S, d_k) → (B, H, T, S)


def _split(x: Tensor, size: int) -> Tensor:
    return x.unflatten(-1, (-1, size)).transpose(1, 2)  # (B, T, H·size) → (B, H, T, size)
