"""Calls of a model in stages, the same for every backend with pipelines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..stage_types import PipelineCode
    from .base import Backend

__all__ = ["PipelineRunner"]

Arrays = dict[str, Any]


class PipelineRunner(ABC):
    """Calls a pipeline. Outputs lie on the whole mesh, divided along the batch by the axes other
    than that of the stages. Gradients lie as their params do."""

    report: tuple[str, ...] = ()

    def __init__(self, backend: Backend, code: PipelineCode) -> None:
        self._backend: Any = backend
        self._code = code

    @property
    def code(self) -> str:
        """The source of all stages."""
        return self._code.source

    @abstractmethod
    def place(self, params: Arrays) -> Arrays:
        """Arrays of the whole mesh on the ranks of their stages alone."""

    @abstractmethod
    def _outputs(self, params: Arrays, inputs: Arrays) -> Arrays:
        """The outputs. `inputs` are divided along the batch."""

    @abstractmethod
    def _outputs_and_gradients(
        self, params: Arrays, inputs: Arrays, seeds: Arrays
    ) -> tuple[Arrays, Arrays]:
        """The outputs, and the gradients by param. `seeds` are divided as the outputs."""

    @abstractmethod
    def _is_placed(self, array: Any) -> bool:
        """Whether an input lies on the mesh, so that it stays as it is."""

    def _params(self, params: Arrays) -> Arrays:
        """The params that the pipeline reads."""
        return {name: params[name] for name in self._code.params}

    def forward(self, params: Arrays, inputs: Arrays, state: Arrays | None = None) -> Any:
        """The outputs. The model has no state."""
        return self._outputs(self._params(params), self._batches(inputs, self._code.inputs))

    def gradients(self, params: Arrays, inputs: Arrays, state: Any, seeds: Any) -> Any:
        """Returns outputs, gradients by param, and None for the next state. Output gradients that
        are functions of the outputs take a forward pass of their own."""
        own = self._params(params), self._batches(inputs, self._code.inputs)
        given = seeds.arrays
        if seeds.total is not None:
            given = {seeds.total: self._one(seeds.total)}
        elif given is None:
            given = seeds.of(self._outputs(*own))
        types, numbers = self._code.types, self._code.outputs
        given = {name: value for name, value in given.items() if types[numbers[name][0]].learned}
        return *self._outputs_and_gradients(*own, self._batches(given, numbers)), None

    def _one(self, output: str) -> Any:
        kind = self._code.types[self._code.outputs[output][0]]
        return self._backend.ones(*kind.shape, dtype=kind.dtype)

    def _batches(self, arrays: Arrays, axes: Mapping[str, tuple[int, int | None]]) -> Arrays:
        """The arrays on the mesh, divided along their batch axes."""
        return {name: self._batch(array, axes[name][1]) for name, array in arrays.items()}

    def _batch(self, array: Any, axis: int | None) -> Any:
        if self._is_placed(array):
            return array
        mesh = self._backend.mesh
        others = [at for at in range(len(mesh.names)) if at != self._code.axis]
        split = {mesh.names[at]: axis for at in others} if axis is not None else {}
        return self._backend.shard(array, tensor_split=split)
