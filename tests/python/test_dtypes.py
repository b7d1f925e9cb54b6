"""Dtypes of inputs at compile time, and integers given for floats."""

import numpy as np
import pytest
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril.models import Add, Concat, Embedding, Linear, Model, Multiply, Relu, Sum


def added(**given):
    model = Model()
    model |= Add()(**{"left": "x", "right": "y", **given}, output="out")
    return model


def value(backend, model, inputs, **options):
    compiled = ml.compile(model, backend, **options)
    arrays = {
        name: backend.from_numpy(np.asarray(array, np.float32)) for name, array in inputs.items()
    }
    return backend.to_numpy(compiled.evaluate({}, arrays)["out"])


SPELLINGS = [ml.int32, "int32", "i32", np.int32, np.dtype("int32")]


@pytest.mark.parametrize("dtype", SPELLINGS, ids=str)
def test_an_input_has_the_dtype_that_is_given(backend, dtype):
    model = Model()
    model |= Embedding(7, 3)(input="tokens", output="out")
    shapes = {"tokens": [2, 4]}
    compiled = ml.compile(model, backend, shapes=shapes, dtypes={"tokens": dtype})
    params = compiled.randomize_params(0)
    tokens = np.array([[0, 1, 2, 3], [6, 5, 4, 3]], np.int32)
    out = compiled.evaluate(params, {"tokens": backend.from_numpy(tokens)})["out"]
    table = backend.to_numpy(next(iter(params.values())))
    np.testing.assert_array_equal(backend.to_numpy(out), table[tokens])


def test_dtypes_of_frameworks():
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    for dtype in (torch.int32, jnp.int32, jnp.dtype("int32")):
        compiled = ml.compile(added(), ml.NumpyBackend(), dtypes={"x": dtype, "y": dtype})
        one = np.ones(3, np.int32)
        out = compiled.evaluate({}, {"x": one, "y": one})["out"]
        assert out.dtype == np.int32


def test_dtypes_apply_without_shapes(backend):
    compiled = ml.compile(added(), backend, dtypes={"x": "int32", "y": "int32"})
    one = backend.from_numpy(np.arange(3, dtype=np.int32))
    out = backend.to_numpy(compiled.evaluate({}, {"x": one, "y": one})["out"])
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out, [0, 2, 4])
    with pytest.raises(ml.MithrilError, match="int32"):
        compiled.evaluate({}, {"x": backend.ones(3), "y": one})


@pytest.mark.parametrize(
    ("dtypes", "says"),
    [
        ({"z": ml.int64}, "has no input `z`, which is named in `dtypes`"),
        ({"x": "int46"}, "this is not a dtype"),
        ({"x": bool}, "bool"),
        ([("x", "int32")], "`dtypes` must be a dict of"),
        ({1: "int32"}, "`dtypes` must be a dict of"),
        ({"x": ml.int32}, "dtype"),
    ],
)
def test_wrong_dtypes(backend, dtypes, says):
    with pytest.raises(ml.MithrilError, match=says):
        ml.compile(added(), backend, dtypes=dtypes, shapes={"x": [2], "y": [2]})


def test_dtypes_that_a_backend_lacks_are_errors():
    pytest.importorskip("torch")
    with pytest.raises(ml.BackendError, match="does not have this dtype\n  got: int4 for `x`"):
        ml.compile(Relu(), ml.TorchBackend(), dtypes={"x": "int4"})


def test_a_param_is_a_float():
    with pytest.raises(ml.MithrilError, match="`w` cannot be trained"):
        ml.compile(Linear(3), ml.NumpyBackend(), dtypes={"w": ml.int32})


def test_dtypes_cannot_change_a_random_key():
    with pytest.raises(ml.MithrilError, match="`key` is a random key\n  got: f32"):
        ml.compile(ml.models.Dropout(0.5), ml.NumpyBackend(), dtypes={"key": "float32"})


INTEGERS = [2, np.int64(2), np.array(2, np.int8), np.array([1, 2, 3]), [1, 2, 3]]


@pytest.mark.parametrize("given", INTEGERS, ids=repr)
@pytest.mark.parametrize("side", ["left", "right"])
def test_constant_integers_become_floats(backend, given, side):
    x = np.array([0.5, 1.5, -2.0], np.float32)
    other = "right" if side == "left" else "left"
    model = added(**{side: given, other: "x"})
    out = value(backend, model, {"x": x})
    np.testing.assert_array_equal(out, x + np.asarray(given, np.float32))
    bound = value(backend, added(), {"x": x}, constant_keys={"y": given})
    np.testing.assert_array_equal(bound, out)


