"""A stack of blocks by layers/compiled.c: one token more of each row, or one short source, in one call.

Of one sentence PyTorch takes longer from a call to its kernel than the kernel takes, and a token needs a hundred of them; of many
the attention of one query each is as many small products. What is computed is what `bare` computes, with the same weights.
"""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_int64
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.layers import blas, compiled
from glassformer.layers.bare import BareBlock, BareStack, small
from glassformer.layers.block import Block, BlockState, Norm
from glassformer.layers.cache import Cache, Sources, Trails
from glassformer.layers.embedding import Embedding
from glassformer.layers.feedforward import ACTIVATIONS
from glassformer.layers.norm import LayerNorm
from glassformer.layers.products import SHARED, Product, Shared, plain

SHORT = 64  # places of a source
ORDER = {ACTIVATIONS[name]: number for number, name in enumerate(("relu", "gelu", "gelu-tanh", "silu"))}
WRONG = {1: "a token that is not in the vocabulary", 2: "a place beyond the model's positions"}


def without_modules(embedding: Embedding, blocks: Sequence[Block], norm: Norm | None, output: nn.Linear | None) -> BareStack:
    """A stack that nobody looks into. What was compiled knows single precision, and weights that are kept turned."""
    parts = (part for part in (embedding, *blocks, norm, output) if part is not None)
    known = compiled.library() is not None and small(blocks, output) and embedding.token.weight.is_contiguous()
    known = known and all(plain(weight) for part in parts for weight in part.parameters())
    return (CompiledStack if known else BareStack)(embedding, blocks, norm, output)


