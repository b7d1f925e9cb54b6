"""Saves and loads params, and renames them when the model has changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import TerminalError, UsageError, mapping, shown
from .sources import path_text

if TYPE_CHECKING:
    from .backends.base import Backend

__all__ = ["load_params", "rename", "save_params"]

Arrays = dict[str, Any]


def save_params(path: str | os.PathLike[str], params: Mapping[str, Any]) -> None:
    """Writes params, or other arrays by name, to a safetensors file.

    The arrays may be those of any framework, with any dtype and shape. The file is replaced
    atomically: it is written to a temporary file next to `path` and then moved there.

    Errors: `UsageError` for a value that is not an array; `MithrilError` for a file that cannot be
    written, or for params whose values are not known before the first `evaluate`.
    """
    _core.save_params(path_text(path, "path"), _by_name(params))


def load_params(path: str | os.PathLike[str], backend: Backend | None = None) -> Arrays:
    """Reads the arrays of a safetensors file by name, with their dtypes and shapes.

    With `backend`, they are params as `randomize_params` returns them. Otherwise they are NumPy
    arrays (with the bfloat16 of `ml_dtypes`).

    Errors: `MithrilError` for a file that cannot be read or is not a safetensors file.
    """
    import numpy as np  # noqa: PLC0415

    from .backends.base import Backend  # noqa: PLC0415
    from .backends.dtypes import numpy_dtype  # noqa: PLC0415

    if backend is not None and not isinstance(backend, Backend):
        raise UsageError(
            f"`backend` cannot create arrays\n  got: {shown(backend)}"
            "\n  expected: a backend, such as `ml.NumpyBackend()`, or None for NumPy's"
        )
    arrays = {
        name: np.frombuffer(data, numpy_dtype(dtype)).reshape(shape)
        for name, dtype, shape, data in _core.load_params(path_text(path, "path"))
    }
    if backend is None:
        return arrays
    return {name: backend.as_param(backend.from_numpy(own)) for name, own in arrays.items()}


def rename(params: Mapping[str, Any], own: Sequence[str]) -> Arrays:
    """Renames params from earlier names of a model's params to the current names `own`.

    Errors: `TerminalError` for a name that the model never had.
    """
    given = _by_name(params)
    names = _core.renamed(list(given), list(own))
    known = set(own)
    for name in given:
        if name not in known and name not in names:
            near = _core.did_you_mean(name, list(own))
            raise TerminalError(
                f"Terminal not found: the model has no param `{name}` and never had one"
                f"\n  expected: {', '.join(f'`{n}`' for n in own) or 'none'}"
                + (f"\n  hint: {near}" if near else "")
            )
    return {names.get(name, name): value for name, value in given.items()}


def _by_name(params: object) -> Arrays:
    if params is None:
        raise UsageError("`params` must be a dict of arrays by name\n  got: None", code="E0303")
    return mapping(params, "params", "arrays by name")
