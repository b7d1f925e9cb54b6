"""Gradients in PyTorch source that use PyTorch's own backward operations."""

import itertools
import tracemalloc

import numpy as np
import pytest

import mithril as ml
from mithril.models import (
    Elu,
    Gelu,
    Hardswish,
    LayerNorm,
    LeakyRelu,
    Linear,
    LogSoftmax,
    Mish,
    Model,
    Relu,
    ScaledDotProduct,
    Selu,
    Sequential,
    Sigmoid,
    Silu,
    Softmax,
    Softplus,
    Tanh,
    Transpose,
)

torch = pytest.importorskip("torch")

BLOCKS = [
    Relu,
    Sigmoid,
    Tanh,
    Gelu,
    lambda: Gelu(approximate=True),
    Silu,
    Softplus,
    lambda: Softplus(beta=2.0),
    LeakyRelu,
    lambda: LeakyRelu(slope=0.3),
    Elu,
    lambda: Elu(alpha=0.7),
    Selu,
    Mish,
    Hardswish,
    Softmax,
    lambda: Softmax(axis=0),
    LogSoftmax,
    LayerNorm,
    lambda: LayerNorm(use_scale=False),
    lambda: LayerNorm(use_bias=False),
    lambda: LayerNorm(use_scale=False, use_bias=False),
]


def gradients(model, shapes, autodiff, dtype="float64"):
    """The gradients of all arguments, and the generated source."""
    backend = ml.TorchBackend(dtype=dtype)
    compiled = ml.compile(
        model, backend, shapes=shapes, autodiff=autodiff, trainable_keys=list(shapes)
    )
    rng = np.random.default_rng(0)
    arrays = {key: rng.standard_normal(shape) for key, shape in shapes.items()}
    params = compiled.randomize_params(seed=1) | {
        key: backend.array(value) for key, value in arrays.items()
    }
    output = compiled.evaluate(params, {})["output"]
    seed = backend.array(rng.standard_normal(tuple(output.shape)))
    _, found = compiled.evaluate(params, {}, output_gradients={"output": seed})
    found = {key: value.detach().double().numpy() for key, value in found.items()}
    return found, compiled.code


def agree(make, shapes, bound, dtype="float64"):
    """Compares gradients with torch's, relative to the largest value. Returns the source."""
    own, code = gradients(make(), shapes, "mithril", dtype)
    theirs, _ = gradients(make(), shapes, "framework", dtype)
    assert own.keys() == theirs.keys()
    for key, value in theirs.items():
        greatest = max(np.abs(value).max(initial=0), 1e-30)
        assert np.abs(own[key] - value).max(initial=0) <= bound * greatest, key
    return code


@pytest.mark.parametrize("make", BLOCKS, ids=lambda make: repr(make()))
@pytest.mark.parametrize(
    ("dtype", "bound"), [("float64", 1e-14), ("float32", 1e-6), ("bfloat16", 2e-2)]
)
def test_gradients_are_those_of_torch(make, dtype, bound):
    def model():
        outer = Model()
        outer |= make()(input="x", output="output")
        return outer

    code = agree(model, {"x": [3, 5, 16]}, bound, dtype)
    assert "torch.ops.aten." in code


def attending(*, mask=False, **settings):
    model = Model()
    names = {"query": "q", "key": "k", "value": "v", "output": "output"}
    model |= ScaledDotProduct(**settings)(**names, **({"mask": "m"} if mask else {}))
    return model


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("front", [(), (3,), (2, 3), (2, 2, 3)])
def test_attention_of_any_rank(front, causal):
    shapes = {key: [*front, 8, 16] for key in "qkv"}
    code = agree(lambda: attending(is_causal=causal), shapes, 1e-12)
    assert ("_attention_gradient(" in code) == (len(front) == 2)


