"""Training throughput beside Hugging Face's MarianMTModel of the same sizes.

    python benchmarks/training_speed.py

What is the same: the batches (ours, from Multi30k where it is found, else from made-up text of such lengths), the sizes, the
first weights, the places and the share of dropout (Marian's further ones, on attention and inside the feed-forward, are off),
label smoothing, clipping, fused AdamW, float32, the threads and the C library's allocator settings. It is checked first that
both give the same loss. What differs is the code: ours is the update of `glassformer train` itself; Marian's is a plain good
loop, with PyTorch's fused attention.

The two take turns over the same few batches, round after round, so that whatever else the machine does meets both alike; the
result is the median of the rounds' ratios. Making batches is not timed. Throughput counts real target tokens, not padding.
"""

import argparse
import json
import math
import os
import platform
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from made_up_text import pairs
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from glassformer import config
from glassformer.config import Recipe
from glassformer.errors import UserError
from glassformer.models.transformer import Transformer
from glassformer.tasks.translate import Batch
from glassformer.text.batches import Place
from glassformer.text.datasets import find
from glassformer.text.tokenizer import BOS, EOS, PAD
from glassformer.training.checkpoints import Progress
from glassformer.training.loop import Trainer
from glassformer.training.memory import keep_memory
from glassformer.training.optimiser import adamw, rate_at
from glassformer.training.run import prepare_run

SIZES: dict[str, tuple[dict[str, Any], int]] = {  # the model and its vocabulary
    "tiny": ({"preset": "tiny"}, 10_000),
    "small": ({"preset": "small"}, 8_000),
}
MULTI30K = "multi30k/tok/train.lc.norm.tok.{en,de}.gz"
IGNORED = -100  # the label of a padded position
RENAMES = (  # from our names to Marian's
    (r"^(encoder|decoder)\.(\d+)\.", r"model.\1.layers.\2."),
    (r"^(encoder|decoder)\.embed\.token\.", r"model.\1.embed_tokens."),
    (r"^output\.", "lm_head."),
    (r"\.self\.([qkv])\.", r".self_attn.\1_proj."),
    (r"\.cross\.([qkv])\.", r".encoder_attn.\1_proj."),
    (r"\.self\.o\.", ".self_attn.out_proj."),
    (r"\.cross\.o\.", ".encoder_attn.out_proj."),
    (r"\.ffn\.w(\d)\.", r".fc\1."),
    (r"\.norm1\.", ".self_attn_layer_norm."),
    (r"\.norm2\.", ".encoder_attn_layer_norm."),
    (r"\.norm3\.", ".final_layer_norm."),
)

Update = Callable[[int, int], None]  # takes the number of the update and which batch to train on


@dataclass(frozen=True)
class Side:
    """One of the two that are compared."""

    name: str
    parameters: int
    update: Update


@dataclass(frozen=True)
class MarianBatch:
    """A batch of ours as Marian takes it."""

    source: Tensor  # (B, S)
    mask: Tensor  # (B, S)
    target: Tensor  # (B, T)
    labels: Tensor  # (B, T)


@dataclass(frozen=True)
class Result:
    size: str
    corpus: str
    vocabulary: int
    batches: int
    target_tokens: int  # in all the batches
    padding: float  # the share of target positions that are padding
    parameters: dict[str, int]
    first_loss: dict[str, float]  # of the first batch, before training
    last_loss: dict[str, float]  # and after all rounds: both must have learned, and about as much
    tokens_per_second: dict[str, list[float]]  # one a round
    ratios: list[float]  # ours ÷ Marian's, one a round


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    kept = options.allocator and keep_memory()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {options.threads} threads, float32, ", end="")
    print(f"allocator {'keeps freed memory' if kept else 'as it comes'} (for both), {options.rounds} rounds")
    results = [measure(size, options.batches, options.rounds) for size in options.sizes]
    show(results)
    about = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": options.threads,
        "dtype": "float32",
        "keeps_memory": kept,
        "rounds": options.rounds,
    }
    options.out.write_text(json.dumps({"about": about, "results": [asdict(each) for each in results]}, indent=1) + "\n")
    print(f"Written to {options.out}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training throughput beside Hugging Face's MarianMTModel.")
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds of each of the two (default: 15)")
    parser.add_argument("--batches", type=int, default=8, help="batches in a round (default: 8)")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES), help="default: all")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="default: one per core")
    parser.add_argument("--no-allocator", dest="allocator", action="store_false", help="leave the C library's allocator as it is")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"), help="default: beside this file")
    return parser.parse_args()


