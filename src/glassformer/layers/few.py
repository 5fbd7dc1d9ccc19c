"""One sentence, and one token more of it or of its beams, by NumPy's products.

Of so few rows PyTorch takes longer from a call to its kernel than the kernel takes; NumPy's way to a product is half as long.
What is here computes what `bare` computes, with the same weights and the same cache.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.layers import blas
from glassformer.layers.attention import KeyValues
from glassformer.layers.bare import Attends, BareAttention, BareBlock, BareStack, Step, small
from glassformer.layers.block import Block, BlockState, Norm
from glassformer.layers.cache import Array, Cache, Source
from glassformer.layers.embedding import Embedding
from glassformer.layers.norm import LayerNorm
from glassformer.layers.products import SHARED, Product, Shared

FEW = 16  # rows of a step
SHORT = 64  # places of a source


def without_modules(embedding: Embedding, blocks: Sequence[Block], norm: Norm | None, output: nn.Linear | None) -> BareStack:
    """A stack that nobody looks into. What is large waits for its weights and not for calls, NumPy's products have no half
    precision, and turning q and k would take NumPy many operations: those stay with PyTorch."""
    known = embedding.token.weight.dtype in (torch.float32, torch.float64) and not any(block.self.rotary for block in blocks)
    return (FewStack if known and small(blocks, output) else BareStack)(embedding, blocks, norm, output)


class FewStack(BareStack):
    """As `BareStack`, and few rows through NumPy."""

    folded = True

    def __init__(self, embedding: Embedding, blocks: Sequence[Block], norm: Norm | None, output: nn.Linear | None) -> None:
        super().__init__(embedding, blocks, norm, output)
        self.few = [_block(*each) for each in zip(self.blocks, blocks, strict=True)]
        self.last = _normalised(norm) if norm else None
        self.one = _shared(self.output) if self.output else None
        self.tokens = _array(self.embed.token)
        width, kind = self.tokens.shape[1], self.tokens.dtype
        centred = isinstance(norm, LayerNorm)  # there is a last normalisation where `folded` has an effect, in pre-norm
        self.mean = np.full(width, 1 / width, kind) if centred else None
        self.positions = None if self.embed.position is None else _array(self.embed.position)

    def read(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None or not _one(ids):
            return super().read(ids, mask)
        try:
            with _watched():
                x = self._embed(ids[0], slice(ids.size(1)))
                for block in self.few:
                    x = block.read(x, 1, None)
                return torch.from_numpy(self.last(x) if self.last else x).unsqueeze(0)
        except FloatingPointError:
            return super().read(ids, mask)

    def begin(self, rows: int, blocks: Sequence[BlockState], memory: Tensor | None, mask: Tensor | None) -> Cache:
        if memory is None or mask is not None or not _one(memory):
            return super().begin(rows, blocks, memory, mask)
        source = _array(memory[0])
        with np.errstate(all="ignore"):
            sources = tuple(block.cross.look_up(source) for block in self.few if block.cross)
        return self._begun(rows, blocks, sources, None)

    def step(self, ids: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        if ids.size(0) > FEW or (cache.sources and cache.sources[0].arrays is None):
            return super().step(ids, cache)
        try:
            with _watched():
                x, longer = self._step(ids, cache)
        except FloatingPointError:
            return super().step(ids, cache)
        assert self.one is not None and self.output is not None
        return (torch.from_numpy(self.one(x)) if len(x) == 1 else self.output(torch.from_numpy(x))), longer

    def _step(self, ids: Tensor, cache: Cache) -> tuple[Array, Cache]:
        """The last states (B, D)."""
        x = self._embed(ids, cache.length)
        cache = cache.longer()
        length, d_k, both = cache.length, cache.d_k, cache.room.both.numpy()  # (L, B, K, size, d_k + d_v)
        slots, keys, values = both[:, :, :, length - 1], both[:, :, :, :length, :d_k], both[:, :, :, :length, d_k:]
        sources = cache.sources or itertools.repeat(None)
        for block, slot, k, v, source in zip(self.few, slots, keys.swapaxes(3, 4), values, sources, strict=False):
            x = block.step(x, slot, k, v, source, None)
        return (self.last(x) if self.last else x), cache

    def _embed(self, ids: Tensor, place: int | slice) -> Array:
        x = self.tokens[ids.numpy()]
        if self.embed.scale != 1:
            x *= self.embed.scale
        if self.positions is not None:
            x += self.positions[place]
        if self.mean is not None:
            x -= x.dot(self.mean)[:, None]
        return x


class FewAttention:
    """Dot-product attention: of all places of one source to each other; of one query a row to itself and what was before it, or
    to one source. Nothing is masked."""

    def __init__(self, bare: Attends[Tensor], *, cross: bool = False) -> None:
        assert isinstance(bare, BareAttention)
        self.kv_heads, self.d_k, self.d_v = bare.kv_heads, bare.d_k, bare.d_v
        self.cut = bare.cuts[0]
        self.o = _multiplied(bare.o)
        if cross:
            self.q, self.both = _multiplied(bare.q), _multiplied(bare.both)
            heads = (self.kv_heads, bare.heads // self.kv_heads)
            w, bias = _weights(bare.q)
            self.w_q = w.reshape(-1, *heads, self.d_k).transpose(1, 2, 0, 3)  # (K, H / K, D, d_k)
            self.b_q = None if bias is None else bias.reshape(*heads, 1, self.d_k)
            w, bias = _weights(bare.o)
            self.w_o = w.reshape(*heads, self.d_v, -1)  # (K, H / K, d_v, D)
            self.b_o = None if bias is None else bias / bare.heads  # that much comes with each head, whose weights sum to 1
        else:
            self.joined = _multiplied(bare.joined)

    def mutual(self, x: Array, rows: int, bias: Tensor | None) -> Array:
        """x (S, D) → (S, D): every place looks at all places."""
        assert rows == 1 and bias is None
        joined = self.joined(x)
        return self._look(joined[:, : self.cut], *self._parted(joined[:, self.cut :]))

    def own(self, x: Array, slot: Array, k: Array, v: Array) -> Array:
        """x (B, D) → (B, D) by looking at itself and what was before it. Its own keys and values are written to `slot`
        (B, K, d_k + d_v), the last place of all keys (B, K, d_k, T) and values (B, K, T, d_v)."""
        joined = self.joined(x)
        slot[...] = joined[:, self.cut :].reshape(slot.shape)
        q = joined[:, : self.cut].reshape(len(x), self.kv_heads, -1, self.d_k)  # heads that share a key stand together
        return self.o(np.matmul(_softmax(np.matmul(q, k)), v).reshape(len(x), -1))

    def across(self, x: Array, source: Source, bias: Tensor | None) -> Array:
        """x (B, D) → (B, D): all rows look at one source."""
        assert source.arrays is not None and bias is None
        if source.whole is None:
            return self._look(self.q(x), *source.arrays)
        w, b, out = source.whole
        scores = _times(x, w, b).reshape(len(x), -1, source.known.k.size(2))
        z: Array = _softmax(scores).reshape(len(x), -1).dot(out)
        return z

    def look_up(self, memory: Array) -> Source:
        """Keys and values of one source (S, D); if it is short, what W_Q and W_O make of them, so that a step has two products
        instead of four."""
        k, v = self._parted(self.both(memory))
        known = KeyValues(torch.from_numpy(k.swapaxes(1, 2)).unsqueeze(0), torch.from_numpy(v).unsqueeze(0))
        if len(memory) > self.d_k:
            return Source(known, (k, v))
        w = np.matmul(self.w_q, k[:, None]).transpose(2, 0, 1, 3).reshape(memory.shape[1], -1)  # (D, H · S)
        b = None if self.b_q is None else np.matmul(self.b_q, k[:, None]).ravel()
        out = np.matmul(v[:, None], self.w_o).reshape(w.shape[1], -1)  # (H · S, D)
        if self.b_o is not None:
            out += self.b_o
        return Source(known, (k, v), (w, b, out))

    def _parted(self, both: Array) -> tuple[Array, Array]:
        """Each head's keys beside its values → keys (K, d_k, S) and values (K, S, d_v)."""
        both = both.reshape(len(both), self.kv_heads, -1).swapaxes(0, 1)
        return np.ascontiguousarray(both[:, :, : self.d_k].swapaxes(1, 2)), np.ascontiguousarray(both[:, :, self.d_k :])

    def _look(self, q: Array, k: Array, v: Array) -> Array:
        """All queries (B, H · d_k) at the same keys (K, d_k, S) and values (K, S, d_v) → (B, D)."""
        rows, groups = len(q), self.kv_heads
        q = q.reshape(rows, groups, -1, self.d_k).swapaxes(0, 1).reshape(groups, -1, self.d_k)
        z = np.matmul(_softmax(np.matmul(q, k)), v)  # (K, B · H / K, d_v)
        return self.o(z.reshape(groups, rows, -1, self.d_v).swapaxes(0, 1).reshape(rows, -1))


