"""trace.show() and gf.explore(): a frame in a notebook, which shows the numbers of the pass it was given."""

import functools
import http.server
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import torch
from chromium import browser_test
from command import ROOT
from small_tasks import LINES, TEXTS, make

import glassformer as gf
from glassformer import notebook
from glassformer.edits import HeadOff, apply
from glassformer.notebook import Frame
from glassformer.server.limits import Limits
from glassformer.tasks.translate import Translate
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace

NOTEBOOK = ["import glassformer as gf", "model = gf.load({!r})", "trace = model.trace({!r})", "trace.show('walk', height=640)"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("models") / "small", "translate")


def place(frame: Frame) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(frame.address).fragment).items()}


def ask(frame: Frame, path: str, **headers: str) -> Any:
    address = frame.address.split("#")[0].rstrip("/")
    return urllib.request.urlopen(urllib.request.Request(f"{address}{path}", headers=headers), timeout=30)


def told(frame: Frame) -> dict[str, Any]:
    found: dict[str, Any] = json.load(ask(frame, f"/api/trace/{place(frame)['trace']}"))
    return found


def test_a_trace_is_shown_as_it_is(folder: Path) -> None:
    model = gf.load(folder)
    trace = model.trace(TEXTS["translate"][0])
    frame = trace.show("attention", height=500)
    assert place(frame) | {"trace": ""} == {
        "view": "attention",
        "model": "small",
        "text": trace.about["text"],
        "to": "en",
        "trace": "",
    }
    held = notebook.server().work.traces.get(place(frame)["trace"])
    assert held.task is model and all(held.trace[name] is x for name, x in trace.items())  # nothing was computed again
    assert told(frame)["tensors"].keys() == trace.keys() and told(frame)["seconds"] is None
    assert 'height="500"' in frame._repr_html_() and "small, I like" in repr(frame) and frame.address in repr(frame)


def test_an_edited_trace_is_shown_as_it_is(folder: Path) -> None:
    model = gf.load(folder)
    edited = apply(model, model.trace("好"), [HeadOff("decoder.0.self", 1)]).trace
    frame = edited.show()
    assert told(frame)["edits"][0]["kind"] == "head-off" and ", edited," in repr(frame)
    held = notebook.server().work.traces.get(place(frame)["trace"]).trace
    assert all(held[name] is x for name, x in edited.items()) and not held["decoder.0.self.z"][1].any()


def test_a_model_that_is_in_no_folder(tmp_path: Path) -> None:
    saved = gf.load(make(tmp_path / "gone", "translate"))
    tokenizer = Tokenizer.load(tmp_path / "gone/tokenizer.json")
    fresh = Translate(saved.recipe, tokenizer, tokenizer)
    fresh.model.load_state_dict(saved.model.state_dict())
    for path in (tmp_path / "gone").iterdir():
        path.unlink()
    fresh.model.train()
    frame = gf.explore(fresh, LINES[0], view="translate")
    about = next(each for each in json.load(ask(frame, "/api/models"))["models"] if each["id"] == place(frame)["model"])
    assert about["parameters"] == sum(x.numel() for x in fresh.model.parameters()) and about["map"]
    assert fresh.model.training  # to be looked at does not change it


def test_two_models_of_one_name_are_told_apart(folder: Path) -> None:
    first, second = gf.load(folder), gf.load(folder)
    names = [place(gf.explore(model, "好"))["model"] for model in (first, second, first)]
    assert names[0] == names[2] != names[1]


def test_a_folder_is_one_model_and_no_id_means_another(folder: Path) -> None:
    by_name = [place(gf.explore(name, "book a table"))["model"] for name in ("intents", "intents")]
    assert by_name == ["intents", "intents"]
    assert len({place(gf.explore(folder, "好"))["model"] for _ in range(2)}) == 1
    ids = [place(gf.explore(gf.load("intents"), "book a table"))["model"] for _ in range(Limits().models + 2)]
    assert len({"intents", *ids}) == len(ids) + 1  # also those that nobody holds any more
    with pytest.raises(Exception, match="no longer in memory"):
        notebook.server().shelf.load(ids[0])


def test_only_the_latest_models_stay(folder: Path) -> None:
    frames = [gf.load(folder).trace("好").show() for _ in range(Limits().models + 1)]  # nobody else holds them
    notebook.server().work.traces.get(place(frames[-1])["trace"]).task  # noqa: B018
    with pytest.raises(Exception, match="no longer in memory"):
        notebook.server().work.traces.get(place(frames[0])["trace"]).task  # noqa: B018


@pytest.mark.parametrize("task", ["language", "compare", "tag"])
def test_other_tasks(tmp_path: Path, task: str) -> None:
    frame = gf.explore(make(tmp_path / task, task), *TEXTS[task])
    assert told(frame)["text"] == TEXTS[task][0] and len(told(frame)["tensors"]) > 5


