"""`glassformer import`: whatever the source is, into a model folder of ours."""

import json
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from glassformer import config
from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.interop.family import blocks_of
from glassformer.interop.folders import check_free, folder_aside
from glassformer.interop.gguf_llama import read_gguf
from glassformer.interop.huggingface import read_folder
from glassformer.interop.llama2c import read_llama2c
from glassformer.interop.model import Imported
from glassformer.interop.sources import download, installed
from glassformer.interop.tensors import refuse_pickle
from glassformer.weights import write_tensors

FILES = ("recipe.toml", "tokenizer.json", "labels.json", "model.safetensors", "card.md")
KINDS = (
    "a Hugging Face folder (config.json, model.safetensors, tokenizer.json), a GGUF file, a llama2.c .bin file, "
    "an installed package that carries a GGUF file, or hf:NAME to download"
)


def import_model(source: str, out: Path, *, force: bool = False, report: Callable[[str], None] = lambda line: None) -> None:
    """Reads a model of another library and writes it to the folder `out`, whole or not at all."""
    check_free(out, FILES, force)
    path = find(source, report)
    report(f"Reading {path}")
    model = read(path)
    with folder_aside(out) as part:
        write_text(part / "recipe.toml", config.to_toml(model.recipe))
        (part / "tokenizer.json").write_bytes(model.tokenizer.encode())
        if model.labels:
            write_text(part / "labels.json", json.dumps(model.labels, ensure_ascii=False, indent=1) + "\n")
        write_tensors(part / "model.safetensors", model.weights)
        write_text(part / "card.md", _card(out.name, source, model))
    for line in model.about:
        report(line)
    report(f"{out}: {_summary(model)}")


def find(source: str, report: Callable[[str], None] = lambda line: None) -> Path:
    """The file or folder that `source` means."""
    if source.startswith("hf:"):
        report(f"Downloading {source}")
        return download(source.removeprefix("hf:"))
    path = Path(source)
    if path.exists():
        return path
    if found := installed(source):
        return found
    advice = f" If it is a package, install it first: pip install {source}" if path.name == source else ""
    raise UserError(f"There is no file, folder or installed package {source!r}. What can be imported is {KINDS}.{advice}")


def read(path: Path) -> Imported:
    """By what it is, not by what it is called."""
    if path.is_dir():
        if not (path / "config.json").is_file():
            named = (
                "It is a model of Glassformer already."
                if (path / "recipe.toml").is_file()
                else f"What can be imported is {KINDS}."
            )
            raise UserError(f"{path} is not a Hugging Face folder: it has no config.json. {named}")
        return read_folder(path)
    if not path.is_file():
        raise UserError(f"{path} is neither a file nor a folder.")
    refuse_pickle(path)
    with path.open("rb") as file:
        head = file.read(9)
    if head[:4] == b"GGUF":
        return read_gguf(path)
    if path.suffix == ".safetensors" or head[8:] == b"{":
        raise UserError(f"{path} holds tensors alone; give the folder it lies in, with its config.json and tokenizer.json.")
    if path.suffix == ".bin":
        return read_llama2c(path)
    raise UserError(f"{path} is of no known format (its first bytes are {head[:4]!r}). What can be imported is {KINDS}.")


def _card(name: str, source: str, model: Imported) -> str:
    options = blocks_of(model.recipe)
    lines = [
        f"# {name}: {model.recipe.task}, imported",
        "",
        f"- Imported from {source if source.startswith('hf:') else Path(source).name}.",
        f"- Model: {options.kind}, width {options.width}, {options.heads} heads, inner width {options.inner}; {_summary(model)}.",
        *(f"- {line}" for line in model.about),
        "- The licence and the data it was trained on are those of its source.",
    ]
    return "\n".join(lines) + "\n"


def _summary(model: Imported) -> str:
    numbers = sum(x.numel() for x in model.weights.values())
    return f"{numbers:,} parameters, {model.recipe.tokenizer.vocabulary:,} pieces, {_precision(model.weights)}"


def _precision(weights: dict[str, Tensor]) -> str:
    return " and ".join(sorted({str(x.dtype).removeprefix("torch.") for x in weights.values()}))
