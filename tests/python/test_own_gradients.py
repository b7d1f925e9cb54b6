"""Blocks whose gradients are defined by other blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import CLASSES, WITHOUT_C

import mithril as ml
from mithril.models import Buffer, Linear, Model, Multiply, Round, SquaredError, Sum

BACKENDS = CLASSES


def straight() -> Model:
    """A straight-through gradient: returns the output gradient unchanged."""
    model = Model()
    model |= Buffer()(input="output_gradient", output="input_gradient")
    return model


def twice_product() -> Model:
    """The gradient of `left * right` for `left` only, multiplied by two."""
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
    # The gradient of the squared error times twice the gradient of the product.
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
        ("output_gradient", "output", "a block with the outputs `output`"),
    ],
)
def test_terminals_of_other_names_are_refused(inner, outer, message):
    gradient = Model()
    gradient |= Buffer()(input=inner, output=outer)
    with pytest.raises(ml.MithrilError, match=message):
        Round(gradient=gradient)


def test_invalid_gradient_blocks_are_errors():
    with pytest.raises(ml.MithrilError, match="`w` inside, which is not an input"):
        Linear(4, gradient=straight())
    with pytest.raises(ml.MithrilError, match="`gradient` must be a block"):
        Round(gradient=3)
    summed = Model()
    summed |= Sum(axis=0)(input="output_gradient", output="input_gradient")
    with pytest.raises(ml.ShapeError, match="`input_gradient` is not a gradient"):
        ml.compile(Round(gradient=summed), ml.NumpyBackend(), shapes={"input": [2, 3]})


def rounding() -> Model:
    """A straight-through block around an inner block that also has its own gradient."""
    inner = Model(name="inner", gradient=straight())
    inner |= Multiply(name="scale")(left="input", right=4.0, output="scaled")
    inner |= Round(name="round")(input="scaled", output="output")
    block = Model(name="block", gradient=straight())
    block |= Multiply(name="half")(left="input", right=0.5, output="halves")
    block |= inner(input="halves", output="output")
    model = Model()
    model |= Multiply(name="weigh")(left="x", right="w", output="h")
    model |= block(input="h", output="y")
    return model


@pytest.mark.parametrize(
    "backend",
    WITHOUT_C,
)
@pytest.mark.parametrize("inference", [True, False])
def test_keep_works_inside_custom_gradients(backend, inference):
    """Keeping values works in training, too, and does not change the block's own gradient."""
    backend = backend(dtype=ml.float64)
    paths = ["block.half", "block.halves", "block.inner", "block.inner.scale", "block.inner.round"]
    compiled = ml.compile(
        rounding(),
        backend,
        shapes={"x": [3], "w": [3]},
        trainable_keys=["w"],
        keep=paths,
        inference=inference,
    )
    x, w = np.array([0.3, 0.5, -2.0]), np.array([1.7, 3.0, 0.4])
    inputs, params = {"x": backend.array(x)}, {"w": backend.array(w)}
    outputs = compiled.evaluate(params, inputs)
    halves = 0.5 * x * w
    expected = {
        "y": np.round(4 * halves),
        "block.half": halves,
        "block.halves": halves,
        "block.inner": np.round(4 * halves),
        "block.inner.scale": 4 * halves,
        "block.inner.round": np.round(4 * halves),
    }
    assert set(outputs) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(np.asarray(outputs[name]), value, rtol=1e-12)
    if inference:
        return
    drawn = {name: backend.array(np.full(3, 2.0)) for name in expected}
    _, gradients = compiled.evaluate(params, inputs, output_gradients=drawn)
    np.testing.assert_allclose(np.asarray(gradients["w"]), 2.0 * x, rtol=1e-12)


def test_hooks_and_keep_match_torch_inside_custom_gradients():
    class Straight(torch.autograd.Function):
        seen: list[torch.Tensor] = []  # noqa: RUF012

        @staticmethod
        def forward(_, value):
            scaled = 4.0 * (0.5 * value)
            Straight.seen.append(scaled.detach())
            return torch.round(scaled)

        @staticmethod
        def backward(_, gradient):
            return gradient

    x = np.array([0.3, 0.5, -2.0], "f4")
    w = torch.tensor([1.7, 3.0, 0.4], requires_grad=True)
    (Straight.apply(torch.from_numpy(x) * w) ** 2).sum().backward()
    seen: list[np.ndarray] = []
    compiled = ml.compile(
        rounding(), ml.TorchBackend(), shapes={"x": [3], "w": [3]}, trainable_keys=["w"]
    )
    compiled.register_hook(
        "block.inner.scale", lambda value: seen.append(np.asarray(value.detach()))
    )
    own = {"w": w.detach()}, {"x": torch.from_numpy(x)}
    y = compiled.evaluate(*own)["y"]
    _, gradients = compiled.evaluate(*own, output_gradients={"y": 2 * y.detach()})
    np.testing.assert_allclose(seen[0], Straight.seen[0], rtol=1e-6)
    np.testing.assert_allclose(gradients["w"], w.grad, rtol=1e-6)


def test_unknown_inner_paths_are_errors():
    options = {"shapes": {"x": [3], "w": [3]}, "trainable_keys": ["w"]}
    with pytest.raises(
        ml.TerminalError, match=r"no block `block.inner.scal`[^?]*`block.inner.scale`"
    ):
        ml.compile(rounding(), ml.NumpyBackend(), keep=["block.inner.scal"], **options)
