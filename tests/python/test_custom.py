"""Blocks made from functions: `load_function` and `custom`."""

from __future__ import annotations

import copy
import pickle

import exported
import numpy as np
import pytest
import torch

import mithril as ml
from mithril.models import Linear, Model, Relu, SquaredError, Sum

BACKENDS = [ml.NumpyBackend, ml.TorchBackend, ml.JaxBackend, ml.CpuBackend, ml.CBackend]
SOURCES = [ml.NumpyBackend, ml.TorchBackend, ml.JaxBackend]

SWISH = """mithril 1

func @swish(%x: tensor<*b x float>) -> (y: tensor<*b x float>) {
  %s = sigmoid(%x)
  %y = mul(%x, %s)
  return %y
}
"""

# A function that calls another one, with two parameters of one symbolic dim.
AFFINE = """mithril 1

func @affine(%x: tensor<*b x n x float>, %w: tensor<n x 3 x float> param,
             %b: tensor<3 x float> param) -> (output: tensor<*b x 3 x float>) {
  %h = matmul(%x, %w)
  %0 = add(%h, %b)
  %1 = call(%0) {callee = @swish}
  return %1
}

func @swish(%x: tensor<*b x float>) -> (y: tensor<*b x float>) {
  %s = sigmoid(%x)
  %y = mul(%x, %s)
  return %y
}
"""


def swish(x):
    return x / (1 + np.exp(-x))


def swish_gradient(x):
    s = 1 / (1 + np.exp(-x))
    return s * (1 + x * (1 - s))


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
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_of_text(backend, dtype, autodiff):
    y, gradient = evaluated(ml.load_function(SWISH), backend, X, dtype, autodiff=autodiff)
    assert y.dtype == dtype
    tolerance = 1e-12 if dtype == "float64" else 1e-6
    np.testing.assert_allclose(y, swish(X), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(gradient, swish_gradient(X), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("backend", BACKENDS)
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


def bodies(**more) -> dict[str, str]:
    return {
        "numpy": "e = np.exp(-x)\nreturn x / (1 + e)",
        "torch": "return F.silu(x)",
        "jax": "return jax.nn.silu(x)",
        **more,
    }


GRADIENT = {
    "numpy": """
        s = 1 / (1 + np.exp(-x))
        return output_gradient * (s + output * (1 - s))
    """,
    "torch": "s = torch.sigmoid(x)\nreturn output_gradient * (s + output * (1 - s))",
    "jax": "s = jax.nn.sigmoid(x)\nreturn output_gradient * (s + output * (1 - s))",
}


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
@pytest.mark.parametrize("backend", SOURCES)
def test_bodies_and_a_gradient_in_source(backend, autodiff):
    block = ml.custom(name="swish", shape="(x: [*b]) -> [*b]", gradient=GRADIENT, **bodies())
    y, gradient = evaluated(block, backend, X, autodiff=autodiff)
    np.testing.assert_allclose(y, swish(X), rtol=1e-12)
    np.testing.assert_allclose(gradient, swish_gradient(X), rtol=1e-12)


@pytest.mark.parametrize("backend", [ml.TorchBackend, ml.JaxBackend])
def test_frameworks_differentiate_bodies(backend):
    block = ml.custom(shape="(x: [*b]) -> [*b]", **bodies())
    y, gradient = evaluated(block, backend, X)
    np.testing.assert_allclose(y, swish(X), rtol=1e-12)
    np.testing.assert_allclose(gradient, swish_gradient(X), rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
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
@pytest.mark.parametrize("backend", BACKENDS)
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


def product() -> ml.Block:
    """A product with two results, of arrays of two dtypes."""
    return ml.custom(
        name="scaled_product",
        shape="(x: [n, k], w: [k, m], scale: i64[]) -> (product: [n, m], scaled: [n, m])",
        numpy="y = x @ w\nreturn y, y * scale",
        torch="y = x @ w\nreturn y, y * scale",
        jax="y = x @ w\nreturn y, y * scale",
        gradient=dict.fromkeys(
            ("numpy", "torch", "jax"),
            """
            g = product_gradient + scaled_gradient * scale
            return g @ w.T, x.T @ g
            """,
        ),
    )


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
C = {
    "c": "for (int64_t i = 0; i < x_size; ++i) output[i] = x[i] / (1 + exp(-x[i]));",
    "gradient": {
        "c": """
            for (int64_t i = 0; i < x_size; ++i) {
                double s = 1 / (1 + exp(-x[i]));
                x_gradient[i] = output_gradient[i] * (s + output[i] * (1 - s));
            }
        """
    },
}


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


@pytest.mark.parametrize("backend", NATIVE)
def test_c_that_does_not_compile(backend):
    model = Model()
    model |= ml.custom(name="broken", shape="(x: [n]) -> [n]", c="output[0] = z;")(
        x="x", output="y"
    )
    outer = Model()
    outer |= model(x="x", y="y")
    compiled = ml.compile(outer, backend(), shapes={"x": [2]}, inference=True)
    with pytest.raises(ml.BackendError) as error:
        compiled.evaluate({}, {"x": np.ones(2, "f4")})
    message = str(error.value)
    assert error.value.code == "E0504"
    assert "where: block `model.broken`" in message
    assert "z" in message.split("got: ")[1].splitlines()[0]
    assert "hint: correct the body `c=`" in message


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
    loaded = ml.Model.load(tmp_path / "model.json")
    assert loaded.to_json() == model.to_json()
    compiled = ml.compile(loaded, ml.NumpyBackend(), shapes={loaded.inputs[0]: [2, 4]})
    assert set(compiled.randomize_params()) == {"affine.w", "affine.b"}
    block = again(ml.load_function(SWISH))
    assert (block.kind, block.inputs) == ("swish", ["x"])


def text(function):
    return f"mithril 1\n{function}\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            text(
                "func @f(%x: tensor<n x f32>) -> (y: tensor<n x f32>) {\n  %y = foo(%x)\n"
                "  return %y\n}"
            ),
            "no operation `foo`\n  where: line 3, column 8\n  text: %y = foo(%x)",
        ),
        (text("func @f(%x: tensor<n y f32>) -> ()"), "line 2, column 22"),
        (text("func @é() -> ()"), "line 2, column 7"),
        (text(""), "has no function in it"),
        ("\n", "does not begin with its format version"),
        ("mithril 99\n", "newer than this Mithril"),
        (
            text("extern func @f() -> (y: tensor<f32>) extern func @g() -> (y: tensor<f32>)"),
            'several functions, and no name was given\n  got: `f`, `g`\n  hint: `name="f"`',
        ),
        (text("extern func @f(%x: tensor<f32>) -> ()"), "gives no results"),
    ],
)
def test_text_that_is_no_function(given, message):
    with pytest.raises(ml.MithrilError) as error:
        ml.load_function(given)
    assert message in str(error.value)
    assert error.value.code == "E0602"


