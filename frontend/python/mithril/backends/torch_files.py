"""Files of params on the ranks of a PyTorch mesh: each rank writes and reads its own parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from .foreign import as_numpy
from .meshes import Split
from .parts_of_files import Place, Processes, save
from .torch_ranks import from_part, run, stage_mesh

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["read_on_stage", "read_part", "save_on_ranks"]

Arrays = Mapping[str, Any]


class Rank(Processes):
    """One of the processes of a mesh."""

    def __init__(self) -> None:
        self.number = dist.get_rank()

    def from_first(self, value: Any) -> Any:
        answer = [value]
        dist.broadcast_object_list(answer, 0)
        return answer[0]

    def from_all(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
        return values

    def parts(self, array: Any) -> Iterator[tuple[Any, NDArray[Any]]]:
        if not isinstance(array, DTensor):
            if self.number == 0:
                yield ..., as_numpy(array)
            return
        places: list[Any] = [p if type(p) is Shard else Replicate() for p in array.placements]
        if places != list(array.placements):
            array = array.redistribute(array.device_mesh, places)
        mesh = array.device_mesh
        if mesh.get_coordinate() is None:
            return
        # Of ranks with the same part, the first one writes it.
        if all(at == 0 for p, at in zip(places, mesh.get_coordinate() or ()) if p.is_replicate()):
            yield _index(array.shape, mesh, places), as_numpy(array.to_local())


def _index(shape: tuple[int, ...], mesh: DeviceMesh, places: list[Any]) -> tuple[slice, ...]:
    """The index of this rank's part in the whole array."""
    starts, sizes = [0] * len(shape), list(shape)
    for place, parts, at in zip(places, mesh.shape, mesh.get_coordinate() or ()):
        if isinstance(place, Shard):
            # PyTorch divides as `torch.chunk` does: the last parts may be smaller.
            size = -(-sizes[place.dim] // parts)
            start = min(at * size, sizes[place.dim])
            sizes[place.dim] = min(size, sizes[place.dim] - start)
            starts[place.dim] += start
    return tuple(slice(start, start + size) for start, size in zip(starts, sizes))


def save_on_ranks(path: str, arrays: Arrays, divided: DTensor) -> None:
    """Saves arrays, of which `divided` is one on a mesh."""
    held = getattr(divided, "_held", None)
    if held is None:  # every rank runs the user's script
        run(save, path, arrays, Rank())
    else:
        held.ranks.call(_save, path, dict(arrays))


# The functions below are called on every rank.


def _save(path: str, arrays: Arrays) -> None:
    save(path, arrays, Rank())


def read_part(mesh: DeviceMesh, split: Split, place: Place) -> DTensor:
    """An array of a file, of which this rank reads its part."""
    places = [Replicate() if axis is None else Shard(axis) for axis in split]
    return from_part(mesh, split, place.shape, _read(place, _index(place.shape, mesh, places)))


def read_on_stage(mesh: DeviceMesh, axis: int, at: int, place: Place) -> DTensor:
    """An array of a file, which the ranks at one place along a mesh axis read."""
    own = stage_mesh(mesh, axis, at)
    is_here = own.get_coordinate() is not None
    part = _read(place, ...) if is_here else torch.empty(0, dtype=getattr(torch, place.dtype))
    return from_part(own, (None,) * own.ndim, place.shape, part)


def _read(place: Place, index: Any) -> torch.Tensor:
    """A part of an array of a file."""
    import numpy as np  # noqa: PLC0415

    part = np.array(place.mapped()[index], order="C")
    bits = torch.from_numpy(part.reshape(-1).view(np.uint8))
    return bits.view(getattr(torch, place.dtype)).reshape(part.shape)
