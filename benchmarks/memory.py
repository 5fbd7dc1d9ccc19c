"""Resident memory of `glassformer train` on corpora of growing size: it must not grow with the file.

    python -m benchmarks.memory --megabytes 10 50 500

A TSV of made-up text is written into a temporary folder, a very small model trains on it through the command line, and the
memory of that process is read from /proc (so this runs on Linux alone) several times a second, for each phase of the run:
learning the vocabulary, tokenising, training.

Small corpora lie below the program's fixed limits (a window of pairs that are sorted together, a number of pairs to learn the
vocabulary from), so memory rises until these are reached: compare sizes beyond them. Made-up text brings new words all the time,
up to a million, which is what learning a vocabulary has to remember. Memory that one phase has freed may still count in the next.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.made_up_text import pairs

RECIPE = """
[data]
train = "pairs.tsv"

[tokenizer]
kind = "{kind}"
vocabulary = 2000

[model]
width = 32
heads = 2
inner = 64
encoder_layers = 1
decoder_layers = 1

[training]
updates = {updates}
batch_tokens = 8192
save_every = {updates}
validate_every = {updates}
threads = {threads}
"""
PHASES = {  # of a run, and what standard error says when each begins
    "starting": "",
    "vocabulary": "training the tokenizer",
    "tokenising": "Tokenising",
    "training": " parameters, ",
}
MEASURES = ("VmRSS", "RssAnon", "VmHWM")  # resident, of which not backed by files, and the most ever resident
EVERY = 0.05  # seconds between two looks
MB = 1_000_000


@dataclass
class Phase:
    seconds: float = 0.0
    resident: float = 0.0  # MB, the most seen
    anonymous: float = 0.0  # MB, the most seen


@dataclass
class Result:
    megabytes: float
    pairs: int
    peak: float = 0.0  # MB, of the whole run, as the system counts it: nothing between two looks is missed
    phases: dict[str, Phase] = field(default_factory=dict)

    @property
    def speed(self) -> float:
        """MB of corpus a second, from the first line read to the last one tokenised."""
        return self.megabytes / (self.phases["vocabulary"].seconds + self.phases["tokenising"].seconds)


def main() -> None:
    options = arguments()
    results = []
    for megabytes in options.megabytes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            results.append(measure(Path(folder), megabytes, options))
        show(results[-1:], head=len(results) == 1)
    about = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "threads": options.threads,
        "tokenizer": options.kind,
        "updates": options.updates,
    }
    rows = [asdict(result) | {"prepared_mb_per_second": round(result.speed, 2)} for result in results]
    options.out.write_text(json.dumps({"about": about, "results": rows}, indent=1) + "\n")
    print(f"Written to {options.out}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Resident memory of a training on corpora of growing size.")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[10, 50, 500], help="sizes of corpora (default: 10 50 500)")
    parser.add_argument("--updates", type=int, default=600, help="of training; 500 or so go past the first window (default: 600)")
    parser.add_argument(
        "--kind", default="bpe", choices=["bpe", "unigram", "word", "character"], help="of tokenizer (default: bpe)"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="default: one per core")
    parser.add_argument("--folder", type=Path, help="where to put the corpora for the time (default: the system's)")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"), help="default: beside this file")
    return parser.parse_args()


def measure(folder: Path, megabytes: float, options: argparse.Namespace) -> Result:
    """Makes a corpus in the folder and trains on it, watched."""
    size, count = write_corpus(folder / "pairs.tsv", int(megabytes * MB))
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(kind=options.kind, updates=options.updates, threads=options.threads), encoding="utf-8")
    command = [sys.executable, "-m", "glassformer", "train", str(recipe), "--out", str(folder / "run")]
    result = Result(round(size / MB, 2), count)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, encoding="utf-8") as process:
        watch(process, result)
    return result


def write_corpus(path: Path, size: int) -> tuple[int, int]:
    """Writes pairs until the file has `size` bytes; how many bytes and pairs it has."""
    written = count = 0
    with open(path, "w", encoding="ascii", newline="\n") as file:
        for source, target in pairs(words=1_000_000, seed=1):
            written += file.write(f"{source}\t{target}\n")
            count += 1
            if written >= size:
                break
    return written, count


def watch(process: subprocess.Popen[str], result: Result) -> None:
    """Looks at the memory of a run until it ends, phase by phase."""
    assert process.stderr is not None
    said: list[str] = []
    listener = threading.Thread(target=listen, args=(process.stderr, said))
    listener.start()
    before = time.monotonic()
    while process.poll() is None:
        memory = resident(process.pid)
        now = time.monotonic()
        phase = result.phases.setdefault(phase_of(said), Phase())
        phase.seconds += now - before
        phase.resident = max(phase.resident, memory.get("VmRSS", 0.0))
        phase.anonymous = max(phase.anonymous, memory.get("RssAnon", 0.0))
        result.peak = max(result.peak, memory.get("VmHWM", 0.0))
        before = now
        time.sleep(EVERY)
    listener.join()
    if process.returncode or set(result.phases) != set(PHASES):
        raise SystemExit(f"The training ended with {process.returncode}; it said:\n{''.join(said)}")


def listen(stream: IO[str], said: list[str]) -> None:
    """Keeps what the run says, as it says it."""
    for line in stream:
        said.append(line)


def phase_of(said: list[str]) -> str:
    """The last phase of which the beginning was announced."""
    text = "".join(said)
    return [phase for phase, words in PHASES.items() if words in text][-1]


def resident(pid: int) -> dict[str, float]:
    """MB of each measure, as Linux tells them; empty if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) * 1024 / MB for name in MEASURES if name in fields}


def show(results: list[Result], *, head: bool) -> None:
    row = "{:>10}{:>12}{:>14}{:>14}{:>14}{:>14}{:>16}"
    if head:
        print("Peak resident memory in MB (in brackets: of it not backed by files)")
        print(row.format("corpus", "pairs", "vocabulary", "tokenising", "training", "whole run", "prepared"))
    for result in results:
        phases = [result.phases[name] for name in ("vocabulary", "tokenising", "training")]
        cells = [f"{phase.resident:,.0f} ({phase.anonymous:,.0f})" for phase in phases]
        size, speed = f"{result.megabytes:,.0f} MB", f"{result.speed:.1f} MB/s"
        print(row.format(size, f"{result.pairs:,}", *cells, f"{result.peak:,.0f}", speed), flush=True)


if __name__ == "__main__":
    main()
