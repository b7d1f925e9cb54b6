"""Compiled models that run in stages, on the ranks of a device mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _core, cuts
from .deferred import Deferred
from .errors import UsageError, shown
from .pipeline import Pipeline
from .sharding import ShardedModel
from .stage_code import Batch, batch_of, check_whole, pipeline_code
from .stage_plan import Stages, planned

if TYPE_CHECKING:
    from .backends.pipeline_runner import PipelineRunner
    from .stage_types import PipelineCode

__all__ = ["StagedModel", "check_alone"]


def check_alone(**others: object) -> None:
    """Errors: `UsageError` for an option that a model in stages does not take."""
    for name, value in others.items():
        if value:
            raise UsageError(
                f"`{name}` is not for a model in stages\n  got: {name}={shown(value)} and `stages`"
                "\n  hint: leave one of them out"
            )


class StagedModel(ShardedModel):
    """The part of a compiled model that runs it in stages."""

    _model: _core.Snapshot
    _inner: list[str]
    _pipeline: Pipeline | None
    _stages: Stages | None = None

    @property
    def stages(self) -> Stages | None:
        """The stages of `ml.compile(…, stages=…)` with their costs, as a table; None for a model
        that is not cut."""
        return self._stages

    def _staged_runner(self, program: _core.Program) -> PipelineRunner:
        """The runner of the stages. `program` is that of a whole batch."""
        backend: Any = self.backend
        pipeline, mesh = self._pipeline, backend.mesh
        assert pipeline is not None
        ranks = pipeline.ranks(backend)
        check_whole(program)
        batch = batch_of(program, pipeline.batch_axes)
        replicas = mesh.devices // ranks
        count = pipeline.count(batch.size, ranks, replicas)
        costs = _core.sharding(
            program, [(pipeline.axis, 1)], pipeline.machine, None, 0.0, [], [], {}, choose=False
        )
        seconds = {block.path: block.compute for block in costs.blocks}
        groups = self._groups(program.cost({}, {}), seconds, pipeline.stages)
        code = pipeline_code(
            program,
            self._program_of_stages(program, batch, groups, count * replicas),
            batch,
            pipeline,
            axis=mesh.names.index(pipeline.axis),
            microbatches=count,
            parts=count * replicas,
        )
        self._stages = planned(
            pipeline,
            code,
            groups,
            program,
            seconds=seconds,
            mesh=list(zip(mesh.names, mesh.sizes)),
            training=not self._options["inference"],
        )
        return _runner(backend, code)

    def _groups(
        self, costs: _core.Costs, seconds: Mapping[str, float], count: int
    ) -> list[list[str]]:
        """The blocks of each stage: those of the training model, so that its params need not move,
        or else a cut of this model."""
        training: StagedModel | None = getattr(self, "_training", None)
        trained = None if training is None else training._stages
        if trained is not None:
            known = [[p for p in own.blocks if costs.at(p) is not None] for own in trained.stages]
            if all(known):
                return known
        return cuts.balanced(cuts.units(costs, seconds, count), count)

    def _program_of_stages(
        self, program: _core.Program, batch: Batch, groups: Sequence[list[str]], parts: int
    ) -> _core.Program:
        """The program of a microbatch, in a part for each stage. Arrays of a rank are not divided,
        so it has no mesh."""
        backend = self.backend
        shapes = {**self._options["shapes"], **batch.shapes(program, parts)}
        return _core.compile(
            self._model.block,
            backend.kind,
            backend.dtype,
            backend.wide,
            **{**self._options, "shapes": shapes, "watched": self._inner, "layouts": ([], [])},
            others=[(backend.kind, group, None, None, False) for group in groups[1:]],
        )

    def _on_stages(self, params: dict[str, Any], runner: PipelineRunner) -> dict[str, Any]:
        """The params on the ranks of their stages, as far as they are known."""
        own = {n: value for n, value in params.items() if not isinstance(value, Deferred)}
        return {**params, **runner.place(own)}


def _runner(backend: Any, code: PipelineCode) -> PipelineRunner:
    """The runner of a backend that has pipelines."""
    if backend.kind == "jax":
        from .backends.jax_pipeline_runner import JaxPipelineRunner  # noqa: PLC0415

        return JaxPipelineRunner(backend, code)
    from .backends.torch_pipeline_runner import TorchPipelineRunner  # noqa: PLC0415

    return TorchPipelineRunner(backend, code)
