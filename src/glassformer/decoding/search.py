"""Writing a sequence: greedy, sampled or by beam, once for every model that can `step`.

Rows of the batch are independent: a row that has ended leaves the batch, and no row's result depends on its neighbours.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassformer.decoding import tree
from glassformer.decoding.largest import largest
from glassformer.decoding.sampling import Sampling, distribution, draw
from glassformer.decoding.state import PATIENCE, Hypothesis, Limits, Model

Choose = Callable[[Tensor, Tensor], Tensor]  # logits or log p (B, V) and which rows they are (B) → a token each (B)
Write = Callable[[Tensor, Tensor], Tensor]  # which rows (B) got which tokens (B) → which of them go on (B)


@torch.no_grad()
def greedy(model: Model, state: Any, limits: Limits, *, length_penalty: float = 1.0) -> list[Hypothesis]:
    """The likeliest token at every step."""
    if tree.watched():
        return [found[0] for found in beam(model, state, limits, width=1, length_penalty=length_penalty)]  # the same, as a tree
    return _one_each(model, state, limits, length_penalty, lambda log_probs, rows: largest(log_probs, 1)[1].squeeze(1))


@torch.no_grad()
def sample(
    model: Model, state: Any, limits: Limits, *, seeds: list[int], sampling: Sampling, length_penalty: float = 1.0
) -> list[Hypothesis]:
    """A token drawn at every step; row i draws from its own generator, seeded with seeds[i]."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def choose(log_probs: Tensor, rows: Tensor) -> Tensor:
        probs = distribution(log_probs, temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p)
        return draw(probs, [generators[row] for row in rows.tolist()])

    return _one_each(model, state, limits, length_penalty, choose)


def walk(model: Model, ids: Tensor, state: Any, choose: Choose, write: Write, *, steps: int) -> None:
    """One token after another for every row that begins with ids (B), until `write` has ended all rows, or for `steps` steps.

    `choose` picks a token for each row from its logits; `write` takes the tokens and says which rows go on.
    """
    rows = torch.arange(len(ids))  # which input each row of the batch is
    for _ in range(steps):
        logits, state = model.step(ids, state)
        ids = choose(logits, rows)
        going = write(rows, ids)
        if not bool(going.all()):
            keep = going.nonzero().squeeze(1)
            if not len(keep):
                return
            rows, ids, state = rows[keep], ids[keep], state.reorder(keep)


def _one_each(model: Model, state: Any, limits: Limits, length_penalty: float, pick: Choose) -> list[Hypothesis]:
    done = [Hypothesis([]) for _ in limits.max_lengths]
    forbid = _Forbid(limits)
    log_probs = torch.empty(0)
    length = 0

    def choose(logits: Tensor, rows: Tensor) -> Tensor:
        nonlocal log_probs
        log_probs = forbid(logits.log_softmax(-1), length, rows)
        return pick(log_probs, rows)

    def write(rows: Tensor, ids: Tensor) -> Tensor:
        nonlocal length
        length += 1
        chosen = log_probs.gather(1, ids.unsqueeze(1)).squeeze(1)
        for row, token, log_prob in zip(rows.tolist(), ids.tolist(), chosen.tolist(), strict=True):
            done[row].log_probs.append(log_prob)
            if token != limits.eos:
                done[row].ids.append(token)
        return ids != limits.eos

    if done:
        begin = torch.full((len(done),), limits.bos)
        walk(model, begin, state, choose, write, steps=max(limits.max_lengths) + 1)
    for hypothesis in done:
        hypothesis.score = _score(hypothesis.log_prob, len(hypothesis.log_probs), length_penalty)
    return done


