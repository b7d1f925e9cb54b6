"""Gradients that are sums over the ranks of a PyTorch mesh: many are added up by one collective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate

__all__ = ["reduced_in_buckets"]

BYTES = 25 * 2**20
"""The size of a bucket. Larger arrays are reduced by themselves, without a copy."""

Arrays = dict[str, Any]


def reduced_in_buckets(arrays: Arrays, places: Arrays) -> Arrays:
    """The arrays, of which those that are sums over one mesh axis, and are to be replicated over it
    as the arrays of the same names in `places` are, are added up. Several of a dtype make one
    bucket: a collective takes a time that does not depend on its bytes, which they share."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for name, value in arrays.items():
        axis = _summed(value, places[name])
        if axis is not None:
            found.setdefault((axis, value.dtype), []).append(name)
    reduced = dict(arrays)
    for (axis, _), names in found.items():
        for bucket in _buckets(arrays, names):
            mesh = arrays[bucket[0]].device_mesh
            locals_ = [arrays[name].to_local() for name in bucket]
            flat = torch.cat([local.reshape(-1) for local in locals_])
            dist.all_reduce(flat, group=mesh.get_group(axis))
            parts = torch.split(flat, [local.numel() for local in locals_])
            for name, local, part in zip(bucket, locals_, parts):
                own = arrays[name]
                reduced[name] = DTensor.from_local(
                    part.view(local.shape),
                    mesh,
                    places[name].placements,
                    run_check=False,
                    shape=own.shape,
                    stride=own.stride(),
                )
    return reduced


def _summed(value: DTensor, like: DTensor) -> int | None:
    """The only mesh axis over which the array is a sum and the other one is not divided."""
    pairs = list(zip(value.placements, like.placements))
    axes = [axis for axis, (own, other) in enumerate(pairs) if own != other]
    if len(axes) != 1:
        return None
    own, other = pairs[axes[0]]
    is_sum = isinstance(own, Partial) and own.reduce_op == "sum" and isinstance(other, Replicate)
    is_small = value.numel() * value.element_size() < BYTES
    return axes[0] if is_sum and is_small and value.is_contiguous() else None


def _buckets(arrays: Arrays, names: list[str]) -> Iterator[list[str]]:
    """At least two names each, whose arrays have together about as many bytes as a bucket."""
    bucket: list[str] = []
    size = 0
    for name in names:
        bucket.append(name)
        size += arrays[name].numel() * arrays[name].element_size()
        if size >= BYTES:
            yield bucket
            bucket, size = [], 0
    if len(bucket) > 1:
        yield bucket
