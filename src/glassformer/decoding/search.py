"""Writing a sequence: greedy, sampled or by beam, once for every model that can `step`.

Rows of the batch are independent: a row that has ended leaves the batch, and no row's result depends on its neighbours. The
model and the choice among a vocabulary are tensors, or NumPy's arrays where a model says so: it is searched without torch then.
Who goes on from whom is a few numbers a step, and plain Python.
"""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassformer.decoding import tree
from glassformer.decoding.state import PATIENCE, Hypothesis, Limits, Model
from glassformer.layers import compiled
from glassformer.options import DecodingOptions

if TYPE_CHECKING:
    from torch import Tensor

    from glassformer.decoding.sampling import Sampling

SPARE = 4  # tokens that a sequence may still be given for nothing; more where length counts for more

Rows = list[int]  # which input each row of a batch is
Choose = Callable[[Any, Rows], tuple[list[int], list[float]]]  # logits or log p (B, V) of rows → a token each, its log p
Write = Callable[[int, int, float], bool]  # a row, its next token and log p of that → whether the row goes on
P = ParamSpec("P")
R = TypeVar("R")


def without_gradients(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def wrapped(*args: P.args, **more: P.kwargs) -> R:
        torch = sys.modules.get("torch")
        with torch.no_grad() if torch else nullcontext():
            return function(*args, **more)

    return wrapped


def find(model: Model, state: Any, limits: Limits, options: DecodingOptions) -> list[list[Hypothesis]]:
    """What the options want of each row, best first; nothing of a row where a model's numbers are not finite."""
    penalty = options.length_penalty
    if options.beam > 1:
        return beam(model, state, limits, width=options.beam, length_penalty=penalty, wanted=options.wanted)
    return finite(greedy(model, state, limits, length_penalty=penalty))


def finite(found: list[Hypothesis]) -> list[list[Hypothesis]]:
    """One for each row; none where the model's numbers are not finite, as of a beam."""
    return [[h] if math.isfinite(h.score) else [] for h in found]


@without_gradients
def greedy(model: Model, state: Any, limits: Limits, *, length_penalty: float = 1.0) -> list[Hypothesis]:
    """The likeliest token at every step. Where a model's numbers are not finite the row ends, and its score is not either."""
    if tree.watched():
        return [found[0] for found in beam(model, state, limits, width=1, length_penalty=length_penalty)]  # the same, as a tree

    rules = _Rules(limits)

    def likeliest(logits: Any, length: int, rows: Rows) -> tuple[list[int], list[float]]:
        _, log_probs, tokens = rules.best(logits, [[0.0]] * len(rows), 1, length, rows)
        return tokens[:, 0].tolist(), log_probs[:, 0].tolist()

    return _one_each(model, state, limits, length_penalty, likeliest)


@without_gradients
def sample(
    model: Model, state: Any, limits: Limits, *, seeds: list[int], sampling: "Sampling", length_penalty: float = 1.0
) -> list[Hypothesis]:
    """A token drawn at every step; row i draws from its own generator, seeded with seeds[i]. By torch alone."""
    import torch

    from glassformer.decoding.sampling import distribution, draw

    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    rules = _Rules(limits)

    def drawn(logits: "Tensor", length: int, rows: Rows) -> tuple[list[int], list[float]]:
        log_probs = rules.log_probs(logits, length, rows)
        probs = distribution(log_probs, temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p)
        return with_log_probs(draw(probs, [generators[row] for row in rows]), log_probs)

    return _one_each(model, state, limits, length_penalty, drawn)


def walk(model: Model, ids: Any, state: Any, choose: Choose, write: Write, *, steps: int) -> None:
    """One token after another for every row that begins with ids (B), until `write` has ended all rows, or for `steps` steps."""
    rows, numbers = list(range(len(ids))), _maker(model)
    for _ in range(steps):
        logits, state = model.step(ids, state)
        chosen = list(zip(rows, *choose(logits, rows), strict=True))
        going = [i for i, each in enumerate(chosen) if write(*each)]
        if not going:
            return
        if len(going) < len(rows):
            rows, state = [rows[i] for i in going], state.reorder(numbers(going))
        ids = numbers([chosen[i][1] for i in going])


def _maker(model: Model) -> Callable[[list[int]], Any]:
    """What makes of numbers what a model's `step` and its state's `reorder` take: tensors, if the model says nothing else."""
    return getattr(model, "numbers", _tensor)


def _tensor(numbers: list[int]) -> "Tensor":
    """As torch.tensor, in a third of its time."""
    import torch

    return torch.from_numpy(np.array(numbers))


def with_log_probs(ids: "Tensor", log_probs: "Tensor") -> tuple[list[int], list[float]]:
    """Tokens (B) that were chosen, and log p of each, out of that of all (B, V)."""
    return ids.tolist(), log_probs.gather(1, ids.unsqueeze(1)).squeeze(1).tolist()


def _one_each(
    model: Model,
    state: Any,
    limits: Limits,
    length_penalty: float,
    pick: Callable[[Any, int, Rows], tuple[list[int], list[float]]],
) -> list[Hypothesis]:
    done = [Hypothesis([]) for _ in limits.max_lengths]

    def choose(logits: Any, rows: Rows) -> tuple[list[int], list[float]]:
        return pick(logits, len(done[rows[0]].ids), rows)

    def write(row: int, token: int, log_prob: float) -> bool:
        done[row].log_probs.append(log_prob)
        if token != limits.eos:
            done[row].ids.append(token)
        return token != limits.eos and math.isfinite(log_prob)

    if done:
        begin = _maker(model)([limits.bos] * len(done))
        walk(model, begin, state, choose, write, steps=max(limits.max_lengths) + 1)
    for hypothesis in done:
        hypothesis.score = _score(hypothesis.log_prob, len(hypothesis.log_probs), length_penalty)
    return done


class _Path(NamedTuple):
    """What a beam has written: one token after another path."""

    before: "_Path | None"
    token: int
    log_prob: float
    total: float  # Σ log p from the beginning
    beam: int  # of the step before, from which it goes on

    def finished(self, score: float) -> Hypothesis:
        tokens, log_probs = [], []
        path: _Path | None = self
        while path is not None and path.before is not None:
            tokens.append(path.token)
            log_probs.append(path.log_prob)
            path = path.before
        return Hypothesis(tokens[:0:-1], log_probs[::-1], score)  # without the end mark


@without_gradients
def beam(
    model: Model, state: Any, limits: Limits, *, width: int, length_penalty: float = 1.0, wanted: int = 0
) -> list[list[Hypothesis]]:
    """The `wanted` best sequences of each row (0: `width` of them), best first, by Σ log p ÷ lengthᵅ (the end mark counts as a
    token).

    At every step the best 2 · width continuations are looked at: those among the first `width` that end are finished, the
    best `width` that do not go on. A row stops when 2 · width have finished (a patience of 2: Kasai et al. 2022), which is a
    rule that CTranslate2 has too; a beam of one stops at its first end, as greedy does. It stops before that if none that
    goes on could get among those wanted even if its next SPARE tokens were certain. That is no proof, for there might be still
    more of them; but it saves a sixth of the steps, and over 3,000 sentences changed no answer.
    """
    wanted = wanted or width
    count = len(limits.max_lengths)
    done: list[list[Hypothesis]] = [[] for _ in range(count)]
    rows = list(range(count))
    begin = _Path(None, limits.bos, 0.0, 0.0, 0)
    beams = [_full([begin], width) for _ in rows]  # all begin alike, so only one of them counts
    numbers = _maker(model)
    state = state.reorder(numbers([row for row in rows for _ in range(width)]))
    length = 0
    rules = _Rules(limits)
    enough = PATIENCE * width if width > 1 else 1
    trees = tree.plant(count, width)
    while rows:
        logits, state = model.step(numbers([path.token for each in beams for path in each]), state)
        before = [[path.total for path in each] for each in beams]
        best = rules.best(logits, before, min(2 * width, width * logits.shape[1]), length, rows)
        length += 1
        kept: list[tuple[int, list[_Path]]] = []  # which row of this step, and its new beams
        for i, candidates in enumerate(_candidates(best, logits.shape[1])):
            row = rows[i]
            ended, going = _chosen(candidates, beams[i], limits.eos)
            done[row] += [path.finished(_score(path.total, length, length_penalty)) for path in ended]
            why = ""
            if len(done[row]) >= enough or not going:
                why = f"{len(done[row])} are finished, and the search ends"
            elif len(done[row]) >= wanted:
                most = limits.max_lengths[row] + 1
                longer = min(length + math.ceil(min(SPARE * max(1.0, length_penalty), most)), most)
                worst = sorted(h.score for h in done[row])[-wanted]
                if worst >= _score(going[0].total, longer, length_penalty):
                    why = "none that goes on is likely to win, and the search ends"
            if not why:
                kept.append((i, _full(going, width)))
            if trees is not None:
                trees[row].add(candidates, limits.eos, partial(_score, length=length, length_penalty=length_penalty))
                if why:
                    trees[row].end(why)
        rows, beams = [rows[i] for i, _ in kept], [paths for _, paths in kept]
        if rows:
            state = state.reorder(numbers([i * width + path.beam for i, paths in kept for path in paths]))
    return [sorted(found, key=lambda h: -h.score)[:wanted] for found in done]


def _candidates(best: compiled.Best, size: int) -> Iterator[list[tree.Candidate]]:
    """For each row what may follow its beams, best first, of a vocabulary so large."""
    for totals, log_probs, places in zip(*(x.tolist() for x in best), strict=True):
        yield [(*divmod(place, size), log_prob, total) for total, log_prob, place in zip(totals, log_probs, places, strict=True)]


def _chosen(candidates: list[tree.Candidate], beams: list[_Path], eos: int) -> tuple[list[_Path], list[_Path]]:
    """Those that end among the first K, and the first K that do not."""
    ended: list[_Path] = []
    going: list[_Path] = []
    for rank, (parent, token, log_prob, total) in enumerate(candidates):
        if not total > -math.inf or len(going) == len(beams):
            break
        path = _Path(beams[parent], token, log_prob, total, parent)
        if token != eos:
            going.append(path)
        elif rank < len(beams):
            ended.append(path)
    return ended, going


def _full(beams: list[_Path], width: int) -> list[_Path]:
    """As many as the batch has place for: the missing ones are impossible."""
    return beams + [beams[0]._replace(total=-math.inf)] * (width - len(beams))


def _score(log_prob: float, length: int, length_penalty: float) -> float:
    """Σ log p ÷ lengthᵅ, as a product: a huge α makes lengthᵅ overflow, but length⁻ᵅ merely 0."""
    return log_prob * length**-length_penalty


class _Rules:
    """What may be written, and the likeliest of it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.shortest = min(limits.max_lengths, default=0)
        self.never = np.array(limits.banned, np.int64), np.array([*limits.banned, limits.eos], np.int64)

    def best(self, logits: Any, before: list[list[float]], count: int, length: int, rows: Rows) -> compiled.Best:
        """The `count` best of what may follow each of B inputs, by log p + before, of logits (B · K, V) and before (B, K)."""
        ends = self._full(length, rows)
        never = self.never[length < self.limits.min_length]
        plain = _plain(logits)
        found = None if plain is None else compiled.best(plain, before, count, never, self.limits.eos, ends)
        if found is not None:
            return found
        log_probs = self.log_probs(logits, length, rows).view(len(before), len(before[0]), -1)
        totals, places = (log_probs + log_probs.new_tensor(before).unsqueeze(2)).flatten(1).topk(count, dim=1)
        return totals.numpy(), log_probs.flatten(1).gather(1, places).numpy(), places.numpy()

    def log_probs(self, logits: "Tensor", length: int, rows: Rows) -> "Tensor":
        """log p (B · K, V), −∞ of what may not be written; in single precision at least: sums of halves would be too coarse, and
        NumPy does not know bfloat16."""
        import torch

        logits = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
        log_probs, eos = logits.log_softmax(-1), self.limits.eos
        found = log_probs.numpy()
        ends = self._full(length, rows)
        ending = found[:, eos].copy()
        found[:, self.never[length < self.limits.min_length]] = -math.inf
        if ends is not None:
            full = ends.repeat(len(found) // len(rows))
            found[full] = -math.inf
            found[full, eos] = ending[full]
        return log_probs

    def _full(self, length: int, rows: Rows) -> NDArray[np.bool_] | None:
        """Which inputs are at their greatest length, and may only end; None if none is."""
        if length < self.shortest:
            return None
        return np.array([self.limits.max_lengths[row] <= length for row in rows])


def _plain(logits: Any) -> NDArray[np.float32] | None:
    """In single precision and the processor's memory, or none."""
    if isinstance(logits, np.ndarray):
        return logits
    import torch

    found: NDArray[Any] | None = logits.numpy() if logits.device.type == "cpu" and logits.dtype == torch.float32 else None
    return found