def _block(bare: BareBlock[Tensor], block: Block) -> BareBlock[Array]:
    norm = _normalised if bare.post else _direction
    return BareBlock(
        bare.post,
        (norm(block.norm1), norm(block.norm2) if block.norm2 else None, norm(block.norm3)),
        FewAttention(bare.own),
        FewAttention(bare.cross, cross=True) if bare.cross else None,
        _multiplied(bare.w1),
        _multiplied(bare.w2),
        _multiplied(bare.w3) if bare.w3 else None,
        _relu if block.ffn.activation is F.relu else _by_torch(bare.activation),
    )


def _watched() -> np.errstate:
    """An exponential that overflows is an error. Other numbers that are not finite are said by whoever chooses."""
    return np.errstate(all="ignore", over="raise")


def _one(x: Tensor) -> bool:
    """Whether x (N, S, …) is of one short source."""
    return x.size(0) == 1 and x.size(1) <= SHORT


def _array(x: Tensor) -> Array:
    """The same memory."""
    found: Array = x.detach().numpy()
    return found


def _weights(product: Step[Tensor]) -> tuple[Array, Array | None]:
    assert isinstance(product, Product)
    return _array(product.w), None if product.bias is None else _array(product.bias)


def _multiplied(product: Step[Tensor]) -> Step[Array]:
    w, bias = _weights(product)
    return lambda x: _times(x, w, bias)


