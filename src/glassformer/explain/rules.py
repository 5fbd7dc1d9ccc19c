"""How each row of notation.py is computed, from other tensors of the trace and weights of the model."""

import math
from collections.abc import Callable
from typing import Any

from glassformer.explain.ancestors import ANCESTORS
from glassformer.explain.cell import Found, Place, activated, dot, listed, name_of, shown, sum_of_products
from glassformer.layers.attention import Attention
from glassformer.layers.feedforward import FeedForward
from glassformer.layers.norm import LayerNorm
from glassformer.models.bert import MaskedHead, PooledHead, TokenHead
from glassformer.models.heads import LinearHead
from glassformer.models.mlp import MLP
from glassformer.models.textcnn import TextCNN
from glassformer.notation import describe

# -- embeddings


def embed_token(c: Place) -> Found:
    position, column = c.index
    token = c.trace.tokens_along(c.name, "T")[position]
    row = c.weight(f"{c.path}.token.weight", (token.id, column))
    scale = float(c.module(c.path).scale)
    result = row["value"] * scale
    steps = [f"E[{token.id}, {column}] = {shown(row['value'])}"]
    if scale != 1:
        steps.append(f"√D · {shown(row['value'])} = {shown(scale)} × {shown(row['value'])} = {shown(result)}")
    return ("√D · E[id]" if scale != 1 else "E[id]"), {"kind": "lookup", "a": row, "scale": scale}, result, steps


def embed_position(c: Place) -> Found:
    place, column = c.index
    if c.model.options.positions == "learned":  # type: ignore[union-attr]
        row = c.weight(f"{c.path}.position", (place, column))
        steps = [f"P[{place}, {column}] = {shown(row['value'])}"]
        return "P[pos]", {"kind": "lookup", "a": row, "scale": 1.0}, row["value"], steps
    width = c.trace[c.name].size(1)
    pair = column - column % 2
    angle = place / 10_000 ** (pair / width)
    name, f = ("cos", math.cos) if column % 2 else ("sin", math.sin)
    steps = [f"{place} / 10000^({pair}/{width}) = {shown(angle)}", f"{name} {shown(angle)} = {shown(f(angle))}"]
    terms = {"kind": "sinusoid", "position": place, "pair": pair, "width": width, "angle": angle, "function": name}
    return f"{name}(pos / 10000^(2i/D))", terms, f(angle), steps


def embed_type(c: Place) -> Found:
    place, column = c.index
    kind = c.trace.types[place] if c.trace.types else 0
    row = c.weight(f"{c.path}.types.weight", (kind, column))
    steps = [f"E_type[{kind}, {column}] = {shown(row['value'])}"]
    return "E_type[type]", {"kind": "lookup", "a": row, "scale": 1.0}, row["value"], steps


def embed_sum(c: Place) -> Found:
    leaves = [leaf for leaf in ("token", "type", "position") if c.sibling(leaf) in c.trace]
    return c.add(*map(c.sibling, leaves), equation=" + ".join(leaves))


# -- blocks: the residual stream


def resid_pre(c: Place) -> Found:
    stack, _, number = c.path.rpartition(".")
    if number != "0":
        return c.copy(f"{stack}.{int(number) - 1}.resid_post", c.index, "x = the block before")
    normed = f"{stack}.embed.norm.out"
    return c.copy(normed if normed in c.trace else f"{stack}.embed.sum", c.index, "x = the embedding")


def after(sublayer: str, norm: str) -> Callable[[Place], Found]:
    """The stream behind a sublayer: the sum, or with post-norm what the normalisation makes of it."""

    def rule(c: Place) -> Found:
        if c.post:
            return c.copy(f"{c.path}.{norm}.out", c.index, "x = Norm(x + Sublayer(x))")
        return c.add(c.stream(c.path, sublayer), f"{c.path}.{sublayer}.out", equation="x + Sublayer(Norm(x))")

    return rule


# -- attention


