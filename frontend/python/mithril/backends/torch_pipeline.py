"""Pipelines on the ranks of a PyTorch mesh: each rank runs its stages on microbatches, as a
schedule of `torch.distributed.pipelining` says. Rank 0 sends the calls; see `torch_mesh.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from ..stage_types import PipelineCode
from .torch_buckets import BYTES
from .torch_ranks import HERE, LOCAL_CALLS, STAGE_CALLS, Numbered, stage_mesh
from .torch_stages import Stage, schedule_of

__all__ = ["load_pipeline", "on_stage", "pipeline_forward", "pipeline_gradients"]

Arrays = dict[str, Any]
Tensors = dict[str, torch.Tensor]


class Pipeline(Numbered):
    """A pipeline on this rank."""

    def __init__(self, number: int, mesh: DeviceMesh, code: PipelineCode) -> None:
        group = mesh.get_group(code.axis)
        self.number, self.mesh, self.code = number, mesh, code
        self.group: Any = group
        self.ranks = dist.get_world_size(group)
        self.place = dist.get_rank(group)
        self.data = [axis for axis in range(mesh.ndim) if axis != code.axis]
        self.replicas = mesh.size() // self.ranks
        indices = range(self.place, len(code.stages), self.ranks)
        self.stages = [Stage(code.stages[at], code.types) for at in indices]
        self.last = (len(code.stages) - 1) % self.ranks
        """The place of the rank with the last stage."""
        if self.place == self.last:
            self.stages[-1].kept = []
        common: dict[str, Any] = {"count": len(code.stages), "group": group}
        common["microbatches"] = code.microbatches
        own = code.schedule, self.stages, indices
        self.forward: Any = schedule_of(*own, **common, loss=None)
        self.training: Any = schedule_of(*own, **common, loss=self.loss)
        self.parts = code.microbatches * self.replicas

    def close(self) -> None:
        self.group = self.forward = self.training = None
        self.stages.clear()

    # Arguments.

    def local(self, value: DTensor, axis: int | None) -> torch.Tensor:
        """This rank's part of an array that is divided along the batch over the other axes of the
        mesh."""
        places = [Replicate() if axis is None else Shard(axis)] * self.mesh.ndim
        places[self.code.axis] = Replicate()
        if value.placements != tuple(places):
            value = value.redistribute(self.mesh, places)
        return value.to_local().detach()

    def inputs(self, arrays: Arrays) -> list[Tensors]:
        """The inputs of this rank's stages, by microbatch."""
        read = {number for stage in self.stages for number in stage.code.inputs}
        found: list[Tensors] = [{} for _ in range(self.code.microbatches)]
        for name, (number, axis) in self.code.inputs.items():
            local = self.local(arrays[name], axis)
            if number not in read:
                continue
            for at, part in enumerate(self.split(local, axis)):
                own = self.key(part, at) if name in self.code.keys else part
                found[at][f"i{number}"] = own
        return found

    def split(self, local: torch.Tensor, axis: int | None) -> Sequence[torch.Tensor]:
        """The microbatches of this rank's part of a batch."""
        count = self.code.microbatches
        return [local] * count if axis is None else torch.chunk(local, count, axis)

    def key(self, key: torch.Tensor, microbatch: int) -> torch.Tensor:
        """A random key for a microbatch: the first one of all has the key that was given."""
        at = microbatch
        for axis, place in enumerate(self.mesh.get_coordinate() or ()):
            if axis != self.code.axis:
                at = at * self.mesh.size(axis) + place
        mixed = key.to(torch.int64)
        mixed[-1] ^= at * 0x9E3779B1 % 2**32
        return mixed.to(key.dtype)

    def seeds(self, arrays: Arrays) -> list[Tensors]:
        """The output gradients, by microbatch. An output without a batch passes its gradient to
        each microbatch, or for a mean a part of it."""
        found: list[Tensors] = [{} for _ in range(self.code.microbatches)]
        for name, value in arrays.items():
            axis = self.code.outputs[name][1]
            local = self.local(value, axis)
            is_mean = axis is None and self.code.reduction == "mean"
            local = local / self.parts if is_mean else local
            for own, part in zip(found, self.split(local, axis)):
                own[name] = part
        return found

    def loss(self, outputs: Any, seeds: Tensors) -> torch.Tensor:
        """A sum whose gradients by the outputs are `seeds`."""
        numbers = self.stages[-1].code.gives
        total: Any = 0
        for name, seed in seeds.items():
            value = outputs[numbers.index(self.code.outputs[name][0])]
            if value.requires_grad:
                total = total + (value * seed).sum()
        return total  # type: ignore[no-any-return]

    def owner(self, name: str) -> int:
        """The place of the ranks on which `randomize_params` puts a param."""
        return self.code.owner(name, self.ranks)

    def holder(self, name: str, array: DTensor) -> int:
        """The place of the ranks that have a param and take its gradient."""
        if array.device_mesh == self.mesh:
            return self.owner(name)
        first = array.device_mesh.mesh.flatten()[0]
        return int((self.mesh.mesh == first).nonzero()[0, self.code.axis])

    def take_params(self, arrays: Arrays) -> None:
        """Sets the params of this rank's stages. Those that other ranks hold are sent."""
        taken: dict[int, torch.Tensor] = {}
        waiting: list[Any] = []
        for name, number in self.code.params.items():
            array = arrays[name]
            local = replicated(array)
            readers = self.code.readers(name, self.ranks)
            holder = self.holder(name, array)
            if self.place == holder or array.device_mesh == self.mesh:
                taken[number] = local
            elif self.place in readers:
                taken[number] = torch.empty(array.shape, dtype=array.dtype)
                waiting.append(self.receive(taken[number], holder))
            if self.place == holder and array.device_mesh != self.mesh:
                local = local.contiguous()
                waiting += [self.send(local, other) for other in readers if other != holder]
        for work in waiting:
            work.wait()
        for stage in self.stages:
            stage.set_params(taken)

    def send(self, value: torch.Tensor, to: int) -> Any:
        return dist.isend(value, dist.get_global_rank(self.group, to), group=self.group)

    def receive(self, value: torch.Tensor, of: int) -> Any:
        return dist.irecv(value, dist.get_global_rank(self.group, of), group=self.group)

    # Results.

    def outputs(self) -> Arrays:
        """The outputs of all microbatches on the whole mesh."""
        found = {}
        for name, (number, axis) in self.code.outputs.items():
            value = self.output(number, axis)
            self.spread(value, self.last)
            places: list[Any] = [Replicate()] * self.mesh.ndim
            for own in self.data:
                if axis is not None:
                    places[own] = Shard(axis)
                else:
                    dist.all_reduce(value, group=self.mesh.get_group(own))
            is_mean = axis is None and self.code.reduction == "mean"
            value = value / self.replicas if is_mean else value
            found[name] = DTensor.from_local(value, self.mesh, places, run_check=False)
        return found

    def output(self, number: int, axis: int | None) -> torch.Tensor:
        """An output of this rank's replica of the pipeline; without its elements on ranks that do
        not have the last stage."""
        kept = self.stages[-1].kept
        if kept is None:
            kind = self.code.types[number]
            shape = list(kind.shape)
            if axis is not None:
                shape[axis] *= self.code.microbatches
            return torch.empty(shape, dtype=getattr(torch, kind.dtype))
        place = self.stages[-1].code.gives.index(number)
        parts = [own[place] for own in kept]
        if axis is None:
            together = torch.stack(parts)
            return together.mean(0) if self.code.reduction == "mean" else together.sum(0)
        return torch.cat(parts, axis).contiguous()

    def spread(self, value: torch.Tensor, of: int) -> None:
        """Sends a value of one rank to all along the axis."""
        dist.broadcast(value, dist.get_global_rank(self.group, of), group=self.group)

    def gradients(self, arrays: Arrays) -> Arrays:
        """The gradients of the params, which lie as these do."""
        owned: dict[str, torch.Tensor] = {}
        waiting: list[tuple[str, torch.Tensor, Any]] = []
        for name, number in self.code.params.items():
            holder = self.holder(name, arrays[name])
            others = [at for at in self.code.readers(name, self.ranks) if at != holder]
            if self.place == holder:
                owned[name] = self.gradient(number, arrays[name])
                for other in others:
                    value = torch.empty_like(owned[name])
                    waiting.append((name, value, self.receive(value, other)))
            elif self.place in others:
                value = self.gradient(number, arrays[name])
                waiting.append(("", value, self.send(value, holder)))
        for name, value, work in waiting:
            work.wait()
            if name:
                owned[name] += value
        for axis in self.data:
            for bucket in buckets(owned):
                self.add_up(bucket, axis)
        return {name: self.like(owned.get(name), array, name) for name, array in arrays.items()}

    def gradient(self, number: int, like: DTensor) -> torch.Tensor:
        """The gradient of a param by the stages of this rank."""
        total = torch.zeros(like.shape, dtype=like.dtype)
        for stage in self.stages:
            if number in stage.code.params:
                found = stage.param(number).grad
                total = total if found is None else total.add_(found)
        return total

    def forget(self) -> None:
        """Drops what a step has kept."""
        for stage in self.stages:
            stage.forget()

    def add_up(self, bucket: list[torch.Tensor], axis: int) -> None:
        """Adds up gradients over an axis of the mesh, in place."""
        flat = torch.cat([value.reshape(-1) for value in bucket])
        dist.all_reduce(flat, group=self.mesh.get_group(axis))
        parts = torch.split(flat, [value.numel() for value in bucket])
        for value, part in zip(bucket, parts):
            value.copy_(part.view(value.shape))

    def like(self, value: torch.Tensor | None, array: DTensor, name: str) -> DTensor:
        """A gradient of the owner's, divided as its param."""
        mesh = array.device_mesh
        if mesh == self.mesh:
            value = torch.empty(array.shape, dtype=array.dtype) if value is None else value
            self.spread(value, self.owner(name))
        made = of_stage(mesh, value, array)
        if made.placements == array.placements:
            return made
        return made.redistribute(mesh, array.placements)


