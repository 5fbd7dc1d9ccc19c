"""What the Transformer replaced: recurrent encoders and decoders, with a fixed context or with attention."""

from dataclasses import dataclass

from torch import Tensor, nn

from glassformer.layers import masks
from glassformer.layers.attention import Attention, KeyValues
from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import Embedding
from glassformer.layers.recurrent import Attending, Bidirectional, Hidden, Recurrent
from glassformer.models.stack import initialise_xavier
from glassformer.options import RnnOptions
from glassformer.trace import tap


@dataclass(frozen=True)
class State:
    """Where a text stands: what every decoder layer remembers, and the encoded source if it is looked at. A value: steps return
    a new one."""

    layers: tuple[Hidden, ...] = ()
    memory: Tensor | None = None  # (B, S, D)
    memory_mask: Tensor | None = None  # (B, 1, 1, S)
    known: KeyValues | None = None  # keys and values of the memory

    def reorder(self, index: Tensor) -> "State":
        """The state whose row i is this one's row index[i]."""
        memory, mask, known = self.memory, self.memory_mask, self.known
        return State(
            tuple(layer.reorder(index) for layer in self.layers),
            None if memory is None else memory.index_select(0, index),
            None if mask is None else mask.index_select(0, index),
            None if known is None else known.reorder(index),
        )


class Encoder(nn.Module):
    """An embedding and N recurrent layers, named 0 … N−1, each perhaps in both directions."""

    def __init__(self, options: RnnOptions, vocabulary: int) -> None:
        super().__init__()
        o = options
        self.depth = o.layers
        self.embed = _embedding(o, vocabulary)
        for i in range(o.layers):
            layer = Bidirectional(o.cell, o.width, o.width) if o.bidirectional else Recurrent(o.cell, o.width, o.width)
            self.add_module(str(i), layer)
        self.dropout = Dropout(o.dropout)

    def forward(self, ids: Tensor, real: Tensor | None = None) -> tuple[Tensor, tuple[Hidden, ...]]:
        """ids (B, S), real (B, S) False for padding → the last layer's states (B, S, D), and what every layer ended in."""
        x, ends = self.embed(ids), []
        for i in range(self.depth):
            x, end = self.get_submodule(str(i))(x, real)
            x = self.dropout(x)
            ends.append(end)
        return x, tuple(ends)


class Decoder(nn.Module):
    """An embedding and N recurrent layers from left to right; the last perhaps looks at a memory."""

    def __init__(self, options: RnnOptions, vocabulary: int) -> None:
        super().__init__()
        o = options
        self.depth = o.layers
        self.embed = _embedding(o, vocabulary)
        for i in range(o.layers):
            layer = Recurrent(o.cell, o.width, o.width)
            if o.attention != "none" and i == o.layers - 1:
                cross = Attention(o.width, 1, d_k=o.key_width, d_v=o.width, scores=o.attention)
                layer = Attending(o.cell, o.width, o.width, cross)
            self.add_module(str(i), layer)
        self.dropout = Dropout(o.dropout)

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """ids (B, T) → the last states (B, T, D), and the state after reading them."""
        x, known, remembered = self.embed(ids), state.known, []
        for i in range(self.depth):
            layer = self.get_submodule(str(i))
            x, new = layer(x, state=state.layers[i] if state.layers else None)
            if isinstance(layer, Attending):
                assert state.memory is not None
                x, known = layer.look(x, state.memory, state.memory_mask, known)
            x = self.dropout(x)
            remembered.append(new)
        return x, State(tuple(remembered), state.memory, state.memory_mask, known)


class RecurrentTranslator(nn.Module):
    """Reads a source into a context C, what its encoder ended in, and writes a target from it: N to M.

    With attention the decoder also looks at the encoder's states of all source tokens. `forward`, `start` and `step` are
    what a Transformer has, so the same search writes with both.
    """

    def __init__(self, options: RnnOptions, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        super().__init__()
        self.options = options
        self.pad = pad
        self.encoder = Encoder(options, source_vocabulary)
        self.decoder = Decoder(options, target_vocabulary)
        self.output = nn.Linear(options.width, target_vocabulary)
        initialise_xavier(self)
        if options.tie != "none":
            self.output.weight = self.decoder.embed.token.weight
        if options.tie == "all":
            self.encoder.embed.token.weight = self.decoder.embed.token.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """source (B, S) and the target read so far (B, T) → the decoder's last states (B, T, D), of which `logits` predict."""
        return self.decoder(target, self.start(source))[0]  # padding of the target stands at its end, and nothing reads it

    def logits(self, states: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return tap(self, "logits", self.output(states))

    def start(self, source: Tensor) -> State:
        """Encodes the source (B, S)."""
        mask = masks.padding(source, self.pad)
        memory, ends = self.encoder(source, None if mask is None else mask[:, 0, 0])
        return State(ends) if self.options.attention == "none" else State(ends, memory, mask)

    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """The token each target ends in (B) → logits of the next (B, V), and the state after reading it."""
        states, state = self.decoder(ids.unsqueeze(1), state)
        return self.logits(states[:, -1]), state


class RecurrentLanguage(nn.Module):
    """The decoder alone: every token is predicted from the state that has read those before it."""

    def __init__(self, options: RnnOptions, vocabulary: int) -> None:
        super().__init__()
        self.options = options
        self.decoder = Decoder(options, vocabulary)
        self.output = nn.Linear(options.width, vocabulary, bias=False)
        initialise_xavier(self)
        if options.tie != "none":
            self.output.weight = self.decoder.embed.token.weight

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T) → the last states (B, T, D), of which `logits` predict."""
        return self.decoder(ids, State())[0]

    def logits(self, states: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return tap(self, "logits", self.output(states))

    def start(self, prompt: Tensor) -> State:
        """Reads a prompt (B, T) of any length, also none."""
        return self.decoder(prompt, State())[1] if prompt.size(1) else State()

    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """The token each text ends in (B) → logits of the next (B, V), and the state after reading it."""
        states, state = self.decoder(ids.unsqueeze(1), state)
        return self.logits(states[:, -1]), state


class RecurrentReader(nn.Module):
    """The encoder alone, and a head that says what is made of its states."""

    def __init__(self, options: RnnOptions, vocabulary: int, head: nn.Module, pad: int = 0) -> None:
        super().__init__()
        self.options = options
        self.pad = pad
        self.encoder = Encoder(options, vocabulary)
        self.head = head
        initialise_xavier(self)

    def forward(self, ids: Tensor, types: Tensor | None = None) -> Tensor:
        """ids (B, T) → the last states (B, T, D)."""
        mask = masks.padding(ids, self.pad)
        return self.encoder(ids, None if mask is None else mask[:, 0, 0])[0]

    def logits(self, states: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, D) → whatever the head predicts; `real` (B, T) is False where a row is padded."""
        return tap(self, "logits", self.head(tap(self.head, "in", states), real))


def _embedding(o: RnnOptions, vocabulary: int) -> Embedding:
    """Without positions: the order of the tokens is the order they are read in."""
    return Embedding(vocabulary, o.width, positions="none", max_length=o.max_length, dropout=o.dropout)
