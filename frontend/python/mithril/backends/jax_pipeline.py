"""Pipelines on a JAX mesh: all devices run one program, which goes through the ticks of a schedule.

At each tick a device computes the action that the table has for its rank, and passes values to the
rank after it and gradients to the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from ..stage_schedule import orders, table
from .jax_layout import Params
from .jax_staged_mesh import StagedMesh
from .jax_ticks import ScheduleArrays, Ticks

__all__ = ["Pipeline"]

Arrays = dict[str, Any]


class Pipeline(StagedMesh):
    """A pipeline on a mesh, as functions that `jax.jit` compiles."""

    @cached_property
    def _forward_columns(self) -> ScheduleArrays:
        return self._columns(training=False)

    @cached_property
    def _training_columns(self) -> ScheduleArrays:
        return self._columns(training=True)

    def _columns(self, *, training: bool) -> ScheduleArrays:
        """The table of the schedule."""
        stages, count = len(self.stages), self.code.microbatches
        own = orders(self.code.schedule, self.ranks, stages // self.ranks, count, training=training)
        return ScheduleArrays(table(own), stages, count)

    # Functions for `jax.jit`.

    def outputs(self, params: Params, inputs: Arrays) -> Arrays:
        """The outputs."""
        ticks = partial(self._ticks, self._forward_columns)
        results = self._specs(self.code.outputs, self.axis)
        run = self._on_mesh(lambda *own: self._stacked(ticks(*own)), (inputs,), results)
        return self._of_last(run(params, inputs))

    def gradients(self, params: Params, inputs: Arrays, seeds: Arrays) -> tuple[Arrays, Params]:
        """The outputs, and the gradients of the params."""
        ticks = partial(self._ticks, self._training_columns)

        def local(*own: Any) -> tuple[Arrays, Params]:
            run = ticks(*own)
            return self._stacked(run), self._added_up(run)

        results = self._specs(self.code.outputs, self.axis), PartitionSpec(self.axis)
        run = self._on_mesh(local, (inputs, seeds), results)
        outputs, gradients = run(params, inputs, seeds)
        return self._of_last(outputs), gradients

    def gathered(self, params: Arrays) -> Params:
        """The params of all ranks, of arrays that lie on the whole mesh."""

        def local(params: Arrays) -> Params:
            own = [partial(self.layout.gathered, rank) for rank in range(self.ranks)]
            return lax.switch(self.place(), own, params)  # type: ignore[no-any-return]

        spec = PartitionSpec(self.axis)
        found: Params = self._mapped(local, (PartitionSpec(),), spec)(params)
        return found

    def named(self, params: Params) -> Arrays:
        """The arrays of all ranks by name, on the whole mesh."""

        def local(params: Params) -> Arrays:
            found: Arrays = {}
            for rank in range(self.ranks):
                own = self.layout.named(rank, params)
                found.update((name, self.of_rank(rank, array)) for name, array in own.items())
            return found

        spec = PartitionSpec(self.axis)
        found: Arrays = self._mapped(local, (spec,), PartitionSpec())(params)
        return found

    # The parts of a call.

    def _on_mesh(self, local: Callable[..., Any], arrays: tuple[Any, ...], results: Any) -> Any:
        names = self.code.inputs, self.code.outputs
        given = [{n: own[n] for n in a} for a, own in zip(arrays, names)]
        specs = PartitionSpec(self.axis), *map(self._specs, given)
        return self._mapped(local, specs, results)

    def _mapped(self, local: Callable[..., Any], given: Any, results: Any) -> Callable[..., Any]:
        """The function of all devices, of one that runs on each."""
        options = {"mesh": self.mesh, "in_specs": given, "out_specs": results}
        if hasattr(jax, "shard_map"):
            return jax.shard_map(local, **options, check_vma=False)
        from jax.experimental.shard_map import shard_map  # noqa: PLC0415

        return shard_map(local, **options, check_rep=False)  # type: ignore[no-any-return]

    def _specs(self, axes: Mapping[str, tuple[int, int | None]], *before: Any) -> Arrays:
        """How arrays are divided along their batch axes. `before` has further axes."""
        return {name: self._spec(axis, *before) for name, (_, axis) in axes.items()}

    def _spec(self, axis: int | None, *before: Any) -> PartitionSpec:
        if axis is None or not self.data:
            return PartitionSpec(*before)
        data = self.data if len(self.data) > 1 else self.data[0]
        return PartitionSpec(*before, *[None] * axis, data)

    def _ticks(
        self, columns: ScheduleArrays, params: Params, inputs: Arrays, seeds: Arrays | None = None
    ) -> Ticks:
        """Runs all ticks on this device."""
        own = {
            self.code.inputs[name][0]: self._split(array, self.code.inputs[name][1])
            for name, array in inputs.items()
        }
        ticks = Ticks(self, columns, params, own, None if seeds is None else self._seeds(seeds))
        ticks.run()
        return ticks

    def _split(self, local: Any, axis: int | None) -> Callable[[Any], Any]:
        """A function from the number of a microbatch to its part of this device's batch."""
        if axis is None:
            return lambda _: local
        size = local.shape[axis] // self.code.microbatches
        return lambda at: lax.dynamic_slice_in_dim(local, at * size, size, axis)

    def _seeds(self, arrays: Arrays) -> dict[int, list[Callable[[Any], Any]]]:
        """The output gradients by the numbers of outputs. An output without a batch passes its
        gradient to each microbatch, or for a mean a part of it."""
        found: dict[int, list[Callable[[Any], Any]]] = {}
        for name, value in arrays.items():
            number, axis = self.code.outputs[name]
            is_mean = axis is None and self.code.reduction == "mean"
            parts = self.code.microbatches * self.replicas
            own = self._split(value / parts if is_mean else value, axis)
            found.setdefault(number, []).append(own)
        return found

    def _stacked(self, run: Ticks) -> Arrays:
        """The outputs of this device, with a first axis that is that of the stages."""
        found = {}
        for name, (number, axis) in self.code.outputs.items():
            value = run.outputs[number]
            if axis is not None:
                value = jnp.moveaxis(value, 0, axis)
                shape = value.shape
                shape = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
                value = value.reshape(shape)
            elif self.code.reduction == "mean":
                value = lax.pmean(value.mean(0), self.data)
            else:
                value = lax.psum(value.sum(0), self.data)
            found[name] = value[None]
        return found

    def _of_last(self, stacked: Arrays) -> Arrays:
        """The outputs of the rank with the last stage, on the whole mesh."""
        found = {}
        for name, (_, axis) in self.code.outputs.items():
            value = stacked[name][(len(self.stages) - 1) % self.ranks]
            place = NamedSharding(self.mesh, self._spec(axis))
            found[name] = lax.with_sharding_constraint(value, place)
        return found

    def _added_up(self, run: Ticks) -> Params:
        """The gradients of this rank's params, added up over the replicas."""
        found = run.gradients
        for number, own in run.shared_gradients.items():
            is_here = self.place() == self.layout.shared[number]
            total = jnp.where(is_here, lax.psum(own, self.axis), 0)
            found = self.layout.added(found, number, total)
        summed: Params = jax.tree_util.tree_map(lambda own: lax.psum(own, self.data), found)
        return summed
