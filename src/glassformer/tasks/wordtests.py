"""How good word vectors are: by how alike people find two words, and by analogies."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.errors import UserError
from glassformer.tasks.space import Space
from glassformer.text.corpus import read_lines

ALLOWED = "word TAB word TAB score in every line, or four words a line under headings such as `: capitals`"
DEFAULT = tuple(
    f"word-eval/{name}"
    for name in ("wordsim353.tsv", "simlex999.txt", "questions-words.txt", "ca_translated.txt", "semantic.txt")
)
MOST = 30_000  # words that an analogy's answer is looked for among, as in word2vec.c

Pair = tuple[str, str, float]
Question = tuple[str, str, str, str]


@dataclass(frozen=True)
class Judged:
    """One test: a rank correlation, or the share of right answers; of those questions whose words are all known."""

    name: str
    measure: str  # "spearman" or "accuracy"
    score: float | None  # None if too little is known to judge
    covered: int
    total: int


def evaluate(space: Space, path: Path) -> list[Judged]:
    """A test's result; of analogies also that of each section, if there is more than one."""
    sections = read_test(path)
    name = path.name.split(".")[0]
    if isinstance(sections, list):
        return [similarities(space, sections, name)]
    parts = [analogies(space, questions, f"{name}: {section}") for section, questions in sections.items()]
    right = sum(round((part.score or 0) * part.covered) for part in parts)
    covered, total = sum(part.covered for part in parts), sum(part.total for part in parts)
    whole = Judged(name, "accuracy", right / covered if covered else None, covered, total)
    return [whole, *parts] if len(parts) > 1 else [whole]


def similarities(space: Space, pairs: Sequence[Pair], name: str) -> Judged:
    """Spearman's ρ between cosines and people's scores."""
    known = [(space.similarity(a, b), score) for a, b, score in pairs if None not in (space.directed(a), space.directed(b))]
    ours, theirs = (np.array(column) for column in zip(*known, strict=True)) if known else (np.empty(0), np.empty(0))
    return Judged(name, "spearman", spearman(ours, theirs), len(known), len(pairs))


def analogies(space: Space, questions: Sequence[Question], name: str) -> Judged:
    """How often the word nearest to b − a + c, other than these, is d: the share of right answers to a : b = c : d."""
    rows = [[space.directed(word) for word in question] for question in questions]
    known = torch.tensor([each for each in rows if all(row is not None and row < MOST for row in each)], dtype=torch.long)
    unit = space.unit[:MOST]
    right = 0
    for a, b, c, d in (chunk.T for chunk in known.split(1000) if len(chunk)):
        cosines = (unit[b] - unit[a] + unit[c]) @ unit.T  # of one length each row, which changes no order
        for given in (a, b, c):
            cosines.scatter_(1, given.unsqueeze(1), -torch.inf)
        right += int((cosines.argmax(1) == d).sum())
    return Judged(name, "accuracy", right / len(known) if len(known) else None, len(known), len(questions))


def read_test(path: Path) -> list[Pair] | dict[str, list[Question]]:
    """Pairs with their scores, or analogies by section; lines that begin with # are comments."""
    pairs: list[Pair] = []
    sections: dict[str, list[Question]] = {}
    section = "all"
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(":"):
            section = line[1:].strip() or "all"
        elif len(cells) == 4 and not pairs:
            sections.setdefault(section, []).append((cells[0], cells[1], cells[2], cells[3]))
        elif len(cells) == 3 and not sections and (score := _number(cells[2])) is not None:
            pairs.append((cells[0], cells[1], score))
        else:
            raise UserError(f"{path}:{number}: not a line of a test of word vectors, which has {ALLOWED}; found {line[:60]!r}.")
    if not pairs and not sections:
        raise UserError(f"{path} is empty: a test of word vectors has {ALLOWED}.")
    return pairs or sections


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """The correlation of the ranks; equal values share the mean of theirs. None where nothing varies."""
    x, y = ranks(a), ranks(b)
    if len(x) < 2 or x.std() == 0 or y.std() == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def ranks(x: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None
