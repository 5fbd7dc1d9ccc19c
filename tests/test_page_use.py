"""The page in real Chromium, as people use it: keys and clicks, heads that are off, links, files, what is refused."""

import csv
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from chromium import (
    SENTENCE,
    TRANSLATOR,
    VIEWS,
    Explorer,
    Server,
    beginning,
    browser_test,
    check_cell,
    check_drawn,
)
from small_tasks import make

if TYPE_CHECKING:
    from playwright.sync_api import Browser


# -- cells


@browser_test
def test_the_keyboard_reads_and_opens_cells(explorer: Explorer) -> None:
    explorer.go(view="walk", lang="en", **explorer.writes, step="encoder.0.self.pattern", head=1, row=0, col=0)
    page = explorer.page
    matrix = page.locator(".matrix[data-tensor='encoder.0.self.pattern']")
    numbers = explorer.server.tensor(explorer.trace["id"], "encoder.0.self.pattern", "1")
    words = [token["text"] for token in explorer.trace["source"]]
    matrix.locator(".scroller").focus()
    for key, row, col in (
        ("ArrowDown", 1, 0),
        ("ArrowRight", 1, 1),
        ("ArrowRight", 1, 2),
        ("ArrowUp", 0, 2),
        ("End", 0, len(words) - 1),
    ):
        page.keyboard.press(key)
        page.wait_for_function(
            f"() => document.querySelector('.matrix[data-tensor$=pattern] [aria-live]')?.textContent.includes('column {words[col]}')"  # noqa: E501
        )
        said = matrix.locator("[aria-live]").inner_text()
        assert f"row {words[row]}, column {words[col]}" in said
        assert float(said.rpartition(": ")[2].replace("\u2212", "-")) == pytest.approx(numbers[row, col], abs=1e-4)
    page.keyboard.press("Enter")
    page.wait_for_function(f"() => document.querySelector('[data-cell]')?.dataset.index === '1,0,{len(words) - 1}'")
    assert page.evaluate("document.activeElement.id") == "cell-title"
    explorer.settle()
    check_cell(explorer)


@browser_test
def test_a_click_opens_a_cell_and_its_operand(explorer: Explorer) -> None:
    explorer.go(view="walk", lang="en", **explorer.writes, step="encoder.0.self.scores")
    canvas = explorer.page.locator(".matrix[data-tensor='encoder.0.self.scores'] .scroller canvas")
    cw, ch, gutter, header = (float(canvas.get_attribute(f"data-{key}") or 0) for key in ("cw", "ch", "gutter", "header"))
    at = {"x": gutter + 3.5 * cw, "y": header + 2.5 * ch}
    canvas.hover(position=at)  # type: ignore[arg-type]
    tip = explorer.text(".tip").replace("\u2212", "-")
    held = explorer.server.tensor(explorer.trace["id"], "encoder.0.self.scores", "0,2,3")
    assert float(tip.split()[0]) == pytest.approx(float(held), rel=1e-3)
    canvas.click(position=at)  # type: ignore[arg-type]
    explorer.page.wait_for_function("() => document.querySelector('[data-cell]')?.dataset.index === '0,2,3'")
    explorer.settle()
    check_cell(explorer)
    explorer.click("[data-cell] button.link")  # on to the queries
    assert explorer.page.locator("[data-step]").get_attribute("data-step") == "encoder.0.self.q"


# -- translate


