"""Whether there is memory for params, before any is taken."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import MithrilError
from .units import bytes_text

if TYPE_CHECKING:
    from . import _core
    from .backends.base import Backend

__all__ = ["check_room", "host_memory"]

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says how much memory a group of processes may take."""


def host_memory() -> int | None:
    """The bytes of memory that this process may ever have; None where the system does not say."""
    found = []
    with suppress(ValueError, OSError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in LIMITS:
        with suppress(ValueError, OSError):
            found.append(int(Path(path).read_text(encoding="ascii")))
    return min(found, default=None)


def check_room(
    program: _core.Program, backend: Backend, shapes: Mapping[str, Sequence[int]]
) -> None:
    """Errors: `MithrilError` where arrays of these shapes, by name, take more memory than the
    backend's device has. It names the block of the largest."""
    room = backend.memory()
    if room is None or not shapes:
        return
    dtypes = {argument.name: argument.dtype for argument in program.arguments}
    sizes = {name: prod(shape) * dtypes[name].bits // 8 for name, shape in shapes.items()}
    total = sum(sizes.values())
    if total <= room:
        return
    largest = max(sizes, key=lambda name: sizes[name])
    block = largest.rpartition(".")[0] or program.name
    raise MithrilError(
        f"Out of memory: the params of {program.name} take {bytes_text(total)}"
        f"\n  where: block `{block}`, whose `{largest}` is {dtypes[largest].name}"
        f"{list(shapes[largest])}: {bytes_text(sizes[largest])}"
        f"\n  expected: at most {bytes_text(room)}, the memory of the device"
    )
