"""A model's vectors for the page: words on a plane, those near a word, a − b + c, and a word's row of the matrix."""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from fastapi import FastAPI, Query, Response
from fastapi import Path as InPath
from pydantic import Field
from torch import Tensor

from glassformer.errors import UserError
from glassformer.server.limits import Gate, Limits
from glassformer.server.maps import Maps, rounded
from glassformer.server.refusal import bad
from glassformer.server.replies import FLOATS, Pool, Slice, as_floats, as_json
from glassformer.server.requests import Asked, Model
from glassformer.server.shelf import Shelf, read_by
from glassformer.server.work import Work
from glassformer.tasks.plane import pca, tsne
from glassformer.tasks.space import NoDirection, Space, embedding_of, space_of
from glassformer.tasks.vectors import Vectors

_LIMITS = Limits()
STEPS = 500  # of a map
Word = Annotated[str, Field(min_length=1, max_length=200, description="A word of the vocabulary.")]
Count = Annotated[int, Field(ge=1, le=100, description="How many to name.")]
MapId = Annotated[str, InPath(max_length=64, description="The id of a map.")]


class ToPlace(Asked):
    model: Model
    count: int = Field(_LIMITS.drawn, ge=1, le=_LIMITS.drawn, description="So many of the vocabulary's first words.")


class ToMap(Asked):
    model: Model
    count: int = Field(1000, ge=1, le=_LIMITS.mapped, description="So many of the vocabulary's first words.")
    perplexity: float = Field(30.0, ge=2, le=100, description="How many neighbours count, about.")


class ToNear(Asked):
    model: Model
    word: Word
    count: Count = 12


class ToAnalogy(Asked):
    model: Model
    a: Word
    b: Word
    c: Word
    count: Count = 10


class ToRow(Asked):
    model: Model
    word: Word


@dataclass(frozen=True)
class Atlas:
    """The words of a model, their vectors, and where PCA puts them. It is made of all words, whichever are drawn."""

    space: Space
    ids: dict[str, int]
    places: Tensor  # (V, 2)
    shares: Tensor  # (2)


class Atlases:
    """What requests ask of the vectors of the models that are loaded."""

    def __init__(self, shelf: Shelf, maps: Maps) -> None:
        self.shelf, self.maps = shelf, maps
        self._made: weakref.WeakKeyDictionary[Any, Atlas] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, task: Any) -> Atlas:
        with self._lock:  # two requests for one model make it once
            known = self._made.get(task)
            if known is None:
                with in_words():
                    space = space_of(task)
                if not space.words:
                    raise bad("no-embedding", "The vocabulary of this model has no piece that is text by itself.")
                known = self._made[task] = Atlas(space, read_by(task).words(), *pca(space.unit))
        return known

    def plane(self, asked: ToPlace) -> dict[str, Any]:
        task = self.shelf.load(asked.model)
        atlas = self.of(task)
        words = atlas.space.words[: asked.count]
        x, y = rounded(atlas.places[: asked.count])
        return {
            "total": len(atlas.space.words),
            "width": atlas.space.unit.size(1),
            "words": words,
            "ids": [atlas.ids[word] for word in words],
            "x": x,
            "y": y,
            "shares": atlas.shares.tolist(),
        }

    def near(self, asked: ToNear) -> dict[str, Any]:
        space = self.of(self.shelf.load(asked.model)).space
        with_vector(space, asked.word)
        found = space.neighbours(asked.word, asked.count)
        row = space.row(asked.word)
        word = asked.word if row is None else space.words[row]
        return {"word": word, "known": row is not None, "near": [{"word": near.word, "cosine": near.cosine} for near in found]}

    def analogy(self, asked: ToAnalogy) -> dict[str, Any]:
        """The vectors are those of length 1 that the cosines are of."""
        space = self.of(self.shelf.load(asked.model)).space
        a, b, c = (with_vector(space, word) for word in (asked.a, asked.b, asked.c))
        with in_direction():
            found = space.analogy(asked.a, asked.b, asked.c, asked.count)
        return {
            "a": a.tolist(),
            "b": b.tolist(),
            "c": c.tolist(),
            "sum": (a - b + c).tolist(),
            "best": space.vector(found[0].word).tolist() if found else None,
            "near": [{"word": near.word, "cosine": near.cosine} for near in found],
        }

    def row(self, asked: ToRow) -> dict[str, Any]:
        """Which rows of the matrix a word's vector is the mean of: its own alone, unless the model also has n-grams."""
        task: Any = self.shelf.load(asked.model)
        atlas = self.of(task)
        at = atlas.space.row(asked.word)
        if at is None:
            with_vector(atlas.space, asked.word)
            sentence = f"The word {asked.word!r} has no row of its own: its vector is made of its n-grams."
            raise bad("no-row", sentence, word=asked.word)
        id = atlas.ids[atlas.space.words[at]]
        name, matrix = embedding_of(task.model)
        rows = task.model.rows(id) if isinstance(task, Vectors) else [id]
        scale = (
            float(getattr(task.model.get_submodule(name.rpartition(".token.")[0]), "scale", 1.0)) if ".token." in name else 1.0
        )
        least, most = torch.aminmax(matrix.detach())
        return {
            "word": atlas.space.words[at],
            "id": id,
            "name": name,
            "shape": list(matrix.shape),
            "min": least.item(),
            "max": most.item(),
            "rows": rows,
            "scale": scale,
            "vector": matrix[rows].mean(0).tolist(),
        }

    def matrix(self, model: str) -> Tensor:
        with in_words():
            return embedding_of(self.shelf.load(model).model)[1].detach()

    def map(self, asked: ToMap) -> dict[str, Any]:
        task = self.shelf.load(asked.model)
        vectors = self.of(task).space.unit[: asked.count]
        if len(vectors) < 3:
            raise bad("too-few", "A map needs at least three words.", least=3)
        key = (weakref.ref(task), asked.count, asked.perplexity)
        return self.maps.begin(key, STEPS, lambda: tsne(vectors, perplexity=asked.perplexity, steps=STEPS)).told()


