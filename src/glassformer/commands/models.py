"""`glassformer train`, `models`, `import` and `export`: how models come and go."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from glassformer.commands.common import DataDir, app
from glassformer.errors import UserError
from glassformer.processor import prepare_training


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe (TOML), or a run folder to go on with.")],
    out: Annotated[Path | None, typer.Option(help="The run folder; runs/NAME of the recipe if not given.")] = None,
    set: Annotated[list[str] | None, typer.Option("--set", help="Change the recipe: training.updates=2000")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="A model to begin with: its vocabulary, sizes and weights, but for the head.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Train a model; on an existing run folder, go on exactly where it stopped."""
    prepare_training()
    from glassformer.training import run

    run.start(recipe, out, set or [], data_dir, start)


@app.command()
def models() -> None:
    """What is bundled and what was trained here."""
    from glassformer import store

    for folder in (*store.bundled(), *store.trained()):
        try:
            print(store.describe(folder))
        except UserError as error:  # one broken folder does not hide the others
            print(f"glassformer: {error}", file=sys.stderr)
    if not store.bundled() and not store.trained():
        print("No model is bundled, and none is in runs/ or models/ here.", file=sys.stderr)


@app.command("import")
def import_(
    source: Annotated[
        str, typer.Argument(help="A Hugging Face folder, a .gguf, a llama2.c .bin, an installed package, or hf:NAME.")
    ],
    out: Annotated[Path, typer.Option(help="The model folder to make.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a model folder that exists.")] = False,
) -> None:
    """Bring a model of another library here: GPT-2, BERT, Marian or Llama."""
    from glassformer.interop.importing import import_model

    import_model(source, out, force=force, report=lambda text: print(text, file=sys.stderr))


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="A bundled name or a folder.")],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    to: Annotated[str, typer.Option(help="The library it is for: huggingface or ctranslate2.")] = "huggingface",
    quantization: Annotated[str, typer.Option(help="Of ctranslate2: float32 (the usual) or int8.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a folder that exists.")] = False,
) -> None:
    """Write a model in another library's format."""
    from glassformer.interop.exporting import export_model

    export_model(model, to, out, quantization=quantization, force=force, report=lambda text: print(text, file=sys.stderr))
