"""Compiled models: evaluation, gradients, params, state."""

from __future__ import annotations

import itertools
import linecache
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from . import _core
from .deferred import Deferred
from .errors import MithrilError, TerminalError, UsageError

if TYPE_CHECKING:
    from .backends.base import Backend

__all__ = ["CompiledModel"]

Array = Any
Arrays = dict[str, Array]
OutputGradients = Any

_numbers = itertools.count()


class CompiledModel:
    """A model compiled for one backend; `ml.compile` makes it.

    Arrays are the framework's own, of the dtypes the model was compiled for; inputs may be NumPy's.
    Names, ranks, dims and dtypes are checked at every call.
    """

    def __init__(
        self,
        model: _core.Block,
        backend: Backend,
        options: dict[str, Any],
        *,
        jit: bool,
        checkpoint: bool,
        file_path: str | None,
        debug: bool,
    ) -> None:
        self.backend = backend
        self.jit = jit
        self._model = model
        self._options = options
        self._checkpoint = checkpoint
        self._hooks: dict[str, list[Callable[[Array], object]]] = {}
        self._debug = debug
        self._file_path = file_path
        self._compile()

    def _compile(self) -> None:
        backend = self.backend
        self._program = program = _core.compile(
            self._model,
            backend.kind,
            backend.dtype,
            backend.wide,
            **self._options,
            file_path=self._file_path,
        )
        arguments = program.arguments
        self._roles = {a.name: a.role for a in arguments}
        self._params = [a.name for a in arguments if a.role == "param"]
        self._keys = [a.name for a in arguments if a.role == "key"]
        self._inputs = [a.name for a in arguments if a.role in ("data", "constant")]
        self._states = [a.name for a in arguments if a.role == "state"]
        self._outputs = [r.name for r in program.results if r.state is None]
        self._state: Arrays | None = None
        self._checker = program.checker(backend.samples)
        self._check = self._checker.check
        self._runner = backend.runner(self._namespace(), jit=self.jit, checkpoint=self._checkpoint)
        self._forward = self._runner.forward
        self._plain = not (self._keys or self._states or self._debug)

    def _namespace(self) -> dict[str, Any]:
        """The generated source, run: from its file where there is one, else from memory."""
        source = self._program.source
        constants = self._program.constants
        if self._file_path is not None:
            path = Path(self._file_path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, encoding="utf-8")
            if constants:
                _write_constants(path.with_suffix(".npz"), constants)
            return _executed(source, str(path.resolve()))
        name = f"<mithril {self._program.name} {next(_numbers)}>"
        # Tracebacks show the lines of the source.
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        if not constants:
            return _executed(source, name)
        with tempfile.TemporaryDirectory(prefix="mithril-") as folder:
            _write_constants(Path(folder) / "model.npz", constants)
            return _executed(source, name, str(Path(folder) / "model.py"))

    # What it is made of.

    @property
    def params(self) -> tuple[str, ...]:
        """The names of what is learned."""
        return tuple(self._params)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, keys of random numbers included."""
        return tuple(self._inputs + self._keys)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return tuple(self._outputs)

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states."""
        return tuple(self._states)

    @property
    def code(self) -> str:
        """The generated source."""
        return self._program.source

    @property
    def module(self) -> str:
        """What the source was generated from, in the text form of Mithril's IR."""
        return self._program.module

    @property
    def timings(self) -> dict[str, float]:
        """Seconds that each stage of the compilation took."""
        return dict(self._program.timings)

    def report(self) -> str:
        """What was compiled and how long each stage took, in lines of text."""
        lines = [f"{self._program.name}: {self.backend!r}"]
        for names, what in [
            (self.params, "params"),
            (self.inputs, "inputs"),
            (self._states, "state"),
            (self.outputs, "outputs"),
        ]:
            if names:
                lines.append(f"  {what}: {', '.join(names)}")
        lines += [f"  {stage}: {1000 * t:.2f} ms" for stage, t in self._program.timings]
        if self._file_path is not None:
            lines.append(f"  written to {self._file_path}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"CompiledModel({self._program.name}, {self.backend!r}, "
            f"{', '.join(self.inputs)} -> {', '.join(self.outputs)})"
        )

    # Params and state.

    def randomize_params(self, seed: int | None = None) -> Arrays:
        """Initial params by name, from the backend's random numbers or from `seed`.

        Where their shapes depend on inputs that were not given with `shapes=`, the entries take
        their values at the first `evaluate`, in place.
        """
        if seed is None:
            seed = int(self.backend.generator.integers(2**63))
        params: Arrays = {}
        for argument in self._program.arguments:
            if argument.role != "param":
                continue
            value = Deferred(argument.name, self._drawing(argument, seed))
            shape = argument.shape
            params[argument.name] = value if shape is None else value.take(shape)
        return params

    get_parameters = randomize_params

    def _drawing(self, argument: _core.Argument, seed: int) -> Callable[[tuple[int, ...]], Array]:
        return lambda shape: self.backend.initial(
            *self._program.initial(argument.name, list(shape)),
            shape,
            argument.dtype,
            (seed, crc32(argument.name.encode())),
        )

    def initial_state(self, params: Arrays | None = None, inputs: Arrays | None = None) -> Arrays:
        """The state before the first call. `params` and `inputs` give the shapes that are open.

        Errors: `MithrilError` where a shape is still open.
        """
        known = self._checker.shapes(params or {}, inputs or {})
        state: Arrays = {}
        for argument in self._program.arguments:
            if argument.role == "state":
                shape = argument.shape if argument.shape is not None else known.get(argument.name)
                if shape is None:
                    raise MithrilError(
                        f"the shape of the state `{argument.name}` is not known"
                        "\n  hint: compile with `shapes=`, or give the inputs"
                    )
                state[argument.name] = self._drawing(argument, 0)(tuple(shape))
        return state

    @property
    def state(self) -> Arrays:
        """The state that the compiled model holds. Errors: `MithrilError` before the first call
        where shapes are not known."""
        if self._state is None:
            self._state = self.initial_state()
        return self._state

    @state.setter
    def state(self, state: Arrays) -> None:
        self._state = state

    def bind(self, params: Mapping[str, Array]) -> CompiledModel:
        """A compiled model with copies of these params in it as constants.

        Errors: `TerminalError` for a name that the model has not.
        """
        unknown = [name for name in params if name not in self._roles]
        if unknown:
            near = _core.did_you_mean(unknown[0], list(self._roles))
            raise TerminalError(
                f"Terminal not found: the model has no `{unknown[0]}`"
                + (f"\n  hint: {near}" if near else "")
            )
        constants = {name: self.backend.to_numpy(value) for name, value in params.items()}
        constants = {**self._options["constant_keys"], **constants}
        return CompiledModel(
            self._model,
            self.backend,
            {**self._options, "constant_keys": constants},
            jit=self.jit,
            checkpoint=self._checkpoint,
            file_path=None,
            debug=self._debug,
        )

    def register_hook(self, name: str, hook: Callable[[Array], object]) -> None:
        """Calls `hook` with the value of an output at each call.

        Errors: `TerminalError` for an output that is not there.
        """
        if name not in self._outputs:
            near = _core.did_you_mean(name, self._outputs)
            hint = near or f'an inner terminal is an output after `model.expose("{name}")`'
            raise TerminalError(
                f"Terminal not found: the model has no output `{name}`"
                f"\n  expected: {_listed(self.outputs)}\n  hint: {hint}"
            )
        self._hooks.setdefault(name, []).append(hook)
        self._plain = False

    # Calls.

    def evaluate(
        self,
        params: Arrays,
        inputs: Arrays,
        state: Arrays | None = None,
        output_gradients: OutputGradients = None,
    ) -> Any:
        """The outputs by name; with `output_gradients`, `(outputs, gradients)`.

        `output_gradients` is a dict of arrays by output, one array where there is one output,
        functions of the outputs in the place of arrays, one function from the dict of outputs to a
        dict, or `True` for the output `final_cost`. `gradients` has one entry per param.

        With `state`, the next state comes last in what is returned; otherwise the compiled model
        holds it.

        Errors: `MithrilError` for arrays of other names, ranks, dims or dtypes.
        """
        if self._plain and output_gradients is None and state is None:
            if not self._check(params, inputs):
                params, inputs = self._ready(params, inputs)
            return self._forward(params, inputs)
        return self._run(params, inputs, state, output_gradients)

    __call__ = evaluate

    def evaluate_gradients(
        self,
        params: Arrays,
        inputs: Arrays,
        output_gradients: OutputGradients = True,
        state: Arrays | None = None,
    ) -> Any:
        """The gradients alone; arguments and errors as for `evaluate`."""
        result = self.evaluate(params, inputs, state, output_gradients)
        return result[1] if state is None else result[1:]

    def _run(
        self,
        params: Arrays,
        inputs: Arrays,
        state: Arrays | None,
        output_gradients: OutputGradients,
    ) -> Any:
        if self._keys:
            inputs = self._with_keys(inputs)
        own = state
        if self._states:
            if state is None:
                if self._state is None:
                    self._state = self.initial_state(params, inputs)
                own = self._state
            params, inputs = self._checked(params, inputs, own)
        else:
            params, inputs = self._checked(params, inputs, None)
        if output_gradients is None:
            outputs = self._forward(params, inputs, own) if self._states else self._forward(params, inputs)
            gradients = None
            following = None
            if self._states:
                outputs, following = outputs
        else:
            self._need_gradients()
            outputs, gradients, following = self._runner.gradients(
                params, inputs, own, _Seeds(self, output_gradients)
            )
        if self._states and state is None:
            self._state = following
        if self._hooks or self._debug:
            outputs = self._show(outputs)
        answer = (outputs,) if gradients is None else (outputs, gradients)
        if state is not None:
            answer = (*answer, following if following is not None else state)
        return answer if len(answer) > 1 else answer[0]

    def _need_gradients(self) -> None:
        if self._options["inference"]:
            raise UsageError(
                "a model compiled with `inference=True` has no gradients"
                "\n  hint: compile it without"
            )

    def _checked(self, params: Arrays, inputs: Arrays, state: Arrays | None) -> tuple[Arrays, Arrays]:
        if self._check(params, inputs, state):
            return params, inputs
        return self._ready(params, inputs, state)

    def _ready(
        self, params: Arrays, inputs: Arrays, state: Arrays | None = None
    ) -> tuple[Arrays, Arrays]:
        """Params with their values, inputs as arrays of the framework."""
        waiting = {n: v for n, v in params.items() if isinstance(v, Deferred)}
        if waiting:
            shapes = self._checker.shapes(params, inputs)
            for name, value in waiting.items():
                if name in shapes:
                    params[name] = value.take(tuple(shapes[name]))
        import numpy as np  # noqa: PLC0415

        convert = self.backend.from_numpy
        ready = [
            {n: convert(v) if isinstance(v, np.ndarray) else v for n, v in arrays.items()}
            if any(isinstance(v, np.ndarray) for v in arrays.values())
            else arrays
            for arrays in (params, inputs)
        ]
        self._checker.insist(ready[0], ready[1], state)
        return ready[0], ready[1]

    def _with_keys(self, inputs: Arrays) -> Arrays:
        """Keys that were not given are drawn from the backend's random numbers."""
        missing = [name for name in self._keys if name not in inputs]
        if not missing:
            return inputs
        return {**inputs, **{name: self.backend.random_key() for name in missing}}

    def _show(self, outputs: Arrays) -> Arrays:
        """Hands outputs to hooks, and prints them for `debug`."""
        for name, hooks in self._hooks.items():
            for hook in hooks:
                hook(outputs[name])
        if self._debug:
            for name, value in outputs.items():
                print(f"{name}: {_core.DType(value.dtype).name}{list(value.shape)}")
        return outputs


def _executed(source: str, name: str, file: str | None = None) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "mithril_generated", "__file__": file or name}
    exec(compile(source, name, "exec"), namespace)
    return namespace