def buckets(arrays: Tensors) -> Iterator[list[torch.Tensor]]:
    """The arrays in groups of one dtype, of about the bytes of a bucket."""
    dtypes = {value.dtype for value in arrays.values()}
    for dtype in sorted(dtypes, key=str):
        group: list[torch.Tensor] = []
        for value in arrays.values():
            if value.dtype == dtype and value.numel():
                group.append(value)
            if sum(own.nbytes for own in group) >= BYTES:
                yield group
                group = []
        if group:
            yield group


def replicated(array: DTensor) -> torch.Tensor:
    """The whole array on the ranks of its mesh."""
    places = (Replicate(),) * array.device_mesh.ndim
    if array.placements != places:
        array = array.redistribute(array.device_mesh, places)
    return array.to_local().detach()


def of_stage(mesh: DeviceMesh, value: torch.Tensor | None, like: DTensor) -> DTensor:
    """An array whose elements the ranks of a mesh have."""
    if mesh.get_coordinate() is None or value is None:
        value = torch.empty(0, dtype=like.dtype)
    return DTensor.from_local(
        value,
        mesh,
        [Replicate()] * mesh.ndim,
        run_check=False,
        shape=like.shape,
        stride=torch.empty(like.shape, device="meta").stride(),
    )


# The functions below are called on every rank.


