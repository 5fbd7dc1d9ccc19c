"""The encoder–decoder Transformer of "Attention Is All You Need" (Vaswani et al. 2017)."""

from dataclasses import dataclass, replace

from torch import Tensor, nn

from glassformer.config import TransformerOptions
from glassformer.layers import masks
from glassformer.layers.attention import Attention
from glassformer.layers.block import Block, BlockState
from glassformer.layers.embedding import Embedding
from glassformer.layers.feedforward import FeedForward
from glassformer.layers.norm import LayerNorm
from glassformer.layers.positions import Rotary
from glassformer.trace import tap


@dataclass(frozen=True)
class State:
    """Where a translation stands: the encoded source and what every decoder block remembers. A value: steps return a new one."""

    memory: Tensor  # (B, S, D)
    memory_mask: Tensor | None  # (B, 1, 1, S)
    blocks: tuple[BlockState, ...] = ()
    length: int = 0  # target tokens read so far

    def reorder(self, index: Tensor) -> "State":
        """The state whose row i is this one's row index[i]."""
        mask = self.memory_mask
        return replace(
            self,
            memory=self.memory.index_select(0, index),
            memory_mask=None if mask is None else mask.index_select(0, index),
            blocks=tuple(block.reorder(index) for block in self.blocks),
        )


class Stack(nn.Module):
    """An embedding and N blocks, named 0 … N−1; with pre-norm blocks one last normalisation."""

    def __init__(self, options: TransformerOptions, vocabulary: int, depth: int, *, cross: bool) -> None:
        super().__init__()
        o = options
        self.depth = depth
        self.embed = Embedding(vocabulary, o.width, positions=o.positions, max_length=o.max_length, dropout=o.dropout)
        rotary = Rotary(o.max_length, o.key_width or o.width // o.heads) if o.positions == "rotary" else None
        for i in range(depth):
            own = Attention(o.width, o.heads, d_k=o.key_width, d_v=o.value_width, scores=o.scores, rotary=rotary)
            other = Attention(o.width, o.heads, d_k=o.key_width, d_v=o.value_width, scores=o.scores) if cross else None
            ffn = FeedForward(o.width, o.inner, activation=o.activation)
            self.add_module(str(i), Block(own, other, ffn, norm=o.norm, dropout=o.dropout))
        self.norm = LayerNorm(o.width) if o.norm == "pre" else None

    def forward(
        self,
        ids: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        state: State | None = None,
    ) -> tuple[Tensor, tuple[BlockState, ...]]:
        x = self.embed(ids, state.length if state else 0)
        states = []
        for i in range(self.depth):
            known = state.blocks[i] if state and state.blocks else None
            x, new = self.get_submodule(str(i))(x, memory, mask=mask, memory_mask=memory_mask, state=known)
            states.append(new)
        return (self.norm(x) if self.norm else x), tuple(states)


class Transformer(nn.Module):
    """Reads a whole source, then writes a target token by token.

    `forward` is training: all target positions at once under a causal mask. `start` and `step` are generation: the same
    numbers one position at a time, with the keys and values of earlier ones kept.
    """

    def __init__(self, options: TransformerOptions, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        super().__init__()
        self.options = options
        self.pad = pad
        self.encoder = Stack(options, source_vocabulary, options.encoder_layers, cross=False)
        self.decoder = Stack(options, target_vocabulary, options.decoder_layers, cross=True)
        self.output = nn.Linear(options.width, target_vocabulary, bias=False)
        self._initialise()
        if options.tie != "none":
            self.output.weight = self.decoder.embed.token.weight
        if options.tie == "all":
            self.encoder.embed.token.weight = self.decoder.embed.token.weight

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, Attention) and module.w is not None:
                nn.init.normal_(module.w, std=module.d_k**-0.5)
        nn.init.normal_(self.output.weight, std=self.options.width**-0.5)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """source (B, S) and the target read so far (B, T) → the decoder's last states (B, T, D), of which `logits` predict."""
        begun = self.start(source)
        causal = masks.causal(target.size(1))  # padding stands at the end, where nothing real looks at it
        states, _ = self.decoder(target, begun.memory, mask=causal, memory_mask=begun.memory_mask)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return tap(self, "logits", self.output(states))

    def start(self, source: Tensor) -> State:
        """Encodes the source (B, S)."""
        mask = masks.padding(source, self.pad)
        memory, _ = self.encoder(source, mask=mask)
        return State(memory, mask)

    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """The token each target ends in (B) → logits of the next (B, V), and the state after reading it."""
        states, blocks = self.decoder(ids.unsqueeze(1), state.memory, memory_mask=state.memory_mask, state=state)
        return self.logits(states[:, -1]), replace(state, blocks=blocks, length=state.length + 1)


def parameters(model: nn.Module) -> int:
    """How many numbers are trained; shared matrices count once."""
    return sum(p.numel() for p in model.parameters())
