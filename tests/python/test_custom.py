"""Blocks made from functions: `load_function` and `custom`."""

from __future__ import annotations

import copy
import pickle

import exported
import numpy as np
import pytest
import torch
from conftest import CLASSES, SOURCES
from custom_operations import AFFINE, GRADIENT, SWISH, C, bodies, product, swish, swish_gradient

import mithril as ml
from mithril.models import Linear, Model, Relu, SquaredError, Sum


def evaluated(block, backend, x, dtype="float64", **options):
    """The output and the gradient with respect to the first input."""
    name, output = block.inputs[0], block.outputs[0]
    shapes = {name: list(x.shape)}
    compiled = ml.compile(block, backend(dtype), shapes=shapes, trainable_keys=[name], **options)
    own = compiled.backend
    ones = own.array(np.ones(x.shape, dtype))
    outputs, gradients = compiled.evaluate(
        {name: own.array(x.astype(dtype))}, {}, output_gradients={output: ones}
    )
    return own.to_numpy(outputs[output]), own.to_numpy(gradients[name])


X = np.random.default_rng(0).standard_normal((3, 4))


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", CLASSES)
def test_a_function_of_text(backend, dtype, autodiff):
    y, gradient = evaluated(ml.load_function(SWISH), backend, X, dtype, autodiff=autodiff)
    assert y.dtype == dtype
    tolerance = 1e-12 if dtype == "float64" else 1e-6
    np.testing.assert_allclose(y, swish(X), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(gradient, swish_gradient(X), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("backend", CLASSES)
def test_params_of_functions_follow_from_data(backend):
    model = Model()
    model |= Linear(5, name="first")(input="x", output="hidden")
    model |= ml.load_function(AFFINE, name="affine")(x="hidden", output="y")
    compiled = ml.compile(model, backend("float64"), shapes={"x": ["batch", 4]})
    params = compiled.randomize_params(seed=0)
    own = compiled.backend
    p = {name: own.to_numpy(value) for name, value in params.items()}
    assert {name: value.shape for name, value in p.items()} == {
        "first.w": (4, 5),
        "first.b": (5,),
        "affine.w": (5, 3),
        "affine.b": (3,),
    }
    outputs, gradients = compiled.evaluate(
        params, {"x": own.array(X)}, output_gradients={"y": own.ones(3, 3)}
    )
    t = {name: torch.tensor(value, requires_grad=True) for name, value in p.items()}
    hidden = torch.tensor(X) @ t["first.w"] + t["first.b"]
    y = torch.nn.functional.silu(hidden @ t["affine.w"] + t["affine.b"])
    y.sum().backward()
    np.testing.assert_allclose(own.to_numpy(outputs["y"]), y.detach().numpy(), rtol=1e-12)
    for name, value in t.items():
        np.testing.assert_allclose(own.to_numpy(gradients[name]), value.grad.numpy(), rtol=1e-10)


def test_a_function_of_a_file(tmp_path):
    path = tmp_path / "functions.mir"
    path.write_text(AFFINE)
    for given in (path, str(path)):
        block = ml.load_function(given)
        assert (block.kind, block.inputs, block.outputs) == (
            "affine",
            ["x", "w", "b"],
            ["output"],
        )
    assert ml.load_function(path, name="swish").inputs == ["x"]


def test_states_and_several_results():
    counter = ml.load_function("""mithril 1
func @counter(%x: tensor<n x f32>, %c: tensor<f32> state)
    -> (total: tensor<f32>, next: tensor<f32> state "c", twice: tensor<n x f32>) {
  %0 = sum(%x)
  %1 = add(%c, %0)
  %2 = add(%x, %x)
  return %1, %1, %2
}
""")
    assert (counter.inputs, counter.outputs) == (["x", "c"], ["total", "twice"])
    model = Model()
    model |= counter(x="x", total="total", twice="twice")
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"x": [2]})
    state = {"counter.c": np.float32(5)}
    ones = np.ones(2, "f4")
    outputs, state = compiled.evaluate({}, {"x": ones}, state=state)
    assert (outputs["total"], state["counter.c"]) == (7, 7)
    np.testing.assert_array_equal(outputs["twice"], [2, 2])


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
@pytest.mark.parametrize("backend", SOURCES)
def test_bodies_and_a_gradient_in_source(backend, autodiff):
    block = ml.custom(name="swish", shape="(x: [*b]) -> [*b]", gradient=GRADIENT, **bodies())
    y, gradient = evaluated(block, backend, X, autodiff=autodiff)
    np.testing.assert_allclose(y, swish(X), rtol=1e-12)
    np.testing.assert_allclose(gradient, swish_gradient(X), rtol=1e-12)


@pytest.mark.parametrize("backend", SOURCES[1:])
def test_frameworks_differentiate_bodies(backend):
    block = ml.custom(shape="(x: [*b]) -> [*b]", **bodies())
    y, gradient = evaluated(block, backend, X)
    np.testing.assert_allclose(y, swish(X), rtol=1e-12)
    np.testing.assert_allclose(gradient, swish_gradient(X), rtol=1e-12)


