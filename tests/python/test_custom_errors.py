"""Errors of custom operations and of functions of a text."""

from __future__ import annotations

import numpy as np
import pytest
from custom_operations import GRADIENT, SWISH, C, product, swish

import mithril as ml
from mithril.models import Model, Relu

SOURCES = [
    ml.NumpyBackend,
    ml.TorchBackend,
    ml.JaxBackend,
    ml.MlxBackend,
    ml.TinygradBackend,
]
NATIVE = [ml.CBackend, ml.CpuBackend]


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
            'several functions, but no name was given\n  got: `f`, `g`\n  hint: `name="f"`',
        ),
        (text("extern func @f(%x: tensor<f32>) -> ()"), "has no results"),
        (
            text('extern func @f(%x: tensor<f32>) -> (y: tensor<f32>) {\n  body nunpy "pass"\n}'),
            "no target `nunpy` for a body\n  where: line 3, column 3\n  text: body nunpy",
        ),
    ],
)
def test_text_that_is_no_function(given, message):
    with pytest.raises(ml.MithrilError) as error:
        ml.load_function(given)
    assert message in str(error.value)
    assert error.value.code == "E0602"


def test_load_function_reports_bad_files(tmp_path):
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
        ({"mir": SWISH, "shape": SHAPE}, "has two signatures"),
        (
            {"nunpy": "return x", "shape": SHAPE},
            "`custom` has no keyword `nunpy`\n  expected: mir, numpy, torch, jax, mlx, tinygrad, "
            "cpu, c, name, shape, gradient\n  hint: did you mean `numpy`?",
        ),
        ({"numpy": "return x", "shpe": SHAPE}, "did you mean `shape`?"),
        ({"numpy": np.exp, "shape": SHAPE}, "`numpy` of `custom` must be a string\n  got: ufunc"),
        ({"numpy": "x", "shape": SHAPE}, "the body for numpy returns nothing"),
        (
            {"numpy": "return (x", "shape": SHAPE},
            "is not valid Python\n  where: line 1\n  text: return (x",
        ),
        ({"torch": "y = 1\nreturn y y", "shape": SHAPE}, "line 2\n  text: return y y"),
        ({"numpy": "", "shape": SHAPE}, "for numpy"),
        ({"numpy": "return x", "shape": SHAPE, "name": "a b"}, "a valid name for the function"),
        ({"numpy": "return x", "shape": 3}, "`shape` of `custom` must be a string"),
        ({"numpy": "return x", "shape": SHAPE, "gradient": {}}, "`gradient` has no body"),
        (
            {"numpy": "return x", "shape": SHAPE, "gradient": {"nunpy": "return x"}},
            "`gradient` must be a dict of bodies",
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


@pytest.mark.parametrize(
    "backend",
    [ml.TorchBackend, ml.JaxBackend, ml.MlxBackend, ml.TinygradBackend, ml.CpuBackend, ml.CBackend],
)
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


WIDER = {
    "numpy": "return x * np.linspace(0, 1, x.shape[-1])",
    "torch": "return x.double()",
    "jax": "return x.astype(jnp.bfloat16)",
    "mlx": "return x.astype(mx.float16)",
    "tinygrad": "return x.cast(dtypes.half)",
}


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    ("backend", "got"),
    [
        (ml.NumpyBackend, "float64"),
        (ml.TorchBackend, "float64"),
        (ml.JaxBackend, "bfloat16"),
        (ml.MlxBackend, "float16"),
        (ml.TinygradBackend, "half"),
    ],
)
def test_results_of_another_dtype(backend, got, jit):
    name = backend.__name__.removesuffix("Backend").lower()
    block = ml.custom(name="scale", shape="(x: [*b]) -> (y: [*b])", **{name: WIDER[name]})
    compiled = ml.compile(block, backend(), shapes={"x": [2, 3]}, inference=True, jit=jit)
    with pytest.raises(ml.ShapeError) as error:
        compiled.evaluate({}, {"x": compiled.backend.ones(2, 3)})
    expected = "float" if name == "tinygrad" else "float32"
    assert str(error.value) == (
        "Incompatible dtypes: a custom operation did not return the declared dtype"
        f"\n  where: the body of `scale` for {name}\n  got: {got} for `y`\n  expected: {expected}"
        f"\n  hint: cast `y` to {expected} in the body\n  more: mithril error E0202"
    )


def test_gradients_of_another_dtype():
    model = Model()
    model += ml.Linear(3)(input="x")
    model += ml.custom(
        name="scale",
        shape="(x: [*b]) -> (y: [*b])",
        numpy="return 2 * x",
        gradient={"numpy": "return y_gradient * np.linspace(0, 1, x.shape[-1])"},
    )(y="y")
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"x": [2, 3]})
    params, x = compiled.randomize_params(0), np.ones((2, 3), "f4")
    assert compiled.evaluate(params, {"x": x})["y"].dtype == "f4"
    with pytest.raises(ml.ShapeError, match="body of `scale_gradient` for numpy") as error:
        compiled.evaluate(params, {"x": x}, output_gradients={"y": x})
    assert "got: float64 for `x_gradient`" in str(error.value)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("backend", SOURCES)
def test_declared_integers_are_integers(backend, dtype):
    name = backend.__name__.removesuffix("Backend").lower()
    block = ml.custom(
        name="mark",
        shape=f"(x: [n]) -> (large: {dtype}[n], y: [n])",
        **{name: "return x > 1, x"},
    )
    compiled = ml.compile(block, backend(), shapes={"x": [3]}, inference=True)
    with pytest.raises(ml.ShapeError) as error:
        compiled.evaluate({}, {"x": compiled.backend.ones(3)})
    expected = f"int{dtype[1:]}"
    if name == "tinygrad":
        expected = {"int32": "int", "int64": "long"}[expected]
    assert f"got: bool for `large`\n  expected: {expected}" in str(error.value)


def test_mixed_precision_chooses_the_dtypes_of_results():
    block = ml.custom(name="gram", shape="(x: [n, n]) -> (y: [n, n])", torch="return x @ x.T")
    backend = ml.TorchBackend(use_amp=True)
    compiled = ml.compile(block, backend, shapes={"x": [3, 3]}, inference=True)
    assert compiled.evaluate({}, {"x": backend.ones(3, 3)})["y"].dtype.itemsize == 2


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


def test_backends_without_a_gradient_of_their_own():
    with pytest.raises(ml.BackendError, match="NumpyBackend has no `vjp` of its own"):
        ml.NumpyBackend().vjp(dict, {})
