"""The largest numbers of each row, found in less time than by `topk`, which looks at them one by one."""

import torch
from torch import Tensor

PART = 64
ENOUGH = 60_000  # numbers; fewer are found sooner by PyTorch


def largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row of x (B, V), largest first, and where they stand: as x.topk(count).

    The maxima of parts of a row come eight at a time. The `count` largest numbers lie in the `count` parts with the largest
    maxima, or in what is left over at the end of the row. A single one NumPy finds in a tenth of PyTorch's time.
    """
    if count == 1:
        where = torch.from_numpy(x.numpy().argmax(axis=1, keepdims=True))
        return x.gather(1, where), where
    parts = x.size(1) // PART
    if x.numel() < ENOUGH or parts <= count:
        return x.topk(count, dim=1)
    whole = parts * PART
    cut = x[:, :whole].unflatten(1, (parts, PART))
    chosen = cut.amax(2).topk(count, dim=1).indices  # (B, count)
    near = cut.gather(1, chosen.unsqueeze(2).expand(-1, -1, PART)).flatten(1)
    values, at = torch.cat((near, x[:, whole:]), dim=1).topk(count, dim=1)
    part = chosen.gather(1, (at // PART).clamp_(max=count - 1))
    return values, torch.where(at < near.size(1), part * PART + at % PART, at - near.size(1) + whole)
