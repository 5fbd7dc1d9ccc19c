"""What the API computes, without HTTP: traces, edits, distributions and trees as dicts ready for JSON."""

import copy
import math
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer import answers, edits, explain
from glassformer.decoding import sampling, tree
from glassformer.errors import UserError
from glassformer.notation import describe
from glassformer.server.cache import Kept, Traces
from glassformer.server.limits import Limits
from glassformer.server.maps import Maps
from glassformer.server.refusal import Refusal, bad
from glassformer.server.requests import AskedTap, ToBeam, ToEdit, ToExplain, ToNext, ToSpell, ToTokenize, ToTrace, named
from glassformer.server.shelf import Shelf, read_by
from glassformer.tasks.fill import MASK, Fill
from glassformer.tasks.language import Language
from glassformer.tasks.tag import WORD, Tag
from glassformer.tasks.translate import Translate
from glassformer.tasks.vectors import Vectors
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Token, TooLarge, Trace, at_most, recording

SHOWN = 200  # of the likeliest next tokens


class Work:
    """Everything a request may ask for."""

    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        self.shelf, self.limits = shelf, limits
        self.traces = Traces(limits)
        self.maps = Maps(limits)

    # -- traces

    def trace(self, asked: ToTrace) -> dict[str, Any]:
        task: Any = self.shelf.load(asked.model)
        started = time.perf_counter()
        with in_words(), at_most(self.limits.trace):
            found = self._pass(task, asked)
        found.made_by = None  # or the traces would decide how many models stay
        return self._keep(asked.model, task, found, round(time.perf_counter() - started, 4))

    def adopt(self, model: str, task: Any, trace: Trace) -> dict[str, Any]:
        """The same of a trace that was made elsewhere, by a model that the shelf has under this id."""
        edits = {"edits": trace.about["edits"]} if "edits" in trace.about else {}
        kept = copy.copy(trace)  # of the same tensors
        kept.made_by = None
        return self._keep(model, task, kept, None, **edits)

    def told(self, id: str) -> dict[str, Any]:
        return self.traces.get(id).told

    def _pass(self, task: Any, asked: ToTrace) -> Trace:
        self._check(task, asked)
        if isinstance(task, Translate):
            return task.trace(asked.text, direction(task, asked.text, asked.to), target=asked.target)
        if isinstance(task, Language):
            return task.trace(asked.text, max_tokens=asked.max_tokens)
        return task.trace(asked.text) if asked.second is None else task.trace(asked.text, asked.second)

    def _check(self, task: Any, asked: ToTrace) -> None:
        """What does not go together, and what does not fit."""
        name = task.recipe.task
        if name == "vectors":
            sentence = "Word vectors make no pass to be traced; /api/vectors/plane and its neighbours look at them."
            raise bad("not-for-task", sentence, field="model")
        for field, value, of in (("to", asked.to, "translate"), ("target", asked.target, "translate")):
            if value is not None and name != of:
                raise bad("not-for-task", f"{field!r} is for models that {of}; this one is for the task {name!r}.", field=field)
        if asked.max_tokens and name != "language":
            raise bad(
                "not-for-task", f"'max_tokens' is for language models; this one is for the task {name!r}.", field="max_tokens"
            )
        if (asked.second is not None) != (name == "compare"):
            sentence = "This model compares two texts: give 'second' too." if name == "compare" else "This model reads one text."
            raise bad("not-for-task", sentence, field="second")
        check_text(task, asked.text, asked.second)
        if asked.target is not None:
            check_ids(asked.target, task.target)
            check_room(len(asked.target) + 1, task.recipe.model.max_length)

    def _keep(self, model: str, task: Any, trace: Trace, seconds: float | None, **more: Any) -> dict[str, Any]:
        told: dict[str, Any] = {
            "id": self.traces.name(),
            "model": model,
            "task": task.recipe.task,
            "text": trace.about["text"],
            "second": trace.about.get("second"),
            "to": trace.about.get("to"),
            "source": [token_json(read_by(task), token) for token in trace.source_tokens],
            "target": [
                {**token_json(answers.tokenizer_of(task), token), "log_prob": log_prob}
                for token, log_prob in zip(trace.target_tokens, answers.log_probs(task, trace), strict=True)
            ],
            "answer": answers.answer(task, trace),
            "tensors": {name: summary(trace, name) for name in trace},
            "seconds": seconds,
            **more,
        }
        told = plain(told)
        self.traces.add(Kept(told["id"], model, weakref.ref(task), trace, told))
        return told

    def edit(self, id: str, asked: ToEdit) -> dict[str, Any]:
        kept = self.traces.get(id)
        task = kept.task
        started = time.perf_counter()
        with in_words(), at_most(self.limits.trace):
            edited = edits.apply(task, kept.trace, named(asked.edits, lambda other: self._patch(kept, other)))
        edited.trace.made_by = None
        return self._keep(
            kept.model,
            task,
            edited.trace,
            round(time.perf_counter() - started, 4),
            base=id,
            edits=edited.trace.about["edits"],
            changes=[asdict(change) for change in edited.changes],
            same=edited.same,
        )

    def _patch(self, kept: Kept, id: str) -> Trace:
        """Another trace by the same model, of which a part is to be put into this one."""
        other = self.traces.get(id)
        if other.made_by is not kept.made_by and other.task is not kept.task:
            sentence = f"A part of another pass fits only into a pass of the same model: {other.model} is not {kept.model}."
            raise bad("other-model", sentence, model=kept.model, other=other.model)
        return other.trace

    def cell(self, id: str, asked: ToExplain) -> dict[str, Any]:
        kept = self.traces.get(id)
        if asked.name not in kept.trace:
            raise unknown_tensor(asked.name)
        shape = list(kept.trace[asked.name].shape)
        if len(asked.index) != len(shape) or any(i >= size for i, size in zip(asked.index, shape, strict=True)):
            raise bad("out-of-range", f"{asked.name} has the shape {shape}; there is no {asked.index} in it.", shape=shape)
        with in_words():
            found = explain.explain(kept.task.model, kept.trace, asked.name, asked.index)
        return plain({**asdict(found), "difference": found.difference})

    # -- parts of tensors

    def tensor(self, id: str, name: str) -> tuple[Tensor, list[str]]:
        kept = self.traces.get(id)
        if name not in kept.trace:
            raise unknown_tensor(name)
        return kept.trace[name], kept.trace.axes(name)

    def weights(self, id: str, name: str) -> tuple[Tensor, list[str]]:
        """A parameter of the model, or a table it computes with, such as of positions."""
        model = self.traces.get(id).task.model
        found = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
        if name not in found:
            raise Refusal(404, "unknown-tensor", f"The model has no weights {name!r}.", name=name)
        return found[name].detach(), [str(i) for i in range(found[name].dim())]

    # -- the next token

    @torch.inference_mode()
    def next(self, asked: ToNext) -> dict[str, Any] | Tensor:
        task: Any = self.shelf.load(asked.model)
        with in_words(), at_most(self.limits.trace), edited(task, asked.edits):
            logits = self._next_logits(task, asked)
        return logits if asked.full else plain(next_token(task, logits, asked))

    def _next_logits(self, task: Any, asked: ToNext) -> Tensor:
        if not isinstance(task, Translate | Language):
            sentence = f"Only models that write have a next token; this one is for the task {task.recipe.task!r}."
            raise bad("not-for-task", sentence, field="model")
        check_text(task, asked.text)
        check_ids(asked.written, answers.tokenizer_of(task))
        most = task.recipe.model.max_length
        if isinstance(task, Translate):
            check_room(len(asked.written) + 1, most)
            source = task.source_ids(task.source.encode(asked.text), direction(task, asked.text, asked.to))
            target = [task.target.bos, *asked.written]
            states = task.model(torch.tensor([source]), torch.tensor([target]))
        else:
            ids = [*task.prompt_ids(asked.text), *asked.written]
            check_room(len(ids), most)
            states = task.model(torch.tensor([ids]))
        return task.model.logits(states[:, -1])[0]

    # -- the search

    def beam(self, asked: ToBeam) -> dict[str, Any]:
        task: Any = self.shelf.load(asked.model)
        if not isinstance(task, Translate):
            sentence = f"Beams are searched by models that translate; this one is for the task {task.recipe.task!r}."
            raise bad("not-for-task", sentence, field="model")
        check_text(task, asked.text)
        options = replace(task.recipe.decoding, beam=asked.beam, nbest=asked.beam, length_penalty=asked.length_penalty)
        with in_words(), tree.watching() as trees:
            with edited(task, asked.edits):
                answer = task.translate(asked.text, direction(task, asked.text, asked.to), options)
            source = task.trace(asked.text, answer.to, target=[]).source_tokens
        grown = trees[0]
        return plain(
            {
                "to": answer.to,
                "rounds": [[self._node(task, node) for node in nodes] for nodes in grown.rounds],
                "answers": [
                    {"text": each.text, "ids": each.ids, "score": each.score, "nodes": grown.path(each.ids)}
                    for each in answer.nbest
                ],
                "source": [token_json(task.source, token) for token in source],
            }
        )

    def _node(self, task: Translate, node: tree.Node) -> dict[str, Any]:
        return {
            "node": node.number,
            "parent": node.parent,
            "token": answers.piece(task.target, node.token),
            "id": node.token,
            "log_prob": round(node.log_prob, 6),
            "total": round(node.total, 6),
            "score": round(node.score, 6),
            "rank": node.rank,
            "fate": node.fate,
            "why": node.why,
        }

    # -- pieces

    def tokenize(self, asked: ToTokenize) -> dict[str, Any]:
        task: Any = self.shelf.load(asked.model)
        if isinstance(task, Vectors) and task.by_word:
            sentence = "Word vectors are of whole words, and pass over what is none of them: there are no pieces to look at."
            raise bad("not-for-task", sentence, field="model")
        vocabulary = vocabulary_of(task, asked.side)
        pieces = vocabulary.pieces(asked.text)
        return {
            "vocabulary": vocabulary.size,
            "unknown": vocabulary.unk,
            "ids": [piece.id for piece in pieces],
            "starts": [piece.start for piece in pieces],
            "ends": [piece.end for piece in pieces],
            "bytes": {piece.id: vocabulary.bytes_of(piece.id).hex() for piece in pieces},
        }

    def words(self, asked: ToSpell) -> dict[str, Any]:
        vocabulary = vocabulary_of(self.shelf.load(asked.model), asked.side)
        check_ids(asked.ids, vocabulary)
        return {
            "words": [
                {"id": id, "text": answers.piece(vocabulary, id), "special": not vocabulary.bytes_of(id)} for id in asked.ids
            ]
        }