@browser_test
def test_a_translation_is_shown_in_its_rounds_and_as_a_tree(explorer: Explorer) -> None:
    explorer.go(view="translate", lang="en", **explorer.writes, round=2)
    explorer.page.wait_for_selector("[data-node]")
    target = explorer.trace["target"]
    assert explorer.page.locator(".round").count() >= len(target)
    patterns = [
        explorer.server.tensor(explorer.trace["id"], name) for name in explorer.trace["tensors"] if name.endswith("cross.pattern")
    ]
    expected = np.mean([pattern.mean(0) for pattern in patterns], axis=0)[2]
    shown = [float(one.get_attribute("data-weight") or 0) for one in explorer.page.locator("[data-weight]").all()]
    assert shown == pytest.approx(expected.tolist(), abs=1e-5)
    tree = explorer.server.ask("/api/beam", {**explorer.writes, "beam": 5, "length_penalty": 1.0})
    nodes = [node for nodes in tree["rounds"] for node in nodes]
    assert explorer.page.locator("[data-node]").count() == len(nodes)
    lost = next(node for node in nodes if node["fate"] == "pruned" and node["rank"] == 9)
    explorer.page.locator(f"[data-node='{lost['node']}']").click(force=True)
    assert "only 5 may" in explorer.text(".facts-row")
    explorer.page.locator("[data-control=beam]").fill("2")
    explorer.page.wait_for_function("(n) => document.querySelectorAll('[data-node]').length < n", arg=len(nodes))


# -- attention


@browser_test
def test_attention_over_heads_words_and_pieces(explorer: Explorer) -> None:
    explorer.go(view="attention", lang="en", **explorer.writes, attention="decoder.1.cross", head=2)
    pattern = explorer.server.tensor(explorer.trace["id"], "decoder.1.cross.pattern")
    assert check_drawn(explorer) > 3
    heads, layers = pattern.shape[0], sum(name.endswith("cross.pattern") for name in explorer.trace["tensors"])
    assert explorer.page.locator("[data-head]").count() == heads * layers

    explorer.click("[data-as=arcs]").click(".words .chip >> nth=2")
    for over, expected in (("one", pattern[2]), ("mean", pattern.mean(0)), ("max", pattern.max(0))):
        explorer.page.locator("[data-control=over]").select_option(over)
        explorer.settle()
        explorer.page.wait_for_timeout(100)
        lines = explorer.page.locator("path.line").all()
        assert lines and {line.get_attribute("data-r") for line in lines} == {"2"}
        for line in lines:
            weight, col = float(line.get_attribute("data-weight") or 0), int(line.get_attribute("data-c") or 0)
            assert weight == pytest.approx(float(expected[2, col]), abs=1e-5)
    source = [token["special"] for token in explorer.trace["source"]]
    explorer.page.locator("[data-control=special]").uncheck()
    explorer.settle()
    assert explorer.page.locator("text.word:not(.from)").count() == source.count(False)


@browser_test
def test_a_head_is_switched_off_and_on(explorer: Explorer) -> None:
    explorer.go(view="attention", lang="en", **explorer.writes, attention="decoder.0.cross", head=1)
    base = explorer.trace["id"]
    explorer.click("[data-control=switch]")
    explorer.page.wait_for_selector("[data-change]")
    told = explorer.server.ask(f"/api/trace/{base}/edit", {"edits": [{"kind": "head-off", "path": "decoder.0.cross", "head": 1}]})
    rows = explorer.page.locator("[data-change]").all_inner_texts()
    assert len(rows) == len(told["changes"])
    for row, change in zip(rows, told["changes"], strict=True):
        assert f"{100 * change['before']:.1f} %" in row and f"{100 * change['after']:.1f} %" in row
    assert "off=decoder.0.cross:1" in explorer.page.evaluate("location.hash") or explorer.page.wait_for_timeout(200) is None
    explorer.click(".notice button")
    assert not explorer.page.locator("[data-change], .notice").count()


