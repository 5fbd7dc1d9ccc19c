"""The lessons: every figure on the page is computed again, every exercise is solved and failed, in both languages."""

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from chromium import WEB, Explorer, Server, browser_test
from lessons import CHAPTERS, KEYS, Lesson, Noise, softmax, wave
from small_tasks import make
from test_ancestors import MADE

TEXTS = {"zh-en": "我喜欢吃草莓。", "tang": "春风", "intents": "wake me up at seven", "post": "the cat sat", "fixed": "the cat"}
WORDS = sorted((WEB / "src/learn").glob("*/words.ts"))


# -- the source


def test_no_figure_is_typed_in() -> None:
    """The lessons' words have no digits: numbers come in by name, and MathML and numbers.ts hold the inputs."""
    assert len(WORDS) == len(CHAPTERS)
    for path in WORDS:
        text = re.sub(r"\{\w+\}|\$\{[^}]*\}|W_\d", "", path.read_text("utf-8"))
        assert not re.search(r"\d", text), (path, re.findall(r".*\d.*", text))


def test_both_languages_say_the_same_with_the_same_figures() -> None:
    for path in WORDS:
        english, chinese = path.read_text("utf-8").split("export const zh")
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", chinese)), path
        sentences = re.findall(r'"([^"]{25,})"', english)
        assert not re.search(r"[\u4e00-\u9fff]", re.sub("今天天气很好|好久不见|天", "", " ".join(sentences))), path
        left = re.findall(r'"[^"]*\b[A-Za-z]+ [a-z]+ [a-z]+\b[^"]*"', chinese)
        assert not left, (path, left)


# -- the page


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("lessons")
    fixed = make(folder / "fixed", MADE["fixed"][0], **MADE["fixed"][1])
    running = Server("zh-en", "tang", "intents", make(folder / "post", "translate"), fixed)
    yield running
    running.stop()


class Reader(Explorer):
    def read(self, chapter: str, model: str = "zh-en", lang: str = "en", **more: object) -> "Reader":
        place = {"view": "learn", "model": model, "text": TEXTS[model], "lang": lang, "chapter": chapter, **more}
        self.leave()
        self.page.goto(f"{self.server.address}/#{urlencode(place)}")
        return self.opened(chapter)

    def opened(self, chapter: str) -> "Reader":
        self.page.wait_for_selector(f"article[data-open={chapter}] .live")
        self.page.wait_for_function("() => !document.querySelector('.live[aria-busy=true]')")
        self.settle()
        self.page.wait_for_function("() => ![...document.querySelectorAll('.figure')].some((one) => one.textContent === '…')")
        return self

    def turn(self, chapter: str) -> "Reader":
        closed = self.page.locator(".learn nav details:not([open]) summary")  # as on a phone
        if closed.count():
            closed.click()
        self.page.locator(f"[data-chapter={chapter}]").click()
        return self.opened(chapter)

    def figures(self) -> list[tuple[str, str]]:
        return self.page.evaluate("[...document.querySelectorAll('.figure')].map((one) => [one.dataset.figure, one.textContent])")

    def lesson(self) -> Lesson:
        about = next(one for one in self.server.ask("/api/models")["models"] if one["id"] == self.trace["model"])
        return Lesson(self.server, about, self.trace)


@pytest.fixture(scope="module")
def tab(browser: Any, server: Server) -> Iterator[Reader]:
    opened = Reader(browser, server)
    yield opened
    opened.page.close()


@pytest.fixture
def reader(explorer: Reader) -> Reader:
    return explorer


def agrees(text: str, value: Any) -> bool:
    """Whether what is written is this number, as far as it has digits; or these numbers; or this text."""
    if isinstance(value, set):
        return any(agrees(text, one) for one in value)
    if isinstance(value, str):
        return text == value
    if isinstance(value, list | np.ndarray):
        parts = text.strip("()").split(", ")
        return len(parts) == len(value) and all(agrees(part, float(one)) for part, one in zip(parts, value, strict=True))
    text, x = text.replace("\u202f", "").replace("−", "-").replace("∞", "inf"), float(value)
    if text.startswith("< "):
        return x < 0.0005
    percent = text.endswith(" %")
    text = text.removesuffix(" %")
    said = float(text) / (100 if percent else 1)
    if isinstance(value, Noise):
        return abs(said) <= value
    if np.isinf(x) or np.isinf(said):
        return said == x
    if "e" in text:
        return abs(said - x) <= 0.06 * abs(x)
    decimals = len(text.partition(".")[2]) + (2 if percent else 0)
    # zeros at the end are not written: a number with fewer decimals than usual has to be as exact as one with all of them
    most = max(0, 4 - max(0, int(np.floor(np.log10(abs(x)))))) if x and not percent else decimals
    return abs(said - x) <= 0.51 * 10.0 ** -max(decimals, min(most, 2)) + 1e-6 * abs(x)


