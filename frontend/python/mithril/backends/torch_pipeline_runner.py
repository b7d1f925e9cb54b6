"""Calls of a model in stages on every rank of a device mesh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import finalize

from . import torch_pipeline
from .pipeline_runner import PipelineRunner

if TYPE_CHECKING:
    from ..stage_types import PipelineCode
    from .torch_arrays import TorchArrays

__all__ = ["TorchPipelineRunner"]

Arrays = dict[str, Any]


class TorchPipelineRunner(PipelineRunner):
    """Calls a pipeline on every rank."""

    def __init__(self, backend: TorchArrays, code: PipelineCode) -> None:
        super().__init__(backend, code)
        self._ranks = ranks = backend.ranks
        number = ranks.program_number()
        self._pipeline = ranks.call(torch_pipeline.load_pipeline, number, backend.device_mesh, code)
        finalize(self, ranks.drop, "programs", number)

    def place(self, params: Arrays) -> Arrays:
        """Arrays of the whole mesh on the ranks of their stages alone."""
        found: Arrays = self._ranks.call(torch_pipeline.on_stage, self._pipeline, params)
        return found

    def _outputs(self, params: Arrays, inputs: Arrays) -> Arrays:
        call = torch_pipeline.pipeline_forward
        found: Arrays = self._ranks.call(call, self._pipeline, params, inputs)
        return found

    def _outputs_and_gradients(
        self, params: Arrays, inputs: Arrays, seeds: Arrays
    ) -> tuple[Arrays, Arrays]:
        call = torch_pipeline.pipeline_gradients
        found: tuple[Arrays, Arrays] = self._ranks.call(call, self._pipeline, params, inputs, seeds)
        return found

    def _params(self, params: Arrays) -> Arrays:
        own = super()._params(params)
        return {name: self._backend.on_mesh(value) for name, value in own.items()}

    def _is_placed(self, array: Any) -> bool:
        return bool(getattr(array, "device_mesh", None) == self._backend.device_mesh)
