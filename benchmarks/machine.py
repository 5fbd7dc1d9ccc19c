"""What the machine can do: how many matrix products a second, in float32, by all threads."""

import statistics
import time

import torch

SIZE = 1024


def peak_gflops(rounds: int = 12) -> float:
    """The best tenth of many products of 1024 × 1024 matrices."""
    a, b = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    out = torch.empty(SIZE, SIZE)
    speeds = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(5):
            torch.mm(a, b, out=out)
        speeds.append(5 * 2 * SIZE**3 / (time.perf_counter() - began) / 1e9)
    return round(statistics.quantiles(speeds, n=10)[-1], 1)