def test_a_file_that_is_no_function(tmp_path):
    path = tmp_path / "broken.mir"
    path.write_text("mithril 1\nfunc f")
    with pytest.raises(ml.MithrilError, match=r"broken.mir, line 2, column 6"):
        ml.load_function(path)
    with pytest.raises(ml.MithrilError, match="cannot be read") as error:
        ml.load_function("missing.mir")
    assert "where: missing.mir" in str(error.value)
    with pytest.raises(ml.MithrilError, match="no function `swash`") as error:
        ml.load_function(SWISH, name="swash")
    assert "did you mean `swish`?" in str(error.value)
    for wrong in (3, None, b"mithril 1"):
        with pytest.raises(ml.UsageError):
            ml.load_function(wrong)


SHAPE = "(x: [*b]) -> [*b]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "has no body"),
        ({"numpy": "return x"}, "needs `shape=`"),
        ({"mir": SWISH, "shape": SHAPE}, "its signature twice"),
        ({"numpy": np.exp, "shape": SHAPE}, "`numpy` of `custom` is text\n  got: ufunc"),
        ({"numpy": "x", "shape": SHAPE}, "the body for numpy returns nothing"),
        (
            {"numpy": "return (x", "shape": SHAPE},
            "is not Python\n  where: line 1\n  text: return (x",
        ),
        ({"torch": "y = 1\nreturn y y", "shape": SHAPE}, "line 2\n  text: return y y"),
        ({"numpy": "", "shape": SHAPE}, "for numpy"),
        ({"numpy": "return x", "shape": SHAPE, "name": "a b"}, "the name of a function"),
        ({"numpy": "return x", "shape": 3}, "`shape` of `custom` is text"),
        ({"numpy": "return x", "shape": SHAPE, "gradient": {}}, "`gradient` has no body"),
        (
            {"numpy": "return x", "shape": SHAPE, "gradient": {"nunpy": "return x"}},
            "`gradient` has bodies by language",
        ),
        ({"numpy": "return x", "shape": SHAPE, "gradient": 3}, "`gradient` must be a block"),
        ({"numpy": "return x", "shape": SHAPE, "gradient": Relu()}, "a block that reads `input`"),
        ({"numpy": "return x", "shape": "(x: [n]) -> "}, "line 1, column 13"),
        ({"numpy": "return x", "shape": "(x: q32[n]) -> [n]"}, "no dtype `q32`"),
        ({"mir": "mithril 1\nfunc @f", "numpy": "return x"}, "line 2, column 8"),
    ],
)
def test_arguments_that_do_not_fit(arguments, message):
    with pytest.raises(ml.MithrilError) as error:
        ml.custom(**arguments)
    assert message in str(error.value)


