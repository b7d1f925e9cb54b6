"""Arrays of different shapes in one vector for each dtype, so that all devices have equal ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import jax.numpy as jnp
from jax import lax

__all__ = ["Pack", "Vectors", "read", "sizes_of", "written", "zeros"]

Vectors = dict[str, Any]
"""Vectors by dtype."""
Sizes = Mapping[str, int]


class Pack:
    """Where each of some arrays lies: one after the other, in the vector of its dtype."""

    def __init__(self, types: Iterable[Any]) -> None:
        """`types` have the shapes and dtypes of the arrays."""
        self.places: list[tuple[str, int, tuple[int, ...]]] = []
        """The dtype, the offset and the shape of each array."""
        self.sizes: dict[str, int] = {}
        for own in types:
            dtype, shape = str(own.dtype), tuple(own.shape)
            offset = self.sizes.get(dtype, 0)
            self.places.append((dtype, offset, shape))
            self.sizes[dtype] = offset + prod(shape)

    def packed(self, arrays: Sequence[Any], sizes: Sizes) -> Vectors:
        """The vectors of these arrays, filled up with zeros to `sizes`."""
        found = {}
        for dtype, size in sizes.items():
            own = [a.reshape(-1) for a, at in zip(arrays, self.places) if at[0] == dtype]
            missing = size - self.sizes.get(dtype, 0)
            rest = [jnp.zeros(missing, dtype)] if missing or not own else []
            found[dtype] = jnp.concatenate([*own, *rest])
        return found

    def unpacked(self, vectors: Vectors) -> list[Any]:
        """The arrays in these vectors."""
        return [self.array(vectors, at) for at in range(len(self.places))]

    def array(self, vectors: Vectors, at: int) -> Any:
        """The array in a place of these vectors."""
        dtype, offset, shape = self.places[at]
        return vectors[dtype][offset : offset + prod(shape)].reshape(shape)

    def added(self, vectors: Vectors, at: int, array: Any) -> Vectors:
        """The vectors, with an array added to that of a place."""
        dtype, offset, shape = self.places[at]
        own = vectors[dtype].at[offset : offset + prod(shape)].add(array.reshape(-1))
        return {**vectors, dtype: own}


def sizes_of(packs: Iterable[Pack]) -> dict[str, int]:
    """The sizes of vectors that have room for any of these packs."""
    found: dict[str, int] = {}
    for pack in packs:
        for dtype, size in pack.sizes.items():
            found[dtype] = max(found.get(dtype, 0), size)
    return found


def zeros(sizes: Sizes, *slots: int) -> Vectors:
    """Vectors of zeros, or slots of them."""
    return {dtype: jnp.zeros((*slots, size), dtype) for dtype, size in sizes.items()}


def read(slots: Vectors, at: Any) -> Vectors:
    """The vectors in a slot."""
    return {d: lax.dynamic_index_in_dim(own, at, 0, keepdims=False) for d, own in slots.items()}


def written(slots: Vectors, at: Any, vectors: Vectors) -> Vectors:
    """The slots, with vectors written to the beginning of one."""
    start = at, jnp.zeros_like(at)
    own = {d: lax.dynamic_update_slice(slots[d], v[None], start) for d, v in vectors.items()}
    return {**slots, **own}
