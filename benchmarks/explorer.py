"""How long a person waits for the explorer: a trace, the page, and 512 tokens through a model of GPT-2's size.

    python benchmarks/explorer.py

The server and a real Chromium run on this machine. A GPT-2 (12 layers, 768 wide, random weights) is made by `transformers` and
comes in through `glassformer import`. What is reported for a view is the time until everything it shows is drawn, and the
longest that the tab could not answer (the browser's own long tasks).
"""

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch
from playwright.sync_api import Browser, Page, sync_playwright
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel

from glassformer.interop.importing import import_model

ROUNDS = 5
TOKENS = 512
VIEWS = ("walk", "translate", "attention", "next")
WATCH = """() => {
  window.longest = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((one) => (window.longest = Math.max(window.longest, one.duration))))
    .observe({ type: 'longtask', buffered: true });
}"""
DRAWN = """() => document.querySelector('main.work') && !document.querySelector('[aria-busy=true]')
  && [...document.querySelectorAll('.matrix .scroller canvas')].every((one) => one.dataset.ready === 'true')"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    path = parser.parse_args().json
    with tempfile.TemporaryDirectory() as folder:
        large = made_gpt2(Path(folder))
        server = subprocess.Popen(
            [sys.executable, "-m", "glassformer", "explore", "zh-en", str(large), "--no-browser", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout
            address = server.stdout.readline().strip()
            found = {"machine": platform.processor() or platform.machine(), "threads": torch.get_num_threads()}
            found |= {"trace": forty_tokens(address)} | in_the_browser(address)
        finally:
            server.terminate()
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


def made_gpt2(folder: Path) -> Path:
    """GPT-2's sizes with a vocabulary of words, so that the text is as long in tokens as it is in words."""
    torch.manual_seed(0)
    words = {f"w{number}": number for number in range(50256)} | {"<|endoftext|>": 50256}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<|endoftext|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    source = folder / "source"
    GPT2LMHeadModel(GPT2Config()).save_pretrained(source)
    tokenizer.save(str(source / "tokenizer.json"))
    import_model(str(source), folder / "gpt2")
    return folder / "gpt2"


def forty_tokens(address: str) -> dict[str, float]:
    """The API alone: forty tokens of the bundled translator, source and target together."""
    body = {"model": "zh-en", "text": "他昨天去了医院，因为他的朋友病了。", "to": "en"}
    times, tokens = [], 0
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        request = urllib.request.Request(f"{address}/api/trace", json.dumps(body).encode(), {"Content-Type": "application/json"})
        told = json.load(urllib.request.urlopen(request, timeout=60))
        times.append(time.perf_counter() - started)
        tokens = len(told["source"]) + len(told["target"])
    return {"tokens": tokens, "first_seconds": times[0], "seconds": statistics.median(times[1:])}  # the first loads the model


def in_the_browser(address: str) -> dict[str, Any]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if found is None:
        raise SystemExit("No Chromium was found.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        opened = [opening(browser, address) for _ in range(ROUNDS)]
        views = long_text(browser, address)
        browser.close()
    return {"page_usable_seconds": {"median": statistics.median(opened), "most": max(opened)}, "long_text": views}


def opening(browser: Browser, address: str) -> float:
    """From the address to the first step drawn, the browser's cache empty."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    started = time.perf_counter()
    page.goto(f"{address}/#{urlencode({'model': 'zh-en', 'view': 'attention'})}")
    page.wait_for_function(DRAWN, timeout=60_000)
    seconds = time.perf_counter() - started
    context.close()
    return seconds


def long_text(browser: Browser, address: str) -> dict[str, Any]:
    text = " ".join(f"w{number * 97 % 50000}" for number in range(TOKENS))
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto("about:blank")
    page.goto(f"{address}/#{urlencode({'model': 'gpt2', 'view': 'walk', 'text': text, 'more': 0})}")
    started = time.perf_counter()
    page.evaluate(WATCH)
    page.wait_for_function(DRAWN, timeout=120_000)
    found: dict[str, Any] = {"tokens": TOKENS, "traced_seconds": time.perf_counter() - started}
    for view in VIEWS:
        found[view] = watched(page, f"[data-view={view}]")
    page.locator("[data-view=attention]").click()
    page.wait_for_function(DRAWN, timeout=120_000)
    found["another head"] = watched(page, "button[data-head] >> nth=5")
    found["as arcs"] = watched(page, "[data-as=arcs]")
    page.close()
    return found


def watched(page: Page, button: str) -> dict[str, float]:
    """Seconds until all is drawn after a click, and the longest the tab was busy, in milliseconds."""
    page.evaluate("window.longest = 0")
    started = time.perf_counter()
    page.locator(button).first.click()
    page.wait_for_timeout(50)
    page.wait_for_load_state("networkidle")
    page.wait_for_function(DRAWN, timeout=120_000)
    seconds = time.perf_counter() - started
    page.wait_for_timeout(300)
    return {"seconds": seconds, "longest_task_ms": page.evaluate("window.longest")}


if __name__ == "__main__":
    main()
