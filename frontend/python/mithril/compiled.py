"""Compiled models: evaluation, gradients, params, state."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import _core, drawing
from .arguments import Arguments
from .errors import BackendError, MithrilError, TerminalError, UsageError, shown
from .misfits import raise_misfit
from .reports import reported
from .seeds import ArraySeeds, Seeds, listed
from .sources import namespace, path_text, write_source

if TYPE_CHECKING:
    from .backends.base import Backend

__all__ = ["CompiledModel"]

Array = Any
Arrays = dict[str, Array]
OutputGradients = Any


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
        file_path: str | None,
        debug: bool,
        verbose: bool = False,
    ) -> None:
        self.backend = backend
        self.jit = jit
        self._model = model
        self._options = options
        self._hooks: dict[str, list[Callable[[Array], object]]] = {}
        self._inner: list[str] = []
        self._debug = debug
        self._verbose = verbose
        self._file_path = file_path
        self._compile()

    def _compile(self) -> None:
        backend = self.backend
        if self._file_path is not None and backend.extension is None:
            raise BackendError(
                f"`file_path` is where Python source is written\n  got: {self._file_path!r} for "
                f"{backend!r}, which makes native code\n  hint: `ml.NumpyBackend()` writes source"
            )
        program = self._compiled(self._options["shapes"])
        if program.widens and not backend.wide:
            backend.widen()
            program = self._compiled(self._options["shapes"])
        self._program = program
        arguments = program.arguments
        self._roles = {a.name: a.role for a in arguments}
        self._params = [a.name for a in arguments if a.role == "param"]
        self._inputs = [a.name for a in arguments if a.role in ("data", "constant")]
        self._states = [a.name for a in arguments if a.role == "state"]
        self._outputs = {r.name: r.dtype.name for r in program.results if r.state is None}
        if not self._inner:
            self._shown = tuple(self._outputs)
        self._state: Arrays | None = None
        self._arguments = Arguments(backend, program)
        # Native code checks what it is given.
        self._check = self._arguments.checker.check if backend.writes else None
        self._runner = backend.runner(program, self._namespace, jit=self.jit)
        self._forward = self._runner.forward
        if self._verbose and backend.kind == "cpu":
            self._runner.native.measure()
        if self._file_path is not None and not backend.writes:
            write_source(self._file_path, program.source)
        self._settle()

    def _compiled(self, shapes: Mapping[str, Any]) -> _core.Program:
        return _core.compile(
            self._model,
            self.backend.kind,
            self.backend.dtype,
            self.backend.wide,
            **{**self._options, "shapes": shapes, "watched": self._inner},
            **self.backend.compile_options(),
            file_path=self._file_path,
        )

    def _settle(self) -> None:
        """Chooses the short ways of a call: there are some where nothing is done beside it."""
        self._plain = not (self._arguments.keys or self._states or self._hooks or self._debug)
        quick = self._plain and not self._options["inference"]
        self._joint = getattr(self._runner, "joint", None) if quick else None

    def _namespace(self) -> dict[str, Any]:
        return namespace(self._program, self._file_path)

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "a compiled model is not pickled or copied: it holds the code of this process"
            "\n  hint: pickle the model and the params, and compile the model where it is used"
        )

    # What it is made of.

    @property
    def params(self) -> tuple[str, ...]:
        """The names of what is learned."""
        return tuple(self._params)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, keys of random numbers included."""
        return tuple(self._inputs + self._arguments.keys)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return self._shown

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states."""
        return tuple(self._states)

    @property
    def code(self) -> str:
        """The generated source; for native code its launches and kernels."""
        return self._program.source if self.backend.writes else str(self._runner.code)

    @property
    def module(self) -> str:
        """What the source was generated from, in the text form of Mithril's IR."""
        return self._program.module

    @property
    def timings(self) -> dict[str, float]:
        """Seconds that each stage of the compilation took."""
        return dict(self._program.timings)

    def report(self) -> str:
        """What was compiled and how long each stage took, in lines of text; for a model that was
        compiled with `verbose=True` also how long each kernel of native code takes in a call."""
        names = {
            "params": self.params,
            "inputs": self.inputs,
            "state": self.states,
            "outputs": self.outputs,
        }
        native = [] if self.backend.writes else self._runner.report
        return reported(self._program, self.backend, names, native, self._file_path)

    def memory(self, **dims: int) -> dict[str, int]:
        """The bytes that a call of native code works with, a training step where there are
        gradients: `arguments`, `results`, `temporaries`, `constants` and their `total`.

        `dims` are numbers for the dims that have none.

        Errors: `BackendError` for a backend that makes no native code; `MithrilError` for dims
        without numbers, or that the model has not.
        """
        for name, size in dims.items():
            whole = isinstance(size, int) and not isinstance(size, bool)
            if not (whole and 0 <= size < 2**48):
                raise UsageError(
                    f"`{name}` is a dim\n  got: {size!r}\n  expected: a number below 2**48"
                )
        found: dict[str, int] | None
        found = getattr(self._runner, "native", self._program).memory(dims)
        if found is None:
            raise BackendError(
                f"frameworks manage their memory themselves\n  got: {self.backend!r}"
                "\n  hint: `cost` of the model counts bytes"
            )
        return found

    def explain(self) -> _core.Explanation:
        """Which rules have rewritten the model, where, and what each is worth.

        Printed, it is a table; its `rules` have the same as data. Times are estimates for the
        backend: a rule's gain is how much longer the program would take without it.
        """
        return getattr(self._runner, "native", self._program).explain()

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
        return drawing.params(self._program, self.backend, seed)

    get_parameters = randomize_params

    def initial_state(self, params: Arrays | None = None, inputs: Arrays | None = None) -> Arrays:
        """The state before the first call. `params` and `inputs` give the shapes that are open.

        Errors: `MithrilError` where a shape is still open.
        """
        known = self._arguments.checker.shapes(params or {}, inputs or {})
        return drawing.state(self._program, self.backend, known)

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
        """A compiled model with copies of these params in it as constants, a copy of the state
        that this one holds, and its hooks.

        Errors: `TerminalError` for a name that the model has not.
        """
        if not isinstance(params, Mapping):
            raise UsageError(
                f"`bind` takes a dict of params by name\n  got: {type(params).__name__}"
                "\n  hint: `randomize_params()` makes one"
            )
        unknown = [name for name in params if name not in self._roles]
        if unknown:
            near = _core.did_you_mean(str(unknown[0]), list(self._roles))
            raise TerminalError(
                f"Terminal not found: the model has no `{unknown[0]}`"
                + (f"\n  hint: {near}" if near else "")
            )
        items, backend = params.items(), self.backend
        constants = {name: _core.Constant(backend.to_numpy(value)) for name, value in items}
        constants = {**self._options["constant_keys"], **constants}
        learned = [name for name in self._options["trainable_keys"] if name not in constants]
        bound = self._with({"constant_keys": constants, "trainable_keys": learned})
        if self._state is not None:
            held = {name: backend.to_numpy(value) for name, value in self._state.items()}
            bound.state = {name: backend.from_numpy(value.copy()) for name, value in held.items()}
        for name, hooks in self._hooks.items():
            for hook in hooks:
                bound.register_hook(name, hook)
        return bound

    def _with(self, options: dict[str, Any]) -> CompiledModel:
        """The same model compiled with other options, without hooks and a file."""
        options = {**self._options, **options}
        model, backend = self._model, self.backend
        return CompiledModel(
            model, backend, options, jit=self.jit, file_path=None, debug=self._debug
        )

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        params: Mapping[str, Array] | None = None,
        cpu: str | Sequence[str] = "native",
    ) -> dict[str, Path]:
        """Writes a shared library for C into a folder, and beside it its header, its metadata as
        JSON and, where `params` are given, their values as safetensors. The paths, by `library`,
        `header`, `metadata` and `weights`.

        `name` is what the names of files and functions contain; by default it is the model's. `cpu`
        is the processor that it is for: `native`, `x86-64-v2` to `x86-64-v4`, or several, among
        which the library chooses when it is first called.

        Errors: `BackendError` for a backend that makes no native code, or where code cannot be
        made; `MithrilError` for a model whose inputs have no shapes yet, or params that do not fit.
        """
        if self.backend.writes:
            raise BackendError(
                "a library for C is made of native code"
                f"\n  got: {self.backend!r}\n  hint: compile for `ml.CpuBackend()`"
            )
        if name is not None and not isinstance(name, str):
            raise UsageError(f"`name` is what names contain\n  got: {shown(name)}")
        if params is not None and not isinstance(params, Mapping):
            raise UsageError(f"`params` is a dict of params by name\n  got: {shown(params)}")
        values = None
        if params is not None:
            values = {n: self.backend.to_numpy(value) for n, value in params.items()}
        processors = cpu.split(",") if isinstance(cpu, str) else cpu
        several = isinstance(processors, list | tuple) and len(processors) > 0
        if not several or not all(isinstance(processor, str) for processor in processors):
            raise UsageError(
                f"`cpu` is the processor that a library is for, or several\n  got: {shown(cpu)}"
                '\n  expected: "native", "x86-64-v3", ["v3", "v4"] or their like'
            )
        # Hooks are of this process: what they see is no output of the library.
        runner = self._with({})._runner if self._inner else self._runner
        paths = runner.native.export(path_text(folder, "folder"), name, list(processors), values)
        return {what: Path(path) for what, path in paths.items()}

    def register_hook(self, name: str, hook: Callable[[Array], object]) -> None:
        """Calls `hook` with the value of an output, a named inner terminal or a block at each call.

        Errors: `TerminalError` for what is not there; `UsageError` for a hook that is no function.
        """
        if not isinstance(name, str):
            raise UsageError(
                "`name` is an output, a named inner terminal or a block"
                f"\n  got: {shown(name)}\n  expected: its name"
            )
        if not callable(hook):
            raise UsageError(f"`hook` is a function of one array\n  got: {shown(hook)}")
        if name not in self._outputs:
            self._look_at(name)
        self._hooks.setdefault(name, []).append(hook)
        self._settle()

    def _look_at(self, name: str) -> None:
        """Makes an output of an inner value; the state and the file stay as they are."""
        before, state, path = self._inner, self._state, self._file_path
        self._file_path = None
        block, _, part = name.rpartition(".")
        try:
            try:
                self._keep([*before, name])
            except TerminalError as error:
                if not (block and part.isdigit()):
                    raise
                # One of the values of a block, by its number.
                try:
                    self._keep([*before, block])
                except TerminalError:
                    raise error from None
            if name not in self._outputs:
                several = [output for output in self._outputs if output.startswith(f"{name}.")]
                raise TerminalError(
                    f"Terminal not found: `{name}` gives no value by itself"
                    + (f"\n  hint: it gives {listed(several)}" if several else "")
                )
        except BaseException:
            self._keep(before)
            raise
        finally:
            self._state, self._file_path = state, path

    def _keep(self, inner: list[str]) -> None:
        self._inner = inner
        self._compile()

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
        try:
            if self._plain and output_gradients is None and state is None:
                if self._check is None:
                    outputs = self._forward(params, inputs)
                    if outputs is None:
                        outputs = self._forward(*self._arguments.ready(params, inputs)[:2])
                    return outputs
                if not self._check(params, inputs):
                    params, inputs, _ = self._arguments.ready(params, inputs)
                return self._forward(params, inputs)
            if self._joint is not None and state is None:
                answer = self._joint(params, inputs, output_gradients)
                if answer is not None:
                    return answer
            return self._run(params, inputs, state, output_gradients)
        except MithrilError:
            raise
        except Exception as error:
            raise_misfit(error, self.backend, self._program, inputs, self._compiled)
            raise

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
        inputs = self._arguments.with_keys(inputs)
        if state is not None and not isinstance(state, Mapping):
            raise UsageError(f"`state` is a mapping of arrays by name\n  got: {shown(state)}")
        if state and not self._states:
            raise TerminalError(
                f"Terminal not found: the model has no state `{next(iter(state))}`"
                "\n  expected: {} or None, as the model has no state"
            )
        if self._states and state is None and self._state is None:
            self._state = self.initial_state(params, inputs)
        own = self._state if state is None else state
        own = own if self._states else None
        if output_gradients is None:
            params, inputs, own = self._arguments.checked(params, inputs, own)
            outputs, following = self._outputs_of(params, inputs, own)
            answer: tuple[Any, ...] = (self._show(outputs),)
        else:
            self._need_gradients()
            seeds: Seeds | ArraySeeds
            if self._fits(params, inputs, own, output_gradients):
                seeds = ArraySeeds(output_gradients)
            else:
                seeds = Seeds(self.backend, self._outputs, self.outputs, output_gradients)
                checked = self._arguments.checked(params, inputs, own, seeds.arrays)
                params, inputs, own = checked
            outputs, gradients, following = self._runner.gradients(params, inputs, own, seeds)
            answer = (self._show(outputs), gradients)
        if own is not None and following is not None:
            # What a call does not change is no result of native code.
            following = {**own, **following}
        if state is not None:
            return (*answer, following if self._states else state)
        if self._states:
            self._state = following
        return answer if len(answer) > 1 else answer[0]

    def _fits(
        self, params: Arrays, inputs: Arrays, state: Arrays | None, output_gradients: Any
    ) -> bool:
        """Whether all are arrays of the framework, and as the program takes them."""
        if self._check is None or type(output_gradients) is not dict:
            return False
        try:
            return self._check(params, inputs, state, output_gradients)
        except MithrilError:
            return False  # what is said of it depends on what can be converted

    def _outputs_of(
        self, params: Arrays, inputs: Arrays, state: Arrays | None
    ) -> tuple[Arrays, Arrays | None]:
        if state is None:
            return self._forward(params, inputs), None
        outputs, following = self._forward(params, inputs, state)
        return outputs, following

    def _need_gradients(self) -> None:
        if self._options["inference"]:
            raise UsageError(
                "a model compiled with `inference=True` has no gradients"
                "\n  hint: compile it without"
            )

    def _show(self, outputs: Arrays) -> Arrays:
        """Hands values to hooks, and prints them for `debug`; inner ones are no outputs."""
        if not (self._hooks or self._debug):
            return outputs
        for name, hooks in self._hooks.items():
            for hook in hooks:
                hook(outputs[name])
        if self._debug:
            for name, value in outputs.items():
                print(f"{name}: {_core.DType(value.dtype).name}{list(value.shape)}")
        return {name: outputs[name] for name in self._shown}
