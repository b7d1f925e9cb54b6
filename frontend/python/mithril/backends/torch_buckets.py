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
    """The arrays, of which those that are sums over mesh axes, and are to be replicated over these
    as the arrays of the same names in `places` are, are added up. Several of a dtype make one
    bucket: a collective takes a time that does not depend on its bytes, which they share."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for name, value in arrays.items():
        axes = _summed(value, places[name])
        if axes:
            found.setdefault((axes, value.dtype), []).append(name)
    reduced = dict(arrays)
    for (axes, _), names in found.items():
        for bucket in _buckets(arrays, names):
            mesh = arrays[bucket[0]].device_mesh
            locals_ = [arrays[name].to_local() for name in bucket]
            flat = torch.cat([local.reshape(-1) for local in locals_])
            for axis in axes:
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


def _summed(value: DTensor, like: DTensor) -> tuple[int, ...]:
    """The mesh axes over which the array is a sum and the other one is not divided; none if they
    differ in another way, or for an array that fills a bucket."""
    pairs = list(enumerate(zip(value.placements, like.placements)))
    differ = [(axis, own, other) for axis, (own, other) in pairs if own != other]
    fits = all(
        isinstance(own, Partial) and own.reduce_op == "sum" and isinstance(other, Replicate)
        for _, own, other in differ
    )
    is_small = value.numel() * value.element_size() < BYTES and value.is_contiguous()
    return tuple(axis for axis, *_ in differ) if fits and is_small else ()


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
