"""Vectors on a plane: the two directions in which they differ most, or a map that keeps neighbours together.

Both give the same picture each time: nothing is drawn at random.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 10_000  # rows that are brought to float64 at a time
EXAGGERATION, CALM = 4.0, 0.1  # P is so much larger for the first share of the steps, so that groups find together


def pca(x: Tensor) -> tuple[Tensor, Tensor]:
    """(V, D) → places (V, 2) along the two directions of largest variance, and their shares of all of it (2).

    A direction's sign is free; its largest entry is made positive, so that the picture is always the same.
    """
    mean = sum((part.double().sum(0) for part in x.split(CHUNK)), torch.zeros(x.size(1), dtype=torch.float64)) / len(x)
    spread = torch.zeros(x.size(1), x.size(1), dtype=torch.float64)
    for part in x.split(CHUNK):
        centred = part.double() - mean
        spread += centred.T @ centred
    values, directions = torch.linalg.eigh(spread)  # ascending
    best = directions.flip(1)[:, :2]
    largest = best.abs().argmax(0)
    best = best * best[largest, torch.arange(best.size(1))].sign()
    places = torch.zeros(len(x), 2)
    places[:, : best.size(1)] = torch.cat([((part.double() - mean) @ best).float() for part in x.split(CHUNK)])
    shares = torch.zeros(2)
    shares[: best.size(1)] = (values.flip(0)[:2].clamp(min=0) / values.clamp(min=0).sum().clamp(min=1e-30)).float()
    return places, shares


@dataclass(frozen=True)
class Stage:
    """How far a map has come."""

    done: int
    places: Tensor  # (N, 2)
    divergence: float | None  # KL(P ‖ Q) of these places; while P is exaggerated it is not looked at


def tsne(x: Tensor, *, perplexity: float = 30.0, steps: int = 500, every: int = 10) -> Iterator[Stage]:
    """t-SNE (van der Maaten & Hinton 2008) of N vectors (N, D), with every pair of them: time and memory grow as N².

    It begins with the first two principal components, so it is the same each time. P counts the 3 · perplexity nearest of each
    word; the step size is N ÷ 48, at least 50. A stage is given every so many steps, so whoever wants no more can stop.
    """
    p = affinities(x, perplexity)
    y = pca(x)[0]
    y = y / y[:, 0].std().clamp(min=1e-12) * 1e-4
    rate = max(len(x) / EXAGGERATION / 4, 50.0)
    speed, gain = torch.zeros_like(y), torch.ones_like(y)
    for step in range(steps):
        early = step < CALM * steps
        gradient = slope(p, y, EXAGGERATION if early else 1.0)
        same = gradient.sign() == speed.sign()
        gain = torch.where(same, gain * 0.8, gain + 0.2).clamp(min=0.01)
        speed = (0.5 if early else 0.8) * speed - rate * gain * gradient
        y = y + speed
        y = y - y.mean(0)
        done = step + 1
        if done % every == 0 or done == steps:
            yield Stage(done, y, None if early else divergence(p, y))


def affinities(x: Tensor, perplexity: float) -> Tensor:
    """p_ij = (p_j|i + p_i|j) ÷ 2N, where p_j|i ∝ exp(−β_i |x_i − x_j|²) has the perplexity asked for; (N, N)."""
    count = len(x)
    near = max(1, min(count - 1, int(3 * perplexity)))
    squares = torch.cdist(x.double(), x.double()).square().fill_diagonal_(torch.inf)
    closest = squares.topk(near, dim=1, largest=False)
    d = closest.values - closest.values[:, :1]  # a shift changes no p, and keeps exp in range
    goal = torch.tensor(min(perplexity, max(1.0, near / 1.5)), dtype=torch.float64).log()
    low, high = torch.full((count, 1), -40.0, dtype=torch.float64), torch.full((count, 1), 40.0, dtype=torch.float64)
    for _ in range(60):  # halves the range of log β
        middle = (low + high) / 2
        given = (-middle.exp() * d).softmax(1)
        flat = -(given * given.clamp(min=1e-300).log()).sum(1, keepdim=True) > goal  # too even: β must grow
        low, high = torch.where(flat, middle, low), torch.where(flat, high, middle)
    p = torch.zeros(count, count, dtype=torch.float64).scatter_(1, closest.indices, given)
    return ((p + p.T) / (2 * count)).float()


def slope(p: Tensor, y: Tensor, factor: float = 1.0) -> Tensor:
    """∂KL/∂y_i = 4 Σ_j (factor · p_ij − q_ij) (y_i − y_j) ÷ (1 + |y_i − y_j|²), where q_ij ∝ 1 ÷ (1 + |y_i − y_j|²)."""
    near = _near(y)
    pull = near.div(-near.sum()).add_(p, alpha=factor).mul_(near)
    return 4 * (pull.sum(1, keepdim=True) * y - pull @ y)


def divergence(p: Tensor, y: Tensor) -> float:
    """KL(P ‖ Q) = Σ p log (p ÷ q)."""
    near = _near(y)
    some = p > 0
    kept = p[some]
    return float((kept * (kept / (near[some] / near.sum())).log()).sum())


def _near(y: Tensor) -> Tensor:
    """1 ÷ (1 + |y_i − y_j|²), and 0 on the diagonal; (N, N)."""
    squares = y.square().sum(1)
    return (
        torch.addmm(squares.unsqueeze(0) + 1, y, y.T, alpha=-2)
        .add_(squares.unsqueeze(1))
        .clamp_(min=1)
        .reciprocal_()
        .fill_diagonal_(0)
    )
