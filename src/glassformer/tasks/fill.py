"""Fill: which word stood at [MASK]."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from glassformer.config import Recipe
from glassformer.errors import UserError
from glassformer.models.bert import Bert, MaskedHead
from glassformer.tasks.reading import ReadBatch, Reader
from glassformer.tasks.task import Ids
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Edit, Trace

MASK = "[MASK]"  # as a person writes it, whatever the vocabulary calls it


@dataclass(frozen=True)
class Candidate:
    text: str
    id: int
    probability: float


@dataclass(frozen=True)
class Filled:
    text: str  # with the likeliest candidate at each gap
    gaps: list[list[Candidate]]


class Fill(Reader):
    def __init__(self, recipe: Recipe, tokenizer: Tokenizer) -> None:
        super().__init__(recipe, tokenizer)
        if tokenizer.mask < 0:
            raise UserError("This vocabulary has no mask token: set tokenizer.mask, for instance to '<mask>', and train anew.")
        self.model = Bert(self.options, tokenizer.size, MaskedHead(self.options, tokenizer.size), pad=tokenizer.pad)

    @classmethod
    def build(cls, folder: Path, recipe: Recipe) -> "Fill":
        return cls(recipe, Tokenizer.load(folder / "tokenizer.json", recipe.tokenizer))

    # -- training

    def parts(self, ids: Ids) -> Iterator[Ids]:
        """A long line in pieces that fit."""
        most = self.options.max_length - 2
        for start in range(0, len(ids), most):
            yield ids[start : start + most]

    def masked_batch(self, texts: Sequence[Ids], rng: random.Random) -> ReadBatch:
        """Some pieces of each text are to be guessed: of those 80 % read as the mask, 10 % as another piece, 10 % as they are
        (Devlin et al. 2019). Chosen anew each time."""
        share = self.recipe.training.mask
        rows, labels, places = [], [], []
        for ids in texts:
            chosen = sorted(rng.sample(range(len(ids)), max(1, round(share * len(ids)))))
            read = list(ids)
            for place in chosen:
                labels.append(ids[place])
                luck = rng.random()
                if luck < 0.8:
                    read[place] = self.tokenizer.mask
                elif luck < 0.9:
                    read[place] = rng.randrange(self.tokenizer.mask + 1, self.tokenizer.size)
            rows.append(self.around(read))
            places.append([place + 1 for place in chosen])
        return self.gather(rows, labels, places)

    @torch.inference_mode()
    def judge(self, batch: ReadBatch) -> tuple[float, int]:
        """Σ −log p of what is to be guessed, and how often the likeliest piece is right."""
        log_p = self.logits(batch).log_softmax(-1)
        right = int((log_p.argmax(-1) == batch.labels).sum())
        return -log_p.gather(1, batch.labels.unsqueeze(1)).sum().item(), right

    # -- answers

    def read(self, text: str) -> tuple[Ids, list[int]]:
        """What is read, and where its gaps are. A gap takes the space before it along, as words do."""
        parts = text.split(MASK)
        if len(parts) == 1:
            raise UserError(f"There is no gap in {text!r}: write {MASK} where a word is to be found, as in: 今天{MASK}气很好")
        ids: Ids = []
        gaps = []
        for i, part in enumerate(parts):
            if i < len(parts) - 1 and part.endswith(" "):
                part = part[:-1]
            ids += self.tokenizer.encode(part) if part else []
            if i < len(parts) - 1:
                gaps.append(len(ids) + 1)
                ids.append(self.tokenizer.mask)
        read, _ = self.around(ids)
        self.check_length(len(read), "The text")
        return read, gaps

    @torch.inference_mode()
    def fill(self, text: str, count: int = 5) -> Filled:
        ids, gaps = self.read(text)
        batch = self.gather([(ids, [0] * len(ids))], [0] * len(gaps), [gaps])
        probabilities = self.logits(batch).softmax(-1)
        best, chosen = probabilities.topk(min(count, probabilities.size(1)), dim=-1)
        found = [
            [Candidate(self.tokenizer.spell([id])[0], id, p) for id, p in zip(row, values, strict=True)]
            for row, values in zip(chosen.tolist(), best.tolist(), strict=True)
        ]
        whole = list(ids)
        for place, candidates in zip(gaps, found, strict=True):
            whole[place] = candidates[0].id
        return Filled(self.tokenizer.decode(whole[1:-1]), found)

    def trace(self, text: str, *, edits: dict[str, Edit] | None = None) -> Trace:
        ids = self.read(text)[0] if MASK in text else self.around(self.tokenizer.encode(text))[0]
        self.check_length(len(ids), "The text")
        return self.trace_ids(ids, [0] * len(ids), edits)
