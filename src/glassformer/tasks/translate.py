"""Translation: any text → text. How pairs become tensors, what the loss is, what the answer is."""

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.decoding import search
from glassformer.decoding.cores import spread
from glassformer.decoding.sampling import Sampling
from glassformer.decoding.state import Hypothesis
from glassformer.errors import UserError
from glassformer.layers.cross_entropy import linear_cross_entropy
from glassformer.models.rnn import RecurrentTranslator
from glassformer.models.transformer import Transformer
from glassformer.options import DecodingOptions, PairData, Recipe, RnnOptions, TransformerOptions
from glassformer.tasks import tokens
from glassformer.tasks.batch import Rows
from glassformer.tasks.task import Ids, Task, pad
from glassformer.tasks.translator import Translation, Translator, batches_of, load_tokenizers, save_tokenizers
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Edit, Token, Trace, run


@dataclass(frozen=True)
class Batch(Rows):
    """Sentence pairs as tensors. Only real positions have labels."""

    source: Tensor  # (B, S), ends in <eos>, padded
    target: Tensor  # (B, T), begins with <bos>, padded: what the decoder reads
    labels: Tensor  # (N) the token after each real one of `target`
    places: Tensor  # (N) where those stand in `target` laid flat

    @property
    def read(self) -> Tensor:
        return self.target


