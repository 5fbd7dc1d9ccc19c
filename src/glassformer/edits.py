"""What if: the same pass again with one thing changed, and what that did to what it predicts.

edited = apply(model, trace, [HeadOff("decoder.2.cross", 3)])
edited.trace, edited.changes, edited.same

model.trace("好久不见。", edits=taps(model.model, [NoPositions("encoder")]))  # or in a pass of its own
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from glassformer import answers
from glassformer.errors import UserError
from glassformer.layers.attention import Attention
from glassformer.tasks import tokens
from glassformer.trace import Edit, Token, Trace, run


@dataclass(frozen=True)
class HeadOff:
    """A head of an attention adds nothing: its z is 0."""

    kind: ClassVar[str] = "head-off"
    path: str
    head: int


@dataclass(frozen=True)
class NoScale:
    """Scores are not divided by √d_k."""

    kind: ClassVar[str] = "no-scale"
    path: str


@dataclass(frozen=True)
class NoMask:
    """Every query may look everywhere."""

    kind: ClassVar[str] = "no-mask"
    path: str


@dataclass(frozen=True)
class ForceToken:
    """Another token is read at a place: of what the decoder read, or of the text if there is no decoder."""

    kind: ClassVar[str] = "force-token"
    position: int
    token: int


@dataclass(frozen=True)
class NoPositions:
    """A stack does not know where its tokens stand: nothing is added to the embedding, and no query or key is turned."""

    kind: ClassVar[str] = "no-positions"
    path: str  # encoder or decoder


@dataclass(frozen=True)
class Patch:
    """A tensor is what it was in another pass; or only one head of it, or one position of either pass, or both."""

    kind: ClassVar[str] = "patch"
    name: str
    other: Trace
    head: int | None = None
    position: int | None = None
    other_position: int | None = None  # of the other pass; the same one if not given


Named = HeadOff | NoScale | NoMask | ForceToken | NoPositions | Patch


@dataclass(frozen=True)
class Change:
    """What an edit did to one prediction."""

    position: int
    token: str
    before: float
    after: float
    top_before: list[dict[str, Any]]
    top_after: list[dict[str, Any]]


@dataclass(frozen=True)
class Edited:
    trace: Trace
    changes: list[Change]
    same: bool  # no probability changed by more than 10⁻⁶


def apply(task: Any, trace: Trace, edits: Sequence[Named]) -> Edited:
    """The pass of `trace` again with these edits and no others, compared with it."""
    forced = [edit for edit in edits if isinstance(edit, ForceToken)]
    about = {**trace.about, "edits": [told(edit) for edit in edits]}
    source, target = trace.source_tokens, trace.target_tokens
    if target:
        target = _forced(task, target, forced, trace.about.get("written", len(target) - 1))
    else:
        source = _forced(task, source, forced, 0)
    found = run(
        task.model,
        source=source,
        target=target,
        types=trace.types,
        about=about,
        edits=taps(task.model, edits),
        made_by=task,
    )
    return Edited(found, changes(task, trace, found), _same(task, trace, found))


def told(edit: Named) -> dict[str, Any]:
    """An edit, ready for JSON; of another pass its text."""
    values = {field.name: getattr(edit, field.name) for field in fields(edit)}
    if isinstance(edit, Patch):
        values["other"] = edit.other.about.get("text")
    return {"kind": edit.kind, **values}


# An edit changes some tensors. Where several change one tensor, first it is replaced, then patched, then silenced; what a later
# tensor is to be like is kept last of all.
_REPLACE, _PATCH, _SILENCE, _KEEP = range(4)
Step = tuple[int, str, Edit]


def taps(model: nn.Module, edits: Sequence[Named]) -> dict[str, Edit]:
    """Edits of single tensors, for one pass."""
    steps = [step for edit in edits if not isinstance(edit, ForceToken) for step in _steps(model, edit)]
    found: dict[str, list[Edit]] = {}
    for _, name, edit in sorted(steps, key=lambda step: step[0]):
        found.setdefault(name, []).append(edit)
    return {name: partial(_through, edits=each) for name, each in found.items()}


def _through(x: Tensor, edits: list[Edit]) -> Tensor:
    for edit in edits:
        x = edit(x)
    return x


def _steps(model: nn.Module, edit: HeadOff | NoScale | NoMask | NoPositions | Patch) -> list[Step]:
    match edit:
        case HeadOff():
            heads = _attention(model, edit.path).heads
            if not 0 <= edit.head < heads:
                raise UserError(f"{edit.path} has the heads 0 to {heads - 1}; there is no head {edit.head}.")
            return [(_SILENCE, f"{edit.path}.z", partial(_without, head=torch.tensor([edit.head])))]
        case NoScale():
            _attention(model, edit.path)
            return list(_skip(edit.path, "scores", "scaled"))
        case NoMask():
            _attention(model, edit.path)
            return list(_skip(edit.path, "scaled", "masked"))
        case NoPositions():
            return list(_unplaced(model, edit.path))
        case Patch():
            return [(_PATCH, edit.name, Patched(edit))]


def _without(z: Tensor, head: Tensor) -> Tensor:
    return z.index_fill(1, head, 0.0)


def _attention(model: nn.Module, path: str) -> Attention:
    modules = dict(model.named_modules())
    found = modules.get(path)
    if not isinstance(found, Attention):
        known = [name for name, module in modules.items() if isinstance(module, Attention)]
        raise UserError(f"There is no attention {path!r}. There are: {', '.join(known) or 'none'}.")
    return found


def _skip(path: str, before: str, after: str) -> Iterator[Step]:
    """The tensor `after` is what `before` was."""
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept[:] = [x]
        return x

    yield _KEEP, f"{path}.{before}", keep
    yield _REPLACE, f"{path}.{after}", lambda x: kept[0]


def _unplaced(model: nn.Module, path: str) -> Iterator[Step]:
    stacks = {name: stack for name, stack in model.named_children() if name in ("encoder", "decoder")}
    if path not in stacks:
        raise UserError(f"There is no stack {path!r}. There are: {', '.join(stacks)}.")
    embed = getattr(stacks[path], "embed", None)
    turning = {
        f"{path}.{name}": module.rotary
        for name, module in stacks[path].named_modules()
        if isinstance(module, Attention) and module.rotary is not None
    }
    if getattr(embed, "position", None) is None and not turning:
        raise UserError(f"The {path} of this model has no positions to leave out: nothing says where its tokens stand.")
    if getattr(embed, "position", None) is not None:
        yield _SILENCE, f"{path}.embed.position", torch.zeros_like
    for name, rotary in turning.items():
        for leaf in ("q", "k"):
            yield _REPLACE, f"{name}.{leaf}", rotary.back


class Patched:
    """Puts a part of another pass's tensor in its place, if it fits."""

    def __init__(self, patch: Patch) -> None:
        self.patch = patch
        if patch.name not in patch.other:
            raise UserError(f"The other pass has no tensor {patch.name!r}.")
        letters = patch.other.axes(patch.name)
        self.heads = 0 if letters[:1] in (["H"], ["K"]) else None
        self.places = next((axis for axis, letter in enumerate(letters) if letter in ("T", "S")), None)
        for what, asked, axis in (("heads", patch.head, self.heads), ("positions", patch.position, self.places)):
            if asked is not None and axis is None:
                raise UserError(f"{patch.name} has no {what}: its axes are {' × '.join(letters)}.")
        if patch.other_position is not None and patch.position is None:
            raise UserError("A position of the other pass goes with a position of this one: give both.")

    def __call__(self, x: Tensor) -> Tensor:
        """x (1, …) with the part that is replaced."""
        patch, other = self.patch, self.patch.other[self.patch.name]
        from_place = patch.position if patch.other_position is None else patch.other_position
        to, of = list(x.shape[1:]), list(other.shape)
        part, taken = self._part(to, patch.position), self._part(of, from_place)
        if [*x[0][part].shape] != [*other[taken].shape]:
            what = "" if patch.position is None else f" Even at one position they differ, along {self._differing(to, of)}."
            hint = (
                " Take one position, or a text with as many tokens." if patch.position is None and self.places is not None else ""
            )
            raise UserError(f"{patch.name} is {_sizes(to)} here and {_sizes(of)} in the other pass: they do not fit.{what}{hint}")
        x = x.clone()
        x[0][part] = other[taken]
        return x

    def _part(self, shape: list[int], place: int | None) -> tuple[int | slice, ...]:
        part: list[int | slice] = [slice(None)] * len(shape)
        for what, axis, at in (("head", self.heads, self.patch.head), ("position", self.places, place)):
            if axis is not None and at is not None:
                if not 0 <= at < shape[axis]:
                    raise UserError(f"{self.patch.name} has the {what}s 0 to {shape[axis] - 1}; there is no {what} {at}.")
                part[axis] = at
        return tuple(part)

    def _differing(self, to: list[int], of: list[int]) -> str:
        letters = self.patch.other.axes(self.patch.name)
        axes = [i for i in range(len(to)) if i != self.places and to[i] != of[i]]
        return ", ".join(letters[i] for i in axes)


