"""The views Gates, What if and Compare in real Chromium: every number they draw is recomputed from the API's tensors."""

import csv
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
import torch
from chromium import (
    DRAWN,
    LANGUAGES,
    SAID,
    WEB,
    Explorer,
    Server,
    browser_test,
    check_cell,
    check_colour,
    check_drawn,
    foreign,
)
from conftest import scramble
from small_tasks import make
from test_ancestors import MADE

import glassformer as gf
from glassformer.training.checkpoints import Checkpoints, Progress

TEXT, OTHER, LONGER = "the cat sat on the mat", "the mat sat on the cat", "the cat I like sat on the mat."
RECURRENT = {"additive": "additive", "fixed": "fixed", "speaks": "writes"}  # no name is a word of the page
VIEWS = ("gates", "whatif", "compare")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    at = tmp_path_factory.mktemp("gates")
    made = [make(at / name, MADE[kind][0], **MADE[kind][1]) for name, kind in RECURRENT.items()]
    made += [make(at / name, name) for name in ("translate", "language", "classify", "score")]
    run = at / "run"
    shutil.copytree(at / "translate", run)
    task = gf.load(run)
    scramble(task.model)
    Checkpoints(run / "checkpoints").write(task.model, torch.optim.SGD(task.model.parameters()), {}, Progress(10))
    served = Server(*made, run)
    yield served
    served.stop()


def go(explorer: Explorer, **place: object) -> Explorer:
    explorer.leave()
    explorer.traces.clear()
    explorer.page.goto(f"{explorer.server.address}/#{urlencode({'lang': 'en', 'text': TEXT, 'to': 'zh', **place})}")
    explorer.page.wait_for_selector("#view, .problem", timeout=30_000)
    explorer.settle()
    return explorer


def quiet(explorer: Explorer) -> None:
    assert not explorer.page.locator(".problem").count(), explorer.text(".problem")


def saved(explorer: Explorer, within: str, kind: str = "CSV") -> list[list[str]]:
    """A table as the page saves it."""
    with explorer.page.expect_download() as waiting:
        explorer.page.locator(within).first.get_by_role("button", name=kind, exact=True).click()
    text = Path(waiting.value.path()).read_text("utf-8-sig")
    return list(csv.reader(io.StringIO(text)))


def drawn(explorer: Explorer, name: str) -> dict[str, Any]:
    return next(matrix for matrix in explorer.page.evaluate(DRAWN) if matrix["name"] == name)


def close(found: list[str], wanted: Any) -> None:
    np.testing.assert_allclose([float(x) for x in found], wanted, rtol=1e-5, atol=1e-6)


# -- all three, in both languages and on a phone


@pytest.mark.parametrize("name", ["gates", "whatif", "compare", "pairs"])
def test_every_sentence_is_translated(name: str) -> None:
    """The dictionaries have the same keys, as the compiler checks; here, that the second is Chinese and the first is not."""
    english, _, chinese = (WEB / f"src/i18n/{name}.ts").read_text("utf-8").partition("export const zh")
    han = re.compile(r"[\u4e00-\u9fff]")
    sentences = [re.findall(r'[:(] *"([^"]+)"|`([^`]+)`', part) for part in (english, chinese)]
    assert len(sentences[0]) == len(sentences[1]) > 10
    assert not [one for one in sentences[0] if han.search("".join(one))]
    assert not [one for one in sentences[1] if not han.search("".join(one))]


@browser_test
@pytest.mark.parametrize("model", ["additive", "classify"])
def test_both_languages(explorer: Explorer, model: str) -> None:
    place = {"model": model} if model != "classify" else {"model": model, "to": ""}
    for language in LANGUAGES:
        for view in VIEWS:
            change = "no-positions:encoder" if model != "additive" else "patch:decoder.0.hidden:-:0:1"
            go(explorer, view=view, **{**place, "lang": language}, edits=change, patched=OTHER, withText=OTHER)
            said = explorer.page.evaluate(SAID)
            assert not (strange := [one for one in foreign()[language] if one in said]), (view, language, strange)
            assert len(explorer.text("main")) > 100 and "undefined" not in said, view
            quiet(explorer)


@browser_test
def test_a_phone_shows_them(browser: Any, server: Server) -> None:
    explorer = Explorer(browser, server, 390, 844, color_scheme="dark", has_touch=True)
    for view in VIEWS:
        for model in ("fixed", "translate"):
            go(explorer, view=view, model=model, edits="no-scale:decoder.0.self", patched=OTHER, withText=LONGER, lang="zh")
            assert explorer.page.evaluate("document.documentElement.scrollWidth") <= 390, (view, model)
            quiet(explorer)
    explorer.close()


