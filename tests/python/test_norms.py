"""Normalisations over several axes, compared with PyTorch on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from comparing import near_in_double
from conftest import CLASSES

import mithril as ml
from mithril.models import LayerNorm, RMSNorm

F = torch.nn.functional
SHAPE = (2, 3, 4, 5)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def moved(function: Any, axes: Any) -> Any:
    """A function of torch for the last axes, over these ones."""
    last = tuple(range(-len(axes), 0))
    return lambda x, *own: function(x.movedim(axes, last), *own).movedim(last, axes)


@pytest.mark.parametrize("open_dims", [False, True])
@pytest.mark.parametrize(
    "axes", [(-3, -2, -1), (2, 3), (1,), (0, -1), (3, 1), (-1, -2), (0, 1, 2, 3)]
)
@pytest.mark.parametrize("norm", ["LayerNorm", "RMSNorm", "without a scale"])
def test_norms_over_axes(norm, axes, open_dims, backend):
    block, function = {
        "LayerNorm": (LayerNorm(axis=axes), lambda x, w, b: F.layer_norm(x, w.shape, w, b)),
        "RMSNorm": (RMSNorm(axis=axes), lambda x, w: F.rms_norm(x, w.shape, w, 1e-5)),
        "without a scale": (
            LayerNorm(axis=axes, use_scale=False),
            lambda x, b: F.layer_norm(x, b.shape) + b,
        ),
    }[norm]
    model = ml.Model()
    model |= block(input="input", output="output")
    dims: Any = ["a", "b", "c", "d"] if open_dims else list(SHAPE)
    compiled = ml.compile(model, backend, shapes={"input": dims}, trainable_keys=["input"])
    own = [SHAPE[axis] for axis in axes]
    values = [numbers(*SHAPE), *(numbers(*own, seed=n) for n in range(1, len(compiled.params)))]
    names = ["input", *(n for n in compiled.params if n != "input")]
    params = {n: backend.array(v.astype(np.float32)) for n, v in zip(names, values, strict=True)}
    seed = numbers(*SHAPE, seed=9)
    outputs, gradients = compiled.evaluate(
        params, {}, output_gradients={"output": backend.array(seed.astype(np.float32))}
    )
    leaves = [torch.tensor(v, requires_grad=True) for v in values]
    want = moved(function, axes)(*leaves)
    want.backward(torch.tensor(seed))
    near_in_double(backend.to_numpy(outputs["output"]), want, 2e-5)
    for name, leaf in zip(names, leaves, strict=True):
        near_in_double(backend.to_numpy(gradients[name]), leaf.grad.numpy(), 1e-4)


@pytest.mark.parametrize("make", CLASSES)
def test_norms_of_an_open_rank(make):
    """The last axes need no rank."""
    backend = make()
    compiled = ml.compile(LayerNorm(axis=(-2, -1)), backend)
    for shape in ((3, 4), (2, 3, 4), (5, 2, 3, 4)):
        x = numbers(*shape)
        params = {n: backend.ones(3, 4) for n in ("w", "b")}
        got = compiled.evaluate(params, {"input": backend.array(x.astype(np.float32))})["output"]
        near_in_double(backend.to_numpy(got), F.layer_norm(torch.tensor(x), (3, 4)) + 1, 2e-5)


@pytest.mark.parametrize("block", [LayerNorm, RMSNorm])
def test_the_last_axis_in_any_spelling_is_the_same_source(block):
    compile = lambda block: ml.compile(  # noqa: E731
        block, ml.TorchBackend(), shapes={"input": list(SHAPE)}
    )
    own = compile(block())
    for axis in (-1, 3, (-1,), [3]):
        other = compile(block(axis=axis))
        assert other.code == own.code
        assert other.params == own.params


@pytest.mark.parametrize(
    ("axis", "shape", "message"),
    [
        ((-1, 2), [2, 3, 4], "axis 2 is named twice"),
        ((0, 3), [2, 3, 4], "axis 3 is out of range"),
        (-4, [2, 3, 4], "axis -4 is out of range"),
    ],
)
@pytest.mark.parametrize("block", [LayerNorm, RMSNorm])
def test_mistakes_with_axes(block, axis, shape, message):
    with pytest.raises(ml.MithrilError, match=message):
        ml.compile(block(axis=axis), ml.NumpyBackend(), shapes={"input": shape})


def test_no_axes_and_a_wrong_kind_are_refused():
    with pytest.raises(ml.MithrilError, match="`axis` names no axis"):
        LayerNorm(axis=[])
    with pytest.raises(ml.MithrilError, match=r"`axis.1.` of `RMSNorm` has the wrong type"):
        RMSNorm(axis=(1, "last"))