def projected(leaf: str, turned: bool = True) -> Callable[[Place], Found]:
    """q, k or v: a row of the weight times what is read; with rotary positions q and k are then turned by pairs."""

    def rule(c: Place) -> Found:
        head, place, column = c.index
        attention: Attention = c.module(c.path)
        width = attention.d_v if leaf == "v" else attention.d_k
        read = c.last_states("encoder") if leaf != "q" and c.part == "cross" else c.sublayer_input()
        x, first = c.take(read, (place, None)), head * width
        equation, b = f"{leaf} = Σ x · W_{leaf.upper()}", f"b_{leaf.upper()}"
        if attention.rotary is None or leaf == "v" or c.part == "cross" or not turned:
            return c.linear(x, c.sibling(leaf), first + column, equation, b)
        half = width // 2
        pair = [c.linear(x, c.sibling(leaf), first + column % half + i * half, equation, b) for i in (0, 1)]
        return _turned(c, pair[0], pair[1], column % half, column < half)

    return rule


def _turned(c: Place, first: Found, second: Found, pair: int, is_first: bool) -> Found:
    """One of a pair of numbers (a, b), turned by the angle of its position."""
    (_, a_terms, a, a_steps), (_, b_terms, b, b_steps) = first, second
    cos, sin = (c.weight(f"{c.path}.rotary.{name}", (c.index[1], pair))["value"] for name in ("cos", "sin"))
    result = a * cos - b * sin if is_first else b * cos + a * sin
    one, sign, other = (a, "−", b) if is_first else (b, "+", a)
    line = f"{shown(one)} × {shown(cos)} {sign} {shown(other)} × {shown(sin)} = {shown(result)}"
    terms = {"kind": "rotary", "a": a_terms, "b": b_terms, "cos": cos, "sin": sin, "first": is_first}
    equation = "a cos − b sin" if is_first else "b cos + a sin"
    return equation, terms, result, [f"a: {a_steps[-1]}", f"b: {b_steps[-1]}", line]


def _group(c: Place) -> int:
    """How many query heads share a head of keys and values."""
    attention: Attention = c.module(c.path)
    return attention.heads // attention.kv_heads


