"""An exported folder, served by `python -m http.server`: it passes the tests of the page, and answers as the server does."""

import itertools
import json
import random
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_page as seen
import test_page_use as used
from chromium import LANGUAGES, SENTENCE, Explorer, Server, browser_test
from command import glassformer
from small_tasks import TEXTS, make

MODELS = {"post": "translate", "language": "language", "compare": "compare", "rnn": "translate"}
READ = {"translate": (SENTENCE,), "language": TEXTS["language"], "compare": TEXTS["compare"]}
LSTM = {"kind": "rnn", "cell": "lstm", "width": 8, "layers": 2, "attention": "additive", "bidirectional": True, "max_length": 48}


class Folder(Server):
    """An export of a model of the live server, which is asked what the page should show."""

    def __init__(self, folder: Path, real: Server, place: dict[str, str]) -> None:
        command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.child.stdout
        found = re.search(r"\((http://[\d.:]+)/\)", self.child.stdout.readline())
        assert found
        self.address, self.real, self.folder = found[1], real, folder
        self.writes = place  # type: ignore[misc]
        more = {"max_tokens": 12} if place["model"] == "language" else {}
        self.traced = (real.ask("/api/trace", {**place, **more}),)

    def ask(self, path: str, body: Any = None) -> Any:
        return self.real.ask(path, body)

    def tensor(self, trace: str, name: str, part: str = "") -> np.ndarray:
        return self.real.tensor(trace, name, part)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Folder]]:
    """A small model of each kind, exported, beside the server that has the models themselves."""
    home = tmp_path_factory.mktemp("exported")
    made = {name: make(home / "models" / name, task, **(LSTM if name == "rnn" else {})) for name, task in MODELS.items()}
    real = Server(*made.values())
    found = {}
    for name, task in MODELS.items():
        place = {"model": name, **dict(zip(("text", "second"), READ[task], strict=False))}
        options = [word for key, value in place.items() if key != "model" for word in (f"--{key}", value)]
        result = glassformer("explore", "--export", home / name, "--model", made[name], *options)
        assert result.code == 0, result.err
        found[name] = Folder(home / name, real, place)
    yield found
    for each in found.values():
        each.stop()
    real.stop()


@pytest.fixture
def explorer(browser: Any, folders: dict[str, Folder]) -> Iterator[Explorer]:
    opened = Explorer(browser, folders["post"])
    yield opened
    opened.close()


SAME: list[tuple[Any, dict[str, Any]]] = [
    (seen.test_every_view_speaks_both_languages, {"model": "post"}),
    (used.test_the_keyboard_reads_and_opens_cells, {}),
    (used.test_a_click_opens_a_cell_and_its_operand, {}),
    (used.test_a_translation_is_shown_in_its_rounds_and_as_a_tree, {}),
    (used.test_attention_over_heads_words_and_pieces, {}),
    (used.test_every_token_has_its_text, {"model": "post"}),
    (used.test_the_saved_distribution_has_the_texts_of_all_tokens, {}),
    (used.test_the_mask_says_where_it_hides, {}),
    (used.test_the_next_token_is_chosen_as_the_server_does, {"model": "post"}),
    (used.test_the_skip_link_leads_past_the_map, {}),
    (used.test_a_seed_is_a_whole_number, {}),
]


@browser_test
@pytest.mark.parametrize(("check", "given"), SAME, ids=[check.__name__ for check, _ in SAME])
def test_an_export_passes_the_tests_of_the_page(explorer: Explorer, check: Any, given: dict[str, Any]) -> None:
    check(explorer, **given)


@browser_test
def test_the_walk_draws_the_numbers_of_the_pass(browser: Any, folders: dict[str, Folder]) -> None:
    explorer = Explorer(browser, folders["compare"])
    seen.test_the_walk_draws_the_numbers_of_the_pass(explorer, "compare")
    explorer.close()


@browser_test
@pytest.mark.parametrize("view", ["walk", "next"])
def test_a_link_shows_the_same_again(explorer: Explorer, browser: Any, folders: dict[str, Folder], view: str) -> None:
    used.test_a_link_shows_the_same_again(explorer, browser, folders["post"], view)


@browser_test
def test_what_is_drawn_can_be_saved(explorer: Explorer, tmp_path: Path) -> None:
    used.test_what_is_drawn_can_be_saved(explorer, tmp_path)


@browser_test
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_phone_shows_everything(browser: Any, folders: dict[str, Folder], language: str) -> None:
    seen.test_a_phone_shows_everything(browser, folders["compare"], "compare", language)


# -- what an export cannot do


