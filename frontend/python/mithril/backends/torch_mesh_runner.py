"""Calls of generated PyTorch source on every rank of a device mesh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import finalize

from . import torch_ranks

if TYPE_CHECKING:
    from .._core import Program
    from .torch_arrays import TorchArrays

__all__ = ["MeshRunner"]

Arrays = dict[str, Any]


class MeshRunner:
    """Calls a program on every rank. DTensor decides where inner values and outputs lie; gradients
    lie as their params do, and next states as the states before them."""

    def __init__(self, backend: TorchArrays, program: Program) -> None:
        self._backend = backend
        self._ranks = ranks = backend.ranks
        constants = [(name, dtype.name, *rest) for name, dtype, *rest in program.constants]
        number = ranks.program_number()
        keys = tuple(own.name for own in program.arguments if own.role == "key")
        place = number, backend.device_mesh, keys, program.branches
        self._program = ranks.call(torch_ranks.load, place, program.name, program.source, constants)
        self._own_gradients = program.own_gradients
        self._splits: Mapping[str, Any] = {}
        finalize(self, ranks.drop, "programs", number)

    def divide(self, splits: Mapping[str, Any]) -> None:
        """Sets how arrays that do not lie on the mesh are divided, by name."""
        self._splits = splits

    def _on_mesh(self, arrays: Any) -> Any:
        if arrays is None:
            return None
        return {
            name: array if hasattr(array, "placements") else self._divided(name, array)
            for name, array in arrays.items()
        }

    def _divided(self, name: str, array: Any) -> Any:
        """Errors: `ShapeError` for an axis that the mesh cannot divide evenly."""
        split, mesh = self._splits.get(name), self._backend.mesh
        if split and mesh is not None:
            mesh.split(array.shape, None, split, f"`{name}`")
        return self._backend.on_mesh(array, split)

    def forward(self, params: Arrays, inputs: Arrays, state: Arrays | None = None) -> Any:
        own = map(self._on_mesh, (params, inputs, state))
        outputs, following = self._ranks.call(torch_ranks.forward, self._program, *own)
        return outputs if state is None else (outputs, following)

    def gradients(self, params: Any, inputs: Any, state: Any, seeds: Any) -> tuple[Any, Any, Any]:
        """Returns outputs, gradients by param, and the next state, all of them detached."""
        call, own = self._ranks.call, [self._on_mesh(given) for given in (params, inputs, state)]
        if self._own_gradients:
            return self._given_gradients(own, seeds)
        if seeds.arrays is not None:
            given = self._on_mesh(seeds.arrays)
            answer: tuple[Any, Any, Any] = call(torch_ranks.gradients, self._program, *own, given)
            return answer
        leaves, rooted, outputs, following = call(torch_ranks.differentiable, self._program, *own)
        given = self._on_mesh(seeds.of(outputs))
        found = call(torch_ranks.pullback, self._program, leaves, rooted, given, *own[1:])
        return outputs, found, following

    def _given_gradients(self, own: list[Any], seeds: Any) -> tuple[Any, Any, Any]:
        """The same for source that computes the gradients itself."""
        given = seeds.arrays
        if given is None:
            given = seeds.of(self._ranks.call(torch_ranks.forward, self._program, *own)[0])
        found: tuple[Any, Any, Any] = self._ranks.call(
            torch_ranks.joint, self._program, *own, self._on_mesh(given)
        )
        return found