def _write_constants(
    path: Path, constants: list[tuple[str, _core.DType, list[int], bytes]]
) -> None:
    import numpy as np  # noqa: PLC0415

    from .backends.base import numpy_dtype  # noqa: PLC0415

    arrays = {
        name: np.frombuffer(data, dtype=numpy_dtype(dtype)).reshape(shape)
        for name, dtype, shape, data in constants
    }
    np.savez(path, **arrays)  # type: ignore[arg-type]


class _Seeds:
    """What the outputs' gradients are, once the outputs are known."""

    def __init__(self, compiled: CompiledModel, given: OutputGradients) -> None:
        self._backend = compiled.backend
        self._outputs = compiled._outputs
        self._given = given
        self._shown = compiled.outputs

    @property
    def arrays(self) -> Arrays | None:
        """The gradients, where none of them is a function."""
        given = self._given
        if isinstance(given, Mapping):
            self._known(given)
            if any(callable(g) and not self._backend.is_array(g) for g in given.values()):
                return None
            return {name: self._array(value) for name, value in given.items()}
        if given is True or self._calls(given):
            return None
        return {self._only(): self._array(given)}

    def of(self, outputs: Arrays) -> Arrays:
        """The gradients of these outputs."""
        given = self._given
        if given is True:
            return {self._final(): self._backend.ones_like(outputs[self._final()])}
        if self._calls(given):
            given = given(outputs)
            if not isinstance(given, Mapping):
                given = {self._only(): given}
            self._known(given)
        return {
            name: self._array(value(outputs[name]) if self._calls(value) else value)
            for name, value in given.items()
        }

    def _calls(self, value: object) -> bool:
        return callable(value) and not self._backend.is_array(value)

    def _array(self, value: Any) -> Array:
        backend = self._backend
        if backend.is_array(value):
            return value
        import numpy as np  # noqa: PLC0415

        if isinstance(value, (np.ndarray, np.generic)):
            return backend.from_numpy(np.asarray(value))
        return backend.array(value)

    def _final(self) -> str:
        if "final_cost" in self._outputs:
            return "final_cost"
        raise TerminalError(
            "Terminal not found: `output_gradients=True` differentiates `final_cost`"
            f"\n  got: a model with the outputs {_listed(self._shown)}"
            "\n  hint: `TrainModel` makes it, or give the gradients of the outputs"
        )

    def _only(self) -> str:
        if len(self._shown) == 1:
            return self._shown[0]
        raise UsageError(
            "one array of output gradients goes with one output"
            f"\n  got: a model with the outputs {_listed(self._shown)}"
            "\n  expected: a dict by output"
        )

    def _known(self, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in self._outputs:
                near = _core.did_you_mean(name, list(self._shown))
                raise TerminalError(
                    f"Terminal not found: the model has no output `{name}`"
                    f"\n  expected: {_listed(self._shown)}" + (f"\n  hint: {near}" if near else "")
                )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
