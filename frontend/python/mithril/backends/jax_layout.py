"""Where the params of a pipeline lie on a JAX mesh: each on the devices of its rank alone.

All devices run one program, so that each has arrays of the same shapes. Params of one shape that
every rank has are the parts of one array. The others of a rank follow each other in a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..stage_types import PipelineCode
from .jax_packs import Pack, Vectors, sizes_of, zeros

__all__ = ["Layout", "Params"]


class Params(NamedTuple):
    """Arrays of all ranks. The first axis of each is divided along the axis of the stages. On a
    device, they are those of its rank."""

    aligned: list[Any]
    vectors: Vectors


class Layout:
    """The place of each param of a pipeline. A param that several ranks read lies with the first
    of them."""

    def __init__(self, code: PipelineCode, ranks: int) -> None:
        self.ranks = ranks
        types = {name: code.types[number] for name, number in code.params.items()}
        shared = [name for name in code.params if len(code.readers(name, ranks)) > 1]
        owned: list[list[str]] = [[] for _ in range(ranks)]
        for name in code.params:
            owned[code.owner(name, ranks)].append(name)
        alike: list[dict[Any, list[str]]] = [{} for _ in range(ranks)]
        for rank, names in enumerate(owned):
            for name in names:
                if types[name].shape and name not in shared:
                    own = types[name].dtype, types[name].shape
                    alike[rank].setdefault(own, []).append(name)
        rows = [list(row) for own in alike[0] for row in zip(*(of.get(own, []) for of in alike))]
        self.aligned = rows
        """The names of the params of each array, by rank."""
        placed = {name for row in rows for name in row}
        self.rest = [[name for name in names if name not in placed] for names in owned]
        """The names of the params in the vectors of each rank."""
        self.types = [types[row[0]] for row in rows]
        self._packs = [Pack(types[name] for name in names) for names in self.rest]
        self.sizes = sizes_of(self._packs)
        self._aligned_at = {code.params[n]: at for at, row in enumerate(rows) for n in row}
        self._packed_at = {
            code.params[name]: (rank, at)
            for rank, names in enumerate(self.rest)
            for at, name in enumerate(names)
        }
        self.shared = {code.params[n]: self._packed_at[code.params[n]][0] for n in shared}
        """The numbers of the params that several ranks read, with the rank that has each."""

    # The params of one rank.

    def array(self, params: Params, number: int) -> Any:
        """A param of the rank that has it."""
        if number in self._aligned_at:
            return params.aligned[self._aligned_at[number]]
        rank, at = self._packed_at[number]
        return self._packs[rank].array(params.vectors, at)

    def added(self, params: Params, number: int, array: Any) -> Params:
        """The params of a rank, with an array added to one of them."""
        if number in self._aligned_at:
            aligned = list(params.aligned)
            aligned[self._aligned_at[number]] += array
            return params._replace(aligned=aligned)
        rank, at = self._packed_at[number]
        return params._replace(vectors=self._packs[rank].added(params.vectors, at, array))

    def zeros(self) -> Params:
        """Zeros in the place of the params of a rank."""
        return Params([jnp.zeros(own.shape, own.dtype) for own in self.types], zeros(self.sizes))

    def gathered(self, rank: int, params: Mapping[str, Any]) -> Params:
        """The params of a rank, of arrays by name."""
        return Params([params[row[rank]] for row in self.aligned], self.vectors(rank, params))

    def vectors(self, rank: int, params: Mapping[str, Any]) -> Vectors:
        """The vectors of a rank."""
        return self._packs[rank].packed([params[name] for name in self.rest[rank]], self.sizes)

    def named(self, rank: int, params: Params) -> dict[str, Any]:
        """The arrays of a rank by name."""
        own = {row[rank]: array for row, array in zip(self.aligned, params.aligned)}
        return {**own, **self.unpacked(rank, params.vectors)}

    def unpacked(self, rank: int, vectors: Vectors) -> dict[str, Any]:
        """The arrays in the vectors of a rank, by name."""
        return dict(zip(self.rest[rank], self._packs[rank].unpacked(vectors)))
