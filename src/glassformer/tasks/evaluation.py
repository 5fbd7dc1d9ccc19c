"""How good a translator is on pairs it has not seen: loss, perplexity, BLEU, chrF."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from glassformer.errors import UserError
from glassformer.options import DecodingOptions
from glassformer.tasks.metrics import Score, bleu, bleu_tokenizer, chrf
from glassformer.tasks.translate import Translate
from glassformer.tasks.translator import Translation


@dataclass(frozen=True)
class Evaluation:
    to: str
    loss: float  # −log p a token, in nats
    perplexity: float
    scores: tuple[Score, ...]
    translations: list[Translation]


def directions(translator: Translate, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The pairs for each language the model writes: both ways round if it does both."""
    source, target = translator.languages
    forward = (target, list(pairs))
    return [forward, (source, [(b, a) for a, b in pairs])] if translator.data.both_ways else [forward]


@torch.inference_mode()
def loss(translator: Translate, pairs: Sequence[tuple[str, str]], to: str, batch_size: int = 64) -> float:
    """Mean −log p of a target token, without smoothing or dropout."""
    training = translator.model.training
    translator.model.eval()
    sources = [translator.source_ids(ids, to) for ids in translator.source.encode_batch([a for a, _ in pairs])]
    targets = translator.target.encode_batch([b for _, b in pairs])
    rows = list(zip(sources, targets, strict=True))
    rows.sort(key=lambda row: len(row[0]) + len(row[1]))
    total, count = 0.0, 0
    for i in range(0, len(rows), batch_size):
        batch = translator.batch(rows[i : i + batch_size])
        total += translator.loss(batch)[1].item()
        count += len(batch.labels)
    translator.model.train(training)
    return total / count


def evaluate(
    translator: Translate,
    pairs: Sequence[tuple[str, str]],
    to: str,
    options: DecodingOptions | None = None,
    *,
    tokenizer: str = "auto",
    progress: Callable[[int], None] = lambda count: None,
) -> Evaluation:
    translator.model.eval()
    for number, pair in enumerate(pairs, start=1):
        if not translator.fits(*pair):
            most = translator.recipe.model.max_length
            raise UserError(f"Pair {number} is longer than the {most} positions of this model; leave it out.")
    nll = loss(translator, pairs, to)
    translations = translator.translate_all([a for a, _ in pairs], to, options, progress=progress)
    answers, references = [t.text for t in translations], [b for _, b in pairs]
    choice = translator.data.bleu if tokenizer == "auto" else tokenizer
    scores = (bleu(answers, references, bleu_tokenizer(choice, to)), chrf(answers, references))
    return Evaluation(to, nll, math.exp(min(nll, 700.0)), scores, translations)
