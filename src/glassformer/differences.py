"""Two passes beside each other: which tokens stand for each other, and how much their tensors and predictions differ.

pair = Pair(a, b)                       # two traces
pair.difference("encoder.1.resid_post") # b − a, or a UserError that says why there is none
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

import torch
from torch import Tensor

from glassformer import answers
from glassformer.errors import UserError
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Token, Trace

Pairs = list[tuple[int, int]]
BY = ("place", "token")


class NoDifference(UserError):
    """Why two tensors cannot be subtracted, as a short code for the page, and as a sentence."""

    def __init__(self, why: str, sentence: str) -> None:
        super().__init__(sentence)
        self.why = why


@dataclass(frozen=True)
class Pair:
    """Two passes. Rows and columns that stand for tokens are paired by place, where both read as many, or by equal tokens."""

    a: Trace
    b: Trace
    by: str = "place"
    same_words: bool = True  # the output rows of both mean the same answers
    key: Callable[[Token], Any] = lambda token: token.id  # equal for equal tokens
    pairs: dict[str, Pairs] = field(init=False)

    def __post_init__(self) -> None:
        sides = {"source": (self.a.source_tokens, self.b.source_tokens), "target": (self.a.target_tokens, self.b.target_tokens)}
        found = {side: paired(*both, self.by, self.key) for side, both in sides.items()}
        object.__setattr__(self, "pairs", found)

    def why_not(self, name: str) -> NoDifference | None:
        """What speaks against a difference of this tensor."""
        missing = [which for which, trace in (("first", self.a), ("second", self.b)) if name not in trace]
        if missing:
            return NoDifference(f"not-in-{missing[0]}", f"The {missing[0]} pass has no tensor {name!r}.")
        axes = self.a.axes(name)
        if axes != self.b.axes(name):
            return NoDifference("axes", f"The axes of {name} are {axes} and {self.b.axes(name)}.")
        if "V" in axes and not self.same_words:
            return NoDifference("vocabulary", "The two models answer with different words, so a column means something else.")
        for letter, one, other in zip(axes, self.a[name].shape, self.b[name].shape, strict=True):
            if letter in ("T", "S"):
                if not self.pairs[side_of(self.a, name, letter)]:
                    if self.by == "place":
                        return NoDifference("lengths", f"One pass has {one} tokens along {letter}, the other {other}.")
                    return NoDifference("no-token", "The two have no token in common.")
            elif one != other:
                return NoDifference("sizes", f"{name} has {one} along {letter} in one model and {other} in the other.")
        return None

    def parts(self, name: str) -> tuple[Tensor, Tensor]:
        """The tensor in both passes, cut to the tokens that are paired."""
        problem = self.why_not(name)
        if problem:
            raise problem
        both = []
        for which, trace in enumerate((self.a, self.b)):
            x = trace[name]
            for axis, letter in enumerate(trace.axes(name)):
                pairs = self.pairs[side_of(trace, name, letter)] if letter in ("T", "S") else None
                if pairs is not None and len(pairs) != x.size(axis):
                    x = x.index_select(axis, torch.tensor([pair[which] for pair in pairs]))
            both.append(x)
        return both[0], both[1]

    def difference(self, name: str) -> Tensor:
        """b − a; where both are −∞ there is no difference."""
        a, b = self.parts(name)
        return torch.where(a == b, 0.0, b - a)


def side_of(trace: Trace, name: str, letter: str) -> str:
    return "target" if trace.tokens_along(name, letter) is trace.target_tokens else "source"


def paired(a: list[Token], b: list[Token], by: str, key: Callable[[Token], Any]) -> Pairs:
    """Which tokens stand for each other: those at one place if there are as many, or equal ones in the same order."""
    if by == "place":
        return [(i, i) for i in range(len(a))] if len(a) == len(b) else []
    blocks = SequenceMatcher(None, [key(token) for token in a], [key(token) for token in b], autojunk=False)
    return [(i + k, j + k) for i, j, size in blocks.get_matching_blocks() for k in range(size)]


def same_words(one: Any, other: Any) -> bool:
    """Whether two models answer with the same tokens or labels."""
    if one is other:
        return True
    if (labels := getattr(one, "labels", None)) is not None or getattr(other, "labels", None) is not None:
        return bool(labels == getattr(other, "labels", None))
    return same_vocabulary(answers.tokenizer_of(one), answers.tokenizer_of(other))


def same_vocabulary(one: Tokenizer, other: Tokenizer) -> bool:
    if one is other:
        return True
    return one.size == other.size and all(one.spell([id]) == other.spell([id]) for id in range(one.size))


def outputs(one: Any, a: Tensor, other: Any, b: Tensor, count: int = 12) -> dict[str, Any]:
    """Two distributions over what may be answered, ready for JSON: the likeliest of either with its probability in both, and
    how much of the probability is elsewhere. Models with different words are compared by how a word is written."""
    same = same_words(one, other)
    best = [answers.top(task, p, count) for task, p in ((one, a), (other, b))]
    rows: dict[Any, dict[str, Any]] = {}
    for which, found in enumerate(best):
        for each in found:
            row = rows.setdefault(each["id"] if same else each["text"], {"text": each["text"], "before": None, "after": None})
            row["after" if which else "before"] = each["p"]
    if same:
        for id, row in rows.items():
            row |= {"id": id, "before": a[id].item(), "after": b[id].item()}
    ranked = sorted(rows.values(), key=lambda row: -max(row["before"] or 0.0, row["after"] or 0.0))
    return {"same_words": same, "rows": ranked, "moved": ((a - b).abs().sum() / 2).item() if same else None}