@browser_test
def test_heads_that_are_off_are_off_for_the_next_token_and_the_beam(explorer: Explorer) -> None:
    off = {"edits": [{"kind": "head-off", "path": f"decoder.{layer}.cross", "head": 1} for layer in (0, 1)]}
    place = {"lang": "en", "model": TRANSLATOR, "text": SENTENCE, "off": "decoder.0.cross:1,decoder.1.cross:1"}
    explorer.go(view="next", **place)
    told = explorer.server.ask("/api/next", {"model": TRANSLATOR, "text": SENTENCE, **off})
    row = explorer.page.locator("[data-token]").first
    assert int(row.get_attribute("data-token") or 0) == told["top"][0]["id"]
    logit = float(row.locator("[data-stage=logit]").inner_text().replace("\u2212", "-"))
    assert logit == pytest.approx(told["top"][0]["logit"], abs=1e-3)
    explorer.go(view="translate", **place)
    explorer.page.wait_for_selector("[data-node]")
    found, plain = (explorer.server.ask("/api/beam", {"model": TRANSLATOR, "text": SENTENCE, **more}) for more in (off, {}))
    scores = [f"{each['score']:.4f}".replace("-", "\u2212") for each in found["answers"]]
    shown = explorer.page.locator(".answers li").all_inner_texts()
    assert [one.rpartition(" ")[2] for one in shown] == scores
    explorer.click(".notice button")
    explorer.page.wait_for_function(
        "(text) => document.querySelector('.answers li')?.innerText.includes(text)",
        arg=f"{plain['answers'][0]['score']:.4f}".replace("-", "\u2212"),
    )


# -- tokens


@browser_test
@pytest.mark.parametrize("model", ["fill", "language", TRANSLATOR])
def test_every_token_has_its_text(explorer: Explorer, model: str) -> None:
    explorer.go(view="walk", lang="en", step="logits", **beginning(explorer.server, model))
    explorer.page.wait_for_function("() => !/#\\d/.test(document.querySelector('main')?.innerText ?? '#0')")
    shown = explorer.page.locator("[data-token]").all()
    ids = [int(row.get_attribute("data-token") or 0) for row in shown]
    words = {word["id"]: word["text"] for word in explorer.server.ask("/api/words", {"model": model, "ids": ids})["words"]}
    plain = [(row, words[id]) for row, id in zip(shown, ids, strict=True) if words[id].isprintable() and words[id].strip()]
    assert len(plain) > 3 and all(row.locator(".word span").inner_text() == word for row, word in plain)


@browser_test
def test_the_saved_distribution_has_the_texts_of_all_tokens(explorer: Explorer) -> None:
    explorer.go(view="next", lang="en", **explorer.writes)
    with explorer.page.expect_download() as download:
        explorer.page.locator(".curve .saves").get_by_text("CSV", exact=True).click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_bytes().decode("utf-8-sig"), newline="")))
    assert len(rows) == explorer.server.ask("/api/next", explorer.writes)["vocabulary"]
    ids = [int(row["id"]) for row in rows[:3] + rows[-3:]]
    words = explorer.server.ask("/api/words", {"model": explorer.writes["model"], "ids": ids})["words"]
    assert [row["token"] for row in rows[:3] + rows[-3:]] == [word["text"] for word in words]


@browser_test
@pytest.mark.parametrize(("language", "word"), [("en", "unknown"), ("zh", "未知")])
def test_a_word_that_the_model_does_not_know_is_marked(explorer: Explorer, language: str, word: str) -> None:
    explorer.go(view="walk", lang=language, model="intents", text="wake me at noonish tomorrow")
    assert explorer.page.locator(".chip.unknown").all_inner_texts() == [f"noonish\n{word}\n3"]
    explorer.click("[data-view=attention]")
    assert word in explorer.text(".words .chip.unknown")


@browser_test
def test_the_bytes_of_one_character_are_shown(explorer: Explorer) -> None:
    explorer.go(view="walk", lang="en", model=TRANSLATOR, text="\U0001f600")
    shown = [one.partition("\n")[0] for one in explorer.page.locator(".chip").all_inner_texts()]
    assert shown[1:-1] == ["\U0001f600", "<0x9F>", "<0x98>", "<0x80>"]
    explorer.go(view="attention", lang="en", model=TRANSLATOR, text="\U0001f600", attention="encoder.0.self", merge=1)
    assert explorer.page.locator(".words .chip").all_inner_texts()[1] == "\U0001f600"


