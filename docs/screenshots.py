"""Redraws the pictures of the explorer in the READMEs: python docs/screenshots.py"""

import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

SENTENCE = "我喜欢吃草莓。"
PICTURES = {
    "walk": ({"view": "walk", "step": "decoder.2.cross.pattern", "head": 3}, 800),
    "translate": ({"view": "translate"}, 1720),
}


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    command = [sys.executable, "-m", "glassformer", "explore", "zh-en", "--no-browser", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        address = server.stdout.readline().strip()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for name, (place, height) in PICTURES.items():
                for language in ("en", "zh"):
                    page = browser.new_page(viewport={"width": 1400, "height": height})
                    link = {"model": "zh-en", "text": SENTENCE, "lang": language} | place
                    page.goto(f"{address}/#{urlencode(link)}")
                    page.wait_for_load_state("networkidle")
                    page.wait_for_timeout(1000)  # what a view asks for a little later
                    page.screenshot(path=Path(__file__).parent / f"explorer-{name}-{language}.png")
                    page.close()
            browser.close()
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