def test_integers_inside_another_model(backend):
    table = np.arange(48)
    outer = Model()
    outer |= added()(x="x", y=table, out="out")
    x = np.full(48, 0.25, np.float32)
    np.testing.assert_array_equal(value(backend, outer, {"x": x}), table + x)


def test_integers_for_learned_inputs(backend):
    model = Model()
    model |= Linear(2)(input="x", w=np.array([[1, 2], [3, 4]]), b=[5, 6], output="out")
    x = np.array([[0.5, 1.0]], np.float32)
    np.testing.assert_array_equal(value(backend, model, {"x": x}), [[8.5, 11.0]])
    constants = {"w": np.array([[1, 2], [3, 4]]), "b": np.array([5, 6])}
    compiled = ml.compile(Linear(2), backend, constant_keys=constants)
    out = compiled.evaluate({}, {"input": backend.from_numpy(x)})["output"]
    np.testing.assert_array_equal(backend.to_numpy(out), [[8.5, 11.0]])


def test_integer_dtypes_are_kept_among_integers(backend):
    model = added(right=np.array([1, 2], np.int32))
    compiled = ml.compile(model, backend, dtypes={"x": ml.int32})
    x = backend.from_numpy(np.array([3, 4], np.int32))
    out = backend.to_numpy(compiled.evaluate({}, {"x": x})["out"])
    assert out.dtype == np.int32
    compiled = ml.compile(added(), backend, constant_keys={"y": 3}, dtypes={"x": ml.int32})
    out = backend.to_numpy(compiled.evaluate({}, {"x": x})["out"])
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out, [6, 7])


DIGITS = [(2**24 + 1, "float32"), (2**53 + 1, "float64"), (257, "bfloat16"), (2049, "float16")]


@pytest.mark.parametrize(("number", "dtype"), DIGITS)
@pytest.mark.parametrize(
    "wrap", [int, np.int64, lambda n: np.array([1, n])], ids=["int", "int64", "array"]
)
def test_constants_that_would_be_rounded_are_errors(number, dtype, wrap):
    backend = ml.NumpyBackend(dtype)
    for model, constants in [(added(right=wrap(number)), {}), (added(), {"y": wrap(number)})]:
        with pytest.raises(ml.MithrilError) as caught:
            # The rule needs both sides, as a constant on its own takes any dtype.
            ml.compile(model, backend, shapes={"x": [2]}, constant_keys=constants)
        message = str(caught.value)
        assert "an integer that is rounded" in message
        assert "write it as a float" in message
    fine = added(right=float(number))
    ml.compile(fine, backend, shapes={"x": [2]})
    ml.compile(added(right=wrap(number - 1)), backend, shapes={"x": [2]})


def test_large_unsigned_integers_keep_their_sign():
    model = added(right=2**63)
    out = value(ml.NumpyBackend(), model, {"x": [0.0]})
    np.testing.assert_array_equal(out, np.array([2.0**63], np.float32))


def test_integers_get_no_gradients(backend):
    model = Model()
    model |= Multiply()(left="x", right=np.array([2, 3]), output="y")
    model += Sum()(output="out")
    compiled = ml.compile(model, backend, shapes={"x": [2]}, trainable_keys=["x"])
    params = {"x": backend.ones(2)}
    gradients = compiled.evaluate_gradients(params, {}, {"out": backend.ones()})
    np.testing.assert_array_equal(backend.to_numpy(gradients["x"]), [2.0, 3.0])


def test_lists_of_integers_and_floats(backend):
    model = Model()
    model |= Concat(axis=0)(inputs=["x", np.array([1, 2])], output="out")
    out = value(backend, model, {"x": [0.5]}, shapes={"x": ["n"]})
    np.testing.assert_array_equal(out, [0.5, 1.0, 2.0])


FOUR_BITS = """mithril 1
func @f(%x: tensor<16 x i32>) -> (y: tensor<16 x i32>, z: tensor<16 x i32>) {
  %u = cast(%x) {dtype = u4}
  %i = cast(%u) {dtype = i4}
  %back = cast(%i) {dtype = u4}
  %y = cast(%i) {dtype = i32}
  %z = cast(%back) {dtype = i32}
  return %y, %z
}
"""


@pytest.mark.parametrize(
    "kind", [kind for kind in INSTALLED if kind in ("numpy", "jax", "cpu", "c")]
)
def test_integers_of_four_bits_change_sign(kind):
    model = Model()
    model |= ml.load_function(FOUR_BITS)(x="x", y="y", z="z")
    compiled = ml.compile(model, getattr(ml, MAKERS[kind])(), shapes={"x": [16]})
    x = np.arange(16, dtype=np.int32)
    outputs = compiled.evaluate({}, {"x": x})
    np.testing.assert_array_equal(outputs["y"], np.where(x < 8, x, x - 16))
    np.testing.assert_array_equal(outputs["z"], x)
