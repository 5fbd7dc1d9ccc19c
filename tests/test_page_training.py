"""The Training view in real Chromium: a film plays with the file's own numbers, and curves are the logs'."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import DRAWN, Explorer, Server, browser_test
from command import glassformer, process, tiny
from test_film import FILM
from test_page_export import Folder

from glassformer import film

RUN = "runs/mine"


class Here(Server):
    """A server in a folder that has runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.child = process("explore", "--no-browser", "--port", 0, cwd=folder)
        assert self.child.stdout
        self.address = self.child.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), self.child.communicate()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    folder = tmp_path_factory.mktemp("training")
    changes = ("training.updates=45", "training.log_every=3", "film.frames=45", "training.validate_every=20")
    assert glassformer(*tiny(folder, *FILM[:1], *changes)).code == 0
    for path in ("checkpoints", "prepared"):
        shutil.rmtree(folder / "run" / path)
    shutil.copytree(folder / "run", folder / RUN)
    shutil.rmtree(folder / "run")
    served = Here(folder)
    yield served
    served.stop()


@pytest.fixture(scope="module")
def kept(here: Here) -> film.Film:
    found = film.read(here.folder / RUN)
    assert found is not None and len(found.frames) >= 30
    return found


@pytest.fixture
def page(browser: Any, here: Here) -> Iterator[Explorer]:
    opened = Explorer(browser, here)
    yield opened
    opened.close()


def at(page: Explorer, part: str = "film", **place: object) -> Explorer:
    page.leave()
    address = "&".join(f"{key}={value}" for key, value in {"view": "training", "lang": "en", "training": part, **place}.items())
    page.page.goto(f"{page.server.address}/#{address}")
    page.page.wait_for_selector(".player[data-ready]" if part == "film" else ".lines path[data-line]")
    return page.settle()


def frame(page: Explorer) -> int:
    return int(page.page.locator(".player").get_attribute("data-frame") or -1)


def pattern(kept: film.Film, number: int, probe: int, name: str) -> np.ndarray:
    names = kept.probes[probe]["patterns"]
    sizes = [int(np.prod(shape)) for shape in names.values()]
    start = sum(sizes[: list(names).index(name)])
    whole = np.frombuffer(kept.patterns(probe, number, 1), np.uint8)
    return whole[start : start + int(np.prod(names[name]))].reshape(names[name])


@browser_test
class TestFilm:
    def test_draws_the_weights_of_the_file(self, page: Explorer, kept: film.Film) -> None:
        """Of several frames, heads and sentences; the mean of the heads, too."""
        for number, probe, name, head in (
            (0, 0, "decoder.0.cross", 1),
            (17, 1, "encoder.0.self", 0),
            (9, 0, "decoder.0.self", -1),
        ):
            look = f"{name}:{'mean' if head < 0 else head}"
            at(page, frame=number, probe=probe, look=look)
            bytes = pattern(kept, number, probe, name)
            weights = (bytes.mean(0) if head < 0 else bytes[head]) / 255
            (matrix,) = page.page.evaluate(DRAWN)
            assert (matrix["name"], matrix["rows"], matrix["cols"]) == (f"{name}.pattern", *weights.shape)
            assert len(matrix["cells"]) == 6 and {cell["row"] for cell in matrix["cells"]} == {0, len(weights) - 1}
            ramp = np.array(matrix["ramp"]).reshape(-1, 4)[:, :3].astype(int)
            for cell in matrix["cells"]:
                share = (weights[cell["row"], cell["col"]] - matrix["low"]) / (matrix["high"] - matrix["low"])
                place = round(share * (len(ramp) - 1))
                near = ramp[max(0, place - 1) : place + 2]
                assert (near.min(0) - 5 <= cell["colour"]).all() and (cell["colour"] <= near.max(0) + 5).all(), (look, cell, near)
            assert page.page.locator(".head canvas").count() == 3 * 2

    def test_says_what_the_model_said(self, page: Explorer, kept: film.Film) -> None:
        at(page, frame=len(kept.frames) - 1, probe=1)
        last = kept.frames[-1]
        assert page.text("[data-answer]").startswith(last["answers"][1]["text"].replace("\ufffd", "▯") or "∅")
        assert int(page.page.locator("[data-update]").get_attribute("data-update") or -1) == last["update"] == 45
        chances = [float(x) for x in page.page.locator(".chip.weighted").evaluate_all("all => all.map(x => x.dataset.weight)")]
        assert chances == pytest.approx(np.exp(last["answers"][1]["log_probs"]).tolist(), rel=1e-4)
        assert page.page.locator("[data-mark]").get_attribute("data-mark") == "45"

    def test_is_played_stepped_and_stopped_by_keys_and_buttons(self, page: Explorer, kept: film.Film) -> None:
        at(page, pace=30)
        last = len(kept.frames) - 1
        page.page.keyboard.press("ArrowRight")
        page.page.keyboard.press("ArrowRight")
        page.page.keyboard.press("ArrowLeft")
        assert frame(page) == 1
        page.page.keyboard.press(" ")
        page.page.wait_for_function(f"() => document.querySelector('.player')?.dataset.frame === '{last}'")
        page.page.wait_for_function("() => document.querySelector('[data-control=play]')?.textContent === 'Play'")
        page.page.keyboard.press("Home")
        assert frame(page) == 0
        page.click("[data-control=play]")
        page.page.wait_for_function("() => +document.querySelector('.player')?.dataset.frame > 1")
        page.click("[data-control=play]")
        stopped = frame(page)
        assert 0 < stopped <= last
        page.page.wait_for_function(f"() => location.hash.includes('frame={stopped}')")
        page.page.locator("[data-control=slider]").focus()
        page.page.keyboard.press("End")
        assert frame(page) == last

    def test_plays_smoothly(self, page: Explorer) -> None:
        """How long the page computes for a frame, by its own processor time, so that a busy machine does not count; all frames
        were fetched before."""
        at(page)
        asked: list[str] = []
        page.page.on("request", lambda request: asked.append(request.url) if "film" in request.url else None)
        tools = page.page.context.new_cdp_session(page.page)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})

        def busy() -> float:
            found = {one["name"]: one["value"] for one in tools.send("Performance.getMetrics")["metrics"]}
            return found["TaskDuration"]

        before = busy()
        page.page.evaluate("""async () => {
          for (let i = 0; i < 29; i++) {
            document.querySelector('[data-control=on]').click();
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
          }
        }""")
        spent = (busy() - before) / 29
        assert frame(page) == 29 and not asked
        assert 0 < spent < 0.030, f"{spent:.4f} s a frame"

    def test_links_and_languages_and_phones(self, here: Here, browser: Any, kept: film.Film) -> None:
        for lang, word in (("en", "Every head"), ("zh", "全部注意力头")):
            phone = Explorer(browser, here, width=390, height=800)
            at(phone, lang=lang, frame=5, probe=1, look="encoder.0.self:1")
            assert frame(phone) == 5 and word in phone.text("main")
            assert phone.page.locator("[data-head='encoder.0.self:1']").get_attribute("aria-pressed") == "true"
            assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
            phone.close()

    def test_saves_files(self, page: Explorer, kept: film.Film) -> None:
        at(page)
        with page.page.expect_download() as download:
            page.page.locator("section:has(> .changes) .saves button").click()
        lines = Path(download.value.path()).read_text(encoding="utf-8-sig").splitlines()
        assert len(lines) == len(kept.frames) + 1 and lines[0].startswith("update,tokens,loss,text")
        with page.page.expect_download() as download:
            page.page.locator(".loss .saves button", has_text="SVG").click()
        assert "<svg" in Path(download.value.path()).read_text()


