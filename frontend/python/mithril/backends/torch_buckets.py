"""Gradients that are sums over the ranks of a PyTorch mesh: they are added up in buckets, while
autograd computes the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate

__all__ = ["Buckets"]

BYTES = 25 * 2**20
"""The size of a bucket on a rank. Its arrays share the part of a collective's time that does not
depend on bytes. A larger bucket would start later."""

Arrays = dict[str, Any]


class Buckets:
    """Takes gradients as they become known, which is in the same order on every rank. Gradients
    that are summed over the same axes and have the same dtype fill a bucket. A full one is reduced
    in the background."""

    def __init__(self, leaves: Mapping[str, DTensor]) -> None:
        """`leaves` are the params, whose gradients are to lie as they do."""
        self._leaves = leaves
        self._open: dict[tuple[Any, ...], dict[str, DTensor]] = {}
        self._sums: list[_Sum] = []

    def add(self, name: str, gradient: DTensor) -> None:
        """Takes the gradient of a leaf. One that is no sum, or moves as well, is left alone."""
        axes = _summed(gradient, self._leaves[name])
        if not axes:
            return
        key = axes, gradient.dtype
        bucket = self._open.setdefault(key, {})
        bucket[name] = gradient
        if sum(own.to_local().nbytes for own in bucket.values()) >= BYTES:
            self._sums.append(_Sum(self._open.pop(key), axes))

    def finish(self) -> Arrays:
        """The sums of the gradients that were taken, by name."""
        self._sums += [_Sum(bucket, axes) for (axes, _), bucket in self._open.items()]
        return {name: value for own in self._sums for name, value in own.results(self._leaves)}


class _Sum:
    """A bucket that is being reduced over its first mesh axis."""

    def __init__(self, bucket: Mapping[str, DTensor], axes: tuple[int, ...]) -> None:
        self._bucket = bucket
        self._axes = axes
        self._mesh = next(iter(bucket.values())).device_mesh
        # A copy: gradients of several params may be one tensor.
        self._flat = torch.cat([own.to_local().detach().reshape(-1) for own in bucket.values()])
        group = self._mesh.get_group(axes[0])
        self._work: Any = dist.all_reduce(self._flat, group=group, async_op=True)

    def results(self, leaves: Mapping[str, DTensor]) -> Iterator[tuple[str, DTensor]]:
        self._work.wait()
        for axis in self._axes[1:]:
            dist.all_reduce(self._flat, group=self._mesh.get_group(axis))
        shapes = [own.to_local().shape for own in self._bucket.values()]
        parts = torch.split(self._flat, [shape.numel() for shape in shapes])
        for (name, own), shape, part in zip(self._bucket.items(), shapes, parts):
            places = leaves[name].placements
            yield (
                name,
                DTensor.from_local(
                    part.view(shape),
                    self._mesh,
                    places,
                    run_check=False,
                    shape=own.shape,
                    stride=torch.empty(own.shape, device="meta").stride(),
                ),
            )


def _summed(value: DTensor, like: DTensor) -> tuple[int, ...]:
    """The mesh axes over which the array is a sum and the other one is not divided; none if they
    differ in another way."""
    pairs = list(enumerate(zip(value.placements, like.placements)))
    differ = [(axis, own, other) for axis, (own, other) in pairs if own != other]
    fits = all(
        isinstance(own, Partial) and own.reduce_op == "sum" and isinstance(other, Replicate)
        for _, own, other in differ
    )
    return tuple(axis for axis, *_ in differ) if fits else ()
