"""The check that bodies of custom operations return the declared dtypes.

Generated source itself checks the shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import BackendError, ShapeError
from .sources import namespace

if TYPE_CHECKING:
    from .backends.base import Backend

__all__ = ["checked_namespace"]

Function = Callable[..., Any]

CASTS = {
    "numpy": ".astype(np.{})",
    "jax": ".astype(jnp.{})",
    "mlx": ".astype(mx.{})",
    "torch": ".to(torch.{})",
    "tinygrad": ".cast(dtypes.{})",
}
"""How a body casts a result to a dtype, by backend."""


def checked_namespace(
    backend: Backend,
    program: _core.Program,
    file_path: str | None,
    given: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Runs a program's source and returns its names, as `sources.namespace` does. Functions that
    users wrote check the dtypes of their results.

    Mixed precision chooses the dtypes of results itself, so nothing is checked under it.

    Errors: `BackendError` for a module that the source imports and that cannot be imported.
    """
    try:
        names = namespace(program, file_path, given, backend.written)
    except ImportError as error:
        raise _failed_import(backend, error) from error
    if getattr(backend, "use_amp", False):
        return names
    for name, results in _core.custom_results(program):
        function = names.get(name)
        if isinstance(function, FunctionType):
            names[name] = _checked(backend, function, name, results)
    return names


def _failed_import(backend: Backend, error: ImportError) -> BackendError:
    name = type(backend).__name__
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return BackendError(f"an import of the source for {name} fails\n  got: {error}")
    hint = "" if "." in error.name else f"\n  hint: pip install {error.name}"
    return BackendError(
        f"{name} needs {error.name}, which cannot be imported\n  got: {error}{hint}"
    )


def _checked(
    backend: Backend, function: Function, name: str, results: list[tuple[str, _core.DType]]
) -> Function:
    """The function, which refuses results of other dtypes than declared. The check of shapes
    refuses results that are no arrays, and a wrong number of them."""
    samples = backend.samples
    if not all(dtype.name in samples for _, dtype in results):
        return function
    expected = [(result, dtype.name, samples[dtype.name].dtype) for result, dtype in results]

    @functools.wraps(function)
    def call(*operands: Any) -> Any:
        found = function(*operands)
        several = len(expected) > 1 and isinstance(found, (tuple, list))
        for (result, stated, dtype), value in zip(expected, found if several else [found]):
            own = getattr(value, "dtype", dtype)
            if own != dtype:
                raise _wrong(backend, name, result, own, stated)
        return found

    return call


def _wrong(backend: Backend, name: str, result: str, got: object, expected: str) -> ShapeError:
    try:
        shown = _core.DType(got).name
    except ValueError:
        shown = str(got)
    cast = CASTS.get(backend.kind, "")
    way = f": `{result}{cast.format(expected)}`" if cast else ""
    return ShapeError(
        "Incompatible dtypes: a custom operation did not return the declared dtype"
        f"\n  where: the body of `{name}` for {backend.kind}"
        f"\n  got: {shown} for `{result}`\n  expected: {expected}"
        f"\n  hint: cast it in the body{way}"
    )
