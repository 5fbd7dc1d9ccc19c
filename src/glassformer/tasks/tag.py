"""Tag: a label for every word, such as its part of speech or the name it belongs to."""

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from glassformer.models import readers
from glassformer.options import Recipe, TagData
from glassformer.tasks import tokens
from glassformer.tasks.reading import ReadBatch, Reader, by_budget, read_labels, write_labels
from glassformer.tasks.task import Ids
from glassformer.text.labelled import Sentence, scheme_of, spans
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Edit, Token, Trace

HAN = r"\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
WORD = re.compile(  # near to how English treebanks part words; Chinese ones are given with --words
    rf"""
      [{HAN}]                                       # a Chinese character
    | (?:https?://|www\.)[^\s<>"]*[^\s<>".,;:!?')\]]  # an address, without the full stop after it
    | [\w.+-]{{1,64}}@[\w-]+(?:\.[\w-]+)+
    | n['’]t\b | ['’](?:s|m|d|re|ve|ll)\b            # endings: do n't, it 's
    | [^\W\d_{HAN}]+?(?=n['’]t\b) | can(?=not\b)
    | \d+(?:[.,:/]\d+)*(?:(?:st|nd|rd|th|s)\b)?      # 1,000  9:30  2nd  1990s
    | (?:[^\W\d_{HAN}]\.){{2,}}                      # U.S.
    | (?:mr|mrs|ms|dr|st|jr|sr|inc|corp|co|vs)\.
    | [^\W\d_{HAN}][^\W_{HAN}]*(?:[._][^\W\d_{HAN}][^\W_{HAN}]+)*  # a word or a name: Q1  notes.txt
    | [:;]-?[()DP](?!\w)                            # :-)
    | ([^\w\s])\1*                                 # a sign, or several alike: !!!
    | _+
    """,
    re.IGNORECASE | re.VERBOSE,
)
SPACED = re.compile(r"\S+")


@dataclass(frozen=True)
class Word:
    text: str
    label: str
    probability: float
    start: int  # characters of the text it stands at
    end: int


@dataclass(frozen=True)
class Tagged:
    text: str
    words: list[Word]
    spans: list[tuple[str, int, int]]  # (kind, first word, word after the last), if labels make up spans


@dataclass(frozen=True)
class TagScore:
    accuracy: float
    majority: float
    commonest: str
    f1: float | None  # of spans, if there are any
    precision: float | None
    recall: float | None
    loss: float
    words: int
    sentences: int