@contextmanager
def in_words() -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise bad("no-embedding", str(error)) from None


@contextmanager
def in_direction() -> Iterator[None]:
    try:
        yield
    except NoDirection as error:
        raise bad("no-direction", str(error)) from None


def with_vector(space: Space, word: str) -> Tensor:
    try:
        with in_direction():
            return space.vector(word)
    except UserError as error:
        raise bad("unknown-word", str(error), word=word, near=space.spelled_like(word)) from None


def add(app: FastAPI, work: Work, gate: Gate) -> None:
    atlases, maps, limits = Atlases(work.shelf, work.maps), work.maps, work.limits

    @app.post("/api/vectors/plane", tags=["vectors"])
    async def plane(asked: ToPlace) -> Response:
        """The first words of a vocabulary on the two directions in which all its vectors, at length 1, differ most (PCA)."""
        return as_json(await gate.run(lambda: atlases.plane(asked)), limits)

    @app.post("/api/vectors/near", tags=["vectors"])
    async def near(asked: ToNear) -> Response:
        """The words of largest cosine with a word."""
        return as_json(await gate.run(lambda: atlases.near(asked)), limits)

    @app.post("/api/vectors/analogy", tags=["vectors"])
    async def analogy(asked: ToAnalogy) -> Response:
        """a − b + c of vectors of length 1, with their numbers, and the words of largest cosine with the sum."""
        return as_json(await gate.run(lambda: atlases.analogy(asked)), limits)

    @app.post("/api/vectors/row", tags=["vectors"])
    async def row(asked: ToRow) -> Response:
        """A word's row of the embedding matrix, and which row that is."""
        return as_json(await gate.run(lambda: atlases.row(asked)), limits)

    @app.get("/api/vectors/matrix", tags=["vectors"], responses=FLOATS, response_class=Response)
    async def matrix(
        model: Annotated[str, Query(max_length=200, description="An id of /api/models.")],
        slice: Slice = None,
        pool: Pool = None,
        pooling: Literal["mean", "max"] = "mean",
    ) -> Response:
        """The embedding matrix or a part of it, as raw numbers."""
        return await gate.run(lambda: as_floats(atlases.matrix(model), ["V", "D"], slice, pool, pooling, limits))

    @app.post("/api/vectors/map", tags=["vectors"])
    async def map(asked: ToMap) -> Response:
        """Begins a t-SNE map of a vocabulary's first words, or names the one that was begun before."""
        return as_json(await gate.run(lambda: atlases.map(asked)), limits)

    @app.get("/api/vectors/map/{id}", tags=["vectors"])
    async def look(id: MapId) -> Response:
        """How far a map has come, and where its words are by now."""
        return as_json(maps.get(id).told(), limits)

    @app.post("/api/vectors/map/{id}/stop", tags=["vectors"])
    async def stop(id: MapId) -> Response:
        """Ends the computation of a map; where its words have come to stays."""
        return as_json(maps.end(id).told(), limits)