@contextmanager
def edited(task: Any, asked: Sequence[AskedTap]) -> Iterator[None]:
    """Within this block the model computes with these edits, step by step; without any, as fast as it can."""
    if not asked:
        yield
        return
    with recording(task.model, edits.taps(task.model, named(asked))):
        yield


@contextmanager
def in_words() -> Iterator[None]:
    """A person's mistakes become refusals with a sentence; running out of memory is one of them."""
    try:
        yield
    except TooLarge as error:
        raise Refusal(413, "trace-too-large", str(error), limit=error.most) from None
    except UserError as error:
        raise bad("bad-input", str(error)) from None
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        raise Refusal(413, "no-memory", "This machine's memory does not suffice for it. Shorten the text.") from None


def unknown_tensor(name: str) -> Refusal:
    return Refusal(404, "unknown-tensor", f"This trace has no tensor {name!r}.", name=name)


def check_text(task: Any, text: str, second: str | None = None) -> None:
    """Neither empty, unless it is to be gone on with, nor longer than the model can read."""
    if task.recipe.task != "language" and not (text.strip() and (second is None or second.strip())):
        raise bad("empty", "The text is empty: write something for the model to read.")
    check_room(_length(task, text, second), task.recipe.model.max_length)


def _length(task: Any, text: str, second: str | None) -> int:
    """How many positions a text takes, with its marks."""
    if isinstance(task, Translate):
        return len(task.source_ids(task.source.encode(text), task.languages[1]))
    if isinstance(task, Language):
        begins = task.tokenizer.bos >= 0 and task.data.documents == "line"
        return len(task.tokenizer.encode(text)) + begins + 1  # one is still to come
    if isinstance(task, Fill) and MASK in text:
        return len(task.read(text)[0])
    if isinstance(task, Tag):
        return len(task.encode(text, [m.start() for m in WORD.finditer(text)])[0]) + 2
    return len(task.tokenizer.encode(text)) + 2 + (0 if second is None else len(task.tokenizer.encode(second)) + 1)