# -- answers


@browser_test
@pytest.mark.parametrize("place", [{"view": "translate"}, {"view": "walk", "step": "answer"}])
def test_of_many_labels_the_first_are_shown(explorer: Explorer, place: dict[str, str]) -> None:
    explorer.go(lang="en", **beginning(explorer.server, "intents"), **place)
    assert explorer.page.locator("[data-label]").count() == 10
    explorer.click("[data-control=labels]")
    assert explorer.page.locator("[data-label]").count() == 151


@browser_test
def test_the_answer_is_that_of_the_text_beside_it(explorer: Explorer) -> None:
    explorer.go(view="walk", lang="en", **explorer.writes)
    answer = explorer.trace["answer"]["text"]
    assert answer in explorer.text(".answer")
    waits: list[Any] = []
    explorer.page.route("**/api/trace", lambda route: waits.append(route))
    explorer.page.locator("textarea").fill("好久不见。")
    explorer.page.locator("textarea").press("Enter")
    explorer.page.wait_for_selector(".answer:has-text('Computing')")
    assert answer not in explorer.text(".answer")
    waits[0].continue_()
    explorer.page.unroute("**/api/trace")
    explorer.page.wait_for_selector(".answer b")
    new = explorer.settle().trace["answer"]["text"]
    assert new in explorer.text(".answer")
    explorer.page.locator("textarea").fill("好 " * 600)
    explorer.page.locator("textarea").press("Enter")
    explorer.page.wait_for_selector(".problem")
    assert new not in explorer.text(".answer") and explorer.page.locator("main.old").count()
    explorer.wrong.clear()  # the 422


@browser_test
def test_the_mask_says_where_it_hides(explorer: Explorer) -> None:
    explorer.go(view="walk", lang="en", **explorer.writes, step="decoder.0.self.masked")
    assert "s>t" in re.sub(r"\s", "", explorer.page.locator(".formula math").text_content() or "")
    for step in ("encoder.0.self.masked", "decoder.0.cross.masked"):
        explorer.go(view="walk", lang="en", **explorer.writes, step=step)
        assert "nothing is hidden" in explorer.text(".side") and not explorer.page.locator(".formula").count()


# -- next token


@browser_test
@pytest.mark.parametrize("model", [TRANSLATOR, "language"])
def test_the_next_token_is_chosen_as_the_server_does(explorer: Explorer, model: str) -> None:
    settings = {"temperature": 0.7, "topK": 12, "topP": 0.8, "seed": 3}
    explorer.go(view="next", lang="en", **beginning(explorer.server, model), **settings)
    ask = {
        "temperature": 0.7,
        "top_k": 12,
        "top_p": 0.8,
        "seed": 3,
        "model": model,
        "text": beginning(explorer.server, model)["text"],
    }
    for taken in ([], [0]):
        if taken:
            row = explorer.page.locator("[data-token]:has(button:enabled)").last
            taken = [int(row.get_attribute("data-token") or 0)]
            row.locator("button").click()
            explorer.settle()
        told = explorer.server.ask("/api/next", {**ask, "written": taken, "seed": 3})
        explorer.page.wait_for_selector(f"[data-drawn='{told['drawn']['id']}']")
        final = {each["id"]: each for each in told["top"]}
        for row in explorer.page.locator("[data-token]").all():
            each = final[int(row.get_attribute("data-token") or 0)]
            assert float(row.locator("[data-stage=logit]").inner_text().replace("\u2212", "-")) == pytest.approx(
                each["logit"], abs=1e-3
            )
            shown = row.locator("[data-stage=final]").inner_text()
            assert shown == (f"{100 * each['final']:.1f} %" if each["final"] >= 0.0005 else shown)
            assert (shown == "–") == (each["final"] == 0)


