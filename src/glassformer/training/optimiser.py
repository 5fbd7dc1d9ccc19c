"""AdamW, plain gradient descent, and the learning rate over time."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import UserError
from glassformer.options import TrainingOptions


def rate_at(update: int, options: TrainingOptions) -> float:
    """The learning rate of update 1, 2, …: a linear warm-up, then the paper's 1/√update, a cosine or line to 0, or no change."""
    peak, warmup = options.rate, options.warmup
    if update < warmup:
        return peak * update / warmup
    if options.schedule == "inverse-sqrt":
        return peak * math.sqrt(max(warmup, 1) / update)
    done = (update - warmup) / max(1, options.updates - warmup)
    if options.schedule == "linear":
        return peak * max(1e-3, 1.0 - done)  # never quite 0
    if options.schedule == "cosine":
        return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return peak


def adamw(model: nn.Module, options: TrainingOptions) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices alone (a norm's vectors and biases have nothing to decay)."""
    beta1, beta2 = options.betas
    return torch.optim.AdamW(_groups(model, options), lr=options.rate, betas=(beta1, beta2), eps=options.epsilon, fused=True)


def sgd(model: nn.Module, options: TrainingOptions) -> torch.optim.SGD:
    """W ← W − rate · gradient, of rows alone where the gradient is one of rows."""
    return torch.optim.SGD(_groups(model, options), lr=options.rate)


OPTIMISERS: dict[str, Callable[[nn.Module, TrainingOptions], torch.optim.Optimizer]] = {"adamw": adamw, "sgd": sgd}


def clip_all(model: nn.Module, most: float) -> float:
    """Makes the gradient of all parameters shorter if it is longer than `most`; the norm it had."""
    given = [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
    return torch.nn.utils.clip_grad_norm_(given, most).item()


def clip_rows(model: nn.Module, most: float) -> float:
    """Makes the gradient of every row shorter that is longer than `most`; the largest norm of one, or more.

    A batch of word2vec sums the steps that its pairs would take one after another. Where a word stands in it many times, as in a
    text of few words, they all start from the same place, and together they would go far beyond where each alone would stop.
    """
    norms = [_clip_rows(parameter, most) for parameter in model.parameters() if parameter.grad is not None]
    return max(norms, default=0.0)


def _clip_rows(matrix: nn.Parameter, most: float) -> float:
    gradient = matrix.grad
    assert gradient is not None
    if gradient.is_sparse:
        parts: Tensor = torch.linalg.vector_norm(gradient._values(), dim=1)
        at_most = parts.new_zeros(matrix.size(0)).index_add_(0, gradient._indices()[0], parts).max().item()
        if at_most <= most:
            return at_most
        matrix.grad = gradient.coalesce()
        gradient = matrix.grad.values()
    norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    gradient.mul_((most / norms).clamp(max=1.0))
    return norms.max().item()


def _groups(model: nn.Module, options: TrainingOptions) -> list[dict[str, Any]]:
    """The parameters by how they learn.

    Parts named in `freeze` are left as they are, parts named in `rates` learn at that multiple of the rate. A matrix that several
    parts share has several names, and each counts.
    """
    _check_parts(model, (*options.freeze, *options.rates))
    grouped: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    names: dict[nn.Parameter, list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[parameter].append(name)
    for parameter, known in names.items():
        parameter.requires_grad_(not any(_within(name, part) for name in known for part in options.freeze))
        if parameter.requires_grad:
            named = [part for part in options.rates if any(_within(name, part) for name in known)]
            factor = options.rates[max(named, key=len)] if named else 1.0  # the most exact name counts
            grouped[factor, options.weight_decay if parameter.dim() > 1 else 0.0].append(parameter)
    if not grouped:
        raise UserError(f"training.freeze = {list(options.freeze)} leaves nothing to train.")
    return [{"params": ps, "weight_decay": decay, "factor": factor} for (factor, decay), ps in grouped.items()]


def _within(name: str, part: str) -> bool:
    return name == part or name.startswith(part + ".")


def _check_parts(model: nn.Module, parts: tuple[str, ...]) -> None:
    known = {name for name, _ in model.named_modules() if name} | {
        name for name, _ in model.named_parameters(remove_duplicate=False)
    }
    for part in parts:
        if part not in known:
            first = sorted({".".join(name.split(".")[:2]) for name in known})
            raise UserError(f"This model has no part {part!r} (training.freeze, training.rates); it has {', '.join(first)}.")
