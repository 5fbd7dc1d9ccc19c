"""A beam search as a tree: every continuation it looked at, and why it was kept or lost.

with watching() as trees:
    translator.translate(text, options=options)
trees[0].rounds

The search tells whoever watches, through a ContextVar; with nobody there it costs nothing and finds the same.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Node:
    """One token after those of its parent."""

    number: int
    parent: int  # 0 is the beginning
    token: int
    log_prob: float
    total: float  # Σ log p from the beginning
    score: float  # total ÷ lengthᵅ
    rank: int  # among the continuations of its round, from 1
    fate: str  # "kept", "pruned" or "finished"
    why: str


@dataclass(frozen=True)
class Candidate:
    """A continuation as the search sees it: which of the beams it goes on from, and what it would make of it."""

    beam: int
    token: int
    log_prob: float
    total: float
    score: float
    ends: bool


@dataclass
class Tree:
    """The search of one input."""

    width: int
    rounds: list[list[Node]] = field(default_factory=list)
    _beams: list[int] = field(default_factory=lambda: [0])  # the node that each beam ends in
    _count: int = 0

    def add(self, candidates: Sequence[Candidate], kept: Sequence[int]) -> None:
        """One round: the candidates, best first, and which of them go on, in the order of the new beams."""
        nodes = []
        going = 0  # candidates so far that do not end
        for rank, each in enumerate(candidates, start=1):
            self._count += 1
            going += not each.ends
            fate, why = self._fate(rank, rank - 1 in kept, each.ends, going)
            parent = self._beams[each.beam]
            nodes.append(Node(self._count, parent, each.token, each.log_prob, each.total, each.score, rank, fate, why))
        self.rounds.append(nodes)
        self._beams = [nodes[i].number for i in kept]

    def _fate(self, rank: int, kept: bool, ends: bool, going: int) -> tuple[str, str]:
        if ends:
            late = rank > self.width
            return ("pruned", f"ends, but at rank {rank} of {self.width}") if late else ("finished", f"ends at rank {rank}")
        return ("kept" if kept else "pruned"), f"rank {going} of {self.width}"

    def end(self, why: str) -> None:
        """The search is over: whatever was still going lost."""
        for node in self.rounds[-1] if self.rounds else []:
            if node.fate == "kept":
                node.fate, node.why = "pruned", why

    def path(self, ids: Sequence[int]) -> list[int]:
        """The nodes that wrote `ids` and the end after them."""
        found: list[int] = []
        at = 0
        for depth, nodes in enumerate(self.rounds[: len(ids) + 1]):
            ended = depth == len(ids)
            at = next(n.number for n in nodes if n.parent == at and (n.fate == "finished" if ended else n.token == ids[depth]))
            found.append(at)
        return found


def grow(
    trees: list[Tree],
    rows: Tensor,
    candidates: tuple[Tensor, Tensor, Tensor, Tensor],
    kept: tuple[Tensor, Tensor],
    eos: int,
    score: Callable[[float], float],
) -> None:
    """One round of the inputs `rows` (b): for each its candidates, best first, as (beam, token, log p, Σ log p), each (b, 2K),
    and the new beams as (which candidate, Σ log p), each (b, K). What is impossible has −∞ and is left out."""
    parts = [x.tolist() for x in candidates]
    orders, totals = (x.tolist() for x in kept)
    for i, row in enumerate(rows.tolist()):
        looked_at = [
            Candidate(beam, token, log_prob, total, score(total), token == eos)
            for beam, token, log_prob, total in zip(*(part[i] for part in parts), strict=True)
            if total > -math.inf
        ]
        trees[row].add(looked_at, [j for j, total in zip(orders[i], totals[i], strict=True) if total > -math.inf])


_watched: ContextVar[list[Tree] | None] = ContextVar("trees", default=None)


@contextmanager
def watching() -> Iterator[list[Tree]]:
    """Within this block the trees of beam searches land in the list, one for each input."""
    trees: list[Tree] = []
    token = _watched.set(trees)
    try:
        yield trees
    finally:
        _watched.reset(token)


def watched() -> bool:
    return _watched.get() is not None


def plant(count: int, width: int) -> list[Tree] | None:
    """The trees of a search over `count` inputs, if somebody watches."""
    trees = _watched.get()
    if trees is None:
        return None
    new = [Tree(width) for _ in range(count)]
    trees += new
    return new
