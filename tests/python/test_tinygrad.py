"""Models on tinygrad: gradients by tinygrad and by Mithril, `TinyJit`, and whole networks."""

import os
import subprocess
import sys

import fuzz
import numpy as np
import pytest
from conftest import INSTALLED
from networks import MODELS

import mithril as ml
from mithril import IOKey, Model, _core
from mithril.models import (
    Linear,
    Relu,
    Sequential,
)

tinygrad = pytest.importorskip("tinygrad")
if "tinygrad" not in INSTALLED:
    pytest.skip("tinygrad has no compiler", allow_module_level=True)
Tensor, dtypes = tinygrad.Tensor, tinygrad.dtypes


def answers(backend, name, shapes, **options):
    """The outputs and the gradients of a model, for params that are the same on all backends."""
    make, draw = MODELS[name]
    compiled = ml.compile(make(), backend, shapes=shapes, **options)
    params = compiled.randomize_params(seed=3)
    x = draw(np.random.default_rng(0))
    inputs = {"input": backend.array(x)}
    outputs = compiled.evaluate(params, inputs)
    seed = np.random.default_rng(1).standard_normal(outputs["output"].shape)
    again, gradients = compiled.evaluate(
        params, inputs, output_gradients={"output": backend.array(seed)}
    )
    assert set(gradients) == set(params)
    found = {**outputs, **gradients}
    if backend.kind == "tinygrad":
        assert all(isinstance(value, Tensor) for value in found.values())
        assert all(value.uop.is_realized for value in found.values())
        first, second = outputs["output"].numpy(), again["output"].numpy()
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-5)
    return {key: backend.to_numpy(value) for key, value in found.items()}


# jit, autodiff, open batch, dtype: each value of each with each model.
OPTIONS = [
    (False, "framework", False, "float64"),
    (True, "framework", True, "float32"),
    (True, "mithril", False, "float32"),
    (False, "mithril", True, "float64"),
]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("jit", "autodiff", "open_batch", "dtype"), OPTIONS)
def test_networks_agree_with_numpy(name, jit, autodiff, open_batch, dtype):
    draw = MODELS[name][1]
    sizes = list(draw(np.random.default_rng(0)).shape)
    shapes = {"input": ["n", *sizes[1:]] if open_batch else sizes}
    want = answers(ml.NumpyBackend(dtype), name, shapes)
    got = answers(ml.TinygradBackend(dtype), name, shapes, jit=jit, autodiff=autodiff)
    tolerance = {"float32": 2e-4, "float64": 1e-9}[dtype]
    for key, value in want.items():
        scale = max(1e-3, np.abs(value).max())
        np.testing.assert_allclose(got[key], value, rtol=0, atol=tolerance * scale)


@pytest.fixture
def linear():
    """A compiled linear layer, with and without a jit, and its params."""

    def make(**options):
        compiled = ml.compile(Linear(2), ml.TinygradBackend(), shapes={"input": [3, 4]}, **options)
        return compiled, compiled.randomize_params(seed=0)

    return make


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
@pytest.mark.parametrize(
    ("block", "shape"), [(ml.ReflectionPad((1, 3)), [2, 3, 4, 5]), (ml.Quantile(0.3), [9])]
)
def test_gradients_of_slices_and_of_a_single_element(block, shape, autodiff):
    x = np.random.default_rng(0).standard_normal(shape)
    found = []
    for backend, own in ((ml.NumpyBackend(), {}), (ml.TinygradBackend(), {"autodiff": autodiff})):
        shapes = {"input": shape}
        compiled = ml.compile(block, backend, shapes=shapes, trainable_keys=["input"], **own)
        params = {"input": backend.array(x)}
        seeds = {"output": lambda y: y * 2}
        found.append(backend.to_numpy(compiled.evaluate_gradients(params, {}, seeds)["input"]))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@pytest.mark.parametrize("jit", [False, True])
