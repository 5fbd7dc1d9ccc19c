"""A stack of modules that nobody looks into: by its weights alone, in C where that was compiled, else by PyTorch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.layers import compiled
from glassformer.layers.attention import KeyValues
from glassformer.layers.bare import BareBlock, BareStack, small
from glassformer.layers.block import Block, BlockState
from glassformer.layers.block import Norm as NormModule
from glassformer.layers.cache import Cache
from glassformer.layers.compiled_stack import CompiledStack, Form, Map, Maps, Norm, Tables, Vocabulary
from glassformer.layers.embedding import Embedding
from glassformer.layers.feedforward import ACTIVATIONS
from glassformer.layers.norm import LayerNorm
from glassformer.layers.products import Product, plain
from glassformer.layers.trails import Array, Trails

SHORT = 64  # places of a source, up to which C reads it


def without_modules(
    embedding: Embedding, blocks: Sequence[Block], norm: NormModule | None, output: nn.Linear | None
) -> BareStack:
    """C knows single precision, and weights that are kept turned."""
    parts = (part for part in (embedding, *blocks, norm, output) if part is not None)
    known = compiled.library() is not None and small(blocks, output) and embedding.token.weight.is_contiguous()
    known = known and all(plain(weight) for part in parts for weight in part.parameters())
    return (InC if known else BareStack)(embedding, blocks, norm, output)


class InC(BareStack):
    """A `BareStack` whose steps are C's, and so are short sources that come alone."""

    def __init__(self, embedding: Embedding, blocks: Sequence[Block], norm: NormModule | None, output: nn.Linear | None) -> None:
        super().__init__(embedding, blocks, norm, None)
        own = self.blocks[0].own
        form = Form(own.heads, own.kv_heads, own.d_k, own.d_v, blocks[0].post, _name(blocks[0]), self.embed.scale)
        turns = None if own.rotary is None else (_copied(own.rotary.cos), _copied(own.rotary.sin))
        position = None if self.embed.position is None else _copied(self.embed.position)
        tables = Tables(_shared(self.embed.token), position, turns)
        maps = [_maps(*each) for each in zip(self.blocks, blocks, strict=True)]
        self.stack = CompiledStack(form, tables, maps, _norm(norm))
        if output is not None:
            weight, bias = output.weight, None if output.bias is None else _copied(output.bias)
            self.logits = Vocabulary(lambda: _shared(weight), bias)

    def __deepcopy__(self, memo: Any) -> "InC":
        return self  # it never changes

    def read(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None or ids.size(0) != 1 or ids.size(1) > SHORT:
            return super().read(ids, mask)
        return torch.from_numpy(self._where_tokens_are().read(ids[0].numpy())).unsqueeze(0)

    def begin(self, rows: int, blocks: Sequence[BlockState], memory: Tensor | None, mask: Tensor | None) -> Trails:
        assert (memory is None) == (self.blocks[0].cross is None)
        sources = None
        if memory is not None:
            bias = None if mask is None else np.where(mask.flatten(1).numpy(), np.float32(0), np.float32(-np.inf))
            sources = self.stack.look_up(_single(memory), bias)
        if not blocks:
            return self.stack.begin(rows, sources)
        both = np.concatenate([np.stack([_single(x) for x in each]) for each in _columns(blocks)], axis=-1)
        return Trails.beginning(both, both.shape[3], sources)

    def step(self, ids: Tensor, cache: Cache | Trails) -> tuple[Tensor, Trails]:
        assert isinstance(cache, Trails)
        x, trails = self._where_tokens_are().step(ids.numpy(), cache)
        return torch.from_numpy(self.logits(x)), trails

    def _where_tokens_are(self) -> CompiledStack:
        """The table is the model's own, which may have been moved since."""
        token, told = self.embed.token, self.stack.told
        if not plain(token) or not token.is_contiguous() or token.shape != (told.vocabulary, told.width):
            raise TypeError("the model has other weights than when this state began")
        told.tokens = token.data_ptr()
        return self.stack


def blocks_of(trails: Trails, d_k: int) -> tuple[BlockState, ...]:
    """The same for modules: what each block remembers, row by row."""
    own = [_apart(x, d_k) for x in torch.from_numpy(trails.gathered())]
    if trails.sources is None:
        return tuple(BlockState(each, None) for each in own)
    sources = [_apart(torch.from_numpy(x[trails.looked_at]).transpose(1, 2), d_k) for x in trails.sources.both]
    return tuple(BlockState(*each) for each in zip(own, sources, strict=True))


def _apart(both: Tensor, d_k: int) -> KeyValues:
    return KeyValues(*both.split_with_sizes((d_k, both.size(3) - d_k), 3))


def _columns(blocks: Sequence[BlockState]) -> tuple[list[Tensor], list[Tensor]]:
    return [block.own.k for block in blocks], [block.own.v for block in blocks]


def _maps(bare: BareBlock, block: Block) -> Maps:
    cross = bare.cross
    return Maps(
        norms=(_norm(block.norm1), _norm(block.norm2), _norm(block.norm3)),
        joined=_map(bare.own.joined),
        o=_map(bare.own.o),
        q=_map(cross.q) if cross else None,
        both=_map(cross.both) if cross else None,
        cross_o=_map(cross.o) if cross else None,
        w1=_map(bare.w1),
        w2=_map(bare.w2),
        w3=_map(bare.w3) if bare.w3 else None,
    )


def _map(product: Product) -> Map:
    """Its matrix is not the model's but turned; a bias may be."""
    return Map(_shared(product.w), None if product.bias is None else _copied(product.bias))


def _norm(norm: NormModule | None) -> Norm | None:
    if norm is None:
        return None
    bias = norm.bias if isinstance(norm, LayerNorm) else None
    return Norm(_copied(norm.weight), None if bias is None else _copied(bias), norm.epsilon, isinstance(norm, LayerNorm))


def _name(block: Block) -> str:
    return next(name for name, function in ACTIVATIONS.items() if function is block.ffn.activation)


def _shared(x: Tensor) -> Array:
    found: Array = x.detach().numpy()
    return found


def _copied(x: Tensor) -> Array:
    """Whoever moves a parameter, as `share_memory` does, would leave C with an address where nothing is."""
    return _shared(x).copy()


def _single(x: Tensor) -> Array:
    if x.dtype != torch.float32:
        raise TypeError(f"a state in {x.dtype}, for weights in single precision")
    return _shared(x)
