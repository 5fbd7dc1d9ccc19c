"""How the next token is drawn: temperature, then top-k, then softmax, then top-p."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """Drawing tokens instead of searching for the likeliest sequence."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


def distribution(logits: Tensor, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """Logits (…, V) → the probabilities a token is drawn from.

    softmax(logits / temperature) over the `top_k` largest (before the softmax; 0 means all), then the fewest of them whose
    probabilities reach `top_p` (after it), rescaled to sum to 1. Temperature 0 is greedy: all weight on the largest.
    """
    if temperature == 0:
        return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    temperature = min(max(temperature, 1e-30), 1e30)  # as good as 0 and ∞, and a float32 can be divided by them
    logits = (logits - logits.amax(-1, keepdim=True)) / temperature
    if 0 < top_k < logits.size(-1):
        chosen = logits.topk(top_k, dim=-1)
        logits = torch.full_like(logits, -math.inf).scatter(-1, chosen.indices, chosen.values)
    probs = logits.softmax(-1)
    if top_p < 1:
        ranked, order = probs.sort(stable=True, dim=-1, descending=True)
        before = ranked.cumsum(-1) - ranked  # what more likely tokens hold already
        ranked = ranked.masked_fill((before >= top_p) & (before > 0), 0.0)  # the likeliest stays, whatever top_p
        probs = torch.zeros_like(probs).scatter(-1, order, ranked)
        probs = probs / probs.sum(-1, keepdim=True)
    return probs


def discourage(logits: Tensor, written: list[list[int]], factor: float) -> Tensor:
    """Logits (B, V) in which the tokens each row has written before are less likely: divided by `factor`, or multiplied if
    they are negative (Keskar et al. 2019)."""
    seen = torch.zeros_like(logits, dtype=torch.bool)
    for row, ids in enumerate(written):
        seen[row, ids] = True
    return torch.where(seen, torch.where(logits > 0, logits / factor, logits * factor), logits)


def draw(probs: Tensor, generators: list[torch.Generator]) -> Tensor:
    """One token for each row of probs (B, V), each from its own generator, so that rows do not depend on their neighbours."""
    u = torch.cat([torch.rand(1, generator=g, dtype=torch.float64) for g in generators])
    total = probs.double().cumsum(-1)
    drawn = torch.searchsorted(total, (u * total[:, -1]).unsqueeze(1), right=True).squeeze(1)
    last = (probs > 0).long().cumsum(-1).argmax(-1)  # rounding must never reach past the last possible token
    return torch.minimum(drawn, last)