@torch.no_grad()
def beam(model: Model, state: Any, limits: Limits, *, width: int, length_penalty: float = 1.0) -> list[list[Hypothesis]]:
    """The `width` best sequences of each row, best first, by Σ log p ÷ lengthᵅ (the end mark counts as a token).

    At every step the best 2 · width continuations are looked at: those among the first `width` that end are finished, the
    best `width` that do not go on. A row stops when 2 · width have finished (a patience of 2: Kasai et al. 2022), which is a
    rule that CTranslate2 has too; a beam of one stops at its first end, as greedy does.
    """
    count = len(limits.max_lengths)
    done: list[list[Hypothesis]] = [[] for _ in range(count)]
    rows = torch.arange(count)  # (b) inputs still going
    state = state.reorder(rows.repeat_interleave(width))
    ids = torch.full((count * width,), limits.bos)
    totals = torch.full((count, width), -math.inf)  # (b, K) Σ log p
    totals[:, 0] = 0.0  # all beams begin alike, so only one of them counts
    written = torch.empty(count, width, 0, dtype=torch.long)  # (b, K, t)
    spent = torch.empty(count, width, 0)  # (b, K, t) log p of each
    length = 0
    forbid = _Forbid(limits)
    enough = PATIENCE * width if width > 1 else 1
    trees = tree.plant(count, width)
    while len(rows):
        logits, state = model.step(ids, state)
        log_probs = forbid(logits.log_softmax(-1), length, rows.repeat_interleave(width))
        likely, likely_tokens = largest(log_probs, min(2 * width, log_probs.size(1)))  # (b·K, 2K): no beam gives more of the best
        each = likely.size(1)
        likely, likely_tokens = likely.view(len(rows), -1), likely_tokens.view(len(rows), -1)  # (b, K·2K)
        candidates = totals.repeat_interleave(each, dim=1) + likely
        best, where = candidates.topk(min(2 * width, candidates.size(1)), dim=1)
        parents, tokens, paid = where // each, likely_tokens.gather(1, where), likely.gather(1, where)  # (b, 2K)

        ended = (tokens == limits.eos) & (best > -math.inf)
        for i, j in ended[:, :width].nonzero().tolist():
            parent = parents[i, j]
            log_probs_so_far = [*spent[i, parent].tolist(), paid[i, j].item()]
            score = _score(best[i, j].item(), length + 1, length_penalty)
            done[int(rows[i])].append(Hypothesis(written[i, parent].tolist(), log_probs_so_far, score))

        alive = best.masked_fill(tokens == limits.eos, -math.inf)
        totals, order = alive.topk(min(width, alive.size(1)), dim=1)  # stays sorted, best first
        if totals.size(1) < width:
            totals, order = _widen(totals, order, width)
        if trees is not None:
            scored = partial(_score, length=length + 1, length_penalty=length_penalty)
            tree.grow(trees, rows, (parents, tokens, paid, best), (order, totals), limits.eos, scored)
        parents, tokens, paid = (x.gather(1, order) for x in (parents, tokens, paid))
        written = torch.cat((_follow(written, parents), tokens.unsqueeze(2)), dim=2)
        spent = torch.cat((_follow(spent, parents), paid.unsqueeze(2)), dim=2)
        length += 1

        goes = (totals[:, 0] > -math.inf).tolist()
        going = [i for i, row in enumerate(rows.tolist()) if goes[i] and len(done[row]) < enough]
        if trees is not None:
            for i in set(range(len(rows))) - set(going):
                trees[int(rows[i])].end(f"{len(done[int(rows[i])])} are finished, and the search ends")
        keep = torch.tensor(going, dtype=torch.long)
        index = (keep.unsqueeze(1) * width + parents[keep]).flatten()
        rows, totals, written, spent = rows[keep], totals[keep], written[keep], spent[keep]
        ids, state = tokens[keep].flatten(), state.reorder(index)
    return [sorted(found, key=lambda h: -h.score)[:width] for found in done]


def _score(log_prob: float, length: int, length_penalty: float) -> float:
    """Σ log p ÷ lengthᵅ, as a product: a huge α makes lengthᵅ overflow, but length⁻ᵅ merely 0."""
    return log_prob * length**-length_penalty


def _widen(totals: Tensor, order: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Beams wider than there are continuations: the missing ones are impossible."""
    missing = width - totals.size(1)
    impossible = totals.new_full((totals.size(0), missing), -math.inf)
    return torch.cat((totals, impossible), 1), torch.cat((order, order[:, :1].expand(-1, missing)), 1)


def _follow(history: Tensor, parents: Tensor) -> Tensor:
    return history.gather(1, parents.unsqueeze(2).expand(-1, -1, history.size(2)))


class _Forbid:
    """Sets log p of what may not be written to −∞."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.most = torch.tensor(limits.max_lengths)
        self.shortest = min(limits.max_lengths, default=0)
        self.banned = torch.tensor(limits.banned, dtype=torch.long)

    def __call__(self, log_probs: Tensor, length: int, rows: Tensor) -> Tensor:
        """log p (B, V) of inputs `rows` (B), in place; at a row's maximum length only the end remains."""
        eos = self.limits.eos
        full = self.most[rows] <= length if length >= self.shortest else None
        ending = log_probs[:, eos].clone() if full is not None else None
        log_probs.index_fill_(1, self.banned, -math.inf)
        if length < self.limits.min_length:
            log_probs[:, eos] = -math.inf
        if full is not None and ending is not None:
            log_probs.masked_fill_(full.unsqueeze(1), -math.inf)
            log_probs[:, eos] = torch.where(full, ending, log_probs[:, eos])
        return log_probs
