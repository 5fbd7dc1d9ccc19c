"""The API as the page uses it, and as nobody should: every answer is the contract's, every mistake a sentence."""

import gc
import json
import os
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import schemathesis
import small_tasks
import torch
from command import glassformer, process
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from numpy.typing import NDArray
from schemathesis.generation import GenerationMode
from small_tasks import TEXTS

from glassformer import config, store
from glassformer.decoding.sampling import distribution
from glassformer.errors import UserError
from glassformer.notation import TABLE
from glassformer.options import GenerationOptions, TokenizerOptions
from glassformer.server import page
from glassformer.server.app import create_app
from glassformer.server.cache import Traces
from glassformer.server.examples import language_of
from glassformer.server.guard import Visitors
from glassformer.server.limits import Limits
from glassformer.server.shelf import Shelf, tell
from glassformer.tasks import registry
from glassformer.text.tokenizer import Tokenizer

LOCAL = "http://localhost"
every_task = pytest.mark.parametrize("name", small_tasks.DATA)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: small_tasks.make(folder / name, name) for name in small_tasks.DATA}


@pytest.fixture(scope="module")
def shelf(models: dict[str, Path]) -> Shelf:
    return Shelf(list(models.values()), Limits(models=20))


@pytest.fixture(scope="module")
def client(shelf: Shelf) -> Iterator[TestClient]:
    with TestClient(create_app(shelf, Visitors()), base_url=LOCAL, raise_server_exceptions=False) as client:
        yield client


def trace(client: TestClient, name: str, **more: Any) -> dict[str, Any]:
    text, *second = TEXTS[name]
    asked = {"model": name, "text": text, **({"second": second[0]} if second else {}), **more}
    response = client.post("/api/trace", json=asked)
    assert response.status_code == 200, response.text
    return response.json()


def numbers(client: TestClient, path: str, **query: Any) -> NDArray[np.float32]:
    response = client.get(path, params=query)
    assert response.status_code == 200, response.text
    shape = [int(size) for size in response.headers["x-shape"].split(",") if size]
    assert len(response.content) <= 1_000_000
    return np.frombuffer(response.content, "<f4").reshape(shape)


