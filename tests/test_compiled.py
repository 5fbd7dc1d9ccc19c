"""What was compiled computes what PyTorch does: for every kind of processor, all sizes of tiles, whatever options ask for."""

import copy
import math
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import VARIANTS, VOCABULARY, close, sentences, transformer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassformer.decoding import search
from glassformer.decoding.cores import one_core
from glassformer.decoding.state import Limits
from glassformer.layers import compiled, compiled_stack, threads
from glassformer.layers.without_modules import InC

KINDS = {"plain": 0, "avx2": 1, "avx512": 2}
WIDE: dict[str, dict[str, Any]] = {
    "64": {"width": 64, "heads": 2, "inner": 96},
    "40, d_k 20": {"width": 40, "heads": 2, "inner": 136},
    "144, d_k 48": {"width": 144, "heads": 3, "inner": 48, "output_bias": True},
}
DOT = {name: changes for name, changes in VARIANTS.items() if changes.get("scores") != "additive"}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[int]:
    """Each kind of processor, up to this one."""
    library = compiled.library()
    if library is None:
        pytest.skip("nothing was compiled: there was no C compiler when Glassformer was installed")
    try:
        if library.compiled_kind(request.param) != request.param:
            pytest.skip(f"this processor is older than {request.node.callspec.id}")
        yield request.param
    finally:
        library.compiled_kind(max(KINDS.values()))


def test_it_is_compiled_where_there_is_a_compiler() -> None:
    """GCC from 9 on, or Clang."""
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("there is no C compiler: PyTorch computes")
    assert compiled.library() is not None


def test_what_was_compiled_from_other_code_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "VERSION", -1)
    assert compiled.library.__wrapped__() is None


@pytest.mark.parametrize("changes", [*DOT.values(), *WIDE.values()], ids=[*DOT, *WIDE])
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_a_stack_is_the_stack_of_modules(changes: dict[str, Any], norm: str, kind: int) -> None:
    """One source, and padded ones; as many rows as there are tiles, which are reordered, become fewer and more."""
    model = transformer(**{"norm": norm} | changes)
    for weight in model.parameters():
        weight.div_(max(1, weight.size(-1) / 24))  # or the last bits of a score decide what a wide model writes
    assert isinstance(model.decoder.bare(model.output), InC)
    close(model.encoder.read(sentences(7), None), model.encoder(sentences(7))[0], 2e-5)
    sources = sentences(5, 1, 4, seed=1)
    draw = torch.Generator().manual_seed(0)
    state, source = model.start(sources), torch.arange(3)
    target = torch.empty(3, 0, dtype=torch.long)
    for rows in (3, 2, 13, 13, 6, 5, 4, 1):
        index = torch.randint(len(source), (rows,), generator=draw)
        state, source, target = state.reorder(index), source[index], target[index]
        target = torch.cat((target, torch.randint(1, VOCABULARY, (rows, 1), generator=draw)), dim=1)
        found, state = model.step(target[:, -1], state)
        close(found, model.logits(model(sources[source], target))[:, -1], 2e-5)


