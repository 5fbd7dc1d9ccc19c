"""The page in real Chromium: every view of every model in both languages, drawn with the API's own numbers."""

import gzip
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chromium import (
    BUILT,
    LANGUAGES,
    READ,
    SAID,
    TRANSLATOR,
    VIEWS,
    WALKED,
    WEB,
    Explorer,
    Server,
    beginning,
    browser_test,
    check_cell,
    check_drawn,
    foreign,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser


# -- what the source says


def test_no_number_is_made_up_and_nothing_is_fetched_from_elsewhere() -> None:
    for path in (WEB / "src").rglob("*.*"):
        text = path.read_text("utf-8")
        assert "Math.random" not in text and "getRandomValues" not in text, path
        assert "fetch(" not in text or path.name == "api.ts", path
    for path in BUILT.rglob("*.*"):
        found = set(re.findall(r"https?://[^\s\"'`)\\<]+", path.read_text("utf-8")))
        namespaces = {one for one in found if re.match(r"http://www\.w3\.org/|https://svelte\.dev/e/", one)}
        assert found == namespaces, (path, found - namespaces)  # names of formats and of errors; nothing that is loaded


def test_the_page_is_small() -> None:
    """What index.html names is loaded first; views that are opened later do not count, nor do GPT's vocabularies."""
    index = (BUILT / "index.html").read_text("utf-8")
    first = [BUILT / "index.html", *(BUILT / name for name in re.findall(r'(?:src|href)="\./([^"]+)"', index))]
    assert 10_000 < sum(len(gzip.compress(path.read_bytes(), 9)) for path in first) < 150_000
    assert sum(path.stat().st_size for path in BUILT.rglob("*.*")) < 2_500_000


@pytest.mark.skipif(not (WEB / "node_modules/vite").is_dir(), reason="needs the page's tools: cd web && npm install --no-save")
def test_the_built_page_is_of_this_source(tmp_path: Path) -> None:
    command = ["npx", "vite", "build", "--outDir", str(tmp_path / "page"), "--logLevel", "error"]
    subprocess.run(command, cwd=WEB, check=True, capture_output=True)
    built, fresh = ({p.relative_to(d): p.read_bytes() for p in d.rglob("*.*")} for d in (BUILT, tmp_path / "page"))
    assert built == fresh, "web/ was changed without `npm run build`"


# -- every view, every model, both languages


@browser_test
@pytest.mark.parametrize("model", READ)
def test_every_view_speaks_both_languages(explorer: Explorer, model: str) -> None:
    for language in LANGUAGES:
        explorer.go(view="walk", lang=language, **beginning(explorer.server, model))
        for view in VIEWS:
            explorer.click(f"[data-view={view}]")
            explorer.page.wait_for_timeout(350)  # what a view asks for a little later
            said = explorer.settle().page.evaluate(SAID)
            assert not (strange := [one for one in foreign()[language] if one in said]), (view, language, strange)
            assert len(explorer.text("main")) > 100, view
            assert not explorer.page.locator(".problem").count(), explorer.text(".problem")
            assert explorer.page.evaluate("document.documentElement.lang").startswith(language)


@browser_test
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("model", [TRANSLATOR, "language", "compare"])
def test_a_phone_shows_everything(browser: "Browser", server: Server, model: str, language: str) -> None:
    explorer = Explorer(browser, server, 390, 844, color_scheme="dark", has_touch=True)
    explorer.go(view="walk", lang=language, **beginning(explorer.server, model))
    for view in VIEWS:
        explorer.click(f"[data-view={view}]")
        assert explorer.page.evaluate("document.documentElement.scrollWidth") <= 390, view
        assert explorer.page.evaluate("getComputedStyle(document.body.parentElement).colorScheme") == "dark"
    explorer.close()


@browser_test
@pytest.mark.parametrize("model", WALKED)
def test_the_walk_draws_the_numbers_of_the_pass(explorer: Explorer, model: str) -> None:
    explorer.go(view="walk", lang="en", **beginning(explorer.server, model))
    page, kinds, checked, seen = explorer.page, set(), 0, []
    while not seen or seen[-1] != page.locator("[data-step]").get_attribute("data-step"):
        seen.append(page.locator("[data-step]").get_attribute("data-step"))
        kind = re.sub(r"\d+", "", seen[-1])
        if kind not in kinds:  # later layers are walked through, and draw with the same code
            explorer.settle()
            checked += check_drawn(explorer)
            if page.locator("[data-cell]").count():
                check_cell(explorer)
        kinds.add(kind)
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(20)
    tensors = set(explorer.trace["tensors"])
    assert len(seen) > 15 and checked > 3 * len(kinds)
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("(step) => document.querySelector('[data-step]')?.dataset.step === step", arg=seen[-2])
    named = {name for name in tensors if not name.endswith((".in", "resid_pre", "resid_mid", "resid_post", "resid_cross"))}
    steps = {step.rpartition(".")[0] for step in seen} | set(seen)
    missed = {name for name in named if name.rpartition(".")[0] not in steps and name not in steps}
    assert not missed, missed
