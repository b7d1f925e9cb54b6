"""Writes compiled models as shared libraries for C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import BackendError, UsageError, shown

if TYPE_CHECKING:
    from .backends.base import Backend
    from .placement import Placement

__all__ = ["Library"]


class Library:
    """What a shared library is to contain: its name, its processors and the values of params.

    Errors: `BackendError` for a backend without native code; `UsageError` for values of wrong
    types.
    """

    def __init__(
        self,
        backend: Backend,
        placement: Placement,
        name: str | None,
        cpu: str | Sequence[str] | None,
        params: Mapping[str, Any] | None,
    ) -> None:
        if backend.writes or not placement.is_single:
            raise BackendError(
                f"a library for C needs native code\n  got: {', '.join(placement.names)}"
                "\n  hint: compile for `ml.CpuBackend()`",
                code="E0503",
            )
        if name is not None and not isinstance(name, str):
            raise UsageError(f"`name` must be a string\n  got: {shown(name)}")
        if params is not None and not isinstance(params, Mapping):
            raise UsageError(
                f"`params` must be a dict of params by name\n  got: {shown(params)}", code="E0303"
            )
        self._name = name
        self._values: dict[str, Any] | None = None
        if params is not None:
            self._values = {n: backend.to_numpy(value) for n, value in params.items()}
        if cpu is None:
            cpu = getattr(backend, "cpu", None) or _core.processor()
        processors = cpu.split(",") if isinstance(cpu, str) else cpu
        several = isinstance(processors, list | tuple) and len(processors) > 0
        if not several or not all(isinstance(processor, str) for processor in processors):
            raise UsageError(
                f"`cpu` is not a processor or a list of them\n  got: {shown(cpu)}"
                '\n  expected: "native", "x86-64-v3", ["v3", "v4"] or similar'
            )
        self._processors = list(processors)

    def write(self, native: _core.Native, folder: str) -> dict[str, Path]:
        """Writes the files to a folder. Returns their paths by what they are."""
        paths = native.export(folder, self._name, self._processors, self._values)
        return {what: Path(path) for what, path in paths.items()}