def test_output_gradients_may_be_functions(jit, linear):
    compiled, params = linear(jit=jit)
    x = compiled.backend.ones(3, 4)
    _, gradients = compiled.evaluate(
        params, {"input": x}, output_gradients=lambda own: {"output": 2 * own["output"]}
    )
    y = np.ones((3, 4)) @ params["w"].numpy() + params["b"].numpy()
    np.testing.assert_allclose(gradients["b"].numpy(), 2 * y.sum(0), rtol=1e-5)


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
def test_jits_follow_their_arguments_and_keep_their_results(autodiff, linear):
    compiled, params = linear(jit=True, autodiff=autodiff)
    w, b = params["w"].numpy(), params["b"].numpy()
    kept = []
    for i in range(5):
        x = np.full((3, 4), float(i), np.float32)
        inputs = {"input": compiled.backend.array(x)}
        outputs = compiled.evaluate(params, inputs)
        seed = {"output": compiled.backend.full((3, 2), float(i))}
        _, gradients = compiled.evaluate(params, inputs, output_gradients=seed)
        kept.append((x, outputs["output"], gradients))
    for i, (x, output, gradients) in enumerate(kept):
        np.testing.assert_allclose(output.numpy(), x @ w + b, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(gradients["b"].numpy(), [3 * i, 3 * i], rtol=1e-5)
        want = x.T @ np.full((3, 2), float(i))
        np.testing.assert_allclose(gradients["w"].numpy(), want, rtol=1e-5)


def test_jits_take_equal_tensors_constants_views_and_other_shapes():
    model = Model()
    model |= ml.Add()(left="a", right="b", output="total")
    model |= ml.Multiply()(left="total", right="a", output=IOKey("output"))
    shapes = {"a": ["n", 2], "b": ["n", 2]}
    compiled = ml.compile(model, ml.TinygradBackend(), shapes=shapes, jit=True)
    for n in (3, 1, 0, 3, 3):
        whole = compiled.backend.rand(n + 2, 2)
        constant = Tensor(2.0, dtype=dtypes.float32).expand(n, 2)
        for x in (whole[:n], constant, whole[1 : n + 1], Tensor.ones(n, 2), whole[2:].flip(0)):
            output = compiled.evaluate({}, {"a": x, "b": x})["output"]
            np.testing.assert_allclose(output.numpy(), 2 * x.numpy() ** 2, rtol=1e-6)


def test_equal_params_have_gradients_of_their_own():
    model = Model()
    model |= ml.Multiply()(left=IOKey("w", differentiable=True), right="input", output="product")
    model |= ml.Add()(left="product", right=IOKey("b", differentiable=True), output="output")
    compiled = ml.compile(model, ml.TinygradBackend(), shapes={"w": [2], "b": [2], "input": [2]})
    same = compiled.backend.ones(2)
    inputs = {"input": compiled.backend.full((2,), 3.0)}
    seed = {"output": same}
    _, gradients = compiled.evaluate({"w": same, "b": same}, inputs, output_gradients=seed)
    np.testing.assert_array_equal(gradients["w"].numpy(), [3, 3])
    np.testing.assert_array_equal(gradients["b"].numpy(), [1, 1])


def test_source_is_differentiated_by_tinygrad(linear):
    compiled, params = linear()
    scope = {}
    exec(compiled.code, scope)
    x = Tensor.ones(3, 4).contiguous()
    loss = scope["forward"](params, {"input": x})["output"].sum()
    np.testing.assert_array_equal(loss.gradient(params["b"])[0].numpy(), [3, 3])
    loss.backward()
    np.testing.assert_array_equal(params["b"].grad.numpy(), [3, 3])


def test_evaluate_may_be_traced(linear):
    compiled, params = linear()
    run = lambda x: compiled.evaluate(params, {"input": x})["output"]  # noqa: E731
    jitted = tinygrad.TinyJit(lambda x: run(x).realize())
    for i in range(4):
        x = compiled.backend.full((3, 4), float(i))
        np.testing.assert_allclose(jitted(x).numpy(), run(x).numpy(), rtol=1e-6)


def test_conditions_run_with_jit():
    model = Model()
    model |= ml.Cond(Sequential([Linear(4), Relu()]), Linear(4))(
        condition="which", input="input", output="output"
    )
    shapes = {"input": [2, 3], "which": []}
    compiled = ml.compile(model, ml.TinygradBackend(), shapes=shapes, jit=True)
    params = compiled.randomize_params(seed=0)
    for which in (True, False):
        inputs = {"input": compiled.backend.ones(2, 3), "which": Tensor(which)}
        output = compiled.evaluate(params, inputs)["output"]
        assert output.shape == (2, 4)
        if which:
            assert output.min().item() >= 0


def test_a_device_that_is_not_there_is_an_error():
    with pytest.raises(ml.BackendError, match="tinygrad has no device `CUDA` here"):
        ml.TinygradBackend(device="CUDA")


def python(text, **environment):
    """What a program prints."""
    own = {k: v for k, v in os.environ.items() if k != "CC"}
    run = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=False,
        env={**own, **environment},
    )
    return run.stdout + run.stderr


