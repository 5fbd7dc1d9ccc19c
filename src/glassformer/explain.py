"""How one number of a trace came about: its operands, the arithmetic, and the result of doing it again in float64.

Every row of notation.py has its rule here. Operands are other tensors of the same trace and weights of the model, so a person
can go on from any of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import UserError
from glassformer.layers.attention import Attention
from glassformer.layers.feedforward import ACTIVATIONS, FeedForward
from glassformer.layers.norm import LayerNorm
from glassformer.models.bert import MaskedHead, PooledHead, TokenHead
from glassformer.notation import describe
from glassformer.trace import Trace

Index = tuple[int | None, ...]  # None stands for a whole axis


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
    found = _Explainer(model, trace, name, tuple(index))
    equation, terms, result, steps = found.edited() if name in trace.edited else RULES[describe(name).name](found)
    return Cell(name, list(index), trace[name][tuple(index)].item(), equation, terms, result, steps)


Found = tuple[str, dict[str, Any], float, list[str]]  # equation, terms, result, steps


class _Explainer:
    """One cell: where it is, and what is around it."""

    def __init__(self, model: nn.Module, trace: Trace, name: str, index: tuple[int, ...]) -> None:
        self.model, self.trace, self.name, self.index = model, trace, name, index
        self.path, _, self.leaf = name.rpartition(".")  # decoder.1.cross, pattern
        self.block, _, self.part = self.path.rpartition(".")  # decoder.1, cross

    # -- operands

    def take(self, name: str, index: Index) -> dict[str, Any]:
        """Values of a traced tensor or a weight, with where they are from."""
        x = self.trace[name] if name in self.trace else self.weight(name)
        assert x is not None, name
        chosen = x[tuple(slice(None) if i is None else i for i in index)].double()
        values = chosen.flatten().tolist()
        where = {"name": name, "index": list(index)}
        return {**where, "values": values} if None in index else {**where, "value": values[0]}

    def weight(self, name: str) -> Tensor | None:
        """A parameter or table of the model, if it has it."""
        path, _, leaf = name.rpartition(".")
        found = getattr(self.module(path), leaf, None)
        return found.detach() if isinstance(found, Tensor) else None

    def sibling(self, leaf: str) -> str:
        return f"{self.path}.{leaf}"

    def module(self, path: str) -> Any:
        return self.model.get_submodule(path)

    @property
    def post(self) -> bool:
        return bool(self.model.options.norm == "post")

    def last_states(self, stack: str) -> str:
        """What a stack of blocks ends in."""
        return f"{stack}.norm.out" if f"{stack}.norm.out" in self.trace else f"{stack}.{self.module(stack).depth - 1}.resid_post"

    def stream(self, block: str, sublayer: str) -> str:
        """The residual stream that a sublayer of a block adds to."""
        if sublayer == "self":
            return f"{block}.resid_pre"
        if sublayer == "cross" or f"{block}.resid_cross" not in self.trace:
            return f"{block}.resid_mid"
        return f"{block}.resid_cross"

    def sublayer_input(self) -> str:
        """What the queries, or the inner layer, are made of."""
        norm = {"self": "norm1", "cross": "norm2", "ffn": "norm3"}[self.part]
        return self.stream(self.block, self.part) if self.post else f"{self.block}.{norm}.out"

    # -- kinds of arithmetic

    def dot(self, a: tuple[str, Index], b: tuple[str, Index], bias: tuple[str, Index] | None, equation: str) -> Found:
        left, right = self.take(*a), self.take(*b)
        offset = self.take(*bias) if bias and self.weight(bias[0]) is not None else None
        result = math.fsum(x * y for x, y in zip(left["values"], right["values"], strict=True))
        steps = [_sum_of_products(left["values"], right["values"], result)]
        if offset:
            steps.append(f"{_n(result)} + {_n(offset['value'])} = {_n(result + offset['value'])}")
            result += offset["value"]
        bias_value = offset["value"] if offset else None
        return equation, {"kind": "dot", "a": left, "b": right, "bias": bias_value}, result, steps

    def linear(self, a: tuple[str, Index], layer: str, row: int, equation: str) -> Found:
        """A row of W times a vector, plus b."""
        return self.dot(a, (f"{layer}.weight", (row, None)), (f"{layer}.bias", (row,)), equation)

    def copy(self, name: str, index: Index, equation: str) -> Found:
        operand = self.take(name, index)
        return equation, {"kind": "copy", "a": operand}, operand["value"], [f"{name} = {_n(operand['value'])}"]

    def add(self, *operands: tuple[str, Index], equation: str) -> Found:
        parts = [self.take(*operand) for operand in operands]
        result = math.fsum(part["value"] for part in parts)
        line = " + ".join(_n(part["value"]) for part in parts)
        return equation, {"kind": "sum", "parts": parts}, result, [f"{line} = {_n(result)}"]

    def activated(self, function: str, x: float) -> float:
        f: Callable[[Tensor], Tensor] = torch.tanh if function == "tanh" else ACTIVATIONS[function]
        return f(torch.tensor(x, dtype=torch.float64)).item()

    # -- an edit's own result

    def edited(self) -> Found:
        """A tensor that an edit replaced: what it was replaced by."""
        kinds = {edit["kind"] for edit in self.trace.about.get("edits", []) if edit.get("path") == self.path}
        heads = [e["head"] for e in self.trace.about.get("edits", []) if e["kind"] == "head-off" and e["path"] == self.path]
        if self.leaf == "scaled" and "no-scale" in kinds:
            return self.copy(self.sibling("scores"), self.index, "scaled = scores (÷√d_k left out)")
        if self.leaf == "masked" and "no-mask" in kinds:
            return self.copy(self.sibling("scaled"), self.index, "masked = scaled (mask lifted)")
        if self.leaf == "z" and heads and self.index[0] not in heads:
            return attention_z(self)
        value = self.trace[self.name][self.index].item()
        equation = "z = 0 (head switched off)" if self.leaf == "z" and heads else "edited"
        return equation, {"kind": "edited", "value": value}, value, [f"{self.leaf} = {_n(value)}"]


# -- embeddings


def embed_token(c: _Explainer) -> Found:
    position, column = c.index
    token = c.trace.tokens_along(c.name, "T")[position]
    row = c.take(f"{c.path}.token.weight", (token.id, column))
    scale = float(c.module(c.path).scale)
    result = row["value"] * scale
    steps = [f"E[{token.id}, {column}] = {_n(row['value'])}"]
    if scale != 1:
        steps.append(f"√D · {_n(row['value'])} = {_n(scale)} × {_n(row['value'])} = {_n(result)}")
    return ("√D · E[id]" if scale != 1 else "E[id]"), {"kind": "lookup", "a": row, "scale": scale}, result, steps


def embed_position(c: _Explainer) -> Found:
    place, column = c.index
    if c.model.options.positions == "learned":  # type: ignore[union-attr]
        row = c.take(f"{c.path}.position", (place, column))
        return "P[pos]", {"kind": "lookup", "a": row, "scale": 1.0}, row["value"], [f"P[{place}, {column}] = {_n(row['value'])}"]
    width = c.trace[c.name].size(1)
    pair = column - column % 2
    angle = place / 10_000 ** (pair / width)
    name, f = ("cos", math.cos) if column % 2 else ("sin", math.sin)
    steps = [f"{place} / 10000^({pair}/{width}) = {_n(angle)}", f"{name} {_n(angle)} = {_n(f(angle))}"]
    terms = {"kind": "sinusoid", "position": place, "pair": pair, "width": width, "angle": angle, "function": name}
    return f"{name}(pos / 10000^(2i/D))", terms, f(angle), steps


def embed_type(c: _Explainer) -> Found:
    place, column = c.index
    kind = c.trace.types[place] if c.trace.types else 0
    row = c.take(f"{c.path}.types.weight", (kind, column))
    steps = [f"E_type[{kind}, {column}] = {_n(row['value'])}"]
    return "E_type[type]", {"kind": "lookup", "a": row, "scale": 1.0}, row["value"], steps


def embed_sum(c: _Explainer) -> Found:
    names = [c.sibling(leaf) for leaf in ("token", "type", "position")]
    parts = [(name, c.index) for name in names if name in c.trace]
    return c.add(*parts, equation=" + ".join(name.rpartition(".")[2] for name, _ in parts))


# -- blocks: the residual stream


def resid_pre(c: _Explainer) -> Found:
    stack, _, number = c.path.rpartition(".")
    if number != "0":
        return c.copy(f"{stack}.{int(number) - 1}.resid_post", c.index, "x = the block before")
    normed = f"{stack}.embed.norm.out"
    return c.copy(normed if normed in c.trace else f"{stack}.embed.sum", c.index, "x = the embedding")


def after(sublayer: str, norm: str) -> Callable[[_Explainer], Found]:
    """The stream behind a sublayer: the sum, or with post-norm what the normalisation makes of it."""

    def rule(c: _Explainer) -> Found:
        if c.post:
            return c.copy(f"{c.path}.{norm}.out", c.index, "x = Norm(x + Sublayer(x))")
        added = f"{c.path}.{sublayer}.out"
        return c.add((c.stream(c.path, sublayer), c.index), (added, c.index), equation="x + Sublayer(Norm(x))")

    return rule


# -- attention


def projected(leaf: str) -> Callable[[_Explainer], Found]:
    """q, k or v: a row of the weight times what is read; with rotary positions q and k are then turned by pairs."""

    def rule(c: _Explainer) -> Found:
        head, place, column = c.index
        attention: Attention = c.module(c.path)
        width = attention.d_v if leaf == "v" else attention.d_k
        read = c.last_states("encoder") if leaf != "q" and c.part == "cross" else c.sublayer_input()
        equation = f"{leaf} = Σ x · W_{leaf.upper()} + b_{leaf.upper()}"
        if attention.rotary is None or leaf == "v" or c.part == "cross":
            return c.linear((read, (place, None)), c.sibling(leaf), head * width + column, equation)
        half = width // 2
        pair = column % half
        parts = [c.linear((read, (place, None)), c.sibling(leaf), head * width + pair + i * half, equation) for i in (0, 1)]
        a, b = parts[0][2], parts[1][2]
        cos, sin = (c.take(f"{c.path}.rotary.{name}", (place, pair))["value"] for name in ("cos", "sin"))
        result = a * cos - b * sin if column < half else b * cos + a * sin
        line = (
            f"{_n(a)} × {_n(cos)} − {_n(b)} × {_n(sin)} = {_n(result)}"
            if column < half
            else f"{_n(b)} × {_n(cos)} + {_n(a)} × {_n(sin)} = {_n(result)}"
        )
        terms = {"kind": "rotary", "a": parts[0][1], "b": parts[1][1], "cos": cos, "sin": sin, "first": column < half}
        steps = [f"a: {parts[0][3][-1]}", f"b: {parts[1][3][-1]}", line]
        return ("a cos − b sin" if column < half else "b cos + a sin"), terms, result, steps

    return rule


def _group(c: _Explainer) -> int:
    """How many query heads share a head of keys and values."""
    attention: Attention = c.module(c.path)
    return attention.heads // attention.kv_heads


def attention_scores(c: _Explainer) -> Found:
    head, query, key = c.index
    q, k = (c.sibling("q"), (head, query, None)), (c.sibling("k"), (head // _group(c), key, None))
    if c.module(c.path).w is None:
        return c.dot(q, k, None, "Σ q · k")
    left, right, w = c.take(*q), c.take(*k), c.take(f"{c.path}.w", (head, 0, 0, None))
    tanhs = [math.tanh(x + y) for x, y in zip(left["values"], right["values"], strict=True)]
    result = math.fsum(x * y for x, y in zip(w["values"], tanhs, strict=True))
    steps = [f"tanh({_n(left['values'][0])} + {_n(right['values'][0])}) = {_n(tanhs[0])}, …"]
    steps.append(_sum_of_products(w["values"], tanhs, result))
    return "Σ w · tanh(q + k)", {"kind": "additive", "a": left, "b": right, "w": w}, result, steps


def attention_scaled(c: _Explainer) -> Found:
    attention: Attention = c.module(c.path)
    if attention.w is not None:
        return c.copy(c.sibling("scores"), c.index, "scaled = scores (additive scores are not divided)")
    score = c.take(c.sibling("scores"), c.index)
    by = math.sqrt(attention.d_k)
    result = score["value"] / by
    steps = [f"{_n(score['value'])} ÷ √{attention.d_k} = {_n(score['value'])} ÷ {_n(by)} = {_n(result)}"]
    return "score ÷ √d_k", {"kind": "scale", "a": score, "by": by, "d_k": attention.d_k}, result, steps


def attention_masked(c: _Explainer) -> Found:
    _, query, key = c.index
    scaled = c.take(c.sibling("scaled"), c.index)
    if c.name.startswith("decoder.") and c.part == "self":
        allowed = key <= query
    else:
        allowed = c.trace.source_tokens[key].id != getattr(c.model, "pad", -1)
    result = scaled["value"] if allowed else -math.inf
    steps = [f"{key} ≤ {query}: {_n(result)}" if allowed else f"{key} > {query}: −∞"]
    if not (c.name.startswith("decoder.") and c.part == "self"):
        steps = [_n(result)]
    return "scaled, or −∞ where it may not look", {"kind": "mask", "a": scaled, "allowed": allowed}, result, steps


def attention_pattern(c: _Explainer) -> Found:
    head, query, key = c.index
    row = c.take(c.sibling("masked"), (head, query, None))
    top = max(row["values"])
    powers = [math.exp(x - top) for x in row["values"]]
    total = math.fsum(powers)
    result = powers[key] / total
    steps = [
        f"e^({_n(row['values'][key])} − {_n(top)}) = {_n(powers[key])}",
        f"Σ = {_listed([_n(p) for p in powers], ' + ')} = {_n(total)}",
        f"{_n(powers[key])} ÷ {_n(total)} = {_n(result)}",
    ]
    terms = {"kind": "softmax", "a": row, "max": top, "exponentials": powers, "sum": total, "position": key}
    return "e^x ÷ Σ e^x", terms, result, steps


def attention_z(c: _Explainer) -> Found:
    head, query, column = c.index
    pattern = (c.sibling("pattern"), (head, query, None))
    return c.dot(pattern, (c.sibling("v"), (head // _group(c), None, column)), None, "Σ pattern · v")


def attention_out(c: _Explainer) -> Found:
    place, row = c.index
    return c.linear((c.sibling("z"), (None, place, None)), c.sibling("o"), row, "Σ concat(z) · W_O + b_O")


# -- normalisation


def norm_in(c: _Explainer) -> Found:
    if c.path == "head.norm":
        head = c.module("head")
        equation, terms, inner, steps = c.linear(("head.in", (c.index[0], None)), "head.dense", c.index[1], "f(Σ x · W + b)")
        function = _function(head.activation)
        result = c.activated(function, inner)
        return equation, {**terms, "function": function}, result, [*steps, f"{function}({_n(inner)}) = {_n(result)}"]
    if c.path.endswith("embed.norm"):
        return c.copy(f"{c.block}.sum", c.index, "x = the embedding")
    if c.part == "norm":
        return c.copy(f"{c.block}.{c.module(c.block).depth - 1}.resid_post", c.index, "x = the last block")
    sublayer = {"norm1": "self", "norm2": "cross", "norm3": "ffn"}[c.part]
    stream = (c.stream(c.block, sublayer), c.index)
    if not c.post:
        return c.copy(*stream, "x")
    return c.add(stream, (f"{c.block}.{sublayer}.out", c.index), equation="x + Sublayer(x)")


def norm_mean(c: _Explainer) -> Found:
    x = c.take(c.sibling("in"), (c.index[0], None))
    result = math.fsum(x["values"]) / len(x["values"])
    steps = [f"({_listed([_n(v) for v in x['values']], ' + ')}) ÷ {len(x['values'])} = {_n(result)}"]
    return "Σ x ÷ D", {"kind": "mean", "a": x}, result, steps


def norm_deviation(c: _Explainer) -> Found:
    x, mean = c.take(c.sibling("in"), (c.index[0], None)), c.take(c.sibling("mean"), (c.index[0], 0))
    squares = [(v - mean["value"]) ** 2 for v in x["values"]]
    variance, epsilon = math.fsum(squares) / len(squares), c.module(c.path).epsilon
    result = math.sqrt(variance + epsilon)
    steps = [
        f"({_listed([_n(s) for s in squares], ' + ')}) ÷ {len(squares)} = {_n(variance)}",
        f"√({_n(variance)} + {epsilon:g}) = {_n(result)}",
    ]
    return "√(Σ (x − μ)² ÷ D + ε)", {"kind": "deviation", "a": x, "mean": mean, "epsilon": epsilon}, result, steps


def norm_rms(c: _Explainer) -> Found:
    x = c.take(c.sibling("in"), (c.index[0], None))
    square, epsilon = math.fsum(v * v for v in x["values"]) / len(x["values"]), c.module(c.path).epsilon
    result = math.sqrt(square + epsilon)
    steps = [
        f"({_listed([_n(v * v) for v in x['values']], ' + ')}) ÷ {len(x['values'])} = {_n(square)}",
        f"√({_n(square)} + {epsilon:g}) = {_n(result)}",
    ]
    return "√(Σ x² ÷ D + ε)", {"kind": "rms", "a": x, "epsilon": epsilon}, result, steps


def norm_scaled(c: _Explainer) -> Found:
    x = c.take(c.sibling("in"), c.index)
    if not isinstance(c.module(c.path), LayerNorm):
        rms = c.take(c.sibling("rms"), (c.index[0], 0))
        result = x["value"] / rms["value"]
        terms = {"kind": "standardise", "a": x, "mean": None, "by": rms}
        return "x ÷ rms", terms, result, [f"{_n(x['value'])} ÷ {_n(rms['value'])} = {_n(result)}"]
    mean, deviation = (c.take(c.sibling(leaf), (c.index[0], 0)) for leaf in ("mean", "deviation"))
    result = (x["value"] - mean["value"]) / deviation["value"]
    line = f"({_n(x['value'])} − {_n(mean['value'])}) ÷ {_n(deviation['value'])} = {_n(result)}"
    return "(x − μ) ÷ σ", {"kind": "standardise", "a": x, "mean": mean, "by": deviation}, result, [line]


def norm_out(c: _Explainer) -> Found:
    scaled, gamma = c.take(c.sibling("scaled"), c.index), c.take(c.sibling("weight"), (c.index[1],))
    beta = c.take(c.sibling("bias"), (c.index[1],)) if c.weight(c.sibling("bias")) is not None else None
    result = gamma["value"] * scaled["value"] + (beta["value"] if beta else 0.0)
    line = f"{_n(gamma['value'])} × {_n(scaled['value'])}" + (f" + {_n(beta['value'])}" if beta else "")
    terms = {"kind": "affine", "a": scaled, "gamma": gamma, "beta": beta}
    return ("γ · scaled + β" if beta else "γ · scaled"), terms, result, [f"{line} = {_n(result)}"]


# -- feed-forward


def ffn_inner(weight: str) -> Callable[[_Explainer], Found]:
    def rule(c: _Explainer) -> Found:
        number = {"w1": "₁", "w3": "₃"}[weight]
        return c.linear((c.sublayer_input(), (c.index[0], None)), c.sibling(weight), c.index[1], f"Σ x · W{number} + b{number}")

    return rule


def ffn_act(c: _Explainer) -> Found:
    ffn: FeedForward = c.module(c.path)
    pre, function = c.take(c.sibling("pre"), c.index), _function(ffn.activation)
    result = c.activated(function, pre["value"])
    steps = [f"{function}({_n(pre['value'])}) = {_n(result)}"]
    gate = c.take(c.sibling("gate"), c.index) if ffn.w3 is not None else None
    if gate:
        steps.append(f"{_n(result)} × {_n(gate['value'])} = {_n(result * gate['value'])}")
        result *= gate["value"]
    equation = f"{function}(pre)" + (" × gate" if gate else "")
    return equation, {"kind": "activation", "function": function, "a": pre, "gate": gate}, result, steps


def ffn_out(c: _Explainer) -> Found:
    return c.linear((c.sibling("act"), (c.index[0], None)), c.sibling("w2"), c.index[1], "Σ act · W₂ + b₂")


# -- heads and logits


def head_in(c: _Explainer) -> Found:
    return c.copy(c.last_states("encoder"), c.index, "x = the encoder's last states")


def head_transformed(c: _Explainer) -> Found:
    return c.copy("head.norm.out", c.index, "LayerNorm(f(x W + b))")


def head_pooled(c: _Explainer) -> Found:
    if c.module("head").pooling == "first":
        return c.copy("head.in", (0, *c.index), "x of the first token")
    x = c.take("head.in", (None, *c.index))
    result = math.fsum(x["values"]) / len(x["values"])
    steps = [f"({_listed([_n(v) for v in x['values']], ' + ')}) ÷ {len(x['values'])} = {_n(result)}"]
    return "Σ x ÷ T", {"kind": "mean", "a": x}, result, steps


def head_dense(c: _Explainer) -> Found:
    equation, terms, inner, steps = c.linear(("head.pooled", (None,)), "head.dense", c.index[0], "tanh(Σ pooled · W + b)")
    result = math.tanh(inner)
    return equation, {**terms, "function": "tanh"}, result, [*steps, f"tanh({_n(inner)}) = {_n(result)}"]


def logits(c: _Explainer) -> Found:
    head = getattr(c.model, "head", None)
    *place, row = c.index
    if isinstance(head, PooledHead):
        return c.linear(("head.dense", (None,)), "head.output", row, "Σ x · W + b")
    if isinstance(head, MaskedHead):
        return c.linear(("head.transformed", (*place, None)), "head.output", row, "Σ x · W + b")
    if isinstance(head, TokenHead):
        return c.linear(("head.in", (*place, None)), "head.output", row, "Σ x · W + b")
    return c.linear((c.last_states("decoder"), (*place, None)), "output", row, "Σ x · W")


RULES: dict[str, Callable[[_Explainer], Found]] = {
    "embed.token": embed_token,
    "embed.position": embed_position,
    "embed.type": embed_type,
    "embed.sum": embed_sum,
    "block.resid_pre": resid_pre,
    "block.resid_mid": after("self", "norm1"),
    "block.resid_cross": after("cross", "norm2"),
    "block.resid_post": after("ffn", "norm3"),
    "attention.q": projected("q"),
    "attention.k": projected("k"),
    "attention.v": projected("v"),
    "attention.scores": attention_scores,
    "attention.scaled": attention_scaled,
    "attention.masked": attention_masked,
    "attention.pattern": attention_pattern,
    "attention.z": attention_z,
    "attention.out": attention_out,
    "norm.in": norm_in,
    "norm.mean": norm_mean,
    "norm.deviation": norm_deviation,
    "norm.rms": norm_rms,
    "norm.scaled": norm_scaled,
    "norm.out": norm_out,
    "ffn.pre": ffn_inner("w1"),
    "ffn.gate": ffn_inner("w3"),
    "ffn.act": ffn_act,
    "ffn.out": ffn_out,
    "head.in": head_in,
    "head.transformed": head_transformed,
    "head.pooled": head_pooled,
    "head.dense": head_dense,
    "logits": logits,
}


# -- writing it out


def _function(activation: object) -> str:
    return next(name for name, f in ACTIVATIONS.items() if f is activation)


def _n(x: float) -> str:
    if math.isinf(x):
        return "−∞" if x < 0 else "∞"
    if x and not 1e-3 <= abs(x) < 1e5:
        return f"{x:.3e}".replace("-", "−")
    return f"{x:.4f}".replace("-", "−")


def _listed(parts: list[str], between: str) -> str:
    return between.join(parts if len(parts) <= 6 else [*parts[:4], "…", parts[-1]])


def _sum_of_products(a: list[float], b: list[float], result: float) -> str:
    products = [f"{_n(x)} × {_n(y)}" for x, y in zip(a, b, strict=True)]
    return f"{_listed(products, ' + ')} = {_n(result)}"
