"""Explains errors that a framework raises during a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .errors import BackendError, MithrilError, ShapeError

if TYPE_CHECKING:
    from . import _core
    from .backends.base import Backend

__all__ = ["raise_explained"]


def raise_explained(
    cause: Exception,
    backend: Backend,
    program: _core.Program,
    params: Mapping[str, Any],
    inputs: Mapping[str, Any],
    *,
    compiled: Callable[[dict[str, list[int]]], object],
) -> None:
    """Raises a Mithril error that explains the framework's error `cause`. If ranks of inputs were
    not known at compile time, the model is compiled again for the shapes of the call, to find the
    block at fault. Returns if no explanation is found.

    Errors: `ShapeError` for results of a custom operation that differ from their declared shapes;
    `MithrilError` for incompatible shapes, with the blocks, terminals and dims, or if memory ran
    out; `BackendError` for an operation that the framework does not have, for a decomposition that
    fails, and for arrays on different devices.
    """
    for error in _chain(cause):
        if getattr(error, "code", None) == ShapeError.code:
            # Generated source checks the results of custom operations.
            raise ShapeError(str(error)) from cause
    if backend.lacks_memory(cause):
        raise MithrilError(f"Out of memory\n  got: {cause}", code="E0506") from cause
    if backend.lacks_operation(cause):
        raise BackendError(
            f"Backend does not support operation of this dtype\n  backend: {backend.kind}"
            f"\n  got: {cause}\n  hint: another dtype, or another backend",
            code="E0501",
        ) from cause
    if type(cause).__name__ in ("LinAlgError", "_LinAlgError"):
        raise BackendError(
            f"{backend.kind} cannot decompose a matrix of this call\n  got: {cause}"
            "\n  expected: a matrix for which its algorithm succeeds; JAX, native code and C "
            "give NaN or infinities for others"
        ) from cause
    if "device-side assert" in str(cause):
        raise BackendError(
            "a kernel stopped on the GPU, most often because of an index out of range"
            f"\n  got: {str(cause).splitlines()[0]}"
            "\n  hint: start Python anew and compile with `checks=True`, which names the input"
        ) from cause
    if "device" in str(cause):
        _raise_misplaced(cause, backend, {**params, **inputs})
    arguments = program.arguments
    if not any(dim.startswith("*") for argument in arguments for dim in argument.dims):
        return
    names = [argument.name for argument in arguments if argument.role == "data"]
    if not all(hasattr(inputs.get(name), "shape") for name in names):
        return
    try:
        compiled({name: list(inputs[name].shape) for name in names})
    except MithrilError as error:
        raise error from cause


def _chain(cause: BaseException | None) -> Iterator[BaseException]:
    """An error and those that caused it: PyTorch's pipelines wrap the errors of a stage."""
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _raise_misplaced(cause: Exception, backend: Backend, arrays: Mapping[str, Any]) -> None:
    """Errors: `BackendError` if the arrays are on different devices, or all of them on another one
    than what the backend adds to them, such as states and the values of other backends."""
    places = {name: str(array.device) for name, array in arrays.items() if hasattr(array, "device")}
    found, home = set(places.values()), backend.home
    is_elsewhere = "devices" in str(cause) and backend.mesh is None and home is not None
    if len(found) < 2 and (not is_elsewhere or found == {str(home)}):
        return
    if backend.device is None and len(found) > 1:
        home = "one device"
    away = {name: place for name, place in places.items() if place != str(home)}
    named = ", ".join(f"`{name}` on {place}" for name, place in sorted(away.items())[:5])
    raise BackendError(
        f"the arrays of a call must lie on one device\n  got: {named}\n  expected: {home}"
        "\n  hint: `backend.receive(x)` moves an array"
    ) from cause
