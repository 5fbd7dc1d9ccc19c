"""The position-wise feed-forward network."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.layers import by_hand
from glassformer.layers.linear import Linear
from glassformer.trace import tap


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": gelu_tanh,  # as GPT-2 computes it
    "silu": F.silu,  # x · σ(x), also called swish
    "swiglu": F.silu,
}


class FeedForward(nn.Module):
    """FFN(x) = f(x W₁ + b₁) W₂ + b₂, where f is max(0, ·) in the paper (equation 2).

    SwiGLU has a third matrix: (silu(x W₁) ⊙ x W₃) W₂.
    """

    def __init__(self, width: int, inner: int, *, activation: str, bias: bool = True, outputs: int = 0) -> None:
        super().__init__()
        self.w1 = Linear(width, inner, bias)
        self.w2 = Linear(inner, outputs or width, bias)
        self.w3 = Linear(width, inner, bias) if activation == "swiglu" else None
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        if self.activation is F.relu and by_hand.wanted(x):
            return self.w2(by_hand.linear(x, self.w1.weight, self.w1.bias, relu=True))
        act = self.activation(tap(self, "pre", self.w1(x)))
        if self.w3 is not None:
            act = act * tap(self, "gate", self.w3(x))
        return tap(self, "out", self.w2(tap(self, "act", act)))
