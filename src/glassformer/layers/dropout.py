"""Dropout whose random numbers cost a sixth of PyTorch's on a processor."""

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Sets a share p of the numbers to 0 and divides the rest by 1 − p, while training.

    One random byte decides for each number (eight come from one draw), so p is rounded to a multiple of 1/256.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.dropped = min(round(p * 256), 255)

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.dropped):
            return x
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self.dropped
        return x * kept.to(x.dtype).mul_(256 / (256 - self.dropped))
