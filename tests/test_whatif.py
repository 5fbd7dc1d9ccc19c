"""Positions left out, tensors patched from another pass, and the logit lens; from Python and through the API."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import small_tasks
import torch
from conftest import ANCESTORS, MODELS, close, scramble
from fastapi.testclient import TestClient
from small_tasks import TEXTS
from test_ancestors import MADE
from test_explain import cells, check
from test_server import refused

import glassformer as gf
from glassformer import answers, edits
from glassformer.edits import HeadOff, NoMask, NoPositions, NoScale, Patch, apply
from glassformer.errors import UserError
from glassformer.explain import explain
from glassformer.lens import lens, readings
from glassformer.server.app import create_app
from glassformer.server.guard import Visitors
from glassformer.server.limits import Limits
from glassformer.server.shelf import Shelf
from glassformer.trace import Token, Trace, run

Build = Callable[..., Any]
RECURRENT = ("fixed", "additive", "writes", "judges")


def read(model: Any, seed: int, length: int = 6, **more: Any) -> Trace:
    """A pass over random tokens, whatever the model reads."""
    ids = torch.randint(1, 11, (2, length), generator=torch.Generator().manual_seed(seed)).tolist()
    source, target = ([Token(str(id), id) for id in row] for row in ids)
    sides = {"source": source} if hasattr(model, "head") else {"target": target}
    if hasattr(model, "encoder") and hasattr(model, "decoder"):
        sides = {"source": source, "target": target}
    return run(model, **sides, **more)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    at = tmp_path_factory.mktemp("whatif")
    made = {name: small_tasks.make(at / name, name) for name in ("translate", "language", "fill", "classify", "score")}
    return made | {name: small_tasks.make(at / name, MADE[name][0], **MADE[name][1]) for name in RECURRENT}


@pytest.fixture(scope="module")
def client(folders: dict[str, Path]) -> Iterator[TestClient]:
    shelf = Shelf(list(folders.values()), Limits(models=20))
    with TestClient(create_app(shelf, Visitors()), base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


# Positions left out


@pytest.mark.parametrize("name", ["transformer, paper", "transformer, learned", "transformer, rotary", "gpt", "gpt, llama"])
def test_without_positions_the_order_of_what_is_read_says_nothing(name: str) -> None:
    """Each token of a text without a mask gets what it would get at any other place."""
    model = MODELS[name]()
    stack = "encoder" if hasattr(model, "encoder") else "decoder"
    named = [NoPositions(stack)] + ([NoMask(f"decoder.{i}.self") for i in range(2)] if stack == "decoder" else [])
    trace = read(model, 1)
    tokens = trace.source_tokens or trace.target_tokens
    turned = list(reversed(tokens))
    sides = {"source": turned, "target": trace.target_tokens} if stack == "encoder" else {"target": turned}
    last = f"{stack}.1.resid_post"
    for taps in ({}, edits.taps(model, named)):
        ahead, back = read(model, 1, edits=taps)[last], run(model, **sides, edits=taps)[last].flip(0)
        if taps:
            close(ahead, back)
        else:
            assert (ahead - back).abs().max() > 0.01


@pytest.mark.parametrize("name", ["transformer, paper", "transformer, modern", "gpt", "gpt, llama", "bert, pre-norm"])
def test_cells_of_a_pass_without_positions(name: str) -> None:
    model = MODELS[name]()
    stack = "encoder" if hasattr(model, "encoder") else "decoder"
    named = [NoPositions(stack)]
    trace = read(model, 2, edits=edits.taps(model, named), about={"edits": [edits.told(edit) for edit in named]})
    for tensor, index in cells(trace, samples=1):
        check(model, trace, tensor, index)
    if f"{stack}.embed.position" in trace:
        assert not trace[f"{stack}.embed.position"].any()
        assert explain(model, trace, f"{stack}.embed.position", [1, 1]).terms["by"] == "no-positions"


def test_positions_that_are_not_there() -> None:
    with pytest.raises(UserError, match="has no positions to leave out"):
        edits.taps(ANCESTORS["rnn, lstm, none"](), [NoPositions("encoder")])
    with pytest.raises(UserError, match=r"no stack 'head'\. There are: decoder"):
        edits.taps(MODELS["gpt"](), [NoPositions("head")])
    with pytest.raises(UserError, match=r"no stack 'encoder\.0'\. There are: encoder, decoder"):
        edits.taps(MODELS["transformer, paper"](), [NoPositions("encoder.0")])


# A part of another pass


@pytest.mark.parametrize("build", (MODELS | ANCESTORS).values(), ids=MODELS | ANCESTORS)
def test_a_pass_patched_into_itself_is_itself(build: Build) -> None:
    """Every tensor at once, and the last position of each."""
    model = build()
    trace = read(model, 3)
    again = read(model, 3, edits=edits.taps(model, [Patch(name, trace) for name in trace]))
    assert all(again[name].equal(x) for name, x in trace.items())
    placed = [name for name in trace if {"T", "S"} & set(trace.axes(name))]
    last = read(model, 3, edits=edits.taps(model, [Patch(name, trace, position=5, other_position=5) for name in placed]))
    assert all(last[name].equal(x) for name, x in trace.items())


@pytest.mark.parametrize("build", (MODELS | ANCESTORS).values(), ids=MODELS | ANCESTORS)
def test_with_the_last_states_of_another_pass_it_answers_the_same(build: Build) -> None:
    model = build()
    one, other = read(model, 4), read(model, 5)
    ends = ("resid_post", "combine.out", "joined", "hidden", "features", "act")
    stack = "decoder" if hasattr(model, "decoder") else "encoder"
    last = [name for name in one if name.startswith(stack) and name.rpartition(f"{stack}.")[2].split(".", 1)[-1].endswith(ends)]
    layers = [name for name in last if not name.startswith(f"{stack}.0.")] or last  # the last of two layers, if they are numbered
    patched = read(model, 4, edits=edits.taps(model, [Patch(name, other) for name in layers]))
    assert not one["logits"].equal(other["logits"])
    close(patched["logits"], other["logits"], 1e-6)


def test_one_head_and_one_position() -> None:
    model = MODELS["transformer, paper"]()
    one, other = read(model, 6), read(model, 7, length=4)
    name = "encoder.1.self.z"
    found = read(model, 6, edits=edits.taps(model, [Patch(name, other, head=1, position=5, other_position=2)]))
    assert found[name][1, 5].equal(other[name][1, 2]) and found.edited == {name}
    untouched = torch.ones_like(one[name], dtype=torch.bool)
    untouched[1, 5] = False
    assert found[name][untouched].equal(one[name][untouched])
    whole = read(model, 6, edits=edits.taps(model, [Patch(name, read(model, 8), head=0)]))
    assert whole[name][0].equal(read(model, 8)[name][0]) and whole[name][1].equal(one[name][1])


def test_cells_of_a_patched_pass() -> None:
    """What was put there says so; the numbers beside it are explained as ever."""
    model = MODELS["transformer, rotary"]()
    other = read(model, 9)
    named = [
        Patch("encoder.0.self.z", other, head=1, position=2),
        Patch("decoder.1.resid_mid", other, position=0, other_position=3),
        Patch("encoder.1.self.scores", other),
        NoScale("encoder.1.self"),
        NoMask("decoder.0.self"),
        HeadOff("decoder.1.cross", 0),
        NoPositions("decoder"),
    ]
    trace = read(model, 10, edits=edits.taps(model, named), about={"edits": [edits.told(edit) for edit in named]})
    for name, index in cells(trace, samples=4):
        check(model, trace, name, index)
    assert explain(model, trace, "encoder.0.self.z", [1, 2, 0]).terms["by"] == "patch"
    assert explain(model, trace, "encoder.0.self.z", [1, 1, 0]).terms["kind"] == "dot"
    assert explain(model, trace, "decoder.1.resid_mid", [0, 4]).value == other["decoder.1.resid_mid"][3, 4].item()
    assert trace["encoder.1.self.scaled"].equal(other["encoder.1.self.scores"])  # patched before it is not divided
    assert trace.about["edits"][0] == {
        "kind": "patch", "name": "encoder.0.self.z", "other": None, "head": 1, "position": 2, "other_position": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"name": "encoder.9.resid_post"}, "other pass has no tensor"),
        ({"name": "encoder.0.resid_post"}, "is 6 × 16 here and 4 × 16 in the other pass: they do not fit. Take one position"),
        ({"name": "encoder.0.self.pattern", "position": 0}, "Even at one position they differ, along S"),
        ({"name": "encoder.0.resid_post", "position": 5}, "positions 0 to 3; there is no position 5"),
        ({"name": "encoder.0.resid_post", "position": 6, "other_position": 0}, "positions 0 to 5; there is no position 6"),
        ({"name": "encoder.0.resid_post", "head": 0}, "has no heads: its axes are T × D"),
        ({"name": "encoder.0.self.z", "head": 2, "position": 0}, "heads 0 to 1; there is no head 2"),
        ({"name": "encoder.0.resid_post", "other_position": 0}, "give both"),
    ],
)
def test_patches_that_do_not_fit(patch: dict[str, Any], message: str) -> None:
    model = MODELS["transformer, paper"]()
    with pytest.raises(UserError, match=message):
        read(model, 6, edits=edits.taps(model, [Patch(other=read(model, 7, length=4), **patch)]))


# The lens


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
@torch.inference_mode()
def test_the_last_reading_is_the_models_own(build: Build) -> None:
    model = build()
    trace = read(model, 11)
    found = list(readings(model, trace))
    assert [one.layer for one in found] == list(range(len(found))) and found[0].tensor.endswith(".0.resid_pre")
    close(found[-1].logits, trace["logits"], 1e-5)
    assert (found[0].logits - found[-1].logits).abs().max() > 1e-3
    for one in found:  # recomputed without the model's own modules
        stack = one.tensor.split(".")[0]
        norm = getattr(model, stack).norm
        states = trace[one.tensor].unsqueeze(0)
        if norm is not None:
            assert model.options.norm == "pre"
            states = norm(states)
        if hasattr(model, "output"):
            bias = model.output.bias if model.output.bias is not None else 0
            close(one.logits, (states @ model.output.weight.T + bias)[0], 1e-5)


@torch.inference_mode()
def test_a_layer_that_adds_nothing_reads_as_the_one_before() -> None:
    model = MODELS["gpt"]()
    for part in (model.decoder.get_submodule("1").self.o, model.decoder.get_submodule("1").ffn.w2):
        part.weight.data.zero_()
        part.bias.data.zero_()
    first, second = list(readings(model, read(model, 12)))[1:]
    close(first.logits, second.logits, 1e-6)


@pytest.mark.parametrize("name", ["translate", "language", "fill", "classify", "score"])
def test_the_lens_of_every_task(client: TestClient, folders: dict[str, Path], name: str) -> None:
    task = gf.load(folders[name])
    trace = task.trace(*TEXTS[name])
    text, *second = TEXTS[name]
    asked = {"model": name, "text": text, **({"second": second[0]} if second else {})}
    told = client.post("/api/trace", json=asked).json()
    found = client.post(f"/api/trace/{told['id']}/lens", json={"place": 0}).json()
    assert found == lens(task, trace, 0)
    final = answers.predictions(task, trace)
    assert [one["token"] for one in found["predictions"]] == [one.label for one in final]
    last = found["layers"][-1]
    assert last["p"] == pytest.approx([answers.shown(task, one.probabilities[one.chosen].item()) for one in final], abs=1e-5)
    if name == "classify":
        assert last["rank"] == [1] and last["best"][0]["text"] == told["answer"]["label"] == last["top"][0]["text"]
    refused(client.post(f"/api/trace/{told['id']}/lens", json={"place": 99}), 422, "bad-input")


def test_a_lens_needs_a_residual_stream(client: TestClient) -> None:
    told = client.post("/api/trace", json={"model": "fixed", "text": "the cat"}).json()
    said = refused(client.post(f"/api/trace/{told['id']}/lens", json={}), 422, "bad-input")
    assert "needs a residual stream" in said["error"]
    refused(client.post(f"/api/trace/{'0' * 16}/lens", json={}), 410, "expired")


# Through the API


def trace(client: TestClient, **asked: Any) -> dict[str, Any]:
    response = client.post("/api/trace", json=asked)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("name", ["translate", "additive"])
def test_patches_are_of_the_same_model(client: TestClient, folders: dict[str, Path], name: str) -> None:
    one, other = (trace(client, model=name, text=text, to="zh", target=[40, 41]) for text in ("the cat", "the mat"))
    last = "decoder.1.resid_post" if name == "translate" else "decoder.0.combine.out"
    patch = {"kind": "patch", "name": last, "other": other["id"]}
    told = client.post(f"/api/trace/{one['id']}/edit", json={"edits": [patch]}).json()
    assert not told["same"] and told["edits"][0]["other"] == "the mat"
    task = gf.load(folders[name])
    wanted = apply(
        task, task.trace("the cat", "zh", target=[40, 41]), [Patch(last, task.trace("the mat", "zh", target=[40, 41]))]
    )
    assert [change["after"] for change in told["changes"]] == pytest.approx([change.after for change in wanted.changes])
    itself = client.post(f"/api/trace/{one['id']}/edit", json={"edits": [{**patch, "other": one["id"]}]}).json()
    assert itself["same"] and all(change["before"] == change["after"] for change in itself["changes"])
    foreign = trace(client, model="language", text="the cat")
    said = refused(
        client.post(f"/api/trace/{one['id']}/edit", json={"edits": [{**patch, "other": foreign["id"]}]}), 422, "other-model"
    )
    assert said["details"] == {"model": name, "other": "language"}
    refused(client.post(f"/api/trace/{one['id']}/edit", json={"edits": [{**patch, "other": "f" * 16}]}), 410, "expired")
    refused(client.post(f"/api/trace/{one['id']}/edit", json={"edits": [{**patch, "head": 0}]}), 422, "bad-input")


def test_positions_left_out(client: TestClient) -> None:
    told = trace(client, model="translate", text="the cat sat on the mat", to="zh")
    edited = client.post(f"/api/trace/{told['id']}/edit", json={"edits": [{"kind": "no-positions", "path": "encoder"}]}).json()
    assert not edited["same"] and edited["tensors"]["encoder.embed.position"]["max"] == 0
    no = {"edits": [{"kind": "no-positions", "path": "decoder"}], "model": "translate", "text": "the cat", "to": "zh"}
    refused(client.post("/api/next", json=no), 422, "bad-request")  # a search reads on, and positions are of a whole pass


def test_scrambled_weights_are_different(folders: dict[str, Path]) -> None:
    """A patch from the same text by other weights is another pass: the model is what is compared."""
    task = gf.load(folders["translate"])
    one = task.trace("the cat", "zh", target=[40])
    scramble(task.model)
    other = task.trace("the cat", "zh", target=[40])
    assert not apply(task, other, [Patch("decoder.1.resid_post", one)]).same
