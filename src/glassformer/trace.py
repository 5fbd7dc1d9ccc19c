"""Looking inside: `tap` gives a tensor a name, a `Trace` is every named tensor of one pass.

Fast when nobody looks: without an active recorder `tap` returns its argument. With one it keeps the tensor under its path
(`encoder.0.self.q`) and may return a replacement, which is how a value is edited. Nothing is stored on modules, and the
recorder lives in a ContextVar, so threads do not mix.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor, nn

from glassformer.errors import UserError

Edit = Callable[[Tensor], Tensor]


class Recorder:
    """Collects what is tapped while it is active, and applies the edits by name."""

    def __init__(self, model: nn.Module, edits: Mapping[str, Edit] | None = None) -> None:
        self.paths = {module: f"{path}." if path else "" for path, module in model.named_modules()}
        self.edits = dict(edits or {})
        self.tensors: dict[str, Tensor] = {}

    def record(self, module: nn.Module, name: str, x: Tensor) -> Tensor:
        if module not in self.paths:
            return x  # of another model that runs meanwhile
        path = self.paths[module] + name
        if path in self.edits:
            x = self.edits[path](x)
        self.tensors[path] = x.detach()
        return x


_active: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def tap(module: nn.Module, name: str, x: Tensor) -> Tensor:
    """`x`, known as `name` of this module while somebody looks."""
    recorder = _active.get()
    return x if recorder is None else recorder.record(module, name, x)


def traced() -> bool:
    """Whether somebody looks: then the equations are computed step by step instead of by a fused kernel."""
    return _active.get() is not None


@contextmanager
def recording(model: nn.Module, edits: Mapping[str, Edit] | None = None) -> Iterator[dict[str, Tensor]]:
    """Within this block every tapped tensor of `model` lands in the dict; an edit that matches no name is an error."""
    recorder = Recorder(model, edits)
    token = _active.set(recorder)
    try:
        yield recorder.tensors
    finally:
        _active.reset(token)
    for name in recorder.edits:
        if name not in recorder.tensors:
            raise UserError(_unknown(name, recorder.tensors))


class Trace(Mapping[str, Tensor]):
    """Every named tensor of one pass over one sentence, without the batch dimension."""

    def __init__(self, tensors: Mapping[str, Tensor], *, source: list[str], target: list[str]) -> None:
        self.source = source  # the S source tokens, as a person reads them
        self.target = target  # the T tokens the decoder read
        self._tensors = {name: x[0] for name, x in tensors.items()}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise KeyError(_unknown(name, self._tensors))
        return self._tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _unknown(name: str, known: Mapping[str, Tensor]) -> str:
    near = difflib.get_close_matches(name, known, n=3)
    return f"This pass has no tensor {name!r}; nearest: {', '.join(near) or 'none'}; {len(known)} names in all."
