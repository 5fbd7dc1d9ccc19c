"""The tables of docs/performance.md, written between two marks; the rest of the page stays."""

import statistics
from pathlib import Path
from typing import Any

from benchmarks.turns import OURS, quartiles

BEGIN, END = "<!-- measured: written by python -m benchmarks -->", "<!-- /measured -->"
TITLES = {
    "training": "Training",
    "decoding": "Decoding with PyTorch",
    "engines": "Text to text, beside CTranslate2",
    "language": "Language model",
}


def write(whole: dict[str, Any], page: Path) -> None:
    text = page.read_text(encoding="utf-8") if page.exists() else f"{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{tables(whole)}\n{END}{after}", encoding="utf-8")


def tables(whole: dict[str, Any]) -> str:
    about = whole["about"]
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    parts = [
        f"{about['cores']} cores, {about['machine']}, Python {about['python']}, {versions}; {about['rounds']} rounds; "
        "float32 where nothing else is said."
    ]
    if about["quick"]:
        parts.append("Measured with --quick: few rounds, wide spreads.")
    parts += [compared(title, whole[part]) for part, title in TITLES.items() if whole.get(part)]
    if whole.get("growth"):
        parts.append(grown(whole["growth"]))
    return "\n\n".join(parts) + "\n"


def compared(title: str, cases: list[dict[str, Any]]) -> str:
    lines = [
        f"### {title}",
        "",
        "| | | a second | ours is … times as fast | 25–75 % | peak memory |",
        "|---|---|--:|--:|--:|--:|",
    ]
    notes = []
    for case in cases:
        for name, speeds in case["speeds"].items():
            low, middle, high = quartiles(case["ratios"][name]) if name != OURS else (1.0, 1.0, 1.0)
            ratio, spread = ("", "") if name == OURS else (f"**{middle:.2f}**", f"{low:.2f}–{high:.2f}")
            memory = f"{case['peak_mb'][name]:,.0f} MB" if name in case["peak_mb"] else ""
            label = case["case"] if name == OURS else ""
            lines.append(f"| {label} | {name} | {statistics.median(speeds):,.0f} | {ratio} | {spread} | {memory} |")
        known = {key: value for key, value in case["about"].items() if key != "arithmetic"}
        notes.append(f"{case['case']}: " + ", ".join(f"{key} {value}" for key, value in known.items()) + f"; {case['unit']}.")
        if "gflops of products" in known:
            share = known["gflops of products"] / known["gflops of the machine"]
            notes.append(f"Matrix products of an update reach {share:.0%} of what the machine does in one large product.")
        notes += [f"{name} did not take part: {why}." for name, why in case["absent"].items()]
    return "\n".join([*lines, "", *(f"{note}  " for note in notes)])


def grown(points: list[dict[str, Any]]) -> str:
    lines = [
        "### How it grows",
        "",
        "3+3 layers, 256 wide, batches of 2,048 tokens, one update (longest last); a corpus is prepared for training.",
        "",
    ]
    lines += ["| | | time | peak memory |", "|---|--:|--:|--:|"]
    for point in points:
        time = f"{point['ms_per_update']:,.0f} ms" if "ms_per_update" in point else f"{point['mb_per_second']:.1f} MB/s"
        lines.append(f"| {point['what']} | {point['value']:,} | {time} | {point['peak_mb']:,.0f} MB |")
    return "\n".join(lines)
