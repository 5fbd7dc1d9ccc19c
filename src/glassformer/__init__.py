"""Glassformer: a Transformer you can see through.

import glassformer as gf
model = gf.load("zh-en")               # a bundled name, a run folder, or an imported folder
model.translate("机器学习很有趣。").text
trace = model.trace("机器学习很有趣。")  # every named tensor of one pass
trace["decoder.2.cross.pattern"]       # (H, T, S)
trace.show()                           # the explorer, in a notebook
"""

from typing import TYPE_CHECKING, Any

from glassformer.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from glassformer.notebook import Frame

__version__ = "0.1.0"
__all__ = ["UserError", "explore", "load"]


def load(name: "str | Path") -> Any:
    """A model by its bundled name or its folder, ready to use: a Translate, Language, Fill, Classify, Tag, Compare or Score."""
    from glassformer.store import find_model  # late, so that `glassformer --help` does not wait for torch
    from glassformer.tasks import registry

    return registry.load(find_model(name))


def explore(
    model: Any,
    text: str | None = None,
    second: str | None = None,
    *,
    to: str | None = None,
    view: str = "walk",
    height: int = 720,
) -> "Frame":
    """A model, or the name of one, in the explorer, as a frame in a notebook; with its first example if no text is given."""
    from glassformer import notebook

    return notebook.explore(model, text, second, to=to, view=view, height=height)
