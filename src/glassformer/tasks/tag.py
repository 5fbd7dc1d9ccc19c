"""Tag: a label for every word, such as its part of speech or the name it belongs to."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from glassformer.config import Recipe, TagData
from glassformer.models.bert import Bert, TokenHead
from glassformer.tasks.reading import ReadBatch, Reader, by_budget, read_labels, write_labels
from glassformer.tasks.task import Ids
from glassformer.text.labelled import Sentence, scheme_of, spans
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Edit, Trace

# A Chinese character; an English ending such as n't or 's; a word or number with what is written inside it; anything else alone.
WORD = re.compile(
    r"[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]"
    r"|n['’]t\b|['’](?:s|m|d|re|ve|ll)\b"
    r"|\d+(?:[.,:/]\d+)*"
    r"|[^\W\d_\u3400-\u4dbf\u4e00-\u9fff]+?(?=n['’]t\b)"
    r"|[^\W_\u3400-\u4dbf\u4e00-\u9fff]+(?:\.[^\W_]\b)*"
    r"|\.{2,}|-{2,}|[^\w\s]|_+",
    re.IGNORECASE,
)


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
        self.model = Bert(self.options, tokenizer.size, TokenHead(self.options, len(labels)), pad=tokenizer.pad)

    @classmethod
    def build(cls, folder: Path, recipe: Recipe) -> "Tag":
        return cls(recipe, Tokenizer.load(folder / "tokenizer.json", recipe.tokenizer), read_labels(folder))

    def save_words(self, folder: Path) -> None:
        super().save_words(folder)
        write_labels(folder, self.labels)

    def encode(self, text: str, starts: Sequence[int]) -> tuple[Ids, list[int]]:
        """The pieces of a text, and which of them each word that starts at one of `starts` begins with."""
        pieces = self.tokenizer.pieces(text)
        at, places = 0, []
        for start in starts:
            while at < len(pieces) and pieces[at].end <= start:
                at += 1
            places.append(min(at, len(pieces) - 1))
        return [piece.id for piece in pieces], places

    def encode_sentence(self, sentence: Sentence) -> tuple[Ids, list[int]]:
        return self.encode(*joined(sentence))

    def batch(self, rows: Sequence[tuple[Ids, list[int]]], labels: Sequence[Sequence[int]]) -> ReadBatch:
        """Pieces and places of some sentences, and the label of each word."""
        around = [self.around(ids) for ids, _ in rows]
        flat = [label for sentence in labels for label in sentence]
        return self.gather(around, flat, [[place + 1 for place in places] for _, places in rows])

    @torch.inference_mode()
    def tag_all(
        self, texts: Sequence[str], *, split: bool = True, first: int = 0, progress: Callable[[int], None] = lambda n: None
    ) -> list[Tagged]:
        """The words of each text with their labels; without `split`, words are what stands between spaces."""
        found = [[m.span() for m in (WORD if split else re.compile(r"\S+")).finditer(text)] for text in texts]
        rows = [self.encode(text, [start for start, _ in words]) for text, words in zip(texts, found, strict=True)]
        for number, (ids, _) in enumerate(rows, start=first + 1):
            self.check_length(len(ids) + 2, f"Sentence {number}")
        answers: dict[int, Tagged] = {i: Tagged(texts[i], [], []) for i in range(len(texts)) if not found[i]}
        order = [i for i in range(len(texts)) if found[i]]
        for group in by_budget([len(rows[i][0]) for i in order]):
            chosen = [order[k] for k in group]
            batch = self.batch([rows[i] for i in chosen], [[0] * len(found[i]) for i in chosen])
            best = self.logits(batch).softmax(-1).max(-1)
            answer = iter(zip(best.indices.tolist(), best.values.tolist(), strict=True))
            for i in chosen:
                words = [Word(texts[i][a:b], self.labels[k], p, a, b) for (a, b), (k, p) in zip(found[i], answer, strict=False)]
                answers[i] = Tagged(texts[i], words, spans([word.label for word in words], self.scheme))
            progress(len(group))
        return [answers[i] for i in range(len(texts))]

    @torch.inference_mode()
    def evaluate(self, sentences: Sequence[Sentence], *, progress: Callable[[int], None] = lambda n: None) -> TagScore:
        known = {label: i for i, label in enumerate(self.labels)}
        rows = [self.encode_sentence(sentence) for sentence in sentences]
        loss, right, count = 0.0, 0, 0
        hits, given_spans, wanted_spans = 0, 0, 0
        for group in by_budget([len(ids) for ids, _ in rows]):
            wanted = [[known[label] for label in sentences[i].labels] for i in group]
            batch = self.batch([rows[i] for i in group], wanted)
            log_p = self.logits(batch).log_softmax(-1)
            loss -= log_p.gather(1, batch.labels.unsqueeze(1)).sum().item()
            given = iter(log_p.argmax(-1).tolist())
            for i, labels in zip(group, wanted, strict=True):
                answer = [next(given) for _ in labels]
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

    def trace(self, text: str, *, edits: dict[str, Edit] | None = None) -> Trace:
        ids, types = self.around(self.tokenizer.encode(text))
        self.check_length(len(ids), "The text")
        return self.trace_ids(ids, types, edits)


def joined(sentence: Sentence) -> tuple[str, list[int]]:
    """The text that the words make up, and where each begins in it."""
    text, starts = "", []
    for word, space in zip(sentence.words, sentence.spaces, strict=True):
        starts.append(len(text))
        text += word + " " * space
    return text, starts
