"""Files of params that are divided over a device mesh. Each device writes and reads its part alone,
so no process needs the memory of a whole array."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .. import _core
from ..errors import BackendError, MithrilError
from .dtypes import numpy_dtype
from .foreign import as_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Place", "Process", "Processes", "is_divided", "places_in", "save"]

Arrays = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Where an array lies in a file, `offset` in bytes."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def mapped(self, *, write: bool = False) -> NDArray[Any]:
        """The array in the file: parts of it are read or written when they are used."""
        import numpy as np  # noqa: PLC0415

        dtype = np.dtype(numpy_dtype(_core.DType(self.dtype)))
        if 0 in self.shape:
            return np.empty(self.shape, dtype)
        mode: Literal["r", "r+"] = "r+" if write else "r"
        return np.memmap(self.path, dtype, mode, self.offset, self.shape)


def places_in(path: str) -> dict[str, Place]:
    """Where the arrays of a file lie. Errors: `MithrilError` for a file that cannot be read."""
    return {
        name: Place(path, dtype.name, tuple(shape), offset)
        for name, dtype, shape, offset in _core.params_layout(path)
    }


class Process:
    """The only process of a mesh. Meshes of several processes have a class of their own."""

    def first(self, act: Callable[[], T]) -> T:
        """Does this on the first process alone. All processes have its result, or its error."""
        return act()

    def every(self, act: Callable[[], None]) -> None:
        """Does this on every process. An error of one is an error of all."""
        act()

    def parts(self, array: Any) -> Iterator[tuple[Any, NDArray[Any]]]:
        """The parts of an array that this process writes, each with its index in the whole."""
        if is_divided(array):
            for shard in array.addressable_shards:
                if shard.replica_id == 0:
                    yield shard.index, as_numpy(shard.data)
        else:
            yield ..., as_numpy(array)


class Processes(Process, ABC):
    """One of several processes."""

    number: int

    @abstractmethod
    def from_first(self, value: Any) -> Any:
        """The value of the first process, on all processes."""

    @abstractmethod
    def from_all(self, value: Any) -> list[Any]:
        """The values of all processes."""

    def first(self, act: Callable[[], T]) -> T:
        answer: list[Any] = [None, None]
        if self.number == 0:
            try:
                answer[0] = act()
            except MithrilError as error:
                answer[1] = error
            except Exception as error:
                answer[1] = BackendError(f"process 0 failed\n  got: {error!r}")
        answer = self.from_first(answer)
        if answer[1] is not None:
            raise answer[1]
        return answer[0]  # type: ignore[no-any-return]

    def every(self, act: Callable[[], None]) -> None:
        error = None
        try:
            act()
        except Exception as own:
            error = f"a process could not write its part\n  got: process {self.number}: {own}"
        found = next((text for text in self.from_all(error) if text), None)
        if found:
            raise BackendError(found)


def is_divided(array: Any) -> bool:
    """Whether an array of JAX or PyTorch lies on a device mesh."""
    if hasattr(array, "placements"):
        return True
    return hasattr(array, "addressable_shards") and len(array.sharding.device_set) > 1


def save(path: str, arrays: Arrays, process: Process) -> None:
    """Writes arrays to a file, on each process its own parts. On failure the previous file is
    unchanged.

    Errors: `MithrilError` for a file that cannot be written; `UsageError` for what is not an array.
    """
    temporary, offsets = process.first(lambda: _core.begin_params(path, dict(arrays)))
    named = dict(zip(arrays, offsets))

    def write() -> None:
        for name, array in arrays.items():
            dtype, shape = _core.DType(array.dtype).name, tuple(array.shape)
            parts = list(process.parts(array))
            if parts:
                whole = Place(temporary, dtype, shape, named[name]).mapped(write=True)
                for index, part in parts:
                    whole[index] = part

    written = False
    try:
        process.every(write)
        written = True
    finally:
        process.first(lambda: _core.end_params(temporary, path, keep=written))
