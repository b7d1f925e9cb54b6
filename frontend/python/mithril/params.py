"""Saves and loads params, and renames them when the model has changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import ShapeError, TerminalError, UsageError, mapping, shown
from .sources import path_text

if TYPE_CHECKING:
    from .backends.base import Backend
    from .backends.meshes import TensorSplit
    from .stage_plan import Stages

__all__ = ["load_params", "rename", "save_params"]

Arrays = dict[str, Any]


def save_params(path: str | os.PathLike[str], params: Mapping[str, Any]) -> None:
    """Writes params, or other arrays by name, to a safetensors file.

    The arrays may be those of any framework, with any dtype and shape. The file is replaced
    atomically: it is written to a temporary file next to `path` and then moved there. Arrays that
    are divided over a device mesh are written part by part: each process writes those that it has.
    The file is the same as if they were whole.

    Errors: `UsageError` for a value that is not an array; `MithrilError` for a file that cannot be
    written, or for params whose values are not known before the first `evaluate`.
    """
    from .backends.parts_of_files import is_divided, save  # noqa: PLC0415

    own, arrays = path_text(path, "path"), _by_name(params)
    divided = next((array for array in arrays.values() if is_divided(array)), None)
    if divided is None:
        _core.save_params(own, arrays)
    elif hasattr(divided, "placements"):
        from .backends.torch_files import save_on_ranks  # noqa: PLC0415

        save_on_ranks(own, arrays, divided)
    else:
        from .backends.jax_processes import process_of  # noqa: PLC0415

        save(own, arrays, process_of())


def load_params(
    path: str | os.PathLike[str],
    backend: Backend | None = None,
    *,
    shardings: Mapping[str, TensorSplit] | Stages | None = None,
) -> Arrays:
    """Reads the arrays of a safetensors file by name, with their dtypes and shapes.

    With `backend`, they are params as `randomize_params` returns them. Otherwise they are NumPy
    arrays (with the bfloat16 of `ml_dtypes`).

    `shardings` divides them over the backend's device mesh: a `tensor_split` by name, where `*`
    stands for any part of a name, or what `propose_shardings` returned. Each process then reads its
    own parts alone. The file may come from a mesh of any size. With the `stages` of a compiled
    model, params lie on the ranks of their stages.

    Errors: `MithrilError` for a file that cannot be read or is not a safetensors file; for
    `shardings`, `TerminalError` for a name that is not in the file, `ShapeError` for an axis that
    cannot be divided, and `BackendError` or `UsageError` for a backend without a mesh, or whose
    mesh does not have the ranks of the stages.
    """
    import numpy as np  # noqa: PLC0415

    from .backends.base import Backend  # noqa: PLC0415
    from .backends.dtypes import numpy_dtype  # noqa: PLC0415

    if backend is not None and not isinstance(backend, Backend):
        raise UsageError(
            f"`backend` cannot create arrays\n  got: {shown(backend)}"
            "\n  expected: a backend, such as `ml.NumpyBackend()`, or None for NumPy's"
        )
    if shardings is not None:
        return _divided(path_text(path, "path"), backend, shardings)
    arrays = {
        name: np.frombuffer(data, numpy_dtype(dtype)).reshape(shape)
        for name, dtype, shape, data in _core.load_params(path_text(path, "path"))
    }
    if backend is None:
        return arrays
    return {name: backend.as_param(backend.from_numpy(own)) for name, own in arrays.items()}


def _divided(
    path: str, backend: Backend | None, shardings: Mapping[str, TensorSplit] | Stages
) -> Arrays:
    from .backends.parts_of_files import places_in  # noqa: PLC0415
    from .sharding import splits_for  # noqa: PLC0415
    from .stage_plan import Stages  # noqa: PLC0415

    if backend is None:
        raise UsageError(
            "`shardings` divides params over the device mesh of a backend\n  got: backend=None"
            "\n  hint: give the backend too: `ml.load_params(path, backend, shardings=…)`"
        )
    places = places_in(path)
    if isinstance(shardings, Stages):
        return shardings.read(backend, places)
    # A plan of a whole model has its inputs as well.
    own = mapping(shardings, "shardings", "splits by name")
    if isinstance(shardings, _core.Shardings):
        own = {name: split for name, split in own.items() if name in places}
    splits = splits_for(backend, own, list(places))
    read: Arrays = {}
    for name, place in places.items():
        try:
            read[name] = backend.read(place, splits.get(name, {}))
        except ShapeError as error:
            raise ShapeError(f"`{name}`: {error.args[0]}", code=error.code) from None
    return read


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
