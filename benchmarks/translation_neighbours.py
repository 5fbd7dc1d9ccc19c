"""How often a word's nearest neighbour in the other language is its translation.

    python benchmarks/translation_neighbours.py [MODEL]

The pairs are in translations.tsv: an English word, and Chinese words of which any is right. They are asked both ways; words that
the vocabulary does not have are counted as not covered, and not as wrong.
"""

import sys
from pathlib import Path

import glassformer
from glassformer.tasks.space import Space, space_of
from glassformer.text.words import RUN

PAIRS = Path(__file__).parent / "translations.tsv"


def precision(space: Space, asked: dict[str, set[str]], *, chinese: bool) -> tuple[float, float, int]:
    """Of those words that are known and have a known answer: how often the first, and one of the first five, is right."""
    rows = [row for row, word in enumerate(space.words) if bool(RUN.fullmatch(word)) == chinese]
    others = Space([space.words[row] for row in rows], space.unit[rows])
    first = five = covered = 0
    for word, right in asked.items():
        if space.row(word) is None or all(others.row(answer) is None for answer in right):
            continue
        covered += 1
        found = [near.word for near in others.nearest(space.vector(word), 5)]
        first += found[0] in right
        five += not right.isdisjoint(found)
    return first / max(1, covered), five / max(1, covered), covered


def main() -> None:
    space = space_of(glassformer.load(sys.argv[1] if len(sys.argv) > 1 else "word-vectors"))
    pairs = [line.split("\t") for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    forward = {english: set(chinese.split()) for english, chinese in pairs}
    backward: dict[str, set[str]] = {}
    for english, words in forward.items():
        for word in words:
            backward.setdefault(word, set()).add(english)
    for name, asked, chinese in (("English → Chinese", forward, True), ("Chinese → English", backward, False)):
        first, five, covered = precision(space, asked, chinese=chinese)
        print(f"{name}: precision@1 {first:.3f}, precision@5 {five:.3f}, {covered} of {len(asked)} words")


if __name__ == "__main__":
    main()
