"""Which class serves a task."""

from pathlib import Path

from glassformer import config
from glassformer.options import Recipe
from glassformer.tasks import compare
from glassformer.tasks.classify import Classify
from glassformer.tasks.fill import Fill
from glassformer.tasks.language import Language
from glassformer.tasks.tag import Tag
from glassformer.tasks.task import Task
from glassformer.tasks.translate import Translate
from glassformer.tasks.vectors import Vectors

TASKS: dict[str, type[Task]] = {
    "translate": Translate,
    "language": Language,
    "fill": Fill,
    "classify": Classify,
    "tag": Tag,
    "vectors": Vectors,
}


def task_of(recipe: Recipe) -> type[Task]:
    return compare.of(recipe) if recipe.task == "compare" else TASKS[recipe.task]


def load(folder: Path, weights: Path | None = None) -> Task:
    return task_of(config.read(folder / "recipe.toml")).load(folder, weights)