# -- gates


@browser_test
@pytest.mark.parametrize(
    ("model", "path", "leaves"),
    [
        ("fixed", "decoder.1", ["gate_f", "gate_i", "candidate", "cell", "gate_o", "hidden"]),
        ("additive", "encoder.0.back", ["gate_r", "gate_z", "candidate", "hidden"]),
        ("speaks", "decoder.0", ["gate_f", "gate_i", "candidate", "cell", "gate_o", "hidden"]),
    ],
)
def test_gates_are_the_numbers_of_the_pass(explorer: Explorer, model: str, path: str, leaves: list[str]) -> None:
    stack, level, *back = path.split(".")
    to = "" if model == "speaks" else "zh"
    go(explorer, view="gates", model=model, stack=stack, level=level, back=int(bool(back)), beside="-", to=to, row=1, col=1)
    assert check_drawn(explorer) > 4 * len(leaves)
    check_cell(explorer)
    trace = explorer.trace
    for unit in (-1, 3):
        if unit >= 0:
            explorer.page.locator("[data-control=course]").select_option(value="unit")
            explorer.page.locator("[data-control=unit]").fill(str(unit))
            explorer.page.locator("[data-control=unit]").blur()
            explorer.page.wait_for_selector(f"[data-lines='{path}-{unit}']")
        head, *rows = saved(explorer, f"[data-lines='{path}-{'mean' if unit < 0 else unit}']")
        assert len(head) == 2 + len(leaves) and len(rows) == len(trace["target" if stack == "decoder" else "source"])
        for i, leaf in enumerate(leaves):
            x = explorer.server.tensor(trace["id"], f"{path}.{leaf}")
            wanted = x[:, unit] if unit >= 0 else (x if leaf.startswith("gate") else np.abs(x)).mean(1)
            close([row[2 + i] for row in rows], wanted)
    explorer.page.wait_for_url(f"**unit={unit}**")
    text = explorer.text("main")
    assert ("fixed context" in text) and (("no attention" in text) == (model == "fixed"))
    norms = saved(explorer, "[data-lines=gradient-distance]")[1:]
    told = explorer.server.ask("/api/distance", {"model": model, "length": 50})
    close([row[1] for row in norms], told["norms"])


@browser_test
def test_another_model_beside_it(explorer: Explorer) -> None:
    go(explorer, view="gates", model="additive", beside="translate")
    explorer.page.wait_for_selector(".matrix[data-tensor$='-mean']")
    explorer.settle()
    other = next(trace for trace in explorer.traces if trace["model"] == "translate")
    matrix = drawn(explorer, "decoder.1.cross.pattern-mean")
    numbers = explorer.server.tensor(other["id"], "decoder.1.cross.pattern").mean(0)
    assert sum(check_colour(matrix, cell, numbers[cell["row"], cell["col"]]) for cell in matrix["cells"]) >= 4
    names = saved(explorer, "[data-lines=gradient-distance]")[0]
    assert names == ["place", "additive", "translate"]
    offered = explorer.page.locator("[data-control=beside] option").all_inner_texts()
    assert any(one.startswith("fixed") for one in offered) and not any(one.startswith(("speaks", "classify")) for one in offered)


@browser_test
def test_a_model_without_gates_offers_those_that_have_some(explorer: Explorer) -> None:
    go(explorer, view="gates", model="translate")
    assert "has no gates" in explorer.text("main") and not explorer.page.locator(".matrix").count()
    explorer.click("[data-offer=fixed]")
    explorer.page.wait_for_selector(".matrix[data-tensor='encoder.0.gate_f']")
    assert explorer.page.locator("nav.map .note").count() == 1  # nothing of where it normalises
    explorer.click("[data-box='decoder.1']")
    assert explorer.page.locator(".matrix[data-tensor='decoder.1.gate_f']").count() == 1


# -- what if


