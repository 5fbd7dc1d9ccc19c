"""What the API is asked, checked field by field."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from glassformer.edits import ForceToken, HeadOff, Named, NoMask, NoPositions, NoScale, Patch
from glassformer.errors import UserError
from glassformer.server.limits import Limits
from glassformer.trace import Trace

_LIMITS = Limits()
_ID = 2**31 - 1
GO_ON = 12  # tokens that a language model goes on by, as in the page's session

Model = Annotated[str, Field(max_length=200, description="An id of /api/models.")]
Text = Annotated[str, Field(max_length=_LIMITS.characters, description="What the model reads.")]
To = Annotated[str | None, Field(max_length=50, description="The language to translate into; guessed if not given.")]
Ids = Annotated[list[Annotated[int, Field(ge=0, le=_ID)]], Field(max_length=_LIMITS.characters)]


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def readable(limits: Limits, *texts: str | None) -> None:
    """Refuses, in a sentence, what is no text or too long; for those that ask from Python."""
    for text in texts:
        if text is None:
            continue
        if not isinstance(text, str):
            raise UserError(f"The text is a string, not {text!r}.")
        if len(text) > limits.characters:
            raise UserError(f"The text is {len(text):,} characters long; at most {limits.characters:,} are read.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"The text is not valid UTF-8: character {error.start + 1} is a broken byte.") from None


class ToTrace(Asked):
    model: Model
    text: Text
    to: To = None
    second: Text | None = Field(None, description="The text to compare with (compare).")
    target: Ids | None = Field(None, description="Read this translation instead of finding one (translate).")
    max_tokens: int = Field(0, ge=0, le=_LIMITS.tokens, description="Go on by so many tokens first, the likeliest (language).")


def as_the_page(model: str, task: str, text: str, second: str | None, to: str | None) -> ToTrace:
    """What the page asks of a text that was just given."""
    return ToTrace(model=model, text=text, second=second, to=to, target=None, max_tokens=GO_ON if task == "language" else 0)


Path = Annotated[str, Field(max_length=200, description="An attention, such as encoder.0.self.")]


class AskedHeadOff(Asked):
    kind: Literal["head-off"]
    path: Path
    head: int = Field(ge=0, le=_ID)


class AskedNoScale(Asked):
    kind: Literal["no-scale"]
    path: Path


class AskedNoMask(Asked):
    kind: Literal["no-mask"]
    path: Path


class AskedForceToken(Asked):
    kind: Literal["force-token"]
    position: int = Field(ge=0, le=_ID)
    token: int = Field(ge=0, le=_ID)


class AskedNoPositions(Asked):
    kind: Literal["no-positions"]
    path: str = Field(max_length=200, description="encoder or decoder.")


Place = Annotated[int | None, Field(ge=0, le=_ID)]


class AskedPatch(Asked):
    kind: Literal["patch"]
    name: str = Field(max_length=200, description="A tensor, such as decoder.1.resid_post.")
    other: str = Field(max_length=64, description="The id of a trace by the same model, whose tensor it is to be.")
    head: Place = Field(None, description="Only this head of it.")
    position: Place = Field(None, description="Only this position of it.")
    other_position: Place = Field(None, description="The position of the other trace, if it is another one.")


AskedTap = Annotated[AskedHeadOff | AskedNoScale | AskedNoMask, Field(discriminator="kind")]
AskedEdit = Annotated[
    AskedHeadOff | AskedNoScale | AskedNoMask | AskedForceToken | AskedNoPositions | AskedPatch, Field(discriminator="kind")
]
_EDITS: dict[str, Any] = {edit.kind: edit for edit in (HeadOff, NoScale, NoMask, ForceToken, NoPositions, Patch)}


def named(edits: Sequence[AskedEdit | AskedTap], other: Callable[[str], Trace] | None = None) -> list[Named]:
    """The edits that were asked for; `other` finds the trace that a patch is taken from."""
    found = []
    for edit in edits:
        values = edit.model_dump(exclude={"kind"})
        if isinstance(edit, AskedPatch):
            assert other is not None
            values["other"] = other(edit.other)
        found.append(_EDITS[edit.kind](**values))
    return found


class ToEdit(Asked):
    edits: list[AskedEdit] = Field(max_length=256)


class ToNext(Asked):
    model: Model
    text: Text
    to: To = None
    written: Ids = Field([], description="Tokens that are written already.")
    temperature: float = Field(1.0, ge=0, le=1000, description="0 takes the likeliest.")
    top_k: int = Field(0, ge=0, le=_ID, description="Only the k likeliest, before the softmax; 0 means all.")
    top_p: float = Field(1.0, ge=0, le=1, description="The fewest that reach p, after it.")
    seed: int = Field(0, ge=0, le=2**53)
    edits: list[AskedTap] = Field([], max_length=256, description="The pass with these edits.")
    full: bool = Field(False, description="Answer with the logits of the whole vocabulary as float32 instead.")


class ToBeam(Asked):
    model: Model
    text: Text
    to: To = None
    beam: int = Field(5, ge=1, le=_LIMITS.beam)
    length_penalty: float = Field(1.0, ge=0, le=1000, description="α of score = Σ log p ÷ lengthᵅ.")
    edits: list[AskedTap] = Field(
        [],
        max_length=256,
        description="The search with these edits; no-mask of the decoder changes nothing, since nothing later is written yet.",
    )


class ToTokenize(Asked):
    model: Model
    text: str = Field(max_length=_LIMITS.passage, description="What is cut into pieces.")
    side: Literal["source", "target"] = Field("source", description="Whose vocabulary, if a translator has two.")


class ToSpell(Asked):
    model: Model
    ids: list[Annotated[int, Field(ge=0, le=_ID)]] = Field(max_length=_LIMITS.words)
    side: Literal["source", "target"] = Field("target", description="Whose vocabulary, if a translator has two.")


class ToExplain(Asked):
    name: str = Field(max_length=200, description="A tensor of the trace.")
    index: list[Annotated[int, Field(ge=0, le=_ID)]] = Field(max_length=8, description="One number for each axis.")
