"""A source, or one token more, through blocks by their weights alone.

For one sentence the calls of modules cost more than the small products inside them, so decoding does without: what is here
computes what `Block` computes, from the same weights and with the same state. Nothing can be looked at meanwhile; whoever
looks, or wants gradients, goes through the modules.
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

MANY = 32  # heads of all rows, from which on they are multiplied in one batch


SMALL = 20_000_000  # weights that may be kept a second time, turned
Products = Callable[..., "Product"]  # from a weight and perhaps a bias
Normalise = Callable[[Tensor], Tensor]


class Product:
    """x W + b for x (B, D)."""

    def __init__(self, weight: Tensor, bias: Tensor | None, *, turned: bool) -> None:
        self.weight = weight.t().contiguous() if turned else weight.t()  # turned, one row is multiplied in half the time
        self.bias = bias
        self.width = self.weight.size(1)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.weight) if self.bias is None else torch.addmm(self.bias, x, self.weight)


class BareAttention:
    """Dot-product attention: of all places of a source to each other; of one query a row to itself and what was before it, or
    to a memory."""

    def __init__(self, attention: Attention, product: Products) -> None:
        assert attention.w is None
        self.rotary = attention.rotary
        self.heads, self.kv_heads, self.d_k, self.d_v = attention.heads, attention.kv_heads, attention.d_k, attention.d_v
        scale = 1 / math.sqrt(self.d_k)  # in the weights, so that no step has to multiply
        q, k, v = ([x for x in (each.weight, each.bias) if x is not None] for each in (attention.q, attention.k, attention.v))
        q = [x * scale for x in q]
        both = [
            torch.cat((a.unflatten(0, (self.kv_heads, -1)), b.unflatten(0, (self.kv_heads, -1))), dim=1).flatten(0, 1)
            for a, b in zip(k, v, strict=True)
        ]  # each head's keys beside its values, as they are kept
        self.q, self.both = product(*q), product(*both)
        self.joined = product(*(torch.cat(each) for each in zip(q, both, strict=True)))  # one product instead of three
        self.o = product(attention.o.weight, attention.o.bias)

    def mutual(self, x: Tensor, rows: int, bias: Tensor | None) -> Tensor:
        """x (N · S, D) → (N · S, D): every place looks at all places of its row.

        `bias` (N, 1, 1, S) is added to the scores: −∞ where nobody may look.
        """
        found = self.joined(x).view(rows, -1, self.joined.width)
        cut = self.heads * self.d_k
        q = found[..., :cut].unflatten(2, (self.heads, self.d_k)).transpose(1, 2)  # (N, H, S, d_k)
        both = found[..., cut:].unflatten(2, (self.kv_heads, -1)).transpose(1, 2)  # (N, K, S, d_k + d_v)
        k, v = both[..., : self.d_k], both[..., self.d_k :]
        if self.rotary is not None:
            q, k = self.rotary(q, 0), self.rotary(k, 0)
        if self.kv_heads < self.heads:
            q = q.reshape(rows, self.kv_heads, -1, self.d_k)
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0).reshape(rows, self.heads, -1, self.d_v)
        return self.o(z.transpose(1, 2).reshape(-1, self.heads * self.d_v))

    def own(self, x: Tensor, known: KeyValues | None) -> tuple[Tensor, KeyValues]:
        """x (B, D) → (B, D) by looking at itself and what is known, and what is known then."""
        found = self.joined(x)
        cut = self.heads * self.d_k
        q, both = found[:, :cut], found[:, cut:].view(-1, self.kv_heads, 1, self.d_k + self.d_v)
        length = known.length if known else 0
        if self.rotary is not None:
            q = self.rotary(q.view(-1, self.heads, 1, self.d_k), length)
            both = torch.cat((self.rotary(both[..., : self.d_k], length), both[..., self.d_k :]), dim=-1)
        if known is None:
            known = KeyValues(both[..., : self.d_k], both[..., self.d_k :])
        else:
            room = known.room_for(1)
            room.both.narrow(2, length, 1).copy_(both)
            known = room.upto(length + 1)
        return self._look(q, known, None), known

    def across(self, x: Tensor, known: KeyValues, bias: Tensor | None) -> Tensor:
        """x (B, D) → (B, D). Row i of `known`, which has N rows, serves the B / N rows of x from i · B / N on.

        `bias` (N, 1, 1, S) is added to the scores: −∞ where nobody may look.
        """
        return self._look(self.q(x), known, bias)

    def look_up(self, memory: Tensor) -> KeyValues:
        """Keys and values of a whole memory (N, S, D)."""
        both = self.both(memory.flatten(0, 1)).view(*memory.shape[:2], self.kv_heads, -1)
        both = both.transpose(1, 2).contiguous()  # (N, K, S, d_k + d_v)
        return KeyValues(both[..., : self.d_k], both[..., self.d_k :])

    def _look(self, q: Tensor, known: KeyValues, bias: Tensor | None) -> Tensor:
        k, v = known.k, known.v
        rows, heads, length, _ = k.shape
        group, sharing = self.heads // heads, q.numel() // (rows * self.heads * self.d_k)
        if sharing > 1:  # rows of one source: all heads that look at the same keys are to stand together
            q = q.view(rows, sharing, heads, group, self.d_k).transpose(1, 2)
        q = q.reshape(rows, heads, sharing * group, self.d_k)
        if rows * heads < MANY:
            z = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        else:  # the same by three products of all rows at once, where that kernel would go through them one by one
            scores = torch.bmm(q.flatten(0, 1), k.reshape(-1, length, self.d_k).transpose(1, 2)).view(rows, heads, -1, length)
            scores = scores if bias is None else scores.add_(bias)
            z = torch.bmm(scores.softmax(-1).flatten(0, 1), v.reshape(-1, length, self.d_v))
        if sharing > 1:
            z = z.view(rows, heads, sharing, group, self.d_v).transpose(1, 2)
        return self.o(z.reshape(-1, self.heads * self.d_v))


class BareEmbedding:
    """Token and position."""

    def __init__(self, embedding: Embedding) -> None:
        assert embedding.types is None and embedding.norm is None
        self.token, self.scale, self.position = embedding.token.weight, embedding.scale, embedding.position

    def __call__(self, ids: Tensor, place: int | slice) -> Tensor:
        """ids (B) at one place, or (N, S) at several → (…, D)."""
        x = F.embedding(ids, self.token)
        x = x.mul_(self.scale) if self.scale != 1 else x
        return x if self.position is None else x.add_(self.position[place])


class BareBlock:
    """A block without dropout."""

    def __init__(self, block: Block, product: Products) -> None:
        self.post = block.post
        self.norm1, self.norm3 = _normalisation(block.norm1), _normalisation(block.norm3)
        self.norm2 = _normalisation(block.norm2) if block.norm2 else None
        self.self = BareAttention(block.self, product)
        self.cross = BareAttention(block.cross, product) if block.cross else None
        w1, w2, w3 = (product(w.weight, w.bias) if w else None for w in (block.ffn.w1, block.ffn.w2, block.ffn.w3))
        assert w1 and w2
        self.w1, self.w2, self.w3 = w1, w2, w3
        self.activation = block.ffn.activation

    def read(self, x: Tensor, rows: int, bias: Tensor | None) -> Tensor:
        """x (N · S, D), whole rows of an encoder → (N · S, D)."""
        return self._ffn(self._after(self.norm1, x, self.self.mutual(self._before(self.norm1, x), rows, bias)))

    def step(self, x: Tensor, memory: Tensor | None, bias: Tensor | None, state: BlockState | None) -> tuple[Tensor, BlockState]:
        """x (B, D), one token of each row, memory (N, S, D) → (B, D), and the state after it."""
        out, own = self.self.own(self._before(self.norm1, x), state.own if state else None)
        x = self._after(self.norm1, x, out)
        known = None
        if self.cross is not None and self.norm2 is not None:
            assert memory is not None
            known = state.cross if state and state.cross else self.cross.look_up(memory)
            x = self._after(self.norm2, x, self.cross.across(self._before(self.norm2, x), known, bias))
        return self._ffn(x), BlockState(own, known)

    def _ffn(self, x: Tensor) -> Tensor:
        y = self._before(self.norm3, x)
        inner = self.activation(self.w1(y))
        if self.w3 is not None:
            inner = inner.mul_(self.w3(y))
        return self._after(self.norm3, x, self.w2(inner))

    def _before(self, norm: Normalise, x: Tensor) -> Tensor:
        return x if self.post else norm(x)

    def _after(self, norm: Normalise, x: Tensor, out: Tensor) -> Tensor:
        x = out.add_(x)
        return norm(x) if self.post else x


class BareStack:
    """An embedding, blocks, perhaps a last normalisation, and a decoder's logits."""

    def __init__(self, embedding: Embedding, blocks: Sequence[Block], norm: Norm | None, output: nn.Linear | None) -> None:
        weights = [p for module in (*blocks, *([output] if output else [])) for p in module.parameters()]
        turned = sum(p.numel() for p in weights) <= SMALL

        def product(weight: Tensor, bias: Tensor | None = None) -> Product:
            return Product(weight, bias, turned=turned)

        self.embed, self.blocks = BareEmbedding(embedding), [BareBlock(block, product) for block in blocks]
        self.norm = _normalisation(norm) if norm else None
        self.output = product(output.weight, output.bias) if output else None

    def read(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """ids (N, S), mask (N, 1, 1, S) → the last states (N, S, D) of an encoder."""
        x = self.embed(ids, slice(ids.size(1))).flatten(0, 1)
        bias = _bias(mask)
        for block in self.blocks:
            x = block.read(x, len(ids), bias)
        return (self.norm(x) if self.norm else x).view(*ids.shape, -1)

    def step(
        self, ids: Tensor, place: int, memory: Tensor | None, mask: Tensor | None, states: Sequence[BlockState]
    ) -> tuple[Tensor, tuple[BlockState, ...]]:
        """ids (B), memory (N, S, D), mask (N, 1, 1, S) → the logits (B, V), and what every block remembers."""
        assert self.output is not None
        x, bias = self.embed(ids, place), _bias(mask)
        remembered = []
        for i, block in enumerate(self.blocks):
            x, new = block.step(x, memory, bias, states[i] if states else None)
            remembered.append(new)
        return self.output(self.norm(x) if self.norm else x), tuple(remembered)


def _bias(mask: Tensor | None) -> Tensor | None:
    """What is added to scores: −∞ where nobody may look."""
    return None if mask is None else torch.zeros(mask.shape).masked_fill_(~mask, -math.inf)


def _normalisation(norm: Norm) -> Normalise:
    """`norm` with what it takes gathered once."""
    shape, weight = norm.weight.shape, norm.weight
    if isinstance(norm, LayerNorm):
        return partial(torch.layer_norm, normalized_shape=shape, weight=weight, bias=norm.bias, eps=norm.epsilon)
    return partial(torch.rms_norm, normalized_shape=shape, weight=weight, eps=norm.epsilon)
