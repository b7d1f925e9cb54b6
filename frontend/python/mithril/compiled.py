"""Compiled models: evaluation, gradients, params, state."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _core, drawing
from . import params as renaming
from .arguments import Arguments
from .contents import Contents
from .deferred import Deferred
from .errors import BackendError, MithrilError, TerminalError, UsageError, shown
from .export import Library
from .framework_errors import raise_explained
from .hooks import HookedModel
from .inference import inference_map, inference_options
from .placement import Placement
from .seeds import ArraySeeds, Seeds
from .sharding import Splits, splits_for
from .sources import path_text, write_source
from .staged import StagedModel
from .states import held, traced
from .variants import Variant, Variants

if TYPE_CHECKING:
    from .backends.base import Backend
    from .pipeline import Pipeline

__all__ = ["CompiledModel"]

Array = Any
Arrays = dict[str, Array]
OutputGradients = Any


class CompiledModel(Contents, HookedModel, StagedModel):
    """A model compiled for one backend; `ml.compile` makes it.

    Arrays are the framework's own, with the dtypes that the model was compiled for; inputs may also
    be NumPy arrays. Every call checks names, ranks, dims and dtypes.
    """

    def __init__(
        self,
        model: _core.Snapshot,
        backend: Backend,
        options: dict[str, Any],
        *,
        jit: bool,
        file_path: str | None,
        debug: bool,
        verbose: bool = False,
        training: CompiledModel | None = None,
        backend_map: Mapping[str, Backend] | None = None,
        devices: Mapping[str, str] | None = None,
        shardings: Mapping[str, Any] | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        self.backend = backend
        self._pipeline = pipeline
        self._shardings = shardings
        self._backend_map = dict(backend_map or {})
        self._devices = devices
        self._placement = Placement(model, backend, self._backend_map, devices)
        self.jit = jit
        self._model = model
        # The training model whose state this model reads; None if this model has its own state.
        self._training = training
        self._options = options
        self._hooks: dict[str, list[Callable[[Array], object]]] = {}
        self._inner: list[str] = []
        self._debug = debug
        self._verbose = verbose
        self._file_path = file_path
        self._compile()

    def _compile(self) -> None:
        backend = self.backend
        if self._file_path is not None and backend.target.dialect == "machine":
            raise BackendError(
                f"`file_path` needs a backend that generates Python source"
                f"\n  got: {self._file_path!r} for "
                f"{backend!r}, which makes native code\n  hint: `ml.NumpyBackend()` writes source",
                code="E0402",
            )
        self._placement.check_options(self._file_path, self._options["memory_budget"])
        program = self._root_program()
        self._variants: Variants | None = None
        if program.is_open:
            if self._file_path is not None:
                program.settled()  # raises the error for a file that needs ranks or dtypes
            self._variants = Variants(backend, program, self._root_program, self._variant_of)
        self._own = program
        arguments = program.arguments
        self._roles = {a.name: a.role for a in arguments}
        self._params = [a.name for a in arguments if a.role == "param"]
        self._inputs = [a.name for a in arguments if a.role in ("data", "constant")]
        states = [a for a in arguments if a.role == "state"]
        self._states = [a.name for a in states]
        # Whether the initial state is the same for all params and inputs.
        self._one_initial = all(a.shape is not None and not a.derived for a in states)
        # Params that only the training model has.
        trained = () if self._training is None else self._training.params
        self._training_params = frozenset(trained).difference(self._params)
        self._keys = [a.name for a in arguments if a.role == "key"]
        self._splits = self._given_splits()
        # The variant of the last call. The next call tries it first.
        self._variant = self._variant_of(program)
        if not self._inner:
            self._output_names = tuple(self._variant.outputs)
        self._state: Arrays | None = None
        if self._file_path is not None and not backend.writes:
            write_source(self._file_path, program.source)
        self._choose_fast_paths()

    def _given_splits(self) -> Splits:
        if not self._shardings:
            return {}
        given, names = self._shardings, self._roles
        if self._training is not None:
            given = {name: split for name, split in given.items() if name in names}
        return splits_for(self.backend, given, list(names))

    def _root_program(self) -> _core.Program:
        program = self._compiled(self._options["shapes"])
        if program.widens and not self.backend.wide:
            self.backend.widen()
            program = self._compiled(self._options["shapes"])
        return program

    def _variant_of(self, program: _core.Program) -> Variant:
        others = self._placement.backends[1:]
        homes = self._placement.homes(program, strict=self._training is None)
        variant = Variant(
            self.backend,
            program,
            jit=self.jit,
            file_path=self._file_path,
            others=others,
            homes=homes,
            staged=None if self._pipeline is None else self._staged_runner,
        )
        timed = self._verbose and self.backend.target.dialect == "machine"
        if timed and variant.runner is not None and not others:
            variant.runner.native.measure()
        if self._splits:
            variant.divide(self.backend, self._splits)
        if self._verbose and self._variants is not None and variant.runner is not None:
            print(self._report_of(variant))  # it was not known before a call needed it
        return variant

    def _compiled(self, shapes: Mapping[str, Any], *, at_call: bool = False) -> _core.Program:
        return _core.compile(
            self._model.block,
            self.backend.kind,
            self.backend.dtype,
            self.backend.wide,
            **{**self._options, "shapes": shapes, "watched": self._inner},
            **self.backend.compile_options(),
            **self._placement.compile_options(),
            file_path=self._file_path,
            at_call=at_call,
        )

    def _choose_fast_paths(self) -> None:
        """Decides which fast paths calls may take. Hooks, keys, states and `debug` need the slow
        path."""
        self._forward_only = not (self._keys or self._states or self._hooks or self._debug)
        self._gradients_without_state = self._forward_only and not self._options["inference"]

    @property
    def _arguments(self) -> Arguments:
        return self._variant.arguments

    def randomize_params(
        self,
        seed: int | None = None,
        init: Mapping[str, Any] | None = None,
        *,
        key: Any = None,
    ) -> Arrays:
        """Initial params by name, drawn with `seed`, `key`, or the backend's random numbers.

        A key is an integer, like a seed, or a random key: two uint32 words, as from
        `jax.random.key_data`. The same key gives the same values on every backend.

        `init` overrides the initial values of the blocks, by patterns of param names:
        `{"*.b": "zeros", "h.*.w": "kaiming_normal"}`. `*` matches any part of a name, including
        dots, `?` one character, and `[ab]` one of several. The first pattern that matches a param
        is used. Values are names, numbers or functions, as for the `init` of `Linear`.

        Params whose shapes depend on inputs that were not given with `shapes=` are filled in at the
        first `evaluate`, in the returned dict.

        Errors: `UsageError` for an invalid seed or key; `TerminalError` for a pattern that matches
        no param; an unknown `init`.
        """
        if seed is not None and key is not None:
            raise UsageError("`seed` and `key` cannot both be given\n  expected: one of them")
        if seed is not None and (not isinstance(seed, int) or seed < 0):
            raise UsageError(f"`seed` must be an integer of at least 0\n  got: {shown(seed)}")
        drawn = drawing.params(self._own, self.backend, seed if key is None else key, init)
        return self._at_home(drawn)

    def _at_home(self, params: Arrays) -> Arrays:
        """The params where the blocks that read them run, or divided over the mesh."""
        runner = self._variant.runner
        if self._splits:
            return self._divided(params)
        if self._pipeline is not None:
            return self._on_stages(params, runner)
        if self._placement.is_single or runner is None:
            return params
        return {
            name: value if isinstance(value, Deferred) else runner.at_home(name, value)
            for name, value in params.items()
        }

    get_parameters = randomize_params

    def initial_state(self, params: Arrays | None = None, inputs: Arrays | None = None) -> Arrays:
        """The initial state: arrays by name. `params` and `inputs` are needed only if states or
        their shapes depend on them.

        Errors: `MithrilError` if the shape of a state is not known.
        """
        shapes = self._arguments.checker.shapes if self._variants is None else self._variants.shapes
        known = shapes(dict(params or {}), inputs or {})
        return drawing.state(self._own, self.backend, known, params or {})

    @property
    def state(self) -> Arrays:
        """The current state of the compiled model: arrays by name.

        Errors: `MithrilError` before the first call if shapes are not known.
        """
        if self._training is not None:
            held = self._training.state
            return {name: held[name] for name in self._states}
        if self._state is None:
            self._state = self.initial_state()
        return self._state

    @state.setter
    def state(self, state: Arrays) -> None:
        if self._training is not None:
            raise UsageError(
                "a model made by `for_inference` reads the state of its training model"
                "\n  hint: set the state of the training model"
            )
        self._state = state

    def _state_of_call(self, params: Arrays, inputs: Arrays) -> Arrays:
        """The state for a call without one: the current state, or else the initial one."""
        if self._training is not None and self._training._state is not None:
            return self.state
        if self._state is None:
            initial = self.initial_state(params, inputs)
            if (self._training is None or self._one_initial) and not traced(self.backend, initial):
                self._state = initial
            return initial
        return self._state

    def bind(self, params: Mapping[str, Array]) -> CompiledModel:
        """A new compiled model in which these params are constants. Params and state are copied;
        hooks are kept.

        Errors: `TerminalError` for a name that is not a terminal of the model.
        """
        if not isinstance(params, Mapping):
            raise UsageError(
                f"`bind` takes a dict of params by name\n  got: {type(params).__name__}"
                "\n  hint: create one with `randomize_params()`"
            )
        unknown = [name for name in params if name not in self._roles]
        if unknown:
            _core.refuse_renamed([str(name) for name in params], self._params)
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
        holder = self if self._training is None else self._training
        if holder._state is not None:
            held = {name: backend.to_numpy(value) for name, value in self.state.items()}
            bound.state = {name: backend.from_numpy(value.copy()) for name, value in held.items()}
        for name, hooks in self._hooks.items():
            for hook in hooks:
                bound.register_hook(name, hook)
        return bound

    def rename_params(self, params: Mapping[str, Array]) -> Arrays:
        """Renames params that were saved before blocks of the same kind were added or removed. For
        example, `linear.w` becomes `linear_0.w` when a second `Linear` is added. Other names stay,
        and params that are new to the model are not added.

        Errors: `TerminalError` for a name that the model does not have and never had.
        """
        return renaming.rename(params, self._params)

    def for_inference(self, *, shapes: Mapping[str, Any] | None = None) -> CompiledModel:
        """The model compiled with `inference=True`. It takes the same params as this model. A
        `TrainModel` is compiled without losses, metrics and their targets.

        Each call reads the current state of this compiled model, such as running statistics.
        `shapes` overrides shapes of inputs, such as for another batch size.

        Errors: as for `ml.compile`.
        """
        return self._recompiled(
            self._model.plain,
            inference_options(self._model, self._options, shapes),
            training=self,
            backend_map=inference_map(self._model, self._backend_map),
        )

    def _with(self, options: dict[str, Any]) -> CompiledModel:
        """The same model compiled with other options, without hooks and without a file."""
        return self._recompiled(self._model, {**self._options, **options})

    def _recompiled(
        self, model: _core.Snapshot, options: dict[str, Any], **others: Any
    ) -> CompiledModel:
        kept = {
            "jit": self.jit,
            "debug": self._debug,
            "backend_map": self._backend_map,
            "devices": self._devices,
            "shardings": self._splits,
            "pipeline": self._pipeline,
        }
        return CompiledModel(model, self.backend, options, file_path=None, **{**kept, **others})

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        params: Mapping[str, Array] | None = None,
        cpu: str | Sequence[str] | None = None,
    ) -> dict[str, Path]:
        """Writes a shared library for C, its header and its metadata (JSON) to a folder. The values
        of `params`, if given, are written as safetensors. Returns the paths with the keys
        `library`, `header`, `metadata` and `weights`.

        `name` becomes part of the names of files and functions; the default is the model's name.
        `cpu` is the processor to compile for: `native`, `x86-64-v2` to `x86-64-v4`, or `arm64`. If
        several are given, the library chooses one at its first call. The default is the backend's
        processor.

        Errors: `BackendError` for a backend without native code, or if code cannot be generated;
        `MithrilError` for a model whose inputs have no shapes yet, or params that do not fit.
        """
        library = Library(self.backend, self._placement, name, cpu, params)
        # The library has no hooks, so the inner values that hooks need are not its outputs.
        runner = self._with({})._runner if self._inner else self._runner
        return library.write(runner.native, path_text(folder, "folder"))

    def evaluate(
        self,
        params: Arrays,
        inputs: Arrays,
        state: Arrays | None = None,
        output_gradients: OutputGradients = None,
    ) -> Any:
        """The outputs by name; with `output_gradients`, the tuple `(outputs, gradients)`.

        `output_gradients` is a dict by output of arrays, or of functions from the output to an
        array. It can also be one array if there is one output, a function from the dict of outputs
        to a dict, or `True` for ones for the output `final_cost`. `gradients` has an array for each
        param.

        With `state`, the next state is also returned, as the last value. Without `state`, the
        compiled model stores it.

        Errors: `MithrilError` for arrays with wrong names, ranks, dims or dtypes.
        """
        variant = self._variant
        if type(params) is not dict or self._training_params:
            params = self._own_params(params)
        try:
            if self._forward_only and output_gradients is None and state is None:
                if variant.check is None:
                    outputs = variant.forward(params, inputs)
                    if outputs is None:
                        variant, params, inputs = self._prepare(params, inputs)
                        outputs = variant.forward(params, inputs)
                    return outputs
                if not variant.check(params, inputs):
                    variant, params, inputs = self._prepare(params, inputs)
                return variant.forward(params, inputs)
            if self._gradients_without_state and state is None and variant.joint is not None:
                answer = variant.joint(params, inputs, output_gradients)
                if answer is not None:
                    return answer
            return self._run(params, inputs, state, output_gradients)
        except MithrilError:
            raise
        except Exception as error:
            compiled = functools.partial(self._compiled, at_call=True)
            raise_explained(error, self.backend, self._program, params, inputs, compiled=compiled)
            raise

    __call__ = evaluate

    def evaluate_gradients(
        self,
        params: Arrays,
        inputs: Arrays,
        output_gradients: OutputGradients = True,
        state: Arrays | None = None,
    ) -> Any:
        """Only the gradients. Arguments and errors are those of `evaluate`."""
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
            raise UsageError(f"`state` must be a mapping of arrays by name\n  got: {shown(state)}")
        if state and not self._states:
            raise TerminalError(
                f"Terminal not found: the model has no state `{next(iter(state))}`"
                "\n  expected: {} or None, as the model has no state"
            )
        own = None
        if self._states:
            own = self._state_of_call(params, inputs) if state is None else state
        if output_gradients is None:
            variant = self._choose_variant(params, inputs, own)
            params, inputs, own = variant.arguments.checked(params, inputs, own)
            outputs, following = variant.outputs_of(params, inputs, own)
            answer: tuple[Any, ...] = (self._run_hooks(outputs),)
        else:
            self._require_gradients()
            seeds: Seeds | ArraySeeds
            variant = self._variant
            if variant.fits(params, inputs, own, output_gradients):
                seeds = ArraySeeds(output_gradients)
            else:
                variant = self._choose_variant(params, inputs, own)
                seeds = Seeds(self.backend, variant.outputs, self.outputs, output_gradients)
                checked = variant.arguments.checked(params, inputs, own, seeds.arrays)
                params, inputs, own = checked
            outputs, gradients, following = variant.runner.gradients(params, inputs, own, seeds)
            answer = (self._run_hooks(outputs), gradients)
        if own is not None and following is not None:
            # Native code does not return states that a call leaves unchanged.
            following = {**own, **following}
        if state is not None:
            return (*answer, following if self._states else state)
        if following is not None and self._states and self._training is None:
            self._state = held(self.backend, following)
        return answer if len(answer) > 1 else answer[0]

    def _own_params(self, params: Any) -> Any:
        """The params as a dict, without those that only the training model has."""
        if not isinstance(params, Mapping):
            return params  # the check refuses this
        if self._training_params.isdisjoint(params):
            return params if isinstance(params, dict) else dict(params)
        return {name: value for name, value in params.items() if name not in self._training_params}

    def _choose_variant(self, params: Arrays, inputs: Arrays, state: Arrays | None) -> Variant:
        """The variant for these arrays. The next call tries it first."""
        if self._variants is None:
            return self._variant
        last = self._variant
        if last.program.is_open or not last.arguments.checker.admits(params, inputs, state):
            self._variant = last = self._variants.variant(params, inputs, state)
        return last

    def _prepare(self, params: Arrays, inputs: Arrays) -> tuple[Variant, Arrays, Arrays]:
        """The variant for these arrays, and the arrays converted to what it takes."""
        variant = self._choose_variant(params, inputs, None)
        params, inputs, _ = variant.arguments.prepared(params, inputs)
        return variant, params, inputs

    def _require_gradients(self) -> None:
        if self._options["inference"]:
            raise UsageError(
                "a model compiled with `inference=True` has no gradients"
                "\n  hint: compile it without",
                code="E0403",
            )
