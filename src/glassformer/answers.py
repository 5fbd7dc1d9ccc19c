"""What a pass answered, read off the numbers of its trace: whatever is shown beside them agrees with them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.tasks.classify import Classify
from glassformer.tasks.compare import Score
from glassformer.tasks.fill import Fill
from glassformer.tasks.language import Language
from glassformer.tasks.tag import WORD, Tag
from glassformer.tasks.tokens import piece as piece
from glassformer.tasks.translate import Translate
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace


@dataclass(frozen=True)
class Prediction:
    """One place where a pass predicts something."""

    position: int  # of the token it predicts, among those the decoder read; of the word, gap or text
    place: int  # the row of the output that it is
    label: str  # what was predicted there
    chosen: int  # its number
    probabilities: Tensor  # of all there is to predict


def output(trace: Trace) -> Tensor:
    """The last tensor of a pass is what it predicts."""
    return trace[list(trace)[-1]]


def probabilities(task: Any, trace: Trace) -> Tensor:
    """What a pass predicts; a score is no probability, and stays a number."""
    return output(trace) if isinstance(task, Score) else output(trace).softmax(-1)


def tokenizer_of(task: Any) -> Tokenizer:
    """The vocabulary of what a model writes, or reads if it writes nothing."""
    return task.target if isinstance(task, Translate) else task.tokenizer


def names(task: Any, ids: list[int]) -> list[str]:
    """What each number that is predicted stands for."""
    if isinstance(task, Classify | Tag):
        return [task.labels[id] for id in ids]
    if isinstance(task, Score):
        return ["score" for _ in ids]
    return [piece(tokenizer_of(task), id) for id in ids]


def predictions(task: Any, trace: Trace) -> list[Prediction]:
    """Of a translation or text every token and the one after it; else the labels of the text, its words, or its gaps."""
    found = probabilities(task, trace)
    if isinstance(task, Translate | Language):
        read = [token.id for token in trace.target_tokens]
        end = task.target.eos if isinstance(task, Translate) else int(found[-1].argmax())
        chosen = [*read[1:], end]
        return [Prediction(i + 1, i, piece(tokenizer_of(task), id), id, found[i]) for i, id in enumerate(chosen)]
    if isinstance(task, Fill):
        places = [i for i, token in enumerate(trace.source_tokens) if token.id == task.tokenizer.mask]
    elif isinstance(task, Tag):
        places = word_places(task, trace)
    else:
        return [_likeliest(task, 0, 0, found)]
    return [_likeliest(task, position, place, found[place]) for position, place in enumerate(places)]


def _likeliest(task: Any, position: int, place: int, row: Tensor) -> Prediction:
    best = int(row.argmax())
    return Prediction(position, place, names(task, [best])[0], best, row)


def word_places(task: Tag, trace: Trace) -> list[int]:
    """The token that each word's label is read off."""
    text = trace.about["text"]
    return [place + 1 for place in task.encode(text, [m.start() for m in WORD.finditer(text)])[1]]


def answer(task: Any, trace: Trace, count: int = 5) -> dict[str, Any]:
    """What the pass answers, ready for JSON: a text, labels with probabilities, words with labels, candidates, or a score."""
    found = probabilities(task, trace)
    if isinstance(task, Translate):
        ids = [token.id for token in trace.target_tokens[1:]]
        return {"text": task.target.decode(ids), "ids": ids}
    if isinstance(task, Language):
        ids = [token.id for token in trace.target_tokens[len(trace.target_tokens) - trace.about["written"] :]]
        return {"text": task.tokenizer.decode(ids), "ids": ids, "next": top(task, found[-1], count)}
    if isinstance(task, Score):
        return {"score": shown(task, found.item())}
    if isinstance(task, Tag):
        return {"words": _words(task, trace)}
    if isinstance(task, Fill):
        gaps = [top(task, prediction.probabilities, count) for prediction in predictions(task, trace)]
        best = iter(gaps)
        ids = [next(best)[0]["id"] if token.id == task.tokenizer.mask else token.id for token in trace.source_tokens]
        return {"text": task.tokenizer.decode(ids), "candidates": gaps}
    ranked = top(task, found, found.numel())
    return {"label": ranked[0]["text"], "probability": ranked[0]["p"], "labels": {each["text"]: each["p"] for each in ranked}}


def _words(task: Tag, trace: Trace) -> list[dict[str, Any]]:
    text = trace.about["text"]
    places = [m.span() for m in WORD.finditer(text)]
    return [
        {
            "text": text[start:end],
            "label": each.label,
            "probability": each.probabilities[each.chosen].item(),
            "start": start,
            "end": end,
        }
        for (start, end), each in zip(places, predictions(task, trace), strict=True)
    ]


def top(task: Any, row: Tensor, count: int) -> list[dict[str, Any]]:
    """The likeliest, with their probabilities."""
    best = row.topk(min(count, row.numel()))
    ids = best.indices.tolist()
    return [{"text": text, "id": id, "p": p} for text, id, p in zip(names(task, ids), ids, best.values.tolist(), strict=True)]


def shown(task: Any, value: float) -> float:
    """A predicted number as people know it: a score has the scale of the training data."""
    return value * task.deviation + task.mean if isinstance(task, Score) else value


def log_probs(task: Any, trace: Trace) -> list[float | None]:
    """log p of every token the decoder read, given those before it; none of the first."""
    if not trace.target_tokens:
        return []
    ids = torch.tensor([token.id for token in trace.target_tokens[1:]], dtype=torch.long)
    rows = output(trace).log_softmax(-1)[: len(ids)]
    return [None, *rows.gather(1, ids.unsqueeze(1)).squeeze(1).tolist()]
