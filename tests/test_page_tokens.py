"""Tokens in the browser: ids as the reference library has them, bytes under their characters, whatever the text is."""

import base64
import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from chromium import BUILT, Explorer, Server, browser_test
from test_interop import corpus

from glassformer import config, store
from glassformer.text.tokenizer import Tokenizer

PATTERNS = {  # as tiktoken has them
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k_base": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
}
ODD = (  # of different lengths, by which the test knows that the page has come to the next
    "I'LL say it: don't! We'ſe 1234567 ½ ²",
    "我叫艾达，𠮷野家。龘 GPT-4怎样",
    "👩‍👩‍👧 🇨🇳 e\u0301 ไทย हिन्दी 한국어",
    "a\u0000b\u0085 \u0085c\ufeff \ufeffd\u00a0\u3000 \r\n\n\te \x1c f\u200b ",
    '<img src=x onerror="alert(1)">&lt;b&gt; <|endoftext|>',
    "  \n\n   for (;;) {\n\t\treturn 0x1F;\n}   ",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    served = Server("zh-en", "intents", "tang")
    yield served
    served.stop()


def show(explorer: Explorer, **place: object) -> Explorer:
    """Opens the view, or goes on to another text without loading the page again."""
    address = urlencode({"view": "tokens", "lang": "en", **place})
    if explorer.page.url.startswith(f"{explorer.server.address}/#"):
        explorer.page.evaluate("(address) => (location.hash = address)", address)
    else:
        explorer.page.goto(f"{explorer.server.address}/#{address}")
    size = len(str(place["passage"]).encode()) if "passage" in place else 125
    shown = f"{size:,}".replace(",", "\u202f")
    explorer.page.wait_for_function(
        """(size) => {
          const cuts = [...document.querySelectorAll('.cut')];
          const done = (cut) => cut.ariaBusy === 'false' && cut.querySelector('[data-count=bytes]')?.innerText === size;
          return cuts.length === 2 && cuts.every(done);
        }""",
        arg=shown,
        timeout=60_000,
    )
    return explorer.settle()


def ids(explorer: Explorer, side: int) -> list[int]:
    found = explorer.page.locator(".cut").nth(side).locator("[data-id]")
    return found.evaluate_all("(all) => all.map((one) => +one.dataset.id)")


def ranks(name: str) -> dict[bytes, int]:
    """The vocabulary that the page carries."""
    (path,) = (BUILT / "assets").glob(f"{name}-*.js")
    text = re.search(r"bpe_ranks[\"']?:([\"'`])(.*?)\1", path.read_text("utf-8"), re.S)
    assert text
    lines = (line.split(" ") for line in text[2].replace("\\n", "\n").split("\n") if line)
    return {base64.b64decode(piece): int(first) + i for _, first, *pieces in lines for i, piece in enumerate(pieces)}


def test_the_page_carries_the_published_vocabularies() -> None:
    folder = corpus("bpe-vocabs")
    lines = (folder / "tiktoken/cl100k_base.tiktoken").read_text("ascii").splitlines()
    assert ranks("cl100k_base") == {base64.b64decode(piece): int(id) for piece, id in map(str.split, lines)}
    load = pytest.importorskip("tiktoken.load", reason="the other implementation: pip install -e '.[dev]'")
    gpt2 = load.data_gym_to_mergeable_bpe_ranks(str(folder / "gpt2/vocab.bpe"), str(folder / "gpt2/encoder.json"))
    assert ranks("gpt2") == gpt2


@browser_test
def test_gpts_ids_are_those_of_the_reference(explorer: Explorer) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="the other implementation: pip install -e '.[dev]'")
    known = [
        tiktoken.Encoding(name, pat_str=PATTERNS[name], mergeable_ranks=ranks(name), special_tokens={})
        for name in ("cl100k_base", "gpt2")
    ]
    assert len({len(text.encode()) for text in ODD}) == len(ODD)
    show(explorer)
    assert "Ada" in explorer.page.locator("textarea").input_value() and "艾达" in explorer.page.locator("textarea").input_value()
    for text in ODD:
        show(explorer, passage=text)
        for side, theirs in enumerate(known):
            want = theirs.encode(text, disallowed_special=())
            assert ids(explorer, side) == want, text
            cut = explorer.page.locator(".cut").nth(side)
            count = {key: cut.locator(f"[data-count={key}]").inner_text() for key in ("tokens", "characters", "bytes", "ratio")}
            assert count == {
                "tokens": str(len(want)),
                "characters": str(len(text)),
                "bytes": str(len(text.encode())),
                "ratio": f"{len(want) / len(text):.3f}",
            }
            spelled = "".join(cut.locator(".bytes").all_inner_texts()).replace(" ", "")
            assert bytes.fromhex(spelled) == text.encode()
        assert "\ufffd" not in explorer.text()  # and what goes wrong tells that no script of the text ran


