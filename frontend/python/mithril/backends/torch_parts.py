"""Parts of arrays of a mesh, on which a rank computes by itself."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

__all__ = ["Places", "as_dtensor", "kept_parts", "local_part", "whole_array"]

Places = list[Any]
"""The placements of an array, by mesh axis."""


def kept_parts(mesh: Any, array: Any, axes: tuple[int, ...], others: list[Any]) -> Places:
    """The placements of an array of which only these axes stay divided, if the other arrays have
    them as well, with the same sizes."""
    if not isinstance(array, DTensor):
        return [Replicate()] * mesh.ndim

    def is_even(axis: int) -> bool:
        sizes = zip(mesh.shape, array.placements)
        parts = prod(size for size, place in sizes if place == Shard(axis))
        equal = all(other.shape[axis] == array.shape[axis] for other in others)
        return bool(equal and array.shape[axis] % parts == 0)

    kept = [Shard(axis) for axis in axes if is_even(axis)]
    return [place if place in kept else Replicate() for place in array.placements]


def local_part(value: Any, mesh: Any, places: Places) -> Any:
    if not isinstance(value, DTensor):  # a tensor that counts as replicated
        value = as_dtensor(value, mesh, [Replicate()] * mesh.ndim)
    return value.redistribute(mesh, places).to_local()


def whole_array(value: Any, mesh: Any) -> Any:
    return None if value is None else local_part(value, mesh, [Replicate()] * mesh.ndim)


def as_dtensor(value: torch.Tensor, mesh: Any, places: Places) -> DTensor:
    return DTensor.from_local(value, mesh, places, run_check=False)
