"""A Llama in GGUF: its settings, names and vocabulary."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as hf

from glassformer.errors import UserError
from glassformer.interop.family import Settings
from glassformer.interop.gguf import Metadata, read_header
from glassformer.interop.llama import LLAMA, llama_rules, paired
from glassformer.interop.model import Imported, assemble, special_names
from glassformer.interop.vocabularies import CUTS, byte_level, mark_special, sentencepiece_bpe

SIZES = {  # without the prefix "llama."; the first six must be there
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "context_length": "max_position_embeddings",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
}
NAMES = {
    "embed": "token_embd",
    "norm1": "blk.{i}.attn_norm",
    "q": "blk.{i}.attn_q",
    "k": "blk.{i}.attn_k",
    "v": "blk.{i}.attn_v",
    "o": "blk.{i}.attn_output",
    "norm3": "blk.{i}.ffn_norm",
    "w1": "blk.{i}.ffn_gate",
    "w2": "blk.{i}.ffn_down",
    "w3": "blk.{i}.ffn_up",
    "norm": "output_norm",
    "output": "output",
}
ROLES = {"pad": "padding", "bos": "bos", "eos": "eos", "unk": "unknown"}
CONTROL, USER_DEFINED = 3, 4  # kinds of tokens


def read_gguf(path: Path) -> Imported:
    said, found = read_header(path)
    settings = _settings(said)
    settings["tie_word_embeddings"] = "output.weight" not in found.shapes
    settings["attention_bias"] = settings["mlp_bias"] = any(name.endswith(".bias") for name in found.shapes)
    if "rope_freqs.weight" in found.shapes:
        raise UserError(f"{path} stretches its rotary positions (rope_freqs.weight, as Llama 3.1 does), which is not supported.")
    rust = _tokenizer(said)
    model = assemble(
        LLAMA,
        settings,
        found,
        (rust.to_str(pretty=True), rust),
        _specials(said, rust),
        task="language",
        rules=lambda options: llama_rules(NAMES, *paired(options)),
    )
    for key, label in (("name", "Name"), ("license", "Licence")):
        if value := said.get(f"general.{key}", str):
            model.about.append(f"{label}: {value}.")
    return model


def _settings(said: Metadata) -> Settings:
    """In the words of a Hugging Face Llama."""
    family = said.get("general.architecture", str)
    if family != "llama":
        raise UserError(
            f"{said.path} holds a model of the architecture {family!r}; of GGUF files those of 'llama' can be imported."
        )
    settings = {theirs: said.get(f"llama.{key}", int, float) for key, theirs in SIZES.items()}
    if missing := [f"llama.{key}" for key in list(SIZES)[:6] if settings[SIZES[key]] is None]:
        raise UserError(f"{said.path} does not say {', '.join(missing)}.")
    if experts := said.get("llama.expert_count", int):
        raise UserError(f"{said.path} is a mixture of {experts} experts (llama.expert_count), which is not supported.")
    scaling = said.get("llama.rope.scaling.type", str)
    settings["rope_scaling"] = None if scaling == "none" else scaling
    settings["sliding_window"] = settings["sliding_window"] or None
    settings["vocab_size"] = len(said.get("tokenizer.ggml.tokens", list, default=[]))
    single = settings["head_dim"] or settings["hidden_size"] // max(1, settings["num_attention_heads"])
    for key in ("rope.dimension_count", "attention.value_length"):
        if (value := said.get(f"llama.{key}", int, default=single)) != single:
            raise UserError(f"{said.path}: llama.{key} is {value}; supported: {single}, the width of a head.")
    return settings


def _tokenizer(said: Metadata) -> hf.Tokenizer:
    tokens: list[str] = said.get("tokenizer.ggml.tokens", list, default=[])
    model = said.get("tokenizer.ggml.model", str)
    kinds = _numbers(said, "token_type", len(tokens))
    named = {
        kind: [token for token, each in zip(tokens, kinds, strict=True) if each == kind and token]
        for kind in (CONTROL, USER_DEFINED)
    }
    if model == "gpt2":
        rust = _byte_level(said, tokens)
        mark_special(rust, named[CONTROL])
    elif model == "llama":
        unknown = said.get("tokenizer.ggml.unknown_token_id", int, default=0)
        rust = sentencepiece_bpe(
            tokens,
            _numbers(said, "scores", len(tokens)).tolist(),
            str(said.path),
            specials=named[CONTROL],
            prefix=said.get("tokenizer.ggml.add_space_prefix", bool, default=True),
            unknown=tokens[unknown] if 0 <= unknown < len(tokens) else None,
        )
    else:
        raise UserError(f"{said.path} has a vocabulary of the kind {model!r} (tokenizer.ggml.model); supported: gpt2, llama.")
    mark_special(rust, named[USER_DEFINED], special=False)
    return rust


def _byte_level(said: Metadata, tokens: list[str]) -> hf.Tokenizer:
    cut = said.get("tokenizer.ggml.pre", str, default="default")
    if cut not in CUTS:
        raise UserError(f"{said.path} cuts words as {cut!r} (tokenizer.ggml.pre); supported: {', '.join(CUTS)}.")
    merges: list[str] = said.get("tokenizer.ggml.merges", list, default=[])
    parts = [re.fullmatch(r"(?s)(.[^ ]*) (.+)", merge) for merge in merges]
    pairs = [(part[1], part[2]) for part in parts if part]
    if len(pairs) < len(merges):
        raise UserError(
            f"{said.path}: the merges of its vocabulary (tokenizer.ggml.merges) must be two pieces with a space between."
        )
    vocabulary = {token: id for id, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        raise UserError(f"{said.path}: {len(tokens) - len(vocabulary)} tokens stand twice in its vocabulary.")
    return byte_level(vocabulary, pairs, str(said.path), cut=cut, whole=cut == "llama-bpe")


def _numbers(said: Metadata, key: str, count: int) -> np.ndarray[Any, Any]:
    numbers: np.ndarray[Any, Any] = said.get(f"tokenizer.ggml.{key}", np.ndarray, default=np.empty(0))
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise UserError(f"{said.path} has {count} tokens, but not as many finite numbers in tokenizer.ggml.{key}.")
    return numbers


def _specials(said: Metadata, rust: hf.Tokenizer) -> dict[str, str]:
    """llama.cpp begins a text with a mark if the file says so, or if it is silent and the vocabulary of a kind that does."""
    ids = {role: said.get(f"tokenizer.ggml.{key}_token_id", int) for role, key in ROLES.items()}
    usual = said.get("tokenizer.ggml.model", str) == "llama" or said.get("tokenizer.ggml.pre", str) == "llama-bpe"
    if not said.get("tokenizer.ggml.add_bos_token", bool, default=usual):
        del ids["bos"]
    return special_names(rust, ids)