def check_ids(ids: Sequence[int], vocabulary: Tokenizer) -> None:
    if strange := [id for id in ids if id >= vocabulary.size]:
        sentence = f"The vocabulary has the ids 0 to {vocabulary.size - 1:,}; {strange[0]:,} is none of them."
        raise bad("unknown-token", sentence, token=strange[0], vocabulary=vocabulary.size)


def direction(task: Translate, text: str, to: str | None) -> str:
    """The language to translate into, as told or guessed."""
    try:
        return task.direction(text, to)
    except UserError as error:
        if to is not None:
            raise bad("unknown-language", str(error), languages=list(task.languages)) from None
        sentence = f"{' and '.join(task.languages)} are written alike: say which language to translate into ('to')."
        raise bad("which-language", sentence, languages=list(task.languages)) from None


def check_room(length: int, most: int) -> None:
    if length > most:
        sentence = f"This is {length:,} tokens long with its marks; the model has {most:,} positions. Shorten it."
        raise bad("too-long", sentence, length=length, limit=most, unit="tokens")


def vocabulary_of(task: Any, side: str) -> Tokenizer:
    return read_by(task) if side == "source" else answers.tokenizer_of(task)


def token_json(tokenizer: Tokenizer, token: Token) -> dict[str, Any]:
    """A token as the page shows it. Bytes that make no character, or go on with one, are spelled; never U+FFFD, nor nothing."""
    half = "\ufffd" in token.text and "\ufffd".encode() not in tokenizer.bytes_of(token.id)
    text = answers.piece(tokenizer, token.id) if half or not token.text else token.text
    return {**asdict(token), "text": text, "unknown": token.id == tokenizer.unk}


