"""How one number of a trace came about: its operands, the arithmetic, and the result of doing it again in float64.

Every row of notation.py has a rule. Operands are other tensors of the same trace and weights of the model, so a person can go
on from any of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from glassformer.errors import UserError
from glassformer.explain.cell import Around, Found, Place
from glassformer.explain.rules import RULES, edited
from glassformer.notation import describe
from glassformer.trace import Trace

__all__ = ["RULES", "Cell", "Explainer", "explain"]

Rule = Callable[[Place], Found]


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


class Explainer:
    """Explains the numbers of one pass, one after another."""

    def __init__(self, model: nn.Module, trace: Trace) -> None:
        self.around, self.trace = Around(model, trace), trace
        self._rules: dict[str, Rule] = {}

    def cell(self, name: str, index: Sequence[int]) -> Cell:
        """The number at `index` of a traced tensor, from its operands."""
        if name not in self.trace:
            raise UserError(f"This pass has no tensor {name!r}.")
        x = self.around.tensor(name)
        if len(index) != x.ndim or any(not 0 <= i < size for i, size in zip(index, x.shape, strict=True)):
            raise UserError(f"{name} has the shape {x.shape}; there is no {list(index)} in it.")
        if name not in self._rules:
            self._rules[name] = edited if name in self.trace.edited else RULES[describe(name).name]
        equation, terms, result, steps = self._rules[name](Place(self.around, name, tuple(index)))
        return Cell(name, list(index), float(x[tuple(index)]), equation, terms, result, steps)


def explain(model: nn.Module, trace: Trace, name: str, index: Sequence[int]) -> Cell:
    return Explainer(model, trace).cell(name, index)
