"""Reading a Hugging Face folder: config.json, safetensors in one file or several, and tokenizer.json."""

from pathlib import Path
from typing import Any

import tokenizers as hf
from safetensors import SafetensorError, safe_open
from torch import Tensor

from glassformer.errors import UserError
from glassformer.interop.bert import BERT
from glassformer.interop.family import Family, Settings
from glassformer.interop.gpt2 import GPT2
from glassformer.interop.llama import LLAMA
from glassformer.interop.marian import MARIAN
from glassformer.interop.model import Imported, assemble, special_names
from glassformer.interop.tensors import HOW_TO_CONVERT, PICKLE, Found, refuse_pickle, under_new_names
from glassformer.interop.vocabularies import gpt2_vocabulary, load_tokenizer, read_json, read_text, wordpiece

FAMILIES = (GPT2, BERT, MARIAN, LLAMA)
BERT_TOKENS = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}


def read_folder(folder: Path) -> Imported:
    where = str(folder / "config.json")
    settings = read_json(folder / "config.json")
    family, task = _recognise(settings, where)
    found = under_new_names(_open(folder), family)
    tokenizer = _read_tokenizer(folder, family)
    labels = _labels(settings, where) if task in ("classify", "tag") else []
    options: dict[str, object] = {"output_bias": "final_logits_bias" in found.shapes} if family is MARIAN else {}
    specials = _specials(folder, family, settings, tokenizer[1])
    return assemble(family, settings, found, tokenizer, specials, task=task, labels=labels, options=options, where=where)


def _recognise(settings: Settings, where: str) -> tuple[Family, str]:
    named = settings.get("architectures")
    known = {name: (family, task) for family in FAMILIES for name, task in family.tasks.items()}
    for name in named if isinstance(named, list) else []:
        if isinstance(name, str) and name in known:
            return known[name]
    family = next((family for family in FAMILIES if family.model_type == settings.get("model_type")), None)
    if not named and family and len(family.tasks) == 1:
        return known[next(iter(family.tasks))]
    raise UserError(
        f"{where}: architectures is {named!r} (model_type {settings.get('model_type')!r}); "
        f"what can be imported is {', '.join(known)}."
    )


# -- tensors


def _open(folder: Path) -> Found:
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return _join(str(whole), {whole.name: _open_one(whole)})
    if index.is_file():
        return _join(str(index), {name: _open_one(folder / name) for name in _shards(index)})
    pickles = sorted(path.name for path in folder.glob("*.bin")) + sorted(path.name for path in folder.glob("*.pt*"))
    if pickles:
        raise UserError(
            f"{folder} has its weights as a pickle ({pickles[0]}) and not as model.safetensors. {PICKLE} {HOW_TO_CONVERT}"
        )
    raise UserError(f"{folder} has no weights: it needs model.safetensors, or model.safetensors.index.json and its parts.")


