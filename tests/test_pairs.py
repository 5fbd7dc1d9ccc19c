"""Two passes beside each other: which tokens are paired, what their tensors' difference is, and when there is none."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_tasks
import torch
from conftest import scramble
from fastapi.testclient import TestClient
from test_ancestors import MADE
from test_server import numbers, refused

import glassformer as gf
from glassformer.differences import BY, NoDifference, Pair
from glassformer.distance import gradient_norms
from glassformer.server.app import create_app
from glassformer.server.guard import Visitors
from glassformer.server.limits import Limits
from glassformer.server.shelf import Shelf
from glassformer.trace import recording
from glassformer.training.checkpoints import Checkpoints, Progress
from glassformer.weights import named_weights

RECURRENT = ("fixed", "dot", "additive", "writes", "judges", "filters")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    at = tmp_path_factory.mktemp("pairs")
    made = {name: small_tasks.make(at / name, name) for name in ("translate", "language", "classify", "tag", "score")}
    made["wider"] = small_tasks.make(at / "wider", "translate", width=32)
    made |= {name: small_tasks.make(at / name, MADE[name][0], **MADE[name][1]) for name in RECURRENT}
    run = made["run"] = at / "run"
    shutil.copytree(made["translate"], run)
    task, kept = gf.load(run), Checkpoints(run / "checkpoints")
    optimiser = torch.optim.SGD(task.model.parameters(), lr=0.1)
    for update in (10, 20):
        scramble(task.model)
        average = {name: x.clone() for name, x in named_weights(task.model).items()} if update == 20 else {}
        kept.write(task.model, optimiser, average, Progress(update))
    return made


@pytest.fixture(scope="module")
def client(folders: dict[str, Path]) -> Iterator[TestClient]:
    shelf = Shelf(list(folders.values()), Limits(models=20))
    with TestClient(create_app(shelf, Visitors()), base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


def trace(client: TestClient, model: str, text: str, **more: Any) -> dict[str, Any]:
    response = client.post("/api/trace", json={"model": model, "text": text, **more})
    assert response.status_code == 200, response.text
    return response.json()


def compare(client: TestClient, a: dict[str, Any], b: dict[str, Any], **asked: Any) -> dict[str, Any]:
    response = client.post(f"/api/compare/{a['id']}/{b['id']}", json=asked)
    assert response.status_code == 200, response.text
    return response.json()


ALIKE, LONGER = ("the cat sat on the mat", "the mat sat on the cat"), "the cat I like sat on the mat."


# Tokens


def test_tokens_are_paired_by_place_or_by_what_they_are(client: TestClient) -> None:
    a, b = (trace(client, "translate", text, to="zh") for text in ALIKE)
    assert compare(client, a, b)["by"] in BY
    by_place = compare(client, a, b, by="place")
    assert by_place["source"] == [[i, i] for i in range(len(a["source"]))]
    for other in (b, trace(client, "translate", LONGER, to="zh")):
        found = compare(client, a, other, by="token")
        assert found["source"] == sorted(found["source"]) and len(found["source"]) >= 4
        assert all(a["source"][i]["id"] == other["source"][j]["id"] for i, j in found["source"])
        assert found["source"][0] == [0, 0]  # the mark of the language
    assert compare(client, a, other)["by"] == "token"


# Differences


@pytest.mark.parametrize(
    ("model", "by"), [("translate", "place"), ("additive", "token"), ("language", "token"), ("classify", "place")]
)
def test_differences_are_recomputed(client: TestClient, model: str, by: str) -> None:
    """Every tensor of both passes, subtracted here, is what the API tells: its ends, and its cells."""
    more = {"to": "zh", "target": [40, 41]} if model in ("translate", "additive") else {}
    a, b = trace(client, model, ALIKE[0], **more), trace(client, model, ALIKE[1] if by == "place" else LONGER, **more)
    found, checked = compare(client, a, b, by=by), 0
    for name, told in found["tensors"].items():
        if "why" in told:
            assert by == "token" and told["said"].endswith(".")
            continue
        one, two = (numbers(client, f"/api/trace/{each['id']}/tensor/{name}") for each in (a, b))
        for axis, letter in enumerate(a["tensors"][name]["axes"]):
            if letter in "TS":
                decodes = name.startswith("decoder.") or (name == "logits" and bool(a["target"]))
                pairs = found["source" if not decodes or (letter == "S" and ".cross." in name) else "target"]
                one, two = (np.take(x, [pair[i] for pair in pairs], axis) for i, x in enumerate((one, two)))
        with np.errstate(invalid="ignore"):
            wanted = np.where(one == two, 0, two - one)
        got = numbers(client, f"/api/compare/{a['id']}/{b['id']}/tensor/{name}", by=by)
        np.testing.assert_array_equal(got, wanted)
        assert told["shape"] == list(got.shape)
        finite = wanted[np.isfinite(wanted)]
        assert (told["min"], told["max"]) == pytest.approx((finite.min(), finite.max()))
        assert told["mean"] == pytest.approx(np.abs(finite).mean(), rel=1e-4, abs=1e-7)
        checked += 1
    assert checked > 0.9 * len(a["tensors"])
    part = numbers(client, f"/api/compare/{a['id']}/{b['id']}/tensor/logits", by=by, slice="0:1" if got.ndim > 1 else "0:2")
    np.testing.assert_array_equal(part, got[0:1] if got.ndim > 1 else got[0:2])


def test_a_pass_does_not_differ_from_itself(client: TestClient) -> None:
    a, b = (trace(client, "translate", ALIKE[0], to="zh") for _ in range(2))
    assert all(told["min"] == told["max"] == told["mean"] == 0 for told in compare(client, a, b)["tensors"].values())


def test_why_there_is_no_difference(client: TestClient) -> None:
    a = trace(client, "translate", ALIKE[0], to="zh", target=[40, 41])
    longer = trace(client, "translate", LONGER, to="zh", target=[40])
    wider = trace(client, "wider", ALIKE[0], to="zh", target=[40, 41])
    recurrent = trace(client, "additive", ALIKE[0], to="zh", target=[40, 41])
    label = trace(client, "classify", ALIKE[0])
    tags = trace(client, "tag", ALIKE[0])
    for other, name, why in (
        (longer, "encoder.0.resid_post", "lengths"),
        (wider, "encoder.0.resid_post", "sizes"),
        (recurrent, "encoder.0.resid_post", "not-in-second"),
        (recurrent, "decoder.0.combine.out", "not-in-first"),
        (label, "logits", "axes"),
    ):
        told = compare(client, a, other, by="place")["tensors"][name]
        assert told["why"] == why and "shape" not in told
        path = f"/api/compare/{a['id']}/{other['id']}/tensor/{name}"
        said = refused(client.get(path), 422, "no-difference")
        assert said["details"] == {"why": why, "name": name} and said["error"] == told["said"]
    assert "min" in compare(client, a, wider)["tensors"]["encoder.0.self.pattern"]  # as many heads, as many tokens
    assert compare(client, tags, trace(client, "classify", ALIKE[0]), by="place")["tensors"]["logits"]["why"] in (
        "axes",
        "vocabulary",
    )
    refused(client.get(f"/api/compare/{a['id']}/{longer['id']}/tensor/nothing"), 404, "unknown-tensor")
    refused(client.get(f"/api/compare/{a['id']}/{'0' * 16}/tensor/logits"), 410, "expired")
    refused(client.post(f"/api/compare/{a['id']}/{longer['id']}", json={"by": "luck"}), 422, "bad-request")


def test_from_python(folders: dict[str, Path]) -> None:
    task = gf.load(folders["translate"])
    a, b = (task.trace(text, "zh", target=[40]) for text in ALIKE)
    pair = Pair(a, b)
    assert pair.difference("encoder.0.resid_post").equal(b["encoder.0.resid_post"] - a["encoder.0.resid_post"])
    assert not pair.difference("decoder.0.self.masked").isnan().any()  # −∞ minus −∞
    with pytest.raises(NoDifference, match="no token in common"):
        Pair(a, b, "token", key=lambda token: object()).difference("encoder.0.resid_post")


# What both predict


def test_two_distributions(client: TestClient) -> None:
    a, b = (trace(client, "translate", text, to="zh", target=[40, 41]) for text in ALIKE)
    p, q = (
        np.exp(x - np.logaddexp.reduce(x))
        for x in (numbers(client, f"/api/trace/{each['id']}/tensor/logits", slice="1").astype(np.float64) for each in (a, b))
    )
    found = client.post(f"/api/compare/{a['id']}/{b['id']}/outputs", json={"place": 1, "other_place": 1}).json()
    assert found["same_words"] and found["moved"] == pytest.approx(np.abs(p - q).sum() / 2, abs=1e-5)
    assert {row["id"] for row in found["rows"]} == set(np.argsort(-p)[:12]) | set(np.argsort(-q)[:12])
    for row in found["rows"]:
        assert (row["before"], row["after"]) == pytest.approx((p[row["id"]], q[row["id"]]), abs=1e-6)
    refused(client.post(f"/api/compare/{a['id']}/{b['id']}/outputs", json={"place": 1}), 422, "out-of-range")


def test_distributions_over_other_words(client: TestClient) -> None:
    a, b = trace(client, "classify", ALIKE[0]), trace(client, "language", ALIKE[0])
    found = client.post(f"/api/compare/{a['id']}/{b['id']}/outputs", json={"other_place": 0}).json()
    assert not found["same_words"] and found["moved"] is None
    assert [row["after"] for row in found["rows"] if row["text"] == "joy"] == [None]
    assert sum(row["before"] or 0 for row in found["rows"]) == pytest.approx(1)


# Checkpoints


def test_checkpoints_of_a_run(client: TestClient, folders: dict[str, Path]) -> None:
    told = {model["id"]: model for model in client.get("/api/models").json()["models"]}
    assert told["run"]["checkpoints"] == [{"update": 10, "average": False}, {"update": 20, "average": True}]
    assert told["translate"]["checkpoints"] == []
    a, b = (trace(client, f"run@{update}", ALIKE[0], to="zh", target=[40]) for update in (10, 20))
    assert (a["model"], b["model"]) == ("run@10", "run@20")
    assert compare(client, a, b)["tensors"]["logits"]["mean"] > 0
    task = gf.load(folders["run"])
    kept = Checkpoints(folders["run"] / "checkpoints").weights(10)
    task.model.load_state_dict(kept, strict=False)  # a tied matrix is kept once
    wanted = task.trace(ALIKE[0], "zh", target=[40])["logits"].numpy()
    np.testing.assert_allclose(numbers(client, f"/api/trace/{a['id']}/tensor/logits"), wanted, atol=1e-5)
    for id in ("run@11", "run@", "run@1e1", "run@../../x", "translate@10", "@10"):
        refused(client.post("/api/trace", json={"model": id, "text": "a"}), 404, "unknown-model")


def test_a_broken_checkpoint(client: TestClient, folders: dict[str, Path]) -> None:
    broken = folders["run"] / "checkpoints/00000030"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"nothing")
    try:
        said = refused(client.post("/api/trace", json={"model": "run@30", "text": "a", "to": "zh"}), 422, "broken-model")
        assert "not a whole safetensors file" in said["error"]
    finally:
        shutil.rmtree(broken)


# How far gradients reach


@pytest.mark.parametrize("name", ["fixed", "dot", "additive", "writes", "judges", "translate", "language", "classify"])
def test_how_far_a_gradient_reaches(client: TestClient, folders: dict[str, Path], name: str) -> None:
    told = client.post("/api/distance", json={"model": name, "length": 12}).json()
    assert told["length"] == len(told["norms"]) == 12 and all(x > 0 for x in told["norms"])
    assert told["of"] == ("decoder" if name in ("fixed", "dot", "additive", "translate") else "last")


def test_a_gradient_is_what_a_small_step_changes(folders: dict[str, Path]) -> None:
    """Against differences of the last state when one embedding is moved."""
    task = gf.load(folders["fixed"])
    ids, target = torch.randint(10, 60, (1, 5)), torch.tensor([[task.target.bos]])
    norms = gradient_norms(task.model, ids, target)
    v = torch.randn(1, 16, generator=torch.Generator().manual_seed(0))

    @torch.no_grad()
    def ends(place: int, column: int, step: float) -> float:
        def move(x: torch.Tensor) -> torch.Tensor:
            x = x.clone()
            x[0, place, column] += step
            return x

        with recording(task.model, {"encoder.embed.sum": move}):
            return float((task.model(ids, target)[:, -1] * v).sum())

    for distance in (0, 4):
        place = 4 - distance
        slope = [(ends(place, column, 1e-2) - ends(place, column, -1e-2)) / 2e-2 for column in range(16)]
        assert np.linalg.norm(slope) == pytest.approx(norms[distance], rel=0.02)


def test_distances_that_cannot_be(client: TestClient) -> None:
    refused(client.post("/api/distance", json={"model": "filters"}), 422, "not-for-task")
    refused(client.post("/api/distance", json={"model": "fixed", "length": 1000}), 422, "bad-request")
