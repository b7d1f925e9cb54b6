"""`ml.diff`: compares one model on several backends, block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from . import _core
from .backends import BUILT_IN
from .errors import BackendError, TerminalError, UsageError, mapping, shown
from .findings import GRADIENT, Culprit, Difference, Finding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .backends.base import Backend
    from .compilation import Shape
    from .compiled import CompiledModel

__all__ = ["diff"]

Arrays = dict[str, Any]

DOUBLE = ("float64", "fp64", "f64", "double")
"""The values of `against` that select NumPy's source in double precision."""

TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""The tolerance of each dtype, relative to the largest absolute value of an array."""


def diff(
    model: _core.Block,
    backends: Sequence[str | Backend] | None = None,
    *,
    against: str | Backend | None = None,
    shapes: Mapping[str, Shape] | None = None,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    gradients: bool = False,
    bisect: bool = False,
    dtype: object = None,
    **options: Any,
) -> Difference:
    """Runs a model on several backends with the same arrays, and compares the values of blocks.

    `backends` are backends or their names (numpy, torch, jax, mlx, tinygrad, cpu, c); the default
    is all that are installed. `dtype` is the dtype of backends given by name. The reference is
    NumPy's source without optimizations, in the dtype of the first backend. `against="float64"`
    computes the reference in double precision; `against` can also be a backend.

    Arrays that are not given are drawn with `seed`: normally distributed floats, and integers 0 and
    1. Dims without a number become small numbers. `gradients` also compares the gradients of the
    params, for random output gradients (1 for a scalar). `tolerance` is the largest allowed
    difference, relative to the largest absolute value of the array; the default depends on the
    dtype. `options` are those of `ml.compile`; options for native code apply only to native
    backends.

    A backend of a package has a name as well, which `ml.backends.names` lists, but is compared only
    if it is given.

    If an output or next state differs, the comparison descends into the first block that differs. A
    block may differ although no output does, as other blocks can compensate. `bisect` runs the
    program after each pass on the reference evaluator, to find the pass and the rule that change
    the values.

    Errors: as for `ml.compile` and `evaluate`; `UsageError` for arrays that cannot be drawn.
    """
    if not isinstance(model, _core.Block):
        raise UsageError(
            f"`model` cannot be compared\n  got: {type(model).__name__}"
            "\n  expected: a model or a block"
        )
    if not isinstance(seed, int) or seed < 0:
        raise UsageError(f"`seed` must be an integer of at least 0\n  got: {shown(seed)}")
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and tolerance >= 0):
        raise UsageError(f"`tolerance` must be a number of at least 0\n  got: {shown(tolerance)}")
    for keyword, given in {"params": params, "inputs": inputs}.items():
        mapping(given, keyword, "arrays by name")
    options = {**options, "shapes": mapping(shapes, "shapes", "shapes by name")}
    chosen = _chosen_backends(backends, dtype)
    own = inputs or {}
    run = _Comparison(model, chosen, against, inputs=own, options=options, gradients=gradients)
    arrays = run.draw(params, inputs, seed)
    expected = run.values(run.reference, run.exact, arrays)
    if tolerance is None:
        tolerance = TOLERANCES[run.backends[0].dtype.name]
    findings = []
    for backend in run.backends:
        try:
            finding = run.finding(backend, arrays, expected, tolerance)
        except BackendError:
            if backends is None:
                continue  # there is no compiler for this backend
            raise
        if bisect and not finding.agrees:
            finding = replace(finding, culprit=run.culprit(backend, arrays, tolerance))
        findings.append(finding)
    return Difference(run.name, tolerance, tuple(findings))


def _chosen_backends(backends: Sequence[str | Backend] | None, dtype: object) -> list[Backend]:
    from .backends.base import Backend  # noqa: PLC0415

    if backends is None:
        return [made for name in BUILT_IN if (made := _installed(name, dtype)) is not None]
    if isinstance(backends, (str, Backend)):
        backends = [backends]
    chosen = [_backend(b, dtype=dtype) if isinstance(b, str) else b for b in backends]
    wrong = next((b for b in chosen if not isinstance(b, Backend)), None)
    if wrong is not None or not chosen:
        raise UsageError(
            "`backends` cannot be compared\n  got: "
            + ("none" if wrong is None else type(wrong).__name__)
            + f"\n  expected: backends, or names of {', '.join(BUILT_IN)}"
        )
    return chosen


def _backend(name: str, *others: str, **options: Any) -> Backend:
    """The backend with this name. Errors: an unknown name; `others` are listed as valid, too."""
    from .backends.custom import find, names  # noqa: PLC0415

    if name not in names():
        known = [*BUILT_IN, *others]
        near = _core.did_you_mean(name, [*known, *names()])
        raise UsageError(
            f"there is no backend `{name}`\n  expected: {', '.join(known)}"
            + (f"\n  hint: {near}" if near else "")
        )
    return find(name)(**options)


def _installed(name: str, dtype: object) -> Backend | None:
    try:
        return _backend(name, dtype=dtype)
    except BackendError:
        return None


class _Comparison:
    """A model, and the backends to compare it on."""

    def __init__(
        self,
        model: _core.Block,
        backends: list[Backend],
        against: str | Backend | None,
        *,
        inputs: Mapping[str, Any],
        options: dict[str, Any],
        gradients: bool,
    ) -> None:
        self.model = model
        self.backends = backends
        self.options = options
        self.gradients = gradients
        self.exact: dict[str, Any] = {"optimization_level": "none", "math": "exact"}
        dtype = backends[0].dtype
        if against in DOUBLE:
            against, dtype = None, _core.DType("float64")
        if against is None:
            self.reference = _backend("numpy", dtype=dtype)
            self.name = f"the model as it is written, in {dtype.name}"
        else:
            self.reference = _backend(against, "float64") if isinstance(against, str) else against
            self.name, self.exact = repr(self.reference), {}
        self._give_ranks(inputs)
        self.paths = [block.path for block in self._costs().blocks if block.path]

    def _give_ranks(self, inputs: Mapping[str, Any]) -> None:
        """Adds the ranks and dtypes that compiling needs to the options, taken from the inputs."""
        backend = _backend("numpy", dtype=self.backends[0].dtype)
        while True:
            program = self.compiled(backend, self.exact)._program
            needed, masks = program.needs_ranks, program.needs_dtypes
            if not (needed or masks):
                return
            if any(name not in inputs for name in [*needed, *masks]):
                program.settled()  # raises the error that names them
            ranks = {name: [None] * _as_numpy(inputs[name]).ndim for name in needed}
            kinds = {name: _as_numpy(inputs[name]).dtype.kind for name in masks}
            dtypes = {n: "bool" if kind == "b" else backend.dtype for n, kind in kinds.items()}
            self.options["shapes"] = {**self.options["shapes"], **ranks}
            self.options["dtypes"] = {**self.options.get("dtypes", {}), **dtypes}

    def _costs(self) -> Any:
        inference = bool(self.options.get("inference"))
        return self.model.cost(self.options["shapes"], inference=inference)

    def compiled(self, backend: Backend, more: dict[str, Any]) -> CompiledModel:
        from .compilation import compile as compiled  # noqa: PLC0415

        # `exact` draws the same random numbers on every backend.
        options = {"random": "exact", **self.options, **more}
        if backend.writes:
            options.pop("memory_budget", None)
        return compiled(self.model, backend, **options)

    def draw(self, params: Any, inputs: Any, seed: int) -> tuple[Arrays, Arrays]:
        """Params and inputs, as NumPy arrays in the dtype of the first backend."""
        import numpy as np  # noqa: PLC0415

        backend = _backend("numpy", dtype=self.backends[0].dtype)
        compiled = self.compiled(backend, self.exact)
        generator = np.random.default_rng(seed)
        taken = {name: _as_numpy(value) for name, value in (inputs or {}).items()}
        dims = _Dims()
        for argument in compiled._program.arguments:
            if argument.role in ("data", "key") and argument.name not in taken:
                shape = dims.shape(argument)
                taken[argument.name] = _draw_input(generator, argument, shape)
        taken = _cast_to(taken, compiled)
        if params is None:
            params = compiled.randomize_params(seed)
            with np.errstate(all="ignore"):
                compiled.evaluate(params, taken)
        return _cast_to({n: _as_numpy(value) for n, value in params.items()}, compiled), taken

    def values(
        self, backend: Backend, more: dict[str, Any], arrays: tuple[Arrays, Arrays]
    ) -> dict[str, NDArray[Any]]:
        """The outputs and states by name, then the gradients. With `keep` in `more`, the values of
        those blocks are included, and the gradients are not."""
        import numpy as np  # noqa: PLC0415

        compiled = self.compiled(backend, more)
        params, inputs = ({n: self._converted(backend, v) for n, v in a.items()} for a in arrays)
        with np.errstate(all="ignore"):
            outputs = compiled.evaluate(params, inputs)
        values = {name: backend.to_numpy(value) for name, value in outputs.items()}
        states = compiled.state if compiled.states else {}
        values.update({f"state {n}": backend.to_numpy(v) for n, v in states.items()})
        if self.gradients and "keep" not in more:
            floats = {r.name for r in compiled._program.results if r.dtype.is_float}
            given = _cotangents({n: values[n] for n in sorted(floats & set(outputs))})
            own = {n: backend.from_numpy(v.astype(values[n].dtype)) for n, v in given.items()}
            with np.errstate(all="ignore"):
                _, gradients = compiled.evaluate(params, inputs, output_gradients=own)
            named = gradients.items()
            values.update({GRADIENT + n: backend.to_numpy(v) for n, v in named})
        return values

    def _converted(self, backend: Backend, value: NDArray[Any]) -> Any:
        """Converts the array to the backend's, with floats in the backend's dtype."""
        from .backends.dtypes import numpy_dtype  # noqa: PLC0415

        if value.dtype == numpy_dtype(self.backends[0].dtype):
            value = value.astype(numpy_dtype(backend.dtype))
        return backend.from_numpy(value.copy())

    def finding(
        self,
        backend: Backend,
        arrays: tuple[Arrays, Arrays],
        expected: dict[str, NDArray[Any]],
        tolerance: float,
    ) -> Finding:
        errors = _errors(self.values(backend, {}, arrays), expected)
        outputs = tuple(errors)
        agrees = not any(error > tolerance for error in errors.values())
        first, inside = None, ""
        while paths := self._children(inside):
            keep = {"keep": paths}
            try:
                kept = self.values(self.reference, {**self.exact, **keep}, arrays)
            except TerminalError:
                break  # these blocks compute nothing
            found = _errors(self.values(backend, keep, arrays), kept)
            inner = {name: error for name, error in found.items() if name not in outputs}
            errors.update(inner)
            wrong = [n for n, error in inner.items() if error > tolerance]
            if agrees or not wrong:
                break
            first = inside = next(p for p in paths if wrong[0] == p or wrong[0].startswith(p + "."))
        return Finding(backend.kind, errors, outputs, first, agrees=agrees)

    def _children(self, path: str) -> list[str]:
        """The paths of the blocks directly inside a block, in the order of computation."""
        front = f"{path}." if path else ""
        return [p for p in self.paths if p.startswith(front) and "." not in p[len(front) :]]

    def culprit(self, backend: Backend, arrays: tuple[Arrays, Arrays], tolerance: float) -> Culprit:
        compiled = self.compiled(backend, {})
        params, inputs = arrays
        given = {
            n: self._converted(_backend("numpy", dtype=backend.dtype), v) for n, v in params.items()
        }
        given |= {
            n: self._converted(_backend("numpy", dtype=backend.dtype), v) for n, v in inputs.items()
        }
        state = compiled.initial_state(params, inputs)
        given |= {name: backend.to_numpy(value) for name, value in state.items()}
        culprit = compiled._program.bisect(_cast_to(given, compiled), tolerance)
        if culprit is None:
            return Culprit("code")
        stage, rule, places = culprit
        return Culprit(stage, rule, tuple(places))


class _Dims:
    """Chooses sizes for dims that have only names."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def shape(self, argument: _core.Argument) -> tuple[int, ...]:
        if argument.shape is not None:
            return tuple(argument.shape)
        return tuple(self._size(argument, dim) for dim in argument.dims)

    def _size(self, argument: _core.Argument, dim: str) -> int:
        if dim.isdigit():
            return int(dim)
        if not dim.isidentifier():
            raise UsageError(
                f"no array can be drawn for `{argument.name}`"
                f"\n  got: the dims {', '.join(argument.dims)}"
                f"\n  hint: give its shape with `shapes=`, or the array with `inputs=`"
            )
        return self._known.setdefault(dim, 2 + len(self._known) % 4)


