"""Fill: which word stood at [MASK]."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from glassformer.errors import UserError
from glassformer.models.bert import Bert, MaskedHead
from glassformer.options import BertOptions, Recipe
from glassformer.tasks import tokens
from glassformer.tasks.reading import ReadBatch, Reader, by_budget
from glassformer.tasks.task import Ids
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Edit, Token, Trace

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


@dataclass(frozen=True)
class Guessed:
    """How often the likeliest piece is the right one, beside what saying the commonest piece every time would give."""

    accuracy: float
    majority: float
    commonest: str
    loss: float
    count: int


class Fill(Reader):
    def __init__(self, recipe: Recipe, tokenizer: Tokenizer) -> None:
        super().__init__(recipe, tokenizer)
        check_mask(recipe)
        assert isinstance(self.options, BertOptions)
        self.model = Bert(self.options, tokenizer.size, MaskedHead(self.options, tokenizer.size), pad=tokenizer.pad)
        self._pieces = [id for id in range(tokenizer.size) if tokenizer.bytes_of(id)]  # without the special tokens

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
                    read[place] = rng.choice(self._pieces)
            rows.append(self.around(read))
            places.append([place + 1 for place in chosen])
        return self.gather(rows, labels, places)

    @torch.inference_mode()
    def evaluate(self, texts: Sequence[Ids], *, progress: Callable[[int], None] = lambda n: None) -> Guessed:
        """How well pieces of these texts are guessed; the same pieces each time."""
        if not texts:
            raise UserError("There is nothing to guess: no text has a piece.")
        rng = random.Random(0)
        loss, right = 0.0, 0
        wanted: Counter[int] = Counter()
        for group in by_budget([len(ids) for ids in texts]):
            batch = self.masked_batch([texts[i] for i in group], rng)
            log_p = self.logits(batch).log_softmax(-1)
            loss -= log_p.gather(1, batch.labels.unsqueeze(1)).sum().item()
            right += int((log_p.argmax(-1) == batch.labels).sum())
            wanted.update(batch.labels.tolist())
            progress(len(group))
        (commonest, most), count = wanted.most_common(1)[0], wanted.total()
        return Guessed(right / count, most / count, self.tokenizer.spell([commonest])[0], loss / count, count)

    # -- answers

    def read(self, text: str) -> tuple[Ids, list[int]]:
        """What is read, and where its gaps are. A gap takes the space before it along, as words do."""
        parts = text.split(MASK)
        if len(parts) == 1:
            shown = text if len(text) <= 60 else text[:60] + " …"
            raise UserError(f"There is no gap in {shown!r}: write {MASK} where a word is to be found, as in: 今天{MASK}气很好")
        *before, last = [self.tokenizer.encode(part) for part in (*(part.removesuffix(" ") for part in parts[:-1]), parts[-1])]
        ids: Ids = []
        gaps = []
        for part in before:
            ids += part
            gaps.append(len(ids) + 1)
            ids.append(self.tokenizer.mask)
        return self.around(ids + last)[0], gaps

    def fill(self, text: str, count: int = 5) -> Filled:
        return self.fill_all([text], count)[0]

    @torch.inference_mode()
    def fill_all(
        self, texts: Sequence[str], count: int = 5, *, first: int = 0, progress: Callable[[int], None] = lambda n: None
    ) -> list[Filled]:
        """The likeliest candidates for the gaps of each text, none for an empty one; `first` is how many came before these, for
        messages that number them."""
        found = {i: Filled(text, []) for i, text in enumerate(texts) if not text.strip()}
        reads = {i: self.read(text) for i, text in enumerate(texts) if i not in found}
        for i, (ids, _) in reads.items():
            self.check_length(len(ids), f"Text {first + i + 1}")
        order = list(reads)
        for group in by_budget([len(ids) for ids, _ in reads.values()]):
            chosen = [(order[k], *reads[order[k]]) for k in group]
            batch = self.gather([(ids, [0] * len(ids)) for _, ids, _ in chosen], places=[gaps for _, _, gaps in chosen])
            probabilities = self.logits(batch).softmax(-1).split([len(gaps) for _, _, gaps in chosen])
            for (i, ids, gaps), each in zip(chosen, probabilities, strict=True):
                best = each.topk(min(count, each.size(1)), dim=-1)
                candidates = [self._candidates(*row) for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
                found[i] = Filled(self._filled(ids, gaps, candidates), candidates)
            progress(len(group))
        return [found[i] for i in range(len(texts))]

    def _candidates(self, ids: Ids, probabilities: list[float]) -> list[Candidate]:
        return [Candidate(tokens.piece(self.tokenizer, id), id, p) for id, p in zip(ids, probabilities, strict=True)]

    def _filled(self, ids: Ids, gaps: list[int], candidates: list[list[Candidate]]) -> str:
        whole = list(ids)
        for place, each in zip(gaps, candidates, strict=True):
            whole[place] = each[0].id
        return self.tokenizer.decode(whole)

    def trace(self, text: str, *, edits: dict[str, Edit] | None = None) -> Trace:
        """Every named tensor of one pass; the gaps, if there are any, are read as in `read`."""
        pieces: list[Token] = []
        at = 0
        for i, part in enumerate(text.split(MASK)):
            if i:
                pieces.append(Token(MASK, self.tokenizer.mask, at, at + len(MASK), special=True))
                at += len(MASK)
            read = part.removesuffix(" ") if text.startswith(MASK, at + len(part)) else part
            pieces += tokens.read(self.tokenizer, read, at) if read else []
            at += len(part)
        return self.trace_pieces((text,), [pieces], edits)


def check_mask(recipe: Recipe) -> None:
    if not recipe.tokenizer.mask:
        raise UserError(
            "The task 'fill' needs a token for what is to be guessed, and this vocabulary has none: "
            "set tokenizer.mask, for instance to '<mask>', and train anew."
        )
