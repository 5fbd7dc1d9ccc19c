"""The key/value cache of a decoder that goes through its weights alone: what all its blocks remember, in one tensor."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from glassformer.layers.attention import KeyValues
from glassformer.layers.block import BlockState

ROOM = 32  # tokens that there is room for at first


class Sources:
    """What the blocks look up in N sources."""

    def __init__(self, known: tuple[KeyValues, ...], bias: Tensor | None = None) -> None:
        self.known = known  # of each block, (N, K, S, ·)
        self.bias = bias  # (N, 1, 1, S), −∞ where nobody may look

    def reorder(self, index: Tensor) -> "Sources":
        bias = None if self.bias is None else self.bias.index_select(0, index)
        return Sources(tuple(each.reorder(index) for each in self.known), bias)


class Room:
    """Memory (L, B, K, size, d_k + d_v) whose first `used` places are taken; only the cache that ends there may write on. Caches
    that share one are for one thread."""

    def __init__(self, both: Tensor, used: int) -> None:
        self.both, self.used = both, used


class Cache:
    """Keys beside values of B texts, the same number of tokens of each, in L blocks; and of their sources, if there are some.

    A value: what a cache holds never changes. Going on writes behind its end where that disturbs nobody.
    """

    def __init__(self, room: Room, length: int, d_k: int, sources: Sources | None) -> None:
        self.room, self.length, self.d_k, self.sources = room, length, d_k, sources

    @classmethod
    def empty(cls, shape: tuple[int, int, int], widths: tuple[int, int], like: Tensor, sources: Sources | None) -> "Cache":
        """Of (L, B, K) and (d_k, d_v), without a token yet, in numbers like those."""
        return cls(Room(like.new_empty(*shape, ROOM, sum(widths)), 0), 0, widths[0], sources)

    @classmethod
    def of(cls, own: Sequence[KeyValues], sources: Sources | None) -> "Cache":
        """What the blocks have remembered one by one."""
        k, v = (torch.stack(each) for each in ([one.k for one in own], [one.v for one in own]))
        return cls(Room(torch.cat((k, v), dim=-1), k.size(3)), k.size(3), k.size(-1), sources)

    def blocks(self) -> tuple[BlockState, ...]:
        """The same, one by one."""
        own = [KeyValues(k, v) for k, v in self._own()]
        sources = self.sources.known if self.sources else [None] * len(own)
        return tuple(BlockState(*each) for each in zip(own, sources, strict=True))

    def longer(self) -> "Cache":
        """With one token more, which is still to be written."""
        length, room = self.length, self.room
        frozen = room.both.is_inference() and not torch.is_inference_mode_enabled()
        if room.used != length or room.both.size(3) == length or frozen:
            room = self._room(room.both.size(1))
            room.both.narrow(3, 0, length).copy_(self.room.both.narrow(3, 0, length))
        room.used = length + 1
        return Cache(room, length + 1, self.d_k, self.sources)

    def places(self) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
        """For each block where the last token's keys and values stand (B, K, d_k + d_v), and all of them: keys
        (B, K, length, d_k) and values (B, K, length, d_v)."""
        slots = self.room.both.select(3, self.length - 1).unbind()
        return ((slot, *both) for slot, both in zip(slots, self._own(), strict=True))

    def reorder(self, index: Tensor, sources: Tensor | None) -> "Cache":
        """That whose row i is this one's row index[i]; of the sources those rows, or all."""
        room, length = self._room(index.size(0)), self.length
        torch.index_select(self.room.both.narrow(3, 0, length), 1, index, out=room.both.narrow(3, 0, length))
        kept = self.sources if sources is None or self.sources is None else self.sources.reorder(sources)
        return Cache(room, length, self.d_k, kept)

    def _room(self, rows: int) -> Room:
        """For so many rows as long as these, and more tokens; nothing is in it yet."""
        both, length = self.room.both, self.length
        size = both.size(3) if both.size(3) > length else length + max(ROOM, length // 2)
        return Room(both.new_empty(both.size(0), rows, both.size(2), size, both.size(4)), length)

    def _own(self) -> Iterable[tuple[Tensor, Tensor]]:
        both = self.room.both.narrow(3, 0, self.length)
        k, v = both.split_with_sizes((self.d_k, both.size(4) - self.d_k), 4)
        return zip(k.unbind(), v.unbind(), strict=True)
