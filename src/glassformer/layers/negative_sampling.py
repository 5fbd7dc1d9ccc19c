"""Telling words that belong together from drawn ones, with the gradient written out."""

from typing import Any

import torch
from torch import Tensor


class _NegativeSampling(torch.autograd.Function):
    """Computes the gradient along with the loss, since d −log σ(x) / dx = −σ(−x)."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, rows: Tensor, weights: Tensor, positives: int) -> Tensor:
        scores = torch.bmm(states, rows.transpose(1, 2))  # (N, C, J)
        scores[:, :, :positives].neg_()  # −yx, where y is 1 for a real word and −1 for a drawn one
        wrong = scores.sigmoid_()  # σ(−yx): how wrong each is
        loss = -(torch.log1p(-wrong.clamp(max=LARGEST)) * weights).sum()
        grad = wrong.mul_(weights)
        grad[:, :, :positives].neg_()
        ctx.save_for_backward(torch.bmm(grad, rows), torch.bmm(grad.transpose(1, 2), states))
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_states, grad_rows = ctx.saved_tensors
        return grad_states.mul_(grads[0]), grad_rows.mul_(grads[0]), None, None


LARGEST = 1 - 2**-23  # of float32 below 1: −log(1 − p) stays finite


def negative_sampling(states: Tensor, rows: Tensor, weights: Tensor, positives: int) -> Tensor:
    """−Σ wᵢⱼ log σ(yⱼ hᵢ · vⱼ), where y is 1 for the first `positives` words and −1 for the others, which were drawn.

    states h (N, C, D), rows v (N, J, D) of the words that each group of C states is held against, weights w (N, C, J).
    """
    loss: Tensor = _NegativeSampling.apply(states, rows, weights, positives)
    return loss
