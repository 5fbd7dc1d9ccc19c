"""Checkpoints: a folder each, appearing whole or not at all, from which a run goes on bit for bit."""

import json
import os
import shutil
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import UserError
from glassformer.files import sync, write_text
from glassformer.text.batches import Place
from glassformer.weights import load_weights, named_weights, read_tensors, write_tensors


@dataclass
class Progress:
    """Everything about a run that is not a tensor."""

    update: int = 0
    place: Place = field(default_factory=Place)
    seconds: float = 0.0
    tokens: int = 0
    best_update: int = 0
    best_score: float | None = None
    best_loss: float | None = None
    worse: int = 0  # validations since the best
    unlogged_labels: int = 0  # since the last line of the log, and their summed −log p
    unlogged_loss: float = 0.0
    loss: float | None = None  # the mean since that line
    threads: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)  # one entry a validation


class Checkpoints:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(".*.part"):  # left by a run that was killed while writing
            shutil.rmtree(part, ignore_errors=True)

    def path(self, update: int) -> Path:
        return self.folder / f"{update:08d}"

    def updates(self) -> list[int]:
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def write(self, model: nn.Module, optimiser: torch.optim.Optimizer, ema: dict[str, Tensor], progress: Progress) -> None:
        path = self.path(progress.update)
        part = path.with_name(f".{path.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        try:
            part.mkdir()
            write_tensors(part / "model.safetensors", named_weights(model))
            write_tensors(part / "optimiser.safetensors", _flatten(model, optimiser) | {"random": torch.get_rng_state()})
            if ema:
                write_tensors(part / "ema.safetensors", ema)
            write_text(part / "progress.json", json.dumps(asdict(progress), indent=1))
            shutil.rmtree(path, ignore_errors=True)
            sync(part)
            os.replace(part, path)
            sync(self.folder)
        except (OSError, UserError) as error:
            shutil.rmtree(part, ignore_errors=True)
            last = self.updates()
            kept = f"The last whole checkpoint, {self.path(last[-1])}, is intact." if last else "There is no earlier checkpoint."
            raise UserError(f"Saving the checkpoint of update {progress.update} failed: {error}\n{kept}") from None

    def read(self, model: nn.Module, optimiser: torch.optim.Optimizer, ema: dict[str, Tensor]) -> Progress | None:
        """Puts the newest checkpoint into model, optimiser, moving average and random state; None if there is none."""
        updates = self.updates()
        if not updates:
            return None
        path = self.path(updates[-1])
        load_weights(model, path / "model.safetensors")
        state = read_tensors(path / "optimiser.safetensors")
        torch.set_rng_state(state.pop("random"))
        _unflatten(model, optimiser, state)
        if ema:
            ema.update(read_tensors(path / "ema.safetensors"))
        raw = json.loads((path / "progress.json").read_text(encoding="utf-8"))
        known = {key: raw[key] for key in raw.keys() & {f.name for f in fields(Progress)}}  # another version may have had others
        return Progress(**{**known, "place": Place(**raw["place"])})

    def prune(self, keep: set[int]) -> None:
        """Removes all but the newest and those to keep, of which only the weights are needed."""
        for update in self.updates()[:-1]:
            if update in keep:
                (self.path(update) / "optimiser.safetensors").unlink(missing_ok=True)
            else:
                shutil.rmtree(self.path(update), ignore_errors=True)

    def weights(self, update: int, kind: str = "model") -> dict[str, Tensor]:
        return read_tensors(self.path(update) / f"{kind}.safetensors")

    def average(self, updates: list[int]) -> dict[str, Tensor]:
        """The mean of the weights of these checkpoints."""
        total: dict[str, Tensor] = {}
        for update in updates:
            for name, x in self.weights(update).items():
                total[name] = total[name] + x.double() if name in total else x.double()
        return {name: (x / len(updates)).float() for name, x in total.items()}


def _flatten(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    return {f"{names[p]}/{key}": x for p, values in optimiser.state.items() for key, x in values.items()}


def _unflatten(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for path, x in tensors.items():
        name, key = path.rsplit("/", 1)
        optimiser.state[parameters[name]][key] = x