@pytest.mark.parametrize("turned", ["q", "k", "v", "qkv"])
def test_attention_accepts_transposed_operands(turned):
    """PyTorch's kernel needs the elements of a row to be contiguous."""

    def model():
        outer = Model()
        for key in turned:
            outer |= Transpose(axes=[0, 1, 3, 2])(input=key, output=f"{key}_turned")
        names = {key: f"{key}_turned" if key in turned else key for key in "qkv"}
        operands = {"query": names["q"], "key": names["k"], "value": names["v"]}
        outer |= ScaledDotProduct(is_causal=True)(**operands, output="output")
        return outer

    shapes = {key: [2, 3, 7, 8] if key in turned else [2, 3, 8, 7] for key in "qkv"}
    code = agree(model, shapes, 1e-12)
    assert "_attention_gradient(" in code


def test_attention_of_grouped_heads():
    shapes = {"q": [2, 6, 8, 16], "k": [2, 3, 8, 16], "v": [2, 3, 8, 16]}
    for causal, scale in itertools.product([False, True], [None, 0.3]):
        agree(
            lambda c=causal, s=scale: attending(grouped=True, is_causal=c, scale=s), shapes, 1e-12
        )


def test_gradient_of_masked_attention_is_decomposed():
    """A regression test: the gradient once ignored the mask."""
    shapes = {"q": [2, 4, 8], "k": [2, 4, 8], "v": [2, 4, 8], "m": [4, 4]}
    code = agree(lambda: attending(mask=True), shapes, 1e-12)
    assert "_attention_gradient(" not in code


def test_parts_of_a_call_are_one_statement():
    model = Model()
    model |= LayerNorm()(input="x", output="output")
    _, code = gradients(model, {"x": [4, 8]}, "mithril")
    assert "output, mean, reciprocal = torch.native_layer_norm(" in code
    assert code.count("native_layer_norm_backward(") == 1


def test_only_gradients_that_are_asked_for_are_computed():
    model = Model()
    model |= LayerNorm()(input="x", output="output")
    compiled = ml.compile(model, ml.TorchBackend(), shapes={"x": [4, 8]}, autodiff="mithril")
    assert "(False, True, True)" in compiled.code


def jax_activations():
    jax = pytest.importorskip("jax")
    return {
        "gelu": (Gelu(), lambda x: jax.nn.gelu(x, approximate=False), 2),
        "gelu_tanh": (Gelu(approximate=True), jax.nn.gelu, 1),
        "silu": (Silu(), jax.nn.silu, 1),
    }


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
def test_jax_computes_shared_parts_of_gradients_once(name):
    """Per element, XLA counts one transcendental function, and the density of the exact GELU."""
    jax = pytest.importorskip("jax")
    block, function, count = jax_activations()[name]
    model = Model()
    model |= block(input="x", output="output")
    backend = ml.JaxBackend()
    compiled = ml.compile(
        model, backend, shapes={"x": [64, 64]}, autodiff="mithril", trainable_keys=["x"]
    )
    assert f"_{name}_gradient(" in compiled.code
    rng = np.random.default_rng(0)
    x, seed = (backend.array(3 * rng.standard_normal((64, 64), "float32")) for _ in range(2))
    outputs, found = compiled.evaluate({"x": x}, {}, output_gradients={"output": seed})
    value, pull = jax.vjp(function, x)
    np.testing.assert_allclose(outputs["output"], value, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(found["x"], pull(seed)[0], rtol=2e-5, atol=2e-5)

    namespace = {}
    exec(compiled.code, namespace)

    def ours(x, seed):
        return namespace["outputs_and_gradients"]({"x": x}, {}, lambda _: {"output": seed})

    step = jax.jit(ours).lower(x, seed).compile()
    assert step.cost_analysis()["transcendentals"] == count * x.size


def test_dead_values_are_deleted():
    """A step uses less memory than without `del`."""
    model = Sequential([block for _ in range(4) for block in (Linear(256), Tanh())])
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"input": [2048, 256]})
    params = compiled.randomize_params(seed=0)
    data = {"input": np.ones((2048, 256), "float32")}
    seed = {"output": np.ones((2048, 256), "float32")}

    def peak(code):
        namespace = {}
        exec(code, namespace)
        tracemalloc.start()
        namespace["outputs_and_gradients"](params, data, lambda _: seed)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    held = "\n".join(line for line in compiled.code.splitlines() if "    del " not in line)
    assert peak(compiled.code) < 0.7 * peak(held)
