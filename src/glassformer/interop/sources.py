"""Where a model is found by a name: on the Hugging Face Hub, or in a package that is installed here."""

import importlib.metadata
import re
from pathlib import Path

from glassformer.errors import UserError

FILES = ["*.safetensors", "*.json", "merges.txt", "vocab.txt"]


def download(name: str) -> Path:
    """The folder of a model of the Hub, fetched if it is not yet here; never a pickle."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise UserError(f"hf:{name} is not the name of a model; write hf:gpt2 or hf:ORGANISATION/NAME.")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UserError("Downloading needs the package huggingface_hub: pip install 'glassformer[import]'") from None
    try:
        return Path(snapshot_download(name, allow_patterns=FILES, ignore_patterns=["*/*"]))
    except Exception as error:  # of many kinds: no network, no such model, not allowed, no room
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(
            f"hf:{name} could not be downloaded: {reason} "
            "Check the name and the network; a folder that was downloaded elsewhere can be imported by its path."
        ) from None


def installed(name: str) -> Path | None:
    """The GGUF file that an installed package carries, without running any of its code; None if there is no such package."""
    try:
        files = importlib.metadata.distribution(name).files or []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if len(found) != 1:
        carried = ", ".join(str(path) for path in found) or "none"
        raise UserError(f"The package {name} is installed, but carries not one GGUF file: {carried}. Give the path of a file.")
    return found[0]
