"""How the API answers: JSON for structure, raw little-endian float32 for tensors; and what its routes are given."""

import json
from typing import Annotated, Any

from fastapi import Path as InPath
from fastapi import Query, Response
from torch import Tensor

from glassformer.server import slices
from glassformer.server.limits import Limits
from glassformer.server.refusal import bad

RAW = "application/octet-stream"
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "code": {"type": "string"}, "details": {"type": "object"}},
    "required": ["error", "code", "details"],
}
_SAID = {
    400: "The body is not JSON",
    403: "Asked by another site",
    404: "No such model, trace or tensor",
    410: "The trace has expired",
    413: "Too large",
    422: "Something in the request is wrong",
    429: "Too many requests at a time",
    503: "It took too long",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": said, "content": {"application/json": {"schema": _ERROR}}} for status, said in _SAID.items()
}
FLOATS: dict[int | str, dict[str, Any]] = {
    **RESPONSES,
    200: {"description": "Little-endian float32; X-Shape and X-Axes say how they lie.", "content": {RAW: {}}},
}

TraceId = Annotated[str, InPath(max_length=64, description="The id of a trace.")]
Name = Annotated[str, InPath(max_length=200, description="Such as encoder.0.self.q.")]
Slice = Annotated[str | None, Query(max_length=200, description="Such as 0,:,2:5: an index, a range or all of each axis.")]
Pool = Annotated[int | None, Query(ge=1, le=4096, description="At most so many entries of each of the last two axes.")]


def as_json(data: Any, limits: Limits, status: int = 200) -> Response:
    body = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
    if len(body) > limits.answer:
        sentence = f"The answer would be {len(body):,} bytes; {limits.answer:,} are allowed. Shorten the text."
        raise bad("too-large", sentence, bytes=len(body), limit=limits.answer)
    return Response(body, status, media_type="application/json", headers={"Cache-Control": "no-store"})


def as_floats(x: Tensor, axes: list[str], slice: str | None, pool: int | None, pooling: str, limits: Limits) -> Response:
    part, kept = slices.cut(x, slices.parse(slice, x.shape), axes)
    headers = {"Cache-Control": "no-store", "X-Axes": ",".join(kept)}
    if pool is None or part.dim() == 0:
        values = slices.numbers(part, limits.elements)
    else:
        values, factors = slices.pooled(part, pool, pooling, limits.elements)
        headers["X-Pooled"] = ",".join(map(str, factors))
    headers["X-Shape"] = ",".join(map(str, values.shape))
    return Response(values.tobytes(), media_type=RAW, headers=headers)