def _cotangents(outputs: Mapping[str, NDArray[Any]]) -> Arrays:
    """Output gradients that are the same for each backend and exact in every float dtype. Ones
    would hide errors in a softmax, whose sum is constant. A scalar, such as a loss, gets 1."""
    import numpy as np  # noqa: PLC0415

    generator = np.random.default_rng(0)
    return {
        name: np.asarray(generator.integers(-8, 9, value.shape) / 4 if value.ndim else 1.0)
        for name, value in outputs.items()
    }


def _draw_input(
    generator: np.random.Generator, argument: _core.Argument, shape: tuple[int, ...]
) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415

    from .backends.dtypes import numpy_dtype  # noqa: PLC0415

    dtype = numpy_dtype(argument.dtype)
    if argument.role == "key":
        return generator.integers(2**32, size=shape, dtype=np.uint32)
    if argument.dtype.is_float:
        return np.asarray(generator.standard_normal(shape)).astype(dtype)
    return np.asarray(generator.integers(0, 2, shape)).astype(dtype)


def _cast_to(arrays: Arrays, compiled: CompiledModel) -> Arrays:
    """Casts arrays to the dtypes of the program, but not between integers and floats."""
    from .backends.dtypes import numpy_dtype  # noqa: PLC0415

    wanted = {a.name: a.dtype for a in compiled._program.arguments}
    own = {}
    for name, value in arrays.items():
        dtype = wanted.get(name)
        alike = dtype is not None and _core.DType(value.dtype).is_float == dtype.is_float
        own[name] = value.astype(numpy_dtype(dtype)) if alike and dtype else value
    return own


