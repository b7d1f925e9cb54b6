"""The first values of params and states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from zlib import crc32

from .deferred import Deferred
from .errors import MithrilError, UsageError, shown

if TYPE_CHECKING:
    from . import _core
    from .backends.base import Backend

__all__ = ["params", "state"]

Array = Any


def params(program: _core.Program, backend: Backend, seed: int | None) -> dict[str, Array]:
    """Params by name; those whose shapes are open take their values at the first call.

    Errors: `UsageError` for a seed that is none.
    """
    if seed is None:
        seed = int(backend.generator.integers(2**63))
    elif not isinstance(seed, int) or seed < 0:
        raise UsageError(f"`seed` is an integer of at least 0\n  got: {shown(seed)}")
    drawn: dict[str, Array] = {}
    for argument in program.arguments:
        if argument.role != "param":
            continue
        value = Deferred(argument.name, _drawing(program, backend, argument, seed))
        shape = argument.shape
        drawn[argument.name] = value if shape is None else value.take(tuple(shape))
    return drawn


def state(
    program: _core.Program, backend: Backend, known: Mapping[str, list[int]]
) -> dict[str, Array]:
    """States by name, of the shapes that are known of those that are open.

    Errors: `MithrilError` where one is not known.
    """
    drawn: dict[str, Array] = {}
    for argument in program.arguments:
        if argument.role == "state":
            shape = argument.shape if argument.shape is not None else known.get(argument.name)
            if shape is None:
                raise MithrilError(
                    f"the shape of the state `{argument.name}` is not known"
                    "\n  hint: compile with `shapes=`, or give the inputs"
                )
            drawn[argument.name] = _drawing(program, backend, argument, 0)(tuple(shape))
    return drawn


def _drawing(
    program: _core.Program, backend: Backend, argument: _core.Argument, seed: int
) -> Callable[[tuple[int, ...]], Array]:
    return lambda shape: backend.initial(
        *program.initial(argument.name, list(shape)),
        shape,
        argument.dtype,
        (seed, crc32(argument.name.encode())),
    )
