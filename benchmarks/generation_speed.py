"""Cached generation beside `transformers`' generate: the same weights, the same greedy tokens, in turns.

    python benchmarks/generation_speed.py

A GPT-2 and a Llama of a few million random weights are made by `transformers`, saved, imported by `glassformer import`, and both
go on with one prompt until the window of 1,024 tokens is full, one sentence and eight samples at a time. It is checked that the
tokens are the same. What is timed is the whole generation; the times of single tokens give the curve, which should grow by no
more than what attention has to look at.
"""

import argparse
import json
import platform
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.generation.streamers import BaseStreamer

import glassformer
from glassformer.interop.importing import import_model
from glassformer.options import GenerationOptions

WINDOW = 1024
WIDTH, HEADS, LAYERS, VOCABULARY = 256, 8, 4, 8000
BINS = 8
BATCH = 8


@dataclass(frozen=True)
class Result:
    family: str
    samples: int
    tokens: int
    parameters: int
    ours: list[float]  # seconds, a round each
    theirs: list[float]
    ratio: float  # median of theirs / ours
    curve_ours: list[float]  # milliseconds a token, by eighths of the window
    curve_theirs: list[float]


class Clock(BaseStreamer):  # type: ignore[misc]
    """Notes when each token comes."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    results = []
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {torch.get_num_threads()} threads, float32")
    print(f"{'model':8}{'samples':>8}{'ours, tok/s':>14}{'transformers':>14}{'ratio':>8}   ms a token, first and last eighth")
    with tempfile.TemporaryDirectory() as folder:
        for family in ("gpt2", "llama"):
            theirs = make(family, Path(folder) / family)
            import_model(str(Path(folder) / family), Path(folder) / f"{family}-ours")
            ours = glassformer.load(Path(folder) / f"{family}-ours")
            for samples in (1, BATCH):
                result = measure(family, ours, theirs, samples, options.rounds)
                results.append(result)
                print(line(result), flush=True)
    about = {"torch": torch.__version__, "transformers": transformers.__version__, "machine": platform.machine()}
    options.out.write_text(json.dumps({**about, "results": [asdict(result) for result in results]}, indent=1) + "\n")
    print(f"Written to {options.out}")


def make(family: str, folder: Path) -> Any:
    """A model of `transformers` with random weights, saved with a vocabulary of letters and made-up pieces."""
    torch.manual_seed(0)
    ends: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0}
    if family == "gpt2":
        sizes = GPT2Config(n_embd=WIDTH, n_head=HEADS, n_layer=LAYERS, n_positions=WINDOW, vocab_size=VOCABULARY, **ends)
        model: Any = GPT2LMHeadModel(sizes)
    else:
        model = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=WIDTH,
                num_attention_heads=HEADS,
                num_key_value_heads=HEADS // 2,
                num_hidden_layers=LAYERS,
                intermediate_size=3 * WIDTH,
                max_position_embeddings=WINDOW,
                vocab_size=VOCABULARY,
                **ends,
            )
        )
    model.eval().save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<|endoftext|>", *alphabet]
    pieces += [f"{a}{b}" for a in alphabet for b in alphabet][: VOCABULARY - len(pieces)]
    merges = [(piece[0], piece[1]) for piece in pieces[1 + len(alphabet) :]]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return model


def measure(family: str, ours: Any, theirs: Any, samples: int, rounds: int) -> Result:
    prompt = "Once upon a time"
    begun = ours.prompt_ids(prompt)
    count = WINDOW - len(begun)
    options = GenerationOptions(temperature=0.0, max_tokens=count)
    mine, yours, clocks = [], [], []
    for round in range(rounds + 1):  # the first warms up
        times: list[float] = []
        start = time.perf_counter()
        found = ours.generate(prompt, options, samples=samples, write=lambda i, t, times=times: times.append(time.perf_counter()))
        ours_seconds = time.perf_counter() - start
        clock = Clock()
        read = torch.tensor([begun])
        start = time.perf_counter()
        with torch.inference_mode():
            answer = theirs.generate(
                read.expand(samples, -1),
                attention_mask=torch.ones(samples, len(begun), dtype=torch.long),
                max_new_tokens=count,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
                streamer=clock if samples == 1 else None,
            )
        theirs_seconds = time.perf_counter() - start
        tokens = min(len(found[0].ids), count)
        agree = [a == b for a, b in zip(found[0].ids, answer[0, len(begun) :].tolist(), strict=False)]
        if sum(agree) < 0.9 * len(agree):
            raise SystemExit(f"{family}: only {sum(agree)} of {len(agree)} tokens agree; nothing was measured.")
        if round:
            mine.append(ours_seconds)
            yours.append(theirs_seconds)
            clocks.append((times, clock.times[1:]))
    curves = [bins([c[side] for c in clocks]) if samples == 1 else [] for side in (0, 1)]
    ratio = statistics.median(b / a for a, b in zip(mine, yours, strict=True))
    weights = sum(p.numel() for p in theirs.parameters())
    return Result(family, samples, tokens * samples, weights, mine, yours, ratio, *curves)


def bins(rounds: list[list[float]]) -> list[float]:
    """Milliseconds between tokens, the median in each eighth."""
    gaps = [1000 * (b - a) for times in rounds for a, b in pairwise(times)]
    per = len(gaps) // len(rounds)
    by_place = [[gaps[r * per + i] for r in range(len(rounds))] for i in range(per)]
    size = max(1, per // BINS)
    return [round(statistics.median(x for place in by_place[i * size : (i + 1) * size] for x in place), 4) for i in range(BINS)]


def line(result: Result) -> str:
    speeds = [result.tokens / statistics.median(x) for x in (result.ours, result.theirs)]
    curve = ""
    if result.curve_ours:
        ours, theirs = result.curve_ours, result.curve_theirs
        curve = f"ours {ours[0]:.2f} → {ours[-1]:.2f}, transformers {theirs[0]:.2f} → {theirs[-1]:.2f}"
    return f"{result.family:8}{result.samples:8}{speeds[0]:14,.0f}{speeds[1]:14,.0f}{result.ratio:8.2f}   {curve}"


if __name__ == "__main__":
    main()
