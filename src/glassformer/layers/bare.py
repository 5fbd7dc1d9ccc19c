"""One token more through a block, by its weights alone.

For one position a call of a module costs more than the small products inside it, so steps of decoding do without: what is here
computes, for T = 1, what `Block` computes, from the same weights and with the same state. Nothing can be looked at meanwhile;
whoever looks, or wants gradients, goes through the modules.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.layers.attention import Attention, KeyValues
from glassformer.layers.block import Block, BlockState, Norm
from glassformer.layers.norm import LayerNorm


class BareAttention:
    """Dot-product attention of one query a row."""

    def __init__(self, attention: Attention, *, cross: bool) -> None:
        assert attention.w is None
        self.q, self.k, self.v, self.o = (_weights(each) for each in (attention.q, attention.k, attention.v, attention.o))
        self.cross, self.rotary = cross, attention.rotary
        self.heads, self.kv_heads, self.d_k, self.d_v = attention.heads, attention.kv_heads, attention.d_k, attention.d_v
        self.scale = 1 / math.sqrt(self.d_k)

    def extend(self, x: Tensor, known: KeyValues | None) -> KeyValues:
        """What was known, and the keys and values of one token more, x (B, D)."""
        k = F.linear(x, *self.k).view(-1, self.kv_heads, 1, self.d_k)
        v = F.linear(x, *self.v).view(-1, self.kv_heads, 1, self.d_v)
        if self.rotary is not None:
            k = self.rotary(k, known.length if known else 0)
        return known.extend(KeyValues(k, v)) if known else KeyValues(k, v)

    def look_up(self, memory: Tensor) -> KeyValues:
        """Keys and values of a whole memory (N, S, D), each head's beside each other."""
        k, v = F.linear(memory, *self.k), F.linear(memory, *self.v)
        return KeyValues(*(x.unflatten(-1, (self.kv_heads, -1)).transpose(1, 2).contiguous() for x in (k, v)))

    def look(self, x: Tensor, known: KeyValues, bias: Tensor | None = None) -> Tensor:
        """x (B, D) → (B, D). Row i of `known`, which has N rows, serves the B / N rows of x from i · B / N on.

        `bias` (N, 1, S) is added to the scores: −∞ where nobody may look.
        """
        q = F.linear(x, *self.q)
        if self.rotary is not None and not self.cross:
            q = self.rotary(q.view(-1, self.heads, 1, self.d_k), known.length - 1)
        rows, heads, length, _ = known.k.shape
        group = self.heads // heads
        sharing = len(x) // rows
        q = q.view(rows, sharing, heads, group, self.d_k).transpose(1, 2).reshape(rows * heads, sharing * group, self.d_k)
        k, v = (each.reshape(rows * heads, length, -1) for each in (known.k, known.v))
        scores = torch.bmm(q.mul(self.scale), k.transpose(1, 2))  # (N·K, B/N · H/K, S)
        if bias is not None:
            scores.view(rows, -1, length).add_(bias)
        z = torch.bmm(scores.softmax(-1), v)
        z = z.view(rows, heads, sharing, group, self.d_v).transpose(1, 2).reshape(len(x), self.heads * self.d_v)
        return F.linear(z, *self.o)


class BareBlock:
    """A block without dropout, for one token of each row."""

    def __init__(self, block: Block) -> None:
        self.post = block.post
        self.norm1, self.norm3 = _normalisation(block.norm1), _normalisation(block.norm3)
        self.norm2 = _normalisation(block.norm2) if block.norm2 else None
        self.own = BareAttention(block.self, cross=False)
        self.cross = BareAttention(block.cross, cross=True) if block.cross else None
        self.w1, self.w2 = _weights(block.ffn.w1), _weights(block.ffn.w2)
        self.w3 = _weights(block.ffn.w3) if block.ffn.w3 else None
        self.activation = block.ffn.activation

    def step(self, x: Tensor, memory: Tensor | None, bias: Tensor | None, state: BlockState | None) -> tuple[Tensor, BlockState]:
        """x (B, D), memory (N, S, D) → (B, D), and the state after it."""
        y = x if self.post else self.norm1(x)
        own = self.own.extend(y, state.own if state else None)
        x = x + self.own.look(y, own)
        x = self.norm1(x) if self.post else x
        known = None
        if self.cross is not None and self.norm2 is not None:
            assert memory is not None
            known = state.cross if state and state.cross else self.cross.look_up(memory)
            x = x + self.cross.look(x if self.post else self.norm2(x), known, bias)
            x = self.norm2(x) if self.post else x
        y = x if self.post else self.norm3(x)
        inner = self.activation(F.linear(y, *self.w1))
        if self.w3 is not None:
            inner = inner.mul_(F.linear(y, *self.w3))
        x = x + F.linear(inner, *self.w2)
        return (self.norm3(x) if self.post else x), BlockState(own, known)


def _weights(linear: nn.Linear) -> tuple[Tensor, Tensor | None]:
    return linear.weight, linear.bias


def _normalisation(norm: Norm) -> Callable[[Tensor], Tensor]:
    """`norm` with what it takes gathered once."""
    shape, weight = norm.weight.shape, norm.weight
    if isinstance(norm, LayerNorm):
        return partial(torch.layer_norm, normalized_shape=shape, weight=weight, bias=norm.bias, eps=norm.epsilon)
    return partial(torch.rms_norm, normalized_shape=shape, weight=weight, eps=norm.epsilon)