@pytest.mark.parametrize("backend", [ml.TorchBackend, ml.JaxBackend, ml.CpuBackend, ml.CBackend])
def test_a_missing_body(backend):
    model = Model()
    model |= ml.custom(name="swish", shape=SHAPE, numpy="return x")(x="x", output="y")
    outer = Model()
    outer |= model(x="x", y="y")
    with pytest.raises(ml.BackendError) as error:
        ml.compile(outer, backend(), shapes={"x": [2]}).evaluate({}, {"x": np.ones(2, "f4")})
    message = str(error.value)
    assert "Backend does not support operation swish" in message
    assert "where: block `model.swish`" in message
    name = backend.__name__.removesuffix("Backend").lower()
    assert "got: bodies for numpy" in message
    assert f"expected: a body for {name}" in message
    assert "`mir=…` for every backend" in message


@pytest.mark.parametrize("backend", [ml.TorchBackend, ml.CBackend])
def test_inference_needs_no_gradient(backend):
    gradient = {"numpy": GRADIENT["numpy"]}
    block = ml.custom(
        name="swish", shape=SHAPE, torch="return F.silu(x)", c=C["c"], gradient=gradient
    )
    compiled = ml.compile(block, backend(), shapes={"x": [3]}, inference=True)
    x = np.array([-1, 0, 2], "f4")
    own = compiled.backend
    y = own.to_numpy(compiled.evaluate({}, {"x": own.array(x)})["output"])
    np.testing.assert_allclose(y, swish(x), rtol=1e-6)
    with pytest.raises(ml.BackendError, match="swish_gradient"):
        ml.compile(block, backend(), shapes={"x": [3]}, trainable_keys=["x"])


def test_a_body_without_gradient():
    block = ml.custom(name="swish", shape=SHAPE, numpy="return x")
    with pytest.raises(ml.MithrilError, match="`swish` has no gradient") as error:
        ml.compile(block, ml.NumpyBackend(), shapes={"x": [2]}, trainable_keys=["x"])
    assert "gradient=" in str(error.value)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            {"x": [3, 4], "w": [5, 2]},
            "Incompatible shapes during compilation: `w` of `scaled_product`",
        ),
        (
            {"x": [3], "w": [5, 2]},
            "Incompatible shapes during compilation: `x` of `scaled_product`",
        ),
    ],
)
def test_operands_that_do_not_fit(shapes, message):
    model = Model()
    model |= product()(x="x", w="w", scale=2, product="p", scaled="s")
    with pytest.raises(ml.ShapeError) as error:
        ml.compile(model, ml.NumpyBackend(), shapes=shapes, inference=True)
    assert message in str(error.value)
    assert "block `scaled_product.scaled_product` (scaled_product)" in str(error.value)


@pytest.mark.parametrize("backend", SOURCES)
@pytest.mark.parametrize(
    ("body", "got"),
    [
        ("return x[:1]", "(1,)"),
        ("return x.sum()", "()"),
        ("return [x]", "list"),
        ("return None", "NoneType"),
    ],
)
def test_results_of_another_shape(backend, body, got):
    name = backend.__name__.removesuffix("Backend").lower()
    model = Model()
    model |= ml.custom(name="wrong", shape="(x: [n]) -> [n]", **{name: body})(x="x", output="h")
    model |= Relu()(input="h", output="y")
    compiled = ml.compile(model, backend(), shapes={"x": ["batch"]}, inference=True)
    own = compiled.backend
    with pytest.raises(ml.ShapeError) as error:
        compiled.evaluate({}, {"x": own.ones(3)})
    message = str(error.value)
    assert message.startswith("Incompatible shapes: ")
    assert "block `wrong`" in message
    assert f"got: {got}" in message
    assert "expected: (3,)" in message
