"""A race: several recipes trained on the same data with the same number of tokens, and what came of each.

A race folder holds `race.json` (what was asked for), `NAME.toml` (every recipe as it is run), `NAME/` (its run folder), and in
the end race.csv, curves.csv, lengths.csv and race.svg. Whatever stopped it, it goes on from there, as it was begun.
"""

import dataclasses
import json
import shlex
import shutil
import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from glassformer import config
from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.models.stack import parameters
from glassformer.options import PairData, Recipe
from glassformer.tasks import registry
from glassformer.text.batches import Place
from glassformer.text.datasets import find as find_corpus
from glassformer.training.checkpoints import Progress
from glassformer.training.judging import Measure, judge, of_pieces, quality
from glassformer.training.labels import LabelWork, TagWork
from glassformer.training.pairs import PairWork
from glassformer.training.run import LOCK, anchored, differences, going_on_with, prepare_run, say, train_in
from glassformer.training.standings import RESULTS, Finish, differing, on_the_same_texts, write_results
from glassformer.training.work import Find, Work

MEASURED = 40  # batches that tokens per update are counted on
VALIDATIONS = 12  # of each run, at most: the points of its curve


@dataclass(frozen=True)
class Asked:
    """What a race was asked for."""

    names: list[str]
    tokens: int
    quality: float | None
    limit: int
    recipes: dict[str, str] = field(default_factory=dict)  # by name, as TOML, before they were given the same tokens
    updates: dict[str, int] = field(default_factory=dict)  # those that make up the tokens
    dev_left_out: int = 0  # dev texts that some of the models cannot read


@dataclass(frozen=True)
class Race:
    finishes: list[Finish]
    quality: float  # whose time is told
    notes: list[str]  # what the tables are about


def start(
    recipes: Sequence[Path],
    out: Path,
    overrides: list[str],
    data_dir: Path | None,
    *,
    tokens: int = 0,
    quality: float | None = None,
    limit: int | None = None,
) -> Race:
    """`glassformer race`: begins a race, or goes on with the one in the folder `out`; without a `quality`, or with 0,
    the time is told to what the weakest reached at its best."""
    near = recipes[0].resolve().parent if recipes else None
    find: Find = lambda name: find_corpus(name, data_dir, near)  # noqa: E731
    if recipes:
        _check_paths(recipes, out)
        given = {path.stem: anchored(config.read(path, overrides), path.resolve().parent) for path in recipes}
        check_shared(given)
        asked = _same(out, given, tokens) if (out / "race.json").exists() else _begin(given, out, find, tokens, quality, limit)
    else:
        asked = read_race(out)
    asked = _kept(asked, out, quality, limit)
    _check_unchanged(asked, out)
    with going_on_with(_command(out)):
        finishes = [
            _run(name, out, find, f"{number} of {len(asked.names)}", asked) for number, name in enumerate(asked.names, start=1)
        ]
    finishes, notes = on_the_same_texts(finishes, asked.dev_left_out)
    measure = finishes[0].measure
    reached = measure.worst([finish.best for finish in finishes]) if asked.quality is None else asked.quality
    write_results(out, finishes, reached)
    return Race(finishes, reached, [*differing(finishes), *notes])


def _command(out: Path) -> str:
    """What goes on with a race."""
    return f"glassformer race {shlex.quote(str(out))}"


