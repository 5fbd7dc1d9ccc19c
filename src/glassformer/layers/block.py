"""The block all Transformers are stacked from: self-attention, perhaps cross-attention, feed-forward, each with a residual."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from glassformer.layers.attention import Attention, KeyValues
from glassformer.layers.dropout import Dropout
from glassformer.layers.feedforward import FeedForward
from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.trace import tap

Norm = LayerNorm | RMSNorm


@dataclass(frozen=True)
class BlockState:
    """What one block remembers between decoding steps."""

    own: KeyValues
    cross: KeyValues | None

    def reorder(self, index: Tensor, sources: Tensor | None) -> "BlockState":
        """Whose row i is this one's row index[i]; of what was looked up in the memory the rows `sources`, or all."""
        cross = self.cross
        if cross is not None and sources is not None:
            cross = cross.reorder(sources)
        return BlockState(self.own.reorder(index), cross)


class Block(nn.Module):
    """post (the paper's): LayerNorm(x + Sublayer(x));  pre: x + Sublayer(LayerNorm(x))."""

    def __init__(
        self,
        attention: Attention,
        cross: Attention | None,
        ffn: FeedForward,
        *,
        norm: Callable[[], Norm],
        post: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.post = post
        self.self = attention
        self.norm1 = norm()
        self.cross = cross
        self.norm2 = norm() if cross else None
        self.ffn = ffn
        self.norm3 = norm()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        state: BlockState | None = None,
    ) -> tuple[Tensor, BlockState]:
        """x (B, T, D), memory (B, S, D) → (B, T, D) and the state that a next step continues from."""
        x = tap(self, "resid_pre", x)
        out, own = self.self(self._before(self.norm1, x), mask=mask, state=state.own if state else None)
        x = tap(self, "resid_mid", self._after(self.norm1, x, out))
        known = None
        if self.cross is not None and self.norm2 is not None:
            query = self._before(self.norm2, x)
            out, known = self.cross(query, memory, mask=memory_mask, state=state.cross if state else None)
            x = tap(self, "resid_cross", self._after(self.norm2, x, out))
        x = self._after(self.norm3, x, self.ffn(self._before(self.norm3, x)))
        return tap(self, "resid_post", x), BlockState(own, known)

    def _before(self, norm: Norm, x: Tensor) -> Tensor:
        return x if self.post else norm(x)

    def _after(self, norm: Norm, x: Tensor, out: Tensor) -> Tensor:
        x = self.dropout.onto(x, out)
        return norm(x) if self.post else x
