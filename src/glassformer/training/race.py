"""A race: several recipes trained on the same data with the same number of tokens, and what came of each.

A race folder holds `race.json` (what was asked for), `NAME.toml` (every recipe as it is run), `NAME/` (its run folder), and in
the end race.csv, curves.csv, lengths.csv and race.svg. Whatever stopped it, it goes on from there.
"""

import csv
import dataclasses
import io
import json
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from glassformer import charts, config
from glassformer.config import Recipe
from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.models.stack import parameters
from glassformer.tasks import registry
from glassformer.text.batches import Place
from glassformer.text.datasets import find as find_corpus
from glassformer.training.checkpoints import Progress
from glassformer.training.judging import QUALITY, Judgement, judge, length_edges
from glassformer.training.run import LOCK, anchored, going_on_with, prepare_run, say, train_in
from glassformer.training.work import Find, Work

MEASURED = 40  # batches that tokens per update are counted on
VALIDATIONS = 12  # of each run: the points of its curve


@dataclass(frozen=True)
class Asked:
    """What a race was asked for."""

    names: list[str]
    tokens: int
    quality: float | None
    limit: int


@dataclass(frozen=True)
class Finish:
    """What came of one recipe."""

    name: str
    recipe: Recipe
    parameters: int
    progress: Progress
    curve: list[dict[str, float]]  # update, tokens, seconds and quality of each validation
    speed: float  # tokens a second while training
    judgement: Judgement | None

    @property
    def best(self) -> float:
        return max((point["quality"] for point in self.curve), default=float("nan"))

    @property
    def score(self) -> float | None:
        return self.judgement.score(self.judgement.answers) if self.judgement else None

    def seconds_to(self, quality: float) -> float | None:
        return next((point["seconds"] for point in self.curve if point["quality"] >= quality), None)


def start(
    recipes: Sequence[Path],
    out: Path,
    overrides: list[str],
    data_dir: Path | None,
    *,
    tokens: int = 0,
    quality: float | None = None,
    limit: int = 0,
) -> tuple[list[Finish], float]:
    """`glassformer race`: begins a race, or goes on with the one in the folder `out`; what came of it, and the quality whose
    time is told: `quality`, or what the weakest reached at its best."""
    near = recipes[0].resolve().parent if recipes else None
    find: Find = lambda name: find_corpus(name, data_dir, near)  # noqa: E731
    asked = _begin(recipes, out, overrides, find, tokens, quality, limit) if recipes else read_race(out)
    with going_on_with(f"glassformer race {out}"):
        finishes = [
            _run(name, out, find, f"{number} of {len(asked.names)}", asked) for number, name in enumerate(asked.names, start=1)
        ]
    wanted = quality if quality is not None else asked.quality
    reached = min(finish.best for finish in finishes) if wanted is None else wanted
    write_results(out, finishes, reached)
    return finishes, reached


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
    data = recipes[first].data
    if not data.dev and not getattr(data, "dev_share", 0):
        raise UserError("A race is judged by the dev data, and these recipes have none: give data.dev.")


