"""Glassformer: a Transformer you can see through.

import glassformer as gf
model = gf.load("zh-en")               # a bundled name, a run folder, or an imported folder
model.translate("机器学习很有趣。").text
trace = model.trace("机器学习很有趣。")  # every named tensor of one pass
trace["decoder.2.cross.pattern"]       # (H, T, S)
"""

from typing import TYPE_CHECKING, Any

from glassformer.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

__version__ = "0.1.0"
__all__ = ["UserError", "load"]


def load(name: "str | Path") -> Any:
    """A model by its bundled name or its folder, ready to use: a Translate, Language, Fill, Classify, Tag, Compare or Score."""
    from glassformer.store import find_model  # late, so that `glassformer --help` does not wait for torch
    from glassformer.tasks import registry

    return registry.load(find_model(name))
