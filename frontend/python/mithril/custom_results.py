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
    expected = [(result, dtype.name, _admitted(backend, dtype.name)) for result, dtype in results]
    if not all(dtypes for _, _, dtypes in expected):
        return function

    @functools.wraps(function)
    def call(*operands: Any) -> Any:
        found = function(*operands)
        several = len(expected) > 1 and isinstance(found, (tuple, list))
        for (result, stated, dtypes), value in zip(expected, found if several else [found]):
            own = getattr(value, "dtype", dtypes[0])
            if own not in dtypes:
                raise _wrong(backend, name, result, own, stated)
        return found

    return call


def _admitted(backend: Backend, dtype: str) -> tuple[Any, ...]:
    """The framework's dtypes for a declared one; none if the framework has none. Without 64-bit
    types, JAX has 32 bits in their place, until another backend turns them on."""
    samples = backend.samples
    if dtype in samples:
        return (samples[dtype].dtype,)
    narrow = samples.get(dtype.replace("64", "32"))
    return () if backend.wide or narrow is None else (narrow.dtype, backend.own_dtype(dtype))


def _wrong(backend: Backend, name: str, result: str, got: object, expected: str) -> ShapeError:
    try:
        shown = _core.DType(got).name
    except ValueError:
        shown = str(got)
    return ShapeError(
        "Incompatible dtypes: a custom operation did not return the declared dtype"
        f"\n  where: the body of `{name}` for {backend.kind}"
        f"\n  got: {shown} for `{result}`\n  expected: {expected}"
        f"\n  hint: cast `{result}` to {expected} in the body"
    )