@browser_test
def test_a_text_that_has_ended_does_not_go_on(explorer: Explorer) -> None:
    explorer.go(view="next", lang="en", **explorer.writes, written="46,2")
    assert "finished" in explorer.text("main .middle") and not explorer.page.locator("[data-token], [data-drawn]").count()
    explorer.page.get_by_role("button", name="Undo").click()
    explorer.page.wait_for_selector("[data-token]")


@browser_test
def test_a_language_model_shows_what_it_goes_on_from(explorer: Explorer) -> None:
    explorer.go(view="next", lang="en", model="tang", text="春风")
    assert explorer.page.locator(".chips").first.locator(".chip").all_inner_texts() == ["<bos>", "春", "风"]
    explorer.click("[data-view=translate]")
    assert explorer.page.locator(".facts dt").all_inner_texts() == ["T", "V"]  # no source, no S


# -- links, files, themes


@browser_test
@pytest.mark.parametrize("view", VIEWS)
def test_a_link_shows_the_same_again(explorer: Explorer, browser: "Browser", server: Server, view: str) -> None:
    places: dict[str, dict[str, object]] = {
        "walk": {"step": "decoder.1.self.masked", "head": 2, "row": 2, "col": 1},
        "translate": {"round": 2, "layer": 1},
        "attention": {"attention": "encoder.1.self", "as": "arcs", "over": "max", "special": 0, "words": "1,2"},
        "next": {"temperature": 0.5, "topK": 7, "topP": 0.9, "seed": 5},
    }
    explorer.go(view=view, lang="zh", **explorer.writes, **places[view])
    explorer.page.wait_for_timeout(300)
    address = explorer.page.evaluate("location.href")
    other = Explorer(browser, server)
    other.page.goto(address)
    other.page.wait_for_selector("main.work")
    other.settle().page.wait_for_timeout(300)
    assert other.text("main .middle") == explorer.text("main .middle")
    assert other.page.evaluate("location.href") == address
    other.close()


@browser_test
def test_what_is_drawn_can_be_saved(explorer: Explorer, tmp_path: Path) -> None:
    explorer.go(view="walk", lang="en", **explorer.writes, step="encoder.0.self.pattern", head=3)
    for view, where in (
        ("walk", ".matrix .saves"),
        ("attention", ".matrix .saves"),
        ("translate", ".row .saves"),
        ("next", ".curve .saves"),
    ):
        explorer.click(f"[data-view={view}]")
        explorer.page.wait_for_selector(where)
        for kind, magic in (("PNG", b"\x89PNG"), ("SVG", b"<svg"), ("CSV", b"\xef\xbb\xbf")):
            with explorer.page.expect_download() as download:
                explorer.page.locator(where).last.get_by_text(kind, exact=True).click()
            data = Path(download.value.path()).read_bytes()
            assert data.startswith(magic) and len(data) > 100, (view, kind)
            if view == "walk" and kind == "CSV":
                rows = [line.split(",")[1:] for line in data.decode("utf-8-sig").splitlines()[1:]]
                numbers = explorer.server.tensor(explorer.trace["id"], "encoder.0.self.pattern", "3")
                assert np.array(rows, float) == pytest.approx(numbers, abs=1e-6)


@browser_test
@pytest.mark.parametrize(("text", "long"), [("谢谢。", False), ("He went to the hospital yesterday because he was ill.", True)])
def test_the_end_of_the_answer_is_in_sight(explorer: Explorer, text: str, long: bool) -> None:
    """In the tree of a beam, whether it fits or scrolls; and if it scrolls, that is said."""
    explorer.go(view="translate", lang="en", model=TRANSLATOR, text=text)
    explorer.page.wait_for_selector(".node.best.finished")
    explorer.page.wait_for_timeout(100)
    frame, end = (explorer.page.locator(one).bounding_box() for one in (".scroll", ".node.best.finished"))
    assert frame and end and frame["x"] <= end["x"] and end["x"] + end["width"] <= frame["x"] + frame["width"]
    scrolls = explorer.page.evaluate("(([one]) => one.scrollWidth > one.clientWidth)(document.querySelectorAll('.scroll'))")
    assert explorer.page.locator("[data-scrolls]").count() == scrolls == long


