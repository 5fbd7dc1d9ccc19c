"""One number of a trace, what is around it, and the kinds of arithmetic it may come from."""

import math
from collections.abc import Callable, Iterable
from operator import mul
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glassformer.layers.feedforward import ACTIVATIONS
from glassformer.trace import Trace

Index = tuple[int | None, ...]  # None stands for a whole axis
Operand = dict[str, Any]  # name, index, whether it is a weight, and its value or values
Found = tuple[str, dict[str, Any], float, list[str]]  # equation, terms, result, steps


class Around:
    """The tensors of a pass and the weights of its model as arrays, each looked up once: an export opens all cells."""

    def __init__(self, model: nn.Module, trace: Trace) -> None:
        self.model, self.trace = model, trace
        self._taken: dict[str, NDArray[Any]] = {}
        self._weights: dict[str, NDArray[Any] | None] = {}

    def tensor(self, name: str) -> NDArray[Any]:
        if name not in self._taken:
            self._taken[name] = _array(self.trace[name])
        return self._taken[name]

    def weight(self, name: str) -> NDArray[Any] | None:
        """A parameter or table of the model; None if it has no such: there may be no bias."""
        if name not in self._weights:
            path, _, leaf = name.rpartition(".")
            found = getattr(self.model.get_submodule(path), leaf, None)
            self._weights[name] = _array(found) if isinstance(found, Tensor) else None
        return self._weights[name]


def _array(x: Tensor) -> NDArray[Any]:
    return (x if x.dtype == torch.float32 else x.double()).detach().numpy()


class Place:
    """One cell: where it is, and what is around it."""

    def __init__(self, around: Around, name: str, index: tuple[int, ...]) -> None:
        self.around, self.name, self.index = around, name, index
        self.model, self.trace = around.model, around.trace
        self.path, _, self.leaf = name.rpartition(".")  # decoder.1.cross, pattern
        self.block, _, self.part = self.path.rpartition(".")  # decoder.1, cross

    # -- operands

    def take(self, name: str, index: Index) -> Operand:
        """Numbers of a traced tensor, with where they are from: `values` where the index leaves an axis whole, else `value`."""
        return _operand(name, self.around.tensor(name), index, weight=False)

    def weight(self, name: str, index: Index) -> Operand:
        """The same of a parameter or table of the model."""
        found = self.around.weight(name)
        assert found is not None, name
        return _operand(name, found, index, weight=True)

    def has(self, name: str) -> bool:
        """Whether the model has these weights: there may be no bias."""
        return self.around.weight(name) is not None

    def sibling(self, leaf: str) -> str:
        return f"{self.path}.{leaf}"

    def module(self, path: str) -> Any:
        return self.model.get_submodule(path)

    @property
    def post(self) -> bool:
        return bool(self.model.options.norm == "post")

    def last_states(self, stack: str) -> str:
        """What a stack of blocks or recurrent layers ends in."""
        last = f"{stack}.{self.module(stack).depth - 1}"
        ends = (f"{stack}.norm.out", *(f"{last}.{leaf}" for leaf in ("resid_post", "combine.out", "joined", "hidden")))
        return next(name for name in ends if name in self.trace)

    def stream(self, block: str, sublayer: str) -> str:
        """The residual stream that a sublayer of a block adds to."""
        if sublayer == "self":
            return f"{block}.resid_pre"
        if sublayer == "cross" or f"{block}.resid_cross" not in self.trace:
            return f"{block}.resid_mid"
        return f"{block}.resid_cross"

    def sublayer_input(self) -> str:
        """What the queries, or the inner layer, are made of."""
        if f"{self.block}.hidden" in self.trace:  # of a recurrent layer that attends
            return f"{self.block}.hidden"
        if "encoder.features" in self.trace:
            return "encoder.features"
        norm = {"self": "norm1", "cross": "norm2", "ffn": "norm3"}[self.part]
        return self.stream(self.block, self.part) if self.post else f"{self.block}.{norm}.out"

    # -- kinds of arithmetic

    def dot(self, a: Operand, b: Operand, bias: Operand | None, equation: str) -> Found:
        """Σ a · b, plus a bias if there is one."""
        result = dot(a["values"], b["values"])
        steps = [sum_of_products(a["values"], b["values"], result)]
        if bias:
            steps.append(f"{shown(result)} + {shown(bias['value'])} = {shown(result + bias['value'])}")
            result += bias["value"]
        return equation, {"kind": "dot", "a": a, "b": b, "bias": bias["value"] if bias else None}, result, steps

    def linear(self, x: Operand, layer: str, row: int, equation: str, b: str = "") -> Found:
        """A row of W times a vector, plus b if the layer has one; `b` is what the equation calls it."""
        bias = self.weight(f"{layer}.bias", (row,)) if self.has(f"{layer}.bias") else None
        equation = f"{equation} + {b}" if b and bias else equation
        return self.dot(x, self.weight(f"{layer}.weight", (row, None)), bias, equation)

    def copy(self, name: str, index: Index, equation: str) -> Found:
        operand = self.take(name, index)
        return equation, {"kind": "copy", "a": operand}, operand["value"], [f"{name} = {shown(operand['value'])}"]

    def add(self, *names: str, equation: str) -> Found:
        """The sum of several tensors at this place."""
        parts = [self.take(name, self.index) for name in names]
        result = math.fsum(part["value"] for part in parts)
        line = " + ".join(shown(part["value"]) for part in parts)
        return equation, {"kind": "sum", "parts": parts}, result, [f"{line} = {shown(result)}"]

    def mean(self, x: Operand, equation: str) -> Found:
        result = math.fsum(x["values"]) / len(x["values"])
        steps = [f"({listed(shown, ' + ', x['values'])}) ÷ {len(x['values'])} = {shown(result)}"]
        return equation, {"kind": "mean", "a": x}, result, steps


def _operand(name: str, x: NDArray[Any], index: Index, *, weight: bool) -> Operand:
    found = x[tuple(slice(None) if i is None else i for i in index)]
    where = {"name": name, "index": list(index), "weight": weight}
    return {**where, "values": found.ravel().tolist()} if None in index else {**where, "value": float(found)}


def dot(a: list[float], b: list[float]) -> float:
    assert len(a) == len(b)
    return math.fsum(map(mul, a, b))


def activated(function: str, x: float) -> float:
    return ACTIVATIONS[function](torch.tensor(x, dtype=torch.float64)).item()


def name_of(activation: object) -> str:
    return next(name for name, f in ACTIVATIONS.items() if f is activation)


def shown(x: float) -> str:
    if x == 0 or 1e-3 <= abs(x) < 1e5:
        return f"{x:.4f}".replace("-", "−")
    if math.isinf(x):
        return "−∞" if x < 0 else "∞"
    return f"{x:.3e}".replace("-", "−")


def listed(show: Callable[..., str], between: str, *columns: list[float]) -> str:
    """What `show` says of each row of the columns; of many the first four and the last."""
    rows: Iterable[int] = range(len(columns[0]))
    if len(columns[0]) > 6:
        rows = (0, 1, 2, 3, -1)
    parts = [show(*(column[row] for column in columns)) for row in rows]
    return between.join([*parts[:4], "…", parts[4]] if len(columns[0]) > 6 else parts)


def sum_of_products(a: list[float], b: list[float], result: float) -> str:
    return f"{listed(lambda x, y: f'{shown(x)} × {shown(y)}', ' + ', a, b)} = {shown(result)}"
