"""What the tasks of an encoder share: `<bos> text <eos>`, perhaps a second text, in batches."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.config import BertOptions, Recipe
from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.models.bert import Bert
from glassformer.tasks.task import Ids, Task, pad
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Edit, Trace, recording

Texts = tuple[str, ...]  # one, or two to compare


@dataclass(frozen=True)
class ReadBatch:
    """Texts as an encoder reads them."""

    ids: Tensor  # (B, T), padded
    types: Tensor  # (B, T): 1 for the second of two texts
    real: Tensor  # (B, T): False for padding
    labels: Tensor  # (N) what is to be predicted: one for a text, or one for each of some places
    places: Tensor | None = None  # (N) where in `ids` laid flat, if the labels are of tokens

    @property
    def tokens(self) -> int:
        return int(self.real.sum())


class Reader(Task):
    """An encoder, its vocabulary, and a head."""

    model: Bert

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer) -> None:
        assert isinstance(recipe.model, BertOptions)
        self.recipe = recipe
        self.options = recipe.model
        self.tokenizer = tokenizer

    def save_words(self, folder: Path) -> None:
        self.tokenizer.save(folder / "tokenizer.json")

    def around(self, ids: Ids, second: Ids | None = None) -> tuple[Ids, Ids]:
        """What is read, and the type of each token: `<bos> a <eos>`, or `<bos> a <eos> b <eos>`."""
        bos, eos = self.tokenizer.bos, self.tokenizer.eos
        first = [bos, *ids, eos]
        rest = [] if second is None else [*second, eos]
        return first + rest, [0] * len(first) + [min(1, self.options.types - 1)] * len(rest)

    def check_length(self, length: int, what: str) -> None:
        if length > self.options.max_length:
            raise UserError(
                f"{what} is {length} tokens long with its marks; this model reads at most {self.options.max_length}. Shorten it."
            )

    def gather(
        self, rows: Sequence[tuple[Ids, Ids]], labels: Sequence[Any] = (), places: Sequence[Sequence[int]] | None = None
    ) -> ReadBatch:
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
    def trace_ids(self, ids: Ids, types: Ids, edits: dict[str, Edit] | None = None) -> Trace:
        """Every named tensor of one pass."""
        with recording(self.model, edits) as tensors:
            self.model.logits(self.model(torch.tensor([ids]), torch.tensor([types])))
        return Trace(tensors, source=self.tokenizer.spell(ids), target=[])


class Pooled(Reader):
    """One answer for a text, or for two that are compared."""

    def encode(self, texts: Sequence[Texts]) -> list[tuple[Ids, Ids]]:
        """What is read of each text or pair of texts, and the types."""
        columns = [self.tokenizer.encode_batch(list(column)) for column in zip(*texts, strict=True)]
        return [self.around(*ids) for ids in zip(*columns, strict=True)]

    def trace(self, *texts: str, edits: dict[str, Edit] | None = None) -> Trace:
        ids, types = self.encode([texts])[0]
        self.check_length(len(ids), "The text")
        return self.trace_ids(ids, types, edits)


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


def read_labels(folder: Path) -> Any:
    path = folder / "labels.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}. It lists the labels of the model.") from None


def write_labels(folder: Path, labels: Any) -> None:
    write_text(folder / "labels.json", json.dumps(labels, ensure_ascii=False, indent=1) + "\n")