def measure(size: str, batches: int, rounds: int) -> Result:
    """Ours and Marian's in turns."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        recipe, corpus = recipe_of(size, run)
        work = prepare_run(recipe, run, find, lambda text: None)
        task, trainer = work.task, Trainer(work, run)
        made = [batch for batch, _ in islice(work.batches(Place()), batches)]
        marian = marian_of(task.model, recipe)
        first = losses(trainer, marian, made[0])
        check(first, task.target.size)
        sides = our_side(trainer, made), marian_side(marian, recipe, made)
        seconds = take_turns(sides, batches, rounds)
        last = losses(trainer, marian, made[0])
    tokens = sum(len(batch.labels) for batch in made)
    speeds = {name: [round(tokens / each, 1) for each in times] for name, times in seconds.items()}
    ours, theirs = (seconds[side.name] for side in sides)
    return Result(
        size=size,
        corpus=corpus,
        vocabulary=task.target.size,
        batches=batches,
        target_tokens=tokens,
        padding=round(1 - tokens / sum(batch.target.numel() for batch in made), 4),
        parameters={side.name: side.parameters for side in sides},
        first_loss=first,
        last_loss=last,
        tokens_per_second=speeds,
        ratios=[round(b / a, 4) for a, b in zip(ours, theirs, strict=True)],
    )


def recipe_of(size: str, folder: Path) -> tuple[Recipe, str]:
    """The recipe, and the name of its corpus: Multi30k if it can be found, else made-up text of the same size."""
    model, vocabulary = SIZES[size]
    corpus, train = "Multi30k", MULTI30K
    try:
        for language in ("en", "de"):
            find(MULTI30K.replace("{en,de}", language))
    except UserError:
        corpus, train = "made-up text", str(folder / "pairs.tsv")
        lines = (f"{source}\t{target}\n" for source, target in islice(pairs(words=10_000, seed=1), 29_000))
        Path(train).write_text("".join(lines), encoding="utf-8")
    training = {"schedule": "constant", "warmup": 0, "rate": 1e-3}  # so that even a few updates show whether both learn
    tree = {"data": {"train": train}, "tokenizer": {"vocabulary": vocabulary}, "model": model, "training": training}
    return config.from_dict(tree), corpus


def marian_of(model: Transformer, recipe: Recipe) -> MarianMTModel:
    """Marian of the same sizes, with the same weights."""
    o = recipe.model
    marian = MarianMTModel(
        MarianConfig(
            vocab_size=model.output.out_features,
            d_model=o.width,
            encoder_layers=o.encoder_layers,
            decoder_layers=o.decoder_layers,
            encoder_attention_heads=o.heads,
            decoder_attention_heads=o.heads,
            encoder_ffn_dim=o.inner,
            decoder_ffn_dim=o.inner,
            activation_function=o.activation,
            dropout=o.dropout,  # after the embedding and every sublayer, as in ours
            attention_dropout=0.0,
            activation_dropout=0.0,
            scale_embedding=True,
            max_position_embeddings=o.max_length,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            forced_eos_token_id=EOS,
            decoder_start_token_id=BOS,
            attn_implementation="sdpa",
        )
    )
    weights = {name: x for name, x in model.named_parameters(remove_duplicate=False)}
    theirs = marian.state_dict()
    with torch.no_grad():
        for name, x in weights.items():
            theirs[renamed(name)].copy_(x)
        for stack in ("encoder", "decoder"):  # Marian's own table has the sines first, then the cosines
            theirs[f"model.{stack}.embed_positions.weight"].copy_(model.encoder.embed.position)
    return marian


def renamed(name: str) -> str:
    for pattern, theirs in RENAMES:
        name = re.sub(pattern, theirs, name)
    return name


def for_marian(batch: Batch) -> MarianBatch:
    labels = torch.full((batch.target.numel(),), IGNORED)
    labels[batch.places] = batch.labels
    return MarianBatch(batch.source, (batch.source != PAD).long(), batch.target, labels.view_as(batch.target))


def marian_loss(marian: MarianMTModel, batch: MarianBatch, smoothing: float) -> Tensor:
    """The mean smoothed loss. Padding of the target stands at the end, where nothing real looks at it: it needs no mask."""
    answer = marian(input_ids=batch.source, attention_mask=batch.mask, decoder_input_ids=batch.target, use_cache=False)
    return F.cross_entropy(answer.logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED, label_smoothing=smoothing)


def losses(trainer: Trainer, marian: MarianMTModel, batch: Batch) -> dict[str, float]:
    """The mean smoothed loss of both on one batch, without dropout."""
    smoothing = trainer.options.label_smoothing
    trainer.model.eval()
    marian.eval()
    with torch.no_grad():
        ours = trainer.task.loss(batch, smoothing)[0].item() / len(batch.labels)
        theirs = marian_loss(marian, for_marian(batch), smoothing).item()
    return {"glassformer": round(ours, 5), "marian": round(theirs, 5)}


def check(first: dict[str, float], vocabulary: int) -> None:
    """Before training, with the same weights, the losses are the same, and near ln V: nothing is known yet."""
    ours, theirs, chance = first["glassformer"], first["marian"], math.log(vocabulary)
    if abs(ours - theirs) > 1e-4 or abs(ours - chance) > 1:
        raise SystemExit(f"The two do not compute the same: loss {ours:.5f} (ours), {theirs:.5f} (Marian); ln V is {chance:.5f}.")


def our_side(trainer: Trainer, batches: list[Batch]) -> Side:
    """The update of `glassformer train`."""
    trainer.model.train()

    def update(number: int, which: int) -> None:
        trainer._update(Progress(update=number), [batches[which]])

    return Side("glassformer", trained(trainer.model), update)


def marian_side(marian: MarianMTModel, recipe: Recipe, batches: list[Batch]) -> Side:
    """A plain good loop."""
    options = recipe.training
    made = [for_marian(batch) for batch in batches]
    optimiser = adamw(marian, options)
    marian.train()

    def update(number: int, which: int) -> None:
        for group in optimiser.param_groups:
            group["lr"] = rate_at(number, options)
        loss = marian_loss(marian, made[which], options.label_smoothing)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(marian.parameters(), options.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        loss.item()  # for the log

    return Side("marian", trained(marian), update)


def trained(model: nn.Module) -> int:
    """Parameters that learn; Marian's table of sinusoids does not."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def take_turns(sides: tuple[Side, Side], batches: int, rounds: int) -> dict[str, list[float]]:
    """The seconds of each round of each side. Round 0 warms up; who begins changes from round to round."""
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            began = time.perf_counter()
            for which in range(batches):
                side.update(number * batches + which + 1, which)
            if number:
                seconds[side.name].append(time.perf_counter() - began)
    return seconds


