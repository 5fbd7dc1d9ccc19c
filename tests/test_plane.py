"""Vectors on a plane, and what the server tells of them: held against numpy, automatic differentiation and the weights."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_tasks
import torch
from fastapi.testclient import TestClient
from test_server import LOCAL, numbers, refused

from glassformer import store
from glassformer.server.app import create_app
from glassformer.server.guard import Visitors
from glassformer.server.limits import Limits
from glassformer.server.maps import Maps
from glassformer.server.refusal import Refusal
from glassformer.server.shelf import Shelf
from glassformer.server.vectors import with_vector
from glassformer.tasks import plane, registry
from glassformer.tasks.plane import Stage
from glassformer.tasks.space import Space

WORDS = "word-vectors"


def task(name: str) -> Any:
    return registry.load(store.find_model(name))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("plane")
    counts = small_tasks.make(folder / "counts", "classify", kind="mlp", input="bag", width=16)
    shelf = Shelf([WORDS, "zh-en", counts])
    with TestClient(create_app(shelf, Visitors()), base_url=LOCAL, raise_server_exceptions=False) as client:
        yield client


def ask(client: TestClient, what: str, **body: Any) -> Any:
    response = client.post(f"/api/vectors/{what}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def groups(count: int = 150, width: int = 8, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Points around five places, and which each is around."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(5, width, generator=draw) * 4
    which = torch.arange(count) % 5
    return centres[which] + torch.randn(count, width, generator=draw), which


# -- the plane


def test_pca_is_what_the_singular_values_say() -> None:
    x = torch.randn(300, 7, generator=torch.Generator().manual_seed(1)) * torch.tensor([5.0, 3, 2, 1, 1, 1, 1]) + 10
    places, shares = plane.pca(x)
    centred = x.double().numpy() - x.double().numpy().mean(0)
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    signs = [np.sign(v[np.abs(v).argmax()]) for v in vt[:2]]
    np.testing.assert_allclose(places.numpy(), u[:, :2] * s[:2] * signs, atol=1e-4)
    np.testing.assert_allclose(shares.numpy(), s[:2] ** 2 / (s**2).sum(), rtol=1e-5)
    assert torch.equal(plane.pca(x)[0], places)


@pytest.mark.parametrize("shape", [(1, 4), (5, 1), (3, 2)])
def test_pca_of_little(shape: tuple[int, int]) -> None:
    places, shares = plane.pca(torch.ones(shape))
    assert places.shape == (shape[0], 2) and not places.any() and shares.isfinite().all()


def test_the_neighbours_of_each_point_have_the_perplexity_asked_for() -> None:
    x, _ = groups(60)
    squares = torch.cdist(x.double(), x.double()).square().numpy()
    p = plane.affinities(x, 6.0).double().numpy()
    assert p.sum() == pytest.approx(1, abs=1e-5) and np.array_equal(p, p.T) and not p.diagonal().any()
    want = np.zeros_like(squares)
    for i, row in enumerate(squares):  # by bisection of one number at a time, over its 18 nearest
        near = [j for j in np.argsort(row) if j != i][:18]
        low, high = 1e-9, 1e9
        for _ in range(200):
            beta = np.sqrt(low * high)
            given = np.exp(-beta * (row[near] - row[near].min()))
            given /= given.sum()
            entropy = -sum(g * np.log(g) for g in given if g > 0)
            low, high = (beta, high) if entropy > np.log(6.0) else (low, beta)
        want[i, near] = given
    np.testing.assert_allclose(p, (want + want.T) / 120, atol=1e-6)


def test_the_slope_is_that_of_the_divergence() -> None:
    p = plane.affinities(groups(40)[0], 5.0).double()
    y = torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    near = 1 / (1 + torch.cdist(y, y).square()) * (1 - torch.eye(40, dtype=torch.float64))
    some = p > 0
    loss = (p[some] * (p[some] / (near / near.sum())[some]).log()).sum()
    (want,) = torch.autograd.grad(loss, y)
    torch.testing.assert_close(plane.slope(p, y.detach()), want, atol=1e-8, rtol=1e-6)
    assert plane.divergence(p, y.detach()) == pytest.approx(loss.item(), rel=1e-6)


def test_a_map_keeps_neighbours_together_and_is_always_the_same() -> None:
    x, which = groups()
    stages = list(plane.tsne(x, perplexity=10, steps=300))
    losses = [stage.divergence for stage in stages if stage.divergence is not None]
    assert stages[-1].done == 300 and losses[-1] < 0.5 * losses[0]
    places = stages[-1].places
    distances = torch.cdist(places, places).fill_diagonal_(torch.inf)
    assert (which[distances.topk(10, largest=False).indices] == which[:, None]).float().mean() > 0.98
    assert torch.equal(list(plane.tsne(x, perplexity=10, steps=300))[-1].places, places)


# -- what the server tells


def test_word_vectors_are_told_of_apart(client: TestClient) -> None:
    told = client.get("/api/models").json()
    assert [model["id"] for model in told["models"]] == ["zh-en", "counts"] and told["default"] == "zh-en"
    assert [model["id"] for model in told["vectors"]] == [WORDS] and not told["problems"]
    refused(client.post("/api/trace", json={"model": WORDS, "text": "a"}), 422, "not-for-task")
    refused(client.post("/api/tokenize", json={"model": WORDS, "text": "a"}), 422, "not-for-task")
    refused(client.post("/api/next", json={"model": WORDS, "text": "a"}), 422, "not-for-task")


@pytest.mark.parametrize("name", [WORDS, "zh-en"])
def test_places_neighbours_and_sums(client: TestClient, name: str) -> None:
    loaded = task(name)
    tokenizer = getattr(loaded, "source", None) or loaded.tokenizer
    weights = loaded.model.input.weight if name == WORDS else loaded.model.encoder.embed.token.weight
    e = weights.detach().double().numpy()
    found = ask(client, "plane", model=name)
    assert found["total"] == len(found["words"]) > 5000
    for i in (0, 77, 4000):  # the id is of that word
        assert tokenizer.bytes_of(found["ids"][i]).decode().strip(" ") == found["words"][i]
    unit = e[found["ids"]]
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    centred = unit - unit.mean(0)
    _, s, vt = np.linalg.svd(centred, full_matrices=False)
    want = centred @ vt[:2].T * [np.sign(v[np.abs(v).argmax()]) for v in vt[:2]]
    np.testing.assert_allclose(np.array([found["x"], found["y"]]).T, want, atol=2e-4)
    np.testing.assert_allclose(found["shares"], s[:2] ** 2 / (s**2).sum(), rtol=1e-3)
    assert ask(client, "plane", model=name, count=10)["x"] == found["x"][:10]

    rows = {word: i for i, word in enumerate(found["words"])}
    near = ask(client, "near", model=name, word="cat", count=5)
    cosines = unit @ unit[rows["cat"]]
    cosines[rows["cat"]] = -1
    assert [rows[one["word"]] for one in near["near"]] == np.argsort(-cosines)[:5].tolist() and near["word"] == "cat"
    np.testing.assert_allclose([one["cosine"] for one in near["near"]], np.sort(cosines)[::-1][:5], atol=1e-5)

    a, b, c = (unit[rows[word]] for word in ("went", "go", "come"))
    sums = ask(client, "analogy", model=name, a="went", b="go", c="come", count=3)
    np.testing.assert_allclose(sums["sum"], a - b + c, atol=1e-6)
    np.testing.assert_allclose(sums["a"], a, atol=1e-6)
    cosines = unit @ ((a - b + c) / np.linalg.norm(a - b + c))
    cosines[[rows[word] for word in ("went", "go", "come")]] = -1
    assert [rows[one["word"]] for one in sums["near"]] == np.argsort(-cosines)[:3].tolist() and sums["near"][0]["word"] == "came"
    np.testing.assert_allclose(sums["best"], unit[rows["came"]], atol=1e-6)


@pytest.mark.parametrize("name", [WORDS, "zh-en"])
def test_one_hot_times_the_matrix_is_the_row(client: TestClient, name: str) -> None:
    loaded = task(name)
    weights = loaded.model.input.weight if name == WORDS else loaded.model.encoder.embed.token.weight
    e = weights.detach().numpy()
    row = ask(client, "row", model=name, word="cat")
    assert row["shape"] == list(e.shape) and row["rows"] == [row["id"]]
    assert row["scale"] == pytest.approx(1 if name == WORDS else e.shape[1] ** 0.5)
    hot = np.zeros(len(e))
    hot[row["id"]] = 1
    np.testing.assert_allclose(hot @ e, row["vector"], atol=1e-7)
    assert (row["min"], row["max"]) == (e.min(), e.max())
    part = numbers(client, "/api/vectors/matrix", model=name, slice="5:9,3:7")
    assert np.array_equal(part, e[5:9, 3:7])
    assert np.array_equal(numbers(client, "/api/vectors/matrix", model=name, slice=f"{row['id']},:"), e[row["id"]])
    assert max(numbers(client, "/api/vectors/matrix", model=name, pool=50).shape) <= 50
    refused(client.get("/api/vectors/matrix", params={"model": name}), 422, "too-large")


def test_what_is_asked_wrongly(client: TestClient) -> None:
    for what, more in (("near", {}), ("row", {}), ("analogy", {"b": "go", "c": "come"})):
        word = {"a" if what == "analogy" else "word": "coffeee"}
        said = refused(client.post(f"/api/vectors/{what}", json={"model": WORDS, **word, **more}), 422, "unknown-word")
        assert said["details"]["word"] == "coffeee" and "coffee" in said["details"]["near"]
    refused(client.post("/api/vectors/near", json={"model": WORDS, "word": ""}), 422, "bad-request")
    refused(client.post("/api/vectors/plane", json={"model": "counts"}), 422, "no-embedding")
    refused(client.get("/api/vectors/matrix", params={"model": "counts"}), 422, "no-embedding")
    refused(client.post("/api/vectors/plane", json={"model": "none"}), 404, "unknown-model")
    refused(client.post("/api/vectors/map", json={"model": WORDS, "count": 2}), 422, "too-few")
    refused(client.post("/api/vectors/map", json={"model": WORDS, "count": 3001}), 422, "bad-request")
    refused(client.get("/api/vectors/map/x"), 404, "unknown-map")
    refused(client.get(f"/api/vectors/map/{'0' * 16}"), 410, "map-expired")


# -- maps that take a while


def test_a_vector_of_zeros_has_a_code_of_its_own() -> None:
    space = Space(["a", "none"], torch.tensor([[1.0, 2.0], [0.0, 0.0]]))
    assert with_vector(space, "a").tolist() == pytest.approx([0.4472, 0.8944], abs=1e-4)
    with pytest.raises(Refusal) as refusal:
        with_vector(space, "none")
    assert refusal.value.code == "no-direction"


def until(client: TestClient, id: str, state: str) -> dict[str, Any]:
    end = time.monotonic() + 60
    while (told := client.get(f"/api/vectors/map/{id}").json())["state"] in ("waiting", "running") and time.monotonic() < end:
        time.sleep(0.02)
    assert told["state"] == state
    return told


def test_a_map_is_computed_once_and_can_be_stopped(client: TestClient) -> None:
    begun = ask(client, "map", model=WORDS, count=60)
    done = until(client, begun["id"], "done")
    assert done["done"] == done["steps"] == 500 and len(done["x"]) == len(done["y"]) == 60
    space = task(WORDS).space()
    want = list(plane.tsne(space.unit[:60], steps=500))[-1].places
    np.testing.assert_allclose(np.array([done["x"], done["y"]]).T, want.numpy(), atol=0.02)
    assert ask(client, "map", model=WORDS, count=60)["id"] == begun["id"]

    long = ask(client, "map", model=WORDS, count=800)
    assert client.post(f"/api/vectors/map/{long['id']}/stop").status_code == 200
    assert until(client, long["id"], "stopped")["done"] < 500
    again = ask(client, "map", model=WORDS, count=800)
    assert again["id"] != long["id"]  # what was stopped is begun again
    client.post(f"/api/vectors/map/{again['id']}/stop")
    until(client, again["id"], "stopped")


def test_few_maps_are_kept_and_fewer_computed() -> None:
    def stages(steps: int) -> Iterator[Stage]:
        for done in range(1, steps + 1):
            time.sleep(0.001)
            yield Stage(done, torch.zeros(1, 2), None)

    maps = Maps(Limits(maps=3, maps_at_once=2))
    first, second = (maps.begin(key, 10**6, lambda: stages(10**6)) for key in "ab")
    with pytest.raises(Exception, match="2 maps are being computed already"):
        maps.begin("c", 1, lambda: stages(1))
    maps.end(second.id)
    assert second.state == "stopped" and second.stage is None  # it never began
    maps.end(first.id)
    ended = time.monotonic() + 30
    while first.state != "stopped" and time.monotonic() < ended:
        time.sleep(0.005)
    made = [maps.begin(key, 1, lambda: stages(1)) for key in "cd"]
    while any(map.state != "done" for map in made) and time.monotonic() < ended:
        time.sleep(0.005)
    maps.begin("e", 1, lambda: stages(1))
    with pytest.raises(Exception, match="no longer kept"):
        maps.get(second.id)
    assert maps.get(made[1].id).state == "done"
    maps.close()


def test_pieces_of_a_long_text(client: TestClient) -> None:
    for text in ("𠮷" * 10_000, "\0<b>" * 2000, "I like 草莓. " * 900, ""):
        response = client.post("/api/tokenize", json={"model": "zh-en", "text": text})
        assert response.status_code == 200 and len(response.content) < 1_000_000
        found = response.json()
        assert bytes.fromhex("".join(found["bytes"][str(id)] for id in found["ids"])).decode() == text
        assert len(found["ids"]) == len(found["starts"]) == len(found["ends"])
    refused(client.post("/api/tokenize", json={"model": "zh-en", "text": "a" * 10_001}), 422, "too-long")


def test_explore_takes_word_vectors_alone() -> None:
    told = Shelf([Path(store.find_model(WORDS))]).list()
    assert told["models"] == [] and told["default"] is None and told["vectors"][0]["id"] == WORDS
