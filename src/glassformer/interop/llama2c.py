"""llama2.c's format: seven numbers, then every weight of a Llama in a fixed order, and a vocabulary in a file beside it."""

import struct
from itertools import accumulate
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import UserError
from glassformer.interop.family import Settings, blank, options_of, recipe_of
from glassformer.interop.llama import LLAMA, llama_rules, paired
from glassformer.interop.model import Imported, assemble
from glassformer.interop.rules import Rule, plan, to_theirs
from glassformer.interop.tensors import Found
from glassformer.interop.vocabularies import sentencepiece_bpe
from glassformer.options import GPTOptions

HEADER = struct.Struct("<7i")
SPECIALS = ("<unk>", "<s>", "</s>")  # ids 0, 1, 2; a text begins with <s> and, since the next one begins, also ends with it
NAMES = {  # in the order of the file
    "embed": "token_embedding_table",
    "norm1": "rms_att_weight.{i}",
    "q": "wq.{i}",
    "k": "wk.{i}",
    "v": "wv.{i}",
    "o": "wo.{i}",
    "norm3": "rms_ffn_weight.{i}",
    "w1": "w1.{i}",
    "w2": "w2.{i}",
    "w3": "w3.{i}",
    "norm": "rms_final_weight",
    "output": "wcls",
}


def read_llama2c(path: Path) -> Imported:
    settings = _settings(path)
    recipe = recipe_of("language", options_of(LLAMA, settings, str(path)), settings["vocab_size"], {}, str(path))
    assert isinstance(recipe.model, GPTOptions)
    if path.stat().st_size < 4 * recipe.model.layers * recipe.model.width**2:  # the queries' matrices alone
        raise UserError(f"{path} is too short for the {recipe.model.layers} layers it announces. Copy it again.")
    rules = llama_rules(NAMES, *paired(recipe.model))
    found = _layout(path, recipe.model, rules, blank(recipe, settings["vocab_size"], 0))
    pieces, scores = _vocabulary(path, settings["vocab_size"])
    rust = sentencepiece_bpe(pieces, scores, str(path), specials=SPECIALS, space=" ", unknown="<unk>")
    specials = {"bos": "<s>", "eos": "<s>", "unk": "<unk>"}
    tokenizer = (rust.to_str(pretty=True), rust)
    return assemble(LLAMA, settings, found, tokenizer, specials, task="language", rules=lambda options: rules)


def _settings(path: Path) -> Settings:
    """In the words of a Hugging Face Llama."""
    with path.open("rb") as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size:
        raise UserError(f"{path} is too short: a llama2.c file begins with seven numbers, and this one has {len(head)} bytes.")
    dim, inner, layers, heads, kv_heads, vocabulary, length = HEADER.unpack(head)
    if head[:4] == b"24ka":
        raise UserError(f"{path} is of llama2.c's export version 1 or 2; only version 0, which run.c reads, is supported.")
    if (
        min(dim, inner, layers, heads, kv_heads, abs(vocabulary), length) < 1
        or dim % heads
        or dim // heads % 2
        or heads % kv_heads
    ):
        raise UserError(
            f"{path} is not a llama2.c file: it must begin with width, inner width, layers, heads, key/value heads, "
            f"vocabulary and length, all positive and fitting together; found {', '.join(map(str, HEADER.unpack(head)))}."
        )
    return {
        "hidden_size": dim,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": abs(vocabulary),
        "max_position_embeddings": length,
        "tie_word_embeddings": vocabulary > 0,  # a negative number says: not tied
        "rms_norm_eps": 1e-5,
    }


def _layout(path: Path, options: GPTOptions, rules: list[Rule], empty: dict[str, Tensor]) -> Found:
    """Where each tensor lies; tables of the rotary angles, which we compute ourselves, stand before an untied output matrix."""
    shapes = {name: tuple(x.shape) for name, x in to_theirs(plan(rules, empty), empty).items()}
    angles = options.max_length * options.width // options.heads
    sizes = [prod(shape) + (angles if name == "rms_final_weight.weight" else 0) for name, shape in shapes.items()]
    starts = dict(zip(shapes, accumulate(sizes, initial=0), strict=False))
    wanted, size = HEADER.size + 4 * sum(sizes), path.stat().st_size
    if size != wanted:
        what = "It may be cut short: copy it again." if size < wanted else "It may be of another format."
        raise UserError(f"{path} has {size:,} bytes, where a llama2.c file of its sizes has {wanted:,}. {what}")
    numbers = np.memmap(path, dtype="<f4", mode="r", offset=HEADER.size)

    def read(name: str) -> Tensor:
        start = starts[name]
        return torch.from_numpy(numbers[start : start + prod(shapes[name])].copy()).view(shapes[name])

    return Found(str(path), shapes, read)


def _vocabulary(path: Path, size: int) -> tuple[list[str], list[float]]:
    """The pieces and scores of a file beside the model, whose name begins with `tok`."""
    candidates = sorted(path.parent.glob("tok*.bin"))
    for candidate in candidates:
        if found := _read_vocabulary(candidate, size):
            return found
    named = f" ({', '.join(candidate.name for candidate in candidates)} has another number)" if candidates else ""
    raise UserError(
        f"{path} needs its vocabulary of {size} pieces beside it, as tokenizer.bin or tok{size}.bin; there is none{named}."
    )


def _read_vocabulary(path: Path, size: int) -> tuple[list[str], list[float]] | None:
    """The longest length, then for each piece its score, its length and its bytes; None if they are not `size` pieces."""
    if path.stat().st_size > (16 + 4096) * size:
        return None
    data, at = path.read_bytes(), 4
    pieces, scores = list(SPECIALS), [0.0] * len(SPECIALS)
    for id in range(size):
        if at + 8 > len(data):
            return None
        score, length = struct.unpack_from("<fi", data, at)
        at += 8 + length
        if length < 0 or at > len(data) or score != score:
            return None
        if id >= len(SPECIALS):
            pieces.append(data[at - length : at].decode("utf-8", "replace"))
            scores.append(score)
    return (pieces, scores) if at == len(data) and len(pieces) == size else None