def _shards(index: Path) -> list[str]:
    """The files that an index names, which must lie beside it."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
        raise UserError(f"{index} must say in weight_map which file holds each tensor.")
    names = sorted(set(places.values()))
    for name in names:
        if Path(name).name != name or "\\" in name or not name.endswith(".safetensors"):
            raise UserError(f"{index} names the file {name!r}; its parts are .safetensors files in the same folder.")
        if not (index.parent / name).is_file():
            raise UserError(f"{index} names {name}, which is not there. Copy the folder again.")
    return names


def _open_one(path: Path) -> Any:
    refuse_pickle(path)
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is not a whole safetensors file ({error}). It may be cut short: copy it again.") from None


def _join(where: str, files: dict[str, Any]) -> Found:
    owners: dict[str, str] = {}
    for name, file in files.items():
        for tensor in file.keys():  # noqa: SIM118 (not a dict)
            if tensor in owners:
                raise UserError(f"{where}: {tensor} stands in both {owners[tensor]} and {name}.")
            owners[tensor] = name
    shapes = {tensor: tuple(files[owner].get_slice(tensor).get_shape()) for tensor, owner in owners.items()}

    def read(tensor: str) -> Tensor:
        try:
            x: Tensor = files[owners[tensor]].get_tensor(tensor)
        except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{where}: {tensor} cannot be read ({error}).") from None
        return x

    return Found(where, shapes, read)


# -- words


def _read_tokenizer(folder: Path, family: Family) -> tuple[str, hf.Tokenizer]:
    path = folder / "tokenizer.json"
    if path.is_file():
        text = read_text(path)
        rust = load_tokenizer(text, str(path))
        if rust.truncation or rust.padding:  # settings of whoever saved it, which transformers puts aside as well
            rust.no_truncation()
            rust.no_padding()
            text = rust.to_str(pretty=True)
        return text, rust
    said = _optional(folder / "tokenizer_config.json")
    accents = said.get("strip_accents")
    if family is GPT2 and (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        rust = gpt2_vocabulary(folder / "vocab.json", folder / "merges.txt")
    elif family is BERT and (folder / "vocab.txt").is_file():
        rust = wordpiece(
            folder / "vocab.txt",
            lowercase=said.get("do_lower_case") is not False,
            split_han=said.get("tokenize_chinese_chars") is not False,
            accents=accents if isinstance(accents, bool) else None,
        )
    else:
        raise UserError(f"{folder} has no tokenizer.json. {_without_tokenizer(folder)}")
    return rust.to_str(pretty=True), rust


def _without_tokenizer(folder: Path) -> str:
    if (folder / "source.spm").is_file():
        return (
            "Its source.spm and target.spm cut the two languages by different rules over one vocabulary, which one "
            "tokenizer.json cannot say exactly. Put a tokenizer.json beside them that was made for this model (converters for "
            "Transformers.js write one), or train a translator of your own."
        )
    return "Make one with: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER), of the library transformers."


def _specials(folder: Path, family: Family, settings: Settings, rust: hf.Tokenizer) -> dict[str, str]:
    """Which tokens begin, end and fill up a text. A beginning is set only where the tokenizer itself writes one."""
    said = {**_optional(folder / "special_tokens_map.json"), **_optional(folder / "tokenizer_config.json")}
    ids: dict[str, object] = {role: settings.get(f"{role}_token_id") for role in ("pad", "bos", "eos")}
    for role, key in (("unk", "unk_token"), ("mask", "mask_token"), ("pad", "pad_token")):
        name = said[key].get("content") if isinstance(said.get(key), dict) else said.get(key)
        if ids.get(role) is None and isinstance(name, str):
            ids[role] = rust.token_to_id(name)
    if family is BERT:
        ids = {role: rust.token_to_id(name) for role, name in BERT_TOKENS.items()}
    elif family is MARIAN:
        ids["bos"] = settings.get("decoder_start_token_id", ids["pad"])
    elif said.get("add_bos_token") is not True and ids["bos"] not in rust.encode("a", add_special_tokens=True).ids[:1]:
        del ids["bos"]
    return special_names(rust, ids)


def _optional(path: Path) -> Settings:
    return read_json(path) if path.is_file() else {}


def _labels(settings: Settings, where: str) -> list[str]:
    problem = settings.get("problem_type")
    if problem not in (None, "single_label_classification"):
        raise UserError(f"{where}: problem_type is {problem!r}; supported: single_label_classification (one label of several).")
    named = settings.get("id2label") or {str(i): f"LABEL_{i}" for i in range(_count(settings))}
    if not isinstance(named, dict) or set(named) != {str(i) for i in range(len(named))}:
        raise UserError(f"{where}: id2label must name the labels 0, 1, 2 …; found {str(named)[:100]}.")
    labels = [str(named[str(i)]) for i in range(len(named))]
    if len(labels) < 2:
        raise UserError(
            f"{where}: it has one label, so it predicts a number and not a class (regression), which is not supported."
        )
    if len(set(labels)) < len(labels):
        raise UserError(f"{where}: id2label gives two labels the same name; found {str(named)[:100]}.")
    return labels


def _count(settings: Settings) -> int:
    count = settings.get("num_labels")
    return count if isinstance(count, int) and 0 < count < 100_000 else 2