@torch.no_grad()
def test_the_vocabulary_of_one_row_is_shared(monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    """By as many cores as there are; then all goes on with one."""
    asked: list[int] = []
    monkeypatch.setattr(compiled_stack, "SHARED", 0)
    monkeypatch.setattr(threads, "LATE", (10.0, 0.0, 0.0))  # seconds: on a busy machine too
    monkeypatch.setattr(compiled_stack, "set_threads", lambda *counts: asked.extend(counts))
    model, source, tokens = transformer(), sentences(4), torch.tensor([[1, 3]])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_core():
            asked.clear()
            _, state = model.step(tokens[:, 0], model.start(source))
            found, _ = model.step(tokens[:, 1], state)
            assert asked == [2, 1, 2, 1]
    finally:
        torch.set_num_threads(before)
    close(found, model.logits(model(source, tokens))[:, -1], 2e-5)


@torch.no_grad()
def test_what_is_not_there_is_said(kind: int) -> None:
    model = transformer(positions="learned", max_length=3)
    with pytest.raises(IndexError, match="not in the vocabulary"):
        model.step(torch.tensor([VOCABULARY]), model.start(sentences(2)))
    state = model.start(sentences(2))
    for _ in range(3):
        _, state = model.step(torch.tensor([1]), state)
    with pytest.raises(IndexError, match="beyond the model's positions"):
        model.step(torch.tensor([1]), state)


@torch.no_grad()
def test_tokens_that_are_not_as_many_as_rows_are_refused(kind: int) -> None:
    model = transformer()
    _, state = model.step(torch.tensor([1, 1]), model.start(sentences(2, 2)))
    for count in (1, 3, 200):
        with pytest.raises(ValueError, match="for 2 rows"):
            model.step(torch.ones(count, dtype=torch.long), state)
        with pytest.raises(ValueError, match="cannot share 3 sources"):
            model.step(torch.ones(4, dtype=torch.long), model.start(sentences(3, 2, 1)))


@torch.no_grad()
def test_a_source_with_nothing_to_look_at_is_nothing(kind: int) -> None:
    model, sources, begin = transformer(), torch.tensor([[3, 3, 3], [0, 0, 0]]), torch.tensor([[1], [1]])
    found, _ = model.step(begin[:, 0], model.start(sources))
    close(found, model.logits(model(sources, begin))[:, -1], 2e-5)


@pytest.mark.parametrize("other", [torch.float16, torch.float64])
@torch.no_grad()
def test_weights_of_another_precision_are_not_read(other: torch.dtype, kind: int) -> None:
    """By a state in the middle; a new one knows them."""
    model, source, token = transformer(), sentences(3), torch.tensor([1])
    _, state = model.step(token, model.start(source))
    model.to(other)
    with pytest.raises(TypeError, match="other weights"):
        model.step(token, state)
    assert model.step(token, model.start(source))[0].dtype == other


@pytest.mark.parametrize("changes", DOT.values(), ids=DOT)
@torch.no_grad()
def test_a_copy_steps_as_well(changes: dict[str, Any], kind: int) -> None:
    """Of the model, and of a state in the middle."""
    model, source, tokens = transformer(**changes), sentences(3), torch.tensor([[1, 2]])
    wanted = model.logits(model(source, tokens))[:, -1]
    _, state = model.step(tokens[:, 0], model.start(source))
    close(model.step(tokens[:, 1], copy.deepcopy(state))[0], wanted, 2e-5)
    model.share_memory()  # which moves the weights that a state in the middle goes on with
    close(model.step(tokens[:, 1], state)[0], wanted, 2e-5)
    other = copy.deepcopy(model)
    _, state = other.step(tokens[:, 0], other.start(source))
    close(other.step(tokens[:, 1], state)[0], wanted, 2e-5)


@torch.no_grad()
def test_what_numbers_are_made_of_elsewhere_changes_nothing(kind: int) -> None:
    """Other numbers by default, ids of 32 bits, and half the precision now and then."""
    model, source, tokens = transformer(), sentences(3), torch.tensor([[1, 2]])
    wanted = model.logits(model(source, tokens))[:, -1]
    torch.set_default_dtype(torch.bfloat16)
    try:
        _, state = model.step(tokens[:, 0].int(), model.start(source))
        close(model.step(tokens[:, 1].int(), state)[0], wanted, 2e-5)
    finally:
        torch.set_default_dtype(torch.float32)
    for where in ([0, 1, 2], [1, 2]):

        def at(place: int, within: list[int] = where) -> torch.autocast:
            return torch.autocast("cpu", torch.bfloat16, enabled=place in within)

        with at(0):
            state = model.start(source)
        with at(1):
            _, state = model.step(tokens[:, 0], state)
        with at(2):
            found, _ = model.step(tokens[:, 1], state)
        close(found.float(), wanted, 0.1)


@pytest.mark.parametrize("size", [1, 15, 16, 63, 64, 65, 200])
def test_a_product_by_panels_is_the_product(size: int, kind: int) -> None:
    draw = np.random.default_rng(size)
    for rows in range(1, 14):
        x, weight, bias = (draw.standard_normal(shape, dtype=np.float32) for shape in ((rows, 20), (20, size), (size,)))
        np.testing.assert_allclose(compiled.Panels(weight, bias)(x), x @ weight + bias, atol=1e-4)
        np.testing.assert_allclose(compiled.Panels(weight, None)(x), x @ weight, atol=1e-4)


def test_an_end_mark_that_is_no_token_is_refused(kind: int) -> None:
    for eos in (-1, 10):
        rules = search._Rules(Limits(bos=1, eos=eos, max_lengths=[0], min_length=0, banned=()))
        with pytest.raises(IndexError, match="of a vocabulary of 10"):
            rules.best(torch.zeros(1, 10), [[0.0]], 1, 0, [0])


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 999),
    rows=st.integers(1, 3),
    width=st.integers(1, 6),
    size=st.integers(4, 300),
    odd=st.sampled_from(["plain", "ties", "impossible", "nan", "infinite", "nothing"]),
    length=st.integers(0, 4),
)
def test_the_best_are_those_of_topk(seed: int, rows: int, width: int, size: int, odd: str, length: int, kind: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows * width, size, generator=draw)
    if odd == "ties":
        logits = logits.round()
    elif odd == "impossible":
        logits = logits.masked_fill(logits > 3, -math.inf)
    elif odd != "plain":
        logits[-1] = {"nan": math.nan, "infinite": math.inf, "nothing": -math.inf}[odd]
    before = (5 * torch.randn(rows, width, generator=draw)).tolist()
    for k in range(1, width):
        before[0][k] = -math.inf
    limits = Limits(bos=1, eos=2, max_lengths=[3 + n for n in range(rows)], min_length=1, banned=(0, 1))
    rules, count = search._Rules(limits), min(2 * width, width * size)
    asked = (before, count, length, list(range(rows)))
    totals, log_probs, places = rules.best(logits, *asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "library", lambda: None)
        wanted, plain, _ = rules.best(logits, *asked)
    for b in range(rows):
        broken = odd in ("nan", "infinite", "nothing") and b == rows - 1
        if broken:  # the search ends there either way
            assert (not totals[b][0] > -math.inf and not wanted[b][0] > -math.inf) or (
                odd == "nothing" and math.isnan(totals[b][0])
            )
            continue
        assert totals[b] == pytest.approx(wanted[b], abs=1e-4)
        real = [place for place, total in zip(places[b], totals[b], strict=True) if total > -math.inf]
        assert len(set(real)) == len(real)
        found = logits.view(rows, width, size)[b].log_softmax(-1).flatten()
        assert log_probs[b][: len(real)] == pytest.approx(found[real].tolist(), abs=1e-4)
        if odd != "ties":
            assert log_probs[b][: len(real)] == pytest.approx(plain[b][: len(real)], abs=1e-4)
