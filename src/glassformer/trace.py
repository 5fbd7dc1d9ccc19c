"""Looking inside: `tap` gives a tensor a name, a `Trace` is every named tensor of one pass.

Fast when nobody looks: without an active recorder `tap` returns its argument. With one it keeps the tensor under its path
(`encoder.0.self.q`) and may return a replacement, which is how a value is edited. Nothing is stored on modules, and the
recorder lives in a ContextVar, so threads do not mix.
"""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from glassformer.errors import UserError
from glassformer.notation import describe

if TYPE_CHECKING:
    from glassformer.notebook import Frame
    from glassformer.printing import Table
    from glassformer.tasks.task import Task

Edit = Callable[[Tensor], Tensor]


class Recorder:
    """Collects what is tapped while it is active, and applies the edits by name."""

    def __init__(self, model: nn.Module, edits: Mapping[str, Edit] | None = None) -> None:
        self.paths = {module: f"{path}." if path else "" for path, module in model.named_modules()}
        self.edits = dict(edits or {})
        self.edited: set[str] = set()  # those whose edit gave another tensor
        self.tensors: dict[str, Tensor] = {}
        self._most = _most.get()
        self._seen: set[int] = set()  # where its memories are; several tensors may share one
        self._size = 0  # bytes of them

    def record(self, module: nn.Module, name: str, x: Tensor) -> Tensor:
        if module not in self.paths:
            return x  # of another model that runs meanwhile
        path = self.paths[module] + name
        if path in self.edits:
            given, x = x, self._changed(path, x)
            if x is not given:
                self.edited.add(path)
        self.tensors[path] = x.detach()
        if self._most is not None:
            self._check_size(x)
        return x

    def record_row(self, module: nn.Module, name: str, x: Tensor, row: int, rows: int) -> Tensor:
        """One row of a tensor; an edit is shown the whole with the rows there are, the others 0, and gives this one anew."""
        if module not in self.paths:
            return x
        path = self.paths[module] + name
        shape = (x.size(0), rows, *x.shape[1:])
        if path not in self.tensors or self.tensors[path].shape != shape:
            self.tensors[path] = x.new_zeros(shape)
            if self._most is not None:
                self._check_size(self.tensors[path])
        whole = self.tensors[path]
        whole[:, row] = x.detach()
        if path in self.edits:
            shown = whole.clone()  # an edit may also change what it is shown
            found = self._changed(path, shown)
            if found is not shown or not torch.equal(found, whole):
                self.edited.add(path)
                x = found[:, row].clone()
                whole[:, row] = x.detach()
        return x

    def _changed(self, path: str, x: Tensor) -> Tensor:
        shape, kind = list(x.shape), x.dtype
        found: Any = self.edits[path](x)
        if isinstance(found, Tensor) and list(found.shape) == shape and found.dtype == kind:
            return found
        gave = f"one of {list(found.shape)}, {found.dtype}" if isinstance(found, Tensor) else type(found).__name__
        raise UserError(
            f"The edit of {path!r} must return a tensor like the one that it is given, {shape}, {kind}; it returned {gave}."
        )

    def _check_size(self, x: Tensor) -> None:
        storage = x.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self._size += storage.nbytes()
        if self._most is not None and self._size > self._most:
            self.tensors.clear()
            raise TooLarge(self._size, self._most)


class TooLarge(UserError):
    """A trace that would take more memory than it may."""

    def __init__(self, found: int, most: int) -> None:
        super().__init__(
            f"The trace of this text takes {found / 1e6:,.0f} MB and more; {most / 1e6:,.0f} MB are allowed. Shorten the text."
        )
        self.found, self.most = found, most


_active: ContextVar[Recorder | None] = ContextVar("recorder", default=None)
_most: ContextVar[int | None] = ContextVar("most", default=None)


def tap(module: nn.Module, name: str, x: Tensor) -> Tensor:
    """`x`, known as `name` of this module while somebody looks."""
    recorder = _active.get()
    return x if recorder is None else recorder.record(module, name, x)


def tap_row(module: nn.Module, name: str, x: Tensor, row: int, rows: int) -> Tensor:
    """`x` (B, …), known as one row of `name` (B, rows, …): of a tensor whose rows are made one after another."""
    recorder = _active.get()
    return x if recorder is None else recorder.record_row(module, name, x, row, rows)


def traced() -> bool:
    """Whether somebody looks: then the equations are computed step by step instead of by a fused kernel."""
    return _active.get() is not None