def read_race(out: Path) -> Asked:
    try:
        kept = json.loads((out / "race.json").read_text(encoding="utf-8"))
        return Asked(**kept)
    except FileNotFoundError:
        raise UserError(
            f"{out} is not a race folder: it has no race.json. Begin one with recipes: glassformer race A.toml B.toml"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{out / 'race.json'} cannot be read: {error}. Begin the race anew with another --out.") from None


def _kept(asked: Asked, out: Path, quality: float | None, limit: int | None) -> Asked:
    """With another --quality or --limit, which change what is told and not what is trained, and are asked for from now on."""
    now = dataclasses.replace(
        asked,
        quality=asked.quality if quality is None else quality or None,
        limit=asked.limit if limit is None else limit,
    )
    if now != asked:
        _write(now, out)
    return now


def _write(asked: Asked, out: Path) -> None:
    write_text(out / "race.json", json.dumps(dataclasses.asdict(asked), indent=1) + "\n")


def check_shared(recipes: dict[str, Recipe]) -> None:
    """A race is about one thing: all recipes have one task, and the same data."""
    tasks = {name: recipe.task for name, recipe in recipes.items()}
    if len(set(tasks.values())) > 1:
        listed = ", ".join(f"{name} is {task}" for name, task in tasks.items())
        raise UserError(f"The recipes of a race share one task; these do not: {listed}. Race those of one task at a time.")
    if "vectors" in tasks.values():
        raise UserError(
            "A race is judged by what models answer, and word vectors answer nothing. "
            "Train each, and compare them with: glassformer vectors evaluate"
        )
    first, *others = recipes
    for name in others:
        mine, theirs = dataclasses.asdict(recipes[first].data), dataclasses.asdict(recipes[name].data)
        if different := [f"data.{key}" for key in mine if mine[key] != theirs[key] and key != "max_length"]:
            raise UserError(
                f"The recipes of a race share their data; {name} differs from {first} in {', '.join(different)}. "
                "Make them the same, for instance with --set."
            )
    _check_measure(recipes)
    data = recipes[first].data
    if not data.dev and not getattr(data, "dev_share", 0):
        raise UserError("A race is judged by the dev data, and these recipes have none: give data.dev.")


def _check_measure(recipes: dict[str, Recipe]) -> None:
    """All are measured by the same, on the same dev texts."""
    first, *others = recipes.values()
    kept = {"training.bleu_sentences"} if isinstance(first.data, PairData) else set()
    if of_pieces(first.task, first.training.bleu_sentences):
        kept |= {"model.max_length"} if first.task == "fill" else set()
        kept |= {f"tokenizer.{key}" for key in dataclasses.asdict(first.tokenizer)}
    for name, other in zip(list(recipes)[1:], others, strict=True):
        if different := sorted(differences(first, other) & kept):
            raise UserError(
                f"The recipes of a race are measured alike; {name} differs from {next(iter(recipes))} in {', '.join(different)}, "
                "so what a validation says of them could not be compared. Make them the same, for instance with --set."
            )


def _check_paths(paths: Sequence[Path], out: Path) -> None:
    if len({path.stem for path in paths}) < len(paths):
        raise UserError("The recipes of a race are told apart by their file names; two of these have the same.")
    if len(paths) == 1 and not paths[0].exists():
        raise UserError(f"There is neither a recipe nor a race folder {paths[0]}. Begin a race: glassformer race A.toml B.toml")
    if len(paths) < 2:
        raise UserError(f"A race needs two recipes at least; found {len(paths)}. One alone is trained with: glassformer train")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; a race needs a folder.")
    taken = {name.casefold() for name in ("race.json", *RESULTS, *(f"{path.stem}.toml" for path in paths))}
    for path in paths:
        if path.stem.startswith(".") or path.stem.casefold() in taken:
            why = "begins with a dot" if path.stem.startswith(".") else "is that of a file of the race"
            raise UserError(
                f"The recipe {path} would be run in the folder {path.stem!r} of the race, and that name {why}. "
                "Give the recipe another file name, such as gru.toml."
            )


def _same(out: Path, recipes: dict[str, Recipe], tokens: int) -> Asked:
    """The race in this folder, if it is the one that is asked for."""
    asked = read_race(out)
    different = [f"--tokens ({asked.tokens:,} there, {tokens:,} here)"] if tokens and tokens != asked.tokens else []
    if asked.names != list(recipes):
        different = [f"the recipes ({', '.join(asked.names)} there)"]
    elif asked.recipes:
        for name, recipe in recipes.items():
            changed = sorted(differences(_recipe(asked, name), recipe))
            different += [f"{key} of {name}" for key in changed]
    if different:
        raise UserError(
            f"{out} is another race: what differs is {', '.join(different)}.\n"
            f"Go on with it as it was begun: {_command(out)}\nOr begin this one elsewhere: --out {shlex.quote(f'{out}-2')}"
        )
    return asked


def _recipe(asked: Asked, name: str) -> Recipe:
    return config.from_dict(tomllib.loads(asked.recipes[name]), name)


def _check_unchanged(asked: Asked, out: Path) -> None:
    for name in asked.recipes:
        path = out / f"{name}.toml"
        if changed := sorted(differences(with_updates(_recipe(asked, name), asked.updates[name]), config.read(path))):
            raise UserError(
                f"{path} was changed after the race had begun, in {', '.join(changed)}: it would no longer be one race. "
                "Undo that, or begin another race with the new recipe and another --out."
            )


def with_updates(recipe: Recipe, updates: int) -> Recipe:
    """The recipe as a race runs it: all that depends on how long it trains made to fit."""
    every = -(-updates // VALIDATIONS)
    warmup = min(recipe.training.warmup, max(1, updates // 4))
    training = dataclasses.replace(recipe.training, updates=updates, validate_every=every, patience=0, warmup=warmup)
    return dataclasses.replace(recipe, training=training)


def _begin(recipes: dict[str, Recipe], out: Path, find: Find, tokens: int, quality: float | None, limit: int | None) -> Asked:
    if out.is_dir() and any(out.iterdir()) and not (out / ".race").exists():
        raise UserError(f"{out} is not a race folder, and not empty; choose another --out.")
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / ".race", "")  # marks the folder as ours before anything is in it
    rates: dict[str, float] = {}
    readable: dict[str, list[Any]] = {}
    for name, recipe in recipes.items():
        say(f"{name}: preparing")
        shutil.rmtree(out / name, ignore_errors=True)  # what a race that never began has left
        (out / name).mkdir()
        (out / name / LOCK).touch()  # what a training knows its folder by
        work = prepare_run(recipe, out / name, find, lambda words: None)
        rates[name] = tokens_per_update(work)
        if isinstance(work, PairWork | TagWork):
            readable[name] = list(work.dev)
    left_out = share_dev(out, readable) if readable else 0
    first = next(iter(recipes))
    tokens = tokens or round(rates[first] * recipes[first].training.updates)
    updates = {name: max(1, round(tokens / rates[name])) for name in recipes}
    for name, recipe in recipes.items():
        write_text(out / f"{name}.toml", config.to_toml(with_updates(recipe, updates[name])))
    texts = {name: config.to_toml(recipe) for name, recipe in recipes.items()}
    asked = Asked(list(recipes), tokens, quality or None, limit or 0, texts, updates, left_out)
    _write(asked, out)  # last: the race is whole
    return asked


def share_dev(out: Path, readable: dict[str, list[Any]]) -> int:
    """Has every run validate by those dev texts that all models can read; how many that leaves out."""
    shared = set.intersection(*map(set, readable.values()))
    if not shared:
        raise UserError("There is no dev text that all of these recipes can read: each is longer than some model.max_length.")
    for name, texts in readable.items():
        path = out / name / "prepared" / "dev.json"
        total = len(json.loads(path.read_text(encoding="utf-8")))
        kept = [text for text in texts if text in shared]
        write_text(path, json.dumps([text if isinstance(text, tuple) else dataclasses.astuple(text) for text in kept]))
    return total - len(kept)


def tokens_per_update(work: Work) -> float:
    """The mean over the first batches; they are shuffled, so these are like the others."""
    counts = [batch.tokens for batch, _ in islice(work.batches(Place()), MEASURED)]
    return sum(counts) / len(counts) * work.task.recipe.training.accumulate


def _run(name: str, out: Path, find: Find, which: str, asked: Asked) -> Finish:
    say(f"{name}, {which}")
    recipe = config.read(out / f"{name}.toml")
    work, progress = train_in(out / name, recipe, find, alone=False)
    task = registry.load(out / name)
    return Finish(
        name,
        recipe,
        parameters(work.task.model),
        progress,
        *read_log(out / name, recipe, progress),
        judge(task, find, asked.limit),
        work.corpus.count if isinstance(work, PairWork | LabelWork | TagWork) else None,
    )


def read_log(run: Path, recipe: Recipe, progress: Progress) -> tuple[Measure, list[dict[str, float]], float]:
    """The quality at each validation, and the median speed."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    per_update = progress.tokens / max(1, progress.update)
    validations = [entry for entry in lines if any(key.startswith("dev_loss") for key in entry)]
    judged = [quality(recipe.task, entry) for entry in validations]
    curve = [
        {"update": e["update"], "tokens": round(e["update"] * per_update), "seconds": e["seconds"], "quality": value}
        for e, (_, value) in zip(validations, judged, strict=True)
    ]
    speeds = [entry["tokens_per_second"] for entry in lines if "tokens_per_second" in entry]
    return judged[0][0], curve, statistics.median(speeds) if speeds else progress.tokens / max(progress.seconds, 1e-9)