def _begin(
    paths: Sequence[Path], out: Path, overrides: list[str], find: Find, tokens: int, quality: float | None, limit: int
) -> Asked:
    if len({path.stem for path in paths}) < len(paths):
        raise UserError("The recipes of a race are told apart by their file names; two of these have the same.")
    if len(paths) < 2:
        raise UserError(f"A race needs two recipes at least; found {len(paths)}. One alone is trained with: glassformer train")
    recipes = {path.stem: anchored(config.read(path, overrides), path.resolve().parent) for path in paths}
    check_shared(recipes)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; a race needs a folder.")
    if (out / "race.json").exists():
        asked = read_race(out)
        if asked.names != list(recipes) or (tokens and tokens != asked.tokens):
            raise UserError(
                f"{out} is another race: of {', '.join(asked.names)} with {asked.tokens:,} tokens. "
                f"Go on with it: glassformer race {out}\nOr begin this one elsewhere: --out {out}-2"
            )
        return dataclasses.replace(asked, quality=quality if quality is not None else asked.quality, limit=limit)
    if out.is_dir() and any(out.iterdir()) and not (out / ".race").exists():
        raise UserError(f"{out} is not a race folder, and not empty; choose another --out.")
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / ".race", "")  # marks the folder as ours before anything is in it
    rates: dict[str, float] = {}
    for name, recipe in recipes.items():
        say(f"{name}: preparing")
        shutil.rmtree(out / name, ignore_errors=True)  # what a race that never began has left
        (out / name).mkdir()
        (out / name / LOCK).touch()  # what a training knows its folder by
        rates[name] = tokens_per_update(prepare_run(recipe, out / name, find, lambda words: None))
    first = next(iter(recipes))
    tokens = tokens or round(rates[first] * recipes[first].training.updates)
    for name, recipe in recipes.items():
        updates = max(1, round(tokens / rates[name]))
        every = max(1, updates // VALIDATIONS)
        training = dataclasses.replace(recipe.training, updates=updates, validate_every=every, patience=0)
        warm = min(training.warmup, max(1, updates // 4))
        write_text(
            out / f"{name}.toml", config.to_toml(dataclasses.replace(recipe, training=dataclasses.replace(training, warmup=warm)))
        )
    asked = Asked(list(recipes), tokens, quality, limit)
    write_text(out / "race.json", json.dumps(dataclasses.asdict(asked), indent=1) + "\n")  # last: the race is whole
    return asked


def tokens_per_update(work: Work) -> float:
    """The mean over the first batches; they are shuffled, so these are like the others."""
    counts = [batch.tokens for batch, _ in islice(work.batches(Place()), MEASURED)]
    return sum(counts) / len(counts) * work.task.recipe.training.accumulate


def _run(name: str, out: Path, find: Find, which: str, asked: Asked) -> Finish:
    say(f"{name}, {which}")
    recipe = config.read(out / f"{name}.toml")
    work, progress = train_in(out / name, recipe, find)
    task = registry.load(out / name)
    return Finish(
        name,
        recipe,
        parameters(work.task.model),
        progress,
        *read_log(out / name, recipe, progress),
        judge(task, find, asked.limit),
    )


def read_log(run: Path, recipe: Recipe, progress: Progress) -> tuple[list[dict[str, float]], float]:
    """The quality at each validation, and the median speed."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    _, quality = QUALITY[recipe.task]
    per_update = progress.tokens / max(1, progress.update)
    curve = [
        {"update": e["update"], "tokens": round(e["update"] * per_update), "seconds": e["seconds"], "quality": quality(e)}
        for e in lines
        if any(key.startswith("dev_loss") for key in e)
    ]
    speeds = [entry["tokens_per_second"] for entry in lines if "tokens_per_second" in entry]
    return curve, statistics.median(speeds) if speeds else progress.tokens / max(progress.seconds, 1e-9)


# -- what is written


def table(finishes: Sequence[Finish], quality: float) -> list[dict[str, Any]]:
    measure = QUALITY[finishes[0].recipe.task][0]
    rows = []
    for finish in finishes:
        row: dict[str, Any] = {"recipe": finish.name, "model": finish.recipe.model.kind, "parameters": finish.parameters}
        row |= {"tokens": finish.progress.tokens, "updates": finish.progress.update}
        row |= {"seconds": round(finish.progress.seconds, 1), "tokens/s": round(finish.speed)}
        row[f"best dev {measure}"] = round(finish.best, 4)
        if finish.judgement:
            row[f"final {finish.judgement.measure}"] = round(finish.score or 0.0, 4)
        reached = finish.seconds_to(quality)
        row[f"seconds to {measure} {quality:.4g}"] = "" if reached is None else reached
        rows.append(row)
    return rows


def lengths(finishes: Sequence[Finish]) -> list[dict[str, Any]]:
    """Quality against the length of what is read, in parts with about as many texts."""
    judged = [(finish.name, finish.judgement) for finish in finishes if finish.judgement]
    if not judged:
        return []
    edges = length_edges([each.length for each in judged[0][1].answers])
    return [
        {"recipe": name, "from": low, "to": high - 1, "texts": count, judgement.measure: "" if score is None else round(score, 4)}
        for name, judgement in judged
        for (count, score), low, high in zip(judgement.by_length(edges), edges, edges[1:], strict=False)
    ]


def write_results(out: Path, finishes: Sequence[Finish], quality: float) -> None:
    write_csv(out / "race.csv", table(finishes, quality))
    write_csv(out / "curves.csv", [{"recipe": f.name, **point} for f in finishes for point in f.curve])
    parts = lengths(finishes)
    if parts:
        write_csv(out / "lengths.csv", parts)
    write_text(out / "race.svg", picture(finishes, parts))


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    made = io.StringIO()
    writer = csv.DictWriter(made, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, made.getvalue())


def picture(finishes: Sequence[Finish], parts: list[dict[str, Any]]) -> str:
    measure = QUALITY[finishes[0].recipe.task][0]
    drawn = [
        charts.Chart(
            f"{measure} while training",
            what,
            measure,
            [charts.Line(f.name, [(point[key], point["quality"]) for point in f.curve]) for f in finishes],
        )
        for key, what in (("tokens", "tokens"), ("seconds", "seconds"))
    ]
    if parts:
        labels = list(dict.fromkeys(f"{row['from']}–{row['to']}" for row in parts))
        score = next(reversed(parts[0]))
        grouped: dict[str, list[tuple[float, float]]] = {}
        for row in parts:
            if row[score] != "":
                grouped.setdefault(row["recipe"], []).append((labels.index(f"{row['from']}–{row['to']}"), row[score]))
        lines = [charts.Line(name, points) for name, points in grouped.items()]
        drawn.append(charts.Chart(f"{score} and length", "words of the source", score, lines, labels=labels))
    return charts.svg(drawn)
