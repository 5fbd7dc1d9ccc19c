"""How the rows of recurrent, convolutional and bag-of-words models are computed."""

import math
from collections.abc import Callable
from typing import Any

from glassformer.explain.cell import Found, Operand, Place, activated, dot, name_of, shown, sum_of_products
from glassformer.layers.convolution import BatchNorm, Convolution
from glassformer.layers.recurrent import Recurrent
from glassformer.models.mlp import Features

# -- recurrent layers


def _reads(c: Place) -> str:
    """What a layer reads: the embedding, or the layer below."""
    stack, number, *_ = c.path.split(".")
    if number == "0":
        return f"{stack}.embed.sum"
    below = f"{stack}.{int(number) - 1}"
    return f"{below}.joined" if f"{below}.joined" in c.trace else f"{below}.hidden"


def _before(c: Place, leaf: str, column: int | None) -> Operand | None:
    """The state before this step, or one number of it; none where nothing was read yet."""
    cell: Recurrent = c.module(c.path)
    t = c.index[0] + (1 if cell.backwards else -1)
    if 0 <= t < c.trace[c.name].size(0):
        return c.take(c.sibling(leaf), (t, column))
    start = c.sibling({"hidden": "start_h", "cell": "start_c"}[leaf])
    return c.take(start, (column,)) if start in c.trace else None


def _sums(c: Place, part: str) -> tuple[float, float, dict[str, Any], list[str]]:
    """W_x x_t + b_x and W_h h_{t−1} + b_h of one unit of a gate."""
    cell: Recurrent = c.module(c.path)
    row = cell.cell.parts.index(part) * cell.units + c.index[1]
    x, h = c.take(_reads(c), (c.index[0], None)), _before(c, "hidden", None)
    w_x, w_h = c.weight(c.sibling("w_x"), (row, None)), c.weight(c.sibling("w_h"), (row, None))
    b_x, b_h = c.weight(c.sibling("b_x"), (row,)), c.weight(c.sibling("b_h"), (row,))
    sums, steps = [], []
    for name, w, v, b in (("x", w_x, x, b_x), ("h", w_h, h, b_h)):
        products = dot(w["values"], v["values"]) if v else 0.0
        sums.append(products + b["value"])
        line = sum_of_products(w["values"], v["values"], products) if v else "0 (nothing was read yet)"
        steps += [f"W_{name} {name}: {line}", f"{shown(products)} + {shown(b['value'])} = {shown(sums[-1])}"]
    terms = {"kind": "gate", "x": x, "w_x": w_x, "b_x": b_x, "h": h, "w_h": w_h, "b_h": b_h}
    return sums[0], sums[1], terms, steps


def gate(part: str) -> Callable[[Place], Found]:
    def rule(c: Place) -> Found:
        of_x, of_h, terms, steps = _sums(c, part)
        result = 1 / (1 + math.exp(-(of_x + of_h)))
        steps.append(f"σ({shown(of_x)} + {shown(of_h)}) = {shown(result)}")
        return "σ(W_x x + b_x + W_h h + b_h)", {**terms, "function": "σ"}, result, steps

    return rule


def _squashed(c: Place, part: str) -> Found:
    of_x, of_h, terms, steps = _sums(c, part)
    reset = c.take(c.sibling("gate_r"), c.index) if c.sibling("gate_r") in c.trace else None
    if reset:
        steps.append(f"r: {shown(reset['value'])} × {shown(of_h)} = {shown(reset['value'] * of_h)}")
        of_h *= reset["value"]
    result = math.tanh(of_x + of_h)
    steps.append(f"tanh({shown(of_x)} + {shown(of_h)}) = {shown(result)}")
    equation = f"tanh(W_x x + b_x + {'r · (W_h h + b_h)' if reset else 'W_h h + b_h'})"
    return equation, {**terms, "function": "tanh", "reset": reset}, result, steps


def candidate(c: Place) -> Found:
    return _squashed(c, "candidate")


def cell_state(c: Place) -> Found:
    f, i, g = (c.take(c.sibling(leaf), c.index) for leaf in ("gate_f", "gate_i", "candidate"))
    return _mixed(f, _before(c, "cell", c.index[1]), i, g, "f · c₋₁ + i · candidate")


def hidden(c: Place) -> Found:
    if c.sibling("cell") in c.trace:
        o, state = (c.take(c.sibling(leaf), c.index) for leaf in ("gate_o", "cell"))
        result = o["value"] * math.tanh(state["value"])
        steps = [f"{shown(o['value'])} × tanh({shown(state['value'])}) = {shown(result)}"]
        return "o · tanh(c)", {"kind": "product", "a": o, "b": state, "function": "tanh"}, result, steps
    if c.sibling("gate_z") in c.trace:
        z, n = (c.take(c.sibling(leaf), c.index) for leaf in ("gate_z", "candidate"))
        return _mixed(z, _before(c, "hidden", c.index[1]), None, n, "(1 − z) · candidate + z · h₋₁")
    return _squashed(c, "hidden")


def _mixed(keep: Operand, old: Operand | None, take: Operand | None, new: Operand, equation: str) -> Found:
    """keep · old + take · new, where a GRU takes what it does not keep."""
    before, share = old["value"] if old else 0.0, take["value"] if take else 1 - keep["value"]
    result = keep["value"] * before + share * new["value"]
    line = f"{shown(keep['value'])} × {shown(before)} + {shown(share)} × {shown(new['value'])} = {shown(result)}"
    return equation, {"kind": "mixture", "keep": keep, "old": old, "take": take, "new": new}, result, [line]


