"""`glassformer explore`: the page on which a sentence is followed through a model."""

import os
import shlex
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

import typer

from glassformer.commands.common import Engine, app, progress
from glassformer.errors import UserError

PORT = 8765


@app.command()
def explore(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL]...", help="Bundled names or folders; all there are if not given.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help=f"The port; {PORT} or, if that is taken, a free one if not given.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Others than 127.0.0.1 let other machines in.")
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    engine: Engine = "auto",
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write the page of one pass over --text here, for any web server, instead of serving it."
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="With --export: what the model reads.")] = None,
    second: Annotated[str | None, typer.Option(help="With --export: the text to compare it with, if the model compares.")] = None,
    to: Annotated[str | None, typer.Option(help="With --export: the language to translate into; guessed if not given.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="With --export: the model; zh-en if none is given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="With --export: replace an earlier export.")] = False,
) -> None:
    """Open the page that follows a sentence through a model, number by number."""
    if export is not None:
        named = [*(models or []), *([model] if model else [])]
        if len(named) > 1:
            raise UserError(f"An export is of one model; {len(named)} were given: {', '.join(named)}.")
        for option, used in (("--port", port is not None), ("--host", host != "127.0.0.1"), ("--no-browser", not browser)):
            if used:
                raise UserError(f"{option} is of the page while it is served; an export is not served. Leave it out.")
        if text is None:
            raise UserError('An export is of one text: say which with --text "…".')
        return _export(export, named[0] if named else "zh-en", text, second, to, force, engine)
    for name, given in (("--text", text), ("--second", second), ("--to", to), ("--model", model), ("--force", force or None)):
        if given is not None:
            raise UserError(f"{name} goes with --export DIR. Without it, name models as they are (glassformer explore zh-en).")
    import uvicorn

    from glassformer.engine import choice
    from glassformer.server.app import create_app
    from glassformer.server.guard import Visitors
    from glassformer.server.shelf import Shelf

    choice.check(engine)
    shelf = Shelf(models or [], engine=engine)
    if not shelf.folders():
        raise UserError("There is no model to explore: none is bundled, and none is in runs/ or models/ here.")
    bound = _listen(host, port)
    number = bound.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else shown}:{number}"
    served = create_app(shelf, Visitors(host, number))
    options = {"log_level": "warning", "access_log": False, "proxy_headers": False, "server_header": False}
    server = uvicorn.Server(uvicorn.Config(served, **options))  # type: ignore[arg-type]
    print(address, flush=True)
    print("The page is at this address; Ctrl-C ends it.", file=sys.stderr, flush=True)
    if browser and _has_screen():
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()  # some browsers keep the caller waiting
    with suppress(KeyboardInterrupt):  # the usual end
        server.run(sockets=[bound])


def _export(folder: Path, model: str, text: str, second: str | None, to: str | None, force: bool, engine: str) -> None:
    from glassformer.engine import choice
    from glassformer.server.export import export, size_of

    choice.check(engine)
    with ExitStack() as shown:

        def watch(total: int) -> Callable[[int], None]:
            return shown.enter_context(progress("explaining every number", total))

        export(folder, model, text, second=second, to=to, force=force, engine=engine, watch=watch)
    files, size = size_of(folder)
    look = f"python -m http.server --directory {shlex.quote(str(folder))}"
    print(f"{folder}: {files:,} files, {size / 1e6:.1f} MB. To look at it: {look}")


def _has_screen() -> bool:
    """Without one, a browser of the terminal might be opened, over our own output."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _listen(host: str, port: int | None) -> socket.socket:
    """A socket that already listens, so that the address that is printed answers at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in (PORT, 0) if port is None else (port,):
        found = socket.socket(family, socket.SOCK_STREAM)
        try:
            if sys.platform != "win32":  # there it would let two servers share the port
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((host, number))
            found.listen(128)
            return found
        except (OSError, OverflowError) as error:
            found.close()
            problem = error
            if isinstance(error, socket.gaierror):
                break
    raise UserError(f"{host}:{PORT if port is None else port} cannot be listened on: {problem}. Choose another with --port.")
