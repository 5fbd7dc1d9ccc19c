"""A stack of blocks by layers/compiled.c: one token more of each row, or one source, in one call. No torch is needed for it.

Of one sentence PyTorch takes longer from a call to its kernel than the kernel takes, and a token needs a hundred of them; of many
the attention of one query each is as many small products. What is computed is what `bare` computes, with the same weights.
"""

from collections.abc import Callable, Sequence
from ctypes import byref
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassformer.layers import compiled
from glassformer.layers.threads import SHARED, Shared, set_threads
from glassformer.layers.trails import Array, Sources, Trails

Ids = NDArray[np.int64]
ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "silu")  # compiled.c's numbers of them
WRONG = {1: "a token that is not in the vocabulary", 2: "a place beyond the model's positions"}


@dataclass(frozen=True)
class Map:
    """x W + b."""

    w: Array  # (inputs, outputs)
    b: Array | None = None

    def __call__(self, x: Array) -> Array:
        y: Array = x.dot(self.w)
        if self.b is not None:
            y += self.b
        return y


@dataclass(frozen=True)
class Norm:
    """LayerNorm, or RMSNorm where it is not centred."""

    weight: Array
    bias: Array | None
    epsilon: float
    centred: bool


@dataclass(frozen=True)
class Maps:
    """All that a block has been taught."""

    norms: tuple[Norm | None, Norm | None, Norm | None]  # of self-attention, cross-attention, FFN
    joined: Map  # self-attention: all queries, scaled by 1 / √d_k, then each head's keys beside its values
    o: Map
    q: Map | None  # cross-attention, its queries scaled as well
    both: Map | None  # … of the memory, each head's keys beside its values
    cross_o: Map | None
    w1: Map
    w2: Map
    w3: Map | None  # SwiGLU's


@dataclass(frozen=True)
class Form:
    """What is no weight."""

    heads: int
    kv_heads: int
    d_k: int
    d_v: int
    post: bool
    activation: str
    scale: float  # of tokens


@dataclass(frozen=True)
class Tables:
    token: Array  # (V, D)
    position: Array | None  # (places, D)
    turns: tuple[Array, Array] | None  # cosines and sines (places, d_k / 2) where positions turn queries and keys


class CompiledStack:
    """Calls compiled.c, which is there. Nothing of it changes but where somebody else's tokens stand."""

    def __init__(self, form: Form, tables: Tables, blocks: Sequence[Maps], norm: Norm | None) -> None:
        self.form, self.blocks, self.width = form, blocks, tables.token.shape[1]
        self.kept: list[Array] = []  # whose addresses stand in what follows
        turns = tables.turns or (None, None)
        places = next((len(table) for table in (tables.position, *turns) if table is not None), 0)
        self.told = compiled.Stack(
            (compiled.Block * len(blocks))(*(self._block(block) for block in blocks)),
            *(len(blocks), self.width, form.heads, form.kv_heads, form.d_k, form.d_v, blocks[0].w1.w.shape[1]),
            *(form.post, ACTIVATIONS.index(form.activation)),
            *map(self._address, (tables.token, tables.position, *turns)),
            *(len(tables.token), places, form.scale, self._norm(norm)),
        )

    def read(self, ids: Ids) -> Array:
        """ids (S) of a whole source → the last states (S, D)."""
        return self._pass(ids, compiled.Known(rows=len(ids)))

    def look_up(self, memory: Array, bias: Array | None) -> Sources:
        """What all blocks will look up in a memory (N, S, D); bias (N, S) is −∞ where nobody may look."""
        count, length, width = memory.shape
        rows, form = memory.reshape(-1, width), self.form
        shape = count, length, form.kv_heads, form.d_k + form.d_v
        return Sources([block.both(rows).reshape(shape) for block in self.blocks if block.both], bias)

    def begin(self, rows: int, sources: Sources | None = None) -> Trails:
        """Before the first token of each row."""
        form = self.form
        return Trails.beginning(np.empty((len(self.blocks), rows, form.kv_heads, 0, form.d_k + form.d_v), np.float32), 0, sources)

    def step(self, ids: Ids, trails: Trails) -> tuple[Array, Trails]:
        """One token of each row (B) → the last states (B, D), and what is known then."""
        if len(ids) != len(trails.slots):
            raise ValueError(f"{len(ids)} tokens for {len(trails.slots)} rows")
        trails = trails.longer()
        both, sources = trails.room.both, trails.sources
        _, slots, _, room, _ = both.shape
        known = compiled.Known(len(ids), trails.length - 1, compiled.address(both), slots, room, compiled.address(trails.slots))
        if sources is not None:
            known.sources, known.bias, known.source_length = sources.told
            known.looked_at = compiled.address(trails.looked_at)
        return self._pass(ids, known), trails

    def _pass(self, ids: Ids, known: compiled.Known) -> Array:
        found, x = compiled.library(), np.empty((len(ids), self.width), np.float32)
        assert found is not None
        ids = np.ascontiguousarray(ids, np.int64)
        wrong = found.compiled_pass(byref(self.told), compiled.address(ids), byref(known), compiled.address(x))
        if wrong:
            raise IndexError(WRONG[wrong]) if wrong in WRONG else MemoryError
        return x

    # -- what compiled.c is told, once

    def _block(self, block: Maps) -> compiled.Block:
        maps = (block.joined, block.o, block.q, block.cross_o, block.w1, block.w2, block.w3)
        return compiled.Block((compiled.Norm * 3)(*map(self._norm, block.norms)), *map(self._linear, maps))

    def _linear(self, map: Map | None) -> compiled.Linear:
        if map is None:
            return compiled.Linear()
        return compiled.Linear(self._address(map.w), self._address(map.b), *map.w.shape)

    def _norm(self, norm: Norm | None) -> compiled.Norm:
        if norm is None:
            return compiled.Norm()
        return compiled.Norm(self._address(norm.weight), self._address(norm.bias), norm.epsilon, norm.centred)

    def _address(self, x: Array | None) -> int | None:
        if x is None:
            return None
        if x.dtype != np.float32 or not x.flags.c_contiguous:
            raise TypeError(f"{x.dtype} {x.shape} {x.strides}, where C reads rows of single precision")
        self.kept.append(x)
        return compiled.address(x)


class Vocabulary:
    """Logits x Wᵀ + b (B, V) of W (V, D). One row is NumPy's, by all cores where that pays; more are C's, by W in panels. Where W
    is somebody else's and may be moved, it is asked for each time."""

    def __init__(self, weight: Callable[[], Array], bias: Array | None) -> None:
        def one(x: Array) -> Array:
            return Map(weight().T, bias)(x)

        first = weight()
        self.one = Shared(one, set_threads, first.size) if first.size >= SHARED else one
        self.few = compiled.Panels(first.T, bias)

    def __call__(self, x: Array) -> Array:
        logits: Array = (self.one if len(x) == 1 else self.few)(x)
        return logits
