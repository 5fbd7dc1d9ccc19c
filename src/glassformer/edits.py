"""What if: the same pass again with one thing changed, and what that did to what it predicts.

edited = apply(model, trace, [HeadOff("decoder.2.cross", 3)])
edited.trace, edited.changes, edited.same
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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


Named = HeadOff | NoScale | NoMask | ForceToken


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
    about = {**trace.about, "edits": [{"kind": edit.kind, **asdict(edit)} for edit in edits]}
    source, target = trace.source_tokens, trace.target_tokens
    if target:
        target = _forced(task, target, forced, trace.about.get("written", len(target) - 1))
    else:
        source = _forced(task, source, forced, 0)
    found = run(task.model, source=source, target=target, types=trace.types, about=about, edits=taps(task.model, edits))
    return Edited(found, changes(task, trace, found), _same(task, trace, found))


def taps(model: nn.Module, edits: Sequence[Named]) -> dict[str, Edit]:
    """Edits of single tensors, for one pass."""
    found: dict[str, Edit] = {}
    for edit in edits:
        if isinstance(edit, ForceToken):
            continue
        attention = _attention(model, edit.path)
        if isinstance(edit, HeadOff) and not 0 <= edit.head < attention.heads:
            raise UserError(f"{edit.path} has the heads 0 to {attention.heads - 1}; there is no head {edit.head}.")
    for edit in edits:
        if isinstance(edit, NoScale):
            _skip(found, edit.path, "scores", "scaled")
    for edit in edits:
        if isinstance(edit, NoMask):  # after those, so that it sees what they give
            _skip(found, edit.path, "scaled", "masked")
    off: dict[str, list[int]] = {}
    for edit in edits:
        if isinstance(edit, HeadOff):
            off.setdefault(edit.path, []).append(edit.head)
    for path, heads in off.items():
        found[f"{path}.z"] = partial(_without, heads=torch.tensor(heads))
    return found


def _without(z: Tensor, heads: Tensor) -> Tensor:
    return z.index_fill(1, heads, 0.0)


def _attention(model: nn.Module, path: str) -> Attention:
    modules = dict(model.named_modules())
    found = modules.get(path)
    if not isinstance(found, Attention):
        known = [name for name, module in modules.items() if isinstance(module, Attention)]
        raise UserError(f"There is no attention {path!r}. There are: {', '.join(known) or 'none'}.")
    return found


def _skip(found: dict[str, Edit], path: str, before: str, after: str) -> None:
    """The tensor `after` is what `before` was."""
    kept: list[Tensor] = []
    earlier = found.get(f"{path}.{before}")

    def keep(x: Tensor) -> Tensor:
        x = earlier(x) if earlier else x
        kept[:] = [x]
        return x

    found[f"{path}.{before}"] = keep
    found[f"{path}.{after}"] = lambda x: kept[0]


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
