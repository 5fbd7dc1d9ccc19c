"""`glassformer race`: recipes against one another."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.commands.common import DataDir, app
from glassformer.errors import UserError
from glassformer.processor import prepare_training


@app.command()
def race(
    recipes: Annotated[
        list[Path], typer.Argument(help="Recipes (TOML) of one task and its data; or a race folder to go on with.")
    ],
    out: Annotated[Path | None, typer.Option(help="The race folder; runs/race if not given.")] = None,
    tokens: Annotated[int, typer.Option(min=0, help="How much each trains on; 0: as much as the first recipe would.")] = 0,
    quality: Annotated[float | None, typer.Option(help="… time to which is told; if not given or 0, what all reach.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Judge by the first texts only; 0 for all.")] = None,
    set: Annotated[list[str] | None, typer.Option("--set", help="Change every recipe: training.batch_tokens=1024")] = None,
    data_dir: DataDir = None,
) -> None:
    """Train recipes on the same data with the same number of tokens, and compare what came of them."""
    prepare_training()
    from glassformer.training import race as racing
    from glassformer.training import standings

    if quality is not None and not math.isfinite(quality):
        raise UserError(f"--quality takes a number, not {quality}.")
    folders = [path for path in recipes if path.is_dir()]
    if folders:
        if len(recipes) > 1 or out not in (None, folders[0]) or tokens or set:
            raise UserError(
                f"{folders[0]} is a folder: a race goes on by its folder alone, without recipes, --tokens, --set or --out."
            )
        where = folders[0]
        found = racing.start([], where, [], data_dir, quality=quality, limit=limit)
    else:
        where = out or Path("runs") / "race"
        found = racing.start(recipes, where, set or [], data_dir, tokens=tokens, quality=quality, limit=limit)
    print(_aligned(standings.table(found.finishes, found.quality)))
    parts = standings.lengths(found.finishes)
    if parts:
        print("\n" + _aligned(parts))
    print("\n" + "\n".join([*found.notes, ""]) if found.notes else "")
    files = ["curves.csv", *(["lengths.csv"] if parts else []), "race.svg"]
    print(f"{where / 'race.csv'}, {', '.join(files[:-1])} and {files[-1]}", flush=True)


def _aligned(rows: list[dict[str, Any]]) -> str:
    """A table of words to the left and numbers to the right."""
    cells = [list(rows[0]), *([_shown(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    words = [name in ("recipe", "model") for name in rows[0]]
    return "\n".join(
        "  ".join(cell.ljust(w) if left else cell.rjust(w) for cell, w, left in zip(line, widths, words, strict=True)).rstrip()
        for line in cells
    )


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
