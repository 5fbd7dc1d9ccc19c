"""Rename rules that run both ways: what another library calls a tensor, what we call it, and how its numbers are laid out.

A rule names a module, so that its weight and bias go together; `{i}` is the number of a block. Whatever a rule does is undone by
running it backwards, and run backwards on a model without numbers it says which tensors a file must hold.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Layout(NamedTuple):
    """How numbers are arranged: two functions that undo each other."""

    to_ours: Callable[[Tensor], Tensor]
    to_theirs: Callable[[Tensor], Tensor]


SAME = Layout(lambda x: x, lambda x: x)
TRANSPOSED = Layout(lambda x: x.t(), lambda x: x.t())  # GPT-2's Conv1D keeps (in, out); the bias is a vector and stays
ONE_ROW = Layout(lambda x: x.squeeze(0), lambda x: x.unsqueeze(0))  # (1, n) ⇄ (n)


def interleaved(heads: int) -> Layout:
    """Queries and keys of rotary attention, (H · d, …): pairs (2i, 2i + 1) of theirs are (i, i + d/2) of ours."""

    def turned(x: Tensor, outer: int, inner: int) -> Tensor:
        return x.unflatten(0, (heads, outer, inner)).transpose(1, 2).flatten(0, 2)

    return Layout(
        lambda x: turned(x, x.size(0) // heads // 2, 2),
        lambda x: turned(x, 2, x.size(0) // heads // 2),
    )


def reading(order: Tensor) -> Layout:
    """Of a module that reads the residual stream, whose numbers stand in another order there: number i of ours is order[i]
    of theirs. The weight has D as its last axis, the bias has none."""
    back = order.argsort()

    def along(x: Tensor, index: Tensor) -> Tensor:
        return x.index_select(1, index.to(x.device)) if x.dim() == 2 else x

    return Layout(lambda x: along(x, order), lambda x: along(x, back))


def writing(order: Tensor) -> Layout:
    """Of a module that writes to the residual stream, or normalises it: weight and bias have D as their first axis."""
    back = order.argsort()
    return Layout(lambda x: x.index_select(0, order.to(x.device)), lambda x: x.index_select(0, back.to(x.device)))


@dataclass(frozen=True)
class Rule:
    """Several modules of ours may be one of theirs, stacked on their first axis."""

    ours: str  # names with spaces between
    theirs: str
    layout: Layout = SAME


@dataclass(frozen=True)
class Step:
    """One tensor of theirs, and which it is (or they are) of ours."""

    ours: tuple[str, ...]
    theirs: str
    layout: Layout


def plan(rules: Iterable[Rule], ours: Iterable[str]) -> list[Step]:
    """The rules applied to the tensors that our model has, in the order of the rules. Every tensor has its rule."""
    names = list(ours)
    left = set(names)
    steps = []
    for rule in rules:
        first, *others = rule.ours.split()
        pattern = re.compile(re.escape(first).replace(r"\{i\}", r"(?P<i>\d+)") + r"(?P<part>\.weight|\.bias)?")
        for name in names:
            if not (match := pattern.fullmatch(name)):
                continue
            i, part = match.groupdict().get("i") or "", match["part"] or ""
            joined = (name, *(other.replace("{i}", i) + part for other in others))
            steps.append(Step(joined, rule.theirs.replace("{i}", i) + part, rule.layout))
            left.difference_update(joined)
    assert not left, f"no rule for {sorted(left)}"
    return steps


def to_theirs(steps: Sequence[Step], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {step.theirs: step.layout.to_theirs(torch.cat([ours[name] for name in step.ours])) for step in steps}


def to_ours(steps: Sequence[Step], read: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """`read` gives a tensor of theirs by its name; they are read one after another."""
    found: dict[str, Tensor] = {}
    for step in steps:
        parts = step.layout.to_ours(read(step.theirs)).chunk(len(step.ours))
        found.update(zip(step.ours, (part.clone(memory_format=torch.contiguous_format) for part in parts), strict=True))
    return found
