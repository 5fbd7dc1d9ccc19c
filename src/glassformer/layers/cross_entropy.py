"""The loss over the vocabulary, without ever holding all its logits."""

from typing import Any

import torch
from torch import Tensor

from glassformer.layers.products import add_products, multiply

CHUNK = 512  # positions at a time: (512, V) stays near the cache, where (4096, V) would be fresh memory page by page
TINY = 1e-30  # well above the p that single precision begins to lose digits of, 1e-38


class _LinearCrossEntropy(torch.autograd.Function):
    """Computes the gradient along with the loss, chunk by chunk, since d loss / d logits = softmax − target."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        n, vocabulary = states.size(0), weight.size(0)
        grad_states = torch.empty_like(states)
        grad_weight = weight.new_zeros(weight.shape)  # its rows one after another, whatever the order of W
        loss, plain = states.new_zeros(()), states.new_zeros(())
        mean = weight.mean(0)  # the mean of a row of logits is its state · this
        for start in range(0, n, CHUNK):
            h, y = states[start : start + CHUNK], targets[start : start + CHUNK].unsqueeze(1)
            chunk = multiply(h, weight)
            chosen = chunk.gather(1, y)
            torch.softmax(chunk, 1, out=chunk)  # from here on in place: softmax, then its difference from the target
            p = chunk.gather(1, y)
            log_z = chosen - p.log()  # since p = e^(logit − log z)
            lost = (p < TINY).squeeze(1)
            if lost.any():
                log_z[lost] = multiply(h[lost], weight).logsumexp(1, keepdim=True)
            nll = (log_z - chosen).sum()
            plain += nll
            loss += (1 - smoothing) * nll + smoothing * (log_z.sum() - (h @ mean).sum())
            chunk.scatter_add_(1, y, chunk.new_full(y.shape, smoothing - 1))
            grad_states[start : start + CHUNK] = multiply(chunk, weight.t())
            add_products(grad_weight, chunk, h)
            del chunk  # or there would be two while the next one is made
        if smoothing:  # the ε / V that every logit's target has
            grad_states -= smoothing * mean
            grad_weight -= smoothing / vocabulary * states.sum(0)
        ctx.save_for_backward(grad_states, grad_weight)
        return loss, plain

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_states, grad_weight = ctx.saved_tensors
        return grad_states.mul_(grads[0]), grad_weight.mul_(grads[0]), None, None


def linear_cross_entropy(
    states: Tensor, weight: Tensor, targets: Tensor, smoothing: float, *, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sums over N positions of the smoothed loss, which trains, and of −log p(target), which is reported.

    states (N, D), weight (V, D), targets (N), bias (V): logits are states · weightᵀ + bias; the smoothed target is
    (1 − ε) · one-hot + ε / V. Only the first sum carries a gradient.
    """
    if bias is not None:  # a column of the weight, that every state has a 1 for
        states = torch.cat((states, states.new_ones(states.size(0), 1)), 1)
        weight = torch.cat((weight, bias.unsqueeze(1)), 1)
    if torch.is_grad_enabled():
        loss, plain = _LinearCrossEntropy.apply(states, weight, targets, smoothing)
        return loss, plain.detach()
    loss, plain = states.new_zeros(()), states.new_zeros(())
    for h, y in zip(states.split(CHUNK), targets.split(CHUNK), strict=True):
        log_p = (h @ weight.t()).log_softmax(1)
        nll = -log_p.gather(1, y.unsqueeze(1)).sum()
        plain += nll
        loss += (1 - smoothing) * nll - smoothing * log_p.mean(1).sum()
    return loss, plain
