"""The HTTP API and the page, as one application.

JSON for structure, raw little-endian float32 for tensors. What cannot be answered is a 4xx with a sentence.
"""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from torch import Tensor

from glassformer import __version__, notation
from glassformer.server import looking, page, pairs, runs, vectors
from glassformer.server.guard import Guard, Visitors
from glassformer.server.limits import Gate, Limits
from glassformer.server.refusal import Refusal, bad
from glassformer.server.replies import FLOATS, RESPONSES, Name, Pool, Slice, TraceId, as_floats, as_json
from glassformer.server.requests import ToBeam, ToEdit, ToExplain, ToNext, ToSpell, ToTokenize, ToTrace
from glassformer.server.shelf import Shelf
from glassformer.server.work import Work


def create_app(shelf: Shelf | None = None, visitors: Visitors | None = None, limits: Limits | None = None) -> FastAPI:
    """The application for these models, which answers under the names of `visitors`."""
    limits = limits or Limits()
    work = Work(shelf or Shelf(limits=limits), limits)
    gate, reading = Gate(limits), Gate(replace(limits, requests=limits.reads))  # to look is not to wait for what is computed

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        gate.close()
        reading.close()
        work.maps.close()

    app = FastAPI(
        title="Glassformer",
        version=__version__,
        description="Every number a model computed, by name. What the names mean: GET /api/notation.",
        docs_url=None,
        redoc_url=None,
        lifespan=life,
        responses=RESPONSES,
    )
    app.add_middleware(Guard, visitors=visitors or Visitors(), most=limits.body)
    _add_errors(app)
    for add in (_add_models, _add_traces, _add_writing, looking.add, pairs.add, vectors.add):
        add(app, work, gate)
    _add_tensors(app, work, reading)
    runs.add(app, work, reading)
    _add_page(app)
    app.state.work = work
    return app


def _add_models(app: FastAPI, work: Work, gate: Gate) -> None:
    @app.get("/api/models", tags=["models"])
    async def models() -> Response:
        """The models there are: task, architecture, sizes, languages or labels, texts to begin with, and the steps of a pass in
        the order they are computed; under `vectors` those that are words and vectors alone."""
        return as_json(await gate.run(work.shelf.list), work.limits)

    @app.get("/api/notation", tags=["models"])
    async def rows() -> Response:
        """What the named tensors are: shape, equation, and label in English and Chinese."""
        return as_json({"rows": notation.rows()}, work.limits)

    @app.post("/api/tokenize", tags=["models"])
    async def tokenize(asked: ToTokenize) -> Response:
        """The pieces of a text in columns: their ids, the characters [start, end) they cover, and the bytes of each id in hex."""
        return as_json(await gate.run(lambda: work.tokenize(asked)), work.limits)

    @app.post("/api/words", tags=["models"])
    async def words(asked: ToSpell) -> Response:
        """What tokens of a vocabulary stand for, each by itself; one that is not a whole character is spelled in bytes."""
        return as_json(await gate.run(lambda: work.words(asked)), work.limits)


def _add_traces(app: FastAPI, work: Work, gate: Gate) -> None:
    @app.post("/api/trace", tags=["traces"])
    async def trace(asked: ToTrace) -> Response:
        """One pass over a text: an id, the tokens with the characters they cover, the answer, and the shape and range of every
        tensor."""
        return as_json(await gate.run(lambda: work.trace(asked)), work.limits)

    @app.get("/api/trace/{id}", tags=["traces"])
    async def told(id: TraceId) -> Response:
        """What was told of a pass that is kept, such as one that a notebook shows."""
        return as_json(work.told(id), work.limits)

    @app.post("/api/trace/{id}/edit", tags=["traces"])
    async def edit(id: TraceId, asked: ToEdit) -> Response:
        """The pass again with these edits, and only these: a trace of its own, and how every prediction changed."""
        return as_json(await gate.run(lambda: work.edit(id, asked)), work.limits)


