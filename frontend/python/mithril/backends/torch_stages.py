"""The stages of a pipeline that this rank runs, as modules of `torch.distributed.pipelining`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from ..stage_types import StageCode, StageFunction, ValueType

__all__ = ["Stage", "schedule_of"]

SINGLE: dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
"""Schedules of one stage a rank."""
SEVERAL: dict[str, Any] = {
    "interleaved": ScheduleInterleaved1F1B,
    "zero-bubble": ScheduleInterleavedZeroBubble,
}
"""Schedules of one or more stages a rank."""


class Stage(torch.nn.Module):
    """Runs the source of a stage on a microbatch. Its parameters are set for each step."""

    def __init__(self, code: StageCode, types: Mapping[int, ValueType]) -> None:
        super().__init__()
        self.code = code
        self._types = types
        self._function = StageFunction(code)
        self.kept: list[tuple[torch.Tensor, ...]] | None = None
        """What the last stage gave for each microbatch; None for other stages."""

    def set_params(self, values: Mapping[int, torch.Tensor]) -> None:
        """Sets the params, which share the memory of these tensors."""
        for number in self.code.params:
            value = values[number].detach()
            own = torch.nn.Parameter(value, requires_grad=value.is_floating_point())
            self.register_parameter(f"p{number}", own)

    def param(self, number: int) -> torch.nn.Parameter:
        found: torch.nn.Parameter = getattr(self, f"p{number}")
        return found

    def forget(self) -> None:
        """Drops the params with their gradients, and the outputs."""
        if self.kept is not None:
            self.kept.clear()
        for number in self.code.params:
            self.register_parameter(f"p{number}", None)

    def forward(self, *taken: torch.Tensor, **inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The values that the stage gives. `inputs` has those of the model that some stage of the
        rank reads, by `i` and their numbers."""
        known: dict[int, torch.Tensor] = dict(zip(self.code.takes, taken))
        for value in taken:
            if value.requires_grad:
                # Gloo sends contiguous tensors alone.
                value.register_hook(_contiguous)  # type: ignore[no-untyped-call]
        known.update((number, inputs[f"i{number}"]) for number in self.code.inputs)
        known.update((number, self.param(number)) for number in self.code.params)
        values = [value.contiguous() for value in self._function(known)]
        given = self._given(values, taken)
        if self.kept is not None:
            self.kept.append(tuple(value.detach() for value in given))
        return given

    def _given(
        self, values: Sequence[torch.Tensor], taken: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """The values as the stage after expects them: those that are said to have a gradient."""
        if not torch.is_grad_enabled():
            return tuple(values)
        learned = [self._types[number].learned for number in self.code.gives]
        own = [value.detach() for value in values]
        at = [place for place, has in enumerate(learned) if has]
        # A value without a gradient is one that the model detached.
        roots = [
            values[place] if values[place].requires_grad else own[place].requires_grad_()
            for place in at
        ]
        for place, value in zip(at, _Joined.apply(len(taken), *taken, *roots)):
            own[place] = value
        return tuple(own)


def _contiguous(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """The gradient; None where nothing reads the value."""
    return None if gradient is None else gradient.contiguous()


class _Joined(torch.autograd.Function):
    """The values that a stage gives, as results of one operation that also reads those it takes.

    PyTorch finds the params whose gradients it computes later by the operations in which they meet
    the inputs of the stage. Here all of them do. The results are neither leaves nor views, which
    PyTorch could not detach in place.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.count = count
        ctx.set_materialize_grads(False)
        return tuple(torch.ops.aten._unsafe_view.default(v, v.shape) for v in values[count:])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None,) * (1 + ctx.count) + gradients


def schedule_of(
    kind: str,
    modules: Sequence[Stage],
    indices: Iterable[int],
    *,
    count: int,
    microbatches: int,
    group: Any,
    loss: Any,
) -> Any:
    """The schedule for the stages of this rank. `count` is the number of stages of all ranks,
    `group` their process group. Without `loss`, it only computes outputs."""
    stages = [
        PipelineStage(
            module,
            index,
            count,
            torch.device("cpu"),
            input_args=_metas(module, module.code.takes),
            output_args=_metas(module, module.code.gives),
            group=group,
            dw_builder=None if _can_split(module, index) else _nothing_later,
        )
        for module, index in zip(modules, indices)
    ]
    options = {"n_microbatches": microbatches, "loss_fn": loss, "scale_grads": False}
    if kind in SINGLE:
        return SINGLE[kind](stages[0], **options)
    return SEVERAL[kind](stages, **options)


def _can_split(module: Stage, index: int) -> bool:
    """Whether gradients of params may be computed after those of inputs. PyTorch would lose them in
    a stage without inputs that have gradients, other than the first one."""
    return index == 0 or any(module._types[number].learned for number in module.code.takes)


def _nothing_later() -> Any:
    """The gradients of params are computed with those of inputs."""
    return lambda: None


def _metas(module: Stage, numbers: Sequence[int]) -> tuple[torch.Tensor, ...]:
    return tuple(_meta(module._types[number]) for number in numbers)


def _meta(kind: ValueType) -> torch.Tensor:
    """A tensor of this type without elements."""
    dtype = getattr(torch, kind.dtype)
    return torch.empty(kind.shape, dtype=dtype, device="meta", requires_grad=kind.learned)
