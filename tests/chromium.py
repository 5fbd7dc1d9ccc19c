"""A tab of real Chromium on a server of ours, and whether what it draws are the API's numbers."""

import json
import re
import shutil
import time
import urllib.request
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

import numpy as np
import pytest
from command import ROOT, process
from small_tasks import TEXTS, make

from glassformer import store

try:
    from playwright.sync_api import Browser, Page, sync_playwright
except ImportError:
    sync_playwright = None  # type: ignore[assignment]

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")  # the first takes the least time
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
WEB, BUILT = ROOT / "web", ROOT / "src/glassformer/server/page"
VIEWS, LANGUAGES = ("walk", "translate", "attention", "next"), ("en", "zh")
SMALL = {name: name for name in ("language", "fill", "classify", "tag", "compare", "score")} | {"post": "translate"}
BUNDLED = [folder.name for folder in store.bundled() if folder.name != "word-vectors"]  # through which no text passes
TRANSLATOR, SENTENCE = "zh-en", "我喜欢吃草莓。"
WALKED = [
    *(name for name in BUNDLED if name != "tang"),
    "fill",
    "score",
    "post",
]  # tang is as shakespeare; compare is walked in an export
READ = [TRANSLATOR, *SMALL]  # one of each task, whatever its weights: what the page says does not depend on them

in_chromium = [
    pytest.mark.skipif(sync_playwright is None, reason="Playwright is not installed: pip install playwright"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium was found: on Debian, apt install chromium fonts-noto-cjk"),
]


def browser_test(function: Any) -> Any:
    for mark in in_chromium:
        function = mark(function)
    return function


class Server:
    writes: ClassVar[dict[str, str]] = {"model": TRANSLATOR, "text": SENTENCE}  # what most tests look at
    traced: tuple[dict[str, Any], ...] = ()  # what is known of the pass, if the page does not ask for it

    def __init__(self, *models: object) -> None:
        self.child = process("explore", *models, "--no-browser", "--port", 0)
        assert self.child.stdout
        self.address = self.child.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), self.child.communicate()

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=60))

    def tensor(self, trace: str, name: str, part: str = "") -> np.ndarray:
        query = f"?slice={quote(part)}" if part else ""
        with urllib.request.urlopen(f"{self.address}/api/trace/{trace}/tensor/{name}{query}", timeout=60) as answer:
            shape = [int(size) for size in answer.headers["X-Shape"].split(",") if size]
            return np.frombuffer(answer.read(), "<f4").reshape(shape)

    def stop(self) -> None:
        self.child.terminate()
        self.child.communicate()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("small")
    small = [make(folder / name, task) for name, task in SMALL.items()]
    served = Server(*BUNDLED, *small)
    yield served
    served.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


