"""python -m benchmarks.curves [--updates 500] [--seeds 3]

Whether speed was bought with learning: our update beside a plain loop round MarianMTModel, from the same first weights, over the
same batches, with the same rates; what differs is the order of sums and which numbers dropout drops. Told is −log p a token, the
mean of the last fifth of the updates, for each seed, and the furthest that the two curves, smoothed over 25 updates, are apart,
beside how far apart the seeds of one are.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.training import IGNORED, SIZES, SMALLEST, batches_of, hugging_face, ours_of, prepared, settings
from glassformer.memory import keep_memory
from glassformer.training.checkpoints import Progress
from glassformer.training.optimiser import adamw, rate_at

SMOOTHED = 25


def ours(folder: Path) -> list[float]:
    trainer, made = ours_of(folder)
    trainer.model.train()
    found = []
    for number, batch in enumerate(made, 1):
        nll, count = trainer._update(Progress(update=number), [batch])
        found.append(nll / count)
    return found


def plain(folder: Path) -> list[float]:
    options = settings(folder)[0].training
    model = hugging_face(folder).train()
    optimiser = adamw(model, options)
    found = []
    for number, batch in enumerate(batches_of(folder), 1):
        for group in optimiser.param_groups:
            group["lr"] = rate_at(number, options)
        answer = model(input_ids=batch.source, attention_mask=batch.mask, decoder_input_ids=batch.target, use_cache=False)
        log_p = F.log_softmax(answer.logits.flatten(0, 1), -1)
        labels = batch.labels.flatten()
        real = labels != IGNORED
        loss = F.nll_loss(log_p, labels, ignore_index=IGNORED)
        smooth = -log_p[real].mean()
        ((1 - options.label_smoothing) * loss + options.label_smoothing * smooth).backward()
        nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        found.append(loss.item())
    return found


def smoothed(curve: list[float]) -> list[float]:
    return [statistics.fmean(curve[i : i + SMOOTHED]) for i in range(0, len(curve) - SMOOTHED + 1, SMOOTHED)]


def apart(a: list[float], b: list[float]) -> float:
    """The furthest that two curves are from each other, once the first updates are over."""
    pairs = list(zip(smoothed(a), smoothed(b), strict=True))
    return max(abs(x - y) for x, y in pairs[len(pairs) // 5 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=1024, help="of a batch")
    parser.add_argument("--size", default="4+4 layers, 128 wide", choices=[*SIZES, "smallest"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "curves.json")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    keep_memory(one_store=True)
    model, vocabulary = {**SIZES, "smallest": SMALLEST}[asked.size]
    curves: dict[str, list[list[float]]] = {"glassformer": [], "MarianMTModel": []}
    about: dict[str, Any] = {}
    for seed in range(1, asked.seeds + 1):
        with tempfile.TemporaryDirectory() as name:
            about = prepared(Path(name), model, vocabulary, asked.updates, seed=seed, tokens=asked.tokens)
            for side, train in (("glassformer", ours), ("MarianMTModel", plain)):
                torch.manual_seed(seed)
                curves[side].append(train(Path(name)))
                print(f"seed {seed}, {side}: {statistics.fmean(curves[side][-1][-SMOOTHED:]):.4f}", file=sys.stderr, flush=True)
    last = max(1, asked.updates // 5)
    told = {
        "size": asked.size,
        "corpus": about["corpus"],
        "updates": asked.updates,
        "tokens of a batch": asked.tokens,
        "last fifth": {side: [round(statistics.fmean(each[-last:]), 4) for each in found] for side, found in curves.items()},
        "furthest apart": [round(apart(a, b), 4) for a, b in zip(*curves.values(), strict=True)],
        "furthest apart, seeds of MarianMTModel": [
            round(apart(a, b), 4) for i, a in enumerate(curves["MarianMTModel"]) for b in curves["MarianMTModel"][:i]
        ],
        "curves": {side: [[round(x, 4) for x in smoothed(each)] for each in found] for side, found in curves.items()},
    }
    asked.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in told.items() if key != "curves"}, indent=1))


if __name__ == "__main__":
    main()
