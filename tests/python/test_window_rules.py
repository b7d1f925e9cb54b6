"""Rules about convolutions and pooling in models: the numbers are those of exact code."""

from typing import Any

import numpy as np
import pytest

import mithril as ml
from mithril.models import AvgPool2d, BatchNorm2d, Conv2d, MaxPool2d, Model, Relu


def chain(*blocks: Any) -> Model:
    model = Model()
    for block in blocks:
        model += block
    return model


def normed() -> Model:
    return chain(Conv2d(8, 3, use_bias=False), BatchNorm2d(), Relu(), MaxPool2d(2))


def pooled() -> Model:
    return chain(Conv2d(4, 1, use_bias=False), AvgPool2d(14))


def mixed() -> Model:
    return chain(Conv2d(16, 3, padding=1), Conv2d(4, 1))


@pytest.mark.parametrize("made", [normed, pooled, mixed])
def test_numbers_are_those_of_exact_code(backend: Any, made: Any) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 3, 14, 14)).astype(np.float32)
    params: dict[str, Any] = {}
    outputs = []
    for math in ("exact", "reassociate"):
        shapes = {"input": [2, 3, 14, 14]}
        compiled = ml.compile(made(), backend, shapes=shapes, inference=True, math=math)
        drawn = compiled.randomize_params()
        for name, value in drawn.items():
            params.setdefault(name, rng.standard_normal(value.shape).astype(np.float32))
        given = {name: backend.array(params[name]) for name in drawn}
        outputs.append(np.asarray(compiled.evaluate(given, {"input": backend.array(x)})["output"]))
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)


def test_a_batch_norm_goes_into_the_weights() -> None:
    shapes = {"input": [2, 3, 14, 14]}
    codes = [
        ml.compile(normed(), make(), shapes=shapes, inference=True, math="reassociate").code
        for make in (ml.JaxBackend, ml.TorchBackend)
    ]
    assert "_conv(x, conv2d_w * " in codes[0]
    assert "jax.nn.relu(_max_pool(" in codes[0]
    # PyTorch's own function costs less than what is left of the batch norm beside the convolution.
    assert "F.batch_norm(" in codes[1]
    assert "torch.relu(F.max_pool2d(" in codes[1]
