"""What all three families are made of: an embedding and N blocks."""

from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor, nn

from glassformer.config import BertOptions, BlockOptions, TransformerOptions
from glassformer.layers.attention import Attention
from glassformer.layers.block import Block, BlockState
from glassformer.layers.embedding import Embedding
from glassformer.layers.feedforward import FeedForward
from glassformer.layers.norm import normalisation
from glassformer.layers.positions import Rotary


@dataclass(frozen=True)
class State:
    """Where a text stands: what every decoder block remembers, and the encoded source if there is one. A value: steps return a
    new one."""

    memory: Tensor | None = None  # (B, S, D)
    memory_mask: Tensor | None = None  # (B, 1, 1, S)
    blocks: tuple[BlockState, ...] = ()
    length: int = 0  # tokens read so far

    def reorder(self, index: Tensor) -> "State":
        """The state whose row i is this one's row index[i]."""
        memory, mask = self.memory, self.memory_mask
        return replace(
            self,
            memory=None if memory is None else memory.index_select(0, index),
            memory_mask=None if mask is None else mask.index_select(0, index),
            blocks=tuple(block.reorder(index) for block in self.blocks),
        )


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
