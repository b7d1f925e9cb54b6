"""Blocks whose gradients are blocks."""

from __future__ import annotations

import numpy as np
import pytest

import mithril as ml
from mithril.models import Buffer, Linear, Model, Multiply, Round, SquaredError, Sum

BACKENDS = [ml.NumpyBackend, ml.TorchBackend, ml.JaxBackend, ml.CpuBackend, ml.CBackend]


def straight() -> Model:
    """Passes the gradient on as it is."""
    model = Model()
    model |= Buffer()(input="output_gradient", output="input_gradient")
    return model


def twice_product() -> Model:
    """Of `left * right`: the gradient of `left` alone, and twice as large."""
    model = Model()
    model |= Multiply()(left="output_gradient", right="right", output="half")
    model |= Multiply()(left="half", right=2.0, output="left_gradient")
    return model


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_rounding_that_lets_gradients_through(backend, autodiff):
    model = Model()
    model |= Linear(4, name="first")(input="input", output="hidden")
    model |= Round(gradient=straight())(input="hidden", output="rounded")
    model |= Linear(3, name="last")(input="rounded", output="output")
    shapes = {"input": ["batch", 5]}
    compiled = ml.compile(model, backend("float64"), shapes=shapes, autodiff=autodiff)
    own = compiled.backend
    params = compiled.randomize_params(seed=1)
    x = 3 * np.random.default_rng(0).standard_normal((6, 5))
    outputs, gradients = compiled.evaluate(
        params, {"input": own.array(x)}, output_gradients={"output": own.ones(6, 3)}
    )
    p = {name: own.to_numpy(value) for name, value in params.items()}
    hidden = x @ p["first.w"] + p["first.b"]
    passed = np.ones((6, 3)) @ p["last.w"].T
    np.testing.assert_allclose(
        own.to_numpy(outputs["output"]), np.round(hidden) @ p["last.w"] + p["last.b"], rtol=1e-12
    )
    np.testing.assert_allclose(own.to_numpy(gradients["first.w"]), x.T @ passed, rtol=1e-12)
    np.testing.assert_allclose(own.to_numpy(gradients["first.b"]), passed.sum(0), rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_with_a_gradient_of_its_own(backend):
    product = product_of_its_own()
    shapes, trained = {"left": [3], "right": [3]}, ["left", "right"]
    compiled = ml.compile(product, backend("float64"), shapes=shapes, trainable_keys=trained)
    own = compiled.backend
    params = {"left": own.array([1.0, 2.0, 3.0]), "right": own.array([4.0, 5.0, 6.0])}
    _, gradients = compiled.evaluate(params, {}, output_gradients=own.array([1.0, 10.0, 100.0]))
    np.testing.assert_array_equal(own.to_numpy(gradients["left"]), [8.0, 100.0, 1200.0])
    np.testing.assert_array_equal(own.to_numpy(gradients["right"]), np.zeros(3))


def product_of_its_own() -> Model:
    model = Model(gradient=twice_product())
    model |= Multiply()(left="left", right="right", output="output")
    return model


def test_a_loaded_model_keeps_its_gradient():
    text = product_of_its_own().to_json()
    loaded = Model.from_json(text)
    assert loaded.to_json() == text
    shapes, trained = {"left": [2], "right": [2]}, ["left"]
    compiled = ml.compile(loaded, ml.NumpyBackend(), shapes=shapes, trainable_keys=trained)
    right = np.array([4, 5], "f4")
    gradients = compiled.evaluate_gradients({"left": right}, {"right": right}, np.ones(2, "f4"))
    np.testing.assert_array_equal(gradients["left"], [8, 10])


def test_a_model_that_is_trained_keeps_its_gradient():
    model = ml.TrainModel(product_of_its_own())
    model.add_loss(SquaredError(), reduce_steps=[Sum()])
    shapes, trained = {"left": [2], "right": [2]}, ["left"]
    compiled = ml.compile(model, ml.NumpyBackend(), shapes=shapes, trainable_keys=trained)
    left, right, target = np.array([[1, 2], [4, 5], [3, 9]], "f4")
    _, gradients = compiled.evaluate(
        {"left": left}, {"right": right, "target": target}, output_gradients=True
    )
    # The gradient of the squared error, and twice that of the product.
    expected = 2 * (left * right - target) * 2 * right
    np.testing.assert_array_equal(gradients["left"], expected)


def test_gradients_are_saved_with_their_blocks():
    model = Model()
    model |= Round(gradient=straight())(input="input", output="output")
    text = model.to_json()
    again = Model.from_json(text)
    assert again.to_json() == text
    shapes, trained = {"input": [2]}, ["input"]
    compiled = ml.compile(again, ml.NumpyBackend(), shapes=shapes, trainable_keys=trained)
    ones = np.ones(2, "f4")
    _, gradients = compiled.evaluate({"input": ones}, {}, output_gradients=ones)
    np.testing.assert_array_equal(gradients["input"], ones)


@pytest.mark.parametrize(
    ("inner", "outer", "message"),
    [
        ("foo", "input_gradient", "a block that reads `foo`"),
        ("output_gradient", "output", "a block that gives `output`"),
    ],
)
def test_terminals_of_other_names_are_refused(inner, outer, message):
    gradient = Model()
    gradient |= Buffer()(input=inner, output=outer)
    with pytest.raises(ml.MithrilError, match=message):
        Round(gradient=gradient)


def test_what_cannot_be_a_gradient_is_refused():
    with pytest.raises(ml.MithrilError, match="`w` inside, which is no input"):
        Linear(4, gradient=straight())
    with pytest.raises(ml.MithrilError, match="`gradient` is a block"):
        Round(gradient=3)
    summed = Model()
    summed |= Sum(axis=0)(input="output_gradient", output="input_gradient")
    with pytest.raises(ml.ShapeError, match="`input_gradient` is no gradient"):
        ml.compile(Round(gradient=summed), ml.NumpyBackend(), shapes={"input": [2, 3]})


def test_values_inside_are_kept_where_no_gradient_is_taken():
    block = Model(name="block", gradient=straight())
    block |= Multiply(name="scale")(left="input", right=4.0, output="scaled")
    block |= Round(name="round")(input="scaled", output="output")
    model = Model()
    model |= block(input="x", output="y")
    options = {"shapes": {"x": [2]}, "keep": ["block.scale"]}
    compiled = ml.compile(model, ml.NumpyBackend(), inference=True, **options)
    outputs = compiled.evaluate({}, {"x": np.array([0.3, 0.5], "f4")})
    np.testing.assert_allclose(outputs["block.scale"], [1.2, 2.0], rtol=1e-6)
    with pytest.raises(ml.TerminalError, match="lies in `block`, which has a gradient of its own"):
        ml.compile(model, ml.NumpyBackend(), **options)
