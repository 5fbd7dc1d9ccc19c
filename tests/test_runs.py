"""The server tells of trainings: only those it knows, only so much, and honestly when a log or a film is broken."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient
from safetensors.torch import save_file
from test_film import plain  # noqa: F401 (a fixture)

from glassformer import film
from glassformer.server.app import create_app
from glassformer.server.limits import Limits
from glassformer.server.runs import MOST
from glassformer.server.shelf import Shelf
from glassformer.training.bundle import bundle


@pytest.fixture
def here(tmp_path: Path, plain: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """A folder with a run, and a model with a film elsewhere."""
    shutil.copytree(plain, tmp_path / "runs" / "mine", ignore=shutil.ignore_patterns("checkpoints", "prepared"))
    bundle(plain, tmp_path / "elsewhere" / "shipped", lambda text: None)
    (tmp_path / "runs" / "mine" / "model.safetensors").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def client(here: Path) -> TestClient:
    return TestClient(create_app(Shelf([here / "elsewhere" / "shipped"])), base_url="http://localhost")


def listed(client: TestClient) -> dict[str, Any]:
    return {run["id"]: run for run in client.get("/api/runs").json()["runs"]}


def course(client: TestClient, **query: str) -> dict[str, Any]:
    answer = client.get("/api/runs/log", params={"run": "runs/mine", **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client: TestClient, path: str, status: int, code: str, **query: Any) -> None:
    answer = client.get(path, params=query)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert set(answer.json()) == {"error", "code", "details"}


class TestList:
    def test_has_runs_and_models_with_films(self, client: TestClient, here: Path) -> None:
        found = listed(client)
        assert list(found) == ["runs/mine", "shipped"]
        assert found["runs/mine"]["film"] and found["runs/mine"]["state"] == "finished"
        assert found["runs/mine"]["updates"] == 12 and found["runs/mine"]["title"] == "en ⇄ zh"

    def test_says_whether_a_run_goes_on(self, client: TestClient, here: Path) -> None:
        run = here / "runs" / "mine"
        (run / "model.safetensors").unlink()
        (run / ".lock").write_text(str(os.getpid()))
        assert listed(client)["runs/mine"]["state"] == "running"
        (run / ".lock").write_text("x")
        assert listed(client)["runs/mine"]["state"] == "stopped"

    def test_is_bounded_and_has_races_and_broken_folders(self, client: TestClient, here: Path) -> None:
        for i in range(MOST):
            folder = here / "runs" / "race" / f"r{i}"
            folder.mkdir(parents=True)
            (folder / "recipe.toml").write_text("task = 'translate'" if i % 2 else "task =")
            (folder / "log.jsonl").write_text("")
        found = client.get("/api/runs").json()
        assert len(found["runs"]) + len(found["problems"]) == MOST and found["more"] == 2
        assert "runs/race/r1" in {run["id"] for run in found["runs"]} and "not valid TOML" in found["problems"]["runs/race/r0"]

    def test_no_path_is_followed(self, client: TestClient, here: Path) -> None:
        shutil.copytree(here / "runs" / "mine", here / "secret")
        for id in ("../secret", "secret", str(here / "secret"), "runs/../secret", "runs/mine/", "runs/mine/../mine", ""):
            for path in ("/api/runs/log", "/api/runs/film", "/api/runs/film/patterns"):
                refused(client, path, 404, "unknown-run", run=id)


class TestLog:
    def test_is_the_file_s(self, client: TestClient, here: Path) -> None:
        found = course(client)
        lines = [json.loads(line) for line in (here / "runs" / "mine" / "log.jsonl").read_text().splitlines()]
        assert found["entries"] == lines and found["count"] == len(lines) and found["brokenCount"] == 0 and not found["cut"]
        assert client.get("/api/runs/log", params={"run": "shipped"}).json()["entries"] == lines

    def test_is_not_sent_again_until_it_changes(self, client: TestClient, here: Path) -> None:
        first = course(client)
        again = course(client, known=first["stamp"])
        assert again["same"] and "entries" not in again
        with (here / "runs" / "mine" / "log.jsonl").open("a") as file:
            file.write('{"update": 13, "seconds": 9, "loss": 1.0}\nbroken\n{"upd')
        more = course(client, known=first["stamp"])
        assert more["entries"][-1]["update"] == 13 and more["brokenCount"] == 1 and more["broken"] == [len(first["entries"]) + 2]

    def test_a_long_one_is_thinned(self, client: TestClient, here: Path) -> None:
        lines = [json.dumps({"update": i, "seconds": i / 3, "loss": 1 / (i + 1), "rate": 0.1}) for i in range(20_000)]
        (here / "runs" / "mine" / "log.jsonl").write_text("\n".join(lines) + "\n")
        found = course(client)
        assert found["count"] == 20_000 and len(found["entries"]) <= 800 and found["entries"][-1]["update"] == 19_999

    def test_a_run_that_vanishes(self, client: TestClient, here: Path) -> None:
        shutil.rmtree(here / "runs")
        refused(client, "/api/runs/log", 404, "unknown-run", run="runs/mine")


class TestFilm:
    def test_is_what_was_recorded(self, client: TestClient, here: Path) -> None:
        for id, folder in (("runs/mine", here / "runs" / "mine"), ("shipped", here / "elsewhere" / "shipped")):
            kept = film.read(folder)
            assert kept is not None
            found = client.get("/api/runs/film", params={"run": id}).json()
            assert [frame["update"] for frame in found["frames"]] == [frame["update"] for frame in kept.frames]
            assert found["frames"][-1]["answers"][1]["text"] == kept.frames[-1]["answers"][1]["text"]
            assert found["probes"][0]["patterns"] == kept.probes[0]["patterns"]
            query = {"run": id, "probe": 1, "first": 1, "count": 50}
            assert client.get("/api/runs/film/patterns", params=query).content == kept.patterns(1, 1, 50)

    def test_what_is_asked_is_checked(self, client: TestClient, here: Path) -> None:
        path = "/api/runs/film/patterns"
        refused(client, path, 422, "out-of-range", run="shipped", probe=2)
        refused(client, path, 422, "bad-request", run="shipped", first=-1)
        assert client.get(path, params={"run": "shipped", "first": 9999}).content == b""
        shutil.rmtree(here / "runs" / "mine" / "film")
        refused(client, "/api/runs/film", 422, "no-film", run="runs/mine")
        small = TestClient(
            create_app(Shelf([here / "elsewhere" / "shipped"]), limits=Limits(answer=100)), base_url="http://localhost"
        )
        refused(small, path, 422, "too-large", run="shipped")

    @pytest.mark.parametrize("harm", ["no tensor", "type", "answers", "shape", "cut"])
    def test_a_broken_one_is_told_of(self, client: TestClient, here: Path, harm: str) -> None:
        path = here / "elsewhere" / "shipped" / "film.safetensors"
        kept = film.read(path.parent)
        assert kept is not None
        frames = [{key: value for key, value in frame.items() if key != "file"} for frame in kept.frames]
        about: dict[str, Any] = {"task": kept.task, "weights": kept.weights, "probes": kept.probes}
        patterns = {f"{frame['update']:08d}/0/{name}": torch.zeros(shape) for frame in frames for name, shape in
                    kept.probes[0]["patterns"].items()}  # fmt: skip
        if harm == "type":
            frames[1]["update"] = 1
            frames[1]["answers"] = "none"
        if harm == "answers":
            frames[1]["answers"] = []
        if harm == "cut":
            path.write_bytes(path.read_bytes()[:-5])
        elif harm == "no tensor":
            words = {"format": film.FORMAT, **about, "frames": frames}
            save_file({"x": torch.zeros(1)}, path, {"film": json.dumps(words)})
        else:
            film.write(path, about, frames, patterns)  # floats, which they must not be
        whole = harm in ("no tensor", "shape")
        refused(client, "/api/runs/film/patterns" if whole else "/api/runs/film", 422, "broken-film", run="shipped")
