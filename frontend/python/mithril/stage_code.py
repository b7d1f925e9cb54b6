"""Compiles a model in stages: a part of generated source for each, on microbatches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from . import _core
from .errors import BackendError, ShapeError, TerminalError, UsageError
from .stage_types import PartCode, PipelineCode, StageCode, ValueType

if TYPE_CHECKING:
    from .pipeline import Pipeline

__all__ = ["Batch", "batch_of", "check_whole", "pipeline_code"]


class Batch(NamedTuple):
    """How a batch is divided."""

    size: int
    axes: dict[str, int | None]
    """The batch axes of the inputs, by name."""

    def shapes(self, program: _core.Program, parts: int) -> dict[str, list[int]]:
        """The shapes of the inputs of one of `parts` microbatches."""
        shapes = {a.name: list(a.shape or ()) for a in program.arguments if a.name in self.axes}
        for name, axis in self.axes.items():
            if axis is not None:
                shapes[name][axis] //= parts
        return shapes


def check_whole(program: _core.Program) -> None:
    """Errors: `UsageError` for a program with states; `ShapeError` for a size that is not known."""
    states = [a.name for a in program.arguments if a.role == "state"]
    if states:
        raise UsageError(
            "a model with states does not run in stages, as microbatches would share them"
            f"\n  got: the state `{states[0]}`"
            "\n  hint: layers such as `LayerNorm` have none; neither does `inference=True`"
        )
    wrong = [a for a in program.arguments if a.shape is None]
    if program.is_open or wrong:
        known = wrong[0].dims if wrong else None
        got = f"`{wrong[0].name}` of shape {known}" if wrong else "a model without shapes"
        raise ShapeError(
            "stages need the sizes of all inputs and params"
            f'\n  got: {got}\n  hint: give `shapes=` with numbers: {{"input": [64, 32]}}'
        )


def batch_of(program: _core.Program, given: Mapping[str, int | None]) -> Batch:
    """The batch of a program, and the batch axes of its inputs.

    Errors: `TerminalError` for an input that the program does not have; `ShapeError` for an axis
    that an input does not have, for inputs whose batches differ, or without a batch.
    """
    inputs = {a.name: list(a.shape or ()) for a in program.arguments if a.role == "data"}
    for name, axis in given.items():
        if name not in inputs:
            near = _core.did_you_mean(name, list(inputs))
            raise TerminalError(
                f"Terminal not found: `batch_axes` names `{name}`, which is no input"
                f"\n  expected: {', '.join(f'`{own}`' for own in inputs)}"
                + (f"\n  hint: {near}" if near else "")
            )
        if axis is not None and not 0 <= axis < len(inputs[name]):
            raise ShapeError(
                f"`{name}` does not have the axis that `batch_axes` gives"
                f"\n  got: axis {axis} of shape {inputs[name]}"
            )
    axes = {name: given.get(name, 0 if shape else None) for name, shape in inputs.items()}
    sizes = {name: inputs[name][axis] for name, axis in axes.items() if axis is not None}
    if not sizes:
        raise ShapeError("no input has a batch to divide\n  hint: `batch_axes` names the axes")
    size = next((sizes[name] for name in given if name in sizes), next(iter(sizes.values())))
    for name, own in sizes.items():
        if own != size and name in given:
            raise ShapeError(
                "the inputs of `batch_axes` have different batches"
                f"\n  got: {own} for `{name}`\n  expected: {size}"
            )
        if own != size:
            axes[name] = None
    return Batch(size, axes)


def _output_axes(whole: _core.Program, part: _core.Program, parts: int) -> dict[str, int | None]:
    """The batch axes of the outputs: where they are longer for the whole batch than for one of
    `parts` microbatches; with one microbatch, the first axis. None for a mean or a sum.

    Errors: `BackendError` for an output that is neither.
    """
    axes: dict[str, int | None] = {}
    for one, other in zip(whole.results, part.results):
        if parts == 1 and one.dims:
            axes[one.name] = 0
            continue
        differ = [axis for axis, (size, own) in enumerate(zip(one.dims, other.dims)) if size != own]
        even = all(one.dims[axis] == str(int(other.dims[axis]) * parts) for axis in differ)
        if len(differ) > 1 or not even or not (differ or one.dtype.is_float):
            raise BackendError(
                f"the output `{one.name}` cannot be made of those of microbatches"
                f"\n  got: {one.dtype.name}{one.dims} of a batch, {other.dims} of a microbatch"
                "\n  expected: one axis along the batch, or floats that are a mean or a sum over it"
                f'\n  hint: `discard_keys=["{one.name}"]`'
            )
        axes[one.name] = differ[0] if differ else None
    return axes


def pipeline_code(
    whole: _core.Program,
    program: _core.Program,
    batch: Batch,
    pipeline: Pipeline,
    *,
    axis: int,
    microbatches: int,
    parts: int,
) -> PipelineCode:
    """The stages of `program`, which is divided into parts by stage and compiled for a microbatch.
    `whole` is the same model for a whole batch, of `parts` microbatches.

    Errors: `BackendError` for values of unknown sizes between stages, and for outputs that cannot
    be made of those of microbatches.
    """
    arguments = {a.name: (at, a) for at, a in enumerate(program.arguments)}
    values = _Values(program, pipeline.stages)
    outcomes = zip(program.results, values.results)
    axes = _output_axes(whole, program, parts)
    return PipelineCode(
        axis=axis,
        schedule=pipeline.schedule,
        reduction=pipeline.reduction,
        microbatches=microbatches,
        stages=values.stages(),
        types=values.types,
        params={n: at for n, (at, a) in arguments.items() if a.role == "param"},
        inputs={
            n: (at, batch.axes.get(n)) for n, (at, a) in arguments.items() if a.role != "param"
        },
        keys=frozenset(n for n, (_, a) in arguments.items() if a.role == "key"),
        outputs={result.name: (value, axes[result.name]) for result, value in outcomes},
    )


class _Whole(NamedTuple):
    """A program that is not divided, as its only part."""

    program: _core.Program
    reads: Sequence[int]
    writes: Sequence[int]
    place: int = 0


class _Values:
    """The numbered values of a program, and the stages that write and read them."""

    def __init__(self, program: _core.Program, stages: int) -> None:
        self._program = program
        self._arguments = len(program.arguments)
        self._count = stages
        self.results: Sequence[int] = program.result_values
        """The numbers of the outputs."""
        parts: Sequence[_core.Part | _Whole] = program.parts([True] * stages)
        if stages == 1:
            self.results = range(self._arguments, self._arguments + len(program.results))
            parts = [_Whole(program, range(self._arguments), self.results)]
        self._parts: list[list[_core.Part | _Whole]] = [[] for _ in range(stages)]
        self.types: dict[int, ValueType] = {}
        self._written: dict[int, int] = {}
        """The stage that writes each value."""
        self._read: dict[int, int] = dict.fromkeys(self.results, stages - 1)
        """The last stage that reads each value."""
        learned = {at for at, a in enumerate(program.arguments) if a.role == "param"}
        for at, own in enumerate(program.arguments):
            is_learned = at in learned and own.dtype.is_float
            self.types[at] = ValueType(tuple(own.shape or ()), own.dtype.name, is_learned)
        for part in parts:
            # Operations outside of blocks may read values of stages after the first.
            place = max(part.place, *(self._written.get(value, 0) for value in part.reads), 0)
            self._parts[place].append(part)
            self._read.update((v, max(self._read.get(v, 0), place)) for v in part.reads)
            self._written.update(dict.fromkeys(part.writes, place))
            depends = not learned.isdisjoint(part.reads)
            learned.update(part.writes if depends else ())
            for result, value in zip(part.program.results, part.writes):
                is_learned = depends and result.dtype.is_float
                self.types[value] = ValueType(_sizes(result), result.dtype.name, is_learned)

    def stages(self) -> tuple[StageCode, ...]:
        """The code of each stage."""
        codes = []
        takes: tuple[int, ...] = ()
        outputs = tuple(dict.fromkeys(self.results))
        for at, parts in enumerate(self._parts):
            crossing = (v for v, of in self._written.items() if of <= at < self._read.get(v, -1))
            last = at == self._count - 1
            gives = outputs if last else tuple(sorted(crossing))
            read = {value for part in parts for value in part.reads if value < self._arguments}
            if last:
                read |= {value for value in outputs if value < self._arguments}
            roles = {value: self._program.arguments[value].role for value in sorted(read)}
            codes.append(
                StageCode(
                    parts=tuple(map(_part_code, parts)),
                    params=tuple(value for value, role in roles.items() if role == "param"),
                    inputs=tuple(value for value, role in roles.items() if role != "param"),
                    takes=takes,
                    gives=gives,
                )
            )
            takes = gives
        return tuple(codes)


def _sizes(result: _core.Outcome) -> tuple[int, ...]:
    """The shape of a value. Errors: `BackendError` if it depends on elements of arrays."""
    if not all(dim.isdigit() for dim in result.dims):
        raise BackendError(
            "a stage gives a value whose size is not known"
            f"\n  got: `{result.name}` of shape {result.dims}"
        )
    return tuple(map(int, result.dims))


def _part_code(part: _core.Part | _Whole) -> PartCode:
    program = part.program
    arguments = list(zip(program.arguments, part.reads))
    constants = [(name, dtype.name, shape, data) for name, dtype, shape, data in program.constants]
    return PartCode(
        name=program.name,
        source=program.source,
        constants=tuple(constants),
        params=tuple((a.name, value) for a, value in arguments if a.role == "param"),
        inputs=tuple((a.name, value) for a, value in arguments if a.role != "param"),
        results=tuple((r.name, value) for r, value in zip(program.results, part.writes)),
    )
