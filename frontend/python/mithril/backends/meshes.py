"""Device meshes: the devices of a backend in a grid, and how an array is divided over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import index
from typing import Any, Union

from .._core import did_you_mean
from ..errors import BackendError, ShapeError, UsageError, shown

__all__ = ["Mesh", "Sizes", "Split", "TensorSplit", "no_mesh", "no_meshes"]

Sizes = Union["Sequence[int]", "Mapping[str, int]"]
TensorSplit = Union["Sequence[int | None]", "Mapping[str, int | None]"]
Split = tuple["int | None", ...]
"""For each mesh axis the axis of the array that it divides, or None."""

BACKENDS = ("TorchBackend", "JaxBackend")
"""The backends that have device meshes."""


@dataclass(frozen=True)
class Mesh:
    """The axes of a device mesh: their names and sizes, in order."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, given: object) -> Mesh:
        """The mesh that a user describes, by sizes or by names with sizes.

        Errors: `UsageError` if it is not a mesh.
        """
        if isinstance(given, Mapping):
            names, values = list(given), list(given.values())
        elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
            values = list(given)
            names = _numbered(len(values))
        else:
            hint = f"\n  hint: `device_mesh=({given},)`" if isinstance(given, int) else ""
            raise _not_a_mesh(given, hint)
        sizes = [_whole(value) for value in values]
        named = all(isinstance(name, str) and name.isidentifier() for name in names)
        if not sizes or not named or any(size is None or size < 1 for size in sizes):
            raise _not_a_mesh(given)
        return cls(tuple(names), tuple(size for size in sizes if size is not None))

    def __str__(self) -> str:
        """The mesh as a user writes it."""
        if list(self.names) == _numbered(len(self.names)):
            return str(self.sizes)
        return str(dict(zip(self.names, self.sizes)))

    @property
    def devices(self) -> int:
        """The number of devices."""
        return prod(self.sizes)

    def split(
        self,
        shape: Sequence[int],
        device_mesh: object,
        tensor_split: object,
        name: str = "an array",
    ) -> Split:
        """How an array of this shape is divided. Entry i of `tensor_split` is the axis of the array
        that mesh axis i divides, and `device_mesh` has the size of each mesh axis that takes part,
        and 1 for the others. Without `tensor_split`, mesh axis i divides axis i of the array.
        Errors call the array `name`.

        Errors: `UsageError` for something that does not describe a split of this mesh; `ShapeError`
        for an axis that the array does not have, or that cannot be divided evenly.
        """
        axes = self._split_axes(shape, device_mesh, tensor_split, name)
        self._check_even(shape, axes, name)
        return tuple(axis if size > 1 else None for axis, size in zip(axes, self.sizes))

    def padded(
        self, shape: Sequence[int], device_mesh: object, tensor_split: object
    ) -> tuple[int, ...]:
        """The smallest shape of at least this size that the mesh divides evenly.

        Errors: as for `split`, but for axes that cannot be divided evenly.
        """
        axes = self._split_axes(shape, device_mesh, tensor_split)
        parts = [self._parts(axes, axis) for axis in range(len(shape))]
        return tuple(-(-size // own) * own for size, own in zip(shape, parts))

    def _split_axes(
        self,
        shape: Sequence[int],
        device_mesh: object,
        tensor_split: object,
        name: str = "an array",
    ) -> list[Any]:
        """For each mesh axis the axis of the array that it divides, or None."""
        taking_part = self._taking_part(device_mesh)
        if tensor_split is None:
            axes: list[Any] = [i if takes else None for i, takes in enumerate(taking_part)]
        else:
            axes = self._entries("tensor_split", tensor_split, None)
        for i, axis in enumerate(axes):
            if axis is None:
                continue
            axes[i] = self._axis(i, axis, shape, name)
            if not taking_part[i] and self.sizes[i] > 1:
                raise UsageError(
                    f"`tensor_split` divides an array over the mesh axis `{self.names[i]}`, which "
                    "takes no part"
                    f"\n  got: device_mesh={device_mesh}, tensor_split={tensor_split}"
                    f"\n  hint: give `device_mesh` the size {self.sizes[i]} for this mesh axis, or "
                    "`tensor_split` None"
                )
        return axes

    def axes_of(self, given: object, keyword: str) -> dict[str, int]:
        """The mesh axes that a `tensor_split` names, with the axes that they divide.

        Errors: `UsageError` if it is not one of this mesh.
        """
        found: dict[str, int] = {}
        for name, axis in zip(self.names, self._entries(keyword, given, None)):
            number = _whole(axis)
            if number is not None:
                found[name] = number
            elif axis is not None:
                raise self._not_an_axis(keyword, axis, name)
        return found

    def divisors(self, split: Split, axis: int) -> list[str]:
        """The names of the mesh axes that divide an axis of an array."""
        return [name for name, own in zip(self.names, split) if own == axis]

    def _taking_part(self, device_mesh: object) -> list[bool]:
        if device_mesh is None:
            return [True] * len(self.sizes)
        sizes = [_whole(entry) for entry in self._entries("device_mesh", device_mesh, 1)]
        if any(own not in (1, size) for own, size in zip(sizes, self.sizes)):
            raise UsageError(
                "`device_mesh` of an array does not fit the backend's"
                f"\n  got: {shown(device_mesh)}"
                f"\n  expected: for each mesh axis its size or 1, in the mesh {self}"
            )
        return [own != 1 for own in sizes]

    def _entries(self, keyword: str, given: object, missing: object) -> list[Any]:
        """An entry for each mesh axis."""
        if isinstance(given, Mapping):
            for name in given:
                if name not in self.names:
                    near = did_you_mean(str(name), list(self.names))
                    raise UsageError(
                        f"`{keyword}` names an axis that the mesh does not have"
                        f"\n  got: {name!r}"
                        f"\n  expected: {', '.join(f'`{own}`' for own in self.names)}"
                        + (f"\n  hint: {near}" if near else "")
                    )
            return [given.get(name, missing) for name in self.names]
        if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
            raise UsageError(
                f"`{keyword}` must have an entry for each mesh axis\n  got: {shown(given)}"
                "\n  expected: a tuple, or a dict by name of a mesh axis"
                + (f"\n  hint: `{keyword}=({given},)`" if isinstance(given, int) else "")
            )
        if len(given) > len(self.sizes):
            raise UsageError(
                f"`{keyword}` has more entries than the mesh has axes"
                f"\n  got: {shown(given)}\n  expected: at most {len(self.sizes)}, for the mesh "
                f"{self}"
            )
        return [*given, *[missing] * (len(self.sizes) - len(given))]

    @staticmethod
    def _not_an_axis(keyword: str, given: object, name: str) -> UsageError:
        return UsageError(
            f"`{keyword}` has an entry that is not an axis"
            f"\n  got: {shown(given)} for the mesh axis `{name}`\n  expected: integers, or None"
        )

    def _axis(self, of: int, given: object, shape: Sequence[int], name: str) -> int:
        """The axis of an array that a mesh axis divides, as a number of at least 0."""
        axis, rank = _whole(given), len(shape)
        if axis is None:
            raise self._not_an_axis("tensor_split", given, self.names[of])
        if not -rank <= axis < rank:
            span = f"{-rank} to {rank - 1}" if rank else "None, as it has no axis"
            raise ShapeError(
                "the mesh cannot divide an axis that the array does not have"
                f"\n  got: axis {axis} for the mesh axis `{self.names[of]}`, and {name} of shape "
                f"{list(shape)}\n  expected: {span}"
            )
        return axis % rank

    def _parts(self, axes: Sequence[int | None], axis: int) -> int:
        """Into how many parts an axis of an array is divided."""
        return prod(size for own, size in zip(axes, self.sizes) if own == axis)

    def _check_even(self, shape: Sequence[int], axes: Sequence[int | None], name: str) -> None:
        for axis, size in enumerate(shape):
            parts = self._parts(axes, axis)
            if size % parts:
                less = size // parts * parts
                raise ShapeError(
                    "the mesh cannot divide an axis evenly"
                    f"\n  got: axis {axis} of {name} of shape {list(shape)}, for {parts} parts"
                    f"\n  expected: a multiple of {parts}, such as {less or parts}"
                    + (f" or {less + parts}" if less else "")
                    + "\n  hint: `backend.shard(array, …, pad=0)` fills the axis up with zeros"
                )


def _numbered(count: int) -> list[str]:
    """The names of mesh axes that a user did not name."""
    return [f"axis_{i}" for i in range(count)]


def _whole(value: object) -> int | None:
    """The value as an integer; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _not_a_mesh(given: object, hint: str = "") -> UsageError:
    return UsageError(
        f"`device_mesh` is not a mesh\n  got: {shown(given)}"
        '\n  expected: sizes of at least 1, such as (2, 2) or {"data": 2, "model": 2}' + hint
    )


def no_meshes(
    backend: str, device_mesh: object, split: object = None, keyword: str = "tensor_split"
) -> BackendError:
    """The error for a backend that has no device meshes."""
    return BackendError(
        f"{backend} computes on one device\n  got: {_given(device_mesh, split, keyword)}"
        f"\n  hint: device meshes are for {' and '.join(f'`ml.{name}`' for name in BACKENDS)}"
    )


def no_mesh(
    backend: object, device_mesh: object, split: object, keyword: str = "tensor_split"
) -> UsageError:
    """The error for an array that is to be divided by a backend that was made without a mesh."""
    own = "(2,)" if device_mesh is None else shown(device_mesh)
    return UsageError(
        f"{backend!r} has no device mesh to divide an array over"
        f"\n  got: {_given(device_mesh, split, keyword)}"
        f"\n  hint: make the backend with one: `ml.{type(backend).__name__}(device_mesh={own})`"
    )


def _given(device_mesh: object, split: object, keyword: str) -> str:
    given = {"device_mesh": device_mesh, keyword: split}
    return (
        ", ".join(f"{name}={shown(v)}" for name, v in given.items() if v is not None) or "`shard`"
    )
