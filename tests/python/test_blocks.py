"""Every block of the table, forward and gradient, in float64: NumPy, torch, JAX, native code and C
against each other, and against torch's or scikit-learn's function for the block."""

import inspect
from typing import Any

import levels
import numpy as np
import pytest
from block_cases import Case, array, build, by_another, close, variants
from cases import FAMILIES, ROWS
from conftest import CLASSES, INSTALLED

import mithril as ml
from mithril import _core, models

TOLERANCE = 1e-12
# A level changes native code and C alone.
COMPARED = ("numpy", "cpu", "c") if levels.OTHER else ("numpy", "torch", "jax", "mlx", "cpu", "c")
BACKENDS = [make for make in CLASSES if make.kind in COMPARED]
# Backends may differ in the signs of the other blocks' results.
NAMES = [name for name, row in ROWS.items() if not row.signed]


def tolerance_of(name: str, least: float = TOLERANCE) -> float:
    return max(least, ROWS[name].tolerance)


def results(name: str, case: Case, backend: Any, calls: int = 1, **more: Any) -> Any:
    """Outputs, gradients of their weighted sum, and inputs, by name as NumPy arrays. The gradients
    are those of the last of some equal calls. `more` are options of `ml.compile`."""
    model, shapes = build(name, case)
    options = {"shapes": shapes, "jit": backend.kind == "c", "random": "exact", **more}
    probe = ml.compile(model, backend, **options)
    floats = [n for n in probe.inputs if probe._arguments.dtypes[n].startswith("float")]
    compiled = ml.compile(model, backend, trainable_keys=floats, **options)
    rng = np.random.default_rng(7)
    arguments = {a.name: a for a in compiled._program.arguments}
    values = {}
    for n in sorted(arguments):
        if arguments[n].role in ("param", "data"):
            dims = tuple(int(d) for d in arguments[n].dims)
            values[n] = array(rng, name, arguments[n], dims)
    take = lambda names: {n: backend.array(values[n]) for n in names}  # noqa: E731
    keys = {n: np.array([1, 2], np.uint32) for n in arguments if arguments[n].role == "key"}
    params, inputs = take(compiled.params), take(set(compiled.inputs) - set(keys)) | keys
    outputs = compiled.evaluate(params, inputs)
    plain = {n: np.asarray(backend.to_numpy(v)) for n, v in outputs.items()}
    smooth = [n for n, v in plain.items() if v.dtype == np.float64]
    gradients = {}
    if params and smooth:
        weights = {n: backend.array(rng.standard_normal(plain[n].shape)) for n in smooth}
        for _ in range(calls):
            gradients = compiled.evaluate_gradients(params, inputs, weights)
        gradients = {n: np.asarray(backend.to_numpy(g)) for n, g in gradients.items()}
        weights = {n: np.asarray(backend.to_numpy(w)) for n, w in weights.items()}
        return plain, gradients, values, weights
    return plain, gradients, values, {}


@pytest.mark.parametrize("name", NAMES)
def test_backends_agree(name):
    for case in variants(name):
        tolerance = tolerance_of(name)
        found = [results(name, case, make(dtype=ml.float64)) for make in BACKENDS]
        for make, (outputs, gradients, _, _) in zip(BACKENDS[1:], found[1:], strict=True):
            close(outputs, found[0][0], f"{make.__name__}, {case}: output", tolerance)
            close(gradients, found[0][1], f"{make.__name__}, {case}: gradient of", tolerance)
        if case.row.function:
            outputs, gradients, values, weights = found[0]
            own, own_gradients = by_another(name, case, outputs, values, weights)
            close(outputs, own, f"another's own, {case}: output", TOLERANCE)
            if own_gradients:
                close(gradients, own_gradients, f"another's own, {case}: gradient of", tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_passes_keep_the_numbers_of_the_evaluator(name):
    case = variants(name)[0]
    model, shapes = build(name, case)
    backend = ml.NumpyBackend(dtype=ml.float64)
    program = ml.compile(model, backend, shapes=shapes, random="exact")._program
    rng = np.random.default_rng(7)
    given = {}
    for argument in sorted(program.arguments, key=lambda argument: argument.name):
        dims = tuple(int(d) for d in argument.dims)
        if argument.role in ("param", "data"):
            given[argument.name] = array(rng, name, argument, dims)
        elif argument.role == "key":
            given[argument.name] = np.array([1, 2], np.uint32)
        else:
            given[argument.name] = np.ones(dims, argument.dtype.name)
    assert program.bisect(given, TOLERANCE) is None


@pytest.mark.skipif("tinygrad" not in INSTALLED, reason="tinygrad is not there")
@pytest.mark.parametrize("name", NAMES)
def test_tinygrad_agrees(name):
    """The first case of each block: tinygrad takes seconds to compile some of them."""
    case = next(iter(variants(name)))
    want, got = (
        results(name, case, make(dtype=ml.float64))
        for make in (ml.NumpyBackend, ml.TinygradBackend)
    )
    tolerance = tolerance_of(name, 1e-11)
    close(got[0], want[0], f"{case}: output", tolerance)
    close(got[1], want[1], f"{case}: gradient of", tolerance)


LAZY = [kind for kind in ("mlx", "tinygrad") if kind in INSTALLED]


@pytest.mark.parametrize("kind", LAZY)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_as_source_agree_under_jit(name, kind):
    """`autodiff="mithril"` and `jit=True` on MLX and tinygrad, against NumPy."""
    backend = {"mlx": ml.MlxBackend, "tinygrad": ml.TinygradBackend}[kind](dtype=ml.float64)
    case = variants(name)[0]
    want = results(name, case, ml.NumpyBackend(dtype=ml.float64))
    got = results(name, case, backend, autodiff="mithril", jit=True)
    for one, other, what in zip(want, got, ("output", "gradient of")):
        close(other, one, f"{name}, {case} on {kind}: {what}", tolerance_of(name))


def test_every_block_has_one_row():
    names = [name for family in FAMILIES for name in family.ROWS]
    assert sorted(names) == sorted(_core.block_names())


def test_rows_name_settings_and_terminals_of_blocks():
    for name, row in ROWS.items():
        block = getattr(models, name)
        used = {setting for own in (row, *row.also) for setting in own.settings}
        assert used <= set(inspect.signature(block).parameters), name
        if row.shapes is not None:
            known = {i.rstrip("=") for i in _core.block_info(name).inputs}
            for case in variants(name):
                own = known or set(block(**case.settings).inputs)
                assert set(case.shapes) <= own, name
