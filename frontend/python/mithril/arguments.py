"""Checks the arrays of a call to a compiled model, and converts them where necessary."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ._core import DType
from .deferred import Deferred
from .errors import IndexRangeError

if TYPE_CHECKING:
    from . import _core
    from .backends.base import Backend

__all__ = ["Arguments"]

Arrays = dict[str, Any]


class Arguments:
    """The arguments of a program, and the check of the arrays that a call gives for them."""

    def __init__(self, backend: Backend, program: _core.Program) -> None:
        self.backend = backend
        self.checker = program.checker(backend.samples)
        self.dtypes = {a.name: a.dtype.name for a in program.arguments}
        self.integers = {a.name for a in program.arguments if a.any_integer}
        self.keys = [a.name for a in program.arguments if a.role == "key"]

    def checked(
        self,
        params: Arrays,
        inputs: Arrays,
        state: Arrays | None,
        output_gradients: Arrays | None = None,
    ) -> tuple[Arrays, Arrays, Arrays | None]:
        """Checks params, inputs and state, and converts those that need it.

        Errors: names, ranks, dims or dtypes that the program does not take.
        """
        if self.checker.check(params, inputs, state, output_gradients):
            return params, inputs, state
        return self.prepared(params, inputs, state, output_gradients)

    def prepared(
        self,
        params: Arrays,
        inputs: Arrays,
        state: Arrays | None = None,
        output_gradients: Arrays | None = None,
    ) -> tuple[Arrays, Arrays, Arrays | None]:
        """Draws deferred params, and converts all arrays to the framework's. Errors: as for
        `checked`."""
        waiting = {n: v for n, v in params.items() if isinstance(v, Deferred)}
        if waiting:
            shapes = self.checker.shapes(params, inputs)
            for name, value in waiting.items():
                if name in shapes:
                    params[name] = value.drawn(shapes)
        given = params, inputs, state
        params, inputs = self._converted(params), self._converted(inputs)
        state = None if state is None else self._converted(state)
        self.checker.require(params, inputs, state, output_gradients)
        if self.backend.is_remote:
            params, inputs = self._moved(params, given[0]), self._moved(inputs, given[1])
            state = None if state is None else self._moved(state, given[2])
        return params, inputs, state

    def _moved(self, arrays: Arrays, given: Any) -> Arrays:
        """Moves the arrays that were converted to the backend's device. Their elements are checked
        before, as indices on a device are checked only if `checks=True`."""
        return {
            name: value if value is given[name] else self.backend.receive(value)
            for name, value in arrays.items()
        }

    def _converted(self, arrays: Arrays) -> Arrays:
        """Converts NumPy arrays, and arrays that the backend can adopt, to the framework's.

        Other values are returned unchanged, and the check refuses them. An integer array gets the
        program's dtype if the argument takes any integer dtype.
        """
        import numpy as np  # noqa: PLC0415

        def converted(name: str, value: Any) -> Any:
            if not isinstance(value, (np.ndarray, np.generic)):
                adopted = self.backend.adopt(value)
                value = value if adopted is None else adopted
                if not isinstance(value, np.ndarray):
                    return self._framework_integers(name, value)
            if isinstance(value, np.ma.MaskedArray):
                return value
            if name in self.integers and value.dtype.kind in "iu":
                value = self._integers(name, value)
            if _name(value.dtype) != self.dtypes.get(name):
                return value
            # Convert to the machine's byte order. NumPy makes a new dtype object for each change of
            # byte order, and native code does not recognise it.
            dtype = None if value.dtype.isnative else value.dtype.newbyteorder("=")
            return self.backend.from_call(np.asarray(value, dtype))

        return {name: converted(name, value) for name, value in arrays.items()}

    def _framework_integers(self, name: str, value: Any) -> Any:
        """Casts integers of a framework's array to the program's dtype, like `_converted`."""
        if name not in self.integers or not self.backend.is_array(value):
            return value
        dtype, wanted = DType(value.dtype), DType(self.dtypes[name])
        if dtype.name == wanted.name or not dtype.name.startswith(("int", "uint")):
            return value
        if not _can_hold(wanted, dtype):
            # The values decide whether they fit, so fetch them from the device.
            return self.backend.from_numpy(self._integers(name, self.backend.to_numpy(value)))
        return self.backend.cast(value, wanted)

    def _integers(self, name: str, value: Any) -> Any:
        """Casts NumPy integers to the program's dtype. Errors: a value is out of its range."""
        import numpy as np  # noqa: PLC0415

        if _name(value.dtype) == self.dtypes[name] and value.dtype.isnative:
            return value
        wanted = np.dtype(self.dtypes[name])
        if value.size and not _can_cast_safely(value.dtype, wanted):
            info, least, greatest = np.iinfo(wanted), value.min(), value.max()
            if least < info.min or greatest > info.max:
                got = greatest if greatest > info.max else least
                wide = "\n  hint: `jax.config.update('jax_enable_x64', True)` turns on 64 bits"
                raise IndexRangeError(
                    f"Index out of range: the input `{name}` has an integer that does not fit "
                    f"into {wanted.name}\n  got: {got}\n  expected: {info.min} to {info.max}"
                    + ("" if self.backend.wide else wide)
                )
        return np.asarray(value).astype(wanted)

    def with_keys(self, inputs: Arrays) -> Arrays:
        """Adds the random keys that were not given, drawn from the backend's random numbers, and
        converts keys of the framework's own kind."""
        if not self.keys or not isinstance(inputs, dict):
            return inputs  # the check refuses this
        backend, keys = self.backend, {}
        for name in self.keys:
            if name not in inputs:
                keys[name] = backend.random_key()
            elif (own := backend.key_words(inputs[name])) is not inputs[name]:
                keys[name] = own
        return {**inputs, **keys} if keys else inputs


@functools.cache
def _name(dtype: Any) -> str:
    """The name of a NumPy dtype. It is cached, as NumPy takes 3 µs to compute it."""
    return str(dtype.name)


@functools.cache
def _can_cast_safely(dtype: Any, wanted: Any) -> bool:
    """Whether the dtype `wanted` can hold every integer of `dtype`. Both are NumPy's."""
    import numpy as np  # noqa: PLC0415

    return bool(np.can_cast(dtype, wanted, "safe"))


def _can_hold(wide: DType, dtype: DType) -> bool:
    """Whether the dtype `wide` can hold every integer of `dtype`."""
    signed = not dtype.name.startswith("u")
    if wide.name.startswith("u"):
        return not signed and wide.bits >= dtype.bits
    return wide.bits >= dtype.bits + (0 if signed else 1)
