"""Two traces beside each other: which tokens stand for each other, where their tensors differ, what each predicts."""

from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Response
from pydantic import Field
from torch import Tensor

from glassformer import answers
from glassformer.differences import NoDifference, Pair, outputs, same_words
from glassformer.server.cache import Kept
from glassformer.server.limits import Gate
from glassformer.server.refusal import bad
from glassformer.server.replies import FLOATS, Name, Pool, Slice, TraceId, as_floats, as_json
from glassformer.server.requests import Asked, Place
from glassformer.server.work import Work, ends, in_words, plain, unknown_tensor

By = Literal["place", "token"]


class ToCompare(Asked):
    by: By | None = Field(
        None, description="How tokens are paired; if not given by place where both have as many, else by token."
    )


class ToWeigh(Asked):
    place: Place = Field(None, description="The row of the first trace's output; none if it has one answer.")
    other_place: Place = Field(None, description="The row of the second's.")


def add(app: FastAPI, work: Work, gate: Gate) -> None:
    @app.post("/api/compare/{id}/{other}", tags=["traces"])
    async def compare(id: TraceId, other: TraceId, asked: ToCompare) -> Response:
        """Two traces: the tokens that stand for each other, and for every tensor how much the second differs, or why that cannot
        be said."""
        return as_json(await gate.run(lambda: compared(work, id, other, asked)), work.limits)

    @app.get("/api/compare/{id}/{other}/tensor/{name}", tags=["traces"], responses=FLOATS, response_class=Response)
    async def difference(
        id: TraceId,
        other: TraceId,
        name: Name,
        by: Annotated[By, Query(description="Tokens are paired by their place, or equal ones in the same order.")] = "place",
        slice: Slice = None,
        pool: Pool = None,
    ) -> Response:
        """The second trace's tensor minus the first's, of the tokens that are paired, as raw numbers; at most 1 MB of them."""
        return await gate.run(lambda: as_floats(*subtracted(work, id, other, name, by), slice, pool, "mean", work.limits))

    @app.post("/api/compare/{id}/{other}/outputs", tags=["traces"])
    async def weigh(id: TraceId, other: TraceId, asked: ToWeigh) -> Response:
        """What both predict at one place: the likeliest of either, with their probabilities in both."""
        return as_json(await gate.run(lambda: weighed(work, id, other, asked)), work.limits)


def pair_of(a: Kept, b: Kept, by: str) -> Pair:
    one, two = a.task, b.task
    if one is two:
        return Pair(a.trace, b.trace, by)
    return Pair(a.trace, b.trace, by, same_words(one, two), lambda token: (token.text, token.special))


def compared(work: Work, id: str, other: str, asked: ToCompare) -> dict[str, Any]:
    a, b = work.traces.get(id), work.traces.get(other)
    pair = pair_of(a, b, asked.by or "place")
    if asked.by is None and any(len(x) != len(y) for x, y in _sides(a, b)):
        pair = pair_of(a, b, "token")
    tensors: dict[str, Any] = {}
    for name in dict.fromkeys([*a.trace, *b.trace]):
        why = pair.why_not(name)
        if why:
            tensors[name] = {"why": why.why, "said": str(why)}
            continue
        x = pair.difference(name)
        least, most, _ = ends(x)
        tensors[name] = {"shape": list(x.shape), "min": least, "max": most, "mean": ends(x.abs())[2]}
    return plain({"by": pair.by, "source": pair.pairs["source"], "target": pair.pairs["target"], "tensors": tensors})


def _sides(a: Kept, b: Kept) -> list[tuple[list[Any], list[Any]]]:
    return [(a.trace.source_tokens, b.trace.source_tokens), (a.trace.target_tokens, b.trace.target_tokens)]


def subtracted(work: Work, id: str, other: str, name: str, by: By) -> tuple[Tensor, list[str]]:
    a, b = work.traces.get(id), work.traces.get(other)
    if name not in a.trace and name not in b.trace:
        raise unknown_tensor(name)
    try:
        return pair_of(a, b, by).difference(name), a.trace.axes(name)
    except NoDifference as error:
        raise bad("no-difference", str(error), why=error.why, name=name) from None


def weighed(work: Work, id: str, other: str, asked: ToWeigh) -> dict[str, Any]:
    kept = [work.traces.get(id), work.traces.get(other)]
    rows = [_row(each, place) for each, place in zip(kept, (asked.place, asked.other_place), strict=True)]
    with in_words():
        return plain(outputs(kept[0].task, rows[0], kept[1].task, rows[1]))


def _row(kept: Kept, place: int | None) -> Tensor:
    """What a pass predicts at one place."""
    found = answers.probabilities(kept.task, kept.trace)
    if found.dim() == 1:
        return found
    if place is None or place >= found.size(0):
        raise bad(
            "out-of-range", f"The output has the rows 0 to {found.size(0) - 1}; {place} is none of them.", shape=[*found.shape]
        )
    return found[place]
