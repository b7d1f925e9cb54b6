"""Every block of the table on every target, compiled once and run with any sizes, on arrays that
are not C-contiguous; as native code in each float dtype. Results are compared with another
library's function in float64, or with our source for another framework if no library has one."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from block_cases import array, build, by_another, close, variants
from cases import ROWS
from conftest import INSTALLED, MAKERS, has
from sklearn.exceptions import UndefinedMetricWarning

import mithril as ml
from mithril import _core

Arrays = dict[str, Any]
# Names of the dims that replace the sizes of a block's case.
NAMES = {2: "a", 3: "b", 4: "c", 5: "d", 6: "e"}
# Sizes that are multiples of no vector or tile, and empty ones.
SIZES = [
    {"a": 2, "b": 7, "c": 17, "d": 33, "e": 9},
    {"a": 1, "b": 1, "c": 1, "d": 1, "e": 3},
    {"a": 7, "b": 127, "c": 33, "d": 17, "e": 127},
    {"a": 1, "b": 1000, "c": 333, "d": 7, "e": 1000},
    {"a": 17, "b": 0, "c": 7, "d": 1, "e": 33},
]
# Of frameworks, whose kernels are not ours, and of further cases.
SMALL = [
    {"a": 2, "b": 7, "c": 5, "d": 9, "e": 6},
    {"a": 1, "b": 1, "c": 1, "d": 1, "e": 3},
    {"a": 4, "b": 3, "c": 8, "d": 5, "e": 11},
    {"a": 5, "b": 0, "c": 4, "d": 1, "e": 7},
]
# Errors of other libraries for sizes at which a function is not defined.
REFUSED = (RuntimeError, IndexError, ValueError, UndefinedMetricWarning)
# Relative to the largest value: in double and single precision the rounding errors of sums of some
# thousand numbers; in half precision two units in the last place, as sums are in single precision.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 2.0**-6, "float16": 2.0**-9}
CASES = [
    (name, number)
    for name, row in ROWS.items()
    if not row.signed
    for number in range(len(variants(name)) if row.also else 1)
]
# tinygrad compiles a kernel for each few operations.
SOURCES = ("numpy", "torch", "jax", "mlx")
FRAMEWORKS = [(kind, *case) for kind in INSTALLED if kind in SOURCES for case in CASES]
DTYPES = [
    (name, dtype)
    for dtype in TOLERANCES
    for name, row in ROWS.items()
    if not row.signed and (row.halves or dtype not in ("bfloat16", "float16"))
]
# Compiling C is slow, so each case has one of the dtypes.
IN_C = [
    (*case, dtype if ROWS[case[0]].halves or "16" not in dtype else "float32")
    for case, dtype in zip(CASES, itertools.cycle(TOLERANCES))
]


def numpy_dtype(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


def is_float(x: Any) -> bool:
    return bool(x.dtype.kind == "f" or x.dtype == ml_dtypes.bfloat16)


def wide(arrays: Mapping[str, Any]) -> Arrays:
    return {n: x.astype(np.float64) if is_float(x) else x for n, x in arrays.items()}


def rounded(arrays: Mapping[str, Any], like: Mapping[str, Any]) -> Arrays:
    """Rounds values to the dtypes of the other arrays, and returns them in double precision."""
    with np.errstate(over="ignore", under="ignore"):
        return wide({n: x.astype(like[n].dtype) for n, x in arrays.items()})


def view(x: Any, way: int) -> Any:
    """A copy in another memory layout: column-major, with gaps, or reversed."""
    if way % 3 == 0:
        return x.copy("F")
    step = slice(None, None, 2 if way % 3 == 1 else -1)
    base = np.zeros([2 * n if way % 3 == 1 else n for n in x.shape], x.dtype)
    base[(step,) * x.ndim] = x
    return base[(step,) * x.ndim]


class Sized:
    """A case of a block that is compiled once, with all its floating-point inputs as params."""

    def __init__(
        self, name: str, backend: Any, number: int = 0, dtypes: Mapping[str, Any] | None = None
    ) -> None:
        self.name, self.backend = name, backend
        self.case = variants(name)[number]
        self.model, shapes = build(name, replace(self.case, dtypes=dtypes or self.case.dtypes))
        kept = self.case.row.kept or ROWS[name].kept
        kept = kept if isinstance(kept, tuple) else (kept,)
        self.shapes = {
            n: [d if d in kept else NAMES.get(d, d) for d in dims] for n, dims in shapes.items()
        }
        probe = self.compile(ml.NumpyBackend(), jit=False)
        self.floats = [n for n in probe.inputs if probe._arguments.dtypes[n].startswith("float")]
        self.compiled = self.compile(backend, trainable_keys=self.floats)
        arguments = self.compiled._program.arguments
        self.arguments = {a.name: a for a in arguments if a.role in ("param", "data")}
        self.keys = {a.name: np.array([1, 2], np.uint32) for a in arguments if a.role == "key"}

    def compile(self, backend: Any, **options: Any) -> Any:
        return ml.compile(self.model, backend, shapes=self.shapes, random="exact", **options)

    def values(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Arrays:
        most = min(3, *(size for size in sizes.values() if size))
        arguments = sorted(self.arguments.items())
        shapes = {n: [eval(d, {}, sizes) for d in a.dims] for n, a in arguments}
        return {
            n: array(rng, self.name, self.arguments[n], shape, most) for n, shape in shapes.items()
        }

    def split(self, values: Mapping[str, Any]) -> tuple[Arrays, Arrays]:
        params = {n: values[n] for n in self.compiled.params}
        return params, {n: x for n, x in values.items() if n not in params} | self.keys

    def weights(self, outputs: Arrays, rng: np.random.Generator) -> Arrays:
        """The weights of the sum of outputs that is differentiated."""
        if not self.compiled.params:
            return {}
        dtypes = {r.name: r.dtype.name for r in self.compiled._program.results}
        return {
            n: np.asarray(rng.standard_normal(y.shape)).astype(numpy_dtype(dtypes[n]))
            for n, y in outputs.items()
            if is_float(y)
        }

    def run(self, values: Arrays, weights: Arrays, way: int) -> tuple[Arrays, Arrays]:
        viewed = {n: view(x, way + i) for i, (n, x) in enumerate(values.items())}
        weights = {n: view(x, way) for n, x in weights.items()}
        if self.backend.kind not in ("numpy", "cpu", "c"):
            viewed, weights = (
                {n: self.backend.from_numpy(np.asarray(x)) for n, x in arrays.items()}
                for arrays in (viewed, weights)
            )
        params, inputs = self.split(viewed)
        if self.compiled.states:
            self.compiled.state = self.compiled.initial_state(params, inputs)
        if not weights:
            return self.plain(self.compiled.evaluate(params, inputs)), {}
        found = self.compiled.evaluate(params, inputs, output_gradients=weights)
        outputs, gradients = found
        return self.plain(outputs), self.plain(gradients)

    def plain(self, arrays: Mapping[str, Any]) -> Arrays:
        return {n: np.asarray(self.backend.to_numpy(x)) for n, x in arrays.items()}

    def wanted(self, values: Arrays, weights: Arrays) -> tuple[Arrays, Arrays]:
        if self.case.row.function:
            outputs = self.compiled.outputs
            return by_another(self.name, self.case, outputs, wide(values), wide(weights))
        # Random numbers depend on the dtype, so it must be the same.
        same = _core.block_info(self.name).group == "Random" or self.name.startswith("Dropout")
        make = ml.TorchBackend if self.backend.kind == "numpy" else ml.NumpyBackend
        backend = make(dtype=self.backend.dtype if same else ml.float64)
        values, weights = (values, weights) if same else (wide(values), wide(weights))
        own = self.compile(backend, trainable_keys=self.floats)
        params, inputs = self.split(values)
        found = own.evaluate(params, inputs), {}
        if weights:
            found = found[0], own.evaluate_gradients(params, inputs, weights)
        return tuple({n: np.asarray(x) for n, x in arrays.items()} for arrays in found)


def check(name: str, backend: Any, number: int = 0) -> None:
    sized = Sized(name, backend, number)
    kind = backend.dtype.name
    own = backend.kind in ("cpu", "c")
    # Where a gradient is 0, the expected one may be a difference of numbers near 1.
    step = max(1e-15, float(ml_dtypes.finfo(numpy_dtype(kind)).smallest_subnormal))
    tolerance = max(TOLERANCES[kind], ROWS[name].tolerance if kind == "float64" else 0)
    compared = 0
    large = number == 0 and own
    for way, sizes in enumerate(SIZES if large else SMALL):
        if sizes["b"] < ROWS[name].least:
            continue
        rng = np.random.default_rng(way)
        values = sized.values(sizes, rng)
        try:
            want, wanted = sized.wanted(values, {})
            weights = sized.weights(want, rng)
            if weights:
                want, wanted = sized.wanted(values, weights)
        except REFUSED:
            continue
        outputs, gradients = sized.run(values, weights, way)
        what = f"{name}, {kind}, {sizes}"
        close(wide(outputs), rounded(want, outputs), f"{what}: output", TOLERANCES[kind])
        if wanted:
            wanted = rounded(wanted, values)
            close(wide(gradients), wanted, f"{what}: gradient of", tolerance, step)
        compared += 1
    # The other library refuses further cases at most sizes.
    assert compared >= (1 if number else 3 if large else 2)


def tier(name: str, dtype: str) -> str:
    """The tier to test. Cranelift's code has the same bits as LLVM's and compiles faster. LLVM's is
    tested in float32, and in bfloat16 for blocks that accumulate."""
    adds = _core.block_info(name).group in ("Reduce", "Layer")
    return "llvm" if dtype == "float32" or (adds and dtype == "bfloat16") else "instant"


# NumPy warns of numbers that are not defined, as of a mean of no elements.
UNDEFINED = pytest.mark.filterwarnings("ignore::RuntimeWarning")
NO_FREEDOM = pytest.mark.filterwarnings("ignore:(var|std)\\(\\). degrees of freedom:UserWarning")


@NO_FREEDOM
@UNDEFINED
@pytest.mark.parametrize(("kind", "name", "number"), FRAMEWORKS)
def test_source_at_any_size(kind, name, number):
    check(name, getattr(ml, MAKERS[kind])(dtype=ml.float64), number)


@NO_FREEDOM
@pytest.mark.skipif(not has("cpu"), reason="built without native code")
@pytest.mark.parametrize(("name", "dtype"), DTYPES)
def test_native_code_at_any_size(name, dtype):
    check(name, ml.CpuBackend(dtype=dtype, tier=tier(name, dtype)))


@NO_FREEDOM
@pytest.mark.skipif(not has("cpu"), reason="built without native code")
@pytest.mark.parametrize(("name", "number"), [case for case in CASES if case[1]])
def test_further_cases_at_any_size(name, number):
    check(name, ml.CpuBackend(dtype=ml.float64, tier="instant"), number)


@NO_FREEDOM
@pytest.mark.skipif(not has("c"), reason="there is no C compiler")
@pytest.mark.parametrize(("name", "number", "dtype"), IN_C)
def test_c_at_any_size(name, number, dtype):
    check(name, ml.CBackend(dtype=dtype), number)


def check_whole(sized: Sized) -> None:
    """Compares integers and bools with our NumPy source, element by element."""
    own = sized.compile(ml.NumpyBackend())
    for way, sizes in enumerate(SIZES):
        values = sized.values(sizes, np.random.default_rng(way))
        if "denominator" in values:
            # A quotient by 0 is undefined, and NumPy's result differs.
            values["denominator"] = np.maximum(values["denominator"], 1)
        try:
            want = own.evaluate(*sized.split(values))
        except (ml.ShapeError, IndexError):
            continue
        got, _ = sized.run(values, {}, way)
        for n, y in want.items():
            assert got[n].dtype == y.dtype
            np.testing.assert_array_equal(got[n], y, f"{sized.name}, {sizes}: {n}")


@pytest.mark.skipif(not has("cpu"), reason="built without native code")
@pytest.mark.parametrize(("dtype", "least"), [("int32", 90), ("uint8", 90), ("bool", 50)])
def test_integers_and_bools_at_any_size(dtype, least):
    count = 0
    for name in _core.block_names():
        try:
            sized = Sized(name, ml.CpuBackend(tier="instant"), dtypes={"*": getattr(ml, dtype)})
        except ml.MithrilError:
            continue
        check_whole(sized)
        count += 1
    assert count >= least