def figures_agree(reader: Reader, model: str, languages: tuple[str, ...], chapters: Iterable[str] = CHAPTERS) -> set[str]:
    """Reads chapters, one after the other; the names of all figures that were seen."""
    seen: set[str] = set()
    for chapter in chapters:
        (reader.read(chapter, model, languages[0]) if not seen else reader.turn(chapter))
        lesson = reader.lesson()
        right = lesson.figures({"tokens": "tokens_"}.get(chapter, chapter))
        for lang in languages:
            reader.page.locator(f".switches [lang^={lang}]").click()
            stated = reader.figures()
            for name, text in stated:
                assert name in right, (chapter, name, text)
                assert agrees(text, right[name]), (model, lang, chapter, name, text, right[name])
                seen.add(f"{chapter}.{name} {lang}")
            assert bool(re.search(r"[\u4e00-\u9fff]", reader.text("article .text"))) == (lang == "zh")
        assert not reader.page.locator(".problem").count()
        width = reader.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], (chapter, width)
    return seen


@browser_test
def test_every_figure_of_every_chapter_in_both_languages(reader: Reader) -> None:
    seen = figures_agree(reader, "zh-en", ("en", "zh"))
    english, chinese = ({one.split()[0] for one in seen if one.endswith(lang)} for lang in ("en", "zh"))
    assert english == chinese and len(english) > 200


@browser_test
@pytest.mark.parametrize(
    ("model", "lang", "chapters"),
    [
        ("tang", "zh", CHAPTERS),  # RMSNorm, SwiGLU, turned queries and keys, no encoder
        ("intents", "en", ("embedding", "position", "mask", "ffn", "rounds")),  # GELU, learned positions, no decoder
        ("post", "en", ("tokens", "residual", "rounds")),  # normalises afterwards
    ],
)
def test_every_figure_on_other_models_on_a_dark_phone(model: str, lang: str, chapters: Any, browser: Any, server: Server) -> None:
    phone = Reader(browser, server, width=390, height=800, color_scheme="dark")
    assert len(figures_agree(phone, model, (lang,), chapters)) > 15 * len(chapters) - 30
    phone.close()


# -- exercises


# what the page says of each answer in turn, and at last the answer that it shows after a wrong one
ANSWER = """async ([id, answers]) => {
    const form = document.querySelector(`[data-exercise="${id}"]`);
    const [text, options] = [form.querySelector("input[type=text]"), [...form.querySelectorAll("label")]];
    const drawn = () => new Promise((go) => setTimeout(go));
    const said = [];
    for (const given of answers) {
        if (given !== "" && text) {
            text.value = given;
            text.dispatchEvent(new Event("input", { bubbles: true }));
        } else if (given !== "") options.find((one) => one.innerText.trim() === given).click();
        form.requestSubmit();
        await drawn();
        said.push([form.dataset.verdict, form.querySelector(".verdict").innerText]);
    }
    form.querySelector("button.quiet")?.click();
    await drawn();
    return [said, form.querySelector(".solution")?.innerText ?? ""];
}"""


@browser_test
def test_every_exercise_knows_the_answer_and_the_mistakes(reader: Reader) -> None:
    reader.read("lookup")
    answers = reader.lesson().answers()
    for chapter, names in CHAPTERS.items():
        reader.turn(chapter)
        forms = reader.page.locator("[data-exercise]").evaluate_all("(all) => all.map((one) => one.dataset.exercise)")
        assert sorted(forms) == sorted(f"{chapter}.{one}" for one in names)
        for id in (f"{chapter}.{name}" for name in names if name != "apple"):  # which has a test of its own
            right, mistakes = answers[id]
            options = [one.strip() for one in reader.page.locator(f"[data-exercise='{id}'] label").all_inner_texts()]
            if options:
                right = next(one for one in options if right in (one, one[: len(right)], one.split()[-1]))
                wrong = [next(one for one in options if one != right)]
            else:
                wrong = ["98765", *(f"{float(mistake):.7g}" for mistake in mistakes)]
            (nothing, usual, *hints), solution = reader.page.evaluate(ANSWER, [id, ["", *wrong]])
            assert nothing[0] == "unclear" and usual[0] == "wrong" and len(usual[1]) > 30, (id, nothing, usual)
            for mistake, (verdict, hint) in zip(mistakes, hints, strict=True):
                assert verdict == "wrong" and hint != usual[1], (id, mistake, verdict, hint)
            assert agrees(solution, right), (id, solution, right)
            last = reader.page.evaluate(ANSWER, [id, [right if options else f"{float(right):.7g}"]])[0]
            assert last[0][0] == "right", (id, right, last)
    reader.page.locator("[data-exercise='sampling.nucleus'] input").fill("many")  # by hand
    reader.page.keyboard.press("Enter")
    assert reader.page.locator("[data-exercise='sampling.nucleus']").get_attribute("data-verdict") == "unclear"
    done = sum(map(len, CHAPTERS.values())) - 1
    assert f"{done} of {done + 1}" in reader.text("nav details .note")
    reader.page.reload()  # it is remembered
    reader.opened("sampling")
    assert f"{done} of {done + 1}" in reader.text("nav details .note")


