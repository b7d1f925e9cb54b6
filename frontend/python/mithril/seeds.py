"""Output gradients, given as arrays or as functions of the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._core import did_you_mean
from .errors import ShapeError, TerminalError, UsageError
from .reports import listed

if TYPE_CHECKING:
    from .backends.base import Backend

__all__ = ["ArraySeeds", "Seeds"]

Array = Any
Arrays = dict[str, Array]


class ArraySeeds:
    """Output gradients that are all arrays of the framework and have been checked."""

    __slots__ = ("arrays",)
    total = None

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    def of(self, outputs: Arrays) -> Arrays:
        """The output gradients. They do not depend on `outputs`."""
        return self.arrays


class Seeds:
    """Output gradients that may depend on the outputs.

    `given` is a dict of arrays or functions by output, one array or function, or `True`. `outputs`
    has the dtype of each output of the program, `shown` the names of the model's own outputs.
    """

    def __init__(
        self, backend: Backend, outputs: Mapping[str, str], shown: Sequence[str], given: Any
    ) -> None:
        self._backend = backend
        self._outputs = outputs
        self._shown = shown
        self._given = given
        self.arrays = self._arrays()
        """The gradients by output; None if one of them is a function of the outputs."""
        self.total = self._final_cost() if given is True else None
        """The output whose gradient is ones, for `True`; otherwise None."""

    def _arrays(self) -> Arrays | None:
        given = self._given
        if given is True or self._is_function(given):
            return None
        if not isinstance(given, Mapping):
            return {self._only_output(): self._stated(self._only_output(), given)}
        self._check_names(given)
        if any(self._is_function(value) for value in given.values()):
            return None
        return {name: self._stated(name, value) for name, value in given.items()}

    def _stated(self, name: str, value: Any) -> Array:
        """The array, in the dtype that the model states for the output if it had its own."""
        array = self._array(name, value)
        is_array = self._backend.is_array(array)
        return self._backend.settled(array, self._outputs[name]) if is_array else array

    def of(self, outputs: Arrays) -> Arrays:
        """The gradients for these outputs.

        Errors: `ShapeError` for a gradient whose shape or dtype differs from its output's.
        """
        if self.arrays is not None:
            return self.arrays
        given = self._given
        if self.total is not None:
            return {self.total: self._backend.ones_like(outputs[self.total])}
        if self._is_function(given):
            given = given({name: outputs[name] for name in self._shown})
            if not isinstance(given, Mapping):
                given = {self._only_output(): given}
            self._check_names(given)
        found = {}
        for name, value in given.items():
            seed = self._array(name, value(outputs[name]) if self._is_function(value) else value)
            own = outputs[name]
            if tuple(seed.shape) != tuple(own.shape) or seed.dtype != own.dtype:
                raise ShapeError(
                    f"Incompatible shapes: the gradient given for `{name}` does not "
                    "match the output"
                    f"\n  got: {seed.dtype}{list(seed.shape)}"
                    f"\n  expected: {own.dtype}{list(own.shape)}"
                )
            found[name] = seed
        return found

    def _is_function(self, value: object) -> bool:
        return callable(value) and not self._backend.is_array(value)

    def _array(self, name: str, value: Any) -> Array:
        """Converts the value to an array of the framework. A NumPy array whose dtype differs from
        the output's is returned unchanged, so that the check refuses it. JAX would cast it without
        an error."""
        backend = self._backend
        if backend.is_array(value):
            return value
        import numpy as np  # noqa: PLC0415

        if not isinstance(value, (np.ndarray, np.generic)):
            return backend.array(value)
        if value.dtype.name != self._outputs[name]:
            return value
        return backend.from_numpy(np.asarray(value))

    def _final_cost(self) -> str:
        if "final_cost" in self._outputs:
            return "final_cost"
        raise TerminalError(
            "Terminal not found: `output_gradients=True` needs an output `final_cost`"
            f"\n  got: a model with the outputs {listed(self._shown, '`')}"
            "\n  hint: compute it with `TrainModel`, or give the gradients of the outputs"
        )

    def _only_output(self) -> str:
        if len(self._shown) == 1:
            return self._shown[0]
        raise UsageError(
            "`output_gradients` is one array, but the model has several outputs"
            f"\n  got: a model with the outputs {listed(self._shown, '`')}"
            "\n  expected: a dict by output"
        )

    def _check_names(self, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in self._outputs:
                near = did_you_mean(str(name), list(self._shown))
                raise TerminalError(
                    f"Terminal not found: the model has no output `{name}`"
                    f"\n  expected: {listed(self._shown, '`')}"
                    + (f"\n  hint: {near}" if near else "")
                )
