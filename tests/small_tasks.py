"""A small model folder for every task, with random weights: what it answers is nonsense, all of it is computed."""

import json
from pathlib import Path
from typing import Any

import torch

from glassformer import config
from glassformer.tasks import registry
from glassformer.text.tokenizer import Tokenizer

LINES = ["好久不见。我喜欢吃草莓。", "Long time no see. I like strawberries.", "the cat sat on the mat", "他昨天去了医院。"] * 3
SIZES = {"width": 16, "heads": 4, "inner": 24, "dropout": 0.0, "max_length": 48}
DATA: dict[str, dict[str, Any]] = {
    "translate": {"source": "en", "target": "zh", "both_ways": True, "max_length": 20},
    "language": {},
    "fill": {},
    "classify": {"max_length": 20},
    "tag": {"max_length": 20},
    "compare": {"columns": [1, 2, 3], "max_length": 20},
    "score": {"columns": [1, 2, 3], "score": True, "max_length": 20},
}
MODEL: dict[str, dict[str, Any]] = {
    "translate": {"encoder_layers": 2, "decoder_layers": 2},
    "language": {"preset": "llama", "layers": 2, "kv_heads": 2},
    "classify": {"layers": 2, "pooling": "mean"},
    "tag": {"layers": 1, "norm": "pre", "positions": "rotary", "types": 0},
}
LABELS: dict[str, Any] = {
    "classify": ["joy", "anger", "<b>"],
    "tag": ["NOUN", "VERB", "OTHER"],
    "compare": ["yes", "no"],
    "score": {"mean": 3.0, "deviation": 1.5},
}
TEXTS: dict[str, tuple[str, ...]] = {
    "translate": ("I like 草莓𠮷.",),
    "language": ("the cat",),
    "fill": ("the [MASK] sat on 草[MASK].",),
    "classify": ("I like the cat",),
    "tag": ("I don't like 草莓.",),
    "compare": ("the cat sat", "a cat sat"),
    "score": ("the cat sat", "a cat 坐"),
}


def scramble(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)


def make(folder: Path, name: str, **model: Any) -> Path:
    """A folder for one of the tasks above; a model of another kind than the usual one is given whole."""
    task = "compare" if name == "score" else name
    tree = {
        "task": task,
        "data": DATA[name],
        "tokenizer": {"vocabulary": 300, "split_han": True, **({"mask": "<mask>"} if name == "fill" else {})},
        "model": model if "kind" in model else {**SIZES, **MODEL.get(name, {"layers": 1}), **model},
        "decoding": {"beam": 3, "max_length": 8},
    }
    recipe = config.from_dict(tree)
    folder.mkdir(parents=True)
    tags = ["<2en>", "<2zh>"] if name == "translate" else []
    Tokenizer.train(LINES, recipe.tokenizer, tags).save(folder / "tokenizer.json")
    if name in LABELS:
        (folder / "labels.json").write_text(json.dumps(LABELS[name]), encoding="utf-8")
    torch.manual_seed(0)
    built = registry.task_of(recipe).build(folder, recipe)
    scramble(built.model)
    built.save(folder)
    return folder
