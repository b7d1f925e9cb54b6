"""Reductions, cumulative sums, segments and statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from .row import BOOL, M, row


def segments(reduce: str, empty: float) -> Callable[..., Any]:
    """The reduced rows of each of four segments, and a number for those without rows."""

    def reduced(x: Any, ids: Any) -> Any:
        rows = x.new_full((4, *x.shape[1:]), empty)
        return rows.scatter_reduce(0, ids[:, None].expand(x.shape), x, reduce, include_self=False)

    return reduced


def quantile(x: Any, q: float) -> Any:
    """torch's quantile over the last axis, with the gradient of the first of equal elements."""
    place = q * (x.shape[-1] - 1)
    ordered = torch.sort(x, dim=-1, stable=True).values
    low, high = ordered[..., math.floor(place)], ordered[..., math.ceil(place)]
    found = low + (high - low) * (place % 1)
    assert torch.allclose(found, torch.quantile(x, q, -1), rtol=1e-12)
    return found


def weighted_density(x: Any, weights: Any) -> Any:
    """The density of numbers from 0 to 1 in a quarter, another one, and a half."""
    bins = torch.bucketize(x, x.new_tensor([0.25, 0.5]), right=True)
    sums = torch.stack([torch.where(bins == i, weights, 0).sum() for i in range(3)])
    # The gradient of the numbers is 0.
    return sums / x.new_tensor([0.25, 0.25, 0.5]) / sums.sum() + 0 * x.sum()


ROWS = {
    "Sum": row(torch.sum),
    "Mean": row(torch.mean),
    "Max": row(torch.amax),
    "Min": row(torch.amin),
    "Prod": row(torch.prod),
    "Variance": row(lambda x: torch.var(x, correction=0)),
    "Std": row(lambda x: torch.std(x, correction=0)),
    "Norm": row(torch.linalg.vector_norm),
    "LogSumExp": row(lambda x: torch.logsumexp(x, tuple(range(x.ndim)))),
    "ArgMax": row(torch.argmax),
    "ArgMin": row(torch.argmin),
    "Any": row(lambda x: torch.any(x, 0), M, dtypes=BOOL, axis=0),
    "All": row(lambda x: torch.all(x, -1), M, dtypes=BOOL, axis=-1),
    "Cumsum": row(lambda x: torch.cumsum(x, -1), M, axis=-1),
    "Cumprod": row(lambda x: torch.cumprod(x, -1), M, axis=-1),
    "LossMean": row(lambda x, y: x.sum() / torch.where(y.sum() == 0, 1.0, y.sum())),
    "SegmentSum": row(segments("sum", 0), M, (3,), num_segments=4),
    "SegmentMean": row(segments("mean", 0), M, (3,), num_segments=4),
    # The maximum of an empty segment is -inf.
    "SegmentMax": row(segments("amax", -torch.inf), M, (3,), num_segments=4).but(twice=False),
    "Quantile": row(lambda x: quantile(x, 0.3), M, q=0.3, axis=-1),
    "Median": row(lambda x: torch.median(x, 0).values, M, axis=0),
    "SearchSorted": row(lambda x, y: torch.searchsorted(y, x), M, (1,)),
    "Bucketize": row(torch.bucketize, M, (1,)),
    "Histogram": row(lambda x: torch.histc(x, 4, 0, 1).long(), M, bins=4, min=0.0, max=1.0),
}
