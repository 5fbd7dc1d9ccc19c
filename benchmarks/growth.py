"""How time and memory of training grow: with the length of sentences, the vocabulary, the layers and the corpus.

Each point is a process of its own: a model is made, some updates are timed, and the peak of its resident memory is read.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.turns import Tell
from glassformer.processor import training_environment

BASE = {"length": 16, "vocabulary": 8000, "layers": 3}
POINTS = {
    "length": [16, 32, 64, 128, 256, 512, 1024, 2048],
    "vocabulary": [2_000, 8_000, 32_000],
    "layers": [1, 3, 6],
}
TOKENS = 2048  # in a batch, whatever the length
CORPORA = [1, 4, 16]  # megabytes


def measure(*, quick: bool, tiny: bool, tell: Tell) -> list[dict[str, Any]]:
    found = []
    for what, values in list(POINTS.items())[: 1 if tiny else None]:
        for value in values[:1] if tiny else values[:: len(values) - 1] if quick else values:
            tell(f"{what} {value:,}")
            sizes = {**BASE, "tokens": 64 if tiny else TOKENS, what: value}
            found.append(
                {"what": what, "value": value} | alone(["--point", json.dumps(sizes), "--updates", "2" if tiny else "4"])
            )
    for megabytes in [0.1] if tiny else CORPORA[:2] if quick else CORPORA:
        tell(f"a corpus of {megabytes} MB")
        found.append({"what": "corpus, MB", "value": megabytes} | alone(["--corpus", str(megabytes)]))
    return found


def alone(options: list[str]) -> dict[str, Any]:
    command, environment = [sys.executable, "-m", "benchmarks.growth", *options], {**os.environ, **training_environment()}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"A process that was measured ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def peak_mb() -> float:
    """The most that was ever resident, MB. On Linux ru_maxrss has what the parent had in it, so the kernel's own mark is read."""
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return round(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1.024e-3, 1)  # type: ignore[index]
    import resource

    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 1)


def updates(sizes: dict[str, int], count: int) -> dict[str, Any]:
    """Updates of our training on random tokens: all sentences of one length."""
    import torch

    from glassformer.layers.cross_entropy import linear_cross_entropy
    from glassformer.memory import keep_memory
    from glassformer.models.transformer import Transformer
    from glassformer.options import TransformerOptions
    from glassformer.tasks.translate import Batch

    keep_memory(one_store=True)
    length, layers = sizes["length"], sizes["layers"]
    o = TransformerOptions(width=256, heads=8, inner=1024, encoder_layers=layers, decoder_layers=layers, max_length=2048)
    model = Transformer(o, sizes["vocabulary"], sizes["vocabulary"]).train()
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    rows = max(1, sizes["tokens"] // length)
    ids = torch.randint(4, sizes["vocabulary"], (rows, length))
    batch = Batch(ids, ids, ids.flatten(), torch.arange(ids.numel()))
    seconds = []
    for _ in range(count + 1):
        began = time.perf_counter()
        states = model(batch.source, batch.target).flatten(0, 1)
        loss, _ = linear_cross_entropy(states[batch.places], model.output.weight, batch.labels, 0.1, bias=model.output.bias)
        (loss / len(batch.labels)).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - began)
    return {"ms_per_update": round(1000 * statistics.median(seconds[1:]), 1), "tokens": ids.numel(), "peak_mb": peak_mb()}


def corpus(megabytes: float) -> dict[str, Any]:
    """Preparing a corpus, and some updates of a very small model on it."""
    from benchmarks.memory import write_corpus
    from glassformer import config
    from glassformer.text.datasets import find
    from glassformer.training.run import prepare_run

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.tsv"
        size, _ = write_corpus(path, int(megabytes * 1e6))
        model = {"width": 32, "heads": 2, "inner": 64, "encoder_layers": 1, "decoder_layers": 1}
        recipe = config.from_dict({"data": {"train": str(path)}, "tokenizer": {"vocabulary": 2000}, "model": model})
        began = time.perf_counter()
        prepare_run(recipe, Path(folder) / "run", find, lambda text: None)
        seconds = time.perf_counter() - began
    return {"seconds_to_prepare": round(seconds, 2), "mb_per_second": round(size / 1e6 / seconds, 2), "peak_mb": peak_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(description="One point, alone.")
    parser.add_argument("--point", type=json.loads)
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--corpus", type=float)
    options = parser.parse_args()
    print(json.dumps(corpus(options.corpus) if options.corpus else updates(options.point, options.updates)))


if __name__ == "__main__":
    main()
