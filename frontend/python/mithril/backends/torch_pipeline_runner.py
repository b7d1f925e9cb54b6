"""Calls of a model in stages on every rank of a device mesh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import finalize

from . import torch_pipeline

if TYPE_CHECKING:
    from .torch_arrays import TorchArrays

__all__ = ["PipelineRunner"]

Arrays = dict[str, Any]


class PipelineRunner:
    """Calls a pipeline on every rank. Outputs lie on the whole mesh, divided along the batch by the
    axes other than that of the stages. Gradients lie as their params do."""

    def __init__(self, backend: TorchArrays, code: torch_pipeline.PipelineCode) -> None:
        self._backend = backend
        self._ranks = ranks = backend.ranks
        self._code = code
        number = ranks.program_number()
        self._pipeline = ranks.call(torch_pipeline.load_pipeline, number, backend.device_mesh, code)
        finalize(self, ranks.drop, "programs", number)

    @property
    def code(self) -> str:
        """The source of all stages."""
        texts = [
            f"# stage {at}\n\n{part.source}"
            for at, stage in enumerate(self._code.stages)
            for part in stage.parts
        ]
        return "\n".join(texts)

    report: tuple[str, ...] = ()

    def place(self, params: Arrays) -> Arrays:
        """Arrays of the whole mesh on the ranks of their stages alone."""
        found: Arrays = self._ranks.call(torch_pipeline.on_stage, self._pipeline, params)
        return found

    def forward(self, params: Arrays, inputs: Arrays, state: Arrays | None = None) -> Any:
        """The outputs. The model has no state."""
        own = self._params(params), self._batches(inputs, self._code.inputs)
        return self._ranks.call(torch_pipeline.pipeline_forward, self._pipeline, *own)

    def gradients(self, params: Arrays, inputs: Arrays, state: Any, seeds: Any) -> Any:
        """Returns outputs, gradients by param, and None for the next state. Output gradients that
        are functions of the outputs take a forward pass of their own."""
        own = self._params(params), self._batches(inputs, self._code.inputs)
        given = seeds.arrays
        if seeds.total is not None:
            given = {seeds.total: self._one(seeds.total)}
        elif given is None:
            call = torch_pipeline.pipeline_forward
            given = seeds.of(self._ranks.call(call, self._pipeline, *own))
        types, numbers = self._code.types, self._code.outputs
        given = {name: value for name, value in given.items() if types[numbers[name][0]].learned}
        divided = self._batches(given, numbers)
        call_gradients = torch_pipeline.pipeline_gradients
        found = self._ranks.call(call_gradients, self._pipeline, *own, divided)
        return *found, None

    def _one(self, output: str) -> Any:
        kind = self._code.types[self._code.outputs[output][0]]
        return self._backend.ones(*kind.shape, dtype=kind.dtype)

    def _params(self, params: Arrays) -> Arrays:
        return {name: self._backend.on_mesh(params[name]) for name in self._code.params}

    def _batches(self, arrays: Arrays, axes: Mapping[str, tuple[int, int | None]]) -> Arrays:
        """The arrays on the mesh, divided along their batch axes."""
        return {name: self._batch(array, axes[name][1]) for name, array in arrays.items()}

    def _batch(self, array: Any, axis: int | None) -> Any:
        backend = self._backend
        if getattr(array, "device_mesh", None) == backend.device_mesh:
            return array
        mesh = backend.mesh
        assert mesh is not None
        others = [at for at in range(len(mesh.names)) if at != self._code.axis]
        split = {mesh.names[at]: axis for at in others} if axis is not None else {}
        return backend.shard(array, tensor_split=split)