def test_word_vectors_are_shown_on_a_plane() -> None:
    frame = gf.explore("word-vectors")
    assert place(frame) == {"view": "vectors", "space": "word-vectors"}
    assert json.load(ask(frame, "/api/models"))["vectors"][0]["id"] == "word-vectors"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"view": "walking"}, "There are: walk, translate"),
        ({"height": 7}, "100 to 10,000 pixels"),
        ({"text": "好" * 5000}, "at most 4,000"),
        ({"text": "好 " * 100}, "48 positions"),
        ({"text": "好", "to": "fr"}, "fr"),
        ({"text": "好", "second": "不"}, "reads one text"),
        ({"model": "nowhere"}, "There is no model"),
        ({"model": 42}, "not 42"),
        ({"text": 42}, "not 42"),
        ({"text": "\ud800"}, "not valid UTF-8"),
        ({"text": None, "second": "好"}, "goes with a first"),
    ],
)
def test_mistakes_are_sentences(folder: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(gf.UserError, match=re.escape(said)):
        gf.explore(**{"model": folder, "text": "好"} | given)


def test_a_saved_trace_needs_its_model(folder: Path, tmp_path: Path) -> None:
    model = gf.load(folder)
    model.trace("好").save(tmp_path)
    with pytest.raises(gf.UserError, match="does not know its model"):
        Trace.load(tmp_path).show()
    assert told(Trace.load(tmp_path).show(model=model))["text"] == "好"
    assert told(Trace.load(tmp_path).show(model=folder))["text"] == "好"
    with torch.no_grad():
        model.model.encoder.embed.token.weight.mul_(1.1)
    for other in (model, "intents", "zh-en"):
        with pytest.raises(gf.UserError, match="did not make this trace"):
            Trace.load(tmp_path).show(model=other)


def test_who_may_frame_and_ask(folder: Path) -> None:
    """Pages of this machine may show the page in a frame, and still ask nothing of the API; others may do neither."""
    frame = gf.explore(folder, "好")
    with ask(frame, "/") as page:
        policy = page.headers["Content-Security-Policy"]
        ancestors = next(rule for rule in policy.split("; ") if rule.startswith("frame-ancestors"))
        assert set(ancestors.split()[1:]) == {f"{s}://{n}:*" for s in ("http", "https") for n in ("localhost", "127.0.0.1")}
        assert page.headers["X-Frame-Options"] is None and "default-src 'none'" in policy
    for headers in ({"Host": "evil.example"}, {"Origin": "http://localhost:8888"}, {"Sec-Fetch-Site": "cross-site"}):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask(frame, "/api/models", **headers)


def test_text_of_a_person_is_no_html(folder: Path) -> None:
    shown = gf.explore(folder, "<script>alert(1)</script>")._repr_html_()
    assert "<script" not in shown and "&lt;script&gt;" in shown


# -- in a notebook, in a browser


@pytest.fixture(scope="module")
def notebook_page(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, float, str]]:
    """A page on localhost with what a cell of an executed notebook put out, a number of its trace, and the cell's plain text."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    source = "\n".join(NOTEBOOK).format(str(folder), TEXTS["translate"][0])
    cells = [nbformat.v4.new_code_cell(source), nbformat.v4.new_code_cell("float(trace['encoder.1.self.pattern'][2, 4, 3])")]
    written = nbformat.v4.new_notebook(cells=cells)
    home = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "src"))
        client = nbclient.NotebookClient(written, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(home)}})
        with client.setup_kernel():
            for index, cell in enumerate(written.cells):
                client.execute_cell(cell, index)
            shown, number = (cell["outputs"][-1]["data"] for cell in written.cells)
            (home / "index.html").write_text(
                f'<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">{shown["text/html"]}'
            )
            handler = functools.partial(_Quiet, directory=str(home))
            with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
                threading.Thread(target=served.serve_forever, daemon=True).start()
                yield f"http://localhost:{served.server_address[1]}/", float(number["text/plain"]), shown["text/plain"]
                served.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@browser_test
def test_an_executed_notebook_shows_the_view(browser: Any, notebook_page: tuple[str, float, str]) -> None:
    address, number, plain = notebook_page
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    wrong: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: asked.append(f"{request.method} {request.url}"))
    page.goto(address)
    frame = page.frame_locator("iframe")
    frame.locator("main.work").wait_for()
    assert page.locator("iframe").bounding_box()["height"] >= 640
    inside = page.frames[1]
    inside.evaluate("location.hash += '&step=encoder.1.self.pattern&head=2&row=4&col=3'")
    frame.locator("[data-cell='encoder.1.self.pattern'][data-index='2,4,3'] p.value").wait_for()
    assert float(frame.locator("p.value").get_attribute("data-value")) == number
    assert not [each for each in asked if re.search(r"POST .*/api/trace$", each)]  # it is the pass of the notebook
    assert {urlsplit(each.split()[1]).hostname for each in asked if "http" in each} == {"localhost", "127.0.0.1"}
    assert (
        plain.splitlines()[0].startswith("Glassformer, walk: small, I like") and "run it again" in page.locator("p").inner_text()
    )
    frame.locator("[data-view=attention]").click()
    frame.locator("[data-control=switch]").click()  # and all else works, too
    frame.locator("[data-change]").first.wait_for()
    frame.locator("textarea").fill("好久不见。")
    frame.locator("textarea").press("Enter")
    page.wait_for_timeout(100)
    frame.locator(".answer b").wait_for()
    assert [each for each in asked if re.search(r"POST .*/api/trace$", each)] and "trace=" not in inside.url.split("#")[0]
    assert not wrong, wrong
    page.close()


@browser_test
def test_a_frame_of_a_pass_that_is_gone_says_so(browser: Any, folder: Path) -> None:
    frame = gf.explore(folder, "好")
    page = browser.new_page()
    page.goto(frame.address.replace(f"trace={place(frame)['trace']}", f"trace={16 * '0'}") + "&lang=en")
    page.wait_for_selector(".problem")
    assert "The notebook no longer has this pass" in page.locator(".problem").inner_text()
    page.locator(".problem button").first.click()
    page.wait_for_selector("main.work")
    assert not page.locator(".problem").count()
    page.close()
