"""Training: an update of ours beside the same update by others.

What is the same: the batches (ours, from Multi30k where it is found, else from made-up text of such lengths), the sizes, the
share of dropout, label smoothing, clipping, fused AdamW, float32 and the threads. Marian has the same first weights too; it is
checked that both give the same loss. Making batches is not timed. Throughput counts real target tokens, not padding.

Each works in a process of its own. All have the environment that `glassformer train` makes for NumPy's products, which only ours
multiplies with. Our training asks the C library to keep freed memory; others come as they are. Marian takes part twice more: with
that setting, and with batches as they are often made, of sentences sorted by the lengths of their targets.
"""

import gc
import json
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from benchmarks.made_up_text import pairs
from benchmarks.turns import OURS, Case, Turn, Unavailable
from glassformer import config
from glassformer.errors import UserError
from glassformer.layers.positions import sinusoids
from glassformer.memory import keep_memory
from glassformer.options import Recipe, TransformerOptions
from glassformer.processor import training_environment
from glassformer.tasks.translate import Batch
from glassformer.text.batches import Place
from glassformer.text.datasets import find
from glassformer.text.tokenizer import BOS, EOS, PAD
from glassformer.training.checkpoints import Progress
from glassformer.training.loop import Trainer
from glassformer.training.optimiser import adamw, rate_at
from glassformer.training.run import prepare_run
from glassformer.training.work import Work
from glassformer.weights import named_weights

