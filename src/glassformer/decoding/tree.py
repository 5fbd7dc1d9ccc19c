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

Candidate = tuple[int, int, float, float]  # which of the beams it goes on from, the token, log p of that, and Σ log p


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


@dataclass
class Tree:
    """The search of one input."""

    width: int
    rounds: list[list[Node]] = field(default_factory=list)
    _beams: list[int] = field(default_factory=lambda: [0])  # the node that each beam ends in
    _count: int = 0

    def add(self, candidates: Sequence[Candidate], eos: int, score: Callable[[float], float]) -> None:
        """One round: its candidates, best first. What is impossible has −∞ and is left out."""
        nodes, beams = [], []
        going = 0  # candidates so far that do not end
        for rank, (beam, token, log_prob, total) in enumerate(candidates, start=1):
            if not total > -math.inf:
                break
            self._count += 1
            ends = token == eos
            going += not ends
            fate, why = self._fate(rank, ends, going)
            nodes.append(Node(self._count, self._beams[beam], token, log_prob, total, score(total), rank, fate, why))
            if fate == "kept":
                beams.append(self._count)
        self.rounds.append(nodes)
        self._beams = beams

    def _fate(self, rank: int, ends: bool, going: int) -> tuple[str, str]:
        if ends:
            late = rank > self.width
            return ("pruned", f"ends, but at rank {rank} of {self.width}") if late else ("finished", f"ends at rank {rank}")
        return ("kept" if going <= self.width else "pruned"), f"rank {going} of {self.width}"

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
