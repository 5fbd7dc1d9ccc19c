"""One long text as ids on disk, and the windows it is read through."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import UserError
from glassformer.files import sync, write_text
from glassformer.text.batches import Place, chunks, permuted


class Stream:
    """The tokens of a prepared text; read where needed, so memory does not grow with it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.about: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
        self.ids: NDArray[Any] = np.memmap(folder / f"{name}.ids", np.dtype(self.about["dtype"]), mode="r")

    def __len__(self) -> int:
        return len(self.ids)


def prepare_stream(
    folder: Path,
    name: str,
    documents: Iterable[str],
    encode: Callable[[list[str]], Iterable[list[int]]],
    count: Callable[[list[str]], tuple[int, int]],
    *,
    largest: int,
) -> Stream:
    """Writes the ids of all documents one after another, with how many documents, characters and words they are."""
    dtype = np.dtype("<u2" if largest < 1 << 16 else "<u4")
    about: dict[str, Any] = {"documents": 0, "tokens": 0, "characters": 0, "words": 0, "dtype": dtype.str}
    with open(folder / f"{name}.ids", "wb") as file:
        for chunk in chunks(documents):
            for ids in encode(chunk):
                file.write(np.array(ids, dtype).tobytes())
                about["tokens"] += len(ids)
            characters, words = count(chunk)
            about["documents"] += len(chunk)
            about["characters"] += characters
            about["words"] += words
    if about["tokens"] < 2:
        raise UserError(
            f"The {name} text has {about['tokens']} tokens; a language model needs at least 2: one to read and one to foresee."
        )
    sync(folder / f"{name}.ids")
    write_text(folder / f"{name}.json", json.dumps(about))  # last: it says the other is whole
    return Stream(folder, name)


class Windows:
    """Batches of full windows: at most `rows` pieces of `length` tokens and the one after them, in a new order and cut at new
    places every epoch. An epoch is every window once, shared out evenly over its batches."""

    def __init__(self, stream: Stream, *, length: int, rows: int, seed: int) -> None:
        self.stream, self.seed = stream, seed
        self.length = min(length, len(stream) - 1)
        self.rows = rows

    def iterate(self, place: Place) -> Iterator[tuple[NDArray[np.int64], Place]]:
        """(B, length + 1) ids and the place after them, for ever."""
        epoch, batch = place.epoch, place.batch
        while True:
            count, spare = divmod(len(self.stream) - 1, self.length)
            shift = int(np.random.default_rng((self.seed, epoch)).integers(spare + 1))
            batches = math.ceil(count / self.rows)
            while batch < batches:
                first, last = batch * count // batches, (batch + 1) * count // batches
                chosen = permuted(np.arange(first, last), count, key=(self.seed, epoch))
                starts = shift + chosen * self.length
                batch += 1
                after = Place(epoch, 0, batch) if batch < batches else Place(epoch + 1)
                yield np.stack([self.stream.ids[start : start + self.length + 1] for start in starts]).astype(np.int64), after
            epoch, batch = epoch + 1, 0
