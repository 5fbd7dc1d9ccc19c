"""Two ways to look at a model: what each layer would predict already, and how far back its gradients reach."""

from typing import Any

import torch
from fastapi import FastAPI, Response
from pydantic import Field

from glassformer.distance import gradient_norms
from glassformer.layers.recurrent import Bidirectional, Recurrent
from glassformer.lens import lens
from glassformer.models.stack import Stack
from glassformer.server.limits import Gate
from glassformer.server.refusal import bad
from glassformer.server.replies import TraceId, as_json
from glassformer.server.requests import Asked, Model, Place
from glassformer.server.shelf import read_by
from glassformer.server.work import Work, in_words, plain
from glassformer.tasks.translate import Translate
from glassformer.trace import at_most

ROWS = 8  # random texts, of which the mean is taken
LONGEST = 100


class ToLens(Asked):
    place: Place = Field(None, description="A prediction of which the likeliest of each layer are told.")


class ToReach(Asked):
    model: Model
    length: int = Field(50, ge=2, le=LONGEST, description="Tokens of the random texts.")


def add(app: FastAPI, work: Work, gate: Gate) -> None:
    @app.post("/api/trace/{id}/lens", tags=["traces"])
    async def lens(id: TraceId, asked: ToLens) -> Response:
        """What each layer would predict if it were the last: the residual stream through the final normalisation, if there is
        one, and the output matrix."""
        return as_json(await gate.run(lambda: through_the_lens(work, id, asked)), work.limits)

    @app.post("/api/distance", tags=["models"])
    async def distance(asked: ToReach) -> Response:
        """The norm of the gradient of the last state by each token's embedding, against the token's distance from the end, in
        random texts of the model's own tokens."""
        return as_json(await gate.run(lambda: reach(work, asked)), work.limits)


def through_the_lens(work: Work, id: str, asked: ToLens) -> dict[str, Any]:
    kept = work.traces.get(id)
    with in_words():
        return plain(lens(kept.task, kept.trace, asked.place))


def reach(work: Work, asked: ToReach) -> dict[str, Any]:
    task: Any = work.shelf.load(asked.model)
    stacks = [getattr(task.model, name, None) for name in ("encoder", "decoder")]
    if not any(isinstance(part, Stack | Recurrent | Bidirectional) for stack in stacks if stack for part in stack.modules()):
        sentence = "Only models that read token by token, or whose tokens look at each other, have a distance to measure."
        raise bad("not-for-task", sentence, field="model")
    length = min(asked.length, task.recipe.model.max_length - 2)
    vocabulary = read_by(task)
    words = torch.tensor([id for id in range(vocabulary.size) if vocabulary.bytes_of(id)])
    ids = words[torch.randint(len(words), (ROWS, length), generator=torch.Generator().manual_seed(0))]
    writes = isinstance(task, Translate)
    target = torch.full((ROWS, 1), task.target.bos) if writes else None
    with in_words(), at_most(work.limits.trace):
        norms = gradient_norms(task.model, ids, target)
    return plain({"model": asked.model, "length": length, "texts": ROWS, "of": "decoder" if writes else "last", "norms": norms})
