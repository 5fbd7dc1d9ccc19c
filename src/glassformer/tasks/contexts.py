"""One word in several sentences: its states where it stands, which differ as the sentences do."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.errors import UserError
from glassformer.tasks.task import Task

UNSPACED = re.compile(  # scripts that put no space between words, or, as Korean does, write endings without one
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u318f\u31a0-\ua4cf\uac00-\ud7ff\uf900-\ufaff\uff00-\uff9f\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffff]"
)


@dataclass(frozen=True)
class Occurrence:
    """A word where it stands: the characters [start, end) of a sentence, and its pieces there; the bytes of one character are
    one piece."""

    sentence: int  # counted from 1
    start: int
    end: int
    pieces: list[str]
    state: Tensor  # (D): the mean of its pieces' states


def occurrences(task: Task, word: str, sentences: Sequence[str]) -> list[Occurrence]:
    """Every place where the word stands, sentence by sentence; each sentence must have it."""
    if not word:
        raise UserError("The word is empty.")
    found = []
    for number, sentence in enumerate(sentences, start=1):
        places = _places(word, sentence)
        if not places:
            inside = " but inside of longer words" if word in sentence else ""
            raise UserError(f"Sentence {number} does not have the word {word!r}{inside}: {sentence[:60]!r}.")
        tokens, states = task.states(sentence)
        for start in places:
            end = start + len(word)
            covered = [
                i for i, token in enumerate(tokens) if token.start is not None and token.start < end and (token.end or 0) > start
            ]
            if not covered:
                raise UserError(f"The model reads nothing of {word!r} in sentence {number}.")
            pieces = [tokens[i].text for i in covered if tokens[i].text]
            found.append(Occurrence(number, start, end, pieces, states[covered].mean(0)))
    return found


def cosines(found: Sequence[Occurrence]) -> Tensor:
    """(N, N): how alike the states of each two places are."""
    unit = F.normalize(torch.stack([each.state for each in found]), dim=1)
    return unit @ unit.T


def _places(word: str, sentence: str) -> list[int]:
    """Where the word begins, but not as a part of a longer one. Its first letter may be a capital, as where a sentence begins."""
    forms = {word, word[0].upper() + word[1:], word[0].lower() + word[1:]}
    found = [i for i in range(len(sentence)) if sentence[i : i + len(word)] in forms]
    return [i for i in found if _whole(sentence, i, len(word))]


def _whole(sentence: str, start: int, length: int) -> bool:
    """Whether neither end is between two letters of a word. Scripts without spaces do not say, so it is taken as whole there."""
    inner = [sentence[at - 1 : at + 1] for at in (start, start + length) if 0 < at < len(sentence)]
    return not any(all(map(_in_word, two)) for two in inner)


def _in_word(character: str) -> bool:
    letter = character.isalnum() or unicodedata.category(character).startswith("M")  # a mark belongs to the letter before it
    return letter and not UNSPACED.match(character)
