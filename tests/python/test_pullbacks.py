"""Gradients that PyTorch has operations for, written into its source: they are its own."""

import itertools

import numpy as np
import pytest

import mithril as ml
from mithril.models import (
    Gelu,
    LayerNorm,
    LogSoftmax,
    Model,
    Relu,
    ScaledDotProduct,
    Sigmoid,
    Silu,
    Softmax,
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
    Softmax,
    lambda: Softmax(axis=0),
    LogSoftmax,
    LayerNorm,
    lambda: LayerNorm(use_scale=False),
    lambda: LayerNorm(use_bias=False),
    lambda: LayerNorm(use_scale=False, use_bias=False),
]


def gradients(model, shapes, autodiff, dtype="float64"):
    """The gradients of all arguments, and the source."""
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
    """Compares Mithril's gradients with torch's, as parts of the greatest; gives the source."""
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
def test_attention_of_what_is_laid_out_otherwise(turned):
    """PyTorch's kernel reads the elements of a row as neighbours."""

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


def test_attention_with_a_mask_is_differentiated_by_its_parts():
    """Once the mask was forgotten here."""
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