def start(leaf: str) -> Callable[[Place], Found]:
    """What the encoder's layer of the same number ended in."""

    def rule(c: Place) -> Found:
        layer, (column,) = f"encoder.{c.path.split('.')[1]}", c.index
        last = len(c.trace.source_tokens) - 1
        if f"{layer}.joined" not in c.trace:
            return c.copy(f"{layer}.{leaf}", (last, column), "the encoder's last state")
        units = c.module(f"{layer}.ahead").units
        if column < units:
            return c.copy(f"{layer}.ahead.{leaf}", (last, column), "the encoder's last state, reading ahead")
        return c.copy(f"{layer}.back.{leaf}", (0, column - units), "the encoder's last state, reading back")

    return rule


def joined(c: Place) -> Found:
    t, column = c.index
    units = c.module(f"{c.path}.ahead").units
    side = "ahead" if column < units else "back"
    return c.copy(f"{c.path}.{side}.hidden", (t, column % units), "[h→; h←]")


def combined(c: Place) -> Found:
    t, column = c.index
    _, terms, inner, steps = c.linear(c.take(f"{c.block}.hidden", (t, None)), f"{c.path}.w", column, "")
    looked = c.take(f"{c.block}.cross.out", (t, column))
    result = math.tanh(inner + looked["value"])
    steps.append(f"tanh({shown(inner)} + {shown(looked['value'])}) = {shown(result)}")
    return "tanh(Σ h · W + b + attention)", {**terms, "looked": looked, "function": "tanh"}, result, steps


# -- convolution


def convolved(c: Place) -> Found:
    t, column = c.index
    convolution: Convolution = c.module(c.path)
    first = t - (convolution.size - 1) // 2
    w, bias = c.weight(f"{c.path}.w.weight", (column, None)), c.weight(f"{c.path}.w.bias", (column,))
    places = [place for place in range(first, first + convolution.size) if 0 <= place < c.trace[c.name].size(0)]
    rows = [c.take("encoder.embed.sum", (place, None)) for place in places]
    width = len(rows[0]["values"])
    begin = (places[0] - first) * width  # weights of places before the text meet zeros
    values = [x for row in rows for x in row["values"]]
    weights = w["values"][begin : begin + len(values)]
    products = dot(weights, values)
    result = products + bias["value"]
    steps = [
        sum_of_products(weights, values, products),
        f"{shown(products)} + {shown(bias['value'])} = {shown(result)}",
    ]
    return "Σ_k W_k x_{t+k} + b", {"kind": "convolution", "rows": rows, "w": w, "bias": bias, "first": first}, result, steps


def batch_normed(c: Place) -> Found:
    norm: BatchNorm = c.module(c.path)
    x = c.take(f"{c.block}.pre", c.index)
    gamma, beta, mean, variance = (c.weight(c.sibling(leaf), c.index[1:]) for leaf in ("weight", "bias", "mean", "variance"))
    deviation = math.sqrt(variance["value"] + norm.epsilon)
    result = gamma["value"] * (x["value"] - mean["value"]) / deviation + beta["value"]
    line = (
        f"{shown(gamma['value'])} × ({shown(x['value'])} − {shown(mean['value'])}) ÷ {shown(deviation)} + {shown(beta['value'])}"
    )
    terms = {"kind": "batchnorm", "a": x, "gamma": gamma, "beta": beta, "mean": mean, "variance": variance}
    return "γ · (x − μ) ÷ √(σ² + ε) + β", terms, result, [f"{line} = {shown(result)}"]


def convolution_act(c: Place) -> Found:
    function = name_of(c.module(c.path).activation)
    x = c.take(f"{c.path}.norm.out", c.index)
    result = activated(function, x["value"])
    terms = {"kind": "activation", "function": function, "a": x, "gate": None}
    return f"{function}(x)", terms, result, [f"{function}({shown(x['value'])}) = {shown(result)}"]


# -- features


def features(c: Place) -> Found:
    found: Features = c.module(c.path)
    if found.embed is not None:
        return c.mean(c.take("encoder.embed.sum", (None, *c.index)), "Σ x ÷ T")
    ids = [token.id for token in c.trace.source_tokens]
    lengths = range(1, (found.longest if found.input == "ngrams" else 1) + 1)
    grams = [tuple(ids[i : i + n]) for n in lengths for i in range(len(ids) - n + 1)]
    here = [gram for gram in grams if found.bucket(gram) == c.index[0]]
    result = float(min(len(here), 1) if found.input == "one-hot" else len(here))
    steps = [f"{len(here)} of {len(grams)}: {', '.join(map(str, here)) or 'none'}"]
    equation = "1 if it occurs" if found.input == "one-hot" else "how often it occurs"
    return equation, {"kind": "count", "occurrences": len(here)}, result, steps


ANCESTORS: dict[str, Callable[[Place], Found]] = {
    "recurrent.start_h": start("hidden"),
    "recurrent.start_c": start("cell"),
    "recurrent.gate_f": gate("gate_f"),
    "recurrent.gate_i": gate("gate_i"),
    "recurrent.gate_o": gate("gate_o"),
    "recurrent.gate_r": gate("gate_r"),
    "recurrent.gate_z": gate("gate_z"),
    "recurrent.candidate": candidate,
    "recurrent.cell": cell_state,
    "recurrent.hidden": hidden,
    "recurrent.joined": joined,
    "combine.out": combined,
    "conv.pre": convolved,
    "batchnorm.out": batch_normed,
    "conv.act": convolution_act,
    "encoder.features": features,
}