@pytest.mark.parametrize("backend", CLASSES)
def test_mir_serves_every_backend(backend):
    # The body for NumPy shows that it is taken where nothing has to be differentiated.
    block = ml.custom(mir=SWISH, numpy="return x / (1 + np.exp(-x)) + 1")
    assert block.kind == "swish"
    x = X.astype("f4")
    compiled = ml.compile(block, backend(), shapes={"x": [3, 4]}, inference=True)
    own = compiled.backend
    y = own.to_numpy(compiled.evaluate({}, {"x": own.array(x)})["y"])
    plus = 1 if backend is ml.NumpyBackend else 0
    np.testing.assert_allclose(y, swish(x) + plus, rtol=1e-5, atol=1e-6)
    # Gradients follow from the operations of the text.
    y, gradient = evaluated(block, backend, X)
    np.testing.assert_allclose(y, swish(X), rtol=1e-12)
    np.testing.assert_allclose(gradient, swish_gradient(X), rtol=1e-12)


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
@pytest.mark.parametrize("backend", CLASSES)
def test_a_gradient_in_mir(backend, autodiff):
    # Half of the gradient of the operation, so that it is seen to be used.
    gradient = {
        "mir": """mithril 1
func @half(%x: tensor<*b x float>, %y_gradient: tensor<*b x float>)
    -> (x_gradient: tensor<*b x float>) {
  %s = sigmoid(%x)
  %h = constant() {value = dense<tensor<float>, 0.5>}
  %0 = mul(%y_gradient, %h)
  %1 = mul(%0, %s)
  return %1
}
"""
    }
    y, found = evaluated(ml.custom(mir=SWISH, gradient=gradient), backend, X, autodiff=autodiff)
    np.testing.assert_allclose(y, swish(X), rtol=1e-12)
    np.testing.assert_allclose(found, 0.5 / (1 + np.exp(-X)), rtol=1e-12)


def test_a_block_as_gradient():
    gradient = Model()
    gradient |= Relu()(input="output_gradient", output="x_gradient")
    block = ml.custom(shape="(x: [*b]) -> [*b]", numpy="return np.round(x)", gradient=gradient)
    y, found = evaluated(block, ml.NumpyBackend, X)
    np.testing.assert_array_equal(y, np.round(X))
    np.testing.assert_array_equal(found, np.ones_like(X))


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
@pytest.mark.parametrize("backend", SOURCES)
def test_several_inputs_and_outputs(backend, autodiff):
    model = Model()
    model |= product()(x="x", w="w", scale="scale", product="p", scaled="s")
    w = np.random.default_rng(1).standard_normal((4, 2))
    compiled = ml.compile(
        model,
        backend("float64"),
        shapes={"x": ["n", 4], "w": [4, 2]},
        trainable_keys=["x", "w"],
        autodiff=autodiff,
    )
    own = compiled.backend
    g = np.random.default_rng(2).standard_normal((2, 3, 2))
    outputs, gradients = compiled.evaluate(
        {"x": own.array(X), "w": own.array(w)},
        {"scale": own.array(np.int64(3))},
        output_gradients={"p": own.array(g[0]), "s": own.array(g[1])},
    )
    np.testing.assert_allclose(own.to_numpy(outputs["s"]), 3 * X @ w, rtol=1e-12)
    total = g[0] + 3 * g[1]
    np.testing.assert_allclose(own.to_numpy(gradients["x"]), total @ w.T, rtol=1e-12)
    np.testing.assert_allclose(own.to_numpy(gradients["w"]), X.T @ total, rtol=1e-12)


@pytest.mark.parametrize("backend", SOURCES)
def test_custom_blocks_inside_models_that_are_trained(backend):
    act = ml.custom(name="swish", shape="(x: [*b]) -> [*b]", gradient=GRADIENT, **bodies())
    inner = Model()
    inner += Linear(5)(input="x")
    inner += act
    outer = Model()
    outer += inner(x="data")
    outer += Linear(2)
    outer += act(output="y")
    model = ml.TrainModel(outer)
    model.add_loss(SquaredError(), input="y", reduce_steps=[Sum()])
    compiled = ml.compile(model, backend("float64"), shapes={"data": ["batch", 4]})
    params = compiled.randomize_params(seed=0)
    own = compiled.backend
    target = np.ones((3, 2))
    inputs = {"data": own.array(X), "target": own.array(target)}
    _, gradients = compiled.evaluate(params, inputs, output_gradients=True)
    t = {
        name: torch.tensor(own.to_numpy(value), requires_grad=True)
        for name, value in params.items()
    }
    names = list(t)
    silu = torch.nn.functional.silu
    w0, b0, w1, b1 = (t[name] for name in names)
    y = silu(silu(torch.tensor(X) @ w0 + b0) @ w1 + b1)
    ((y - torch.tensor(target)) ** 2).sum().backward()
    for name in names:
        np.testing.assert_allclose(own.to_numpy(gradients[name]), t[name].grad, rtol=1e-9)


