"""oneDNN's products with weights that are packed once. PyTorch has them for what torch.compile makes, under names of its own;
elsewhere it multiplies with MKL."""

from functools import cache

import torch
from torch import Tensor


def multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b: x (…, K), W (N, K) as `pack` made it, b (N) → (…, N)."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return found


def pack(weight: Tensor) -> Tensor:
    """W in the order in which it is read."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
    return packed


@cache
def there() -> bool:
    """Whether this PyTorch and this processor have them, and nobody has switched them off."""
    x = torch.eye(2)
    try:
        return bool(torch.backends.mkldnn.enabled) and torch.equal(multiply(x, pack(x), x.new_zeros(2)), x)
    except (AttributeError, RuntimeError, TypeError):
        return False
