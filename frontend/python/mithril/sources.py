"""Generated source as running code, and the constants beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import _core

__all__ = ["executed", "write_constants"]


def executed(source: str, name: str, file: str | None = None) -> dict[str, Any]:
    """The names that the source defines; `name` and `file` are what tracebacks and it say."""
    namespace: dict[str, Any] = {"__name__": "mithril_generated", "__file__": file or name}
    exec(compile(source, name, "exec"), namespace)
    if "_constants" in namespace:
        # The arrays have been read: the file need not stay open.
        namespace.pop("_constants").close()
    return namespace


def write_constants(path: Path, constants: list[tuple[str, _core.DType, list[int], bytes]]) -> None:
    """Writes the arrays that the source beside `path` reads."""
    import numpy as np  # noqa: PLC0415

    from .backends.base import numpy_dtype  # noqa: PLC0415

    arrays = {
        name: np.frombuffer(data, dtype=numpy_dtype(dtype)).reshape(shape)
        for name, dtype, shape, data in constants
    }
    np.savez(path, **arrays)  # type: ignore[arg-type]