def _times(x: Array, w: Array, bias: Array | None) -> Array:
    y: Array = x.dot(w)
    if bias is not None:
        y += bias
    return y


def _shared(product: Product) -> Step[Array]:
    """The vocabulary's, by all cores where that pays."""
    multiply, weights = _multiplied(product), product.w.numel()
    return Shared(multiply, blas.set_threads, weights) if weights >= SHARED else multiply


def _normalised(norm: Norm) -> Step[Array]:
    """γ · (x − μ) / √(σ² + ε) + β, as γ √D · c / √(|c|² + D ε) + β with c = x − μ; of RMSNorm c is x, and nothing is shifted."""
    weight = _array(norm.weight)
    width, kind = len(weight), weight.dtype.type
    gamma, least = weight * kind(math.sqrt(width)), kind(width * norm.epsilon)
    mean = np.full(width, 1 / width, kind) if isinstance(norm, LayerNorm) else None
    beta = _array(norm.bias) if isinstance(norm, LayerNorm) and norm.bias is not None else None

    def normalise(x: Array) -> Array:
        if mean is not None:
            x = x - x.dot(mean)[:, None]
        length = np.vecdot(x, x)
        length += least
        y: Array = x / np.sqrt(length, out=length)[:, None]
        y *= gamma
        if beta is not None:
            y += beta
        return y

    return normalise


def _direction(norm: Norm) -> Step[Array]:
    """x / √(|x|² + D ε) for `folded` weights: x has no mean that LayerNorm would subtract, γ √D and β come with what reads it."""
    least = len(norm.weight) * norm.epsilon

    def direction(x: Array) -> Array:
        if len(x) == 1:
            row = x[0]
            y: Array = x / math.sqrt(row.dot(row) + least)
            return y
        length = np.vecdot(x, x)
        length += least
        y = x / np.sqrt(length, out=length)[:, None]
        return y

    return direction


def _softmax(x: Array) -> Array:
    """Over the last axis, in place. Less the first number, not the largest, for nobody has to look for that: the sum is then at
    least 1. What is so large that it overflows is an error to NumPy, and left to PyTorch."""
    x -= x[..., :1].copy()
    np.exp(x, out=x)
    x /= np.add.reduce(x, -1, keepdims=True)
    return x


def _relu(x: Array) -> Array:
    """In place."""
    return np.maximum(x, 0, out=x)


def _by_torch(step: Step[Tensor]) -> Step[Array]:
    """What takes NumPy many operations and PyTorch one."""

    def steps(x: Array) -> Array:
        y: Array = step(torch.from_numpy(x)).numpy()
        return y

    return steps
