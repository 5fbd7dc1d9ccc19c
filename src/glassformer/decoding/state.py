"""What decoding asks of a model: nothing but `step` and a state with `reorder(index)`, whose row i is the old row index[i]."""

from dataclasses import dataclass, field
from typing import Any, Protocol

PATIENCE = 2  # times a beam's width: how many sequences must have ended before the search ends


class Model(Protocol):
    """One that takes arrays instead of tensors has `numbers`, which makes them."""

    def step(self, ids: Any, state: Any) -> tuple[Any, Any]:
        """The last token of each row (B) → logits of the next (B, V), and the state after reading it."""


@dataclass(frozen=True)
class Limits:
    """Where a sequence begins and ends. Lengths count tokens without the end mark, one maximum per row."""

    bos: int
    eos: int
    max_lengths: list[int]
    min_length: int = 0
    banned: tuple[int, ...] = ()  # never written: padding and the like


@dataclass
class Hypothesis:
    """A finished sequence: its tokens without the end mark, and log p of each token and the end mark."""

    ids: list[int]
    log_probs: list[float] = field(default_factory=list)
    score: float = 0.0  # Σ log p ÷ lengthᵅ: what beams are ranked by

    @property
    def log_prob(self) -> float:
        return sum(self.log_probs)