@browser_test
def test_the_bytes_of_a_character_stand_under_it(explorer: Explorer) -> None:
    show(explorer, passage="艾 叫")
    several = explorer.page.locator(".cut").first.locator(".several")
    assert several.locator(".text").all_inner_texts()[0] == "艾"
    assert several.first.locator(".bytes").all_inner_texts() == ["E8 89", "BE"]
    several.first.click()  # both sides mark the same character
    explorer.page.wait_for_function("() => /at=0/.test(location.hash)")
    assert explorer.page.locator('.piece[aria-pressed="true"]').count() == 2
    several.first.press("ArrowRight")
    explorer.page.wait_for_function("() => /at=1/.test(location.hash)")
    assert explorer.page.evaluate("document.activeElement.classList.contains('piece')")


@browser_test
def test_the_vocabulary_of_a_model_and_its_table(explorer: Explorer) -> None:
    text = "I like 草莓𠮷, don't you?"
    show(explorer, passage=text, left="zh-en", right="intents")
    for side, name in enumerate(("zh-en", "intents")):
        folder = store.find_model(name)
        tokenizer = Tokenizer.load(folder / "tokenizer.json", config.read(folder / "recipe.toml").tokenizer)
        assert ids(explorer, side) == tokenizer.encode(text)
    assert explorer.page.locator(".several .text").first.inner_text() == "𠮷"
    assert explorer.page.locator(".cut").nth(1).locator(".unknown").count() >= 1
    with explorer.page.expect_download() as download:
        explorer.page.locator(".cut").first.get_by_text("CSV", exact=True).click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_bytes().decode("utf-8-sig"), newline="")))
    assert [int(row["id"]) for row in rows] == ids(explorer, 0)
    assert bytes.fromhex("".join(row["bytes"] for row in rows).replace(" ", "")) == text.encode()
    assert [row["characters"] for row in rows if row["start"] == "9"] == ["𠮷"] * 4
    explorer.page.locator(".cut select").nth(1).select_option("tang")
    explorer.page.wait_for_function("() => /right=tang/.test(location.hash)")
    assert ids(show(explorer, passage=text, left="zh-en", right="tang"), 1) != ids(explorer, 0)


@browser_test
def test_no_text_and_much_of_it(explorer: Explorer) -> None:
    show(explorer, passage="", right="zh-en")
    assert ids(explorer, 0) == ids(explorer, 1) == [] and "no pieces" in explorer.text()
    show(explorer, passage="的一是不了" * 2000, right="zh-en")
    assert explorer.text(".cut [data-count=characters]") == "10\u202f000"
    assert "1 to 600 of" in explorer.text(".cut .foot")
    explorer.page.locator(".cut").first.get_by_text("Later").click()
    assert "601 to 1\u202f200 of" in explorer.text(".cut .foot")
    explorer.page.locator("textarea").fill("a" * 10_001)
    explorer.page.wait_for_selector(".warning")
    assert "10\u202f001" in explorer.text(".warning") and not explorer.page.locator(".cut").count()


@browser_test
def test_a_phone_in_chinese(browser: Any, server: Server) -> None:
    explorer = Explorer(browser, server, 390, 844, color_scheme="dark", has_touch=True)
    show(explorer, lang="zh", right="zh-en")
    assert explorer.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "每个字符的词元数" in explorer.text() and not re.search(r"[A-Za-z]{5,} [a-z]{3,} [a-z]{3,}", explorer.text(".counts"))
    explorer.close()