@browser_test
def test_a_change_and_what_it_did(explorer: Explorer) -> None:
    go(explorer, view="whatif", model="translate")
    assert "Nothing is changed" in explorer.text("main")
    page, base = explorer.page, explorer.trace
    page.locator("[data-control=path]").select_option(value="decoder.1.self")
    page.locator("[data-control=head-off]").select_option(index=2)
    explorer.click("[data-control=add]")
    page.locator("[data-control=kind]").select_option("no-positions")
    page.locator("[data-control=path]").select_option(value="decoder")
    explorer.click("[data-control=add]")
    page.wait_for_selector("[data-undo='no-positions:decoder']")
    explorer.settle()
    wanted = explorer.server.ask(
        f"/api/trace/{base['id']}/edit",
        {"edits": [{"kind": "head-off", "path": "decoder.1.self", "head": 2}, {"kind": "no-positions", "path": "decoder"}]},
    )
    rows = saved(explorer, ".changes")[1:]
    close([row[2] for row in rows], [change["before"] for change in wanted["changes"]])
    close([row[3] for row in rows], [change["after"] for change in wanted["changes"]])
    page.locator("[data-control=at]").select_option(value="1")
    explorer.settle()
    check_outputs(explorer, base["id"], wanted["id"], 1, 1)
    check_difference(explorer, base, wanted, "decoder.1.cross.pattern")
    address = page.url
    before = page.locator("[data-moved]").get_attribute("data-moved")
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("[data-moved]")
    explorer.settle()
    assert page.locator("[data-moved]").get_attribute("data-moved") == before  # the link shows the same again
    explorer.click("[data-undo='head-off:decoder.1.self:2']")
    assert page.locator("[data-undo]").count() == 1
    explorer.click("[data-control=undo-all]")
    assert "Nothing is changed" in explorer.text("main")


def check_outputs(explorer: Explorer, a: str, b: str, i: int, j: int) -> None:
    """The table of two distributions, against the softmax of both rows of logits."""
    explorer.page.wait_for_selector(f"[data-outputs='{i},{j}']")
    rows = explorer.page.locator("[data-output]").all()
    p, q = (
        np.exp(x - np.logaddexp.reduce(x))
        for x in (explorer.server.tensor(id, "logits", str(at)).astype(np.float64) for id, at in ((a, i), (b, j)))
    )
    assert len(rows) >= 12
    for row in rows:
        id = int(row.get_attribute("data-output") or 0)
        assert float(row.get_attribute("data-before") or 0) == pytest.approx(p[id], abs=1e-6)
        assert float(row.get_attribute("data-after") or 0) == pytest.approx(q[id], abs=1e-6)
    moved = float(explorer.page.locator("[data-moved]").get_attribute("data-moved") or -1)
    assert moved == pytest.approx(np.abs(p - q).sum() / 2, abs=1e-5)


def check_difference(
    explorer: Explorer, a: dict[str, Any], b: dict[str, Any], name: str, by: str = "place", head: int = 0
) -> None:
    """The drawn cells of a difference, recomputed from both tensors; one of them opened."""
    explorer.page.locator("[data-control=tensor]").select_option(value=name)
    explorer.settle()
    found = explorer.server.ask(f"/api/compare/{a['id']}/{b['id']}", {"by": by})
    one, two = (explorer.server.tensor(trace["id"], name) for trace in (a, b))
    axes = a["tensors"][name]["axes"]
    for axis, letter in enumerate(axes):
        if letter in "TS":
            source = not name.startswith("decoder.") or (letter == "S" and ".cross." in name)
            pairs = found["source" if source else "target"]
            one, two = (np.take(x, [pair[k] for pair in pairs], axis) for k, x in enumerate((one, two)))
    numbers = two - one if axes[0] != "H" else (two - one)[head]
    matrix = drawn(explorer, f"difference-{name}")
    assert (matrix["rows"], matrix["cols"]) == numbers.shape and np.abs(numbers).max() > 0
    assert matrix["high"] == pytest.approx(np.abs(two - one).max(), rel=1e-5)
    assert sum(check_colour(matrix, cell, numbers[cell["row"], cell["col"]]) for cell in matrix["cells"]) >= 4
    canvas = explorer.page.locator(f".matrix[data-tensor='difference-{name}'] .scroller canvas")
    cw, ch, gutter, header = (float(canvas.get_attribute(f"data-{key}") or 0) for key in ("cw", "ch", "gutter", "header"))
    canvas.click(position={"x": gutter + 1.5 * cw, "y": header + 2.5 * ch})
    explorer.page.wait_for_selector("[data-subtraction]")
    told = explorer.page.locator("[data-subtraction]").get_attribute("data-subtraction")
    assert float(told or "nan") == pytest.approx(numbers[2, 1], abs=1e-6)
    rows = saved(explorer, f".matrix[data-tensor='difference-{name}']")
    close(rows[3][1:], numbers[2])


