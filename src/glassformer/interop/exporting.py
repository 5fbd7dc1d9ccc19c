"""`glassformer export`: a model folder of ours as another library reads it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers as hf
import torch
from torch import Tensor

from glassformer import config
from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.interop.bert import BERT
from glassformer.interop.family import ROLES, Family, Settings, blank, blocks_of, complete, obstacles, settings_of
from glassformer.interop.folders import check_free, folder_aside
from glassformer.interop.gpt2 import GPT2
from glassformer.interop.llama import LLAMA
from glassformer.interop.marian import MARIAN
from glassformer.interop.rules import plan, to_theirs
from glassformer.interop.vocabularies import add_marks, load_tokenizer, read_text
from glassformer.options import BertOptions, GPTOptions, PairData, Recipe, TextData
from glassformer.store import find_model
from glassformer.weights import read_tensors, write_tensors

FORMATS = ("huggingface", "ctranslate2")
GENERATION = ("decoder_start_token_id", "eos_token_id", "pad_token_id", "forced_eos_token_id")  # what Marian generates by
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def export_model(
    model: str,
    to: str,
    out: Path,
    *,
    quantization: str = "",
    force: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> None:
    """Writes a model of ours as a folder that `transformers` or CTranslate2 loads, whole or not at all."""
    if to not in FORMATS:
        raise UserError(f"A model cannot be exported to {to!r}; there is {', '.join(FORMATS)}.")
    if quantization and to != "ctranslate2":
        raise UserError(f"--quantization is for --to ctranslate2; {to} has the weights as they are.")
    folder = find_model(model)
    recipe = config.read(folder / "recipe.toml")
    if to == "ctranslate2":
        from glassformer.interop import to_ctranslate2  # late: it may not be installed

        return to_ctranslate2.export(model, folder, recipe, out, quantization or "float32", force=force, report=report)
    check_free(out, FILES, force)
    family = _family(recipe, model)
    labels = _labels(folder) if recipe.task in ("classify", "tag", "compare") else []
    weights = read_tensors(folder / "model.safetensors")
    rust = load_tokenizer(read_text(folder / "tokenizer.json"), str(folder / "tokenizer.json"))
    _add_marks(rust, recipe)
    files: dict[str, Settings] = {"config.json": _settings(family, recipe, rust, labels)}
    files["tokenizer_config.json"] = _tokenizer_settings(recipe)
    if family is MARIAN:
        files["generation_config.json"] = {key: files["config.json"][key] for key in GENERATION if key in files["config.json"]}
    with folder_aside(out) as part:
        for name, settings in files.items():
            write_text(part / name, json.dumps(settings, ensure_ascii=False, indent=2) + "\n")
        write_text(part / "tokenizer.json", rust.to_str(pretty=True))
        write_tensors(part / "model.safetensors", _tensors(family, recipe, weights, rust, labels, folder))
    report(f"{out}: {files['config.json']['architectures'][0]}, for AutoModel….from_pretrained and AutoTokenizer.from_pretrained")
    if isinstance(recipe.data, PairData) and recipe.data.both_ways:
        report(f"Its texts begin with the language wanted: <2{recipe.data.source}> or <2{recipe.data.target}>.")


def _family(recipe: Recipe, model: str) -> Family:
    """The family that the model has a form in, or why there is none."""
    options: Any = recipe.model
    if isinstance(options, BertOptions) and recipe.task in ("fill", "tag"):
        options = replace(options, pooling="first")  # it plays no part
    candidates = [family for family in (GPT2, LLAMA, BERT, MARIAN) if family.kind == options.kind]
    if not candidates:
        other = f" Its vectors: glassformer vectors export {model}" if recipe.task == "vectors" else ""
        raise UserError(f"{model} is a model of the kind {options.kind!r}, of which transformers has none.{other}")
    family, found = min(((family, obstacles(family, options)) for family in candidates), key=lambda each: len(each[1]))
    if not recipe.tokenizer.shared:
        found.append(f"tokenizer.shared is false; a {family.name} has one vocabulary")
    if found:
        raise UserError(f"{model} has no form that transformers knows; the nearest is {family.name}:\n  " + "\n  ".join(found))
    return family


def _labels(folder: Path) -> list[str]:
    try:
        labels = json.loads(read_text(folder / "labels.json"))
    except ValueError as error:
        raise UserError(f"{folder / 'labels.json'} is not valid JSON: {error}.") from None
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
        raise UserError(f"{folder / 'labels.json'} is not a list of labels; a model that predicts a number is not exported.")
    return labels


def _settings(family: Family, recipe: Recipe, rust: hf.Tokenizer, labels: list[str]) -> Settings:
    task = "classify" if recipe.task == "compare" else recipe.task
    settings = {
        "architectures": [name for name, served in family.tasks.items() if served == task][:1],
        "model_type": family.model_type,
        **settings_of(family, blocks_of(recipe)),
        "vocab_size": _size(rust),
        "dtype": "float32",
        "torch_dtype": "float32",  # the same, for version 4
    }
    for role in ("pad", "bos", "eos"):
        settings[f"{role}_token_id"] = rust.token_to_id(getattr(recipe.tokenizer, role))
    if family is MARIAN:
        settings["decoder_start_token_id"] = settings.pop("bos_token_id")
        settings["forced_eos_token_id"] = settings["eos_token_id"]
        settings["decoder_vocab_size"] = settings["vocab_size"]
    if labels:
        settings["id2label"] = {str(i): label for i, label in enumerate(labels)}
        settings["label2id"] = {label: i for i, label in enumerate(labels)}
    return settings


def _tokenizer_settings(recipe: Recipe) -> Settings:
    named = {f"{role}_token": name for role in ROLES if (name := getattr(recipe.tokenizer, role))}
    if isinstance(recipe.model, BertOptions):
        named |= {"cls_token": recipe.tokenizer.bos, "sep_token": recipe.tokenizer.eos}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": recipe.model.max_length,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", *(["token_type_ids"] if recipe.model.kind == "bert" else []), "attention_mask"],
        **named,
    }


def _add_marks(rust: hf.Tokenizer, recipe: Recipe) -> None:
    """What our tasks put around a text, unless the vocabulary says it already."""
    if rust.post_processor is not None:
        return
    bos, eos = recipe.tokenizer.bos, recipe.tokenizer.eos
    if isinstance(recipe.data, TextData) and isinstance(recipe.model, GPTOptions):
        add_marks(rust, [bos] if bos and recipe.data.documents == "line" else [], [])
    elif isinstance(recipe.model, BertOptions):
        add_marks(rust, [bos], [eos])
    else:
        add_marks(rust, [], [eos])


def _tensors(
    family: Family, recipe: Recipe, weights: dict[str, Tensor], rust: hf.Tokenizer, labels: list[str], folder: Path
) -> dict[str, Tensor]:
    """Under their names; what the family always has and ours does not is zeros."""
    wanted = blank(recipe, _size(rust), len(labels))
    if wrong := [
        name
        for name in {*wanted, *weights}
        if name not in weights or weights[name].shape != wanted.get(name, torch.empty(0)).shape
    ]:
        raise UserError(
            f"{folder} is not whole: its recipe, vocabulary and weights do not agree on {', '.join(sorted(wrong)[:5])}."
        )
    whole = blank(replace(recipe, model=complete(family, blocks_of(recipe))), _size(rust), len(labels))
    full = {name: weights[name] if name in weights else torch.zeros(x.shape) for name, x in whole.items()}
    return to_theirs(plan(family.rules(blocks_of(recipe), recipe.task), full), full)


def _size(rust: hf.Tokenizer) -> int:
    return max(rust.get_vocab(with_added_tokens=True).values(), default=-1) + 1