def load_pipeline(number: int, mesh: DeviceMesh, code: PipelineCode) -> Pipeline:
    """Runs the source of this rank's stages, and makes the meshes of all stages."""
    for place in range(mesh.size(code.axis)):
        stage_mesh(mesh, code.axis, place)
    pipeline = Pipeline(number, mesh, code)
    HERE.programs[number] = pipeline
    return pipeline


def on_stage(pipeline: Pipeline, params: Arrays) -> Arrays:
    """Params that lie on the whole mesh, on the ranks of their stages alone."""
    found = {}
    for name, array in params.items():
        mesh = stage_mesh(pipeline.mesh, pipeline.code.axis, pipeline.owner(name))
        found[name] = of_stage(mesh, replicated(array).clone(), array).requires_grad_(
            array.requires_grad
        )
    return found


def pipeline_forward(pipeline: Pipeline, params: Arrays, inputs: Arrays) -> Arrays:
    """The outputs."""
    with torch.no_grad():
        pipeline.take_params(params)
        own = pipeline.inputs(inputs)
        pipeline.forward.step(kwarg_mbs=own, return_outputs=False)
        outputs = pipeline.outputs()
        pipeline.forget()
        return outputs


def pipeline_gradients(pipeline: Pipeline, params: Arrays, inputs: Arrays, seeds: Arrays) -> Any:
    """The outputs, and the gradients of the params."""
    pipeline.take_params(params)
    own, given = pipeline.inputs(inputs), pipeline.seeds(seeds)
    with torch.set_grad_enabled(bool(seeds)):
        if seeds:
            pipeline.training.step(kwarg_mbs=own, target_mbs=given, return_outputs=False)
        else:  # all gradients are zeros
            pipeline.forward.step(kwarg_mbs=own, return_outputs=False)
    with torch.no_grad():
        answer = pipeline.outputs(), pipeline.gradients(params)
        pipeline.forget()
        return answer


STAGE_CALLS.update((pipeline_forward, pipeline_gradients))
LOCAL_CALLS.update((load_pipeline, on_stage, *STAGE_CALLS))