@browser_test
def test_the_skip_link_leads_past_the_map(explorer: Explorer) -> None:
    explorer.go(view="walk", lang="en", **explorer.writes)
    explorer.page.locator("a.skip").focus()
    explorer.page.keyboard.press("Enter")
    explorer.page.keyboard.press("Tab")
    assert explorer.page.evaluate("document.activeElement.closest('.middle') !== null")


# -- bad input


@browser_test
def test_html_in_the_text_is_shown_and_never_run(explorer: Explorer) -> None:
    text = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    for view in VIEWS:
        explorer.go(view=view, lang="en", model=TRANSLATOR, text=text)
        assert not explorer.page.locator("main img, main script").count()
    explorer.go(view="walk", lang="en", model="classify", text="<b>x</b>", step="answer")
    assert "<b>" in explorer.text("main")  # the name of a label


@browser_test
def test_refusals_are_sentences_and_the_page_goes_on(explorer: Explorer) -> None:
    explorer.go(view="walk", lang="en", model=TRANSLATOR, text="好 " * 600)
    assert "256" in explorer.text(".problem")
    explorer.wrong.clear()  # Chromium itself notes every answer of 4xx in the console
    for typed, said in (("   ", "Type a text first"), ("草莓。", "")):
        explorer.page.locator("textarea").fill(typed)
        explorer.page.locator("textarea").press("Enter")
        explorer.page.wait_for_timeout(200)
        explorer.settle()
        assert said in explorer.text("[role=alert]")
    assert not explorer.page.locator(".problem").count() and explorer.page.locator("main.work").count()
    explorer.go(view="walk", lang="zh", model="no-such-model", text="x")
    assert "没有这个模型" in explorer.text(".problem") and explorer.page.locator("main.work").count()
    assert explorer.page.locator("textarea").input_value() == "x"  # the text of the link stays
    explorer.go(view="walk", lang="en", model=TRANSLATOR, text="a" * 5000)
    assert "5\u202f000 characters; 4\u202f000 are" in explorer.text(".problem")
    explorer.wrong.clear()


@browser_test
def test_two_texts_to_begin_with(explorer: Explorer) -> None:
    told = next(each for each in explorer.server.ask("/api/models")["models"] if each["id"] == "compare")
    explorer.go(view="walk", lang="en", model="compare")
    typed = [one.input_value() for one in explorer.page.locator("textarea").all()]
    assert typed == [told["examples"][0], told["seconds"][0]]
    explorer.wrong.clear()  # they are too long for so small a model


@browser_test
def test_a_folder_that_cannot_be_read_is_named(browser: "Browser", tmp_path: Path) -> None:
    folder = make(tmp_path / "torn", "classify")
    (folder / "model.safetensors").write_bytes(b"x")
    server = Server(TRANSLATOR, folder)
    explorer = Explorer(browser, server)
    explorer.go(view="walk", lang="en", **explorer.writes)
    assert "torn" in explorer.text(".unreadable") and "not a whole safetensors file" in explorer.text(".unreadable")
    explorer.close()
    server.stop()


@browser_test
def test_a_recording_that_was_dropped_is_made_again(explorer: Explorer) -> None:
    explorer.go(view="walk", lang="en", **explorer.writes, step="encoder.0.self.scores")
    for i in range(18):
        explorer.server.ask("/api/trace", {"model": "classify", "text": f"the cat {i}"})
    explorer.page.locator("[data-view=attention]").click()
    explorer.traced_again()
    explorer.page.wait_for_function("() => document.querySelectorAll('.head canvas').length > 0")
    assert not explorer.settle().page.locator(".problem").count()
    explorer.wrong.clear()  # the 410 that told it