@contextmanager
def recording(model: nn.Module, edits: Mapping[str, Edit] | None = None) -> Iterator[dict[str, Tensor]]:
    """Within this block every tapped tensor of `model` lands in the dict; an edit that matches no name is an error."""
    with _recorder(model, edits) as recorder:
        yield recorder.tensors


@contextmanager
def _recorder(model: nn.Module, edits: Mapping[str, Edit] | None) -> Iterator[Recorder]:
    recorder = Recorder(model, edits)
    token = _active.set(recorder)
    try:
        yield recorder
    finally:
        _active.reset(token)
    for name in recorder.edits:
        if name not in recorder.tensors:
            raise UserError(_unknown(name, recorder.tensors))


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Within this block a pass that would record more than `size` bytes ends with TooLarge."""
    token = _most.set(size)
    try:
        yield
    finally:
        _most.reset(token)


@dataclass(frozen=True)
class Token:
    """One token of a pass as a person sees it.

    It covers the characters [start, end) of the text; a mark such as <bos> is special and covers none. Of several byte pieces
    that make up one character the first has the text, and all have the span.
    """

    text: str
    id: int = -1
    start: int | None = None
    end: int | None = None
    special: bool = False


class Trace(Mapping[str, Tensor]):
    """Every named tensor of one pass over one sentence, without the batch dimension."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        *,
        source: Sequence[Token | str] = (),
        target: Sequence[Token | str] = (),
        types: Sequence[int] = (),
        about: Mapping[str, Any] | None = None,
        edited: frozenset[str] = frozenset(),
        made_by: "Task | None" = None,
    ) -> None:
        self.source_tokens = [Token(token) if isinstance(token, str) else token for token in source]  # what the encoder read
        self.target_tokens = [Token(token) if isinstance(token, str) else token for token in target]  # what the decoder read
        self.types = list(types)  # of the source tokens, if the model knows types
        self.about = dict(about or {})  # where it comes from: texts, direction, edits; ready for JSON
        self.edited = edited  # tensors that an edit replaced
        self.made_by = made_by  # the model that computed it, if it is known; a saved trace does not say
        self._tensors = {name: x[0] for name, x in tensors.items()}

    @property
    def source(self) -> list[str]:
        """The S source tokens, as a person reads them."""
        return [token.text for token in self.source_tokens]

    @property
    def target(self) -> list[str]:
        """The T tokens the decoder read."""
        return [token.text for token in self.target_tokens]

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

    @property
    def nbytes(self) -> int:
        """Memory in use; tensors that share it count once."""
        storages = (x.untyped_storage() for x in self._tensors.values())
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def axes(self, name: str) -> list[str]:
        """The letters of its axes, as in notation.py. One answer for a whole text has no T."""
        letters = describe(name).shape.split()
        return letters[len(letters) - self[name].dim() :]

    def labels(self, name: str) -> list[list[str]]:
        """What to write beside each axis: tokens along T and S, numbers along the others."""
        return [self._along(name, letter, size) for letter, size in zip(self.axes(name), self[name].shape, strict=True)]

    def _along(self, name: str, letter: str, size: int) -> list[str]:
        if letter not in ("T", "S"):
            return [str(i) for i in range(size)]
        return [token.text for token in self.tokens_along(name, letter)]

    def tokens_along(self, name: str, letter: str) -> list[Token]:
        """The tokens that the axis T or S of a tensor stands for."""
        decodes = name.startswith("decoder.") or (name == "logits" and bool(self.target_tokens))
        looks_across = letter == "S" and ".cross." in name
        return self.target_tokens if decodes and not looks_across else self.source_tokens

    def table(self, name: str, head: int | None = None, rows: int = 24, columns: int = 12) -> "Table":
        """Its numbers beside their labels; of the rows and columns at most so many. All heads, unless one is chosen."""
        from glassformer.printing import table  # late: only a person at a terminal needs it

        return table(self, name, head, rows, columns)

    def show(self, view: str = "walk", height: int = 720, *, model: "Task | None" = None) -> "Frame":
        """This very pass in the explorer, as a frame in a notebook; of a saved trace `model` is the one that made it."""
        from glassformer.notebook import show  # late: only a notebook needs it

        return show(self, view, height, model)

    # -- kept in a folder

    def save(self, folder: Path | str) -> None:
        """Writes tensors.safetensors and trace.json; whatever else is in the folder stays."""
        from glassformer.files import write_text
        from glassformer.weights import write_tensors

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / "tensors.safetensors", {name: x.clone() for name, x in self.items()})  # none shares memory
        words = {
            "format": FORMAT,
            "source": [asdict(token) for token in self.source_tokens],
            "target": [asdict(token) for token in self.target_tokens],
            "types": self.types,
            "about": self.about,
            "edited": sorted(self.edited),
            "shapes": {name: list(x.shape) for name, x in self.items()},
        }
        write_text(folder / "trace.json", json.dumps(words, ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path | str) -> "Trace":
        """A saved trace; whatever does not fit together is listed, all at once."""
        from glassformer.weights import read_tensors

        folder = Path(folder)
        words = _read_words(folder / "trace.json")
        found = read_tensors(folder / "tensors.safetensors")
        problems = [f"missing: {name}" for name in words["shapes"] if name not in found]
        problems += [f"unexpected: {name}" for name in found if name not in words["shapes"]]
        ordered = {name: found[name].unsqueeze(0) for name in words["shapes"] if name in found}
        trace = cls(
            ordered,
            source=[Token(**token) for token in words["source"]],
            target=[Token(**token) for token in words["target"]],
            types=words["types"],
            about=words["about"],
            edited=frozenset(words["edited"]),
        )
        problems += [problem for name in trace for problem in trace._problems(name, words["shapes"][name])]
        if problems:
            shown = "\n  ".join(problems[:20]) + (f"\n  … and {len(problems) - 20} more" if len(problems) > 20 else "")
            raise UserError(f"{folder} is not a whole trace:\n  {shown}\nIt was changed or is damaged: save it again.")
        return trace

    def _problems(self, name: str, shape: object) -> list[str]:
        """What speaks against a tensor that was read from a file."""
        x = self[name]
        try:
            letters = describe(name).shape.split()
        except UserError as error:
            return [str(error)]
        if x.dtype != torch.float32:
            return [f"{name} is {x.dtype}, not float32"]
        if list(x.shape) != shape:
            return [f"shape of {name}: {list(x.shape)}, where trace.json says {shape}"]
        if x.dim() not in (len(letters), len(letters) - 1):
            return [f"{name} has {x.dim()} axes, not {len(letters)} ({' '.join(letters)})"]
        wrong = [
            f"{name} has {size} entries along {letter}, where there are {len(self.tokens_along(name, letter))} tokens"
            for letter, size in zip(self.axes(name), x.shape, strict=True)
            if letter in ("T", "S") and size != len(self.tokens_along(name, letter))
        ]
        return wrong + ([f"not all numbers: {name}"] if bool(x.isnan().any()) else [])


FORMAT = "glassformer trace 1"
_LISTS = {"source": Token, "target": Token, "types": int, "edited": str}


def _read_words(path: Path) -> dict[str, Any]:
    """trace.json, its fields checked by name and type."""
    try:
        words = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"There is no saved trace in {path.parent}: it has no {path.name}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if not isinstance(words, dict) or words.get("format") != FORMAT:
        raise UserError(f"{path} does not describe a trace: its format is not {FORMAT!r}.")
    for key, kind in _LISTS.items():
        items = words.get(key)
        if not isinstance(items, list) or not all(_is_token(x) if kind is Token else type(x) is kind for x in items):
            raise UserError(f"{path}: {key} is not a list of {kind.__name__}s.")
    for key in ("about", "shapes"):
        if not isinstance(words.get(key), dict):
            raise UserError(f"{path}: {key} is not an object.")
    return words


def _is_token(x: object) -> bool:
    if not isinstance(x, dict) or x.keys() != Token.__dataclass_fields__.keys():
        return False
    span = (x["start"], x["end"])
    spanned = span == (None, None) or (all(type(at) is int for at in span) and 0 <= x["start"] <= x["end"])
    return spanned and type(x["text"]) is str and type(x["id"]) is int and type(x["special"]) is bool


@torch.inference_mode()
def run(
    model: Any,
    *,
    source: Sequence[Token] = (),
    target: Sequence[Token] = (),
    types: Sequence[int] = (),
    about: Mapping[str, Any] | None = None,
    edits: Mapping[str, Edit] | None = None,
    made_by: "Task | None" = None,
) -> Trace:
    """One pass of a model over what it reads: the source, then what its decoder read, or the types of an encoder alone."""
    read = [[token.id for token in tokens] for tokens in (source, target) if tokens] + ([list(types)] if types else [])
    with _recorder(model, edits) as recorder:
        model.logits(model(*(torch.tensor([ids]) for ids in read)))
    edited = frozenset(recorder.edited)
    return Trace(recorder.tensors, source=source, target=target, types=types, about=about, edited=edited, made_by=made_by)


def _unknown(name: str, known: Mapping[str, Tensor]) -> str:
    near = difflib.get_close_matches(name, known, n=3)
    return f"This pass has no tensor {name!r}; nearest: {', '.join(near) or 'none'}; {len(known)} names in all."
