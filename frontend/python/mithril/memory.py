"""Checks that params fit into memory before they are allocated."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import MithrilError
from .units import bytes_text

if TYPE_CHECKING:
    from . import _core
    from .backends.base import Backend

__all__ = ["check_memory", "host_memory"]

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The files in which Linux gives the memory limit of a control group."""


@cache
def host_memory() -> int | None:
    """The maximum memory of this process in bytes; None if the system does not tell."""
    found = []
    with suppress(ValueError, OSError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in LIMITS:
        with suppress(ValueError, OSError):
            found.append(int(Path(path).read_text(encoding="ascii")))
    return min(found, default=None)


def check_memory(
    model: str, backend: Backend, params: Sequence[tuple[_core.Argument, Sequence[int]]]
) -> None:
    """Checks that params fit into the memory of the backend's device. `model` is the model's name.
    Errors: `MithrilError` if they do not fit. It names the block of the largest param."""
    available = backend.memory()
    if available is None or not params:
        return
    sizes = [prod(shape) * own.dtype.bits // 8 for own, shape in params]
    total = sum(sizes)
    if total <= available:
        return
    size, (largest, shape) = max(zip(sizes, params, strict=True), key=lambda own: own[0])
    block = largest.name.rpartition(".")[0] or model
    raise MithrilError(
        f"Out of memory: the params of {model} take {bytes_text(total)}"
        f"\n  where: block `{block}`, whose `{largest.name}` is {largest.dtype.name}"
        f"{list(shape)}: {bytes_text(size)}"
        f"\n  expected: at most {bytes_text(available)}, the memory of the device",
        code="E0506",
    )
