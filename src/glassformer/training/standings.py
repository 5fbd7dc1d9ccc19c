"""What came of a race: its tables, its picture, and the sentences below them."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassformer import charts
from glassformer.files import write_text
from glassformer.options import Recipe
from glassformer.training.checkpoints import Progress
from glassformer.training.judging import Judgement, Measure, length_edges, on_shared_texts

RESULTS = ("race.csv", "curves.csv", "lengths.csv", "race.svg")
ALIKE = 1.05  # numbers of tokens that are this much apart are still called the same


@dataclass(frozen=True)
class Finish:
    """What came of one recipe."""

    name: str
    recipe: Recipe
    parameters: int
    progress: Progress
    measure: Measure  # of the curve
    curve: list[dict[str, float]]  # update, tokens, seconds and quality of each validation
    speed: float  # tokens a second while training
    judgement: Judgement | None
    examples: int | None = None  # that it trained on; None where no text is left out

    @property
    def best(self) -> float:
        return self.measure.best([point["quality"] for point in self.curve])

    @property
    def score(self) -> float | None:
        return self.judgement.score(self.judgement.answers) if self.judgement else None

    def seconds_to(self, quality: float) -> float | None:
        return next((point["seconds"] for point in self.curve if self.measure.reached(point["quality"], quality)), None)


def differing(finishes: Sequence[Finish]) -> list[str]:
    """Sentences about what the recipes were to have alike while training, and had not."""
    notes = []
    tokens = {finish.name: finish.progress.tokens for finish in finishes}
    if max(tokens.values()) > ALIKE * min(tokens.values()):
        notes.append(
            f"Not trained on the same number of tokens: {_listed(tokens)}. An update is a whole batch, and batches differ in "
            "size; with more --tokens they are nearer to one another."
        )
    examples = {finish.name: finish.examples for finish in finishes if finish.examples is not None}
    if len(set(examples.values())) > 1:
        notes.append(
            f"Not trained on the same examples: {_listed(examples)}. Texts that are too long for a recipe (data.max_length, or "
            "what its model reads) were left out of its training."
        )
    return notes


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def on_the_same_texts(finishes: Sequence[Finish], dev_left_out: int) -> tuple[list[Finish], list[str]]:
    """All of them judged by those texts alone that every model could read, and sentences about which these are."""
    notes = []
    if dev_left_out:
        notes.append(f"Validated by the same dev texts: {_are(dev_left_out)} longer than some of the models read, and left out.")
    judged = {finish.name: finish.judgement for finish in finishes if finish.judgement}
    if not judged:
        return list(finishes), notes
    data = finishes[0].recipe.data
    first, *_ = shared = on_shared_texts(list(judged.values()))
    which = f"texts of the {'test' if data.test else 'dev'} data"
    left = first.total - len(first.numbers)
    too_long = " or ".join(name for name, judgement in judged.items() if judgement.long)
    note = f"Judged by the same {len(first.numbers):,} {which}"
    notes.append(note + (f"; {_are(left)} longer than {too_long} can read, and left out for all." if left else "."))
    notes += [
        f"Of {judgement.cut:,} of them {name} read the beginning alone." for name, judgement in judged.items() if judgement.cut
    ]
    notes += _chosen(finishes, first.measure) if first.answers else []
    alike = [replace(finish, judgement=one if one.answers else None) for finish, one in zip(finishes, shared, strict=True)]
    return alike, notes


def _chosen(finishes: Sequence[Finish], measure: str) -> list[str]:
    """Which weights the final score is of, and whether the dev data has both chosen and judged them."""
    averaged = [finish.name for finish in finishes if finish.recipe.training.average > 1]
    best = [finish.name for finish in finishes if finish.name not in averaged]
    notes = []
    if best:
        whose = f" of {', '.join(best)}" if averaged else ""
        notes.append(
            f"final {measure}{whose} is that of the weights that were best on the dev data, which may not be the last ones."
        )
        if not finishes[0].recipe.data.test:
            notes.append("There is no test data: the dev data has both chosen the weights and judged them, which flatters them.")
    if averaged:
        notes.append(f"final {measure} of {', '.join(averaged)} is that of the mean of the last checkpoints (training.average).")
    return notes


def _are(count: int) -> str:
    return "1 more is" if count == 1 else f"{count:,} more are"


def table(finishes: Sequence[Finish], quality: float) -> list[dict[str, Any]]:
    measure = finishes[0].measure.name
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
    write_csv(out / "curves.csv", [{"recipe": f.name, **_named(point, f.measure)} for f in finishes for point in f.curve])
    parts = lengths(finishes)
    if parts:
        write_csv(out / "lengths.csv", parts)
    else:
        (out / "lengths.csv").unlink(missing_ok=True)
    write_text(out / "race.svg", picture(finishes, parts))


def _named(point: dict[str, float], measure: Measure) -> dict[str, float]:
    return {measure.name if key == "quality" else key: value for key, value in point.items()}


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    made = io.StringIO()
    writer = csv.DictWriter(made, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, made.getvalue())


def picture(finishes: Sequence[Finish], parts: list[dict[str, Any]]) -> str:
    measure = finishes[0].measure.name
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