def _add_tensors(app: FastAPI, work: Work, gate: Gate) -> None:
    @app.get("/api/trace/{id}/tensor/{name}", tags=["traces"], responses=FLOATS, response_class=Response)
    async def tensor(
        id: TraceId, name: Name, slice: Slice = None, pool: Pool = None, pooling: Literal["mean", "max"] = "mean"
    ) -> Response:
        """A tensor of a trace or a part of it, as raw numbers; at most 1 MB of them, else smaller slices or `pool`."""
        return await gate.run(lambda: as_floats(*work.tensor(id, name), slice, pool, pooling, work.limits))

    @app.get("/api/trace/{id}/weights/{name}", tags=["traces"], responses=FLOATS, response_class=Response)
    async def weights(
        id: TraceId, name: Name, slice: Slice = None, pool: Pool = None, pooling: Literal["mean", "max"] = "mean"
    ) -> Response:
        """The same for a parameter of the model, such as encoder.0.self.q.weight."""
        return await gate.run(lambda: as_floats(*work.weights(id, name), slice, pool, pooling, work.limits))

    @app.post("/api/trace/{id}/cell", tags=["traces"])
    async def cell(id: TraceId, asked: ToExplain) -> Response:
        """How one number came about: its operands, the arithmetic, and the result of doing it again in float64."""
        return as_json(await gate.run(lambda: work.cell(id, asked)), work.limits)


def _add_writing(app: FastAPI, work: Work, gate: Gate) -> None:
    @app.post("/api/next", tags=["writing"])
    async def next(asked: ToNext) -> Response:
        """The distribution of the next token, after temperature, top-k, softmax and top-p, and one drawn from it."""
        found = await gate.run(lambda: work.next(asked))
        if isinstance(found, Tensor):
            return as_floats(found, ["V"], None, None, "mean", work.limits)
        return as_json(found, work.limits)

    @app.post("/api/beam", tags=["writing"])
    async def beam(asked: ToBeam) -> Response:
        """A beam search as a tree: every continuation it looked at, round by round, and why it was kept or lost."""
        return as_json(await gate.run(lambda: work.beam(asked)), work.limits)


def _add_page(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return Response(page.documentation(app.openapi()), media_type="text/html; charset=utf-8")

    @app.get("/{path:path}", include_in_schema=False)
    def files(path: str) -> Response:
        return page.serve(path)


def _add_errors(app: FastAPI) -> None:
    def say(refusal: Refusal) -> Response:
        more = {"Retry-After": "1"} if refusal.status == 429 else {}
        body = json.dumps(refusal.body(), allow_nan=False).encode()
        return Response(body, refusal.status, media_type="application/json", headers={"Cache-Control": "no-store", **more})

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return say(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return say(_invalid(error))

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        code = {404: "unknown-page", 405: "wrong-method"}.get(error.status_code, "bad-request")
        said = {404: "There is nothing at this address.", 405: "This address does not take that method."}
        response = say(Refusal(error.status_code, code, said.get(error.status_code, str(error.detail))))
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        logging.getLogger("glassformer").error("%s %s", request.method, request.url.path, exc_info=error)
        return say(Refusal(500, "internal", "Something went wrong in the server; the terminal it runs in says what."))


def _invalid(error: RequestValidationError) -> Refusal:
    """The first thing that is wrong with a request, without repeating what was sent."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    if first["type"] == "string_too_long" and field in ("text", "second"):
        limit, length = first["ctx"]["max_length"], len(first["input"])
        sentence = f"The text is {length:,} characters long; at most {limit:,} are read. Shorten it."
        return bad("too-long", sentence, length=length, limit=limit, unit="characters")
    if first["type"] == "json_invalid":
        return bad("bad-json", "The body is not JSON.")
    count = len(error.errors())
    more = f" ({count - 1} more)" if count > 1 else ""
    return bad("bad-request", f"{field or 'The body'}: {first['msg']}.{more}", field=field, problem=first["type"])
