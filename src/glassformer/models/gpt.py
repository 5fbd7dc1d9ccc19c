"""The decoder alone: each token is predicted from those before it. GPT-2 and Llama are this model with other options."""

from dataclasses import replace

from torch import Tensor, nn

from glassformer.layers import masks
from glassformer.models.stack import Stack, State, initialise_small
from glassformer.options import GPTOptions
from glassformer.trace import tap


class GPT(nn.Module):
    """Blocks without cross-attention under a causal mask.

    `forward` reads whole windows. `start` reads a prompt and `step` a token more, with the keys and values of earlier ones kept.
    """

    def __init__(self, options: GPTOptions, vocabulary: int) -> None:
        super().__init__()
        self.options = options
        self.decoder = Stack(options, vocabulary, options.layers)
        self.output = nn.Linear(options.width, vocabulary, bias=False)
        initialise_small(self, options.layers)
        if options.tie:
            self.output.weight = self.decoder.embed.token.weight

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T) → the last states (B, T, D), of which `logits` predict; padding at the end of a row is looked at by none."""
        return self.decoder(ids, mask=_causal(ids))[0]

    def logits(self, states: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return tap(self, "logits", self.output(states))

    def start(self, prompt: Tensor) -> State:
        """Reads a prompt (B, T) of any length, also none."""
        state = State(bare=self.decoder.bare(self.output))
        if not prompt.size(1):
            return state
        _, blocks = self.decoder(prompt, mask=_causal(prompt))
        return replace(state, blocks=blocks, length=prompt.size(1))

    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """The token each text ends in (B) → logits of the next (B, V), and the state after reading it."""
        return self.decoder.step(ids, state, self.logits)


def _causal(ids: Tensor) -> Tensor | None:
    return masks.causal(ids.size(1)) if ids.size(1) > 1 else None
