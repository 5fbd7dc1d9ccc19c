"""How one number of a trace came about: its operands, the arithmetic, and the result of doing it again in float64.

Every row of notation.py has a rule. Operands are other tensors of the same trace and weights of the model, so a person can go
on from any of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from glassformer.errors import UserError
from glassformer.explain.cell import Place
from glassformer.explain.rules import RULES, edited
from glassformer.notation import describe
from glassformer.trace import Trace

__all__ = ["RULES", "Cell", "explain"]


@dataclass(frozen=True)
class Cell:
    name: str
    index: list[int]
    value: float  # as the model computed it
    equation: str
    terms: dict[str, Any]  # "kind" says which; the operands with their names, places and values
    result: float  # computed again from the operands
    steps: list[str]  # the arithmetic, written out

    @property
    def difference(self) -> float:
        return 0.0 if self.result == self.value else abs(self.result - self.value)


def explain(model: nn.Module, trace: Trace, name: str, index: Sequence[int]) -> Cell:
    """The number at `index` of a traced tensor, from its operands."""
    if name not in trace:
        raise UserError(f"This pass has no tensor {name!r}.")
    shape = trace[name].shape
    if len(index) != len(shape) or any(not 0 <= i < size for i, size in zip(index, shape, strict=True)):
        raise UserError(f"{name} has the shape {tuple(shape)}; there is no {list(index)} in it.")
    rule = edited if name in trace.edited else RULES[describe(name).name]
    equation, terms, result, steps = rule(Place(model, trace, name, tuple(index)))
    return Cell(name, list(index), trace[name][tuple(index)].item(), equation, terms, result, steps)
