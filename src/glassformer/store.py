"""Which models there are: the bundled ones, and those trained in runs/ or imported into models/ here."""

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.options import Recipe

BUNDLED = Path(__file__).parent / "pretrained"
HERE = (Path("runs"), Path("models"))


def bundled() -> list[Path]:
    return sorted(path.parent for path in BUNDLED.glob("*/model.safetensors"))


def trained() -> list[Path]:
    found = (path.parent for folder in HERE for path in folder.glob("*/model.safetensors"))
    return sorted(folder for folder in found if (folder / "recipe.toml").is_file())  # an exported folder has none


def runs() -> list[Path]:
    """The folders of trainings here, finished or not; those of a race lie in the race's folder."""
    found = (path.parent for depth in ("*", "*/*") for path in HERE[0].glob(f"{depth}/recipe.toml"))
    return sorted(folder for folder in found if (folder / "log.jsonl").is_file())


def describe(folder: Path) -> str:
    """One line: what to call it, what it does, how large it is."""
    from glassformer import config  # late: only a listing needs it

    recipe = config.read(folder / "recipe.toml")
    name = folder.name if folder.parent == BUNDLED else str(folder)
    size = (folder / "model.safetensors").stat().st_size / 1e6
    return f"{name}\t{recipe.task}\t{title(recipe)}\t{recipe.model.kind}\t{size:.1f} MB"


def title(recipe: "Recipe") -> str:
    """What it is about, in a few words."""
    from glassformer.options import PairData

    data = recipe.data
    if isinstance(data, PairData):
        return f"{data.source} {'⇄' if data.both_ways else '→'} {data.target}"
    first = Path(data.train[0] if data.train else "imported")
    corpus = first.name if first.is_absolute() else first.parts[0]
    return f"{recipe.task}, {corpus}" if recipe.task != "language" else corpus


def find_model(name: str | Path) -> Path:
    """The folder of a bundled model, or the folder itself; if there is none, what exists."""
    name, path = str(name), Path(name)
    for folder in (path, BUNDLED / name if path.name == name else path):
        if (folder / "model.safetensors").is_file() and (folder / "recipe.toml").is_file():
            return folder
    raise UserError(_missing(name, path))


def _missing(name: str, path: Path) -> str:
    known = [folder.name for folder in bundled()] + [str(folder) for folder in trained()]
    if path.is_dir() and (path / "checkpoints").is_dir():
        return f"{name} is a run that has not finished: it has no model.safetensors yet. Go on with: glassformer train {name}"
    if path.is_dir():
        return f"{name} is a folder without a model: it needs recipe.toml, tokenizer.json and model.safetensors. {_known(known)}"
    if path.is_file():
        return f"{name} is a file; a model is the folder with recipe.toml, tokenizer.json and model.safetensors. {_known(known)}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"There is no model {name!r}." + (f" Did you mean {near[0]}?" if near else "") + f" {_known(known)}"


def _known(known: list[str]) -> str:
    return f"There are: {', '.join(known)}." if known else "None is bundled, and none is in runs/ or models/ here."