class Explorer:
    """A tab that remembers what must not happen: errors in the console, requests that leave the machine."""

    def __init__(self, browser: "Browser", server: Server, width: int = 1400, height: int = 900, **options: Any) -> None:
        self.server, self.writes = server, server.writes
        self.page: Page = browser.new_page(viewport={"width": width, "height": height}, **options)
        self.wrong: list[str] = []
        self.traces: list[dict[str, Any]] = [*server.traced]
        self.page.on("console", lambda message: self.wrong.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.pending = 0
        self.page.on("request", self._asked)
        self.page.on("requestfinished", lambda request: self._over())
        self.page.on("requestfailed", lambda request: self._over())
        self.page.on("response", self._answered)
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def _asked(self, request: Any) -> None:
        self.pending += 1
        if not request.url.startswith((self.server.address + "/", "data:", "blob:")):
            self.wrong.append(f"leaves the machine: {request.url}")

    def _over(self) -> None:
        self.pending -= 1

    def _answered(self, response: Any) -> None:
        if re.search(r"/api/trace(/[^/]+/edit)?$", response.url) and response.ok:
            self.traces.append(response.json())

    @property
    def trace(self) -> dict[str, Any]:
        return self.traces[-1]

    def go(self, **place: object) -> "Explorer":
        """Loads the page anew, at this place."""
        self.leave()
        self.page.goto(f"{self.server.address}/#{urlencode(place)}")
        self.page.wait_for_selector("main.work, .problem", timeout=30_000)
        return self.settle()

    def leave(self) -> None:
        """For nowhere, but on the same server: a tab that goes elsewhere gets a new process, which takes as long as the page."""
        if self.page.url != "about:blank":
            self.page.goto(f"{self.server.address}/favicon.svg")

    def forget(self) -> None:
        """Whatever was done in this tab."""
        self.page.unroute_all()
        self.leave()
        if self.page.url != "about:blank":
            self.page.evaluate("() => localStorage.clear()")
        self.wrong, self.traces, self.pending = [], [*self.server.traced], 0

    def left(self) -> None:
        """The test is over: whatever went wrong has been told when the page is gone."""
        self.leave()
        assert not self.wrong, self.wrong

    def settle(self) -> "Explorer":
        """Until nothing has been asked for a moment, by the page's own clock, and everything is drawn."""
        calm = 0
        while calm < 3:
            self.page.evaluate("() => new Promise((done) => setTimeout(done, 25))")
            calm = 0 if self.pending > 0 else calm + 1
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.matrix .scroller canvas')].every((one) => one.dataset.ready === 'true')"
        )
        return self

    def traced_again(self) -> None:
        """Until the page has asked for a second pass."""
        until = time.monotonic() + 30
        while len(self.traces) < 2:
            assert time.monotonic() < until, "no second pass was asked for"
            self.page.wait_for_timeout(50)

    def click(self, what: str) -> "Explorer":
        self.page.locator(what).first.click()
        return self.settle()

    def text(self, what: str = "body") -> str:
        return self.page.locator(what).first.inner_text()

    def close(self) -> None:
        self.page.close()
        assert not self.wrong, self.wrong


@pytest.fixture(scope="module")
def tab(browser: "Browser", server: Server) -> Iterator[Explorer]:
    opened = Explorer(browser, server)
    yield opened
    opened.page.close()


@pytest.fixture
def explorer(tab: Explorer) -> Iterator[Explorer]:
    """The same tab for all tests of a module, without a trace of those before."""
    tab.forget()
    yield tab
    tab.left()


def beginning(server: Server, model: str) -> dict[str, str]:
    """A text that the model can read; of an export its own."""
    if server.traced:
        return dict(server.writes)
    about = next(each for each in server.ask("/api/models")["models"] if each["id"] == model)
    texts = TEXTS[SMALL[model]] if model in SMALL else [about["examples"][0], *about.get("seconds", [])[:1]]
    return {"model": model, "text": texts[0], **({"second": texts[1]} if len(texts) > 1 else {})}


# -- what it says

SAID = """() => {
  const copy = document.body.cloneNode(true);
  copy.querySelectorAll('code, .mono, math, script, button[lang]').forEach((one) => one.remove());
  const attributes = [...copy.querySelectorAll('[aria-label], [title]')].flatMap((one) => [one.ariaLabel, one.title]);
  return copy.textContent + '\\n' + attributes.join('\\n') + '\\n' + document.title;
}"""


def literals(language: str) -> set[str]:
    """The sentences of a dictionary, as far as they are constant."""
    text = re.sub(r"/\*.*?\*/|^import[^\n]*", "", (WEB / f"src/i18n/{language}.ts").read_text("utf-8"), flags=re.M | re.S)
    found = re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)
    found += [part for line in re.findall(r"`([^`]*)`", text) for part in re.split(r"\$\{[^}]*\}", line)]
    long = r"[\u4e00-\u9fff]{2}" if language == "zh" else r"[A-Za-z]{4}"
    return {one.strip() for one in found if re.search(long, one)}


@cache
def foreign() -> dict[str, list[str]]:
    """The sentences of the other dictionary, for each language in which they are strange."""
    said = {language: literals(language) for language in LANGUAGES}
    whole = {language: " ".join(sentences) for language, sentences in said.items()}
    return {own: [one for one in said[other] if one not in whole[own]] for own, other in zip(said, reversed(said), strict=True)}


# -- drawn cells

