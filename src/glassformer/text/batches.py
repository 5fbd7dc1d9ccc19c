"""Prepared corpora and the batches made of them.

A corpus is tokenised once into two files: the ids one after another, and a fixed-size record for each pair. Both are read with
`pread` where needed, so memory does not grow with the corpus. The order of an epoch is a permutation computed number by number
from (seed, epoch), so a place in the data is three numbers and a run continues mid-epoch without replaying it.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import UserError
from glassformer.files import sync, write_text

T = TypeVar("T")

RECORD = np.dtype([("offset", "<i8"), ("source", "<i4"), ("target", "<i4")])  # where its ids begin, and how many
WINDOW = 1 << 17  # pairs that are sorted by length together


@dataclass(frozen=True)
class Place:
    """Where in the data a run stands: the next batch to be taken."""

    epoch: int = 0
    window: int = 0
    batch: int = 0


class Prepared:
    """A tokenised corpus on disk."""

    def __init__(self, folder: Path, name: str) -> None:
        self.about = json.loads((folder / f"{name}.json").read_text())
        self.count: int = self.about["pairs"]
        self._dtype = np.dtype(self.about["dtype"])
        self._ids = open(folder / f"{name}.ids", "rb")  # noqa: SIM115 (open as long as the corpus is in use)
        self._records = open(folder / f"{name}.index", "rb")  # noqa: SIM115

    def records(self, rows: NDArray[np.int64]) -> NDArray[np.void]:
        size, fd = RECORD.itemsize, self._records.fileno()
        return np.frombuffer(b"".join(os.pread(fd, size, row * size) for row in rows.tolist()), RECORD)

    def read(self, record: np.void) -> tuple[list[int], list[int]]:
        """The source and target ids of one pair."""
        length, size = int(record["source"]), self._dtype.itemsize
        raw = os.pread(self._ids.fileno(), (length + int(record["target"])) * size, int(record["offset"]) * size)
        ids = np.frombuffer(raw, self._dtype).tolist()
        return ids[:length], ids[length:]


def prepare(
    folder: Path,
    name: str,
    rows: Iterable[tuple[list[int], list[int]]],
    *,
    largest: int,
    max_length: int,
    max_target: int | None = None,
) -> Prepared:
    """Writes pairs of id lists, no id larger than `largest`; pairs longer than max_length are left out and counted."""
    folder.mkdir(parents=True, exist_ok=True)
    dtype = np.dtype("<u2" if largest < 1 << 16 else "<u4")
    kept = skipped = offset = 0
    with open(folder / f"{name}.ids", "wb") as ids_file, open(folder / f"{name}.index", "wb") as index_file:
        for chunk in chunks(rows):
            records = []
            for source, target in chunk:
                if len(source) > max_length or len(target) > (max_target or max_length):
                    skipped += 1
                    continue
                ids_file.write(np.array(source + target, dtype).tobytes())
                records.append((offset, len(source), len(target)))
                offset += len(source) + len(target)
            index_file.write(np.array(records, RECORD).tobytes())
            kept += len(records)
    if not kept:
        raise UserError(
            f"Nothing is left to train on: all {skipped} are longer than data.max_length {max_length} pieces; raise it."
        )
    about = {"pairs": kept, "skipped": skipped, "tokens": offset, "dtype": dtype.str}
    sync(folder / f"{name}.ids")
    sync(folder / f"{name}.index")
    write_text(folder / f"{name}.json", json.dumps(about))  # last: it says the other two are whole
    return Prepared(folder, name)


def chunks(items: Iterable[T], size: int = 2000) -> Iterator[list[T]]:
    stream = iter(items)
    while chunk := list(islice(stream, size)):
        yield chunk


class Batches:
    """Batches of a token budget: rows × the longer side stay within `tokens`. Iterating yields (rows, place after them) for ever.

    A row is (record of the pair, reversed): with `both_ways` every pair is two rows.
    """

    def __init__(self, corpus: Prepared, *, tokens: int, both_ways: bool = False, seed: int, marks: int = 1) -> None:
        self.corpus = corpus
        self.marks = marks  # what is put around a source: <eos>, or two in BERT's manner
        self.tokens = tokens
        self.both_ways = both_ways
        self.seed = seed
        self.rows = corpus.count * (2 if both_ways else 1)

    def iterate(self, place: Place) -> Iterator[tuple[list[tuple[np.void, bool]], Place]]:
        epoch, window, skip = place.epoch, place.window, place.batch
        while True:
            batches = self._window(epoch, window)
            last = (window + 1) * WINDOW >= self.rows
            after = Place(epoch + 1) if last else Place(epoch, window + 1)
            for i, batch in enumerate(batches[skip:], start=skip + 1):
                yield batch, (Place(epoch, window, i) if i < len(batches) else after)
            epoch, window, skip = after.epoch, after.window, 0

    def _window(self, epoch: int, window: int) -> list[list[tuple[np.void, bool]]]:
        """All batches of one window, in the order they are taken."""
        stop = min((window + 1) * WINDOW, self.rows)
        chosen = permuted(np.arange(window * WINDOW, stop), self.rows, key=(self.seed, epoch))
        pairs, reverse = (chosen // 2, chosen % 2 == 1) if self.both_ways else (chosen, np.zeros(len(chosen), bool))
        records = self.corpus.records(pairs)
        source = np.where(reverse, records["target"], records["source"]) + self.marks + self.both_ways  # and a tag
        target = np.where(reverse, records["source"], records["target"]) + 1
        order = by_length(source, target)
        batches, start = [], 0
        longest = 0
        for i, row in enumerate(order.tolist()):
            longest = max(longest, int(source[row]), int(target[row]))
            if i > start and (i - start + 1) * longest > self.tokens:
                batches.append(order[start:i])
                start, longest = i, max(int(source[row]), int(target[row]))
        batches.append(order[start:])
        np.random.default_rng((self.seed, epoch, window)).shuffle(batches)
        return [[(records[row], bool(reverse[row])) for row in batch] for batch in batches]


def by_length(source: NDArray[np.int32], target: NDArray[np.int32]) -> NDArray[np.int64]:
    """An order in which neighbours are alike in both lengths, so that little is padded on either side."""
    longer = np.maximum(source, target)
    return np.lexsort((source - target, longer))


def permuted(index: NDArray[np.int64], count: int, *, key: tuple[int, ...]) -> NDArray[np.int64]:
    """Where a shuffle of `count` things, decided by `key`, puts each index: one number at a time, no list of all.

    A Feistel network is a permutation of the next power of four; values beyond `count` are sent through it again.
    """
    half = max(1, (max(count - 1, 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << half) - 1)
    rounds = np.random.default_rng(key).integers(1 << 63, size=4, dtype=np.uint64)
    result = index.astype(np.uint64)
    todo = np.ones(len(index), bool)
    while todo.any():
        left, right = result[todo] >> np.uint64(half), result[todo] & mask
        for secret in rounds:
            left, right = right, left ^ (_mix(right ^ secret) & mask)
        result[todo] = (left << np.uint64(half)) | right
        todo = result >= count
    return result.astype(np.int64)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: every bit of the result depends on every bit of x."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