def attention_scores(c: Place) -> Found:
    head, query, key = c.index
    q, k = c.take(c.sibling("q"), (head, query, None)), c.take(c.sibling("k"), (head // _group(c), key, None))
    if c.module(c.path).w is None:
        return c.dot(q, k, None, "Σ q · k")
    w = c.weight(f"{c.path}.w", (head, 0, 0, None))
    tanhs = [math.tanh(x + y) for x, y in zip(q["values"], k["values"], strict=True)]
    result = dot(w["values"], tanhs)
    steps = [f"tanh({shown(q['values'][0])} + {shown(k['values'][0])}) = {shown(tanhs[0])}, …"]
    steps.append(sum_of_products(w["values"], tanhs, result))
    return "Σ w · tanh(q + k)", {"kind": "additive", "a": q, "b": k, "w": w}, result, steps


def attention_scaled(c: Place) -> Found:
    attention: Attention = c.module(c.path)
    if attention.w is not None:
        return c.copy(c.sibling("scores"), c.index, "scaled = scores (additive scores are not divided)")
    score = c.take(c.sibling("scores"), c.index)
    by = math.sqrt(attention.d_k)
    result = score["value"] / by
    steps = [f"{shown(score['value'])} ÷ √{attention.d_k} = {shown(score['value'])} ÷ {shown(by)} = {shown(result)}"]
    return "score ÷ √d_k", {"kind": "scale", "a": score, "by": by, "d_k": attention.d_k}, result, steps


def attention_masked(c: Place) -> Found:
    _, query, key = c.index
    scaled = c.take(c.sibling("scaled"), c.index)
    causal = c.name.startswith("decoder.") and c.part == "self"
    allowed = key <= query if causal else c.trace.source_tokens[key].id != getattr(c.model, "pad", -1)
    result = scaled["value"] if allowed else -math.inf
    steps = [(f"{key} {'≤' if allowed else '>'} {query}: " if causal else "") + shown(result)]
    return "scaled, or −∞ where it may not look", {"kind": "mask", "a": scaled, "allowed": allowed}, result, steps


def attention_pattern(c: Place) -> Found:
    head, query, key = c.index
    row = c.take(c.sibling("masked"), (head, query, None))
    top = max(row["values"])
    powers = [math.exp(x - top) for x in row["values"]]
    total = math.fsum(powers)
    result = powers[key] / total
    steps = [
        f"e^({shown(row['values'][key])} − {shown(top)}) = {shown(powers[key])}",
        f"Σ = {listed(shown, ' + ', powers)} = {shown(total)}",
        f"{shown(powers[key])} ÷ {shown(total)} = {shown(result)}",
    ]
    terms = {"kind": "softmax", "a": row, "max": top, "exponentials": powers, "sum": total, "position": key}
    return "e^x ÷ Σ e^x", terms, result, steps


def attention_z(c: Place) -> Found:
    head, query, column = c.index
    pattern = c.take(c.sibling("pattern"), (head, query, None))
    return c.dot(pattern, c.take(c.sibling("v"), (head // _group(c), None, column)), None, "Σ pattern · v")


def attention_out(c: Place) -> Found:
    place, row = c.index
    return c.linear(c.take(c.sibling("z"), (None, place, None)), c.sibling("o"), row, "Σ concat(z) · W_O", "b_O")


# -- normalisation


def norm_in(c: Place) -> Found:
    if c.path == "head.norm":
        function = name_of(c.module("head").activation)
        x = c.take("head.in", (c.index[0], None))
        equation, terms, inner, steps = c.linear(x, "head.dense", c.index[1], f"{function}(Σ x · W + b)")
        result = activated(function, inner)
        return equation, {**terms, "function": function}, result, [*steps, f"{function}({shown(inner)}) = {shown(result)}"]
    if c.path.endswith("embed.norm"):
        return c.copy(f"{c.block}.sum", c.index, "x = the embedding")
    if c.part == "norm":
        return c.copy(f"{c.block}.{c.module(c.block).depth - 1}.resid_post", c.index, "x = the last block")
    sublayer = {"norm1": "self", "norm2": "cross", "norm3": "ffn"}[c.part]
    stream = c.stream(c.block, sublayer)
    if not c.post:
        return c.copy(stream, c.index, "x")
    return c.add(stream, f"{c.block}.{sublayer}.out", equation="x + Sublayer(x)")


def norm_mean(c: Place) -> Found:
    return c.mean(c.take(c.sibling("in"), (c.index[0], None)), "Σ x ÷ D")


def norm_deviation(c: Place) -> Found:
    x, mean = c.take(c.sibling("in"), (c.index[0], None)), c.take(c.sibling("mean"), (c.index[0], 0))
    squares = [(v - mean["value"]) ** 2 for v in x["values"]]
    variance, epsilon = math.fsum(squares) / len(squares), c.module(c.path).epsilon
    result = math.sqrt(variance + epsilon)
    steps = [
        f"({listed(shown, ' + ', squares)}) ÷ {len(squares)} = {shown(variance)}",
        f"√({shown(variance)} + {epsilon:g}) = {shown(result)}",
    ]
    return "√(Σ (x − μ)² ÷ D + ε)", {"kind": "deviation", "a": x, "mean": mean, "epsilon": epsilon}, result, steps


def norm_rms(c: Place) -> Found:
    x = c.take(c.sibling("in"), (c.index[0], None))
    square, epsilon = math.fsum(v * v for v in x["values"]) / len(x["values"]), c.module(c.path).epsilon
    result = math.sqrt(square + epsilon)
    steps = [
        f"({listed(lambda v: shown(v * v), ' + ', x['values'])}) ÷ {len(x['values'])} = {shown(square)}",
        f"√({shown(square)} + {epsilon:g}) = {shown(result)}",
    ]
    return "√(Σ x² ÷ D + ε)", {"kind": "rms", "a": x, "epsilon": epsilon}, result, steps


def norm_scaled(c: Place) -> Found:
    x = c.take(c.sibling("in"), c.index)
    if not isinstance(c.module(c.path), LayerNorm):
        rms = c.take(c.sibling("rms"), (c.index[0], 0))
        result = x["value"] / rms["value"]
        terms = {"kind": "standardise", "a": x, "mean": None, "by": rms}
        return "x ÷ rms", terms, result, [f"{shown(x['value'])} ÷ {shown(rms['value'])} = {shown(result)}"]
    mean, deviation = (c.take(c.sibling(leaf), (c.index[0], 0)) for leaf in ("mean", "deviation"))
    result = (x["value"] - mean["value"]) / deviation["value"]
    line = f"({shown(x['value'])} − {shown(mean['value'])}) ÷ {shown(deviation['value'])} = {shown(result)}"
    return "(x − μ) ÷ σ", {"kind": "standardise", "a": x, "mean": mean, "by": deviation}, result, [line]


def norm_out(c: Place) -> Found:
    scaled, gamma = c.take(c.sibling("scaled"), c.index), c.weight(c.sibling("weight"), (c.index[1],))
    beta = c.weight(c.sibling("bias"), (c.index[1],)) if c.has(c.sibling("bias")) else None
    result = gamma["value"] * scaled["value"] + (beta["value"] if beta else 0.0)
    line = f"{shown(gamma['value'])} × {shown(scaled['value'])}" + (f" + {shown(beta['value'])}" if beta else "")
    terms = {"kind": "affine", "a": scaled, "gamma": gamma, "beta": beta}
    return ("γ · scaled + β" if beta else "γ · scaled"), terms, result, [f"{line} = {shown(result)}"]


# -- feed-forward


def ffn_inner(weight: str) -> Callable[[Place], Found]:
    def rule(c: Place) -> Found:
        number = {"w1": "₁", "w3": "₃"}[weight]
        *place, row = c.index
        return c.linear(c.take(c.sublayer_input(), (*place, None)), c.sibling(weight), row, f"Σ x · W{number}", f"b{number}")

    return rule


def ffn_act(c: Place) -> Found:
    ffn: FeedForward = c.module(c.path)
    pre, function = c.take(c.sibling("pre"), c.index), name_of(ffn.activation)
    result = activated(function, pre["value"])
    steps = [f"{function}({shown(pre['value'])}) = {shown(result)}"]
    gate = c.take(c.sibling("gate"), c.index) if ffn.w3 is not None else None
    if gate:
        steps.append(f"{shown(result)} × {shown(gate['value'])} = {shown(result * gate['value'])}")
        result *= gate["value"]
    equation = f"{function}(pre)" + (" × gate" if gate else "")
    return equation, {"kind": "activation", "function": function, "a": pre, "gate": gate}, result, steps


def ffn_out(c: Place) -> Found:
    *place, row = c.index
    return c.linear(c.take(c.sibling("act"), (*place, None)), c.sibling("w2"), row, "Σ act · W₂", "b₂")


# -- heads and logits


def head_in(c: Place) -> Found:
    if isinstance(c.model, TextCNN):
        place, column = c.index
        size, filters = c.model.options.sizes, c.model.options.filters
        return c.copy(f"encoder.conv{size[column // filters]}.act", (place, column % filters), "the filters of all sizes")
    return c.copy(c.last_states("encoder"), c.index, "x = the encoder's last states")


def head_transformed(c: Place) -> Found:
    return c.copy("head.norm.out", c.index, "LayerNorm(f(x W + b))")


def head_pooled(c: Place) -> Found:
    head = c.module("head")
    if head.pooling == "first":
        return c.copy("head.in", (0, *c.index), "x of the first token")
    if head.pooling == "last":
        if c.index[0] < head.ahead:
            return c.copy("head.in", (c.trace["head.in"].size(0) - 1, *c.index), "h of the last token")
        return c.copy("head.in", (0, *c.index), "h of the first token, which was read last")
    if head.pooling == "max":
        x = c.take("head.in", (None, *c.index))
        return "max x", {"kind": "max", "a": x}, max(x["values"]), [f"max = {shown(max(x['values']))}"]
    return c.mean(c.take("head.in", (None, *c.index)), "Σ x ÷ T")


def head_dense(c: Place) -> Found:
    pooled = c.take("head.pooled", (None,))
    equation, terms, inner, steps = c.linear(pooled, "head.dense", c.index[0], "tanh(Σ pooled · W + b)")
    result = math.tanh(inner)
    return equation, {**terms, "function": "tanh"}, result, [*steps, f"tanh({shown(inner)}) = {shown(result)}"]


def word(c: Place) -> Found:
    position, column = c.index
    id = c.trace.source_tokens[position].id
    row = c.weight("input.weight", (id, column))
    if c.model.options.ngrams:  # type: ignore[union-attr]
        rows = c.model.rows(id)  # type: ignore[operator]
        values = c.model.input.weight[rows, column].tolist()  # type: ignore[union-attr, index]
        return c.mean({**row, "values": values}, "mean of W_in[word] and of its n-grams' rows")
    return "W_in[id]", {"kind": "lookup", "a": row, "scale": 1.0}, row["value"], [f"W_in[{id}, {column}] = {shown(row['value'])}"]


def hidden(c: Place) -> Found:
    place, column = c.index
    options: Any = c.model.options
    if options.architecture == "skip-gram":
        return c.copy("word", c.index, "h = the word's vector")
    near = [i for i in range(len(c.trace.source_tokens)) if 0 < abs(i - place) <= options.window]
    parts = [c.take("word", (i, column)) for i in near]
    divisor = len(near) or 1 if options.context == "mean" else 1
    result = math.fsum(part["value"] for part in parts) / divisor
    line = listed(shown, " + ", [part["value"] for part in parts]) or "0"
    steps = [f"({line}) ÷ {divisor} = {shown(result)}" if divisor > 1 else f"{line} = {shown(result)}"]
    equation = "mean of the vectors around" if options.context == "mean" else "sum of the vectors around"
    return equation, {"kind": "sum", "parts": parts, "divisor": divisor}, result, steps


def logits(c: Place) -> Found:
    head = getattr(c.model, "head", None)
    *place, row = c.index
    if isinstance(c.model, MLP):
        return c.copy("ffn.out", c.index, "the network's output")
    if "hidden" in c.trace:
        return c.linear(c.take("hidden", (*place, None)), "output", row, "Σ h · W_out")
    if head is None:
        return c.linear(c.take(c.last_states("decoder"), (*place, None)), "output", row, "Σ x · W", "b")
    read = {MaskedHead: "head.transformed", PooledHead: "head.dense", TokenHead: "head.in", LinearHead: "head.pooled"}[type(head)]
    return c.linear(c.take(read, (*place, None)), "head.output", row, "Σ x · W", "b")


RULES: dict[str, Callable[[Place], Found]] = {
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
    "word": word,
    "hidden": hidden,
    "logits": logits,
    **ANCESTORS,
}


# -- tensors that an edit replaced


def edited(c: Place) -> Found:
    """A tensor that an edit replaced: what it was replaced by."""
    edits = c.trace.about.get("edits", [])
    kinds = {edit["kind"] for edit in edits if edit.get("path") == c.path}
    heads = [edit["head"] for edit in edits if edit["kind"] == "head-off" and edit["path"] == c.path]
    unplaced = c.path.split(".")[0] in (edit["path"] for edit in edits if edit["kind"] == "no-positions")
    patches = [edit for edit in edits if edit["kind"] == "patch" and edit["name"] == c.name]
    if c.leaf == "z" and c.index[0] in heads:
        return _given(c, "head-off", "z = 0 (head switched off)")
    if c.name.endswith(".embed.position") and unplaced:
        return _given(c, "no-positions", "position = 0 (positions left out)")
    if any(_patched(c, patch) for patch in patches):
        return _given(c, "patch", "from the other pass")
    if c.leaf == "scaled" and "no-scale" in kinds:
        return c.copy(c.sibling("scores"), c.index, "scaled = scores (÷√d_k left out)")
    if c.leaf == "masked" and "no-mask" in kinds:
        return c.copy(c.sibling("scaled"), c.index, "masked = scaled (mask lifted)")
    if c.leaf in ("q", "k") and unplaced:
        return projected(c.leaf, turned=False)(c)
    if heads or patches:  # of another head or position than this one's
        return RULES[describe(c.name).name](c)
    return _given(c, "other", "edited")


def _given(c: Place, by: str, equation: str) -> Found:
    value = c.trace[c.name][c.index].item()
    return equation, {"kind": "edited", "by": by, "value": value}, value, [f"{c.leaf} = {shown(value)}"]


def _patched(c: Place, patch: dict[str, Any]) -> bool:
    """Whether a patch replaced this number."""
    axes = c.trace.axes(c.name)
    place = next((axis for axis, letter in enumerate(axes) if letter in ("T", "S")), None)
    ours = patch["head"] is None or c.index[0] == patch["head"]
    return ours and (patch["position"] is None or place is None or c.index[place] == patch["position"])
