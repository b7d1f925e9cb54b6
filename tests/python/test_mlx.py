"""Models on MLX: gradients by MLX and by Mithril, `mx.compile`, and whole networks."""

import numpy as np
import pytest
from networks import MODELS

import mithril as ml
from mithril import Model
from mithril.models import (
    Linear,
    Relu,
    Sequential,
)

mx = pytest.importorskip("mlx.core")


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
    if backend.kind == "mlx":
        assert all(isinstance(value, mx.array) for value in found.values())
        np.testing.assert_allclose(again["output"], outputs["output"], rtol=1e-5, atol=1e-5)
    return {key: backend.to_numpy(value) for key, value in found.items()}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
@pytest.mark.parametrize("open_batch", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_networks_agree_with_numpy(name, jit, autodiff, open_batch, dtype):
    draw = MODELS[name][1]
    sizes = list(draw(np.random.default_rng(0)).shape)
    shapes = {"input": ["n", *sizes[1:]] if open_batch else sizes}
    want = answers(ml.NumpyBackend(dtype), name, shapes)
    got = answers(ml.MlxBackend(dtype), name, shapes, jit=jit, autodiff=autodiff)
    tolerance = {"float32": 2e-4, "float64": 1e-9}[dtype]
    for key, value in want.items():
        scale = max(1e-3, np.abs(value).max())
        np.testing.assert_allclose(got[key], value, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("jit", [False, True])
def test_output_gradients_may_be_functions(jit):
    compiled = ml.compile(Linear(2), ml.MlxBackend(), shapes={"input": [3, 4]}, jit=jit)
    params = compiled.randomize_params(seed=0)
    x = compiled.backend.ones(3, 4)
    _, gradients = compiled.evaluate(
        params, {"input": x}, output_gradients=lambda own: {"output": 2 * own["output"]}
    )
    y = np.ones((3, 4)) @ np.asarray(params["w"]) + np.asarray(params["b"])
    np.testing.assert_allclose(gradients["b"], 2 * y.sum(0), rtol=1e-5)


def test_source_is_differentiated_by_mlx():
    compiled = ml.compile(Linear(2), ml.MlxBackend(), shapes={"input": [3, 4]})
    scope = {}
    exec(compiled.code, scope)
    params = compiled.randomize_params(seed=0)
    loss = lambda params, x: mx.sum(scope["forward"](params, {"input": x})["output"])  # noqa: E731
    x = mx.ones((3, 4))
    np.testing.assert_array_equal(mx.grad(loss)(params, x)["b"], [3, 3])
    np.testing.assert_array_equal(mx.compile(mx.grad(loss))(params, x)["b"], [3, 3])


def test_evaluate_may_be_traced():
    compiled = ml.compile(Linear(2), ml.MlxBackend(), shapes={"input": [3, 4]})
    params, x = compiled.randomize_params(seed=0), mx.ones((3, 4))
    run = lambda params, x: compiled.evaluate(params, {"input": x})["output"]  # noqa: E731
    np.testing.assert_allclose(mx.compile(run)(params, x), run(params, x), rtol=1e-6)


def test_conditions_run_with_jit():
    model = Model()
    model |= ml.Cond(Sequential([Linear(4), Relu()]), Linear(4))(
        condition="which", input="input", output="output"
    )
    shapes = {"input": [2, 3], "which": []}
    compiled = ml.compile(model, ml.MlxBackend(), shapes=shapes, jit=True)
    params = compiled.randomize_params(seed=0)
    for which in (True, False):
        inputs = {"input": mx.ones((2, 3)), "which": mx.array(which)}
        output = compiled.evaluate(params, inputs)["output"]
        assert output.shape == (2, 4)
        if which:
            assert mx.min(output).item() >= 0


def test_a_device_that_is_not_there_is_an_error():
    with pytest.raises(ml.BackendError, match="MLX has no device `cuda` here"):
        ml.MlxBackend(device="cuda")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_arrays_keep_their_dtype(dtype):
    backend = ml.MlxBackend(dtype)
    x = backend.array([[1.5, -2.0]])
    assert isinstance(x, mx.array)
    assert ml.load_params is not None
    back = backend.to_numpy(x)
    assert back.dtype.name == dtype
    np.testing.assert_array_equal(back.astype(float), [[1.5, -2.0]])
