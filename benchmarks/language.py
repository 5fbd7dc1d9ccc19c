"""A language model: an update of ours beside nanoGPT's kind of code and transformers' GPT-2: the same sizes and windows.
Each in a process of its own, as it comes."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from benchmarks.made_up_text import pairs
from benchmarks.training import updates
from benchmarks.turns import OURS, Case, Turn
from glassformer import config
from glassformer.memory import keep_memory
from glassformer.processor import training_environment
from glassformer.tasks.language import Batch
from glassformer.text.batches import Place
from glassformer.text.datasets import find
from glassformer.training.loop import Trainer
from glassformer.training.optimiser import adamw
from glassformer.training.run import prepare_run

SIZES = {"width": 256, "heads": 8, "inner": 1024, "layers": 4, "max_length": 256}
SMALLEST = {"width": 32, "heads": 2, "inner": 64, "layers": 1, "max_length": 32}


def cases(*, quick: bool, tiny: bool) -> list[Case]:
    sizes, batches = (SMALLEST, 2) if tiny else (SIZES, 2 if quick else 4)
    name = f"{sizes['layers']} layers, {sizes['width']} wide, windows of {sizes['max_length']}"

    def prepare(folder: Path) -> dict[str, Any]:
        text = folder / "text.txt"
        lines = (source for source, _ in islice(pairs(words=10_000, seed=1), 2_000 if tiny else 30_000))
        text.write_text("\n".join(lines) + "\n", encoding="utf-8")
        tree = {
            "task": "language",
            "data": {"train": str(text)},
            "tokenizer": {"vocabulary": 300 if tiny else 8_000},
            "model": {"kind": "gpt", "bias": True, "norm": "pre", "activation": "gelu-tanh", "positions": "learned", **sizes},
            "training": {"batch_tokens": 64 if tiny else 4096, "threads": torch.get_num_threads()},
        }
        recipe = config.from_dict(tree)
        work = prepare_run(recipe, folder / "run", find, lambda text: None)
        made = [batch for batch, _ in islice(work.batches(Place()), batches)]
        save_file(
            {f"{part}.{i}": getattr(b, part).contiguous() for i, b in enumerate(made) for part in ("ids", "labels")},
            folder / "batches.safetensors",
        )
        (folder / "recipe.toml").write_text(config.to_toml(recipe), encoding="utf-8")
        about = {"corpus": "made-up text", "vocabulary": work.task.tokenizer.size, "batches": batches}
        about |= {"tokens": sum(len(b.labels) for b in made), "parameters": sum(p.numel() for p in work.task.model.parameters())}
        (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
        return about

    return [Case(name, "tokens/s", prepare, SIDES, apart=not tiny, environment=training_environment())]


def read(folder: Path) -> tuple[Any, int, list[Batch]]:
    tensors = load_file(folder / "batches.safetensors")
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    made = [Batch(tensors[f"ids.{i}"], tensors[f"labels.{i}"]) for i in range(len(tensors) // 2)]
    return config.read(folder / "recipe.toml"), about["vocabulary"], made


def ours(folder: Path) -> Turn:
    keep_memory(one_store=True)
    recipe, _, made = read(folder)
    trainer = Trainer(prepare_run(recipe, folder / "run", find, lambda text: None), folder / "run")
    return updates(trainer, made)


def plain_loop(model: nn.Module, logits: Any, folder: Path) -> Turn:
    recipe, _, made = read(folder)
    options = recipe.training
    optimiser = adamw(model, options)
    model.train()

    def turn() -> float:
        for batch in made:
            loss = F.cross_entropy(logits(batch.ids).flatten(0, 1), batch.labels, label_smoothing=options.label_smoothing)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            loss.item()
        return sum(len(batch.labels) for batch in made)

    return turn


class PlainBlock(nn.Module):
    def __init__(self, o: Any) -> None:
        super().__init__()
        self.heads = o.heads
        self.norm1, self.norm2 = nn.LayerNorm(o.width), nn.LayerNorm(o.width)
        self.qkv, self.o = nn.Linear(o.width, 3 * o.width), nn.Linear(o.width, o.width)
        self.w1, self.w2 = nn.Linear(o.width, o.inner), nn.Linear(o.inner, o.width)
        self.dropout = nn.Dropout(o.dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=2))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.o(z.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.w2(F.gelu(self.w1(self.norm2(x)), approximate="tanh")))


class PlainGPT(nn.Module):
    """As nanoGPT writes it: one product for q, k and v, PyTorch's fused attention, a tied output."""

    def __init__(self, o: Any, vocabulary: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, o.width), nn.Embedding(o.max_length, o.width)
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.position.weight, std=0.02)
        self.blocks = nn.ModuleList(PlainBlock(o) for _ in range(o.layers))
        self.norm, self.dropout = nn.LayerNorm(o.width), nn.Dropout(o.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.dropout(self.token(ids) + self.position(torch.arange(ids.size(1))))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)


def plain(folder: Path) -> Turn:
    recipe, vocabulary, _ = read(folder)
    model = PlainGPT(recipe.model, vocabulary)
    return plain_loop(model, model, folder)


def gpt2(folder: Path) -> Turn:
    from transformers import GPT2Config, GPT2LMHeadModel

    recipe, vocabulary, _ = read(folder)
    o = recipe.model
    sizes = GPT2Config(
        vocab_size=vocabulary,
        n_embd=o.width,
        n_head=o.heads,
        n_layer=o.layers,
        n_inner=o.inner,
        n_positions=o.max_length,
        resid_pdrop=o.dropout,
        embd_pdrop=o.dropout,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(sizes)
    return plain_loop(model, lambda ids: model(ids, use_cache=False).logits, folder)


SIDES = {OURS: ours, "nanoGPT's kind of code": plain, "transformers' GPT-2": gpt2}
