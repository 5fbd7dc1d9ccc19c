"""What the tasks of an encoder share: `<bos> text <eos>`, perhaps a second text, in batches."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.models.readers import ReaderModel
from glassformer.options import BertOptions, MLPOptions, Recipe, RnnOptions, TextCNNOptions
from glassformer.tasks import tokens
from glassformer.tasks.batch import Rows
from glassformer.tasks.task import Ids, Task, pad
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Edit, Token, Trace, run

Texts = tuple[str, ...]  # one, or two to compare
Row = tuple[Ids, Ids]  # what is read, and the type of each token


@dataclass(frozen=True)
class ReadBatch(Rows):
    """Texts as an encoder reads them."""

    ids: Tensor  # (B, T), padded
    types: Tensor  # (B, T): 1 for the second of two texts
    real: Tensor  # (B, T): False for padding
    labels: Tensor  # (N) what is to be predicted: one for a text, or one for each of some places
    places: Tensor | None = None  # (N) where in `ids` laid flat, if the labels are of tokens

    @property
    def read(self) -> Tensor:
        return self.ids

    @property
    def tokens(self) -> int:
        return int(self.real.sum())


class Reader(Task):
    """An encoder, its vocabulary, and a head."""

    model: ReaderModel

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer) -> None:
        assert isinstance(recipe.model, BertOptions | RnnOptions | TextCNNOptions | MLPOptions)
        self.recipe = recipe
        self.options = recipe.model
        self.dropout = recipe.tokenizer.dropout
        self.tokenizer = tokenizer
        marks = {"pad": tokenizer.pad, "bos": tokenizer.bos, "eos": tokenizer.eos}
        if missing := [f"tokenizer.{name}" for name, id in marks.items() if id < 0]:
            raise UserError(f"An encoder reads texts between marks, and fills them up: {', '.join(missing)} must not be empty.")

    def save_words(self, folder: Path) -> None:
        self.tokenizer.save(folder / "tokenizer.json")

    def around(self, ids: Ids, second: Ids | None = None) -> Row:
        """What is read, and the type of each token: `<bos> a <eos>`, or `<bos> a <eos> b <eos>`."""
        bos, eos = self.tokenizer.bos, self.tokenizer.eos
        first = [bos, *ids, eos]
        rest = [] if second is None else [*second, eos]
        second_type = int(isinstance(self.options, BertOptions) and self.options.types > 1)
        return first + rest, [0] * len(first) + [second_type] * len(rest)

    def check_length(self, length: int, what: str) -> None:
        if length > self.options.max_length:
            raise UserError(
                f"{what} is {length} tokens long with its marks; this model reads at most {self.options.max_length}. Shorten it."
            )

    def gather(self, rows: Sequence[Row], labels: Sequence[Any] = (), places: Sequence[Sequence[int]] | None = None) -> ReadBatch:
        """Rows of (ids, types) → tensors; `places` are those tokens of each row that have a label."""
        lengths = torch.tensor([len(ids) for ids, _ in rows]).unsqueeze(1)
        ids = pad([ids for ids, _ in rows], self.tokenizer.pad)
        real = torch.arange(ids.size(1)) < lengths
        flat = None
        if places is not None:
            flat = torch.tensor([i * ids.size(1) + place for i, row in enumerate(places) for place in row])
        return ReadBatch(ids, pad([types for _, types in rows], 0), real, torch.tensor(labels), flat)

    def logits(self, batch: ReadBatch) -> Tensor:
        """(B, outputs), or (N, outputs) if the labels are of tokens."""
        states = self.model(batch.ids, batch.types)
        if batch.places is not None:
            return self.model.logits(states.flatten(0, 1)[batch.places])
        return self.model.logits(states, batch.real)

    def loss(self, batch: ReadBatch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        log_p = self.logits(batch).log_softmax(-1)
        nll = -log_p.gather(1, batch.labels.unsqueeze(1)).sum()
        return (1 - smoothing) * nll - smoothing * log_p.mean(1).sum(), nll.detach()

    @torch.inference_mode()
    def pieces_of(self, text: str) -> list[Token]:
        """The pieces of a text."""
        return tokens.read(self.tokenizer, text)

    def states(self, text: str) -> tuple[list[Token], Tensor]:
        """Of one text between its marks."""
        begin, end = tokens.mark(self.tokenizer, self.tokenizer.bos), tokens.mark(self.tokenizer, self.tokenizer.eos)
        read = [begin, *self.pieces_of(text), end]
        self.check_length(len(read), "The text")
        ids = torch.tensor([[token.id for token in read]])
        states = self.model(ids, torch.zeros_like(ids))[0]
        return (read, states) if states.dim() == 2 else super().states(text)  # a bag has one vector for all

    def trace_pieces(self, texts: Texts, pieces: Sequence[list[Token]], edits: dict[str, Edit] | None) -> Trace:
        """Every named tensor of one pass over one text or two, and the pieces of each."""
        first, second = pieces[0], pieces[1] if len(pieces) > 1 else None
        begin, end = tokens.mark(self.tokenizer, self.tokenizer.bos), tokens.mark(self.tokenizer, self.tokenizer.eos)
        read = [begin, *first, end, *([] if second is None else [*second, end])]
        _, types = self.around([t.id for t in first], None if second is None else [t.id for t in second])
        self.check_length(len(read), "The text")
        about = {"task": self.recipe.task, **dict(zip(("text", "second"), texts, strict=False))}
        return run(self.model, source=read, types=types, about=about, edits=edits, made_by=self)


class Pooled(Reader):
    """One answer for a text, or for two that are compared."""

    def sampled(self, pieces: Sequence[Ids], rng: random.Random) -> Sequence[Ids]:
        """The same texts with BPE-dropout, so that a model learns what pieces are made of; none if it would be too long."""
        taken = [self.tokenizer.sample(ids, self.dropout, rng) for ids in pieces]
        return taken if sum(map(len, taken)) <= self.options.max_length - 1 - len(pieces) else pieces

    def pieces(self, texts: Sequence[Texts]) -> list[tuple[Ids, ...]]:
        columns = [self.tokenizer.encode_batch(list(column)) for column in zip(*texts, strict=True)]
        return list(zip(*columns, strict=True))

    def encode(self, texts: Sequence[Texts]) -> list[Row]:
        """What is read of each text or pair of texts, and the types."""
        return [self.around(*pieces) for pieces in self.pieces(texts)]

    def encode_cut(self, texts: Sequence[Texts]) -> tuple[list[Row], int]:
        """The same, but no more of each than the model reads; and how many that has cut."""
        whole = self.pieces(texts)
        room = self.options.max_length - 1 - len(texts[0])
        rows = [self.around(*shortened(pieces, room)) for pieces in whole]
        return rows, sum(sum(map(len, pieces)) > room for pieces in whole)

    @torch.inference_mode()
    def each_logits(self, rows: Sequence[Row], progress: Callable[[int], None]) -> list[Tensor]:
        """The outputs for each row, computed in batches, which changes no result."""
        found = [torch.empty(0)] * len(rows)
        for group in by_budget([len(ids) for ids, _ in rows]):
            for i, logits in zip(group, self.logits(self.gather([rows[i] for i in group])), strict=True):
                found[i] = logits
            progress(len(group))
        return found

    def answers(
        self, texts: Sequence[Texts], first: int, progress: Callable[[int], None]
    ) -> Iterator[tuple[Texts, Tensor | None]]:
        """Each of the texts with its outputs, or with none if it is empty.

        `first` is how many came before these, for messages that number them.
        """
        filled = [i for i, each in enumerate(texts) if any(text.strip() for text in each)]
        rows = self.encode([texts[i] for i in filled])
        for i, (ids, _) in zip(filled, rows, strict=True):
            self.check_length(len(ids), f"{'Text' if len(texts[i]) == 1 else 'Pair'} {first + i + 1}")
        found = dict(zip(filled, self.each_logits(rows, progress), strict=True))
        return ((each, found.get(i)) for i, each in enumerate(texts))

    def trace(self, *texts: str, edits: dict[str, Edit] | None = None) -> Trace:
        wanted = 2 if self.recipe.task == "compare" else 1
        if len(texts) != wanted:
            raise UserError(f"This model reads {'two texts' if wanted == 2 else 'one text'}; found {len(texts)}.")
        return self.trace_pieces(texts, [tokens.read(self.tokenizer, text) for text in texts], edits)


def shortened(texts: Sequence[Ids], room: int) -> list[Ids]:
    """Texts without their ends, of two the longer one's first, so that together they find room."""
    kept = [len(ids) for ids in texts]
    while sum(kept) > room:
        kept[kept.index(max(kept))] -= 1
    return [ids[:count] for ids, count in zip(texts, kept, strict=True)]


def by_budget(lengths: Sequence[int], tokens: int = 4096) -> Iterator[list[int]]:
    """The rows, short ones first, in batches whose padded size stays within `tokens`."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[i] > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def read_labels(folder: Path) -> list[str]:
    labels = read_json(folder / "labels.json")
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
        raise UserError(f"{folder / 'labels.json'} is damaged: it must be a list of the labels' names. Copy or train it again.")
    return labels


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}. It says what the answers of the model mean.") from None


def write_labels(folder: Path, labels: Any) -> None:
    write_text(folder / "labels.json", json.dumps(labels, ensure_ascii=False, indent=1) + "\n")
