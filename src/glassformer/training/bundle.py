"""A trained model as the package ships it: weights in half precision, and its film if that is small enough.

python -m glassformer.training.bundle runs/zh-en src/glassformer/pretrained/zh-en
"""

import shutil
import sys
from pathlib import Path

import torch

from glassformer import film
from glassformer.store import find_model
from glassformer.tasks import registry
from glassformer.training.work import Report


def bundle(run: Path, folder: Path, report: Report, largest: int = film.LARGEST) -> None:
    """Writes recipe, vocabulary, weights, card and film of a run into a folder; what else is there stays."""
    registry.load(find_model(run)).save(folder, torch.float16)
    if (run / "card.md").is_file():
        shutil.copyfile(run / "card.md", folder / "card.md")
    size = film.pack(run, folder, largest)
    if size is not None:
        report(f"{folder}: with its film, {size / 1e6:.1f} MB.")
    elif film.files_of(run):
        report(f"{folder}: the film was left out, it is larger than {largest / 1e6:.1f} MB. Record fewer frames or probes.")
    else:
        report(f"{folder}: without a film, {run} has none.")


if __name__ == "__main__":
    bundle(Path(sys.argv[1]), Path(sys.argv[2]), print)
