"""How fast the processes of a PyTorch mesh compute and talk to each other."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

__all__ = ["speeds"]

SIZE = 512
"""Rows and columns of matrices whose product measures arithmetic."""
LARGE = 1 << 22
"""Elements of arrays that do not fit into the cache."""
SECONDS = 0.3
"""How long each measurement takes."""


def speeds() -> dict[str, float]:
    """Measures on every rank at the same time, and returns what the slowest rank took: operations
    of matrix products (`products`), bytes read and written (`bytes`) and bytes that a rank sends
    (`link`) per nanosecond, and nanoseconds until the first byte arrives (`latency`)."""
    matrix, large, one = torch.rand(SIZE, SIZE), torch.rand(LARGE), torch.rand(1)
    sum_of = torch.empty_like(large)
    product = _fastest(lambda: matrix @ matrix)
    addition = _fastest(lambda: torch.add(large, large, out=sum_of))
    small = _fastest(lambda: dist.all_reduce(one))
    reduced = _fastest(lambda: dist.all_reduce(sum_of))
    # In a ring, each rank sends its part of the array to the next one, twice for each other rank.
    ranks = dist.get_world_size()
    steps = 2 * (ranks - 1)
    return {
        "products": 2 * SIZE**3 / product,
        "bytes": 3 * 4 * LARGE / addition,
        "link": 4 * LARGE * steps / ranks / max(reduced - small, 1.0),
        "latency": small / steps,
    }


def _fastest(run: Callable[[], object]) -> float:
    """The nanoseconds of the fastest call, on the rank on which that takes longest. All ranks make
    the same number of calls."""
    count, times = 3, []
    while True:
        for _ in range(count):
            dist.barrier()
            start = time.perf_counter_ns()
            run()
            times.append(time.perf_counter_ns() - start)
        spent = torch.tensor([float(sum(times))], dtype=torch.float64)
        dist.all_reduce(spent, dist.ReduceOp.MAX)
        if spent.item() > SECONDS * 1e9:
            break
        count *= 2
    least = torch.tensor([float(min(times))], dtype=torch.float64)
    dist.all_reduce(least, dist.ReduceOp.MAX)
    return least.item()
