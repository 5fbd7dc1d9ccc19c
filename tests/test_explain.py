"""Every number of a trace, recomputed from the operands that the explanation names."""

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import ANCESTORS, MODELS, READERS, VOCABULARY, WORD2VEC, WRITERS, every_ancestor, every_model
from torch import Tensor, nn

import glassformer as gf
from glassformer import edits, store
from glassformer.edits import HeadOff, NoMask, NoScale
from glassformer.errors import UserError
from glassformer.explain import RULES, Cell, explain
from glassformer.layers.attention import Attention
from glassformer.models.word2vec import Word2Vec
from glassformer.notation import TABLE, describe
from glassformer.trace import Edit, Token, Trace, run

Build = Callable[[], Any]
SAMPLES = 4  # cells of each tensor


def look(model: nn.Module, named: dict[str, Edit] | None = None, about: dict[str, Any] | None = None) -> Trace:
    """A pass of any model over five source and four target tokens."""
    rng = random.Random(1)
    source = [Token(str(i), rng.randrange(1, VOCABULARY)) for i in range(5)]
    target = [Token(str(i), rng.randrange(1, VOCABULARY)) for i in range(4)]
    if isinstance(model, Word2Vec):
        return run(model, source=source, edits=named, about=about)
    if isinstance(model, READERS):
        return run(model, source=source, types=[0, 0, 0, 1, 1], edits=named, about=about)
    return run(model, source=[] if isinstance(model, WRITERS) else source, target=target, edits=named, about=about)


def cells(trace: Trace, samples: int = SAMPLES, seed: int = 0) -> Iterator[tuple[str, list[int]]]:
    """Random places of every tensor, and its last one."""
    rng = random.Random(seed)
    for name, x in trace.items():
        for _ in range(samples):
            yield name, [rng.randrange(size) for size in x.shape]
        yield name, [size - 1 for size in x.shape]


def scale(cell: Cell) -> float:
    """How large the numbers are that were added up: rounding is relative to them."""

    def values(x: Any) -> Iterator[float]:
        if isinstance(x, dict):
            for value in x.values():
                yield from values(value)
        elif isinstance(x, list):
            for value in x:
                yield from values(value)
        elif isinstance(x, float) and math.isfinite(x):
            yield abs(x)

    return 1.0 + max(values(cell.terms), default=0.0)


def check(model: nn.Module, trace: Trace, name: str, index: list[int]) -> Cell:
    """The explanation is of this cell, agrees with it, and quotes its operands as they are."""
    cell = explain(model, trace, name, index)
    value = trace[name][tuple(index)].item()
    assert cell.value == value or math.isnan(value), (name, index)
    assert cell.difference <= 2e-5 * scale(cell), (name, index, cell)
    assert cell.steps and cell.equation
    for operand in operands(cell.terms):
        path, _, leaf = operand["name"].rpartition(".")
        x: Tensor = getattr(model.get_submodule(path), leaf) if operand["weight"] else trace[operand["name"]]
        assert operand["weight"] or operand["name"] != name or operand["index"][0] != index[0]  # the step before of a state
        part = x[tuple(slice(None) if i is None else i for i in operand["index"])].double().flatten().tolist()
        assert part == (operand["values"] if None in operand["index"] else [operand["value"]]), (name, index)
    return cell


def operands(terms: Any) -> Iterator[dict[str, Any]]:
    if isinstance(terms, dict):
        if "index" in terms:
            yield terms
        for value in terms.values():
            yield from operands(value)
    elif isinstance(terms, list):
        for value in terms:
            yield from operands(value)


def test_every_row_has_a_rule() -> None:
    assert set(RULES) == set(TABLE)


@pytest.mark.parametrize("build", [*MODELS.values(), *WORD2VEC.values()], ids=[*MODELS, *WORD2VEC])
def test_cells_follow_from_their_operands(build: Build) -> None:
    model = build()
    trace = look(model)
    for name, index in cells(trace):
        check(model, trace, name, index)


@every_ancestor
def test_cells_of_what_came_before_follow_too(build: Build) -> None:
    model = build()
    trace = look(model)
    for name, index in cells(trace):
        check(model, trace, name, index)
        check(model, trace, name, [0] * len(index))


def test_every_row_was_met() -> None:
    met = {describe(name).name for build in (MODELS | ANCESTORS | WORD2VEC).values() for name in look(build())}
    assert met == set(RULES)


@every_model
def test_cells_of_edited_passes_follow_too(build: Build) -> None:
    model = build()
    paths = [path for path, module in model.named_modules() if isinstance(module, Attention)]
    named = [edit for path in paths for edit in (NoMask(path), HeadOff(path, 1), NoScale(path))]
    about = {"edits": [{"kind": edit.kind, **edit.__dict__} for edit in named]}
    trace = look(model, edits.taps(model, named), about)
    for name, index in cells(trace, samples=2):
        check(model, trace, name, index)


def test_what_an_edit_put_there_says_so() -> None:
    model = MODELS["transformer, paper"]()
    off = look(
        model,
        edits.taps(model, [HeadOff("decoder.0.self", 1)]),
        {"edits": [{"kind": "head-off", "path": "decoder.0.self", "head": 1}]},
    )
    assert explain(model, off, "decoder.0.self.z", [1, 2, 0]).terms == {"kind": "edited", "by": "head-off", "value": 0.0}
    assert explain(model, off, "decoder.0.self.z", [0, 2, 0]).terms["kind"] == "dot"
    own = look(model, {"encoder.1.ffn.act": lambda x: x + 1})
    assert explain(model, own, "encoder.1.ffn.act", [0, 0]).terms["kind"] == "edited"
    check(model, own, "encoder.1.ffn.out", [0, 0])


def test_what_may_not_be_looked_at() -> None:
    model = MODELS["gpt"]()
    cell = explain(model, look(model), "decoder.0.self.masked", [0, 1, 3])
    assert cell.value == cell.result == -math.inf and cell.difference == 0 and not cell.terms["allowed"]
    assert explain(model, look(model), "decoder.0.self.pattern", [0, 1, 3]).result == 0


@pytest.mark.parametrize(
    ("name", "index", "message"),
    [
        ("decoder.0.self.nonsense", [0], "no tensor 'decoder.0.self.nonsense'"),
        ("decoder.0.self.q", [0, 0], r"shape \(4, 4, 6\); there is no \[0, 0\]"),
        ("decoder.0.self.q", [0, 0, 6], r"there is no \[0, 0, 6\]"),
        ("decoder.0.self.q", [0, 0, -1], r"there is no \[0, 0, -1\]"),
    ],
)
def test_a_cell_that_is_not_there(name: str, index: list[int], message: str) -> None:
    model = MODELS["gpt"]()
    with pytest.raises(UserError, match=message):
        explain(model, look(model), name, index)


TEXTS = {
    "translate": ("我们明天去看电影吧𠮷。",),
    "language": ("床前明月光",),
    "fill": ("今天[MASK]气很好",),
    "compare": ("A man eats.", "He is full."),
}


@pytest.mark.parametrize("folder", store.bundled(), ids=lambda folder: folder.name)
def test_cells_of_the_bundled_models(folder: Any) -> None:
    task = gf.load(folder)
    trace = task.trace(*TEXTS.get(task.recipe.task, ("Where is the nearest hospital?",)))
    for name, index in cells(trace, samples=2):
        check(task.model, trace, name, index)
