"""Every part of the benchmark runs, with sizes of which no figure means anything."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEEDED = {"glassformer", "MarianMTModel, plain loop", "transformers.generate", "CTranslate2 itself", "transformers' GPT-2"}


def test_the_parts_run_and_are_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- measured: written by python -m benchmarks -->\nold\n<!-- /measured -->\nafter\n")
    parts = ("training", "decoding", "engines", "language")
    command = [sys.executable, "-m", "benchmarks", "--tiny", "--no-memory", "--threads", "1", "--only", *parts]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "results.json"), "--docs", str(page)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    for case in [case for part in parts for case in found[part]]:
        assert case["speeds"]["glassformer"][0] > 0
        assert len(case["ratios"]) >= 1, "no peer took part"
        assert not NEEDED & set(case["absent"])
        assert all(f"| {name} |" in text for name in case["speeds"])