@browser_test
@pytest.mark.parametrize(("model", "language"), [("post", "en"), ("rnn", "zh")])
def test_every_view_opens_and_says_what_needs_the_model(
    browser: Any,
    folders: dict[str, Folder],
    model: str,
    language: str,
) -> None:
    explorer = Explorer(browser, folders[model])
    explorer.go(view="walk", lang=language, **explorer.writes)
    needs = {"en": "an export has no model", "zh": "导出里没有模型"}[language]
    for view in ("gates", "whatif", "compare", "tokens", "vectors", "training", "learn"):
        explorer.click(f"[data-view={view}]")
        explorer.page.wait_for_function("() => document.querySelector('main')?.innerText.length > 15")
        assert not explorer.page.locator(".problem").count(), (view, explorer.text(".problem"))
        assert (needs in explorer.text("main")) == (view in ("whatif", "compare", "vectors")), view
        assert explorer.page.evaluate("document.documentElement.scrollWidth") <= 1400
        assert {"en": "An export of one pass", "zh": "这是一次计算的导出"}[language] in explorer.text(".page"), view
    explorer.close()


@browser_test
def test_what_needs_the_model_is_refused(explorer: Explorer) -> None:
    """In the words of the page, and the page goes on."""
    explorer.go(view="walk", lang="zh", model="post", text="another text")
    assert "这是一次计算的导出" in explorer.text(".problem") and "glassformer explore" in explorer.text(".problem")
    explorer.click("form.input button.main")  # back to the text of the export
    assert not explorer.page.locator(".problem").count() and explorer.page.locator("main.work").count()
    assert explorer.page.locator("textarea").get_attribute("readonly") is not None
    explorer.go(view="attention", lang="en", **explorer.writes, off="decoder.0.cross:1")
    assert explorer.page.locator("[data-control=switch]").is_disabled() and not explorer.page.locator(".notice, .problem").count()
    explorer.go(view="translate", lang="en", **explorer.writes, penalty=0.5)
    explorer.page.wait_for_selector(".problem")
    assert "export of one pass" in explorer.text(".problem")
    explorer.go(view="next", lang="en", **explorer.writes, written="7,7")
    explorer.page.wait_for_selector(".problem")
    assert "export of one pass" in explorer.text(".problem")


@browser_test
@pytest.mark.parametrize("astray", [{"text": "another text"}, {"to": "zh"}, {"model": "other"}, {"penalty": 0.5}], ids=str)
def test_a_link_to_something_else_leads_back(explorer: Explorer, astray: dict[str, Any]) -> None:
    explorer.go(view="translate", lang="en", **{**explorer.writes, **astray})
    explorer.page.wait_for_selector(".problem")
    said = explorer.text(".problem")
    assert ("This export has no such model. (other)" in said) if "model" in astray else ("export of one pass" in said)
    assert "`" not in said and not explorer.page.locator("[data-again]").count()
    explorer.click("form.input button.main")
    explorer.page.wait_for_selector("main.work:not(.old)")
    assert not explorer.page.locator(".problem, form.input button.main").count()


@browser_test
def test_an_export_says_what_it_has_not(browser: Any, folders: dict[str, Folder]) -> None:
    """In plain sight, also on a phone: why a control is off, that there are no gates and no film, whose text is cut."""
    explorer = Explorer(browser, folders["post"], width=390)
    for view in ("attention", "translate"):
        explorer.go(view=view, lang="en", **explorer.writes)
        assert "Needs the model" in explorer.text("[data-why]") and explorer.page.locator("[data-why]").is_visible()
        assert "Switch the head off to see" not in explorer.text()
    explorer.click("[data-view=gates]")
    assert "This export has one pass of this model" in explorer.text("main") and "Choose a model" not in explorer.text("main")
    explorer.click("[data-view=training]")
    explorer.page.wait_for_selector("text=This export has no film")
    explorer.click("[data-view=tokens]")
    assert explorer.page.locator("textarea").input_value() == explorer.writes["text"]
    explorer.page.locator("select").first.select_option("post")
    explorer.settle()
    assert explorer.page.locator("[data-id]").count() and not explorer.page.locator("[data-beyond]").count()
    explorer.click("[data-sample=both]")
    explorer.page.wait_for_selector("[data-beyond]")
    assert not explorer.page.locator(".problem").count()
    assert explorer.page.evaluate("document.documentElement.scrollWidth") <= 390
    explorer.page.wait_for_url("**passage=**")
    again = explorer.page.url
    explorer.page.goto("about:blank")
    explorer.page.goto(again)
    explorer.page.wait_for_selector("[data-beyond]")  # the link has the other text
    explorer.close()