class Tag(Reader):
    """The label of a word is read off its first piece."""

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, labels: list[str]) -> None:
        super().__init__(recipe, tokenizer)
        assert isinstance(recipe.data, TagData)
        self.labels = labels
        self.scheme = scheme_of(labels) if recipe.data.scheme == "auto" else recipe.data.scheme
        self.model = readers.each_token(self.options, tokenizer.size, len(labels), tokenizer.pad)

    @classmethod
    def build(cls, folder: Path, recipe: Recipe) -> "Tag":
        return cls(recipe, Tokenizer.load(folder / "tokenizer.json", recipe.tokenizer), read_labels(folder))

    def save_words(self, folder: Path) -> None:
        super().save_words(folder)
        write_labels(folder, self.labels)

    def encode(self, text: str, starts: Sequence[int]) -> tuple[Ids, list[int]]:
        """The pieces of a text, and which of them each word that starts at one of `starts` begins with."""
        return self.encode_all([(text, starts)])[0]

    def encode_all(self, texts: Sequence[tuple[str, Sequence[int]]]) -> list[tuple[Ids, list[int]]]:
        parts = [cut(text, starts) for text, starts in texts]
        pieces = iter(self.tokenizer.encode_batch([part for each in parts for part in each]))
        return [self._placed([next(pieces) for _ in each]) for each in parts]

    def _placed(self, parts: list[Ids]) -> tuple[Ids, list[int]]:
        before, *words = parts
        ids, places = list(before), []
        for word in words:
            visible = (i for i, id in enumerate(word) if not self.tokenizer.bytes_of(id).isspace())
            places.append(len(ids) + next(visible, 0))
            ids += word
        return ids, places

    def sampled(self, ids: Ids, places: list[int], rng: random.Random) -> tuple[Ids, list[int]]:
        """The same words with BPE-dropout, so that a model learns what pieces are made of; none if it would be too long."""
        taken, begins = self.tokenizer.sample(ids[: places[0]], self.dropout, rng), []
        for start, end in pairwise([*places, len(ids)]):
            begins.append(len(taken))
            taken += self.tokenizer.sample(ids[start:end], self.dropout, rng)
        return (taken, begins) if len(taken) + 2 <= self.options.max_length else (ids, places)

    def encode_sentences(self, sentences: Sequence[Sentence]) -> list[tuple[Ids, list[int]]]:
        return self.encode_all([joined(sentence) for sentence in sentences])

    def fitting(self, sentences: Sequence[Sentence]) -> list[Sentence]:
        """Those that are no longer than the model reads."""
        rows = self.encode_sentences(sentences)
        return [s for s, (ids, _) in zip(sentences, rows, strict=True) if len(ids) + 2 <= self.options.max_length]

    def batch(self, rows: Sequence[tuple[Ids, list[int]]], labels: Sequence[Sequence[int]] = ()) -> ReadBatch:
        """Pieces and places of some sentences, and the label of each word."""
        around = [self.around(ids) for ids, _ in rows]
        flat = [label for sentence in labels for label in sentence]
        return self.gather(around, flat, [[place + 1 for place in places] for _, places in rows])

    @torch.inference_mode()
    def tag_all(
        self, texts: Sequence[str], *, split: bool = True, first: int = 0, progress: Callable[[int], None] = lambda n: None
    ) -> list[Tagged]:
        """The words of each text with their labels; without `split`, words are what stands between spaces."""
        found = [[m.span() for m in (WORD if split else SPACED).finditer(text)] for text in texts]
        rows = self.encode_all([(text, [start for start, _ in words]) for text, words in zip(texts, found, strict=True)])
        for number, (ids, _) in enumerate(rows, start=first + 1):
            self.check_length(len(ids) + 2, f"Sentence {number}")
        answers = [Tagged(text, [], []) for text in texts]
        order = [i for i, words in enumerate(found) if words]
        for group in by_budget([len(rows[i][0]) for i in order]):
            chosen = [order[k] for k in group]
            best = self.logits(self.batch([rows[i] for i in chosen])).softmax(-1).max(-1)
            counts = [len(found[i]) for i in chosen]
            for i, labels, probabilities in zip(chosen, best.indices.split(counts), best.values.split(counts), strict=True):
                answers[i] = self._tagged(texts[i], found[i], labels.tolist(), probabilities.tolist())
            progress(len(group))
        return answers

    def _tagged(self, text: str, places: list[tuple[int, int]], labels: list[int], probabilities: list[float]) -> Tagged:
        words = [
            Word(text[start:end], self.labels[label], probability, start, end)
            for (start, end), label, probability in zip(places, labels, probabilities, strict=True)
        ]
        return Tagged(text, words, spans([word.label for word in words], self.scheme))

    @torch.inference_mode()
    def evaluate(self, sentences: Sequence[Sentence], *, progress: Callable[[int], None] = lambda n: None) -> TagScore:
        known = {label: i for i, label in enumerate(self.labels)}
        rows = self.encode_sentences(sentences)
        for sentence, (ids, _) in zip(sentences, rows, strict=True):
            self.check_length(len(ids) + 2, f"{sentence.place}: the sentence")
        loss, right, count = 0.0, 0, 0
        hits, given_spans, wanted_spans = 0, 0, 0
        for group in by_budget([len(ids) for ids, _ in rows]):
            wanted = [[known[label] for label in sentences[i].labels] for i in group]
            batch = self.batch([rows[i] for i in group], wanted)
            log_p = self.logits(batch).log_softmax(-1)
            loss -= log_p.gather(1, batch.labels.unsqueeze(1)).sum().item()
            given = log_p.argmax(-1).split([len(labels) for labels in wanted])
            for i, answer, labels in zip(group, map(Tensor.tolist, given), wanted, strict=True):
                right += sum(a == b for a, b in zip(answer, labels, strict=True))
                count += len(labels)
                ours = set(spans([self.labels[k] for k in answer], self.scheme))
                theirs = set(spans(sentences[i].labels, self.scheme))
                hits, given_spans, wanted_spans = hits + len(ours & theirs), given_spans + len(ours), wanted_spans + len(theirs)
            progress(len(group))
        commonest, most = Counter(label for s in sentences for label in s.labels).most_common(1)[0]
        has = self.scheme != "none"
        return TagScore(
            right / count,
            most / count,
            commonest,
            2 * hits / max(1, given_spans + wanted_spans) if has else None,
            hits / max(1, given_spans) if has else None,
            hits / max(1, wanted_spans) if has else None,
            loss / count,
            count,
            len(sentences),
        )

    def pieces_of(self, text: str) -> list[Token]:
        """The pieces of each word."""
        pieces: list[Token] = []
        at = 0
        for part in cut(text, [m.start() for m in WORD.finditer(text)]):
            pieces += tokens.read(self.tokenizer, part, at)
            at += len(part)
        return pieces

    def trace(self, text: str, *, edits: dict[str, Edit] | None = None) -> Trace:
        return self.trace_pieces((text,), [self.pieces_of(text)], edits)


def cut(text: str, starts: Sequence[int]) -> list[str]:
    """What stands before the first word, and then each word with the space before it and all up to the next: so that no piece
    belongs to two words, as one of "don't" does to do and n't."""
    cuts = [start - (start > 0 and text[start - 1] == " ") for start in starts]
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def joined(sentence: Sentence) -> tuple[str, list[int]]:
    """The text that the words make up, and where each begins in it."""
    text, starts = "", []
    for word, space in zip(sentence.words, sentence.spaces, strict=True):
        starts.append(len(text))
        text += word + " " * space
    return text, starts
