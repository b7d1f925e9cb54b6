"""Draws the initial values of params and states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from . import _core
from .deferred import Deferred
from .errors import MithrilError, UsageError, mapping, shown
from .memory import check_memory
from .patterns import first_matches

if TYPE_CHECKING:
    import numpy as np

    from .backends.base import Backend

__all__ = ["params", "state"]

Array = Any
Shape = tuple[int, ...]
Init = Any

MAX_ELEMENTS = 1 << 42
"""The maximum number of elements of a param. The compiler has the same limit."""


def params(
    program: _core.Program,
    backend: Backend,
    key: object = None,
    init: Mapping[str, Init] | None = None,
) -> dict[str, Array]:
    """Initial params by name. Params with open shapes are drawn at the first call.

    Errors: `UsageError` for an invalid key; `TerminalError` for a pattern that matches no param;
    `MithrilError` if the params take more memory than there is.
    """
    own = backend.key_words(key)
    seed = int(backend.generator.integers(2**63)) if own is None else _seed(own)
    arguments = {a.name: a for a in program.arguments}
    names = [name for name, argument in arguments.items() if argument.role == "param"]
    chosen = _init_by_param(names, init)
    drawn: dict[str, Array] = {}
    stated = [(arguments[name], arguments[name].shape) for name in names]
    check_memory(program.name, backend, [(own, s) for own, s in stated if s is not None])
    for name in names:
        argument = arguments[name]
        draw = _drawing_function(program, backend, argument, seed, chosen.get(name))
        fan = arguments.get(argument.fan_of or "") if name not in chosen else None
        if fan is not None and argument.derived:
            source = _drawing_function(program, backend, fan, seed, chosen.get(fan.name))
            own_fan = arguments.get(fan.fan_of or "")
            draw = _derived(program, backend, argument, source, own_fan)
        value = Deferred(name, draw, fan.name if fan else None)
        needed = [argument] if fan is None else [argument, fan]
        shapes = {a.name: a.shape for a in needed if a.shape is not None}
        drawn[name] = value.drawn(shapes) if len(shapes) == len(needed) else value
    return drawn


def state(
    program: _core.Program,
    backend: Backend,
    known: Mapping[str, list[int]],
    given: Mapping[str, Array],
) -> dict[str, Array]:
    """Initial states by name. `known` gives the shapes of states whose shapes are open, and `given`
    the arrays from which some states follow.

    Errors: `MithrilError` if a shape is not known.
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
            source = given.get(argument.fan_of or "")
            if argument.derived and source is not None and backend.is_readable(source):
                drawn[argument.name] = _from(program, backend, argument, source, tuple(shape))
            else:
                draw = _drawing_function(program, backend, argument, 0)
                drawn[argument.name] = draw(tuple(shape), None)
    return drawn


def _seed(key: object) -> int:
    """The 64-bit seed of an integer of any size, or of a random key of two 32-bit words.

    Errors: `key` is neither.
    """
    if isinstance(key, int) and not isinstance(key, bool) and key >= 0:
        seed, rest = key % (1 << 64), key >> 64
        while rest:
            # Mix the words, so that different integers seldom give the same seed.
            seed = (seed * 0x9E3779B97F4A7C15 + rest + 1) % (1 << 64)
            rest >>= 64
        return seed
    import numpy as np  # noqa: PLC0415

    if hasattr(key, "shape") and tuple(key.shape) == (2,):
        words = np.asarray(key)
        if words.dtype == np.uint32:
            return int(words[0]) << 32 | int(words[1])
    raise UsageError(
        f"`key` must be an integer of at least 0, or a random key\n  got: {shown(key)}"
        "\n  expected: an integer, or an array of two uint32 numbers"
    )


def _init_by_param(names: list[str], init: Mapping[str, Init] | None) -> dict[str, Init]:
    """The init of each param, from the first pattern that matches it.

    Errors: a pattern that matches no param.
    """
    given = mapping(init, "init", "initial values by patterns of names")
    return first_matches(given, names, "init", ("param", "params"))


def _drawing_function(
    program: _core.Program,
    backend: Backend,
    argument: _core.Argument,
    seed: int,
    init: Init = None,
) -> Callable[[Shape, Shape | None], Array]:
    def draw(shape: Shape, fan_of: Shape | None) -> Array:
        import numpy as np  # noqa: PLC0415

        if prod(max(size, 1) for size in shape) > MAX_ELEMENTS:
            raise MithrilError(
                f"`{argument.name}` has more elements than any memory holds"
                f"\n  got: a shape of {list(shape)}\n  expected: at most {MAX_ELEMENTS} elements",
                code="E0506",
            )
        check_memory(program.name, backend, [(argument, shape)])
        fan = None if fan_of is None else list(fan_of)
        try:
            number, values, function = program.initial(argument.name, list(shape), seed, fan, init)
            if number is not None:
                return _made(backend, argument, number, shape)
            if function is not None:
                drawn = _call_init(backend, function, argument.name, shape)
            else:
                drawn = np.frombuffer(values or b"", np.float64).reshape(shape)
            if argument.transposed:
                drawn = np.asfortranarray(drawn)
            return _made(backend, argument, drawn, shape)
        except Exception as error:
            if not backend.lacks_memory(error):
                raise
            raise MithrilError(
                f"Out of memory\n  where: the initial value of `{argument.name}`"
                f"\n  got: a shape of {list(shape)}",
                code="E0506",
            ) from error

    return draw


def _from(
    program: _core.Program, backend: Backend, argument: _core.Argument, source: Array, shape: Shape
) -> Array:
    """The initial value of an argument that follows from another array."""
    import numpy as np  # noqa: PLC0415

    values = backend.to_numpy(source).astype(np.float64)
    found = program.initial_from(argument.name, values.tobytes(), list(values.shape))
    return _made(backend, argument, np.frombuffer(found, np.float64).reshape(shape), shape)


def _made(backend: Backend, argument: _core.Argument, values: Any, shape: Shape) -> Array:
    made = backend.initial(values, shape, argument.dtype)
    return backend.as_param(made) if argument.role == "param" else made


def _derived(
    program: _core.Program,
    backend: Backend,
    argument: _core.Argument,
    source: Callable[[Shape, Shape | None], Array],
    fan: _core.Argument | None,
) -> Callable[[Shape, Shape | None], Array]:
    """A function that draws an argument whose value follows from another array, which `source`
    draws again, with the fan of the argument `fan`."""

    def draw(shape: Shape, fan_of: Shape | None) -> Array:
        assert fan_of is not None
        own = None if fan is None or fan.shape is None else tuple(fan.shape)
        return _from(program, backend, argument, source(fan_of, own), shape)

    return draw


def _call_init(
    backend: Backend, function: tuple[Any, Sequence[int]], name: str, shape: Shape
) -> np.ndarray:
    """Calls a user's function with a key of two words and a shape.

    Errors: `UsageError` if the result has the wrong shape or is not of floats.
    """
    import numpy as np  # noqa: PLC0415

    own, key = function
    given = own(np.array(key, np.uint32), shape)
    values = backend.to_numpy(given) if backend.is_array(given) else np.asarray(given)
    is_float = values.dtype.kind == "f" or values.dtype.name.startswith(("bfloat", "float"))
    if tuple(values.shape) != shape or not is_float:
        raise UsageError(
            f"`init` of `{name}` returned an array of the wrong shape or dtype"
            f"\n  got: {values.dtype.name}{list(values.shape)}"
            f"\n  expected: floats of shape {list(shape)}"
        )
    return values