@browser_test
def test_the_dictionary_is_computed_as_it_is_edited_and_kept_in_the_link(reader: Reader) -> None:
    reader.read("lookup")
    task = reader.page.locator("[data-exercise='lookup.apple']")
    task.locator("button.main").click()
    assert task.get_attribute("data-verdict") == "wrong"
    query = [4.0, -3.5, -3.0, 0.5, 0.0]
    for name, x in zip(("red", "green", "blue", "sweet", "sour"), query, strict=True):
        reader.page.locator(f"[data-query={name}]").fill(str(x))
    reader.page.locator("[data-value-of=kiwi]").fill("9")
    reader.settle()
    weights = softmax(KEYS @ np.array(query))
    figures = dict(reader.figures())
    assert agrees(figures["weights"], weights) and agrees(figures["result"], weights @ [3, 2, 9, 6])
    task.locator("button.main").click()
    assert weights[0] > 0.9 and task.get_attribute("data-verdict") == "right"
    reader.page.wait_for_function("() => location.hash.includes('fruit=')")
    link = reader.page.evaluate("location.href")
    reader.page.goto("about:blank")
    reader.page.goto(link)
    reader.opened("lookup")
    assert agrees(dict(reader.figures())["weights"], weights)
    reader.read("lookup", fruit="1,2,<b>")  # nonsense in a link is the dictionary as it was
    assert agrees(dict(reader.figures())["scores"], [1, 1, 0, 1])


# -- around the chapters


@browser_test
@pytest.mark.parametrize(
    ("model", "lacks"),
    [
        ("fixed", {"lookup": "attention", "residual": "blocks", "ffn": "ffn"}),
        ("tang", {"position": "sinusoidal", "rounds": "cross"}),
        ("intents", {"mask": "causal", "rounds": "writes"}),
    ],
)
def test_what_a_model_lacks_is_said_and_another_offered(model: str, lacks: dict[str, str], reader: Reader) -> None:
    for number, (chapter, need) in enumerate(lacks.items()):
        (reader.turn(chapter) if number else reader.read(chapter, model))
        for lang in ("en", "zh"):
            reader.page.locator(f".switches [lang^={lang}]").click()
            assert model in reader.text(f"[data-lacks={need}]")
        assert reader.page.locator(f"[data-need={need}] [data-offer=zh-en]").count() == 1
    reader.page.locator(f"[data-need={need}] [data-offer=zh-en]").click()
    reader.page.wait_for_function("(need) => !document.querySelector(`[data-lacks=${need}]`)", arg=need)
    reader.opened(chapter)
    assert reader.trace["model"] == "zh-en"


@browser_test
def test_matrices_that_the_page_makes_hold_the_right_numbers(reader: Reader) -> None:
    """Cells read with the keyboard, each computed again from what it was made of."""
    reader.read("tokens")
    lesson = reader.lesson()
    vectors, pattern = lesson.get("encoder.embed.token"), lesson.get("encoder.0.self.pattern")
    long = np.linalg.norm(vectors, axis=1)
    ids = sorted({one["id"] for one in lesson.tokens})
    made = {
        ("tokens", "one-hot"): np.array([[one["id"] == id for id in ids] for one in lesson.tokens], float),
        ("embedding", "encoder.embed.token.cosine"): vectors @ vectors.T / np.outer(long, long),
        ("position", "P"): wave(64, vectors.shape[1]),
        ("heads", "encoder.0.self.pattern.of-one-token"): pattern[:, lesson.row],
    }
    for (chapter, name), right in made.items():
        reader.turn(chapter)
        matrix = reader.page.locator(f".matrix[data-tensor='{name}']")
        matrix.locator(".scroller").focus()
        reader.page.keyboard.press("Home")
        for _ in range(len(right)):
            reader.page.keyboard.press("ArrowUp")
        for at in range(1, min(right.shape)):
            reader.page.keyboard.press("ArrowDown")
            reader.page.keyboard.press("ArrowRight")
            text = matrix.locator(".readout").inner_text().rsplit(" ", 1)[1]
            assert agrees(text, right[at, at]), (name, at, text, right[at, at])
            if at == 6:
                break


@browser_test
def test_keys_chapters_and_cells(reader: Reader) -> None:
    reader.read("qkv")
    reader.page.locator("#chapter-title").click()
    reader.page.keyboard.press("ArrowRight")
    reader.opened("scores")
    reader.page.wait_for_function("() => location.hash.includes('chapter=scores')")
    reader.page.locator(".scroller").first.focus()  # in a matrix the arrows move from cell to cell
    reader.page.keyboard.press("ArrowRight")
    reader.page.keyboard.press("ArrowRight")
    assert reader.page.locator("article[data-open=scores]").count() == 1
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_selector("[data-cell] [data-value]")
    cell = reader.page.locator("[data-cell]")
    index = [int(i) for i in cell.get_attribute("data-index").split(",")]
    value = reader.server.tensor(reader.trace["id"], cell.get_attribute("data-cell"))[tuple(index)]
    assert abs(float(cell.locator("[data-value]").get_attribute("data-value")) - value) < 1e-6
