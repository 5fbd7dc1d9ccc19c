"""What every task is: a recipe, a model, a loss, and a folder it is kept in."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from glassformer import config
from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.options import Recipe
from glassformer.trace import Token
from glassformer.weights import Unfilled, load_weights, named_weights, write_tensors

Ids = list[int]


class Task(ABC):
    """A model and what is done with it. Each task adds its own answers."""

    recipe: Recipe
    model: nn.Module
    name: str = ""  # of the folder it was loaded from

    @classmethod
    @abstractmethod
    def build(cls, folder: Path, recipe: Recipe) -> Self:
        """With the vocabulary (and labels) that lie in the folder, and fresh weights."""

    @classmethod
    def load(cls, folder: Path, weights: Path | None = None) -> Self:
        """From a model folder: recipe.toml, tokenizer.json (or one for each side), labels.json if it has labels, and
        model.safetensors, or other weights of the same model, such as a checkpoint's."""
        recipe = config.read(folder / "recipe.toml")
        with Unfilled():
            task = cls.build(folder, recipe)
        load_weights(task.model, weights or folder / "model.safetensors")
        task.model.eval()
        task.name = folder.resolve().name
        return task

    def save(self, folder: Path, dtype: torch.dtype | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "recipe.toml", config.to_toml(self.recipe))
        self.save_words(folder)
        write_tensors(folder / "model.safetensors", named_weights(self.model), dtype)

    @abstractmethod
    def save_words(self, folder: Path) -> None:
        """The vocabulary, and the labels if there are some."""

    @abstractmethod
    def loss(self, batch: Any, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Sums over the batch's labels: the loss to train by, which has a gradient, and the one that is reported."""

    def states(self, text: str) -> tuple[list[Token], Tensor]:
        """What is read of a text, and the last state of each token where it stands (T, D)."""
        raise UserError(
            f"A {self.recipe.model.kind} model gives a word one vector, wherever it stands. Its states in a sentence come from a "
            "model that reads whole sentences, such as zh-en."
        )


def pad(rows: list[Ids], fill: int) -> Tensor:
    """Lists of unequal length → (B, longest), filled up."""
    longest = max(map(len, rows))
    return torch.tensor([row + [fill] * (longest - len(row)) for row in rows])
