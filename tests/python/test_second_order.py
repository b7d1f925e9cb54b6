"""Second derivatives: by `differentiate=`, and by frameworks through generated source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import CLASSES

import mithril as ml
from mithril.models import (
    BatchNorm1d,
    Buffer,
    CrossEntropy,
    Dropout,
    Gelu,
    LayerNorm,
    Linear,
    Model,
    ScaledDotProduct,
    Softmax,
    SquaredError,
    TrainModel,
)

Arrays = dict[str, Any]

SHAPES = {"input": [6, 5], "target": [6]}
BACKENDS: list[Callable[..., Any]] = CLASSES


def classifier(*inner: Any) -> Any:
    """A cross-entropy after two linear layers, with blocks between them."""
    model = Model()
    model += Linear(4)(input="input")
    for block in inner:
        model += block()
    model += Linear(3)(output="output")
    return with_loss(model)


def attending() -> Any:
    """A cross-entropy after self-attention over the rows."""
    model = Model()
    for name in "qkv":
        model |= Linear(4, name=name)(input="input", output=f"{name}_rows")
    model |= ScaledDotProduct()(query="q_rows", key="k_rows", value="v_rows", output="seen")
    model |= Linear(3, name="last")(input="seen", output="output")
    return with_loss(model)


def with_loss(model: Any) -> Any:
    training = TrainModel(model)
    training.add_loss(CrossEntropy(), input="output", target="target")
    return training


MODELS: dict[str, Callable[[], Any]] = {
    "gelu": lambda: classifier(Gelu),
    "softmax": lambda: classifier(Softmax),
    "layer norm": lambda: classifier(LayerNorm),
    "attention": attending,
}


def numbers(shapes: dict[str, tuple[int, ...]], seed: int) -> Arrays:
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape) for name, shape in shapes.items()}


def data_of_six() -> Arrays:
    random = np.random.default_rng(3)
    return {"input": random.standard_normal((6, 5)), "target": random.integers(0, 3, 6)}


def params_of(compiled: ml.CompiledModel) -> tuple[Arrays, Arrays]:
    """Params, and a vector to multiply the Hessian by."""
    shapes = {name: tuple(v.shape) for name, v in compiled.randomize_params().items()}
    return numbers(shapes, 1), numbers(shapes, 2)


def gradients_of(compiled: ml.CompiledModel, params: Arrays, data: Arrays) -> Arrays:
    _, gradients = compiled.evaluate(params, data, output_gradients=True)
    return dict(gradients)


def by_differences(model: Any, params: Arrays, vector: Arrays, data: Arrays) -> Arrays:
    """The Hessian times a vector, by a central difference of gradients around the params."""
    compiled = ml.compile(model, ml.NumpyBackend(dtype=ml.float64), shapes=SHAPES)
    step = 1e-5
    after, before = (
        gradients_of(compiled, {name: params[name] + by * vector[name] for name in params}, data)
        for by in (step, -step)
    )
    return {name: (after[name] - before[name]) / (2 * step) for name in params}


def of(backend: Any, arrays: Arrays) -> Arrays:
    return {name: backend.array(value) for name, value in arrays.items()}


def seeds(vector: Arrays) -> Arrays:
    return {f"{name}_gradient": value for name, value in vector.items()}


def assert_near(got: Arrays, expected: Arrays, tolerance: float) -> None:
    assert got.keys() == expected.keys()
    for name, value in ((name, np.asarray(value)) for name, value in expected.items()):
        assert np.abs(value).max() > 1e-3 or "b" in name
        np.testing.assert_allclose(
            np.asarray(got[name]), value, rtol=tolerance, atol=tolerance, err_msg=name
        )


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("name", ["gelu", "attention"])
def test_second_derivatives_work_without_shapes(name: str, make: Callable[..., Any]) -> None:
    model, backend, data = MODELS[name](), make(dtype=ml.float64), data_of_six()
    params, vector = params_of(ml.compile(model, backend, shapes=SHAPES))
    opened = ml.compile(model, backend, differentiate=True)
    _, products = opened.evaluate(
        of(backend, params), of(backend, data), output_gradients=of(backend, seeds(vector))
    )
    assert_near(products, by_differences(model, params, vector, data), 1e-6)


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_products_with_the_hessian(name: str, make: Callable[..., Any]) -> None:
    model, backend, data = MODELS[name](), make(dtype=ml.float64), data_of_six()
    compiled = ml.compile(model, backend, shapes=SHAPES, differentiate=True)
    params, vector = params_of(compiled)
    outputs, products = compiled.evaluate(
        of(backend, params), of(backend, data), output_gradients=of(backend, seeds(vector))
    )
    plain = ml.compile(model, ml.NumpyBackend(dtype=ml.float64), shapes=SHAPES)
    first = gradients_of(plain, params, data)
    assert_near({n: outputs[f"{n}_gradient"] for n in params}, first, 1e-10)
    assert_near(products, by_differences(model, params, vector, data), 1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_jax_differentiates_twice(name: str) -> None:
    jax = pytest.importorskip("jax")
    model, backend, data = MODELS[name](), ml.JaxBackend(dtype=ml.float64), data_of_six()
    compiled = ml.compile(model, backend, shapes=SHAPES)
    params, vector = params_of(compiled)
    inputs = of(backend, data)

    def loss(params: Arrays) -> Any:
        return compiled.evaluate(params, inputs)["final_cost"]

    _, products = jax.jvp(jax.grad(loss), (of(backend, params),), (of(backend, vector),))
    assert_near(products, by_differences(model, params, vector, data), 1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_torch_differentiates_twice(name: str) -> None:
    torch = pytest.importorskip("torch")
    model, backend, data = MODELS[name](), ml.TorchBackend(dtype=ml.float64), data_of_six()
    compiled = ml.compile(model, backend, shapes=SHAPES)
    params, vector = params_of(compiled)
    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    cost = compiled.evaluate(leaves, of(backend, data))["final_cost"]
    first = torch.autograd.grad(cost, list(leaves.values()), create_graph=True)
    along = sum((g * torch.tensor(vector[n])).sum() for n, g in zip(leaves, first, strict=True))
    products = dict(zip(leaves, torch.autograd.grad(along, list(leaves.values())), strict=True))
    assert_near(products, by_differences(model, params, vector, data), 1e-6)


def least_squares(backend: Any, **options: Any) -> ml.CompiledModel:
    """The mean squared error of `input @ w`, whose Hessian is 2 XᵀX / n."""
    model = TrainModel(Linear(1, use_bias=False))
    model.add_loss(SquaredError(), input="output", target="target")
    return ml.compile(model, backend, differentiate=True, **options)


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shapes": {"input": ["n", 3], "target": ["n", 1]}},
        {"optimization_level": "none"},
        {"math": "fast"},
        {"gradient_checkpointing": True},
    ],
)
def test_the_hessian_of_least_squares_is_known(make: Any, options: dict[str, Any]) -> None:
    backend = make(dtype=ml.float64)
    compiled = least_squares(backend, **options)
    random = np.random.default_rng(0)
    x, y, w = (random.standard_normal(shape) for shape in ((7, 3), (7, 1), (3, 1)))
    columns = [
        compiled.evaluate(
            of(backend, {"w": w}),
            of(backend, {"input": x, "target": y}),
            output_gradients=of(backend, {"w_gradient": unit[:, None]}),
        )[1]["w"]
        for unit in np.eye(3)
    ]
    np.testing.assert_allclose(np.concatenate(columns, 1), 2 * x.T @ x / 7, rtol=1e-12)


def test_second_derivatives_work_with_states_and_keys() -> None:
    model = Model()
    model += Linear(4)(input="input")
    model += BatchNorm1d()
    model += Dropout(0.5)
    model += Linear(1)(output="output")
    training = TrainModel(model)
    training.add_loss(SquaredError(), input="output", target="target")
    backend = ml.NumpyBackend(dtype=ml.float64)
    shapes = {"input": [8, 3], "target": [8, 1]}
    compiled = ml.compile(training, backend, shapes=shapes, differentiate=True)
    plain = ml.compile(training, backend, shapes=shapes)
    params = compiled.randomize_params(seed=0)
    data = {**numbers({"input": (8, 3), "target": (8, 1)}, 0), "key": np.array([1, 2], np.uint32)}
    before = plain.initial_state(params, data)
    outputs, state = compiled.evaluate(params, data, before)
    _, gradients, expected = plain.evaluate(params, data, before, output_gradients=True)
    assert_near({n: outputs[f"{n}_gradient"] for n in params}, dict(gradients), 1e-12)
    assert_near(state, expected, 1e-12)


def test_another_output_than_the_final_cost() -> None:
    model = Model()
    model |= Linear(2, name="project")(input="input", output="h")
    h = model.h
    model |= Buffer()(input=(h**3).mean(), output="cubes")
    backend = ml.NumpyBackend(dtype=ml.float64)
    shapes = {"input": [4, 3]}
    compiled = ml.compile(model, backend, shapes=shapes, differentiate="cubes", inference=True)
    params, data = compiled.randomize_params(seed=0), numbers({"input": (4, 3)}, 0)
    outputs = compiled.evaluate(params, data)
    hidden = data["input"] @ params["project.w"] + params["project.b"]
    np.testing.assert_allclose(outputs["project.b_gradient"], (3 * hidden**2 / 8).sum(0))


@pytest.mark.parametrize(
    ("differentiate", "message"),
    [
        (True, "has no output `final_cost`, which is named in `differentiate`"),
        ("out", "did you mean `output`?"),
        ("output", "`output` is not a scalar with gradients"),
        ("", "`differentiate` must be the name of a scalar output"),
        (3, "`differentiate` must be the name of a scalar output"),
    ],
)
def test_invalid_differentiate_arguments_are_errors(differentiate: Any, message: str) -> None:
    with pytest.raises(ml.MithrilError, match="(?s)" + message.replace("?", r"\?")):
        ml.compile(
            Linear(2), ml.NumpyBackend(), shapes={"input": [4, 3]}, differentiate=differentiate
        )


def test_a_model_without_params_has_no_gradients() -> None:
    model = Model()
    model |= Gelu()(input="input", output="h")
    model |= Buffer()(input=model.h.mean(), output="cost")
    with pytest.raises(ml.MithrilError, match="the model has no params"):
        ml.compile(model, ml.NumpyBackend(), differentiate="cost")
