"""A source, or one token more of each row, through blocks by their weights alone.

For one sentence the calls of modules cost more than the small products inside them, so decoding does without: what is here
computes what `Block` computes, from the same weights and with the same state. Nothing can be looked at meanwhile; whoever
looks, or wants gradients, goes through the modules.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.layers.attention import Attention, KeyValues
from glassformer.layers.block import Block, BlockState, Norm
from glassformer.layers.cache import Cache, Sources
from glassformer.layers.embedding import Embedding
from glassformer.layers.norm import LayerNorm
from glassformer.layers.products import Product, product
from glassformer.layers.trails import Trails

MANY = 32  # heads of all rows, from which on they are multiplied in one batch
SMALL = 20_000_000  # weights that may be kept a second time, turned, and large matrices a third time, packed
Products = Callable[..., Product]  # from a weight and perhaps a bias
Step = Callable[[Tensor], Tensor]


class BareAttention:
    """Dot-product attention: of all places of a source to each other; of one query a row to itself and what was before it, or
    to a memory."""

    def __init__(self, attention: Attention, product: Products, *, cross: bool = False) -> None:
        assert attention.w is None
        self.rotary = attention.rotary
        self.heads, self.kv_heads, self.d_k, self.d_v = attention.heads, attention.kv_heads, attention.d_k, attention.d_v
        scale = 1 / math.sqrt(self.d_k)  # in the weights, so that no step has to multiply
        q, k, v = (_parts(each) for each in (attention.q, attention.k, attention.v))
        q = [x * scale for x in q]
        both = [
            torch.cat((a.unflatten(0, (self.kv_heads, -1)), b.unflatten(0, (self.kv_heads, -1))), dim=1).flatten(0, 1)
            for a, b in zip(k, v, strict=True)
        ]  # each head's keys beside its values, as they are kept
        if cross:  # the one is asked of every token, the other once of the source
            self.q, self.both = product(*q), product(*both)
        else:
            self.joined = product(*(torch.cat(each) for each in zip(q, both, strict=True)))  # one product instead of three
        self.o = product(*_parts(attention.o))
        self.cuts = (len(q[0]), len(both[0]))

    def mutual(self, x: Tensor, rows: int, bias: Tensor | None) -> Tensor:
        """x (N · S, D) → (N · S, D): every place looks at all places of its row.

        `bias` (N, 1, 1, S) is added to the scores: −∞ where nobody may look.
        """
        q, both = self.joined(x).split_with_sizes(self.cuts, 1)
        q = q.view(rows, -1, self.heads, self.d_k).transpose(1, 2)  # (N, H, S, d_k)
        k, v = both.view(rows, -1, self.kv_heads, self.d_k + self.d_v).transpose(1, 2).split_with_sizes((self.d_k, self.d_v), 3)
        if self.rotary is not None:
            q, k = self.rotary(q, 0), self.rotary(k, 0)
        if self.kv_heads < self.heads:
            q = q.reshape(rows, self.kv_heads, -1, self.d_k)
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0).reshape(rows, self.heads, -1, self.d_v)
        return self.o(z.transpose(1, 2).reshape(-1, self.heads * self.d_v))

    def own(self, x: Tensor, slot: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """x (B, D) → (B, D) by looking at itself and what was before it. Its own keys and values are written to `slot`
        (B, K, d_k + d_v), the last place of all keys (B, K, T, d_k) and values (B, K, T, d_v)."""
        q, both = self.joined(x).split_with_sizes(self.cuts, 1)
        both = both.view(slot.shape)
        if self.rotary is not None:
            place = k.size(2) - 1
            q = self.rotary(q.view(-1, self.heads, 1, self.d_k), place)
            turned = self.rotary(both[..., : self.d_k].unsqueeze(2), place).squeeze(2)
            both = torch.cat((turned, both[..., self.d_k :]), dim=-1)
        slot.copy_(both)
        return self._look(q, k, v, None)

    def across(self, x: Tensor, source: KeyValues, bias: Tensor | None) -> Tensor:
        """x (B, D) → (B, D). Row i of the N sources serves the B / N rows of x from i · B / N on.

        `bias` (N, 1, 1, S) is added to the scores: −∞ where nobody may look.
        """
        return self._look(self.q(x), source.k, source.v, bias)

    def look_up(self, memory: Tensor) -> KeyValues:
        """Keys and values of a whole memory (N, S, D)."""
        rows, length, _ = memory.shape
        both = self.both(memory.flatten(0, 1)).view(rows, length, self.kv_heads, -1)
        k, v = both.transpose(1, 2).contiguous().split_with_sizes((self.d_k, self.d_v), 3)  # (N, K, S, ·)
        return KeyValues(k, v)

    def _look(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        rows, heads, length, d_k = k.shape
        sharing = q.size(0) // rows
        if sharing == 1:
            q = q.view(rows, heads, -1, d_k)  # heads that share a key stand together
        elif heads == self.heads:
            q = q.view(rows, sharing, heads, d_k).transpose(1, 2)
        else:  # rows of one source: all heads that look at the same keys are to stand together
            q = q.view(rows, sharing, heads, -1, d_k).transpose(1, 2).reshape(rows, heads, -1, d_k)
        if rows * heads < MANY:
            z = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        else:  # the same by three products of all rows at once, where that kernel would go through them one by one
            scores = torch.bmm(q.reshape(rows * heads, -1, d_k), k.reshape(-1, length, d_k).transpose(1, 2))
            scores = scores.view(rows, heads, -1, length)
            scores = scores if bias is None else scores.add_(bias)
            z = torch.bmm(scores.softmax(-1).flatten(0, 1), v.reshape(-1, length, self.d_v))
        if sharing > 1:
            z = z.view(rows, heads, sharing, -1, self.d_v).transpose(1, 2)
        return self.o(z.reshape(-1, self.heads * self.d_v))


class BareEmbedding:
    """Token and position."""

    def __init__(self, embedding: Embedding) -> None:
        assert embedding.types is None and embedding.norm is None
        self.token, self.scale, self.position = embedding.token.weight, embedding.scale, embedding.position

    def __call__(self, ids: Tensor, place: int | slice) -> Tensor:
        """ids (B) at one place, or (N, S) at several → (…, D)."""
        x = torch.embedding(self.token, ids)
        x = x.mul_(self.scale) if self.scale != 1 else x
        return x if self.position is None else x.add_(self.position[place])


@dataclass(frozen=True)
class BareBlock:
    """A block without dropout."""

    post: bool
    norms: tuple[Step, Step | None, Step]  # of self-attention, cross-attention, FFN
    own: BareAttention
    cross: BareAttention | None
    w1: Product
    w2: Product
    w3: Product | None
    activation: Step

    def read(self, x: Tensor, rows: int, bias: Tensor | None) -> Tensor:
        """x (N · S, D), whole rows of an encoder → (N · S, D)."""
        norm = self.norms[0]
        return self._ffn(self._after(norm, x, self.own.mutual(x if self.post else norm(x), rows, bias)))

    def step(self, x: Tensor, slot: Tensor, k: Tensor, v: Tensor, source: KeyValues | None, bias: Tensor | None) -> Tensor:
        """x (B, D), one token of each row → (B, D). Slot, k and v as in `own`, source and bias as in `across`."""
        norm, second, _ = self.norms
        x = self._after(norm, x, self.own.own(x if self.post else norm(x), slot, k, v))
        if self.cross is not None and second is not None and source is not None:
            x = self._after(second, x, self.cross.across(x if self.post else second(x), source, bias))
        return self._ffn(x)

    def _ffn(self, x: Tensor) -> Tensor:
        norm = self.norms[2]
        y = x if self.post else norm(x)
        inner = self.activation(self.w1(y))
        if self.w3 is not None:
            inner *= self.w3(y)
        return self._after(norm, x, self.w2(inner))

    def _after(self, norm: Step, x: Tensor, out: Tensor) -> Tensor:
        out += x
        return norm(out) if self.post else out


def _block(block: Block, product: Products) -> BareBlock:
    ffn = block.ffn
    return BareBlock(
        block.post,
        (_normalisation(block.norm1), _normalisation(block.norm2) if block.norm2 else None, _normalisation(block.norm3)),
        BareAttention(block.self, product),
        BareAttention(block.cross, product, cross=True) if block.cross else None,
        product(*_parts(ffn.w1)),
        product(*_parts(ffn.w2)),
        product(*_parts(ffn.w3)) if ffn.w3 else None,
        torch.relu_ if ffn.activation is F.relu else ffn.activation,
    )


def _parts(linear: nn.Linear) -> list[Tensor]:
    """W (outputs, inputs), and b if there is one."""
    return [x for x in (linear.weight, linear.bias) if x is not None]


class BareStack:
    """An embedding, blocks, perhaps a last normalisation, and a decoder's logits."""

    def __init__(self, embedding: Embedding, blocks: Sequence[Block], norm: Norm | None, output: nn.Linear | None) -> None:
        made = partial(product, turned=small(blocks, output))
        self.embed, self.blocks = BareEmbedding(embedding), [_block(block, made) for block in blocks]
        self.norm = _normalisation(norm) if norm else None
        self.output = made(output.weight, output.bias) if output else None

    def read(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """ids (N, S), mask (N, 1, 1, S) → the last states (N, S, D) of an encoder."""
        x = self.embed(ids, slice(ids.size(1))).flatten(0, 1)
        bias = _bias(mask, x)
        for block in self.blocks:
            x = block.read(x, len(ids), bias)
        return (self.norm(x) if self.norm else x).view(*ids.shape, -1)

    def begin(self, rows: int, blocks: Sequence[BlockState], memory: Tensor | None, mask: Tensor | None) -> Cache | Trails:
        """What is known before a step: what the blocks have remembered, if anything, and all of the memory (N, S, D)."""
        assert (memory is None) == (self.blocks[0].cross is None)
        sources = None
        if memory is not None:
            sources = Sources(tuple(block.cross.look_up(memory) for block in self.blocks if block.cross), _bias(mask, memory))
        if blocks:
            return Cache.of([block.own for block in blocks], sources)
        own = self.blocks[0].own
        return Cache.empty((len(self.blocks), rows, own.kv_heads), (own.d_k, own.d_v), self.embed.token, sources)

    def step(self, ids: Tensor, cache: Cache | Trails) -> tuple[Tensor, Cache | Trails]:
        """ids (B) → the logits (B, V), and what is known then."""
        assert self.output is not None and isinstance(cache, Cache)
        x = self.embed(ids, cache.length)
        cache = cache.longer()
        known, bias = (cache.sources.known, cache.sources.bias) if cache.sources else (itertools.repeat(None), None)
        for block, place, source in zip(self.blocks, cache.places(), known, strict=False):
            x = block.step(x, *place, source, bias)
        return self.output(self.norm(x) if self.norm else x), cache


def small(blocks: Sequence[Block], output: nn.Linear | None) -> bool:
    """Whether there is room for the weights once more."""
    return sum(p.numel() for module in (*blocks, *([output] if output else [])) for p in module.parameters()) <= SMALL


def _bias(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """What is added to scores: −∞ where nobody may look."""
    return None if mask is None else like.new_zeros(mask.shape).masked_fill_(~mask, -math.inf)


def _normalisation(norm: Norm) -> Step:
    """`norm` with what it takes gathered once."""
    shape, weight, epsilon = norm.weight.shape, norm.weight, norm.epsilon
    if isinstance(norm, LayerNorm):
        bias = norm.bias
        return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
    return partial(torch.rms_norm, normalized_shape=shape, weight=weight, eps=epsilon)
