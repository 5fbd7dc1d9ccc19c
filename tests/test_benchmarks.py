"""Every part of the benchmark runs, with sizes of which no figure means anything."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("part", ["training", "decoding", "language", "growth"])
def test_a_part_runs_and_is_reported(part: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- measured: written by python -m benchmarks -->\nold\n<!-- /measured -->\nafter\n")
    command = [sys.executable, "-m", "benchmarks", "--tiny", "--no-memory", "--threads", "1", "--only", part]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "results.json"), "--docs", str(page)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    if part == "growth":
        assert {point["what"] for point in found[part]} == {"length", "corpus, MB"}
        assert all(point["peak_mb"] > 10 for point in found[part])
        return
    for case in found[part]:
        assert case["speeds"]["glassformer"][0] > 0
        assert len(case["ratios"]) >= 1, "no peer took part"
        assert not {"glassformer", "MarianMTModel, plain loop", "transformers.generate", "transformers' GPT-2"} & set(
            case["absent"]
        )
        assert all(f"| {name} |" in text for name in case["speeds"])
