"""oneDNN's products. PyTorch has them for what torch.compile makes, under names of its own; elsewhere it multiplies with MKL."""

from functools import cache

import torch
from torch import Tensor


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None, f: str = "none") -> Tensor:
    """f(x Wᵀ + b): x (…, K), W (N, K) or what `pack` made of it, b (N) → (…, N); f is "none" or "relu"."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, f, [], "")
    return found


def pack(weight: Tensor) -> Tensor:
    """W in the order in which it is read, which `multiply` else puts it in every time."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
    return packed


@cache
def there() -> bool:
    """Whether this PyTorch and this processor have them, and nobody has switched them off."""
    x = torch.eye(2)
    try:
        found = multiply(x, pack(x), None), multiply(x, x.t(), x.new_zeros(2), "relu")
        return bool(torch.backends.mkldnn.enabled) and all(torch.equal(y, x) for y in found)
    except (AttributeError, RuntimeError, TypeError):
        return False
