"""The explorer in a notebook: a frame that shows the page, which a thread of this process serves to this machine alone.

One server for each process, begun when it is first needed. Nothing of Jupyter is imported: a notebook asks what it is given for
`_repr_html_`, and falls back on `repr`.
"""

import html
import os
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn

from glassformer.errors import UserError
from glassformer.explain import Explainer
from glassformer.server.app import create_app
from glassformer.server.guard import Visitors
from glassformer.server.held import Held
from glassformer.server.limits import Limits
from glassformer.server.refusal import Refusal
from glassformer.server.requests import as_the_page, readable
from glassformer.store import find_model
from glassformer.tasks.task import Task
from glassformer.trace import Trace

VIEWS = ("walk", "translate", "attention", "next", "gates", "whatif", "compare", "tokens", "vectors", "training", "learn")
LIMITS = replace(Limits(), traces=200, memory=2_000_000_000)  # a notebook scrolls back


class Frame:
    """A view of the explorer: as HTML a frame, as text what it shows and where."""

    def __init__(self, address: str, height: int, said: str) -> None:
        self.address, self.height, self.said = address, height, said

    def __repr__(self) -> str:
        return f"{self.said}\n{self.address}"

    def _repr_html_(self) -> str:
        said = html.escape(self.said)
        return (
            f'<iframe src="{html.escape(self.address)}" title="{said}" width="100%" height="{self.height}" '
            'allow="clipboard-write" style="border: 1px solid #8888; border-radius: 6px"></iframe>'
            f"<p><small>{said}<br>Shown by the kernel that ran this cell; if the frame is empty, run it again. "
            f'<span lang="zh">由运行此单元格的内核显示；若框内空白，请重新运行。</span></small></p>'
        )


def show(trace: Trace, view: str = "walk", height: int = 720, model: Task | str | Path | None = None) -> Frame:
    """A pass that was made already, in the explorer; not one of its numbers is computed again."""
    check(view, height)
    task = trace.made_by if model is None else _loaded(model)
    if task is None:
        raise UserError("A saved trace does not know its model: trace.show(model=gf.load(…)), the one that made it.")
    if task is not trace.made_by and not made(task, trace):
        raise UserError(
            f"{task.name or 'This model'} did not make this trace: its numbers do not follow from the model's weights."
        )
    if task.recipe.task == "vectors":
        raise UserError("The explorer walks through no pass of word vectors: gf.explore(model) shows them on a plane.")
    served = server()
    try:
        return served.frame(served.work.adopt(served.shelf.hold(task), task, trace), view, height)
    except Refusal as refusal:
        raise UserError(refusal.sentence) from None


def explore(
    model: Task | str | Path, text: str | None = None, second: str | None = None, *, to: str | None, view: str, height: int
) -> Frame:
    """A model over a text, in the explorer."""
    check(view, height)
    served = server()
    if second is not None and text is None:
        raise UserError("A second text goes with a first: gf.explore(model, text, second).")
    id = served.known(model)
    task = served.shelf.load(id)
    if task.recipe.task == "vectors":
        if text is not None:
            raise UserError("Word vectors read no text: gf.explore(model) shows them on a plane.")
        return Frame(served.link(view="vectors", space=id), height, f"Glassformer, vectors: {id}")
    if text is None:
        about = next(each for each in served.shelf.list()["models"] if each["id"] == id)
        text, second = about["examples"][0], about.get("seconds", [None])[0]
    readable(LIMITS, text, second)
    try:
        return served.frame(served.work.trace(as_the_page(id, task.recipe.task, text, second, to)), view, height)
    except Refusal as refusal:
        raise UserError(refusal.sentence) from None


def check(view: str, height: int) -> None:
    if view not in VIEWS:
        raise UserError(f"There is no view {view!r}. There are: {', '.join(VIEWS)}.")
    if not isinstance(height, int) or not 100 <= height <= 10_000:
        raise UserError(f"A frame is 100 to 10,000 pixels high, not {height!r}.")


def made(task: Task, trace: Trace) -> bool:
    """Whether the numbers of a trace follow from the weights of this model: one of each tensor is computed again."""
    if trace.about.get("task") != task.recipe.task:
        return False
    explainer = Explainer(task.model, trace)
    try:
        cells = [explainer.cell(name, [0] * x.dim()) for name, x in trace.items()]
    except (RuntimeError, LookupError, AttributeError, AssertionError, ValueError, UserError):  # of another shape
        return False
    return all(cell.difference <= 1e-3 * max(1.0, abs(cell.value)) for cell in cells)


def _loaded(model: Task | str | Path) -> Task:
    from glassformer import load

    if isinstance(model, Task):
        return model
    if not isinstance(model, str | Path):
        raise UserError(f"A model is what gf.load gives, a bundled name or a folder, not {model!r}.")
    found: Task = load(model)
    return found


class Served:
    """The page and its API, at a free port of this machine."""

    def __init__(self) -> None:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.bind(("127.0.0.1", 0))
        bound.listen(128)  # so that the address answers at once
        port = bound.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.shelf = Held(LIMITS)
        self._folders: dict[Path, Task] = {}  # those loaded for somebody, from other places than the shelf knows
        app = create_app(self.shelf, Visitors("127.0.0.1", port, framed=True), LIMITS)
        self.work = app.state.work
        options: dict[str, Any] = {"log_level": "warning", "access_log": False, "proxy_headers": False, "server_header": False}
        serve = uvicorn.Server(uvicorn.Config(app, **options)).run
        threading.Thread(target=serve, kwargs={"sockets": [bound]}, name="glassformer", daemon=True).start()

    def known(self, model: Task | str | Path) -> str:
        """The id of a model; the same folder is the same model."""
        if isinstance(model, str | Path):
            folder = find_model(model).resolve()
            for id, path in self.shelf.folders().items():
                if path.resolve() == folder:
                    return id
            if folder not in self._folders:
                self._folders[folder] = _loaded(model)
            return self.shelf.hold(self._folders[folder])
        return self.shelf.hold(_loaded(model))

    def link(self, **place: str) -> str:
        return f"{self.address}/#{urlencode(place)}"

    def frame(self, told: dict[str, Any], view: str, height: int) -> Frame:
        """The view of a pass that the server has."""
        given = {key: told[key] for key in ("model", "text", "second", "to") if told[key] is not None}
        texts = " | ".join(told[key] for key in ("text", "second") if told[key] is not None)
        answer = told["answer"].get("text") or told["answer"].get("label") or ""
        edited = ", edited" if told.get("edits") else ""
        said = f"Glassformer, {view}: {told['model']}{edited}, {texts}" + (f" → {answer}" if answer else "")
        return Frame(self.link(view=view, **given, trace=told["id"]), height, said)


_served: dict[int, Served] = {}  # by process: a fork has no threads of its parent
_lock = threading.Lock()


def server() -> Served:
    """The server of this process."""
    with _lock:
        if os.getpid() not in _served:
            _served[os.getpid()] = Served()
        return _served[os.getpid()]