def _sizes(shape: list[int]) -> str:
    return " × ".join(map(str, shape))


def _forced(task: Any, read: Sequence[Token], forced: Sequence[ForceToken], written: int) -> list[Token]:
    """The tokens with those that are forced; the last `written` ones are the answer, which they then spell anew.

    A token that is not of the text covers the characters of the one it replaces.
    """
    tokenizer = answers.tokenizer_of(task)
    changed = list(read)
    for edit in forced:
        if not 0 <= edit.position < len(read):
            raise UserError(f"There are tokens at the positions 0 to {len(read) - 1}; {edit.position} is none of them.")
        if not 0 <= edit.token < tokenizer.size:
            raise UserError(f"The vocabulary has the ids 0 to {tokenizer.size - 1}; {edit.token} is none of them.")
        if edit.token == tokenizer.pad:
            raise UserError("Padding is not a token that can be read.")
        replaced = changed[edit.position]
        if edit.token != replaced.id:
            text, special = answers.piece(tokenizer, edit.token), not tokenizer.bytes_of(edit.token)
            changed[edit.position] = replace(replaced, id=edit.token, text=text, special=special)
    if not written or changed == list(read):
        return changed
    begin = len(read) - written
    offset = max((token.end or 0 for token in read[:begin]), default=0)
    return changed[:begin] + tokens.written(tokenizer, [token.id for token in changed[begin:]], offset, goes_on=offset > 0)


def changes(task: Any, before: Trace, after: Trace) -> list[Change]:
    """Every prediction that both make: of tokens that were read, those of `after`; of labels, the likeliest of `before`."""
    new = {prediction.place: prediction for prediction in answers.predictions(task, after)}
    found = []
    for a in answers.predictions(task, before):
        if a.place not in new:
            continue  # a gap that is filled now
        b = new[a.place]
        c = b if after.target_tokens else a
        before_p, after_p = (answers.shown(task, p[c.chosen].item()) for p in (a.probabilities, b.probabilities))
        best, best_now = ([] if p.numel() == 1 else answers.top(task, p, 5) for p in (a.probabilities, b.probabilities))
        found.append(Change(c.position, c.label, before_p, after_p, best, best_now))
    return found


def _same(task: Any, before: Trace, after: Trace) -> bool:
    a, b = answers.probabilities(task, before), answers.probabilities(task, after)
    return bool(((a - b).abs() <= 1e-6).all())
