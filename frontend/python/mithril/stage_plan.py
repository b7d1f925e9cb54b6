"""The plan of a pipeline: its stages, what they cost, and how long ranks wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import UsageError
from .reports import counted

if TYPE_CHECKING:
    from .backends.base import Backend
    from .backends.parts_of_files import Place
    from .pipeline import Pipeline
    from .stage_types import PipelineCode

__all__ = ["Stage", "Stages", "held_microbatches", "planned"]


@dataclass(frozen=True)
class Stage:
    """A stage of a pipeline. Amounts are those of a microbatch."""

    rank: int
    """The place of its ranks along the axis of the stages."""
    blocks: tuple[str, ...]
    """The paths of its blocks."""
    flops: int
    """Floating-point operations of a forward pass."""
    param_bytes: int
    sent: int
    """Bytes that it sends to the stage after. As many gradients come back."""
    held: int
    """The most bytes of inner values that it keeps at a time for the gradients: those of all
    microbatches that went forward and not yet backward."""
    seconds: float
    """The time of its forward and backward pass."""


@dataclass(frozen=True)
class Stages:
    """The stages of a pipeline, in order, with the predicted time of a step. It prints as a table.

    Stages take their part of the time that `propose_shardings` predicts. Nothing overlaps: a rank
    sends the values and gradients of its stages after each other, and the gradients of its params
    are added up over the replicas at the end.

    `shardings=` of `ml.load_params` takes them, and then each rank reads the params of its stages.
    """

    pipeline: Pipeline
    stages: tuple[Stage, ...]
    ranks: int
    microbatches: int
    replicas: int
    training: bool
    transfer: float
    """Seconds of a step in which the busiest rank sends."""
    owners: Mapping[str, int]
    """For each param the place of its ranks along the axis of the stages."""

    def read(self, backend: Backend, places: Mapping[str, Place]) -> dict[str, Any]:
        """The arrays at these places of a file, each param on the ranks of its stage alone. Other
        arrays lie on the whole mesh.

        Errors: `UsageError` for a backend whose mesh does not have the ranks of the stages.
        """
        axis, mesh = self.pipeline.axis, backend.mesh
        sizes = {} if mesh is None else dict(zip(mesh.names, mesh.sizes))
        if sizes.get(axis) != self.ranks:
            raise UsageError(
                f"the mesh does not have the ranks of the stages\n  got: {backend!r}"
                f"\n  expected: a mesh with {self.ranks} devices along `{axis}`"
            )
        owners = self.owners
        return {
            name: backend.read_on_stage(place, axis, owners[name])
            if name in owners
            else backend.read(place, {})
            for name, place in places.items()
        }

    @property
    def bubble(self) -> float:
        """The part of a step in which a rank waits for others, if all stages take equally long.

        For p ranks with v stages each and m microbatches it is (p - 1) / (v m + p - 1): Huang et
        al., "GPipe" (2019), and Narayanan et al., "Efficient Large-Scale Language Model Training on
        GPU Clusters Using Megatron-LM" (2021), section 2.2. For "zero-bubble" in training it is
        (p - 1) / (3 v m + p - 1), the idle time (p - 1) (F + B - W) of ZB-H1 by Qi et al., "Zero
        Bubble Pipeline Parallelism" (2023), section 2.3, with equal times of the forward pass, the
        gradients of inputs and those of params.
        """
        parts = len(self.stages) // self.ranks * self.microbatches
        if self.pipeline.schedule == "zero-bubble" and self.training:
            parts *= 3
        return (self.ranks - 1) / (parts + self.ranks - 1)

    @property
    def busy(self) -> float:
        """Seconds of a step in which the busiest rank computes."""
        times = [0.0] * self.ranks
        for stage in self.stages:
            times[stage.rank] += stage.seconds * self.microbatches
        return max(times)

    @property
    def step(self) -> float:
        """Seconds of a step."""
        return self.busy / (1 - self.bubble) + self.transfer

    def _table(self) -> tuple[str, str]:
        heads = ["stage", "rank", "blocks", "arithmetic", "params", "sent", "held", "time"]
        rows = [
            [
                str(at),
                str(stage.rank),
                _run(stage.blocks),
                _amount(stage.flops, "flop"),
                _amount(stage.param_bytes, "B"),
                _amount(stage.sent, "B"),
                _amount(stage.held, "B"),
                _amount(stage.seconds, "s"),
            ]
            for at, stage in enumerate(self.stages)
        ]
        return _core.table(heads, [0, 1, 3, 4, 5, 6, 7], rows)

    def __str__(self) -> str:
        own = self.pipeline
        replicas = f" of {self.replicas} replicas" if self.replicas > 1 else ""
        return (
            f"{counted(len(self.stages), 'stage')} on {counted(self.ranks, 'rank')} of "
            f"`{own.axis}`, {counted(self.microbatches, 'microbatch', 'es')}{replicas}, "
            f"schedule `{own.schedule}`\n"
            f"{self.bubble:.1%} bubble, {_amount(self.step, 's')} a step of {own.machine} "
            f"({_amount(self.busy, 's')} compute, {_amount(self.transfer, 's')} transfer)\n"
            f"{self._table()[0]}"
        )

    def _repr_html_(self) -> str:
        return self._table()[1]


def planned(
    pipeline: Pipeline,
    code: PipelineCode,
    cuts: Sequence[Sequence[str]],
    program: _core.Program,
    *,
    seconds: Mapping[str, float],
    mesh: Sequence[tuple[str, int]],
    training: bool,
) -> Stages:
    """The plan of a model that is cut into runs of blocks. `program` is that of a whole batch, and
    `seconds` has the times of its blocks in a step."""
    sizes = dict(mesh)
    ranks = sizes[pipeline.axis]
    replicas = prod(sizes.values()) // ranks
    count = code.microbatches
    parts = count * replicas
    costs = program.cost({}, {})
    held = held_microbatches(pipeline.schedule, ranks, pipeline.stages // ranks, count)
    param_bytes = {
        at: prod(a.shape or ()) * a.dtype.bits // 8 for at, a in enumerate(program.arguments)
    }
    own = []
    for at, (blocks, stage) in enumerate(zip(cuts, code.stages)):
        found = [cost for path in blocks if (cost := costs.at(path)) is not None]
        kept = sum(int(cost.kept) for cost in found) // parts
        sent = sum(code.types[v].nbytes for v in stage.gives) if at + 1 < len(cuts) else 0
        own.append(
            Stage(
                rank=at % ranks,
                blocks=tuple(blocks),
                flops=sum(int(cost.flops) for cost in found) // parts,
                param_bytes=sum(param_bytes[number] for number in stage.params),
                sent=sent,
                held=kept * held[at] if training else 0,
                seconds=sum(seconds.get(path, 0.0) for path in blocks) / parts,
            )
        )
    owners = {name: code.owner(name, ranks) for name in code.params}
    plan = Stages(pipeline, tuple(own), ranks, count, replicas, training, 0.0, owners)
    links = _core.links(list(mesh), pipeline.machine)
    speeds = {name: links[name] for name, size in mesh if size > 1}
    return replace(plan, transfer=_between(plan, speeds) + _over_replicas(plan, speeds, sizes))


def _between(plan: Stages, speeds: Mapping[str, float]) -> float:
    """Seconds in which the busiest rank sends values and gradients between stages."""
    sent = [0.0] * plan.ranks
    for at, stage in enumerate(plan.stages):
        sent[stage.rank] += stage.sent
        sent[(at + 1) % plan.ranks] += stage.sent if plan.training else 0
    return max(sent) * plan.microbatches / speeds.get(plan.pipeline.axis, float("inf"))


def _over_replicas(plan: Stages, speeds: Mapping[str, float], sizes: Mapping[str, int]) -> float:
    """Seconds in which the gradients of params are added up over the other axes of the mesh."""
    params = [0] * plan.ranks
    for stage in plan.stages:
        params[stage.rank] += stage.param_bytes if plan.training else 0
    others = [name for name in speeds if name != plan.pipeline.axis]
    rings = sum(2 * (1 - 1 / sizes[name]) / speeds[name] for name in others)
    return max(params) * rings


def held_microbatches(schedule: str, ranks: int, chunks: int, microbatches: int) -> list[int]:
    """For each stage the most microbatches that went forward and not yet backward, in the order of
    PyTorch's schedules. `chunks` is the number of stages of a rank."""
    if schedule == "gpipe":
        return [microbatches] * ranks
    rounds = microbatches // max(1, microbatches // ranks)
    total = chunks * microbatches
    found = [0] * (chunks * ranks)
    for rank in range(ranks):
        hops = (2 if schedule == "interleaved" else 1) * (ranks - 1 - rank)
        first = min((chunks - 1) * rounds + hops, total)
        # With zero bubble, values are kept until the gradients of params follow.
        delay = rank if schedule == "zero-bubble" else 0
        now = [0] * chunks
        for step in range(total + first + delay):
            if step < total:
                chunk = step // rounds % chunks
                now[chunk] += 1
                at = chunk * ranks + rank
                found[at] = max(found[at], now[chunk])
            if step >= first + delay:
                now[chunks - 1 - (step - first - delay) // rounds % chunks] -= 1
    return found


def _run(blocks: Sequence[str]) -> str:
    """The blocks as text: the first and the last one of a long run."""
    if len(blocks) <= 2:
        return ", ".join(blocks)
    return f"{blocks[0]} … {blocks[-1]}"


def _amount(value: float, unit: str) -> str:
    """A number with three digits and a prefix, such as `1.95 kB`."""
    if value == 0:
        return f"0 {unit}"
    prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ")]
    scale, prefix = next((own for own in prefixes if value >= own[0]), (1e-9, "n"))
    return f"{value / scale:.3g} {prefix}{unit}"