def test_a_missing_compiler_is_an_error(tmp_path):
    text = """
import mithril as ml
from mithril.backends import tinygrad
tinygrad._compilers = lambda: []
try:
    ml.TinygradBackend()
except ml.BackendError as error:
    print(error)
"""
    said = python(text, CC="no-clang-here", CACHEDB=str(tmp_path / "cache.db"))
    assert "tinygrad compiles kernels for the CPU with clang, which is missing" in said
    assert "hint: apt-get install clang" in said


@pytest.mark.parametrize("compiler", [None, "gcc-of-others"])
def test_other_programs_keep_their_compiler(compiler, tmp_path):
    text = """
import os
import mithril as ml
backend = ml.TinygradBackend()
print((backend.ones(3) * 2).tolist(), os.environ.get("CC"))
"""
    own = {} if compiler is None else {"CC": compiler}
    said = python(text, CACHEDB=str(tmp_path / "cache.db"), **own)
    assert said == f"[2.0, 2.0, 2.0] {compiler}\n"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_arrays_keep_their_dtype(dtype):
    backend = ml.TinygradBackend(dtype)
    x = backend.array([[1.5, -2.0]])
    assert isinstance(x, Tensor)
    back = backend.to_numpy(x)
    assert back.dtype.name == dtype
    np.testing.assert_array_equal(back.astype(float), [[1.5, -2.0]])
    assert ml.load_params is not None


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "int64", "uint64", "bool", "float32"])
def test_dtypes_are_known(name):
    own = ml.TinygradBackend().own_dtype(name)
    assert own == getattr(dtypes, name)
    assert _core.DType(own).name == name


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_of_outputs_that_were_read(jit):
    """Reading an output computes the steps of a loop, and may not cut the gradients there."""
    options = {"shapes": {"input": [2, 5, 4]}, "discard_keys": ["last_hidden", "last_cell"]}
    x = np.random.default_rng(3).standard_normal((2, 5, 4)).astype("float32")
    reference = ml.compile(ml.LSTM(6), ml.NumpyBackend(), **options)
    params = reference.randomize_params(1)
    seeds = {"output": reference.evaluate(params, {"input": x})["output"]}
    want = reference.evaluate_gradients(params, {"input": x}, seeds)
    backend = ml.TinygradBackend()
    compiled = ml.compile(ml.LSTM(6), backend, jit=jit, **options)
    arrays = {name: backend.array(value) for name, value in params.items()}
    read = lambda outputs: {"output": backend.array(outputs["output"].numpy())}  # noqa: E731
    _, got = compiled.evaluate(arrays, {"input": backend.array(x)}, output_gradients=read)
    for name, value in want.items():
        np.testing.assert_allclose(backend.to_numpy(got[name]), value, rtol=0, atol=1e-6)


def test_nan_that_a_block_chooses_is_nan():
    """tinygrad's own `isnan` says no for a NaN that `where` chose."""
    x = np.float32([[1, 2, 3], [np.nan, 0, 1], [-np.inf, 4, np.nan]])
    model = ml.Model()
    model |= ml.models.Max(axis=0)(input="x", output="largest")
    model |= ml.models.NanToNum()(input="largest", output=ml.IOKey("output"))
    got = ml.compile(model, ml.TinygradBackend(), inference=True).evaluate({}, {"x": x})
    np.testing.assert_array_equal(got["output"].numpy(), np.nan_to_num(x.max(0)))


def test_large_kernels_get_their_arguments():
    """tinygrad cuts large kernels for threads, and mixed up the arguments of one of this model."""
    assert fuzz.described(1799300369, ["tinygrad"]) is None
