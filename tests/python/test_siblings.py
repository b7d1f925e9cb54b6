"""Products that share an operand are merged into one, if that costs less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import CLASSES, SOURCES

import mithril as ml
from mithril.models import Linear, Model, Tanh


def siblings(width: int, count: int = 3, **settings: Any) -> Model:
    model = Model()
    for at in range(count):
        model |= Linear(width, **settings)(input="x", output=f"y{at}")
    return model


def drawn(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(0)
    return {name: numbers.standard_normal(shape) for name, shape in shapes.items()}


def test_bound_weights_are_joined_once():
    compiled = ml.compile(
        siblings(16), ml.NumpyBackend(dtype=ml.float64), shapes={"x": [1, 16]}, inference=True
    )
    params = drawn({name: value.shape for name, value in compiled.randomize_params().items()})
    assert compiled.code.count(" @ ") == 3
    bound = compiled.bind(params)
    assert bound.code.count(" @ ") == 1
    # Weights are not kept twice, and a call does not concatenate them.
    assert "concatenate" not in bound.code
    assert "products-joined" in [rule.rule for rule in bound.explain().rules]
    x = drawn({"x": (1, 16)})
    expected = compiled.evaluate(params, x)
    for name, value in bound.evaluate({}, x).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-13)


def test_unbound_weights_are_not_joined():
    shapes = {"x": [128, 64]}
    for backend in SOURCES:
        code = ml.compile(siblings(64), backend(), shapes=shapes, inference=True).code
        assert code.count(" @ ") + code.count("mx.addmm(") == 3


@pytest.mark.parametrize("backend", CLASSES)
def test_narrow_products_of_a_large_operand(backend):
    """One product each in the forward and backward pass gives the numbers of three."""
    model = siblings(4, use_bias=False)
    made = [
        ml.compile(model, own(dtype=ml.float64), shapes={"x": [512, 96]}, optimization_level=level)
        for own, level in ((backend, "full"), (ml.NumpyBackend, "none"))
    ]
    params = drawn(dict.fromkeys(made[0].params, (96, 4)))
    x = drawn({"x": (512, 96)})
    ones = drawn({f"y{at}": (512, 4) for at in range(3)})
    results = []
    for compiled in made:
        own = [
            {name: compiled.backend.array(value) for name, value in of.items()}
            for of in (params, x, ones)
        ]
        outputs, gradients = compiled.evaluate(*own[:2], output_gradients=own[2])
        results.append({**outputs, **gradients})
    for name, value in results[0].items():
        np.testing.assert_allclose(np.asarray(value), results[1][name], rtol=1e-11, atol=1e-11)
    if backend is ml.NumpyBackend:
        assert "concatenate" in made[0].code


def test_dependent_products_are_not_joined():
    model = Model()
    model |= Linear(6, name="one")(input="x", output="h")
    model |= Tanh()(input="h", output="t")
    model |= Linear(6, name="two")(input="x", output="y")
    model |= Tanh()(input=model.t @ model.x.transpose((1, 0)), output="z")
    compiled = ml.compile(model, ml.NumpyBackend(dtype=ml.float64), shapes={"x": [2, 6]})
    params = drawn({name: value.shape for name, value in compiled.randomize_params().items()})
    x = drawn({"x": (2, 6)})
    bound = compiled.bind(params)
    for name, value in bound.evaluate({}, x).items():
        np.testing.assert_allclose(value, compiled.evaluate(params, x)[name], rtol=1e-13)
