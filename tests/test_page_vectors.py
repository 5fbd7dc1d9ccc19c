"""Vectors in the browser: what is drawn and said is held against the weights."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import numpy as np
import pytest
from chromium import DRAWN, Explorer, Server, browser_test

from glassformer import store
from glassformer.tasks import registry

WORDS = "word-vectors"
READY = "() => document.querySelector('.plane canvas') && document.querySelector('[data-product]')"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    served = Server(WORDS)  # no other model is needed
    yield served
    served.stop()


@pytest.fixture(scope="module")
def unit() -> tuple[dict[str, int], np.ndarray, np.ndarray]:
    """The ids of the words, the matrix, and the matrix with rows of length 1."""
    task: Any = registry.load(store.find_model(WORDS))
    e = task.model.input.weight.detach().double().numpy()
    return task.tokenizer.words(), e, e / np.linalg.norm(e, axis=1, keepdims=True)


def show(explorer: Explorer, **place: object) -> Explorer:
    explorer.leave()
    explorer.page.goto(f"{explorer.server.address}/#{urlencode({'lang': 'en', **place})}")
    explorer.page.wait_for_function(READY, timeout=60_000)
    return explorer.settle()


def saved(explorer: Explorer, where: str, kind: str = "CSV") -> bytes:
    with explorer.page.expect_download() as download:
        explorer.page.locator(where).get_by_text(kind, exact=True).click()
    return Path(download.value.path()).read_bytes()


def rows(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))


@browser_test
def test_the_plane_and_the_neighbours(explorer: Explorer, unit: Any) -> None:
    ids, _, near = unit
    show(explorer, word="猫")  # without a model that a text passes through, this is the view
    assert "view=vectors" in explorer.page.url
    every = near[list(ids.values())]
    _, _, vt = np.linalg.svd(every - every.mean(0), full_matrices=False)
    signs = [np.sign(v[np.abs(v).argmax()]) for v in vt[:2]]
    found = rows(saved(explorer, ".plane"))
    assert len(found) >= 1000 and {row["script"] for row in found} >= {"han", "latin"}
    for row in found[:: len(found) // 40]:
        assert int(row["id"]) == ids[row["word"]]
        want = (near[ids[row["word"]]] - every.mean(0)) @ vt[:2].T * signs
        assert [float(row["x"]), float(row["y"])] == pytest.approx(want, abs=2e-4)
    assert saved(explorer, ".plane", "PNG").startswith(b"\x89PNG")
    drawing = saved(explorer, ".plane", "SVG").decode()
    assert drawing.startswith("<svg") and ">猫</text>" in drawing

    table = explorer.page.locator(".right .cosines tbody tr")
    cosines = near @ near[ids["猫"]]
    said = [
        (table.nth(i).get_attribute("data-word") or "", table.nth(i).locator(".x").inner_text()) for i in range(table.count())
    ]
    assert len(said) == 15 and said[0][0] == "cat"
    assert all(float(x) == pytest.approx(cosines[ids[word]], abs=6e-5) for word, x in said)
    names = explorer.page.locator(".plane canvas").evaluate("(one) => JSON.parse(one.dataset.names)")
    assert {"猫", "cat"} <= set(names) and len(names) == len(set(names))


@browser_test
def test_going_about(explorer: Explorer) -> None:
    show(explorer)
    page, canvas = explorer.page, explorer.page.locator(".plane canvas")
    all_dots = int(canvas.get_attribute("data-dots") or 0)
    for _ in range(3):
        page.get_by_label("Closer").click()
    page.get_by_label("To the right").click()
    page.wait_for_function("() => /zoom=3.3/.test(location.hash) && /midX/.test(location.hash)")
    near = int(canvas.get_attribute("data-dots") or 0)
    assert 0 < near < all_dots
    link, names = page.url, canvas.get_attribute("data-names")
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_function(READY)
    explorer.settle()
    assert canvas.get_attribute("data-names") == names  # a link shows the same
    page.locator(".plane .field").press("0")
    assert int(canvas.get_attribute("data-dots") or 0) == all_dots
    page.locator(".right ul button").first.focus()  # the list, by keyboard
    page.keyboard.press("ArrowDown")
    word = page.evaluate("document.activeElement.innerText")
    page.keyboard.press("Enter")
    page.wait_for_function("(word) => document.querySelector('.right h3')?.innerText.includes(word)", arg=word)
    page.get_by_label("Search for a word").fill("coffeee")
    page.get_by_text("Look", exact=True).click()
    page.locator(".right [role=alert] button", has_text="coffee").click()
    page.wait_for_function("() => document.querySelector('.right .cosines [data-word=咖啡]')")
    assert len(explorer.wrong) == 1 and "422" in explorer.wrong.pop()  # what the browser itself says of the refusal


@browser_test
def test_sums_and_the_one_hot_product_are_drawn_as_computed(explorer: Explorer, unit: Any) -> None:
    ids, e, near = unit
    show(explorer, word="cat", plus="went", minus="go", also="come")
    a, b, c = (near[ids[word]] for word in ("went", "go", "come"))
    first = explorer.page.locator(".analogy tbody tr").first
    assert first.get_attribute("data-word") == "came"
    cosine = (a - b + c) / np.linalg.norm(a - b + c) @ near[ids["came"]]
    assert float(first.locator(".x").inner_text()) == pytest.approx(cosine, abs=6e-5)
    id = ids["cat"]
    around = range(id - 3, id + 4)
    numbers = {
        "a-b+c": np.stack([a, b, c, a - b + c, near[ids["came"]]]),
        "one-hot": np.array([[float(row == id) for row in around]]),
        "input.weight": e[list(around)],
        f"input.weight[{id}]": e[[id]],
    }
    drawn = explorer.page.evaluate(DRAWN)
    assert [matrix["name"] for matrix in drawn] == list(numbers)
    for matrix in drawn:
        want = numbers[matrix["name"]]
        assert want.shape == (matrix["rows"], matrix["cols"]) and matrix["cells"]
        ramp = np.array(matrix["ramp"]).reshape(-1, 4)[:, :3].astype(int)
        for cell in matrix["cells"]:
            at = round((want[cell["row"], cell["col"]] - matrix["low"]) / (matrix["high"] - matrix["low"]) * (len(ramp) - 1))
            some = ramp[max(0, at - 1) : at + 2]
            assert (some.min(0) - 5 <= cell["colour"]).all() and (cell["colour"] <= some.max(0) + 5).all(), (matrix["name"], cell)
    row = explorer.page.locator(".hot .matrix .scroller").last
    row.focus()
    row.press("ArrowRight")
    row.press("ArrowRight")
    row.press("Enter")
    explorer.page.wait_for_function("() => document.querySelector('[data-product]')?.innerText.includes(' · ')")
    said = explorer.text("[data-product]").replace("\u2212", "-")
    terms = [[float(x) for x in term.split(" · ")] for term in said.split(": ")[1].split(" = ")[0].split(" + ")[:7]]
    assert [weight for weight, _ in terms] == [0, 0, 0, 1, 0, 0, 0]
    assert [x for _, x in terms] == pytest.approx(e[list(around), 1], abs=6e-5)
    assert float(said.rpartition("= ")[2]) == pytest.approx(e[id, 1], abs=6e-5)
    explorer.page.get_by_label("The whole matrix").check()
    explorer.settle()
    assert explorer.page.locator('.hot .matrix[data-rows="9000"]').count() == 1


@browser_test
def test_a_map_is_watched_and_stopped(explorer: Explorer) -> None:
    show(explorer, drawn=200)
    page = explorer.page
    page.get_by_text("t-SNE", exact=True).click()
    page.wait_for_selector("[data-map=done]", timeout=60_000)
    assert "KL" in explorer.text("[data-map]")
    found = rows(saved(explorer, ".plane"))
    map = explorer.server.ask("/api/vectors/map", {"model": WORDS, "count": 200})
    assert map["state"] == "done" and [float(row["x"]) for row in found] == map["x"] and len(found) == 200
    assert parse_qs(page.url.partition("#")[2])["plane"] == ["tsne"]
    page.locator("label", has_text="Words").locator("select").select_option("2000")
    page.wait_for_selector("[data-map=running], [data-map=waiting]", timeout=60_000)
    page.get_by_text("Stop", exact=True).click()
    page.wait_for_selector("[data-map=stopped]", timeout=60_000)
    assert "Stopped" in explorer.text("[data-map]")


@browser_test
def test_a_phone_in_chinese(browser: Any, server: Server) -> None:
    explorer = Explorer(browser, server, 390, 844, color_scheme="dark", has_touch=True)
    show(explorer, lang="zh", word="猫")
    assert explorer.page.evaluate("document.documentElement.scrollWidth") <= 390
    said = explorer.text("main")
    assert "离“猫”最近的词" in said and "从独热到嵌入" in said and "Nearest" not in said and "Rows" not in said
    explorer.close()
