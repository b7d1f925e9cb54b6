"""Models on MLX: gradients by MLX and by Mithril, `mx.compile`, and whole networks."""

import numpy as np
import pytest
import torch
from networks import MODELS

import mithril as ml
from mithril import Model
from mithril.models import (
    Linear,
    Relu,
    ScaledDotProduct,
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


def attending(dtype, mask_dtype, **settings):
    model = Model()
    names = {"query": "q", "key": "k", "value": "v", "mask": "m"}
    model |= ScaledDotProduct(**settings)(**names, output="output")
    shapes = {"q": [2, 4, 5, 8], "k": [2, 4, 5, 8], "v": [2, 4, 5, 6], "m": [2, 1, 1, 5]}
    floats = dict.fromkeys("qkv", getattr(ml, dtype))
    options = {"shapes": shapes, "dtypes": {**floats, "m": mask_dtype}}
    trained = ["q", "k", "v"] if mask_dtype == ml.bool else ["q", "k", "v", "m"]
    return ml.compile(model, ml.MlxBackend(dtype), **options, trainable_keys=trained), shapes


@pytest.mark.parametrize("settings", [{}, {"is_causal": True}, {"scale": 1.5}], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_with_a_mask_is_that_of_mlx(settings, dtype, kind):
    """Values and gradients are PyTorch's; a query that sees no key gives 0."""
    compiled, shapes = attending(
        dtype, ml.bool if kind == "bool" else getattr(ml, dtype), **settings
    )
    assert "heads = mx.fast.scaled_dot_product_attention(" in compiled.code
    assert "softmax" not in compiled.code
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    seen = rng.random(shapes["m"]) > 0.3
    seen[..., 0] = True
    seen[0] = False
    arrays["m"] = seen if kind == "bool" else np.where(seen, arrays["m"], -np.inf).astype(dtype)
    seed = rng.standard_normal((2, 4, 5, 6)).astype(dtype)
    names = compiled.backend.array
    params = {n: names(v) for n, v in arrays.items() if n != "m" or kind == "float"}
    inputs = {} if kind == "float" else {"m": names(arrays["m"])}
    outputs, gradients = compiled.evaluate(params, inputs, output_gradients={"output": names(seed)})
    own = {n: torch.tensor(v[1:]) for n, v in arrays.items()}
    own = {n: v if v.dtype == torch.bool else v.double().requires_grad_() for n, v in own.items()}
    mask = own["m"]
    if "is_causal" in settings:
        later = torch.ones(5, 5, dtype=torch.bool).tril()
        mask = mask & later if kind == "bool" else mask.masked_fill(~later, -np.inf)
    want = torch.nn.functional.scaled_dot_product_attention(
        own["q"], own["k"], own["v"], attn_mask=mask, scale=settings.get("scale")
    )
    want.backward(torch.tensor(seed[1:]).double())
    bound = 1e-5 if dtype == "float32" else 1e-2
    found = {"output": (outputs["output"], want.detach())}
    found |= {name: (gradients[name], own[name].grad) for name in gradients}
    for got, expected in found.values():
        hidden, *others = np.array(got.astype(mx.float32))
        assert not hidden.any()
        np.testing.assert_allclose(others, expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    "shape", [(3, 4), (2, 3, 4), (0, 4), (0, 2, 4), (3, 0), (2, 3, 0)], ids=str
)
def test_linear_layers_are_one_call(shape, dtype):
    backend = ml.MlxBackend(dtype)
    compiled = ml.compile(
        Linear(5), backend, shapes={"input": list(shape)}, trainable_keys=["input"]
    )
    # MLX refuses rows without elements.
    assert f"output = {'mx.addmm(b, x, w)' if shape[-1] else 'x @ w + b'}" in compiled.code
    rng = np.random.default_rng(0)
    arrays = {"input": shape, "w": (shape[-1], 5), "b": (5,)}
    arrays = {name: rng.standard_normal(size).astype(dtype) for name, size in arrays.items()}
    seed = rng.standard_normal((*shape[:-1], 5)).astype(dtype)
    outputs, gradients = compiled.evaluate(
        {name: backend.array(value) for name, value in arrays.items()},
        {},
        output_gradients={"output": backend.array(seed)},
    )
    own = {n: torch.tensor(v).double().requires_grad_() for n, v in arrays.items()}
    want = own["input"] @ own["w"] + own["b"]
    want.backward(torch.tensor(seed).double())
    bound = {"float32": 1e-5, "float64": 1e-13, "float16": 1e-2}[dtype]
    found = {"output": (outputs["output"], want.detach())}
    found |= {name: (gradients[name], own[name].grad) for name in arrays}
    for got, expected in found.values():
        np.testing.assert_allclose(backend.to_numpy(got), expected, rtol=bound, atol=bound)