@browser_test
class TestCurves:
    def test_are_the_log_s(self, page: Explorer, here: Here) -> None:
        at(page, "curves", measure="loss")
        log = [json.loads(line) for line in (here.folder / RUN / "log.jsonl").read_text().splitlines()]
        with page.page.expect_download() as download:
            page.page.locator(".lines .saves button", has_text="CSV").click()
        rows = [line.split(",") for line in Path(download.value.path()).read_text(encoding="utf-8-sig").splitlines()[1:]]
        assert [(int(x), float(y)) for _, x, y in rows] == [(one["update"], one["loss"]) for one in log if "loss" in one]
        for measure, key, against in (
            ("dev_loss", "dev_loss_zh", "tokens"),
            ("tokens_per_second", "tokens_per_second", "seconds"),
        ):
            at(page, "curves", measure=measure, along=against)
            found = page.page.locator("tr[data-row]").last.locator("[data-last]").get_attribute("data-last")
            assert float(found or "nan") == next(one[key] for one in reversed(log) if key in one)
        assert page.text("main dl").count("\n") >= 1  # what it says now

    def test_grow_while_a_run_goes_on_and_say_what_is_wrong(self, page: Explorer, here: Here) -> None:
        other = here.folder / "runs" / "growing"
        shutil.copytree(here.folder / RUN, other)
        (other / "model.safetensors").unlink()
        (other / ".lock").write_text(str(here.child.pid))  # a process that lives
        try:
            at(page, "curves", runs="runs/growing%0Aruns/mine")
            assert page.page.locator("path[data-line]").count() == 2
            with (other / "log.jsonl").open("a") as file:
                file.write('broken\n{"update": 4242, "seconds": 99.0, "tokens": 9, "loss": 0.125, "rate": 0.1}\n{"update": 43')
            page.page.wait_for_selector("tr[data-row='runs/growing'] [data-last='0.125']")
            assert "1 line of the log could not be read" in page.text("main")
            assert "4\u202f242 of 45 updates" in page.text("main")
        finally:
            shutil.rmtree(other)
        page.page.wait_for_selector("text=runs/growing is no longer there")
        assert page.page.locator("path[data-line]").count() == 2
        page.wrong = [one for one in page.wrong if "404" not in one]  # the browser's own word for it

    def test_chosen_runs_and_logarithms(self, page: Explorer) -> None:
        at(page, "curves", logarithmic=1)
        page.page.locator(f"[data-run='{RUN}']").uncheck()
        page.page.wait_for_selector("text=Choose at least one run.")
        page.page.locator(f"[data-run='{RUN}']").check()
        page.page.wait_for_selector("path[data-line]")
        page.page.wait_for_function("() => location.hash.includes('runs=') && location.hash.includes('logarithmic=1')")
        assert "NaN" not in (page.page.locator("path[data-line]").first.get_attribute("d") or "NaN")


@browser_test
def test_an_export_has_the_film_and_the_log(browser: Any, here: Here, kept: film.Film, tmp_path: Path) -> None:
    place = {"model": "mine", "text": kept.probes[0]["text"], "to": kept.probes[0]["to"]}
    command = [
        "explore",
        "--export",
        tmp_path / "out",
        "--model",
        here.folder / RUN,
        "--text",
        place["text"],
        "--to",
        place["to"],
    ]
    assert glassformer(*command).code == 0
    folder = Folder(tmp_path / "out", here, place)
    page = Explorer(browser, folder)
    TestFilm().test_draws_the_weights_of_the_file(page, kept)
    TestFilm().test_says_what_the_model_said(page, kept)
    at(page, part="curves")
    assert page.page.locator(".lines path[data-line]").count() and not page.page.locator(".problem").count()
    page.close()
    folder.stop()
