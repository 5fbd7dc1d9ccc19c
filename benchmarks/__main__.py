"""python -m benchmarks [--only PART …] [--quick]

Measures Glassformer beside its peers and writes benchmarks/results.json and the tables of docs/performance.md. Every ratio comes
from one run in which all took turns. After each case the results are written, so Ctrl-C loses only the case it meets.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import growth, report
from benchmarks.turns import OURS, Case, Result, Unavailable, build, share, take_turns

PARTS = ("training", "decoding", "engines", "language", "growth")
PACKAGES = ("torch", "transformers", "ctranslate2", "joeynmt", "accelerate")
HERE = Path(__file__).parent


def main() -> None:
    options = arguments()
    if options.alone:
        return alone(options)
    began = time.monotonic()
    whole = read(options.out)
    whole["about"] = about(options)
    try:
        for part in options.only or PARTS:
            if part == "growth":
                whole["growth"] = growth.measure(quick=options.quick, tiny=options.tiny, tell=lambda text: say(f"growth: {text}"))
            else:
                whole[part] = []
                for number, case in enumerate(cases(part, options)):
                    whole[part].append(compare(part, number, case, options))
                    write(whole, options)
            write(whole, options)
    except KeyboardInterrupt:
        raise SystemExit(f"\nStopped. What was finished is in {options.out}.") from None
    say(f"{(time.monotonic() - began) / 60:.1f} minutes. Written to {options.out} and {options.docs}.")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="default: all parts")
    parser.add_argument("--quick", action="store_true", help="a few minutes: fewer rounds, sentences and points")
    parser.add_argument("--tiny", action="store_true", help="seconds, for tests: sizes of which no figure means anything")
    parser.add_argument("--rounds", type=int, help="timed rounds (default: 9, quick 3)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="default: one per core")
    parser.add_argument("--model", default="zh-en", help="what translates in decoding and engines (default: zh-en)")
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="do not measure the memory of each")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs" / "performance.md")
    parser.add_argument("--alone", nargs=3, metavar=("PART", "CASE", "SIDE"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.tiny else 3 if options.quick else 9)
    return options


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def cases(part: str, options: argparse.Namespace) -> list[Case]:
    model = [options.model] if part in ("decoding", "engines") else []
    found: list[Case] = import_module(f"benchmarks.{part}").cases(*model, quick=options.quick, tiny=options.tiny)
    share(options.threads)
    return found


def compare(part: str, number: int, case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """One case: prepared, checked, timed in turns, and the memory of each in a process of its own."""
    say(f"{part}: {case.name}: preparing")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        known = case.prepare(folder)
        try:
            case.check(folder)
        except Unavailable as error:
            known["unchecked"] = str(error)
        turns, absent = build(case, folder, options.threads)
        counts = "arithmetic" in known
        peaks = [peak_gflops()] if counts else []
        speeds = take_turns(turns, options.rounds, lambda text: say(f"{part}: {case.name}: {text}"), case.slices)
        if counts:
            updates = statistics.median(speeds[OURS]) / known["target tokens"]
            known["gflops of products"] = round(updates * known["arithmetic"] / 1e9, 1)
            known["gflops of the machine"] = max(*peaks, peak_gflops())
        result = Result(case.name, case.unit, known, rounded(speeds), absent)
        del turns
        if options.memory:
            for side in speeds:
                say(f"{part}: {case.name}: memory of {side}")
                result.peak_mb[side] = resident(part, number, side, folder, options, case.environment)
    ratios = {name: [round(x, 3) for x in result.ratios(name)] for name in speeds if name != OURS}
    return {**asdict(result), "ratios": ratios}


def peak_gflops() -> float:
    from benchmarks import machine  # and PyTorch: no process imports it that works without

    return machine.peak_gflops()


def rounded(speeds: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: [round(x, 1) for x in each] for name, each in speeds.items()}


def resident(
    part: str, number: int, side: str, folder: Path, options: argparse.Namespace, environment: Mapping[str, str]
) -> float:
    """The peak of a process in which one of them works alone."""
    command = [sys.executable, "-m", "benchmarks", "--alone", part, str(number), side, "--folder", str(folder)]
    command += ["--threads", str(options.threads), "--model", options.model]
    command += [flag for flag, given in (("--quick", options.quick), ("--tiny", options.tiny)) if given]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if done.returncode:
        raise SystemExit(f"{side} alone ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def alone(options: argparse.Namespace) -> None:
    """One side does its work twice; its peak is printed."""
    part, number, side = options.alone
    case = cases(part, options)[int(number)]
    turn = case.sides[side](options.folder)
    for _ in range(2 * case.slices):
        turn()
    print(growth.peak_mb())


def about(options: argparse.Namespace) -> dict[str, Any]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "versions": versions,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": options.threads,
        "rounds": options.rounds,
        "quick": options.quick or options.tiny,
    }


def read(path: Path) -> dict[str, Any]:
    """Results of parts that are not measured anew stay."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(whole: dict[str, Any], options: argparse.Namespace) -> None:
    options.out.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    report.write(whole, options.docs)


if __name__ == "__main__":
    main()