def summary(trace: Trace, name: str) -> dict[str, Any]:
    """Shape and range of a tensor; −∞ does not count."""
    x = trace[name]
    least, most, mean = ends(x)
    return {"shape": list(x.shape), "axes": trace.axes(name), "min": least, "max": most, "mean": mean, "row": describe(name).name}


def ends(x: Tensor) -> tuple[float, float, float]:
    """The smallest and largest number, and the mean, of those that are numbers; zeros if there are none."""
    if not x.numel():
        return 0.0, 0.0, 0.0
    least, most = torch.aminmax(x)
    if least.isfinite() and most.isfinite():
        return least.item(), most.item(), x.mean().item()
    known = x.isfinite()  # choosing x[known] would take far longer than passing over x three times
    count = int(known.sum())
    if not count:
        return 0.0, 0.0, 0.0
    least, most = x.where(known, math.inf).min(), x.where(known, -math.inf).max()
    return least.item(), most.item(), x.where(known, 0).sum().item() / count


def plain(x: Any) -> Any:
    """JSON has no infinities: null stands for them."""
    if isinstance(x, float):
        return x if math.isfinite(x) else None
    if isinstance(x, dict):
        return {key: plain(value) for key, value in x.items()}
    return [plain(value) for value in x] if isinstance(x, list | tuple) else x


def next_token(task: Any, logits: Tensor, asked: ToNext) -> dict[str, Any]:
    """temperature → top-k → softmax → top-p → draw, with what each step leaves."""
    vocabulary = logits.numel()
    step = {"temperature": asked.temperature, "top_k": asked.top_k}
    kept_k = sampling.distribution(logits, **step)  # type: ignore[arg-type]
    final = sampling.distribution(logits, **step, top_p=asked.top_p)  # type: ignore[arg-type]
    order = np.lexsort((np.arange(vocabulary), -logits.numpy().astype(np.float64)))[:SHOWN].tolist()
    luck = torch.Generator().manual_seed(asked.seed)
    for _ in asked.written:  # what is written took a number each, so the draws are those of `glassformer generate --seed`
        torch.rand(1, generator=luck, dtype=torch.float64)
    drawn = int(sampling.draw(final.unsqueeze(0), [luck])[0])
    best = set(logits.topk(min(asked.top_k, vocabulary)).indices.tolist() if asked.top_k else order)
    shown = [
        {
            "id": id,
            "text": text,
            "logit": logits[id].item(),
            "scaled": logits[id].item() / asked.temperature if asked.temperature else None,
            "kept_k": id in best,
            "p": kept_k[id].item(),
            "kept_p": final[id].item() > 0,
            "final": final[id].item(),
        }
        for id, text in zip(order, answers.names(task, order), strict=True)
    ]
    positive = final[final > 0].double()
    return {
        "vocabulary": vocabulary,
        "order": order,
        "top": shown,
        "entropy": max(0.0, -(positive * positive.log()).sum().item()),
        "drawn": {"id": drawn, "text": answers.names(task, [drawn])[0]},
        "tail": {"count": vocabulary - len(order), "p": max(0.0, 1.0 - sum(each["final"] for each in shown))},
    }