@browser_test
def test_a_recording_that_is_made_again_leaves_no_complaint(explorer: Explorer) -> None:
    """Several requests find that it is gone: the last of them after it has been made again."""
    explorer.go(view="walk", lang="en", **explorer.writes, step="encoder.0.self.scores")
    for i in range(18):
        explorer.server.ask("/api/trace", {"model": "classify", "text": f"the cat {i}"})
    held: list[Any] = []
    explorer.page.route("**/api/trace/*/tensor/**", lambda route: route.continue_() if held else held.append(route))
    explorer.page.locator("[data-view=attention]").click()
    explorer.traced_again()
    explorer.page.wait_for_function("() => document.querySelectorAll('.head canvas').length > 0")
    held[0].continue_()
    explorer.settle()
    assert not explorer.page.locator(".problem").count(), explorer.text(".problem")
    explorer.wrong.clear()  # the 410s


@browser_test
def test_a_recording_whose_model_has_gone_is_not_tried_again(browser: "Browser", tmp_path: Path) -> None:
    """The cell that is asked for says so too, instead of being computed for ever."""
    server = Server(TRANSLATOR, make(tmp_path / "leaves", "classify"))
    explorer = Explorer(browser, server)
    explorer.go(view="attention", lang="en", model="leaves", text="the cat sat")
    for i in range(18):
        server.ask("/api/trace", {**server.writes, "text": f"the cat {i}"})
    (tmp_path / "leaves").rename(tmp_path / "left")
    for key in ("ArrowRight", "ArrowDown"):  # the first finds the folder gone, the second asks in vain
        explorer.page.locator(".matrix .scroller").first.focus()
        explorer.page.keyboard.press(key)
        explorer.page.keyboard.press("Enter")
        explorer.page.wait_for_selector("[data-refused]")
        explorer.settle()
    for place in (".problem", "[data-refused]"):
        assert "its model is no longer there" in explorer.text(place)
    assert not explorer.page.locator("[data-again]").count()
    explorer.wrong.clear()  # 410 and 404
    explorer.close()
    server.stop()


@browser_test
def test_a_seed_is_a_whole_number(explorer: Explorer) -> None:
    """What is none is marked; the one before it stays in use and in the link."""
    explorer.go(view="next", lang="en", **explorer.writes, seed=5)
    field = explorer.page.locator("[data-control=seed]")
    explorer.page.wait_for_selector("[data-drawn]")
    for wrong in ("-1", "1.5", "", "9007199254740993", "9" * 30):
        field.fill(wrong)
        explorer.settle()
        assert field.get_attribute("aria-invalid") == "true" and field.input_value() == wrong
        assert "whole number from 0 to 9007199254740992. Until then 5 is used" in explorer.text("#seed-wrong")
        assert explorer.page.locator("[data-drawn]").count() and "seed=5" in explorer.page.url
    field.fill("9007199254740992")
    explorer.page.wait_for_url("**seed=9007199254740992**")
    explorer.page.wait_for_selector("[data-drawn]")
    assert field.get_attribute("aria-invalid") == "false" and not explorer.page.locator("#seed-wrong, .problem").count()
    explorer.go(view="next", lang="zh", **explorer.writes, seed=-7)
    assert field.input_value() == "-7" and "现在仍用 1" in explorer.text("#seed-wrong")
    explorer.page.wait_for_selector("[data-drawn]")
    assert not explorer.page.locator(".problem").count()


@browser_test
def test_the_page_says_when_the_server_is_gone(browser: "Browser") -> None:
    server = Server(TRANSLATOR)
    explorer = Explorer(browser, server)
    explorer.go(view="walk", lang="en", **explorer.writes)
    server.stop()
    explorer.page.locator("textarea").press("Enter")
    explorer.page.wait_for_selector(".problem")
    assert "still running" in explorer.text(".problem")
    explorer.page.locator("[data-view=attention]").click()  # its matrices never come
    assert explorer.text("main")
    explorer.page.close()
    assert all("ERR_CONNECTION_REFUSED" in each for each in explorer.wrong), explorer.wrong