SIZES: dict[str, tuple[dict[str, Any], int]] = {  # the model and its vocabulary
    "3+3 layers, 256 wide": ({"preset": "small"}, 8_000),
    "4+4 layers, 128 wide": ({"preset": "tiny"}, 10_000),
}
SMALLEST = ({"width": 32, "heads": 2, "inner": 64, "encoder_layers": 1, "decoder_layers": 1}, 300)  # to try it all in seconds
MULTI30K = "multi30k/tok/train.lc.norm.tok.{en,de}.gz"
POOL = 20  # times as many batches, of whose sentences others are made
IGNORED = -100  # the label of a padded position
RENAMES = (  # from our names to those of Marian and its relatives
    (r"^(encoder|decoder)\.(\d+)\.", r"model.\1.layers.\2."),
    (r"^(encoder|decoder)\.embed\.token\.", r"model.\1.embed_tokens."),
    (r"^(encoder|decoder)\.norm\.", r"model.\1.layer_norm."),
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


def cases(*, quick: bool, tiny: bool) -> list[Case]:
    sizes = {"smallest": SMALLEST} if tiny else SIZES
    batches = 2 if tiny else 3 if quick else 6

    def of(model: dict[str, Any], vocabulary: int) -> Callable[[Path], dict[str, Any]]:
        return lambda folder: prepared(folder, model, vocabulary, batches, pool=batches * POOL)

    environment = training_environment()
    return [
        Case(name, "target tokens/s", of(*size), SIDES, check, apart=not tiny, environment=environment)
        for name, size in sizes.items()
    ]


def prepared(
    folder: Path,
    model: dict[str, Any],
    vocabulary: int,
    batches: int,
    corpus: str = "",
    seed: int = 1,
    pool: int = 0,
    tokens: int = 4096,
) -> dict[str, Any]:
    """Writes the first batches of a training and its first weights; and, of the sentences of `pool` batches, as many others in
    which they are sorted by target."""
    recipe, name = recipe_of(folder, model, vocabulary, corpus, seed, tokens)
    work = prepare_run(recipe, folder / "run", find, lambda text: None)
    drawn: list[Batch] = [batch for batch, _ in islice(work.batches(Place()), max(batches, pool))]
    made = drawn[:batches]
    usual = sorted_by_target(work, drawn, batches) if pool else []
    save_batches(folder / "batches.safetensors", made)
    save_batches(folder / "usual.safetensors", usual)
    save_file(
        {name: x.contiguous().clone() for name, x in named_weights(work.task.model).items()}, folder / "weights.safetensors"
    )
    (folder / "recipe.toml").write_text(config.to_toml(recipe), encoding="utf-8")
    real, places = sum(len(batch.labels) for batch in made), sum(batch.target.numel() for batch in made)
    about = {
        "corpus": name,
        "vocabulary": work.task.target.size,
        "parameters": sum(p.numel() for p in work.task.model.parameters()),
        "batches": batches,
        "target tokens": real,
        "padding of targets": round(1 - real / places, 4),
        "padding of sources": padding(made),
        **({"padding of sources, sorted by target": padding(usual)} if usual else {}),
        "arithmetic": round(arithmetic(work.task.model, made)),
    }
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    return about


def sorted_by_target(work: Work, drawn: list[Batch], count: int) -> list[Batch]:
    """The same sentences in other batches: of targets of about a length, whatever the lengths of their sources."""
    pairs = []
    for batch in drawn:
        ends = torch.bincount(batch.places // batch.target.size(1), minlength=len(batch.target))
        labels = batch.labels.split(ends.tolist())
        pairs += [(source[source != PAD].tolist(), ids[:-1].tolist()) for source, ids in zip(batch.source, labels, strict=True)]
    random.Random(1).shuffle(pairs)
    pairs.sort(key=lambda pair: len(pair[1]))
    most, found, rows = work.task.recipe.training.batch_tokens, [], []
    for pair in pairs:
        if (len(rows) + 1) * (len(pair[1]) + 1) > most:
            found.append(rows)
            rows = []
        rows.append(pair)
    return [work.task.batch(rows) for rows in random.Random(1).sample(found, min(count, len(found)))]


def padding(batches: list[Batch]) -> float:
    """Its share of the sources' places."""
    ids = torch.cat([batch.source.flatten() for batch in batches])
    return round((ids == PAD).double().mean().item(), 4)


def save_batches(path: Path, batches: list[Batch]) -> None:
    parts = ("source", "target", "labels", "places")
    save_file({f"{part}.{i}": getattr(batch, part).contiguous() for i, batch in enumerate(batches) for part in parts}, path)


def arithmetic(model: nn.Module, batches: list[Batch]) -> float:
    """Floating-point operations of matrix products that one update of each batch needs, on real tokens: forward, and twice that
    backward."""

    def weights(part: nn.Module) -> int:
        return sum(
            p.numel() for module in part.modules() if isinstance(module, nn.Linear) for p in module.parameters() if p.dim() > 1
        )

    o = model.options
    total = 0.0
    for batch in batches:
        sources = (batch.source != PAD).sum(1).double()
        targets = torch.bincount(batch.places // batch.target.size(1), minlength=len(batch.target)).double()
        cross = sum(weights(getattr(block, part)) for block in blocks(model.decoder) for part in ("cross",)) / 2  # k and v
        total += 2 * float(sources.sum()) * (weights(model.encoder) + cross)
        total += 2 * float(targets.sum()) * (weights(model.decoder) - cross + model.output.weight.numel())
        looked = o.encoder_layers * sources.square() + o.decoder_layers * (targets.square() / 2 + targets * sources)
        total += 4 * o.width * float(looked.sum())  # Q Kᵀ and P V
    return 3 * total


def blocks(stack: Any) -> list[Any]:
    return [stack.get_submodule(str(i)) for i in range(stack.depth)]


def recipe_of(folder: Path, model: dict[str, Any], vocabulary: int, corpus: str, seed: int, tokens: int) -> tuple[Recipe, str]:
    """The recipe, and the name of its corpus: Multi30k if it can be found, else made-up text of the same size."""
    name, train = "Multi30k", MULTI30K
    try:
        for language in ("en", "de"):
            find(MULTI30K.replace("{en,de}", language))
        small = vocabulary < 1000
    except UserError:
        small = True
    if corpus or small:
        name, train = "made-up text", corpus or str(folder / "pairs.tsv")
        if not corpus:
            lines = (
                f"{source}\t{target}\n"
                for source, target in islice(pairs(words=10_000, seed=1), 2_000 if vocabulary < 1000 else 29_000)
            )
            Path(train).write_text("".join(lines), encoding="utf-8")
    training = {"schedule": "constant", "warmup": 0, "rate": 1e-3, "batch_tokens": tokens, "threads": torch.get_num_threads()}
    tree = {"seed": seed, "data": {"train": train}, "tokenizer": {"vocabulary": vocabulary}, "model": model, "training": training}
    return config.from_dict(tree), name


@dataclass(frozen=True)
class Padded:
    """A batch as others take it."""

    source: Tensor  # (B, S)
    mask: Tensor  # (B, S)
    target: Tensor  # (B, T)
    labels: Tensor  # (B, T), IGNORED where padded
    tokens: int


def batches_of(folder: Path, name: str = "batches") -> list[Padded]:
    tensors = load_file(folder / f"{name}.safetensors")
    found = []
    for i in range(sum(name.startswith("source.") for name in tensors)):
        source, target = tensors[f"source.{i}"], tensors[f"target.{i}"]
        labels = torch.full((target.numel(),), IGNORED)
        labels[tensors[f"places.{i}"]] = tensors[f"labels.{i}"]
        found.append(Padded(source, (source != PAD).long(), target, labels.view_as(target), len(tensors[f"labels.{i}"])))
    return found


def settings(folder: Path) -> tuple[Recipe, int]:
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    return config.read(folder / "recipe.toml"), about["vocabulary"]


# Those who take part


def ours(folder: Path) -> Turn:
    """The update of `glassformer train`."""
    keep_memory(one_store=True)
    return updates(*ours_of(folder))


def ours_of(folder: Path) -> tuple[Trainer, list[Batch]]:
    recipe, _ = settings(folder)
    work = prepare_run(recipe, folder / "run", find, lambda text: None)
    trainer = Trainer(work, folder / "run")
    tensors = load_file(folder / "batches.safetensors")
    count = len(tensors) // 4
    made = [Batch(*(tensors[f"{part}.{i}"] for part in ("source", "target", "labels", "places"))) for i in range(count)]
    return trainer, made


def updates(trainer: Trainer, made: Sequence[Any]) -> Turn:
    """An update by each batch, in a process that trains and does nothing else."""
    gc.freeze()  # as `train` does
    trainer.model.train()
    number = 0

    def turn() -> float:
        nonlocal number
        for batch in made:
            number += 1
            trainer._update(Progress(update=number), [batch])
        return sum(len(batch.labels) for batch in made)

    return turn


def plain_loop(model: nn.Module, folder: Path, logits: Callable[[Padded], Tensor], batches: str = "batches") -> Turn:
    """A plain good loop round any model."""
    options = settings(folder)[0].training
    made = batches_of(folder, batches)
    optimiser = adamw(model, options)
    model.train()
    number = 0

    def turn() -> float:
        nonlocal number
        for batch in made:
            number += 1
            for group in optimiser.param_groups:
                group["lr"] = rate_at(number, options)
            loss = loss_of(logits(batch), batch, options.label_smoothing)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            loss.item()  # for the log
        return sum(batch.tokens for batch in made)

    return turn


def loss_of(logits: Tensor, batch: Padded, smoothing: float) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED, label_smoothing=smoothing)


def hugging_face(folder: Path, recipe: Recipe | None = None, vocabulary: int = 0) -> Any:
    """Marian of the same sizes, with the same weights; for a model whose norms come first Pegasus, which is Marian so changed."""
    from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

    if recipe is None:
        recipe, vocabulary = settings(folder)
    o: Any = recipe.model
    kinds = (MarianConfig, MarianMTModel) if o.norm == "post" else (PegasusConfig, PegasusForConditionalGeneration)
    model = kinds[1](
        kinds[0](
            vocab_size=vocabulary,
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
            forced_eos_token_id=None,
            decoder_start_token_id=BOS,
            attn_implementation="sdpa",
        )
    )
    theirs = model.state_dict()
    with torch.no_grad():
        for name, x in load_file(folder / "weights.safetensors").items():
            theirs[renamed(name)].copy_(x)
        for stack in ("encoder", "decoder"):  # their own table has the sines first, then the cosines
            theirs[f"model.{stack}.embed_positions.weight"].copy_(sinusoids(o.max_length, o.width))
    model.tie_weights()
    return model


def renamed(name: str) -> str:
    for pattern, theirs in RENAMES:
        name = re.sub(pattern, theirs, name)
    return name


def marian(folder: Path, batches: str = "batches") -> Turn:
    model = hugging_face(folder)

    def logits(batch: Padded) -> Tensor:
        """Padding of the target stands at the end, where nothing real looks at it: it needs no mask."""
        return model(input_ids=batch.source, attention_mask=batch.mask, decoder_input_ids=batch.target, use_cache=False).logits

    return plain_loop(model, folder, logits, batches)


def marian_keeping(folder: Path) -> Turn:
    keep_memory(one_store=True)
    return marian(folder)


def marian_trainer(folder: Path) -> Turn:
    """The same by transformers' Trainer."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    options = settings(folder)[0].training
    made = batches_of(folder)
    rows = [{"input_ids": b.source, "attention_mask": b.mask, "decoder_input_ids": b.target, "labels": b.labels} for b in made]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"),
        per_device_train_batch_size=1,  # of batches that are made already
        max_steps=len(made),
        learning_rate=options.rate,
        lr_scheduler_type="constant",
        label_smoothing_factor=options.label_smoothing,
        max_grad_norm=options.clip,
        optim="adamw_torch_fused",
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
    )
    trainer = transformers.Trainer(
        model=hugging_face(folder), args=arguments, train_dataset=rows, data_collator=lambda items: items[0]
    )

    trainer.remove_callback(transformers.PrinterCallback)

    def turn() -> float:
        trainer.train()
        return sum(batch.tokens for batch in made)

    return turn


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with what it leaves to its users: embedding, positions, output."""

    def __init__(self, recipe: Recipe, vocabulary: int) -> None:
        super().__init__()
        o: Any = recipe.model
        self.width = o.width
        self.embed = nn.Embedding(vocabulary, o.width)
        nn.init.normal_(self.embed.weight, std=o.width**-0.5)
        self.register_buffer("positions", sinusoids(o.max_length, o.width))
        self.dropout = nn.Dropout(o.dropout)
        self.body = nn.Transformer(
            o.width, o.heads, o.encoder_layers, o.decoder_layers, o.inner, o.dropout, o.activation, batch_first=True
        )

    def forward(self, batch: Padded) -> Tensor:
        padded = batch.mask == 0
        ahead = nn.Transformer.generate_square_subsequent_mask(batch.target.size(1))
        source, target = (
            self.dropout(self.embed(x) * math.sqrt(self.width) + self.positions[: x.size(1)])
            for x in (batch.source, batch.target)
        )
        states = self.body(
            source, target, tgt_mask=ahead, tgt_is_causal=True, src_key_padding_mask=padded, memory_key_padding_mask=padded
        )
        return F.linear(states, self.embed.weight)


def torch_transformer(folder: Path) -> Turn:
    model = TorchTransformer(*settings(folder))
    return plain_loop(model, folder, model)


def joeynmt(folder: Path) -> Turn:
    from benchmarks.joey import training_turn

    return training_turn(folder)


SIDES = {
    OURS: ours,
    "MarianMTModel, plain loop": marian,
    "the same, with our allocator settings": marian_keeping,
    "the same, batches sorted by target": partial(marian, batches="usual"),
    "MarianMTModel, Trainer": marian_trainer,
    "torch.nn.Transformer": torch_transformer,
    "JoeyNMT": joeynmt,
}


def check(folder: Path) -> None:
    """Before training, with the same weights, ours and Marian's losses are the same."""
    recipe, vocabulary = settings(folder)
    batch = batches_of(folder)[0]
    from glassformer.models.transformer import Transformer

    assert isinstance(recipe.model, TransformerOptions)
    our = Transformer(recipe.model, vocabulary, vocabulary, pad=PAD).eval()
    our.load_state_dict({**our.state_dict(), **load_file(folder / "weights.safetensors")})
    try:
        their = hugging_face(folder).eval()
    except ImportError as error:
        raise Unavailable(str(error)) from None
    with torch.no_grad():
        a = loss_of(our.logits(our(batch.source, batch.target)), batch, 0.1).item()
        answer = their(input_ids=batch.source, attention_mask=batch.mask, decoder_input_ids=batch.target, use_cache=False)
        b = loss_of(answer.logits, batch, 0.1).item()
    if abs(a - b) > 1e-4 or abs(a - math.log(vocabulary)) > 1:
        raise SystemExit(
            f"The two do not compute the same: loss {a:.5f} (ours), {b:.5f} (Marian); ln V is {math.log(vocabulary):.5f}."
        )