def refused(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text[:500]
    said = response.json()
    assert said.keys() == {"error", "code", "details"} and said["code"] == code, said
    assert said["error"][0].isupper() or said["error"][0] in "'abcdefghijklmnopqrstuvwxyz"
    assert said["error"].endswith((".", ")", "'", "?")) and "Traceback" not in said["error"]
    return said


# Models


def test_models_are_what_their_recipes_say(client: TestClient) -> None:
    told = client.get("/api/models").json()
    assert [model["id"] for model in told["models"]] == list(small_tasks.DATA) and told["problems"] == {}
    assert told["default"] == "translate"
    by_id = {model["id"]: model for model in told["models"]}
    assert by_id["translate"]["languages"] == ["en", "zh"] and by_id["translate"]["both_ways"] is True
    assert by_id["classify"]["labels"] == ["joy", "anger", "<b>"] and "labels" not in by_id["score"]
    for name, model in by_id.items():
        assert model["task"] == ("compare" if name == "score" else name) and model["options"]["width"] == 16
        assert model["max_length"] == 48 and 256 < model["vocabulary"] <= 300 and model["title"]
        assert 2 <= len(model["examples"]) <= 4 and all(model["examples"])
        assert len(model.get("seconds", [])) == (len(model["examples"]) if name in ("compare", "score") else 0)
        assert model["eos"] == (2 if name in ("translate", "language") else None)


def words_model(folder: Path, *lines: str) -> Path:
    """A classifier whose vocabulary is the words of these lines; all others are unknown to it."""
    made = small_tasks.make(folder, "classify")
    recipe = (made / "recipe.toml").read_text("utf-8")
    (made / "recipe.toml").write_text(recipe.replace('kind = "bpe"', 'kind = "word"'), "utf-8")
    tokenizer = Tokenizer.train([*lines] * 2, TokenizerOptions(kind="word", vocabulary=300))
    tokenizer.save(made / "tokenizer.json")
    task = registry.task_of(config.read(made / "recipe.toml")).build(made, config.read(made / "recipe.toml"))
    task.save(made)
    return made


def test_words_that_a_model_does_not_know(tmp_path: Path) -> None:
    """They are not among the texts to begin with, and each is marked."""
    folder = words_model(tmp_path / "words", "wake me up at seven tomorrow")
    with TestClient(create_app(Shelf([folder]), Visitors()), base_url=LOCAL) as client:
        assert client.get("/api/models").json()["models"][0]["examples"] == ["wake me up at seven tomorrow"]
        told = trace(client, "classify", model="words", text="wake me at noon tomorrow")
        assert [token["text"] for token in told["source"] if token["unknown"]] == ["noon"]
    stranger = words_model(tmp_path / "stranger", "one two three")
    assert len(tell(stranger)["examples"]) > 1  # all have some: better those than none


@pytest.mark.parametrize(("han", "language"), [(0, "en"), (3, "en"), (40, "zh")])
def test_a_few_chinese_pieces_do_not_make_a_model_chinese(han: int, language: str) -> None:
    words = [*map(chr, range(0x4E00, 0x4E00 + han)), *(f"word{i}" for i in range(100))]
    tokenizer = Tokenizer.train([" ".join(words)] * 2, TokenizerOptions(kind="word", vocabulary=300))
    assert language_of(tokenizer) == language


@every_task
def test_the_map_is_the_pass(client: TestClient, shelf: Shelf, name: str) -> None:
    """Every tensor of a trace stands in it once, in the order it is computed; nothing else does."""
    told = next(model for model in client.get("/api/models").json()["models"] if model["id"] == name)
    steps = [step for stack in told["map"] for step in stack["steps"]]
    found = trace(client, name)
    assert sorted(tensor for step in steps for tensor in step["tensors"]) == sorted(found["tensors"])
    order = list(found["tensors"])
    lasts = [order.index(step["tensors"][-1]) for step in steps if step["id"] != "head"]
    assert lasts == sorted(lasts)
    assert [stack["name"] for stack in told["map"]] == {
        "translate": ["encoder", "decoder", "output"],
        "language": ["decoder", "output"],
    }.get(name, ["encoder", "output"])
    assert {step["kind"] for step in steps} <= {row.partition(".")[0] for row in TABLE}
    parameters = sum(p.numel() for p in shelf.load(name).model.parameters())
    assert told["parameters"] == parameters


def test_norm_order_shows_in_the_map(client: TestClient) -> None:
    told = {model["id"]: model for model in client.get("/api/models").json()["models"]}
    ids = {name: [step["id"] for step in told[name]["map"][0]["steps"]] for name in ("translate", "tag")}
    assert ids["translate"].index("encoder.0.self") < ids["translate"].index("encoder.0.norm1")  # post
    assert ids["tag"].index("encoder.0.norm1") < ids["tag"].index("encoder.0.self")  # pre


def test_notation(client: TestClient) -> None:
    rows = client.get("/api/notation").json()["rows"]
    assert rows.keys() == TABLE.keys() and rows["attention.q"]["chinese"] == TABLE["attention.q"].chinese


# Traces


@every_task
def test_a_trace(client: TestClient, shelf: Shelf, name: str) -> None:
    told = trace(client, name)
    task: Any = shelf.load(name)
    found = task.trace(*TEXTS[name])
    assert told["text"] == TEXTS[name][0] and told["seconds"] > 0 and told["model"] == name
    assert [token["id"] for token in told["source"]] == [token.id for token in found.source_tokens]
    assert [token["id"] for token in told["target"]] == [token.id for token in found.target_tokens]
    assert not any("\ufffd" in token["text"] for token in told["source"] + told["target"])
    assert all(token["log_prob"] < 0 for token in told["target"][1:])
    assert told["tensors"].keys() == found.keys()
    for path, about in told["tensors"].items():
        x = found[path]
        finite = x[x.isfinite()]
        assert about["shape"] == list(x.shape) and about["axes"] == found.axes(path) and about["row"] in TABLE
        assert [about["min"], about["max"]] == pytest.approx([finite.min().item(), finite.max().item()], abs=1e-6)
        assert about["mean"] == pytest.approx(finite.double().mean().item(), abs=1e-6)
    for path in list(found)[::3]:
        whole = numbers(client, f"/api/trace/{told['id']}/tensor/{path}")
        np.testing.assert_allclose(whole, found[path].clone().numpy(), atol=1e-6)


def test_a_forced_target_and_a_direction(client: TestClient) -> None:
    told = trace(client, "translate", to="zh", target=[40, 41])
    assert told["to"] == "zh" and [token["id"] for token in told["target"][1:]] == [40, 41]
    assert trace(client, "translate", text="你好")["to"] == "en"


def test_going_on_first(client: TestClient) -> None:
    told = trace(client, "language", max_tokens=6)
    assert len(told["answer"]["ids"]) == 6 and [token["id"] for token in told["target"][-6:]] == told["answer"]["ids"]
    assert len(trace(client, "language", text="")["target"]) == 1


STRANGE = ["a\0b\x1b[31m\x07", "<script>alert(1)</script>", "\u202e\ufeff\u200d", "\U0001f600" * 3, " x\n\ty "]


@pytest.mark.parametrize("text", STRANGE)
def test_any_characters_come_back_as_they_are(client: TestClient, text: str) -> None:
    told = trace(client, "classify", text=text)
    assert told["text"] == text
    spans = dict.fromkeys((t["start"], t["end"]) for t in told["source"] if not t["special"])  # pieces of one character share it
    assert "".join(text[start:end] for start, end in spans) == text
    assert all(t["text"] for t in told["source"])


def test_the_bytes_of_a_character_are_spelled(client: TestClient) -> None:
    told = trace(client, "classify", text="\U0001f600")
    assert [t["text"] for t in told["source"][1:-1]] == ["\U0001f600", "<0x9F>", "<0x98>", "<0x80>"]


# Slices


@pytest.mark.parametrize(
    ("slice", "wanted", "axes"),
    [
        ("", (slice(None),), "H,T,d_k"),
        ("1", (1,), "T,d_k"),
        ("1,:,2:4", (1, slice(None), slice(2, 4)), "T,d_k"),
        (":,0,3", (slice(None), 0, 3), "H"),
        ("0,0,0", (0, 0, 0), ""),
        (" 2 , 1: , :2 ", (2, slice(1, None), slice(None, 2)), "T,d_k"),
    ],
)
def test_slices(client: TestClient, slice: str, wanted: Any, axes: str) -> None:
    path = f"/api/trace/{trace(client, 'translate')['id']}/tensor/encoder.0.self.q"
    whole = numbers(client, path)
    np.testing.assert_array_equal(numbers(client, path, slice=slice), whole[wanted])
    assert client.get(path, params={"slice": slice}).headers["x-axes"] == axes


@pytest.mark.parametrize("slice", ["4", "0:5", "3:3", "2:1", ":,:,:,:", "9999999999", "0,99:", ":,:,0:9"])
def test_slices_out_of_range(client: TestClient, slice: str) -> None:
    response = client.get(f"/api/trace/{trace(client, 'translate')['id']}/tensor/encoder.0.self.q", params={"slice": slice})
    code = response.json()["code"]
    assert refused(response, 422, code)["details"]["shape"][0] == 4 and code in ("out-of-range", "bad-slice")


@pytest.mark.parametrize("slice", ["a", "-1", "1:2:3", "0,,1", "１", "1.0", "None", "[0]"])
def test_slices_that_are_none(client: TestClient, slice: str) -> None:
    response = client.get(f"/api/trace/{trace(client, 'translate')['id']}/tensor/encoder.0.self.q", params={"slice": slice})
    refused(response, 422, "bad-slice")


def test_weights(client: TestClient, shelf: Shelf) -> None:
    path = f"/api/trace/{trace(client, 'language')['id']}/weights"
    model: Any = shelf.load("language").model
    weight = model.decoder.get_submodule("0").self.q.weight
    np.testing.assert_array_equal(numbers(client, f"{path}/decoder.0.self.q.weight"), weight.detach().numpy())
    tied = numbers(client, f"{path}/output.weight", slice="3")
    np.testing.assert_array_equal(tied, model.output.weight[3].detach().numpy())
    assert numbers(client, f"{path}/decoder.0.self.rotary.cos", slice="0").tolist() == [1.0, 1.0]
    refused(client.get(f"{path}/decoder.0.self.q"), 404, "unknown-tensor")


def test_pooling(client: TestClient) -> None:
    path = f"/api/trace/{trace(client, 'language')['id']}/tensor/decoder.0.self"
    pattern = numbers(client, f"{path}.pattern")  # (4, 4, 4)
    response = client.get(f"{path}.pattern", params={"pool": 3})
    assert response.headers["x-shape"] == "4,2,2" and response.headers["x-pooled"] == "2,2"
    pooled = np.frombuffer(response.content, "<f4").reshape(4, 2, 2)
    np.testing.assert_allclose(pooled, pattern.reshape(4, 2, 2, 2, 2).mean((2, 4)), rtol=1e-6)
    largest = numbers(client, f"{path}.pattern", pool=1, pooling="max", slice="2")
    assert largest.tolist() == [[pattern[2].max()]]
    masked = numbers(client, f"{path}.masked")
    pooled = numbers(client, f"{path}.masked", pool=2)
    assert pooled[0, 0, 1] == -np.inf and np.isfinite(pooled[0, 0, 0])  # −∞ counts only where there is nothing else
    assert pooled[0, 0, 0] == pytest.approx(masked[0, :2, :2][np.isfinite(masked[0, :2, :2])].mean())
    np.testing.assert_array_equal(numbers(client, f"{path}.pattern", pool=4096), pattern)
    assert numbers(client, f"{path}.pattern", pool=2, slice="0,0").shape == (2,)
    assert numbers(client, f"{path}.pattern", pool=2, slice="0,0,0").shape == ()


def test_an_answer_is_never_larger_than_it_may_be(shelf: Shelf) -> None:
    with TestClient(create_app(shelf, Visitors(), Limits(answer=16_000)), base_url=LOCAL) as client:
        path = f"/api/trace/{trace(client, 'classify')['id']}/weights/encoder.embed.token.weight"
        said = refused(client.get(path), 422, "too-large")
        assert said["details"] == {"elements": 300 * 16, "limit": 4000}
        assert numbers(client, path, pool=8).shape == (8, 8)
        refused(client.post("/api/next", json={"model": "language", "text": "a"}), 422, "too-large")


def test_too_many_models_for_one_list(models: dict[str, Path]) -> None:
    limits = Limits(answer=16_000)
    with TestClient(create_app(Shelf(list(models.values()), limits), Visitors(), limits), base_url=LOCAL) as client:
        response = client.get("/api/models")
        told = response.json()
        assert len(response.content) <= 16_000 and told["models"] and "Name those" in told["problems"]["score"]


# Cells


@every_task
def test_cells(client: TestClient, name: str) -> None:
    told = trace(client, name)
    for path, about in list(told["tensors"].items())[::3]:  # test_explain.py has all of them
        index = [size // 2 for size in about["shape"]]
        cell = client.post(f"/api/trace/{told['id']}/cell", json={"name": path, "index": index}).json()
        value = numbers(client, f"/api/trace/{told['id']}/tensor/{path}", slice=",".join(map(str, index)))
        assert cell["value"] is None or cell["value"] == pytest.approx(float(value), abs=1e-6)
        assert cell["difference"] < 1e-4 and cell["terms"]["kind"] and cell["steps"]


def test_a_cell_of_what_may_not_be_seen(client: TestClient) -> None:
    told = trace(client, "language")
    cell = client.post(f"/api/trace/{told['id']}/cell", json={"name": "decoder.0.self.masked", "index": [0, 0, 2]}).json()
    assert cell["value"] is None and cell["result"] is None and cell["difference"] == 0
    for index, status in (([0, 0], 422), ([0, 0, 99], 422), ([-1, 0, 0], 422), ([0, 0, 0], 200)):
        assert (
            client.post(f"/api/trace/{told['id']}/cell", json={"name": "decoder.0.self.q", "index": index}).status_code == status
        )
    refused(client.post(f"/api/trace/{told['id']}/cell", json={"name": "x", "index": []}), 404, "unknown-tensor")


# Edits


@every_task
def test_edits(client: TestClient, name: str) -> None:
    told = trace(client, name)
    path = "decoder.0.self" if name == "language" else "encoder.0.self"
    none = client.post(f"/api/trace/{told['id']}/edit", json={"edits": []}).json()
    assert none["same"] is True and none["base"] == told["id"] != none["id"] and none["edits"] == []
    assert none["answer"] == told["answer"] and none["tensors"] == told["tensors"]
    edits = [{"kind": "head-off", "path": path, "head": 1}, {"kind": "no-scale", "path": path}]
    edited = client.post(f"/api/trace/{told['id']}/edit", json={"edits": edits}).json()
    assert edited["same"] is False and edited["edits"] == edits and edited["source"] == told["source"]
    for change in edited["changes"]:
        assert change.keys() == {"position", "token", "before", "after", "top_before", "top_after"}
        if name != "score":
            assert len(change["top_before"]) <= 5 and all(each.keys() == {"text", "id", "p"} for each in change["top_after"])
    z = numbers(client, f"/api/trace/{edited['id']}/tensor/{path}.z")
    assert not z[1].any() and z[0].any()


@pytest.mark.parametrize(
    "edit",
    [
        {"kind": "head-off", "path": "encoder.0.self", "head": 4},
        {"kind": "head-off", "path": "encoder.0.self"},
        {"kind": "head-off", "path": "../../etc", "head": 0},
        {"kind": "no-mask", "path": "encoder.0.ffn"},
        {"kind": "force-token", "position": 999, "token": 5},
        {"kind": "force-token", "position": 1, "token": 10**9},
        {"kind": "explode"},
        {"kind": "no-mask", "path": "encoder.0.self", "more": 1},
        {},
        3,
    ],
)
def test_edits_that_cannot_be(client: TestClient, edit: Any) -> None:
    response = client.post(f"/api/trace/{trace(client, 'translate')['id']}/edit", json={"edits": [edit]})
    assert response.status_code == 422 and response.json()["error"]


def test_numbers_that_are_none_are_null(shelf: Shelf) -> None:
    """Weights so large that a pass overflows: an answer all the same."""
    task: Any = shelf.load("classify")
    weight = task.model.head.output.weight
    kept = weight.detach().clone()
    with TestClient(create_app(shelf, Visitors()), base_url=LOCAL, raise_server_exceptions=False) as client:
        try:
            with torch.no_grad():
                weight.mul_(1e38).mul_(1e38)
            told = trace(client, "classify")
            assert None in told["answer"]["labels"].values()
            edited = client.post(f"/api/trace/{told['id']}/edit", json={"edits": []})
            assert edited.status_code == 200 and edited.json()["changes"][0]["before"] is None
        finally:
            with torch.no_grad():
                weight.copy_(kept)


# The next token, the beam, pieces


@pytest.mark.parametrize("name", ["translate", "language"])
def test_the_next_token(client: TestClient, name: str) -> None:
    told = trace(client, name)
    written = [token["id"] for token in told["target"][1:]] if name == "translate" else []
    asked = {"model": name, "text": TEXTS[name][0], "written": written}
    response = client.post("/api/next", json={**asked, "full": True})
    logits = torch.tensor(np.frombuffer(response.content, "<f4"))
    assert response.headers["x-shape"] == str(len(logits))
    wanted = numbers(client, f"/api/trace/{told['id']}/tensor/logits", slice=str(len(told["target"]) - 1))
    np.testing.assert_allclose(logits.numpy(), wanted, atol=1e-4)
    for options in ({}, {"temperature": 0.5, "top_k": 7, "top_p": 0.6}, {"temperature": 0.0}, {"top_p": 0.0}, {"top_k": 10**6}):
        found = client.post("/api/next", json={**asked, **options, "seed": 3}).json()
        final = distribution(logits, **options)
        assert found["vocabulary"] == len(logits) and len(found["top"]) == min(200, len(logits))
        shown = torch.tensor([each["final"] for each in found["top"]])
        torch.testing.assert_close(shown, final[torch.tensor(found["order"])], atol=1e-5, rtol=1e-4)
        assert all(a["logit"] >= b["logit"] for a, b in zip(found["top"], found["top"][1:], strict=False))
        assert sum(each["kept_k"] for each in found["top"]) == min(options.get("top_k") or 200, 200)
        assert all(each["kept_p"] == (each["final"] > 0) for each in found["top"])
        assert final[found["drawn"]["id"]] > 0 and found["entropy"] >= 0
        assert found["tail"]["count"] == len(logits) - 200
        assert found["tail"]["p"] == pytest.approx(1 - shown.sum().item(), abs=1e-5)
        again = client.post("/api/next", json={**asked, **options, "seed": 3}).json()
        assert again["drawn"] == found["drawn"]  # not all of it: the last bit of a product hangs on where it lies in memory
    assert len({client.post("/api/next", json={**asked, "seed": seed}).json()["drawn"]["id"] for seed in range(8)}) > 1


def test_drawing_on_is_generating_with_that_seed(client: TestClient, models: dict[str, Path]) -> None:
    language: Any = registry.load(models["language"])
    options = GenerationOptions(max_tokens=20, temperature=1.5, top_k=40, top_p=0.9)
    wanted = language.generate(TEXTS["language"][0], options, seed=7)[0].ids
    asked = {"model": "language", "text": TEXTS["language"][0], "temperature": 1.5, "top_k": 40, "top_p": 0.9, "seed": 7}
    written: list[int] = []
    while len(written) < len(wanted):
        written.append(client.post("/api/next", json={**asked, "written": written}).json()["drawn"]["id"])
    assert written == wanted and len(set(written)) > 3


OFF = [{"kind": "head-off", "path": "decoder.0.self", "head": 1}, {"kind": "no-scale", "path": "decoder.1.self"}]


@pytest.mark.parametrize("name", ["translate", "language"])
def test_the_next_token_with_edits(client: TestClient, name: str) -> None:
    """It is what the edited pass predicts at its end."""
    told = trace(client, name)
    edited = client.post(f"/api/trace/{told['id']}/edit", json={"edits": OFF}).json()
    written = [token["id"] for token in told["target"][1:]] if name == "translate" else []
    asked = {"model": name, "text": TEXTS[name][0], "written": written, "full": True}
    found, plain = (client.post("/api/next", json={**asked, **more}).content for more in ({"edits": OFF}, {}))
    wanted = numbers(client, f"/api/trace/{edited['id']}/tensor/logits", slice=str(len(told["target"]) - 1))
    np.testing.assert_allclose(np.frombuffer(found, "<f4"), wanted, atol=1e-4)
    assert np.abs(np.frombuffer(plain, "<f4") - wanted).max() > 1e-3


def test_the_beam_with_edits(client: TestClient) -> None:
    """The probabilities of its answers are those of the edited pass over them."""
    asked = {"model": "translate", "text": "I like the cat.", "to": "zh", "beam": 3}
    off = [*OFF, {"kind": "head-off", "path": "encoder.0.self", "head": 0}]
    found = client.post("/api/beam", json={**asked, "edits": off}).json()
    assert found["answers"] != client.post("/api/beam", json=asked).json()["answers"]
    nodes = {node["node"]: node for nodes in found["rounds"] for node in nodes}
    for answer in found["answers"]:
        told = trace(client, "translate", text=asked["text"], to="zh", target=answer["ids"])
        edited = client.post(f"/api/trace/{told['id']}/edit", json={"edits": off}).json()
        path = [nodes[number]["log_prob"] for number in answer["nodes"]]
        assert path[:-1] == pytest.approx([token["log_prob"] for token in edited["target"][1:]], abs=1e-4)


@pytest.mark.parametrize("path", ["/api/next", "/api/beam"])
def test_edits_of_what_is_not_there(client: TestClient, path: str) -> None:
    asked = {"model": "translate", "text": "a"}
    forced = {"kind": "force-token", "position": 1, "token": 5}
    assert "force-token" in refused(client.post(path, json={**asked, "edits": [forced]}), 422, "bad-request")["error"]
    nobody = {"kind": "head-off", "path": "decoder.0.self", "head": 9}
    refused(client.post(path, json={**asked, "edits": [nobody]}), 422, "bad-input")


@pytest.mark.parametrize("beam", [1, 4])
def test_the_beam(client: TestClient, shelf: Shelf, beam: int) -> None:
    found = client.post("/api/beam", json={"model": "translate", "text": "I like the cat.", "to": "zh", "beam": beam}).json()
    nodes = {node["node"]: node for nodes in found["rounds"] for node in nodes}
    assert found["source"][0]["text"] == "<2zh>" and len(found["answers"]) == beam
    for answer in found["answers"]:
        path = [nodes[number] for number in answer["nodes"]]
        assert [node["id"] for node in path[:-1]] == answer["ids"] and path[-1]["fate"] == "finished"
        assert path[-1]["score"] == pytest.approx(answer["score"], abs=1e-4)
        assert [node["parent"] for node in path] == [0, *answer["nodes"][:-1]]
    assert {node["fate"] for node in nodes.values()} == {"kept", "pruned", "finished"}


def test_pieces(client: TestClient) -> None:
    found = client.post("/api/tokenize", json={"model": "translate", "text": "I like 草𠮷"}).json()
    assert bytes.fromhex("".join(found["bytes"][str(id)] for id in found["ids"])).decode() == "I like 草𠮷"
    last = [(start, end) for start, end in zip(found["starts"], found["ends"], strict=True) if end > 8]
    assert set(last) == {(8, 9)} and len(last) == 4  # the bytes of one character cover it together
    assert client.post("/api/tokenize", json={"model": "translate", "text": ""}).json()["ids"] == []


@every_task
def test_words_of_a_vocabulary(client: TestClient, name: str) -> None:
    size = next(model for model in client.get("/api/models").json()["models"] if model["id"] == name)["vocabulary"]
    for side in ("source", "target"):
        words = client.post("/api/words", json={"model": name, "ids": [*range(size)], "side": side}).json()["words"]
        assert [word["id"] for word in words] == [*range(size)] and all(word["text"] for word in words)
        assert words[2] == {"id": 2, "text": "<eos>", "special": True} and not words[-1]["special"]
    assert client.post("/api/words", json={"model": name, "ids": []}).json() == {"words": []}
    refused(client.post("/api/words", json={"model": name, "ids": [size]}), 422, "unknown-token")
    refused(client.post("/api/words", json={"model": name, "ids": [0] * 1001}), 422, "bad-request")


@pytest.mark.parametrize("path", ["/api/next", "/api/beam"])
def test_only_models_that_write(client: TestClient, path: str) -> None:
    refused(client.post(path, json={"model": "classify", "text": "a"}), 422, "not-for-task")


# Bad input


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ({"model": "translate", "text": ""}, 422, "empty"),
        ({"model": "translate", "text": " \n\u3000"}, 422, "empty"),
        ({"model": "compare", "text": "a", "second": ""}, 422, "empty"),
        ({"model": "translate", "text": "a" * 10_000}, 422, "too-long"),
        ({"model": "translate", "text": "猫" * 100}, 422, "too-long"),
        ({"model": "language", "text": "猫" * 100}, 422, "too-long"),
        ({"model": "tag", "text": "猫" * 100}, 422, "too-long"),
        ({"model": "fill", "text": "[MASK] " * 100}, 422, "too-long"),
        ({"model": "compare", "text": "猫" * 8, "second": "猫" * 8}, 422, "too-long"),
        ({"model": "translate", "text": "a", "target": [5] * 100}, 422, "too-long"),
        ({"model": "translate", "text": "a", "target": [10**6]}, 422, "unknown-token"),
        ({"model": "translate", "text": "a", "target": [-1]}, 422, "bad-request"),
        ({"model": "translate", "text": "a", "to": "fr"}, 422, "unknown-language"),
        ({"model": "translate", "text": "a", "second": "b"}, 422, "not-for-task"),
        ({"model": "compare", "text": "a"}, 422, "not-for-task"),
        ({"model": "classify", "text": "a", "to": "en"}, 422, "not-for-task"),
        ({"model": "classify", "text": "a", "max_tokens": 3}, 422, "not-for-task"),
        ({"model": "language", "text": "a", "max_tokens": 10**6}, 422, "bad-request"),
        ({"model": "language", "text": "a", "target": [1]}, 422, "not-for-task"),
        ({"model": "nobody", "text": "a"}, 404, "unknown-model"),
        ({"model": "../translate", "text": "a"}, 404, "unknown-model"),
        ({"model": "/etc", "text": "a"}, 404, "unknown-model"),
        ({"model": "translate"}, 422, "bad-request"),
        ({"model": "translate", "text": 3}, 422, "bad-request"),
        ({"model": "translate", "text": "a", "extra": 1}, 422, "bad-request"),
        ([], 422, "bad-request"),
    ],
)
def test_what_cannot_be_traced(client: TestClient, asked: Any, status: int, code: str) -> None:
    said = refused(client.post("/api/trace", json=asked), status, code)
    if code == "too-long":
        assert said["details"]["length"] > said["details"]["limit"]
        assert all(f"{said['details'][key]:,}" in said["error"] for key in ("length", "limit"))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"\xff\xfe", 422),
        (b'{"model": "\\ud800", "text": "\\udfff"}', 422),
        (b'{"model": "translate", "text": NaN}', 422),
        (b"[" * 100_000, 422),
        (b'{"model": "language", "text": "a", "max_tokens": 1' + b"0" * 5000 + b"}", 422),
        (b" " * 300_000, 413),
    ],
)
def test_bodies_that_are_none(client: TestClient, body: bytes, status: int) -> None:
    response = client.post("/api/trace", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (status, 400) and response.json()["error"]


def test_a_long_body_of_unknown_length(client: TestClient) -> None:
    parts = (b" " * 50_000 for _ in range(20))
    refused(client.post("/api/trace", content=parts, headers={"Content-Type": "application/json"}), 413, "too-large")


def test_traces_expire(shelf: Shelf) -> None:
    with TestClient(create_app(shelf, Visitors(), Limits(traces=2)), base_url=LOCAL) as client:
        first, second, third = (trace(client, "classify", text=text)["id"] for text in "abc")
        refused(client.get(f"/api/trace/{first}/tensor/logits"), 410, "expired")
        assert client.get(f"/api/trace/{second}/tensor/logits").status_code == 200  # now the latest used
        fourth = trace(client, "classify")["id"]
        refused(client.post(f"/api/trace/{third}/edit", json={"edits": []}), 410, "expired")
        assert all(client.get(f"/api/trace/{id}/tensor/logits").status_code == 200 for id in (second, fourth))
        refused(client.get("/api/trace/nonsense/tensor/logits"), 404, "unknown-trace")


def test_few_traces_are_kept_if_they_are_large(shelf: Shelf) -> None:
    with TestClient(create_app(shelf, Visitors(), Limits(memory=1)), base_url=LOCAL) as client:
        first, second, third = (trace(client, "classify")["id"] for _ in range(3))
        refused(client.get(f"/api/trace/{first}/tensor/logits"), 410, "expired")
        assert all(client.get(f"/api/trace/{id}/tensor/logits").status_code == 200 for id in (second, third))
    with TestClient(create_app(shelf, Visitors(), Limits(trace=10_000)), base_url=LOCAL) as client:
        refused(client.post("/api/trace", json={"model": "classify", "text": "a cat"}), 413, "trace-too-large")


def test_traces_do_not_keep_models_in_memory(models: dict[str, Path]) -> None:
    limits = Limits(models=1)
    shelf = Shelf([models["classify"], models["tag"]], limits)
    with TestClient(create_app(shelf, Visitors(), limits), base_url=LOCAL) as client:
        first = trace(client, "classify")["id"]
        assert client.post(f"/api/trace/{first}/edit", json={"edits": []}).status_code == 200
        trace(client, "tag")
        gc.collect()
        said = refused(client.post(f"/api/trace/{first}/edit", json={"edits": []}), 410, "expired")
        assert "memory" in said["error"] and said["details"] == {"id": first}
        refused(client.get(f"/api/trace/{first}/weights/encoder.0.self.q.weight"), 410, "expired")
        assert client.get(f"/api/trace/{first}/tensor/logits").status_code == 200  # what was computed stays


def test_a_model_with_other_words_is_another(models: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(models["classify"], tmp_path / "mine")
    with TestClient(create_app(Shelf([folder]), Visitors()), base_url=LOCAL) as client:
        assert "joy" in trace(client, "classify", model="mine")["answer"]["labels"]
        (folder / "labels.json").write_text(json.dumps(["delight", "anger", "fear"]), encoding="utf-8")
        assert client.get("/api/models").json()["models"][0]["labels"][0] == "delight"
        assert "delight" in trace(client, "classify", model="mine")["answer"]["labels"]


def test_a_model_folder_comes_changes_and_goes(models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "HERE", (tmp_path,))
    monkeypatch.setattr(store, "BUNDLED", tmp_path / "none")
    with TestClient(create_app(Shelf(), Visitors()), base_url=LOCAL, raise_server_exceptions=False) as client:
        assert client.get("/api/models").json() == {"models": [], "vectors": [], "default": None, "problems": {}}
        shutil.copytree(models["classify"], tmp_path / "mine")
        assert client.get("/api/models").json()["default"] == "mine"
        kept = trace(client, "classify", model="mine")
        changed = small_tasks.make(tmp_path / "other", "classify", layers=1)
        shutil.copy(changed / "recipe.toml", tmp_path / "mine")
        shutil.copy(changed / "model.safetensors", tmp_path / "mine")
        assert "encoder.1.resid_pre" in kept["tensors"]
        assert "encoder.1.resid_pre" not in trace(client, "classify", model="mine")["tensors"]
        (tmp_path / "mine" / "model.safetensors").write_bytes(b"broken")
        refused(client.post("/api/trace", json={"model": "mine", "text": "a"}), 422, "broken-model")
        told = client.get("/api/models").json()
        assert list(told["problems"]) == ["mine"] and [model["id"] for model in told["models"]] == ["other"]
        shutil.rmtree(tmp_path / "mine")
        refused(client.post("/api/trace", json={"model": "mine", "text": "a"}), 404, "unknown-model")
        assert client.get(f"/api/trace/{kept['id']}/tensor/logits").status_code == 200  # what was computed stays
        assert trace(client, "classify", model="other")


def test_a_named_model_that_goes(models: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(models["classify"], tmp_path / "mine")
    with TestClient(create_app(Shelf([folder]), Visitors()), base_url=LOCAL) as client:
        trace(client, "classify", model="mine")
        shutil.rmtree(folder)
        said = refused(client.post("/api/trace", json={"model": "mine", "text": "a"}), 404, "model-gone")
        assert "mine" in said["error"]
        assert client.get("/api/models").json()["models"] == []
        shutil.copytree(models["classify"], folder)
        trace(client, "classify", model="mine")


def test_models_of_one_name(models: dict[str, Path], tmp_path: Path) -> None:
    folders = [shutil.copytree(models["tag"], tmp_path / parent / "m") for parent in ("a", "b")]
    assert list(Shelf(folders).folders()) == ["a/m", "b/m"]
    with pytest.raises(UserError, match="no model"):
        Shelf(["nonsense"])


# Who may ask


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8000"}, 200),
        ({"Host": "127.0.0.1:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "LOCALHOST:8000"}, 200),
        ({"Host": "localhost:8001"}, 403),
        ({"Host": "localhost"}, 403),
        ({"Host": "evil.example:8000"}, 403),
        ({"Host": "localhost.evil.example:8000"}, 403),
        ({"Host": "192.168.1.5:8000"}, 403),
        ({"Host": "user@localhost:8000"}, 403),
        ({"Host": "localhost:99999"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "http://localhost:8000"}, 200),
        ({"Origin": "http://127.0.0.1:8000"}, 200),
        ({"Origin": "https://localhost:8000"}, 403),
        ({"Origin": "http://localhost:5173"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_other_sites_may_not_ask(shelf: Shelf, headers: dict[str, str], status: int) -> None:
    client = TestClient(create_app(shelf, Visitors("127.0.0.1", 8000)), base_url="http://localhost:8000")
    response = client.get("/api/notation", headers=headers)
    assert response.status_code == status
    if status == 403:
        refused(response, 403, "wrong-origin" if "Host" not in headers else "wrong-host")
    assert "access-control-allow-origin" not in response.headers
    assert "default-src 'none'" in response.headers["content-security-policy"]


def test_a_link_from_elsewhere_leads_to_the_page_alone(client: TestClient) -> None:
    assert client.get("/docs", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "place", "known"),
    [
        ("0.0.0.0", "192.168.1.5:8000", True),
        ("0.0.0.0", "evil.example:8000", False),
        ("0.0.0.0", f"{socket.gethostname()}:8000", True),
        ("::", "[fe80::1]:8000", True),
        ("my.host", "my.host:8000", True),
        ("192.168.1.5", "192.168.1.5:8000", True),
        ("192.168.1.5", "192.168.1.6:8000", False),
    ],
)
def test_a_host_the_user_gave(host: str, place: str, known: bool) -> None:
    assert Visitors(host, 8000).knows(place) == known


def test_websockets_are_closed(client: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/api/trace"):
        pass


# The page


FILES = {"index.html": "<!doctype html>", "assets/a-1.js": "1", "assets/a.css": "x{}", "i.svg": "<svg/>", "x.py": ""}
KINDS = {
    "/": "text/html",
    "/index.html": "text/html",
    "/assets/a-1.js": "text/javascript",
    "/assets/a.css": "text/css",
    "/i.svg": "image/svg+xml",
}


def test_the_page(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "FOLDER", tmp_path / "page")
    client = TestClient(create_app(shelf, Visitors()), base_url=LOCAL)
    missing = client.get("/")
    assert missing.status_code == 404 and "npm run build" in missing.text
    (tmp_path / "page" / "assets").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    for name, content in FILES.items():
        (tmp_path / "page" / name).write_text(content)
    os.symlink(tmp_path / "secret.txt", tmp_path / "page" / "link.txt")
    for path, kind in KINDS.items():
        response = client.get(path)
        assert response.status_code == 200 and response.headers["content-type"].startswith(kind)
        assert ("immutable" in response.headers["cache-control"]) == path.startswith("/assets")
        assert response.headers["x-content-type-options"] == "nosniff"
    for path in (
        "../secret.txt",
        "%2e%2e/secret.txt",
        "..%2fsecret.txt",
        "link.txt",
        "x.py",
        "assets",
        "no",
        "a%00b",
        "a" * 5000,
    ):
        refused(client.get(f"/{path}"), 404, "unknown-page")
    refused(client.get("/api/nothing"), 404, "unknown-page")
    refused(client.delete("/api/trace"), 405, "wrong-method")


def test_the_description(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    html = client.get("/docs").text
    assert all(path in html for path in paths) and "<script" not in html and "http" not in html.replace("HTTP", "")
    assert "length_penalty" in html and len(paths) >= 10


# Much at once


def test_a_hundred_at_once(shelf: Shelf) -> None:
    with (
        TestClient(create_app(shelf, Visitors()), base_url=LOCAL, raise_server_exceptions=False) as client,
        ThreadPoolExecutor(100) as pool,
    ):
        asked = {"model": "translate", "text": "I like the cat."}
        found = list(pool.map(lambda i: client.post("/api/trace", json=asked).status_code, range(100)))
        assert set(found) <= {200, 429} and found.count(200) >= 8
        assert client.post("/api/trace", json=asked).status_code == 200


@pytest.mark.parametrize("what", ["tensor/logits", "weights/encoder.0.self.q.weight", "cell"])
def test_parts_are_read_by_a_few_at_a_time(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    with TestClient(create_app(shelf, Visitors(), Limits(reads=1)), base_url=LOCAL) as client, ThreadPoolExecutor(4) as pool:
        address = f"/api/trace/{trace(client, 'classify')['id']}/{what}"
        body = {"name": "logits", "index": [0]}
        plain, refused = Traces.get, threading.Event()
        monkeypatch.setattr(Traces, "get", lambda *given: (refused.wait(30), plain(*given))[1])
        ask = lambda _: client.post(address, json=body) if what == "cell" else client.get(address)  # noqa: E731
        codes = []
        for answer in as_completed(pool.submit(ask, i) for i in range(4)):
            codes.append(answer.result().status_code)
            if len(codes) == 3:
                refused.set()
        assert codes == [429, 429, 429, 200]


def test_what_takes_too_long(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    task: Any = shelf.load("classify")
    slow = task.trace
    monkeypatch.setattr(task, "trace", lambda *texts: (time.sleep(1.0), slow(*texts))[1])
    with TestClient(create_app(shelf, Visitors(), Limits(seconds=0.2, requests=1)), base_url=LOCAL) as client:
        asked = {"model": "classify", "text": "a"}
        refused(client.post("/api/trace", json=asked), 503, "timeout")
        refused(client.post("/api/trace", json=asked), 429, "busy")  # its thread is not done
        monkeypatch.setattr(task, "trace", slow)
        deadline = time.monotonic() + 60
        while (status := client.post("/api/trace", json=asked).status_code) == 429 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert status in (200, 503)


# Its own description


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_nothing_asked_breaks_it(client: TestClient, mode: GenerationMode) -> None:
    """What fits the API's own description, and what does not; with names that exist where chance would not find them."""
    described = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    kept = {name: trace(client, name) for name in ("translate", "language", "tag")}
    statuses = set()
    for operation in (result.ok() for result in described.get_all_operations()):

        @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
        @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
        def ask(case: Any, data: Any) -> None:
            if "id" in (case.path_parameters or {}):
                told = kept[data.draw(st.sampled_from(list(kept)))]
                case.path_parameters["id"] = told["id"]
                if "name" in case.path_parameters:
                    case.path_parameters["name"] = data.draw(st.sampled_from(list(told["tensors"])))
                if isinstance(case.body, dict) and "name" in case.body:
                    case.body["name"] = data.draw(st.sampled_from(list(told["tensors"])))
            if isinstance(case.body, dict) and "model" in case.body:
                case.body["model"] = data.draw(st.sampled_from(list(small_tasks.DATA)))
            asked = case.as_transport_kwargs(base_url=LOCAL)
            response = client.request(
                asked["method"],
                asked["url"],
                params=asked.get("params"),
                json=asked.get("json"),
                content=asked.get("data"),
                headers={key: value for key, value in asked["headers"].items() if key.lower() == "content-type"},
            )
            assert response.status_code < 500, response.text
            statuses.add(response.status_code)
            if response.status_code >= 400:
                assert response.json().keys() == {"error", "code", "details"}

        with suppress(Unsatisfiable):  # nothing can be wrong with what takes nothing
            ask()
    assert 422 in statuses and (200 in statuses or mode is GenerationMode.NEGATIVE)


# The command


def test_the_command(models: dict[str, Path]) -> None:
    child = process("explore", models["translate"], "--port", 0, "--no-browser")
    try:
        address = child.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        asked = json.dumps({"model": "translate", "text": "I like the cat."}).encode()
        request = urllib.request.Request(f"{address}/api/trace", asked, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as response:
            told = json.load(response)
        assert told["tensors"]["logits"]["shape"][0] == len(told["target"])
        bad = urllib.request.Request(f"{address}/api/models", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(bad, timeout=300)
        second = glassformer("explore", models["translate"], "--port", address.rpartition(":")[2], "--no-browser")
        assert second.code == 2 and "--port" in second.err and not second.out
        child.send_signal(2)
        assert child.wait(timeout=300) == 0
    finally:
        child.kill()
        child.communicate()


def test_the_command_refuses() -> None:
    for arguments, said in (
        (["nonsense"], "no model 'nonsense'"),
        (["zh-en", "--host", "no.such.host.invalid"], "cannot be listened on"),
    ):
        found = glassformer("explore", *arguments, "--no-browser")
        assert found.code == 2 and said in found.err and "Traceback" not in found.err


def test_forty_tokens_of_the_bundled_model_take_less_than_a_second() -> None:
    """Of computing, however busy the machine is with other things."""
    client = TestClient(create_app(Shelf(["zh-en"]), Visitors()), base_url=LOCAL)
    text = "我昨天晚上和朋友们一起去电影院看了一部很有意思的电影，然后我们去吃了一顿晚饭。"
    client.post("/api/trace", json={"model": "zh-en", "text": "你好"})
    began = time.process_time()
    told = client.post("/api/trace", json={"model": "zh-en", "text": text}).json()
    assert len(told["source"]) >= 40 and time.process_time() - began < 1