class Translate(Translator, Task):
    """A translator: tokenizers, a model, and what is done with them."""

    model: Transformer | RecurrentTranslator
    beside: Translator | None = None  # another engine, which finds what a trace then looks into

    def __init__(self, recipe: Recipe, source: Tokenizer, target: Tokenizer) -> None:
        assert isinstance(recipe.data, PairData) and isinstance(recipe.model, TransformerOptions | RnnOptions)
        self.recipe = recipe
        self.data = recipe.data
        self.source = source
        self.target = target
        if isinstance(recipe.model, RnnOptions):
            self.model = RecurrentTranslator(recipe.model, source.size, target.size, pad=source.pad)
        else:
            self.model = Transformer(recipe.model, source.size, target.size, pad=source.pad)

    @classmethod
    def build(cls, folder: Path, recipe: Recipe) -> "Translate":
        return cls(recipe, *load_tokenizers(folder, recipe))

    def save_words(self, folder: Path) -> None:
        save_tokenizers(folder, self.recipe, self.source, self.target)

    def batch(self, pairs: Sequence[tuple[Ids, Ids]]) -> Batch:
        """Pairs of (what the encoder reads, target pieces) → tensors."""
        target = pad([[self.target.bos, *ids] for _, ids in pairs], self.target.pad)
        lengths = torch.tensor([len(ids) + 1 for _, ids in pairs]).unsqueeze(1)
        places = (torch.arange(target.size(1)) < lengths).flatten().nonzero().squeeze(1)
        labels = torch.tensor([token for _, ids in pairs for token in (*ids, self.target.eos)])
        return Batch(pad([source for source, _ in pairs], self.source.pad), target, labels, places)

    def training_batch(self, pairs: Sequence[tuple[Ids, Ids, bool]], rng: random.Random) -> Batch:
        """As `batch`, from prepared pairs that may be turned round, with BPE-dropout on what is read."""
        source, target = self.languages
        dropout = self.recipe.tokenizer.dropout
        rows = []
        for a, b, reverse in pairs:
            read, written, to = (b, a, source) if reverse else (a, b, target)
            sampled = self.source.sample(read, dropout, rng) if dropout else read
            fits = len(sampled) + 2 <= self.recipe.model.max_length  # the whole pieces always do
            rows.append((self.source_ids(sampled if fits else read, to), written))
        return self.batch(rows)

    # -- loss

    def loss(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Sums over the batch's N labels: the smoothed loss to train by, and −log p."""
        states = self.model(batch.source, batch.target).flatten(0, 1)
        output = self.model.output
        return linear_cross_entropy(states[batch.places], output.weight, batch.labels, smoothing, bias=output.bias)

    # -- answers

    def decode_all(
        self, sources: dict[int, Ids], options: DecodingOptions, sampling: Sampling | None, batch_tokens: int
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        batches = batches_of(sources, batch_tokens // options.beam, torch.get_num_threads())

        def solve(rows: list[int]) -> list[list[Hypothesis]]:
            return self._decode([sources[i] for i in rows], options, sampling)

        for number, found in spread(solve, batches):
            yield batches[number], found

    @torch.inference_mode()
    def _decode(self, sources: list[Ids], options: DecodingOptions, sampling: Sampling | None) -> list[list[Hypothesis]]:
        limits = self.limits(sources, options)
        state = self.model.start(pad(sources, self.source.pad))
        if sampling is None:
            return search.find(self.model, state, limits, options)
        seeds = [_seed(sampling.seed, ids) for ids in sources]
        penalty = options.length_penalty
        return search.finite(search.sample(self.model, state, limits, seeds=seeds, sampling=sampling, length_penalty=penalty))

    # -- looking inside

    def _source(self, text: str, to: str) -> list[Token]:
        """What the encoder reads."""
        tag = [tokens.mark(self.source, self.source.tag(f"<2{to}>"))] if self.data.both_ways else []
        source = [*tag, *tokens.read(self.source, text), tokens.mark(self.source, self.source.eos)]
        self._check_length([token.id for token in source], 1)
        return source

    @torch.inference_mode()
    def states(self, text: str) -> tuple[list[Token], Tensor]:
        """The encoder's, of a source."""
        source = self._source(text, self.direction(text))
        memory = self.model.start(torch.tensor([[token.id for token in source]])).memory
        assert memory is not None
        return source, memory[0]

    @torch.inference_mode()
    def trace(
        self, text: str, to: str | None = None, *, target: Ids | None = None, edits: dict[str, Edit] | None = None
    ) -> Trace:
        """Every named tensor of one pass: the translation is found first (or given as ids), then read once, all steps at once."""
        into = self.direction(text, to)
        ids = (self.beside or self).translate(text, into).ids if target is None else target
        if strange := [id for id in ids if not 0 <= id < self.target.size]:
            raise UserError(f"The target has the id {strange[0]}; this vocabulary has 0 to {self.target.size - 1}.")
        source = self._source(text, into)
        self._check_length([self.target.bos, *ids], 1)
        read = [tokens.mark(self.target, self.target.bos), *tokens.written(self.target, ids)]
        about = {"task": self.recipe.task, "text": text, "to": into}
        return run(self.model, source=source, target=read, about=about, edits=edits, made_by=self)

    def alignment(self, trace: Trace) -> Tensor | None:
        """How much each written token looked at each source token: the last block's cross-attention, mean of its heads (T, S).

        Row t is the step that wrote token t of the translation; the last row wrote <eos>. A fixed context has none.
        """
        pattern = trace.get(f"decoder.{self.model.decoder.depth - 1}.cross.pattern")
        return None if pattern is None else pattern.mean(0)

    def explain(self, answer: Translation) -> dict[str, Any]:
        """A translation with everything about it, ready for JSON."""
        trace = self.trace(answer.source, answer.to, target=answer.ids) if answer.source.strip() else None
        looked = self.alignment(trace) if trace else None
        return {
            "source": answer.source,
            "to": answer.to,
            "translation": answer.text,
            "score": answer.score,
            "source_tokens": [asdict(piece) for piece in self.source.pieces(answer.source)],
            "target_tokens": [
                {"id": id, "text": text, "log_prob": log_prob}
                for id, text, log_prob in zip(
                    [*answer.ids, self.target.eos], [*self.target.spell(answer.ids), "<eos>"], answer.log_probs, strict=True
                )
            ]
            if answer.log_probs
            else [],
            "nbest": [{"translation": each.text, "score": each.score} for each in answer.nbest],
            "alignment": {
                "rows": [*trace.target[1:], "<eos>"],
                "columns": trace.source,
                "weights": [[round(x, 6) for x in row] for row in looked.tolist()],
            }
            if trace and looked is not None
            else None,
        }


def _seed(seed: int, source: Ids) -> int:
    """A sentence draws by the seed and itself, so its neighbours and its place in a file change nothing."""
    return int.from_bytes(hashlib.sha256(f"{seed} {source}".encode()).digest()[:7])