DRAWN = """() => [...document.querySelectorAll('.matrix')].map((matrix) => {
  const canvas = matrix.querySelector('.scroller canvas');
  const legend = matrix.querySelector('.legend canvas');
  const [cw, ch, gutter, header, low, high] = ['cw', 'ch', 'gutter', 'header', 'low', 'high'].map((key) => +canvas.dataset[key]);
  const [rows, cols] = [+matrix.dataset.rows, +matrix.dataset.cols];
  const seen = [
    Math.min(rows, Math.floor((canvas.height - header) / ch)),
    Math.min(cols, Math.floor((canvas.width - gutter) / cw)),
  ];
  const inside = (size) => (size < 10 ? size / 2 : Math.max(2.1, size * 0.14)); // past a frame, before the number
  const edge = cw < 10 && seen[1] > 2 ? 1 : 0; // the frame of a row covers most of a narrow first cell
  const cells = [];
  if (cw >= 2 && ch >= 2)
    for (const row of new Set([0, seen[0] - 1])) for (const col of new Set([edge, Math.floor(seen[1] / 2), seen[1] - 1 - edge])) {
      const at = [gutter + col * cw + inside(cw), header + row * ch + inside(ch)];
      const [r, g, b] = canvas.getContext('2d').getImageData(...at.map(Math.floor), 1, 1).data;
      cells.push({ row, col, colour: [r, g, b] });
    }
  const ramp = [...legend.getContext('2d').getImageData(0, 0, legend.width, 1).data];
  const { tensor: name, lead, beside } = matrix.dataset;
  return { name, lead, beside: +beside, low, high, ramp, cells, rows, cols };
})"""


def whole(server: Server, trace: str, matrix: dict[str, Any]) -> np.ndarray:
    """The numbers of a drawn matrix, from the API."""
    lead = matrix["lead"]
    if matrix["beside"]:
        found = server.tensor(trace, matrix["name"])
        return found.transpose(1, 0, 2).reshape(matrix["rows"], matrix["cols"])
    return server.tensor(trace, matrix["name"], lead.rstrip(",")).reshape(matrix["rows"], matrix["cols"])


def check_drawn(explorer: Explorer) -> int:
    """Every matrix on the page is a slice of a named tensor: its cells have the colours of the API's numbers."""
    checked = 0
    opened = (
        explorer.page.locator("[data-cell]").first.get_attribute("data-cell")
        if explorer.page.locator("[data-cell]").count()
        else ""
    )
    index = explorer.page.locator("[data-cell]").first.get_attribute("data-index") if opened else None
    column = int((index or "-9").rpartition(",")[2])
    for matrix in explorer.page.evaluate(DRAWN):
        numbers = whole(explorer.server, explorer.trace["id"], matrix)
        for cell in matrix["cells"]:
            narrow = matrix["cols"] > 100 and abs(cell["col"] - column) < 3
            if matrix["name"] == opened and (narrow or min(matrix["rows"], matrix["cols"]) == 1):
                continue  # the frame of the open cell may cover it
            checked += check_colour(matrix, cell, numbers[cell["row"], cell["col"]])
    return checked


def check_colour(matrix: dict[str, Any], cell: dict[str, Any], x: float) -> bool:
    """A drawn cell has the colour of its number, if that is finite."""
    if not np.isfinite(x):
        return False
    ramp = np.array(matrix["ramp"]).reshape(-1, 4)[:, :3].astype(int)
    at = round((x - matrix["low"]) / (matrix["high"] - matrix["low"]) * (len(ramp) - 1))
    near = ramp[max(0, at - 1) : at + 2]
    low, high = near.min(0) - 5, near.max(0) + 5
    assert (low <= cell["colour"]).all() and (cell["colour"] <= high).all(), (matrix["name"], cell, x, near)
    return True


def check_cell(explorer: Explorer) -> None:
    """The open cell is what the tensor holds there, and what its operands give."""
    panel = explorer.page.locator("[data-cell]").first
    panel.locator(".value[data-value], .value").first.wait_for()
    name, index = panel.get_attribute("data-cell"), panel.get_attribute("data-index")
    value = panel.locator("p.value").get_attribute("data-value")
    assert name and index
    held = float(explorer.server.tensor(explorer.trace["id"], name, index))
    told = explorer.server.ask(
        f"/api/trace/{explorer.trace['id']}/cell", {"name": name, "index": [int(i) for i in index.split(",")]}
    )
    if value is None:
        assert held == -np.inf
    else:
        assert float(value) == pytest.approx(held, abs=1e-6)
        assert told["result"] == pytest.approx(held, rel=1e-3, abs=1e-3)
