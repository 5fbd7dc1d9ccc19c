"""The decoder alone: read at once or token by token it gives the same numbers, and nothing looks ahead."""

from typing import Any

import pytest
import torch
from conftest import VOCABULARY, close, gpt
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.models.gpt import GPT
from glassformer.models.stack import parameters

OPTIONS = st.fixed_dictionaries(
    {
        "positions": st.sampled_from(["learned", "rotary", "sinusoidal"]),
        "kv_heads": st.sampled_from([0, 1, 2, 4]),
        "norm": st.sampled_from(["pre", "post"]),
        "norm_kind": st.sampled_from(["layer", "rms"]),
        "activation": st.sampled_from(["relu", "gelu", "gelu-tanh", "swiglu"]),
        "tie": st.booleans(),
        "bias": st.booleans(),
        "key_width": st.sampled_from([0, 8]),
        "value_width": st.sampled_from([0, 5]),
    }
)
FEW: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "llama": {"positions": "rotary", "norm_kind": "rms", "activation": "swiglu", "bias": False, "tie": False, "kv_heads": 2},
    "additive": {"scores": "additive", "kv_heads": 2},
}
few = pytest.mark.parametrize("changes", FEW.values(), ids=FEW)


def text(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def logits(model: GPT, ids: Tensor) -> Tensor:
    return model.logits(model(ids))


def stepped(model: GPT, ids: Tensor, begin: int) -> Tensor:
    """The logits of ids[:, begin:], read one by one after a start with those before."""
    state = model.start(ids[:, :begin])
    found = []
    for t in range(begin, ids.size(1)):
        step, state = model.step(ids[:, t], state)
        found.append(step)
    return torch.stack(found, 1)


@pytest.fixture(autouse=True, params=["grad", "inference"])
def _mode(request: pytest.FixtureRequest):
    """With gradients keys are put together anew, without them they are written into memory kept free for them."""
    with torch.inference_mode(request.param == "inference"):
        yield


@settings(max_examples=25)
@given(options=OPTIONS, begin=st.integers(0, 9), data=st.data())
def test_token_by_token_is_the_same_as_at_once(options, begin, data):
    model, ids = gpt(seed=data.draw(st.integers(0, 5)), **options), text(2, 10, seed=begin)
    close(stepped(model, ids, begin), logits(model, ids)[:, begin:])


@few
def test_to_the_end_of_the_window(changes):
    """Past the room that was kept free at first, too."""
    model, ids = gpt(**{**changes, "max_length": 80}), text(1, 80)
    close(stepped(model, ids, 1), logits(model, ids)[:, 1:])


@few
def test_a_later_token_changes_nothing_before_it(changes):
    model, ids = gpt(**changes), text(1, 8)
    whole = logits(model, ids)
    for t in range(8):
        other = ids.clone()
        other[0, t] = (ids[0, t] + 1) % VOCABULARY
        found = logits(model, other)
        close(found[:, :t], whole[:, :t])
        assert not torch.allclose(found[:, t:], whole[:, t:], atol=1e-3)


@few
def test_right_padding_and_neighbours_change_nothing(changes):
    model = gpt(**changes)
    rows = [text(1, length, seed=length) for length in (3, 9, 5)]
    batch = torch.zeros(3, 9, dtype=torch.long)
    for i, row in enumerate(rows):
        batch[i, : row.size(1)] = row
    found = logits(model, batch)
    for i, row in enumerate(rows):
        close(found[i : i + 1, : row.size(1)], logits(model, row))


@few
def test_two_ways_on_from_one_state(changes):
    """A state is a value: what goes on from it does not disturb another that does."""
    model, ids = gpt(**changes), text(1, 6)
    shared = model.start(ids)
    ways = [text(1, 5, seed=seed) for seed in (1, 2)]

    def go_on(state, way):
        found = []
        for t in range(way.size(1)):
            step, state = model.step(way[:, t], state)
            found.append(step)
        return torch.stack(found, 1), state

    alone = [go_on(model.start(ids), way)[0] for way in ways]
    (first, end), (second, _) = go_on(shared, ways[0]), go_on(shared, ways[1])
    close(first, alone[0])
    close(second, alone[1])
    close(go_on(shared, ways[0])[0], alone[0])
    # And on from the middle: the state that `first` ended in still holds its own text.
    close(go_on(end, ways[1])[0], go_on(model.start(torch.cat((ids, ways[0]), 1)), ways[1])[0])


@few
def test_reordered_rows(changes):
    """As sampling does: one prompt for many rows, and rows that have ended leave."""
    model, ids = gpt(**changes), text(3, 6)
    state = model.start(ids[:, :4]).reorder(torch.tensor([2, 0, 0]))
    step, _ = model.step(ids[[2, 0, 0], 4], state)
    close(step, logits(model, ids[:, :5])[[2, 0, 0], -1])


def test_fewer_key_heads_tied_vocabulary_and_no_biases_are_fewer_numbers():
    plain = gpt()
    d, v, inner, layers, length = 24, VOCABULARY, 20, 2, 32
    block = 4 * (d * d + d) + 2 * d * inner + inner + d + 4 * d
    assert parameters(plain) == v * d + length * d + layers * block + 2 * d
    assert parameters(gpt(tie=False)) == parameters(plain) + v * d
    assert parameters(gpt(kv_heads=2)) == parameters(plain) - layers * 2 * (d * d + d) // 2
    assert parameters(gpt(positions="rotary")) == parameters(plain) - length * d
    assert parameters(gpt(bias=False)) == parameters(plain) - layers * (4 * d + inner + d + 2 * d) - d
    assert not any(name.endswith("bias") for name, _ in gpt(bias=False).named_parameters())


def test_tied_is_one_matrix():
    model = gpt()
    assert model.output.weight is model.decoder.embed.token.weight
    assert gpt(tie=False).output.weight is not gpt(tie=False).decoder.embed.token.weight
