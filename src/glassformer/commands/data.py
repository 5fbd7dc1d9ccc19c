"""`glassformer data`: corpora that recipes know by name."""

from typing import Annotated

import typer

from glassformer.commands.common import DataDir, app, progress

data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Corpora that recipes know by name.")
app.add_typer(data_app, name="data")


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="A corpus by name; see `glassformer data list`.")],
    data_dir: DataDir = None,
) -> None:
    """Download a corpus, check it, and put it where recipes find it."""
    from glassformer.text.datasets import cache_dir, download

    with progress(name) as advance:
        told = 0

        def report(done: int, total: int) -> None:
            nonlocal told
            advance(done - told)
            told = done

        paths = download(name, data_dir or cache_dir(), report)
    for path in paths:
        print(path)


@data_app.command("list")
def data_list() -> None:
    """The corpora known by name."""
    from glassformer.text.datasets import CORPORA

    for corpus in CORPORA.values():
        print(f"{corpus.name}\t{corpus.title}\t{corpus.licence}\t{corpus.page}")
