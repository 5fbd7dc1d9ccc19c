"""AdamW and the learning rate over time."""

import math

import torch
from torch import nn

from glassformer.config import TrainingOptions


def rate_at(update: int, options: TrainingOptions) -> float:
    """The learning rate of update 1, 2, …: a linear warm-up, then the paper's 1/√update, a cosine to 0, or no change."""
    peak, warmup = options.rate, options.warmup
    if update < warmup:
        return peak * update / warmup
    if options.schedule == "inverse-sqrt":
        return peak * math.sqrt(max(warmup, 1) / update)
    if options.schedule == "cosine":
        done = (update - warmup) / max(1, options.updates - warmup)
        return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return peak


def adamw(model: nn.Module, options: TrainingOptions) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices alone (a norm's vectors and biases have nothing to decay)."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": options.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    beta1, beta2 = options.betas
    return torch.optim.AdamW(groups, lr=options.rate, betas=(beta1, beta2), eps=options.epsilon, fused=True)