@browser_test
def test_a_file_that_is_missing_is_named_as_such(browser: Any, folders: dict[str, Folder], tmp_path: Path) -> None:
    export = folders["post"].folder
    lost = export / "export/cells/encoder.0.self.pattern.0.bin"
    lost.rename(tmp_path / "lost")
    try:
        explorer = Explorer(browser, folders["post"])
        explorer.go(view="walk", lang="en", step="encoder.0.self.pattern")
        explorer.page.wait_for_selector(".problem")
        assert "A file of this export cannot be read" in explorer.text(".problem")
        explorer.wrong.clear()  # the 404
        explorer.close()
    finally:
        (tmp_path / "lost").rename(lost)


# -- the same answers

ANSWERS = """async ([script, requests]) => {
  const { answer } = await import(script);
  const out = [];
  for (const [path, body] of requests) {
    const found = await answer(path, body && { method: "POST", body: JSON.stringify(body) });
    const shape = found.headers.get("X-Shape");
    out.push(shape === null ? await found.json() : { shape, data: [...new Float32Array(await found.arrayBuffer())].map(String) });
  }
  return out;
}"""


def parts(shape: list[int]) -> list[str]:
    """Slices of a tensor of this shape, plain and pooled."""
    some = ",".join(str(size // 2) if i == 0 and len(shape) > 1 else f"{size // 3}:" for i, size in enumerate(shape))
    return ["", f"slice={some}", f"slice={shape[0] - 1}", "pool=3", "slice=:&pool=2&pooling=max", f"slice={some}&pool=4"]


@browser_test
@pytest.mark.parametrize("model", MODELS)
def test_an_export_answers_as_the_server_does(browser: Any, folders: dict[str, Folder], model: str) -> None:
    """Cells with all their operands, slices, overviews, draws, trees, words: byte for byte but for the last bit of a mean."""
    folder = folders[model]
    explorer = Explorer(browser, folder)
    explorer.go(view="walk", lang="en", **folder.writes)
    trace, dice = folder.traced[0], random.Random(1)
    home, requests = f"api/trace/{trace['id']}", []
    kinds = {re.sub(r"\d+", "", name): name for name in trace["tensors"]}  # one of each: layers differ in nothing else
    for name in kinds.values():
        about = trace["tensors"][name]
        cells = list(itertools.product(*map(range, about["shape"])))
        requests += [
            (f"{home}/cell", {"name": name, "index": index}) for index in {cells[-1], *dice.sample(cells, min(3, len(cells)))}
        ]
        requests += [(f"{home}/tensor/{name}?{part}", None) for part in dice.sample(parts(about["shape"]), 2)]
    requests += [("api/words", {"model": model, "ids": [0, 5, 77]}), ("api/models", None), ("api/notation", None)]
    if trace["answer"].get("ids"):
        ask = {**folder.writes, "to": None, "edits": []}
        for written in (trace["answer"]["ids"][:n] for n in (0, 1, 3)):
            for temperature, top_k, top_p, seed in ((1, 0, 1, 1), (0.7, 12, 0.8, 3), (0, 0, 1, 2), (1.5, 40, 1, 123456)):
                settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
                requests.append(("api/next", {**ask, **settings, "written": written}))
            requests.append(("api/next", {**ask, "written": written, "full": True}))
    if trace["task"] == "translate":
        requests += [("api/beam", {**ask, "beam": beam, "length_penalty": 1}) for beam in (1, 5, 10)]
    script = next(path.name for path in (folder.folder / "assets").glob("archive-*.js"))
    found = explorer.page.evaluate(ANSWERS, [f"./assets/{script}", requests])
    for (path, body), here in zip(requests, found, strict=True):
        compare(folder, path, body, here)
    explorer.close()


def compare(folder: Folder, path: str, body: Any, here: Any) -> None:
    if "/tensor/" in path or (body or {}).get("full"):
        request = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(
            urllib.request.Request(f"{folder.real.address}/{path}", request, {"Content-Type": "application/json"}),
            timeout=60,
        ) as told:
            assert here["shape"] == told.headers["X-Shape"], path
            there = np.frombuffer(told.read(), "<f4")
        numbers = np.array([x.replace("Infinity", "inf") for x in here["data"]], np.float32)
        assert numbers == pytest.approx(there, rel=1e-6, abs=1e-7) if "pool" in path else np.array_equal(numbers, there), path
        return
    there = folder.ask(f"/{path}", body)
    if path == "api/next":
        assert here["drawn"] == there["drawn"], body
    elif path == "api/models":
        (model,) = here["models"]
        assert model["examples"] == [folder.writes["text"]] and model["map"] == next(
            each["map"] for each in there["models"] if each["id"] == model["id"]
        )
    else:
        assert here == there, (path, body)