def show(results: list[Result]) -> None:
    row = "{:<8}{:>14}{:>16}{:>16}{:>9}{:>18}{:>16}"
    print(row.format("size", "parameters", "ours, tok/s", "Marian, tok/s", "ratio", "25–75 % of it", "range"))
    for result in results:
        ours, theirs = (statistics.median(speeds) for speeds in result.tokens_per_second.values())
        low, middle, high = quartiles(result.ratios)
        print(
            row.format(
                result.size,
                f"{result.parameters['glassformer']:,}",
                f"{ours:,.0f}",
                f"{theirs:,.0f}",
                f"{middle:.2f}",
                f"{low:.2f}–{high:.2f}",
                f"{min(result.ratios):.2f}–{max(result.ratios):.2f}",
            )
        )
    for result in results:
        counts = ", ".join(f"{name} {count:,}" for name, count in result.parameters.items())
        falls = ", ".join(f"{name} {loss:.3f} → {result.last_loss[name]:.3f}" for name, loss in result.first_loss.items())
        print(
            f"{result.size}: {result.batches} batches of {result.corpus}, {result.target_tokens:,} target tokens and "
            f"{result.padding:.1%} padding, vocabulary {result.vocabulary:,}.\n"
            f"  Parameters: {counts}.  Loss: {falls} (ln V is {math.log(result.vocabulary):.3f})."
        )


def quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


if __name__ == "__main__":
    main()