NATIVE = [ml.CBackend, ml.CpuBackend]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", NATIVE)
def test_bodies_in_c(backend, dtype):
    block = ml.custom(name="swish", shape="(x: [*b]) -> [*b]", **C)
    y, gradient = evaluated(block, backend, X, dtype)
    tolerance = 1e-12 if dtype == "float64" else 1e-6
    np.testing.assert_allclose(y, swish(X), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(gradient, swish_gradient(X), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("backend", NATIVE)
def test_bodies_in_c_between_other_blocks(backend):
    transpose = ml.custom(
        name="transposed",
        shape="(x: [rows, n], flags: bool[n]) -> (y: [n, rows], sizes: i64[2])",
        c="""
            for (int64_t i = 0; i < rows; ++i)
                for (int64_t j = 0; j < n; ++j)
                    y[j * rows + i] = flags[j] ? x[i * n + j] : 0;
            sizes[0] = x_shape[0], sizes[1] = x_shape[1];
        """,
    )
    model = Model()
    model |= Linear(3, name="first")(input="x", output="h")
    model |= transpose(x="h", flags="flags", y="t", sizes="sizes")
    model |= Relu()(input="t", output="y")
    model |= transpose(x="y", flags=np.array([True, False]), y="back")
    compiled = ml.compile(model, backend(), shapes={"x": [2, 4], "flags": [3]}, inference=True)
    params = compiled.randomize_params(seed=0)
    own = {name: np.asarray(value) for name, value in params.items()}
    x, flags = X[:2].astype("f4"), np.array([True, False, True])
    outputs = compiled.evaluate(params, {"x": x, "flags": flags})
    hidden = (x @ own["first.w"] + own["first.b"]) * flags
    np.testing.assert_allclose(outputs["back"].T, hidden.T.clip(0) * [1, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs["sizes"], [2, 3])


@pytest.mark.parametrize("backend", NATIVE)
def test_sizes_that_vary(backend):
    block = ml.custom(name="swish", shape="(x: [*b]) -> [*b]", c=C["c"])
    compiled = ml.compile(block, backend(), shapes={"x": ["rows", 4]}, inference=True)
    for rows in (3, 1, 0, 5):
        x = np.ones((rows, 4), "f4")
        y = compiled.evaluate({}, {"x": x})["output"]
        np.testing.assert_allclose(y, swish(x), rtol=1e-6)


def test_a_library_has_bodies_in_c(tmp_path):
    block = ml.custom(name="swish", shape="(x: [n]) -> [n]", c=C["c"])
    compiled = ml.compile(block, ml.CpuBackend(), shapes={"x": ["n"]}, inference=True)
    library = exported.export(compiled, tmp_path)
    x = np.array([-1, 0, 2], "f4")
    status, results = library.call(dims={"n": 3}, data={"x": x})
    assert status == 0
    np.testing.assert_allclose(results["output", "output"], swish(x), rtol=1e-6)


def test_equal_blocks_share_one_function():
    model = Model()
    for _ in range(3):
        model += ml.custom(name="swish", shape="(x: [*b]) -> [*b]", **bodies())
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={model.inputs[0]: [2]}, inference=True)
    assert compiled.code.count("def swish(") == 1


def test_bodies_are_part_of_the_content():
    def compiled(body):
        block = ml.custom(shape="(x: [*b]) -> [*b]", numpy=body)
        return ml.compile(block, ml.NumpyBackend(), shapes={"x": [2]}, inference=True)

    x = np.array([1, 2], "f4")
    results = [
        compiled(body).evaluate({}, {"x": x})["output"] for body in ("return x", "return -x")
    ]
    np.testing.assert_array_equal(results, [x, -x])


@pytest.mark.parametrize("again", [copy.deepcopy, lambda block: pickle.loads(pickle.dumps(block))])
def test_blocks_of_functions_are_saved(again, tmp_path):
    model = Model()
    model += ml.custom(name="swish", shape="(x: [*b]) -> [*b]", gradient=GRADIENT, **bodies())
    model += ml.load_function(AFFINE)
    copied = again(model)
    assert copied.to_json() == model.to_json()
    model.save(tmp_path / "model.json")
    loaded = ml.Model.load(tmp_path / "model.json", trust_code=True)
    assert loaded.to_json() == model.to_json()
    compiled = ml.compile(loaded, ml.NumpyBackend(), shapes={loaded.inputs[0]: [2, 4]})
    assert set(compiled.randomize_params()) == {"affine.w", "affine.b"}
    block = again(ml.load_function(SWISH))
    assert (block.kind, block.inputs) == ("swish", ["x"])