@browser_test
def test_a_part_of_another_text(explorer: Explorer) -> None:
    go(explorer, view="whatif", model="translate", patched=LONGER)
    page = explorer.page
    base, other = (next(trace for trace in explorer.traces if trace["text"] == text) for text in (TEXT, LONGER))
    page.locator("[data-control=kind]").select_option(value="patch")
    page.locator("[data-control=patch]").select_option(value="encoder.1.resid_post")
    page.locator("[data-control=part]").select_option(value="whole")
    assert f"{len(other['source'])} × 16 there" in explorer.text("[data-unfit]")
    assert page.locator("[data-control=add]").is_disabled()
    page.locator("[data-control=part]").select_option(value="one")
    page.locator("[data-control=here]").select_option(value="1")
    page.locator("[data-control=there]").select_option(value="5")
    explorer.click("[data-control=add]")
    page.wait_for_selector("[data-undo='patch:encoder.1.resid_post:-:1:5']")
    page.wait_for_selector("[data-after]")
    explorer.settle()
    edited = explorer.trace
    found, there = (explorer.server.tensor(trace["id"], "encoder.1.resid_post") for trace in (edited, other))
    np.testing.assert_array_equal(found[1], there[5])
    check_difference(explorer, base, edited, "encoder.1.resid_post")
    quiet(explorer)


@browser_test
@pytest.mark.parametrize("model", ["translate", "classify"])
def test_the_lens(explorer: Explorer, model: str) -> None:
    go(explorer, view="whatif", model=model, to="zh" if model == "translate" else "", position=1)
    page, trace = explorer.page, explorer.trace
    rows = saved(explorer, ".matrix[data-tensor=logit-lens]")[1:]
    told = explorer.server.ask(f"/api/trace/{trace['id']}/lens", {"place": None})
    assert [len(row) - 1 for row in rows] == [len(told["predictions"])] * len(told["layers"])
    for row, layer in zip(rows, told["layers"], strict=True):
        close(row[1:], layer["p"])
    matrix = drawn(explorer, "logit-lens")
    p = np.array([layer["p"] for layer in told["layers"]])
    checked = [check_colour(matrix, cell, p[cell["row"], cell["col"]]) for cell in matrix["cells"] if cell["row"] == 0]
    assert any(checked)
    at = 1 if model == "translate" else 0
    shown = page.locator("[data-layer]").last.inner_text()
    best = explorer.server.ask(f"/api/trace/{trace['id']}/lens", {"place": at})["layers"][-1]
    assert best["top"][0]["text"] in shown and str(best["rank"][at]) in shown
    logits = explorer.server.tensor(trace["id"], "logits")
    row = logits[at] if model == "translate" else logits
    assert best["top"][0]["id"] == int(row.argmax())
    go(explorer, view="whatif", model="fixed")
    assert explorer.page.locator("[data-lens=none]").count() == 1


# -- compare


@browser_test
def test_two_texts(explorer: Explorer) -> None:
    go(explorer, view="compare", model="translate", withText=OTHER, by="place")
    a, b = (next(trace for trace in explorer.traces if trace["text"] == text) for text in (TEXT, OTHER))
    check_difference(explorer, a, b, "encoder.1.self.pattern")
    go(explorer, view="compare", model="translate", withText=LONGER)
    a, b = (next(trace for trace in explorer.traces if trace["text"] == text) for text in (TEXT, LONGER))
    check_difference(explorer, a, b, "encoder.1.resid_post", by="token")
    pairs = explorer.server.ask(f"/api/compare/{a['id']}/{b['id']}", {"by": "token"})["target"]
    check_outputs(explorer, a["id"], b["id"], *pairs[0])
    explorer.click("[data-by=place]")
    assert explorer.page.locator("[data-why=lengths]").count() == 1 and "different numbers of tokens" in explorer.text("main")


@browser_test
def test_two_models(explorer: Explorer) -> None:
    go(explorer, view="compare", model="translate", against="model", withModel="run")
    explorer.page.wait_for_selector("[data-compared]")
    assert explorer.page.locator("[data-equal]").count() == 1  # a copy
    explorer.page.locator("[data-control=with-model]").select_option(value="additive")
    explorer.page.wait_for_selector("[data-pick=logits]")
    explorer.settle()
    assert "trained apart" in explorer.text("[data-apart]")
    explorer.page.locator("[data-control=tensor]").select_option(value="encoder.0.resid_post")
    assert explorer.page.locator("[data-why=not-in-second]").count() == 1
    offered = explorer.page.locator("[data-control=with-model] option").all_inner_texts()
    assert {one.split(" ")[0] for one in offered} == {"additive", "fixed", "run"}


@browser_test
def test_two_checkpoints(explorer: Explorer) -> None:
    go(explorer, view="compare", model="run", against="checkpoint")
    explorer.page.wait_for_selector("[data-compared]")
    explorer.settle()
    a, b = (next(trace for trace in explorer.traces if trace["model"] == id) for id in ("run", "run@10"))
    check_difference(explorer, a, b, "encoder.0.self.pattern", head=0)
    go(explorer, view="compare", model="translate", against="checkpoint")
    assert "has no checkpoints" in explorer.text("[data-none]")
    quiet(explorer)
