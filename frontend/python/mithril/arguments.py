"""What a compiled model is called on: checked, and made ready where it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .deferred import Deferred

if TYPE_CHECKING:
    from . import _core
    from .backends.base import Backend

__all__ = ["Arguments"]

Arrays = dict[str, Any]


class Arguments:
    """The arguments of a program, and the check of what calls give for them."""

    def __init__(self, backend: Backend, program: _core.Program) -> None:
        self.backend = backend
        self.checker = program.checker(backend.samples)
        self.dtypes = {a.name: a.dtype.name for a in program.arguments}
        self.keys = [a.name for a in program.arguments if a.role == "key"]

    def checked(
        self,
        params: Arrays,
        inputs: Arrays,
        state: Arrays | None,
        output_gradients: Arrays | None = None,
    ) -> tuple[Arrays, Arrays, Arrays | None]:
        """Params, inputs and state as the program takes them. Errors: those of the check."""
        if self.checker.check(params, inputs, state, output_gradients):
            return params, inputs, state
        return self.ready(params, inputs, state, output_gradients)

    def ready(
        self,
        params: Arrays,
        inputs: Arrays,
        state: Arrays | None = None,
        output_gradients: Arrays | None = None,
    ) -> tuple[Arrays, Arrays, Arrays | None]:
        """Params with their values, all as arrays of the framework."""
        waiting = {n: v for n, v in params.items() if isinstance(v, Deferred)}
        if waiting:
            shapes = self.checker.shapes(params, inputs)
            for name, value in waiting.items():
                if name in shapes:
                    params[name] = value.take(tuple(shapes[name]))
        params, inputs = self._converted(params), self._converted(inputs)
        state = None if state is None else self._converted(state)
        self.checker.insist(params, inputs, state, output_gradients)
        return params, inputs, state

    def _converted(self, arrays: Arrays) -> Arrays:
        """NumPy's arrays as the framework's, and those that the backend adopts; others stay, to be
        refused."""
        import numpy as np  # noqa: PLC0415

        def converted(name: str, value: Any) -> Any:
            if not isinstance(value, (np.ndarray, np.generic)):
                adopted = self.backend.adopt(value)
                return value if adopted is None else adopted
            masked = isinstance(value, np.ma.MaskedArray)
            if masked or value.dtype.name != self.dtypes.get(name):
                return value
            # In this machine's order of bytes.
            return self.backend.from_numpy(np.asarray(value, value.dtype.newbyteorder("=")))

        return {name: converted(name, value) for name, value in arrays.items()}

    def with_keys(self, inputs: Arrays) -> Arrays:
        """The inputs with keys that were not given, drawn from the backend's random numbers."""
        if not self.keys or not isinstance(inputs, dict):
            return inputs  # for the check to refuse
        missing = [name for name in self.keys if name not in inputs]
        if not missing:
            return inputs
        return {**inputs, **{name: self.backend.random_key() for name in missing}}
