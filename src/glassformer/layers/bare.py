"""One token more through a block, by its weights alone.

For one position a call of a module costs more than the small products inside it, so steps of decoding do without: what is here
computes, for T = 1, what `Block` computes, from the same weights and with the same state. Nothing can be looked at meanwhile;
whoever looks, or wants gradients, goes through the modules.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.layers.attention import Attention, KeyValues
from glassformer.layers.block import Block, BlockState, Norm
from glassformer.layers.embedding import Embedding
from glassformer.layers.norm import LayerNorm


class BareAttention:
    """Dot-product attention of one query a row: to itself and what was before it, or to a memory."""

    def __init__(self, attention: Attention, *, cross: bool) -> None:
        assert attention.w is None
        self.rotary = attention.rotary
        self.heads, self.kv_heads, self.d_k, self.d_v = attention.heads, attention.kv_heads, attention.d_k, attention.d_v
        scale = 1 / math.sqrt(self.d_k)  # in the weights, so that no step has to multiply
        q, k, v = ((each.weight, each.bias) for each in (attention.q, attention.k, attention.v))
        q = (q[0] * scale, None if q[1] is None else q[1] * scale)
        together = (k, v) if cross else (q, k, v)  # one product instead of three
        self.q = q
        self.joined = _joined(together)
        self.o = _weights(attention.o)
        self.sizes = [self.heads * self.d_k, self.kv_heads * self.d_k, self.kv_heads * self.d_v]

    def own(self, x: Tensor, known: KeyValues | None) -> tuple[Tensor, KeyValues]:
        """x (B, D) → (B, D) by looking at itself and what is known, and what is known then."""
        q, k, v = F.linear(x, *self.joined).split(self.sizes, dim=1)
        k, v = k.view(-1, self.kv_heads, 1, self.d_k), v.view(-1, self.kv_heads, 1, self.d_v)
        if self.rotary is not None:
            start = known.length if known else 0
            q, k = self.rotary(q.view(-1, self.heads, 1, self.d_k), start), self.rotary(k, start)
        known = known.extend(KeyValues(k, v)) if known else KeyValues(k, v)
        return self._look(q, known, None), known

    def across(self, x: Tensor, known: KeyValues, bias: Tensor | None) -> Tensor:
        """x (B, D) → (B, D). Row i of `known`, which has N rows, serves the B / N rows of x from i · B / N on.

        `bias` (N, 1, S) is added to the scores: −∞ where nobody may look.
        """
        return self._look(F.linear(x, *self.q), known, bias)

    def look_up(self, memory: Tensor) -> KeyValues:
        """Keys and values of a whole memory (N, S, D), each head's together."""
        found = F.linear(memory, *self.joined).split(self.sizes[1:], dim=2)
        return KeyValues(*(x.unflatten(-1, (self.kv_heads, -1)).transpose(1, 2).contiguous() for x in found))

    def _look(self, q: Tensor, known: KeyValues, bias: Tensor | None) -> Tensor:
        rows, heads, length, _ = known.k.shape
        each = q.numel() // (rows * heads * self.d_k)  # queries that look at the same keys
        shared = each * heads > self.heads
        if shared:  # rows of one source: the heads that look at the same keys are to stand together
            q = q.view(rows, -1, heads, self.heads // heads, self.d_k).transpose(1, 2)
        k, v = known.k.reshape(-1, length, self.d_k), known.v.reshape(-1, length, self.d_v)
        scores = torch.bmm(q.reshape(-1, each, self.d_k), k.transpose(1, 2))  # (N·K, B/N · H/K, S)
        if bias is not None:
            scores.view(rows, -1, length).add_(bias)
        z = torch.bmm(scores.softmax(-1), v)
        if shared:
            z = z.view(rows, heads, -1, self.heads // heads, self.d_v).transpose(1, 2)
        return F.linear(z.reshape(-1, self.heads * self.d_v), *self.o)


class BareEmbedding:
    """Token and position."""

    def __init__(self, embedding: Embedding) -> None:
        assert embedding.types is None and embedding.norm is None
        self.token, self.scale, self.position = embedding.token.weight, embedding.scale, embedding.position

    def step(self, ids: Tensor, place: int) -> Tensor:
        """ids (B) at one place → (B, D)."""
        x = F.embedding(ids, self.token)
        x = x.mul_(self.scale) if self.scale != 1 else x
        return x if self.position is None else x.add_(self.position[place])


class BareBlock:
    """A block without dropout, for one token of each row."""

    def __init__(self, block: Block) -> None:
        self.post = block.post
        self.norm1, self.norm3 = _normalisation(block.norm1), _normalisation(block.norm3)
        self.norm2 = _normalisation(block.norm2) if block.norm2 else None
        self.self = BareAttention(block.self, cross=False)
        self.cross = BareAttention(block.cross, cross=True) if block.cross else None
        self.w1, self.w2 = _weights(block.ffn.w1), _weights(block.ffn.w2)
        self.w3 = _weights(block.ffn.w3) if block.ffn.w3 else None
        self.activation = block.ffn.activation

    def step(self, x: Tensor, memory: Tensor | None, bias: Tensor | None, state: BlockState | None) -> tuple[Tensor, BlockState]:
        """x (B, D), memory (N, S, D) → (B, D), and the state after it."""
        y = x if self.post else self.norm1(x)
        out, own = self.self.own(y, state.own if state else None)
        x = x + out
        x = self.norm1(x) if self.post else x
        known = None
        if self.cross is not None and self.norm2 is not None:
            assert memory is not None
            known = state.cross if state and state.cross else self.cross.look_up(memory)
            x = x + self.cross.across(x if self.post else self.norm2(x), known, bias)
            x = self.norm2(x) if self.post else x
        y = x if self.post else self.norm3(x)
        inner = self.activation(F.linear(y, *self.w1))
        if self.w3 is not None:
            inner = inner.mul_(F.linear(y, *self.w3))
        x = x + F.linear(inner, *self.w2)
        return (self.norm3(x) if self.post else x), BlockState(own, known)


class BareStack:
    """An embedding, blocks, and perhaps a last normalisation."""

    def __init__(self, embedding: Embedding, blocks: Sequence[Block], norm: Norm | None) -> None:
        self.embed, self.blocks = BareEmbedding(embedding), [BareBlock(block) for block in blocks]
        self.norm = _normalisation(norm) if norm else None

    def step(
        self, ids: Tensor, place: int, memory: Tensor | None, mask: Tensor | None, states: Sequence[BlockState]
    ) -> tuple[Tensor, tuple[BlockState, ...]]:
        """ids (B), memory (N, S, D), mask (N, 1, 1, S) → the last states (B, D), and what every block remembers."""
        x = self.embed.step(ids, place)
        bias = None if mask is None else torch.zeros(mask.size(0), 1, mask.size(3)).masked_fill_(~mask[:, 0], -math.inf)
        remembered = []
        for i, block in enumerate(self.blocks):
            x, new = block.step(x, memory, bias, states[i] if states else None)
            remembered.append(new)
        return (self.norm(x) if self.norm else x), tuple(remembered)


def _weights(linear: nn.Linear) -> tuple[Tensor, Tensor | None]:
    return linear.weight, linear.bias


def _joined(parts: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    """Several matrices as one, whose results stand side by side."""
    biases = [bias for _, bias in parts if bias is not None]
    return torch.cat([weight for weight, _ in parts]), torch.cat(biases) if biases else None


def _normalisation(norm: Norm) -> Callable[[Tensor], Tensor]:
    """`norm` with what it takes gathered once."""
    shape, weight = norm.weight.shape, norm.weight
    if isinstance(norm, LayerNorm):
        return partial(torch.layer_norm, normalized_shape=shape, weight=weight, bias=norm.bias, eps=norm.epsilon)
    return partial(torch.rms_norm, normalized_shape=shape, weight=weight, eps=norm.epsilon)
