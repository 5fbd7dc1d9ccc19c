"""What all three families are made of: an embedding and N blocks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.layers.attention import Attention
from glassformer.layers.bare import BareStack
from glassformer.layers.block import Block, BlockState
from glassformer.layers.cache import Cache
from glassformer.layers.embedding import Embedding
from glassformer.layers.feedforward import FeedForward
from glassformer.layers.norm import normalisation
from glassformer.layers.positions import Rotary
from glassformer.layers.trails import Trails
from glassformer.layers.without_modules import blocks_of, without_modules
from glassformer.options import BertOptions, BlockOptions, TransformerOptions
from glassformer.trace import traced


@dataclass(frozen=True)
class State:
    """Where B texts stand: what every decoder block remembers, and the encoded sources if there are some. A value: steps return
    a new one.

    Rows that go on from one source, as beams do, share its N encoded rows: the first `sharing` rows look at the first, and so on.
    """

    memory: Tensor | None = None  # (N, S, D)
    memory_mask: Tensor | None = None  # (N, 1, 1, S)
    blocks: tuple[BlockState, ...] = ()
    length: int = 0  # tokens read so far
    sharing: int = 1  # B / N
    bare: BareStack | None = None  # the decoder without its modules
    cache: Cache | Trails | None = None  # what it has remembered in place of its blocks

    def reorder(self, index: Tensor) -> "State":
        """The state whose row i is this one's row index[i]."""
        if isinstance(self.cache, Trails):  # each row of which knows its source
            return State(self.memory, self.memory_mask, (), self.length, 1, self.bare, self.cache.reorder(index.numpy()))
        if self.memory is None:
            return self._of(index, None, 1)
        if len(self.memory) == 1:
            return self._of(index, None, index.size(0))
        sources, sharing = _shared([i // self.sharing for i in index.tolist()])
        same = sources == list(range(len(self.memory)))  # as mostly in a beam search
        return self._of(index, None if same else torch.tensor(sources, dtype=torch.long), sharing)

    def apart(self) -> "State":
        """The same for modules: each block remembers for itself, and every row has an encoded source of its own."""
        if isinstance(self.cache, Trails):
            assert self.bare is not None
            blocks = blocks_of(self.cache, self.bare.blocks[0].own.d_k)
            return replace(self, blocks=blocks, cache=None)._looking_at(torch.from_numpy(self.cache.looked_at).long())
        state = self if self.cache is None else replace(self, blocks=self.cache.blocks(), cache=None)
        if state.memory is None or state.sharing == 1:
            return state
        rows = torch.arange(len(state.memory) * state.sharing)
        return state._of(rows, rows // state.sharing, 1)

    def _looking_at(self, sources: Tensor) -> "State":
        """Of the encoded sources those rows."""
        if self.memory is None:
            return self
        mask = None if self.memory_mask is None else self.memory_mask.index_select(0, sources)
        return replace(self, memory=self.memory.index_select(0, sources), memory_mask=mask, sharing=1)

    def _of(self, index: Tensor, sources: Tensor | None, sharing: int) -> "State":
        """Those rows, with those encoded sources, or all."""
        memory, mask = self.memory, self.memory_mask
        if sources is not None and memory is not None:
            memory, mask = memory.index_select(0, sources), None if mask is None else mask.index_select(0, sources)
        blocks = tuple(block.reorder(index, sources) for block in self.blocks)
        cache = self.cache.reorder(index, sources) if isinstance(self.cache, Cache) else None
        return State(memory, mask, blocks, self.length, sharing, self.bare, cache)


def _shared(sources: list[int]) -> tuple[list[int], int]:
    """Which sources to keep, and how many rows share each, if row i looks at sources[i]."""
    runs = [(source, len(list(rows))) for source, rows in groupby(sources)]
    if len({count for _, count in runs}) == 1:
        return [source for source, _ in runs], runs[0][1]
    return sources, 1


class Stack(nn.Module):
    """An embedding and N blocks, named 0 … N−1; with pre-norm blocks one last normalisation."""

    def __init__(self, options: BlockOptions, vocabulary: int, depth: int, *, cross: bool = False) -> None:
        super().__init__()
        o = options
        self.depth = depth
        norm = partial(normalisation, o.norm_kind, o.width, o.epsilon, o.bias)
        bert = isinstance(o, BertOptions)
        self.embed = Embedding(
            vocabulary,
            o.width,
            positions=o.positions,
            max_length=o.max_length,
            dropout=o.dropout,
            scale=isinstance(o, TransformerOptions),
            types=o.types if isinstance(o, BertOptions) else 0,
            norm=norm() if bert and o.norm == "post" else None,
        )
        attention = partial(
            Attention,
            o.width,
            o.heads,
            kv_heads=o.kv_heads,
            d_k=o.key_width,
            d_v=o.value_width,
            scores=o.scores,
            bias=o.bias,
        )
        d_k = o.key_width or o.width // o.heads
        rotary = Rotary(o.max_length, d_k, o.rotary_base) if o.positions == "rotary" else None
        for i in range(depth):
            ffn = FeedForward(o.width, o.inner, activation=o.activation, bias=o.bias)
            other = attention() if cross else None
            block = Block(attention(rotary=rotary), other, ffn, norm=norm, post=o.norm == "post", dropout=o.dropout)
            self.add_module(str(i), block)
        self.norm = norm() if o.norm == "pre" else None
        self._additive = o.scores == "additive"
        self._parts: list[dict[str, nn.Parameter | None]] | None = None  # the modules' own: which modules there are never changes
        self._bare: tuple[list[tuple[int, int]], BareStack] | None = None

    def forward(
        self,
        ids: Tensor,
        memory: Tensor | None = None,
        *,
        types: Tensor | None = None,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        state: State | None = None,
    ) -> tuple[Tensor, tuple[BlockState, ...]]:
        """ids (B, T) → the last states (B, T, D), and what every block remembers."""
        x = self.embed(ids, state.length if state else 0, types)
        states = []
        for i in range(self.depth):
            known = state.blocks[i] if state and state.blocks else None
            x, new = self.get_submodule(str(i))(x, memory, mask=mask, memory_mask=memory_mask, state=known)
            states.append(new)
        return (self.norm(x) if self.norm else x), tuple(states)

    def train(self, mode: bool = True) -> "Stack":
        """An optimiser may change weights without a trace that `bare` would see, so what it made ends where training begins."""
        if mode:
            self._bare = None
        super().train(mode)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes anew what can be made anew, and could not be copied."""
        return {**self.__dict__, "_parts": None, "_bare": None}

    def bare(self, output: nn.Linear | None = None) -> BareStack | None:
        """This, and a decoder's `output`, without modules; made anew when weights have changed (though not through
        `.data`, which leaves no trace). Additive scores need modules, and so do numbers of half the precision now and then."""
        if self.training or self._additive or torch.is_autocast_enabled("cpu"):
            return None
        if self._parts is None:
            parts = [*self.modules(), *([output] if output is not None else [])]
            self._parts = [part._parameters for part in parts if part._parameters]  # to ask for them takes longer than a block
        weights = [weight for part in self._parts for weight in part.values() if weight is not None]
        stamps = [(w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights]
        known = self._bare
        if known is None or known[0] != stamps:
            blocks = [self.get_submodule(str(i)) for i in range(self.depth)]
            known = self._bare = stamps, without_modules(self.embed, blocks, self.norm, output)  # type: ignore[arg-type]
        return known[1]

    def read(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """An encoder's last states (B, S, D) of ids (B, S); without its modules, unless somebody looks or wants gradients."""
        bare = None if traced() or torch.is_grad_enabled() or not ids.numel() else self.bare()
        return self(ids, mask=mask)[0] if bare is None else bare.read(ids, mask)

    def step(self, ids: Tensor, state: State, logits: Callable[[Tensor], Tensor]) -> tuple[Tensor, State]:
        """One token of each row (B) → its `logits` (B, V), and the state after reading it."""
        memory, mask = state.memory, state.memory_mask
        bare = None if torch.is_autocast_enabled("cpu") else state.bare
        if bare is None or traced() or torch.is_grad_enabled():
            state = state.apart()
            states, blocks = self(ids.unsqueeze(1), state.memory, memory_mask=state.memory_mask, state=state)
            return logits(states[:, 0]), State(state.memory, state.memory_mask, blocks, state.length + 1, state.sharing, bare)
        cache = state.cache or bare.begin(ids.size(0), state.blocks, memory, mask)
        found, cache = bare.step(ids, cache)
        return found, State(memory, mask, (), state.length + 1, state.sharing, bare, cache)


def initialise_xavier(model: nn.Module) -> None:
    """Every matrix as wide as its rows and columns ask for (Glorot and Bengio), no bias."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, Attention) and module.w is not None:
            nn.init.normal_(module.w, std=module.d_k**-0.5)


def initialise_small(model: nn.Module, depth: int) -> None:
    """GPT-2's and BERT's beginning: small normal numbers, and smaller ones where N blocks add up to the residual stream."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            adds = name.endswith((".o", ".w2"))
            nn.init.normal_(module.weight, std=0.02 / (2 * depth) ** 0.5 if adds else 0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, Attention) and module.w is not None:
            nn.init.normal_(module.w, std=module.d_k**-0.5)


def parameters(model: nn.Module) -> int:
    """How many numbers are trained; shared matrices count once."""
    return sum(p.numel() for p in model.parameters())
