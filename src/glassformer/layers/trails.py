"""What the blocks of layers/compiled.c remember between steps, in NumPy's arrays. No torch is needed for it."""

import ctypes
from ctypes import c_int64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.layers import compiled

ROOM = 32  # tokens that there is room for at first
Array = NDArray[np.float32]
Numbers = NDArray[np.int32]


class Sources:
    """What L blocks look up in N sources: of each block keys beside values (N, S, K, d_k + d_v), and −∞ (N, S) where nobody may
    look. It never changes."""

    def __init__(self, both: list[Array], bias: Array | None) -> None:
        self.both, self.bias = both, bias
        self.count, self.length, heads, width = both[0].shape
        steps = (c_int64 * 3)(self.length * heads * width, width, heads * width)
        self._told = (compiled.Source * len(both))(*(compiled.Source(compiled.address(x), steps) for x in both))
        self.told = ctypes.addressof(self._told), None if bias is None else compiled.address(bias), self.length

    def __deepcopy__(self, memo: Any) -> "Sources":
        return self


class Room:
    """Memory (L, slots, K, size, d_k + d_v) whose first `used` places are taken; only those who end there may write on. Those
    who share one are for one thread."""

    def __init__(self, both: Array, used: int) -> None:
        self.both, self.used = both, used


class Trails:
    """Keys beside values of B texts, the same number of tokens of each. The keys of a token stand in some slot, and each row has
    the list of its own: rows that are reordered, as beams are at every step, copy numbers of slots and not keys. Sources stay as
    they are, and each row knows which is its own.

    A value: what it holds never changes. Going on writes behind its end where that disturbs nobody.
    """

    def __init__(self, room: Room, length: int, sources: Sources | None, slots: Numbers, looked_at: Numbers) -> None:
        self.room, self.length, self.sources = room, length, sources
        self.slots = slots  # (B, size), of each token of a row; there may be more of them than rows
        self.looked_at = looked_at  # (B)

    @classmethod
    def beginning(cls, both: Array, length: int, sources: Sources | None) -> "Trails":
        """What has been remembered so far, of each row in a slot of its own; so many rows after one another have one source."""
        rows = both.shape[1]
        count = sources.count if sources else rows
        if not count or rows % count:
            raise ValueError(f"{rows} rows cannot share {count} sources")
        looked_at = np.arange(rows, dtype=np.int32) // (rows // count)
        return cls(Room(both, length), length, sources, _own_slots(both), looked_at)

    def longer(self) -> "Trails":
        """With one token more, which is still to be written: that of row i to slot i."""
        room, slots, length = self.room, self.slots, self.length
        rows = len(slots)
        if room.used != length or room.both.shape[3] == length or rows > room.both.shape[1]:
            room = Room(self.gathered(max(ROOM, length // 2)), length)
            slots = _own_slots(room.both)
        room.used = length + 1
        slots[:, length] = np.arange(rows, dtype=np.int32)
        return Trails(room, length + 1, self.sources, slots, self.looked_at)

    def reorder(self, index: NDArray[np.int64]) -> "Trails":
        """That whose row i is this one's row index[i]; of the sources always all."""
        return Trails(self.room, self.length, self.sources, self.slots[index], self.looked_at[index])

    def gathered(self, more: int = 0) -> Array:
        """Keys beside values, row by row, and memory for more tokens."""
        both, length = self.room.both, self.length
        depth, _, heads, _, width = both.shape
        found = np.empty((depth, len(self.slots), heads, length + more, width), both.dtype)
        slots = self.slots[:, :length]
        found[:, :, :, :length] = both[:, slots, :, np.arange(length)].transpose(2, 0, 3, 1, 4)  # from (B, T, L, K, ·)
        return found


def _own_slots(both: Array) -> Numbers:
    """Of each token of a row the row's own."""
    _, rows, _, size, _ = both.shape
    return np.arange(rows, dtype=np.int32)[:, None].repeat(size, 1)
