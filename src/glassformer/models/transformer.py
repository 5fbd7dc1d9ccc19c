"""The encoder–decoder Transformer of "Attention Is All You Need" (Vaswani et al. 2017)."""

from torch import Tensor, nn

from glassformer.layers import masks
from glassformer.models.stack import Stack, State, initialise_xavier
from glassformer.options import TransformerOptions
from glassformer.trace import tap


class Transformer(nn.Module):
    """Reads a whole source, then writes a target token by token.

    `forward` is training: all target positions at once under a causal mask. `start` and `step` are generation: the same
    numbers one position at a time, with the keys and values of earlier ones kept.
    """

    def __init__(self, options: TransformerOptions, source_vocabulary: int, target_vocabulary: int, pad: int = 0) -> None:
        super().__init__()
        self.options = options
        self.pad = pad
        self.encoder = Stack(options, source_vocabulary, options.encoder_layers)
        self.decoder = Stack(options, target_vocabulary, options.decoder_layers, cross=True)
        self.output = nn.Linear(options.width, target_vocabulary, bias=options.output_bias)
        initialise_xavier(self)
        nn.init.normal_(self.output.weight, std=options.width**-0.5)
        if options.tie != "none":
            self.output.weight = self.decoder.embed.token.weight
        if options.tie == "all":
            self.encoder.embed.token.weight = self.decoder.embed.token.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """source (B, S) and the target read so far (B, T) → the decoder's last states (B, T, D), of which `logits` predict."""
        mask = masks.padding(source, self.pad)
        memory, _ = self.encoder(source, mask=mask)
        causal = masks.causal(target.size(1))  # padding stands at the end, where nothing real looks at it
        states, _ = self.decoder(target, memory, mask=causal, memory_mask=mask)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return tap(self, "logits", self.output(states))

    def start(self, source: Tensor) -> State:
        """Encodes the source (B, S)."""
        mask = masks.padding(source, self.pad)
        return State(self.encoder.read(source, mask), mask, bare=self.decoder.bare(self.output))

    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """The token each target ends in (B) → logits of the next (B, V), and the state after reading it."""
        return self.decoder.step(ids, state, self.logits)