def _as_numpy(value: Any) -> NDArray[Any]:
    from .backends.foreign import as_numpy  # noqa: PLC0415

    return as_numpy(value)


def _errors(
    got: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]
) -> dict[str, float]:
    """The error of each array. Errors of gradients are relative to the largest gradient of all, as
    some are 0 except for rounding, such as that of the bias of attention's keys."""
    gradients = [_largest(v) for name, v in expected.items() if name.startswith(GRADIENT)]
    errors = {}
    for name, value in expected.items():
        if name in got:
            scale = max(gradients) if name.startswith(GRADIENT) else _largest(value)
            errors[name] = _error(got[name], value, scale)
    return errors


def _largest(array: NDArray[Any]) -> float:
    """The largest absolute value among the finite elements; 0 if there are none."""
    import numpy as np  # noqa: PLC0415

    values = np.asarray(array, dtype="float64")
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _error(got: NDArray[Any], expected: NDArray[Any], scale: float) -> float:
    """The largest difference, divided by `scale` unless that is 0. It is infinite if an element of
    only one array is NaN or infinite."""
    import numpy as np  # noqa: PLC0415

    if got.shape != expected.shape:
        return float("inf")
    a, b = np.asarray(got, dtype="float64"), np.asarray(expected, dtype="float64")
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    if not (np.isfinite(a[~same]).all() and np.isfinite(b[~same]).all()):
        return float("inf")
    return float(np.abs(a[~same] - b[~same]).max()) / (scale or 1.0)


