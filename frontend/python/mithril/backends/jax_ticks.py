"""The loop over the ticks of a schedule, on one device of a JAX mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..stage_schedule import BACKWARD, FORWARD, WEIGHTS, Step, Table
from .jax_layout import Params
from .jax_packs import Vectors, read, sizes_of, written, zeros
from .jax_staged_mesh import StagedMesh

__all__ = ["ScheduleArrays", "Ticks"]

KINDS = (FORWARD, BACKWARD, WEIGHTS)

Part = Callable[[Any], Any]
"""A function from the number of a microbatch to its part of an array."""


class StepNumbers(NamedTuple):
    """A step of a rank in numbers. Those that are not there are 0."""

    kind: Any
    """The place of the kind of the action in `KINDS`, or -1 without one."""
    stage: Any
    microbatch: Any
    taken: Any
    kept: Any
    inner: Any
    value: Any
    gradient: Any
    output: Any


class ScheduleArrays:
    """A table of a schedule in arrays of shape (ticks, ranks). Every rank receives arrays and
    writes outputs at every tick; those that nobody reads go to a spare slot after the last one."""

    def __init__(self, table: Table, stages: int, microbatches: int) -> None:
        self.slots = table.slots
        self._last, self._microbatches = stages - 1, microbatches
        rows = [[self._row(step) for step in row] for row in table.steps]
        self.columns = StepNumbers(*np.moveaxis(np.array(rows, np.int32), -1, 0))

    def _row(self, step: Step) -> StepNumbers:
        action, slots = step.action, self.slots
        is_last = action is not None and action.stage == self._last
        return StepNumbers(
            -1 if action is None else KINDS.index(action.kind),
            0 if action is None else action.stage,
            0 if action is None else action.microbatch,
            step.taken or 0,
            step.kept or 0,
            step.inner or 0,
            slots.value if step.value is None else step.value,
            slots.gradient if step.gradient is None else step.gradient,
            action.microbatch if action is not None and is_last else self._microbatches,
        )


class Carry(NamedTuple):
    """What a device keeps from one tick to the next."""

    values: Vectors
    """Values of stages before, in slots."""
    arrived: Vectors
    """Gradients of stages after, in slots."""
    kept: Vectors
    """Inner values of forward passes, in slots."""
    inner: Vectors
    """Inner gradients for those of params, in slots."""
    outputs: dict[int, Any]
    """The outputs of all microbatches by number, on the rank with the last stage."""
    gradients: Params
    """Of the params of this rank."""
    shared: dict[int, Any]
    """The gradients of params of several ranks, by number."""


State = tuple[Carry, Vectors, Vectors]


class Ticks:
    """The ticks of a device, which reads its place in the mesh. `run` sets the results."""

    outputs: dict[int, Any]
    gradients: Params
    shared_gradients: dict[int, Any]

    def __init__(
        self,
        mesh: StagedMesh,
        columns: ScheduleArrays,
        params: Params,
        inputs: Mapping[int, Part],
        seeds: Mapping[int, list[Part]] | None,
    ) -> None:
        """`inputs` and `seeds` have the parts of microbatches by the numbers of inputs and outputs.
        Without `seeds`, there are no gradients."""
        self._mesh = mesh
        self._columns = columns
        self._stages = mesh.stages
        self._given, self._inputs, self._seeds = params, inputs, seeds
        code = mesh.code
        self._keys = {code.inputs[name][0] for name in code.keys}
        self._values = sizes_of(stage.takes for stage in self._stages)
        is_training = seeds is not None
        self._arrived = sizes_of(stage.gradients for stage in self._stages) if is_training else {}
        self._kept = sizes_of(stage.kept for stage in self._stages) if is_training else {}
        self._inner = sizes_of(stage.inner for stage in self._stages) if is_training else {}
        self._shared = {
            number: mesh.of_rank(rank, mesh.layout.array(params, number))
            for number, rank in mesh.layout.shared.items()
        }

    def run(self) -> None:
        """Runs all ticks."""
        place = self._mesh.place()
        rows = StepNumbers(*(jnp.take(jnp.asarray(own), place, 1) for own in self._columns.columns))
        carry, _ = lax.scan(self._tick, self._first(), rows)
        self.outputs = {number: own[:-1] for number, own in carry.outputs.items()}
        self.gradients, self.shared_gradients = carry.gradients, carry.shared

    def _first(self) -> Carry:
        """The carry before the first tick."""
        slots, code = self._columns.slots, self._mesh.code
        is_training = self._seeds is not None
        types = {number: code.types[number] for number in self._stages[-1].code.gives}
        return Carry(
            zeros(self._values, slots.value + 1),
            zeros(self._arrived, slots.gradient + 1),
            zeros(self._kept, slots.kept),
            zeros(self._inner, slots.inner),
            {n: jnp.zeros((code.microbatches + 1, *t.shape), t.dtype) for n, t in types.items()},
            self._mesh.layout.zeros() if is_training else Params([], {}),
            self._shared_zeros() if is_training else {},
        )

    def _tick(self, carry: Carry, row: StepNumbers) -> tuple[Carry, None]:
        ranks, axis = self._mesh.ranks, self._mesh.axis
        ring = [(at, (at + 1) % ranks) for at in range(ranks)]
        back = [(to, at) for at, to in ring]
        actions = {FORWARD: self._forwards}
        if self._seeds is not None:
            actions |= {BACKWARD: self._backwards, WEIGHTS: self._all_weights}
        # All actions have the whole carry: XLA would copy what one reads beside it.
        state = carry, zeros(self._values), zeros(self._arrived)
        for kind, run in actions.items():
            state = _once(row.kind == KINDS.index(kind), partial(run, row), state)
        carry, values, gradients = state
        values = {d: lax.ppermute(own, axis, ring) for d, own in values.items()}
        carry = carry._replace(values=written(carry.values, row.value, values))
        if self._seeds is not None:
            gradients = {d: lax.ppermute(own, axis, back) for d, own in gradients.items()}
            carry = carry._replace(arrived=written(carry.arrived, row.gradient, gradients))
        return carry, None

    # What a tick does to the carry, and to what goes to the ranks after and before.

    def _forwards(self, row: StepNumbers, state: State) -> State:
        carry, _, back = state
        kept, given, values = self._switch(self._forward, row, carry.values)
        update = lax.dynamic_update_index_in_dim
        outputs = {n: update(carry.outputs[n], own, row.output, 0) for n, own in given.items()}
        own = carry._replace(kept=written(carry.kept, row.kept, kept), outputs=outputs)
        return own, values, back

    def _backwards(self, row: StepNumbers, state: State) -> State:
        carry, values, _ = state
        inner, gradients = self._switch(self._backward, row, (carry.kept, carry.arrived))
        return carry._replace(inner=written(carry.inner, row.inner, inner)), values, gradients

    def _all_weights(self, row: StepNumbers, state: State) -> State:
        carry, values, back = state
        found = self._switch(self._weights, row, (carry.kept, carry.inner))
        own = jax.tree_util.tree_map(jnp.add, (carry.gradients, carry.shared), found)
        return carry._replace(gradients=own[0], shared=own[1]), values, back

    def _switch(self, action: Callable[..., Any], row: StepNumbers, read: Any) -> Any:
        """What the stage of this tick makes of what it reads."""
        calls = [partial(action, at, row) for at in range(len(self._stages))]
        return lax.switch(row.stage, calls, read)

    # The actions of a stage. Each returns arrays that are as large for all stages.

    def _forward(self, at: int, row: StepNumbers, values: Vectors) -> tuple[Vectors, Any, Vectors]:
        """What is kept, the outputs, and what goes to the next stage."""
        stage, is_last = self._stages[at], at + 1 == len(self._stages)
        taken = stage.takes.unpacked(read(values, row.taken)) if at else []
        arguments = self._params(at), self._inputs_of(at, row), taken
        kept: Vectors = {}
        if self._seeds is None:
            gives = stage.outputs(*arguments)
        else:
            gives, own = stage.pieces.forward(*arguments)
            kept = stage.kept.packed(own, self._kept)
        if is_last:
            outputs = {n: jnp.asarray(own) for n, own in zip(stage.code.gives, gives)}
            return kept, outputs, zeros(self._values)
        types = [(n, self._mesh.code.types[n]) for n in self._stages[-1].code.gives]
        outputs = {number: jnp.zeros(own.shape, own.dtype) for number, own in types}
        return kept, outputs, stage.gives.packed(gives, self._values)

    def _backward(self, at: int, row: StepNumbers, given: Any) -> tuple[Vectors, Vectors]:
        """What waits for the gradients of params, and what goes to the stage before."""
        stage, (kept, arrived) = self._stages[at], given
        if at + 1 < len(self._stages):
            seeds = self._stages[at + 1].gradients.unpacked(read(arrived, row.taken))
        else:
            seeds = [self._seed(number, row) for number in stage.learned_gives]
        own = stage.kept.unpacked(read(kept, row.kept))
        arguments = self._params(at), self._inputs_of(at, row), own, seeds
        gradients, inner = stage.pieces.backward(*arguments)
        packed = stage.gradients.packed(gradients, self._arrived)
        return stage.inner.packed(inner, self._inner), packed

    def _weights(self, at: int, row: StepNumbers, given: Any) -> tuple[Params, dict[int, Any]]:
        """The gradients of the params of this rank, and of those of several ranks."""
        stage, layout = self._stages[at], self._mesh.layout
        kept = stage.kept.unpacked(read(given[0], row.kept))
        inner = stage.inner.unpacked(read(given[1], row.inner))
        found = stage.pieces.weights(self._params(at), self._inputs_of(at, row), kept, inner)
        gradients = layout.zeros()
        shared = self._shared_zeros()
        for number, own in zip(stage.learned_params, found):
            if number in shared:
                shared[number] = shared[number] + own
            else:
                gradients = layout.added(gradients, number, own)
        return gradients, shared

    def _shared_zeros(self) -> dict[int, Any]:
        learned = {number for stage in self._stages for number in stage.learned_params}
        return {n: jnp.zeros_like(own) for n, own in self._shared.items() if n in learned}

    # Arguments of a stage.

    def _params(self, at: int) -> list[Any]:
        layout, shared = self._mesh.layout, self._shared
        return [
            shared[number] if number in shared else layout.array(self._given, number)
            for number in self._stages[at].code.params
        ]

    def _inputs_of(self, at: int, row: StepNumbers) -> list[Any]:
        found = []
        for number in self._stages[at].code.inputs:
            value = self._inputs[number](row.microbatch)
            found.append(self._key(value, row.microbatch) if number in self._keys else value)
        return found

    def _key(self, key: Any, microbatch: Any) -> Any:
        """A random key for a microbatch: the first one of all has the key that was given."""
        at = microbatch
        for axis in self._mesh.data:
            at = at * self._mesh.mesh.shape[axis] + lax.axis_index(axis)
        return key.at[-1].set(key[-1] ^ (at.astype(key.dtype) * key.dtype.type(0x9E3779B1)))

    def _seed(self, number: int, row: StepNumbers) -> Any:
        """The gradient of an output for a microbatch."""
        assert self._seeds is not None
        own = self._mesh.code.types[number]
        parts = [part(row.microbatch) for part in self._seeds.get(number, [])]
        return sum(parts[1:], parts[0]) if parts else jnp.zeros(own.shape, own.dtype)


def _once(is_now: Any, run: Callable[[Any], Any], state: Any) -> Any:
    """The next state, if it is time for it. A loop of one or no round updates the state in place,
    where XLA copies all of it for a conditional."""

    def body(own: Any) -> Any:
        return False, run(own[1])

    return lax.while_loop(lambda own: own[0], body, (is_now, state))[1]
