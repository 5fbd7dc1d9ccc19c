"""One word in several sentences: its states where it stands, which differ as the sentences do."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.errors import UserError
from glassformer.tasks.task import Task


@dataclass(frozen=True)
class Occurrence:
    """A word where it stands: the characters [start, end) of a sentence, and its pieces there."""

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
            raise UserError(f"Sentence {number} does not have the word {word!r}: {sentence[:60]!r}.")
        tokens, states = task.states(sentence)
        for start in places:
            end = start + len(word)
            covered = [
                i for i, token in enumerate(tokens) if token.start is not None and token.start < end and (token.end or 0) > start
            ]
            if not covered:
                raise UserError(f"The model reads nothing of {word!r} in sentence {number}.")
            pieces = [tokens[i].text for i in covered]
            found.append(Occurrence(number, start, end, pieces, states[covered].mean(0)))
    return found


def cosines(found: Sequence[Occurrence]) -> Tensor:
    """(N, N): how alike the states of each two places are."""
    unit = F.normalize(torch.stack([each.state for each in found]), dim=1)
    return unit @ unit.T


def _places(word: str, sentence: str) -> list[int]:
    """Where the word begins; of letters only where it is not part of a longer word, unless no other place has it."""
    every = [i for i in range(len(sentence) - len(word) + 1) if sentence.startswith(word, i)]
    if not word.isascii():
        return every
    whole = [i for i in every if not (sentence[:i][-1:].isalnum() or sentence[i + len(word) :][:1].isalnum())]
    return whole or every
