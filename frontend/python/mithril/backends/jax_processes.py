"""JAX in several processes, on one host or many: each runs the same script, and has some of the
devices (`jax.distributed.initialize`)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import BackendError
from .parts_of_files import Process, Processes, is_divided

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .meshes import Mesh

__all__ = ["check_devices", "process_of", "shared_seed", "whole"]


class JaxProcesses(Processes):
    """The processes of JAX."""

    def __init__(self, jax: Any) -> None:
        self.number = jax.process_index()

    def from_first(self, value: Any) -> Any:
        return pickle.loads(_from_first(_pickled(value)).tobytes())

    def from_all(self, value: Any) -> list[Any]:
        from jax.experimental.multihost_utils import process_allgather  # noqa: PLC0415

        own = _pickled(value)
        sizes = process_allgather(own.size)
        padded = process_allgather(_padded(own, int(sizes.max())))
        return [pickle.loads(row[:size].tobytes()) for row, size in zip(padded, sizes)]

    def parts(self, array: Any) -> Iterator[tuple[Any, NDArray[Any]]]:
        if is_divided(array) or self.number == 0:
            yield from super().parts(array)


def process_of() -> Process:
    """What writes files of arrays of JAX."""
    import jax  # noqa: PLC0415

    return JaxProcesses(jax) if jax.process_count() > 1 else Process()


def check_devices(jax: Any, mesh: Mesh, devices: list[Any]) -> None:
    """Errors: `BackendError` for a mesh without devices of some process."""
    of_mesh = {device.process_index for device in devices}
    missing = sorted(set(range(jax.process_count())) - of_mesh)
    if missing:
        raise BackendError(
            f"the mesh {mesh} has no device of some processes of JAX"
            f"\n  got: {len(devices)} devices, none of process {missing[0]}"
            f"\n  expected: all {jax.device_count()} devices"
        )


def whole(array: Any) -> Any:
    """The array; one of NumPy if its parts lie in several processes, which all ask for it."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return array
    from jax.experimental.multihost_utils import process_allgather  # noqa: PLC0415

    return process_allgather(array, tiled=True)


def shared_seed() -> int:
    """A seed of the operating system of the first process, on all processes."""
    import numpy as np  # noqa: PLC0415

    return int(_from_first(np.random.default_rng().integers(0, 2**32, 1, np.uint32))[0])


def _pickled(value: Any) -> NDArray[np.uint8]:
    """The pickle of a value."""
    import numpy as np  # noqa: PLC0415

    return np.frombuffer(pickle.dumps(value), np.uint8)


def _from_first(array: NDArray[Any]) -> NDArray[Any]:
    """The array of the first process. Those of others may have other sizes."""
    import numpy as np  # noqa: PLC0415
    from jax.experimental.multihost_utils import broadcast_one_to_all  # noqa: PLC0415

    size = int(broadcast_one_to_all(np.int32(array.size)))
    return np.asarray(broadcast_one_to_all(_padded(array[:size], size)))


def _padded(array: NDArray[Any], size: int) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415

    return np.pad(array, (0, size - array.size))
