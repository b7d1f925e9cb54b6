"""`ml.Pipeline`: how a model is divided into stages, and when they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import _core
from .errors import BackendError, ShapeError, UsageError, mapping, shown
from .reports import counted

if TYPE_CHECKING:
    from .backends.base import Backend
    from .backends.meshes import Mesh

__all__ = ["Pipeline"]

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")
REDUCTIONS = ("mean", "sum")
BACKENDS = {"torch": "TorchBackend", "jax": "JaxBackend"}
"""The kinds and names of the backends that run pipelines."""


@dataclass(frozen=True)
class Pipeline:
    """A model in `stages`, which run on the ranks along the mesh axis `axis`, for `ml.compile(…,
    stages=…)`.

    A batch is divided into `microbatches`, which follow each other through the stages. By default
    there are 4 for each rank of the axis, or 2 or 1 if the batch does not have as many. Other axes
    of the mesh are data parallel: each replica of the pipeline takes a part of the batch.

    `schedule` says in which order a rank computes:

    - `"gpipe"`: all microbatches forward, then all backward (Huang et al. 2019). A rank has one
      stage, and keeps the inner values of all microbatches.
    - `"1f1b"`: one forward, one backward (Narayanan et al. 2019). A rank has one stage, and keeps
      the inner values of as many microbatches as there are stages after it. There are at least as
      many microbatches as stages.
    - `"interleaved"`: the same with several stages a rank (Narayanan et al. 2021): `stages` is a
      multiple of the ranks. Ranks wait less, and send more.
    - `"zero-bubble"`: one or several stages a rank. Gradients of params are computed while a rank
      would wait (ZB1P of Qi et al. 2023).

    `batch_axes` gives inputs the axis that is the batch, by name; None for an input that all
    microbatches take whole. By default it is the first axis of every input that is as long along it
    as the first input.

    `reduction` says what an output without a batch is: `"mean"`, the mean of those of the
    microbatches, as of a loss that is a mean over the batch, or `"sum"`.

    `machine` is the machine whose speeds balance the stages and predict their times, as for
    `propose_shardings`.

    Errors: `UsageError` for a wrong value.
    """

    stages: int
    microbatches: int | None = None
    schedule: str = "1f1b"
    axis: str = "stage"
    batch_axes: Mapping[str, int | None] = field(default_factory=dict)
    reduction: str = "mean"
    machine: str = "cpu-gloo"

    def __post_init__(self) -> None:
        for name in ("stages", "microbatches"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
            if not whole and (name == "stages" or value is not None):
                raise UsageError(
                    f"`{name}` of a pipeline is not a number of {name}\n  got: {shown(value)}"
                    "\n  expected: an integer of at least 1"
                )
        self._check("schedule", SCHEDULES)
        self._check("reduction", REDUCTIONS)
        mapping(self.batch_axes, "batch_axes", "axes by name of an input")

    def _check(self, name: str, allowed: Sequence[str]) -> None:
        value = getattr(self, name)
        if value not in allowed:
            near = _core.did_you_mean(str(value), list(allowed))
            raise UsageError(
                f"there is no {name} `{value}`"
                f"\n  expected: {', '.join(f'`{own}`' for own in allowed)}"
                + (f"\n  hint: {near}" if near else "")
            )

    @classmethod
    def of(cls, given: object) -> Pipeline | None:
        """The pipeline that `stages=` gives. Errors: `UsageError` if it is none."""
        if given is None or isinstance(given, Pipeline):
            return given
        if isinstance(given, int) and not isinstance(given, bool):
            return cls(given)
        raise UsageError(
            f"`stages` is not a pipeline\n  got: {shown(given)}"
            "\n  expected: a number of stages, or `ml.Pipeline(stages=2, microbatches=8)`"
        )

    def ranks(self, backend: Backend) -> int:
        """The ranks along the axis of the stages.

        Errors: `BackendError` for a backend without pipelines; `UsageError` for one without a mesh
        or without this axis, or for stages that the ranks cannot share.
        """
        mesh = self._checked_mesh(backend)
        if self.axis not in mesh.names:
            near = _core.did_you_mean(self.axis, list(mesh.names))
            raise UsageError(
                "the mesh does not have the axis of the pipeline"
                f"\n  got: axis={self.axis!r} and the mesh {mesh}"
                f"\n  expected: {', '.join(f'`{name}`' for name in mesh.names)}"
                f"\n  hint: {near or f'`device_mesh={{{self.axis!r}: {self.stages}}}`'}"
            )
        ranks = mesh.sizes[mesh.names.index(self.axis)]
        several = self.schedule in ("interleaved", "zero-bubble")
        if self.stages != ranks and (not several or self.stages % ranks):
            expected = f"a multiple of {ranks}" if several else str(ranks)
            hint = "" if several else '\n  hint: `schedule="interleaved"` has several stages a rank'
            raise UsageError(
                f"the ranks along `{self.axis}` cannot share the stages"
                f"\n  got: {counted(self.stages, 'stage')} for {counted(ranks, 'rank')}, "
                f"and the schedule `{self.schedule}`\n  expected: {expected}{hint}"
            )
        return ranks

    def _checked_mesh(self, backend: Backend) -> Mesh:
        mesh = f"(device_mesh={{{self.axis!r}: {self.stages}}})"
        if backend.kind not in BACKENDS:
            raise BackendError(
                f"{type(backend).__name__} does not run pipelines\n  got: {backend!r}"
                f"\n  expected: {' or '.join(f'`ml.{own}{mesh}`' for own in BACKENDS.values())}"
            )
        if backend.mesh is None:
            raise UsageError(
                f"{backend!r} has no device mesh for the stages\n  got: stages={self.stages}"
                f"\n  hint: make the backend with one: `ml.{BACKENDS[backend.kind]}{mesh}`"
            )
        return backend.mesh

    def count(self, batch: int, ranks: int, replicas: int) -> int:
        """The number of microbatches of a replica.

        Errors: `ShapeError` if the batch cannot be divided into them; `UsageError` for a number
        that does not fit the schedule.
        """
        count = self.microbatches
        if count is None:
            fits = [n * ranks for n in (4, 2, 1) if batch % (n * ranks * replicas) == 0]
            count = fits[0] if fits else ranks
        parts = count * replicas
        if batch % parts:
            less = batch // parts * parts or parts
            each = f" in each of {replicas} replicas" if replicas > 1 else ""
            times = counted(count, "microbatch", "es") + each
            raise ShapeError(
                "the batch cannot be divided into equal microbatches"
                f"\n  got: a batch of {batch}, for {times}"
                f"\n  expected: a batch that is a multiple of {parts}, such as {less}"
            )
        if self.schedule == "1f1b" and count < self.stages:
            raise UsageError(
                "1F1B needs at least as many microbatches as stages"
                f"\n  got: {counted(count, 'microbatch', 'es')} for {self.stages} stages"
                f'\n  hint: `microbatches={self.stages}`, or `schedule="gpipe"`'
            )
        rounds = max(1, count // ranks)
        if self.schedule in ("interleaved", "zero-bubble") and count % rounds:
            raise UsageError(
                f"the schedule `{self.schedule}` cannot divide the microbatches into equal rounds"
                f"\n  got: {counted(count, 'microbatch', 'es')} for {counted(ranks, 'rank')}"
                f"\n  expected: a multiple of {rounds}, such as {ranks * rounds}"
            )
        return count