class CompiledStack(BareStack):
    """As `BareStack`."""

    def __init__(self, embedding: Embedding, blocks: Sequence[Block], norm: Norm | None, output: nn.Linear | None) -> None:
        super().__init__(embedding, blocks, norm, output)
        self.kept: list[Tensor] = []  # whose addresses stand in what follows; no parameters, which others may move
        self.stack, self.width = self._stack(blocks, norm), self.embed.token.size(1)
        self.one = _of_one(self.output) if self.output else None

    def read(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None or ids.size(0) != 1 or ids.size(1) > SHORT:
            return super().read(ids, mask)
        return self._pass(ids[0], compiled.Known(rows=ids.size(1))).unsqueeze(0)

    def __deepcopy__(self, memo: Any) -> "CompiledStack":
        return self  # it never changes

    def begin(self, rows: int, blocks: Sequence[BlockState], memory: Tensor | None, mask: Tensor | None) -> Trails:
        cache = super().begin(rows, blocks, memory, mask)
        if {x.dtype for x in (cache.room.both, memory) if x is not None} != {torch.float32}:
            raise TypeError("a state in other than single precision, for weights in single precision")
        return Trails.beginning(cache)

    def step(self, ids: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        assert isinstance(cache, Trails)
        if ids.size(0) != len(cache.slots):
            raise ValueError(f"{ids.size(0)} tokens for {len(cache.slots)} rows")
        cache = cache.longer()
        both, sources = cache.room.both, cache.sources
        _, slots, _, room, _ = both.shape
        known = compiled.Known(ids.size(0), cache.length - 1, both.data_ptr(), slots, room, compiled.address(cache.slots))
        if sources is not None:
            addresses = sources.addresses = sources.addresses or _addresses(sources)
            known.sources, known.bias, known.source_length, _ = addresses
            known.looked_at = compiled.address(cache.looked_at)
        x = self._pass(ids, known)
        assert self.one is not None and self.output is not None
        return (self.one(x) if ids.size(0) == 1 else self.output(x)), cache

    def _pass(self, ids: Tensor, known: compiled.Known) -> Tensor:
        """The last states (B, D) of these tokens."""
        found, ids, tokens = compiled.library(), ids.long().contiguous(), self.embed.token
        assert found is not None
        x = tokens.new_empty(ids.size(0), self.width)
        self.stack.tokens = tokens.data_ptr()  # they are the model's own, which may have been moved since
        wrong = found.compiled_pass(byref(self.stack), ids.data_ptr(), byref(known), x.data_ptr())
        if wrong:
            raise IndexError(WRONG[wrong]) if wrong in WRONG else MemoryError
        return x

    # -- what compiled.c is told, once

    def _stack(self, blocks: Sequence[Block], norm: Norm | None) -> compiled.Stack:
        own, embed, ffn = self.blocks[0].own, self.embed, blocks[0].ffn
        rotary = own.rotary
        tables: list[Tensor | None] = [None, None] if rotary is None else [rotary.cos, rotary.sin]
        places = next((len(table) for table in (embed.position, *tables) if table is not None), 0)
        return compiled.Stack(
            (compiled.Block * len(blocks))(*(self._block(*each) for each in zip(self.blocks, blocks, strict=True))),
            *(len(blocks), embed.token.size(1), own.heads, own.kv_heads, own.d_k, own.d_v, ffn.w1.out_features),
            *(blocks[0].post, ORDER[ffn.activation]),
            *(None, *map(self._address, (embed.position, *tables))),
            *(embed.token.size(0), places, embed.scale, self._norm(norm)),
        )

    def _block(self, bare: BareBlock, block: Block) -> compiled.Block:
        cross = bare.cross
        across = (cross.q, cross.o) if cross else (None, None)
        maps = (bare.own.joined, bare.own.o, *across, bare.w1, bare.w2, bare.w3)
        norms = (self._norm(norm) for norm in (block.norm1, block.norm2, block.norm3))
        return compiled.Block((compiled.Norm * 3)(*norms), *(self._linear(each) for each in maps))

    def _linear(self, product: Product | None) -> compiled.Linear:
        return (
            compiled.Linear()
            if product is None
            else compiled.Linear(product.w.data_ptr(), self._address(product.bias), *product.w.shape)
        )

    def _norm(self, norm: Norm | None) -> compiled.Norm:
        if norm is None:
            return compiled.Norm()
        bias = norm.bias if isinstance(norm, LayerNorm) else None
        return compiled.Norm(self._address(norm.weight), self._address(bias), norm.epsilon, isinstance(norm, LayerNorm))

    def _address(self, x: Tensor | None) -> int | None:
        if x is None:
            return None
        x = x.detach().clone(memory_format=torch.contiguous_format)
        assert x.dtype == torch.float32
        self.kept.append(x)
        return x.data_ptr()


def _addresses(sources: Sources) -> tuple[int, int | None, int, list[object]]:
    """Where the keys and values of all blocks stand, and the bias; how many places a source has; what keeps all that alive."""
    known = [[x if x.stride(3) == 1 else x.contiguous() for x in (each.k, each.v)] for each in sources.known]
    steps = [[(c_int64 * 3)(*x.stride()[:3]) for x in each] for each in known]
    found = (compiled.Source * len(known))(
        *(compiled.Source(k.data_ptr(), v.data_ptr(), *each) for (k, v), each in zip(known, steps, strict=True))
    )
    bias = None if sources.bias is None else sources.bias.contiguous()
    return ctypes.addressof(found), None if bias is None else bias.data_ptr(), known[0][0].size(2), [found, known, bias]


def _of_one(product: Product) -> Callable[[Tensor], Tensor]:
    """The vocabulary's, for one row: by NumPy, whose way to a product is half as long as PyTorch's, and by all cores where that
    pays."""
    w, bias = product.w.detach().numpy(), None if product.bias is None else product.bias.detach().clone().numpy()

    def multiply(x: Tensor) -> Tensor:
        y = x.numpy().dot(w)
        if bias is not None:
            y += bias
        return torch.from_numpy(y)

    return Shared(multiply, blas.set_threads, product.w.numel()) if product.w.numel() >= SHARED else multiply
