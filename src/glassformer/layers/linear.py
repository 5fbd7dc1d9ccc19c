"""y = x Wᵀ + b."""

from torch import Tensor, nn

from glassformer.layers import by_hand


class Linear(nn.Linear):
    """PyTorch's, which trains faster where it may."""

    def forward(self, x: Tensor) -> Tensor:
        return by_hand.linear(x, self.weight, self.bias) if by_hand.wanted(x) else super().forward(x)