def main(request: str) -> NoReturn:
    """Runs `mithril diff`: prints the comparison, and exits with 1 if backends differ."""
    import json  # noqa: PLC0415
    import sys  # noqa: PLC0415

    from .errors import MithrilError  # noqa: PLC0415

    options = json.loads(request)
    try:
        model = _core.Model.load(options["file"], options["trust_code"])
        arrays = _loaded(options["arrays"])
        keywords = {"dtype": options["dtype"], **options["keywords"]}
        found = diff(model, options["backends"], inputs=arrays, **keywords)
    except (MithrilError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    _print(str(found))
    sys.exit(0 if found.agrees else 1)


def _print(text: str) -> None:
    """Prints the text, and exits with 2 and the system's error if it cannot be written. A closed
    pipe is not an error: its reader has read enough."""
    import os  # noqa: PLC0415
    import sys  # noqa: PLC0415

    try:
        print(text, flush=True)
    except OSError as error:
        # Python flushes the rest at exit, so redirect standard output to the null device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            print(f"error: standard output cannot be written\n  got: {error}", file=sys.stderr)
            sys.exit(2)


def _loaded(file: str | None) -> dict[str, Any]:
    if file is None:
        return {}
    import numpy as np  # noqa: PLC0415

    try:
        with np.load(file) as arrays:
            return dict(arrays)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"`--inputs` must be an .npz file of arrays\n  got: {file}\n  NumPy says: {error}"
        ) from error
