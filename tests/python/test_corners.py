"""Blocks at the limits of numbers: largest and smallest values, too many axes, too much memory."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril.models import (
    Add,
    BatchNorm1d,
    Buffer,
    Cast,
    Cumprod,
    Embedding,
    Flip,
    LayerNorm,
    Log,
    LogSoftmax,
    LogSumExp,
    MatrixMultiply,
    Maximum,
    Minimum,
    Model,
    MultiHeadAttention,
    NanToNum,
    PositionalEncoding,
    Power,
    Relu,
    Residual,
    RMSNorm,
    RotaryEmbedding,
    ScaledDotProduct,
    Sequential,
    Softmax,
    Sqrt,
    StableReciprocal,
    TopK,
    Unique,
)

BACKENDS = {name: getattr(ml, MAKERS[name]) for name in INSTALLED}


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_to_num_replaces_infinities_by_the_largest_value(name, dtype):
    own = BACKENDS[name](dtype=dtype)
    compiled = ml.compile(NanToNum(), own, shapes={"input": [4]})
    x = np.array([1, -np.inf, np.inf, np.nan], dtype)
    got = np.asarray(compiled.evaluate({}, {"input": own.array(x)})["output"])
    np.testing.assert_array_equal(got, np.nan_to_num(x))


@pytest.mark.parametrize("name", BACKENDS)
def test_nan_to_num_takes_other_numbers(name):
    own = BACKENDS[name]()
    numbers = {"nan": 7.0, "posinf": 2.0, "neginf": -3.0}
    x = np.float32([1, -np.inf, np.inf, np.nan])
    options = {"shapes": {"input": [4]}, "trainable_keys": ["input"]}
    compiled = ml.compile(NanToNum(**numbers), own, **options)
    given = {"input": own.array(x)}
    outputs, gradients = compiled.evaluate(given, {}, output_gradients={"output": own.ones(4)})
    np.testing.assert_array_equal(np.asarray(outputs["output"]), np.nan_to_num(x, **numbers))
    np.testing.assert_array_equal(np.asarray(gradients["input"]), [1, 0, 0, 0])


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("block", [Log, Sqrt, StableReciprocal])
def test_robust_gradients_of_halves_are_finite(name, block):
    own = BACKENDS[name](dtype="float16")
    settings = {} if block is StableReciprocal else {"robust": True}
    compiled = ml.compile(block(**settings), own, shapes={"input": [3]}, trainable_keys=["input"])
    x = np.array([1.0, 2.0, 0.25], np.float16)
    seed = {"output": own.array(np.ones(3, np.float16))}
    _, gradients = compiled.evaluate({"input": own.array(x)}, {}, output_gradients=seed)
    want = {Log: 1 / x, Sqrt: 0.5 / np.sqrt(x), StableReciprocal: -1 / (x * x)}[block]
    np.testing.assert_allclose(np.asarray(gradients["input"]), want, rtol=2e-3)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [500, 1e-3, 0])
@pytest.mark.parametrize("block", [LayerNorm(), RMSNorm(eps=1e-8), BatchNorm1d()])
def test_norms_of_halves_are_computed_in_single(name, dtype, size, block):
    single, half = ml.NumpyBackend(), BACKENDS[name](dtype=dtype)
    rng = np.random.default_rng(2)
    x, w, seed = (rng.normal(size=shape) for shape in [(4, 6), (6,), (4, 6)])
    results = []
    for own in [half, single]:
        compiled = ml.compile(block, own, shapes={"input": [4, 6]}, trainable_keys=["input"])
        given = [own.array(half.to_numpy(half.array(a))) for a in (size * x, w, seed)]
        params = {**compiled.randomize_params(seed=1), "input": given[0], "w": given[1]}
        got = compiled.evaluate(params, {}, output_gradients={"output": given[2]})
        results.append({n: own.to_numpy(a) for part in got for n, a in part.items()})
    for n, want in results[1].items():
        got = results[0][n]
        ulp = float(ml_dtypes.finfo(got.dtype).eps) * np.abs(want).max()
        assert np.abs(got.astype("float32") - want).max() <= 2 * ulp


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("block", [RotaryEmbedding(), PositionalEncoding()])
def test_positions_are_computed_in_f32_for_half_precision(name, dtype, block):
    """Positions and angles are computed in f32; sines and cosines are rounded once."""
    single, half = ml.NumpyBackend(), BACKENDS[name](dtype=dtype)
    x = half.to_numpy(half.array(np.random.default_rng(2).normal(size=(3000, 16))))
    results = []
    for own in (single, half):
        compiled = ml.compile(block, own, shapes={"input": ["length", 16]}, inference=True)
        results.append(own.to_numpy(compiled.evaluate({}, {"input": own.array(x)})["output"]))
    want, got = results
    ulp = float(ml_dtypes.finfo(x.dtype).eps) * np.abs(want).max()
    assert np.abs(got.astype("float32") - want).max() <= 2 * ulp


@pytest.mark.parametrize(("axes", "message"), [(2, "out of range"), ((0, 0), "named twice")])
def test_flip_reports_invalid_axes(axes, message):
    with pytest.raises(ml.MithrilError, match=message):
        ml.compile(Flip(axes), ml.NumpyBackend(), shapes={"input": [2, 3]})


@pytest.mark.parametrize("name", BACKENDS)
def test_robust_powers_of_integers(name):
    own = BACKENDS[name]()
    dtype = ml.int64 if own.wide else ml.int32
    model = Model()
    terminals = {n: ml.IOKey(n, dtype=dtype) for n in ("base", "exponent")}
    model |= Power(robust=True)(**terminals, output="output")
    base, exponent = np.array([1, -2, 3, 0]), np.array([2, 3, 2, 0])
    inputs = {"base": own.array(base, dtype), "exponent": own.array(exponent, dtype)}
    got = ml.compile(model, own, shapes={"base": [4], "exponent": [4]}).evaluate({}, inputs)
    assert own.to_numpy(got["output"]).tolist() == (np.abs(base) ** exponent).tolist()


REPEATED = [
    np.array([[3.0, 1, 2], [1, 3, 5]], "float32"),
    np.array([2.0, np.nan, -np.inf, np.nan, 2], "float32"),
    np.array([7, 7, 7], "int32"),
    np.array([4], "int32"),
]


@pytest.mark.parametrize("size", [1, 4, 9])
@pytest.mark.parametrize("x", REPEATED)
@pytest.mark.parametrize("name", BACKENDS)
def test_unique_returns_each_element_once(name, size, x):
    jnp = pytest.importorskip("jax.numpy")
    own = BACKENDS[name]()
    model = Model()
    model |= Unique(size)(input=ml.IOKey("x", dtype=x.dtype.name), output="y")
    for shape in [list(x.shape), [None] * x.ndim]:
        compiled = ml.compile(model, own, shapes={"x": shape})
        got = own.to_numpy(compiled.evaluate({}, {"x": own.array(x)})["y"])
        np.testing.assert_array_equal(got, np.asarray(jnp.unique(x, size=size)))


@pytest.mark.parametrize("name", BACKENDS)
def test_running_products_of_zeros_have_gradients(name):
    torch = pytest.importorskip("torch")
    own = BACKENDS[name](dtype="float64")
    x = np.array([[2.0, 0, 3, 4], [0, 0, 5, 6], [1, 2, 3, 0], [-1, 2, -3, 4]])
    seed = np.random.default_rng(3).normal(size=x.shape)
    leaf = torch.tensor(x, requires_grad=True)
    want = torch.cumprod(leaf, 1)
    want.backward(torch.tensor(seed))
    compiled = ml.compile(Cumprod(1), own, shapes={"input": [4, 4]}, trainable_keys=["input"])
    seeds = {"output": own.array(seed)}
    got, gradients = compiled.evaluate({"input": own.array(x)}, {}, output_gradients=seeds)
    np.testing.assert_allclose(own.to_numpy(got["output"]), want.detach())
    np.testing.assert_allclose(own.to_numpy(gradients["input"]), leaf.grad, atol=1e-12)


def test_top_k_larger_than_the_axis_is_an_error():
    with pytest.raises(ml.MithrilError, match="`TopK` takes 9 of 3 elements"):
        ml.compile(TopK(9), ml.NumpyBackend(), shapes={"input": [2, 3]})


@pytest.mark.parametrize("name", BACKENDS)
def test_gradients_through_shapes_that_vary(name):
    block = Sequential([Embedding(5, 8), Residual(MultiHeadAttention(2))])
    ids = np.array([[1, 2, 0], [4, 4, 3]])
    found = []
    for shape in (["n", 3], [2, 3]):
        own = BACKENDS[name](dtype="float64" if name != "jax" else "float32")
        compiled = ml.compile(block, own, shapes={"input": shape})
        params = compiled.randomize_params(seed=4)
        seed = {"output": own.array(np.random.default_rng(5).normal(size=(2, 3, 8)))}
        dtype = ml.int64 if own.wide else ml.int32
        inputs = {"input": own.array(ids, dtype)}
        outputs, gradients = compiled.evaluate(params, inputs, output_gradients=seed)
        found.append({n: own.to_numpy(v) for n, v in {**outputs, **gradients}.items()})
    for n, want in found[1].items():
        np.testing.assert_allclose(found[0][n], want, rtol=1e-4, atol=1e-5)


def test_connections_list_their_methods():
    model = Model()
    model |= Relu()(input="x", output="y")
    assert {"sum", "exp", "reshape", "shape", "name"} <= set(dir(model.y))


def test_connections_are_not_iterable():
    model = Model()
    model |= Relu()(input="x", output="y")
    with pytest.raises(ml.MithrilError, match="cannot be iterated over"):
        list(model.y)
    with pytest.raises(ml.MithrilError, match="not known before a call"):
        assert 3 in model.y
    with pytest.raises(ml.MithrilError, match="cannot be iterated over"):
        _first, _second = model.y
    assert model.outputs == ["y"]


@pytest.mark.parametrize("name", BACKENDS)
def test_dims_that_go_below_zero_are_divided_as_python_does(name):
    model = Model()
    model |= Buffer()(input="input", output="x")
    rows = model.x.shape[0]
    rest, half = ((rows - 5) % rows).cast(ml.float32), ((rows - 5) // 2).cast(ml.float32)
    model |= Add()(left="x", right=rest, output="rest")
    model |= Add()(left="x", right=half, output="half")
    compiled = ml.compile(model, BACKENDS[name](), shapes={"input": ["n", 2]})
    for n in (2, 3, 4, 9):
        outputs = compiled.evaluate({}, {"input": compiled.backend.zeros(n, 2)})
        read = compiled.backend.to_numpy
        found = {name: float(read(value)[0, 0]) for name, value in outputs.items()}
        assert found == {"rest": (n - 5) % n, "half": (n - 5) // 2}


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("width", [0, 3])
def test_gradients_of_an_open_rank_and_an_axis_that_may_be_empty(name, rows, width):
    backend = BACKENDS[name]()
    model = Model()
    model |= MatrixMultiply()(left="x", right="w", output="y")
    own = {"autodiff": "mithril"} if name in ("torch", "jax", "mlx", "tinygrad") else {}
    shapes = {"w": ["k", 4]}
    compiled = ml.compile(model, backend, shapes=shapes, trainable_keys=["x", "w"], **own)
    params = {"x": backend.ones(rows, 2, width), "w": backend.ones(width, 4)}
    seed = backend.ones(rows, 2, 4)
    _, gradients = compiled.evaluate(params, {}, output_gradients=seed)
    for of, size in {"x": 4, "w": 2 * rows}.items():
        expected = np.full(params[of].shape, size, "float32")
        np.testing.assert_array_equal(backend.to_numpy(gradients[of]), expected)


@pytest.mark.parametrize("name", ["numpy", "cpu"])
@pytest.mark.parametrize("block", [Minimum, Maximum])
def test_minimum_of_a_value_and_itself_passes_the_gradient(name, block):
    """This holds for NaN as well: rules replace min(x, x) and max(x, x) by x."""
    backend = BACKENDS[name]()
    model = Model()
    model |= block()(left="x", right="x", output="y")
    x, seed = backend.array(np.array([1.0, np.nan, 0.0])), backend.ones(3)
    for level in ("none", "full"):
        compiled = ml.compile(
            model, backend, shapes={"x": [3]}, trainable_keys=["x"], optimization_level=level
        )
        _, gradients = compiled.evaluate({"x": x}, {}, output_gradients=seed)
        assert backend.to_numpy(gradients["x"]).tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("block", [Softmax(axis=0), LogSoftmax(axis=0), LogSumExp(axis=0)])
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_normalizing_blocks_accept_empty_axes(name, block):
    backend = BACKENDS[name]()
    compiled = ml.compile(block, backend, shapes={"input": ["n", 4]}, trainable_keys=["input"])
    own = {"input": backend.zeros(0, 4)}
    result = compiled.evaluate(own, {})["output"]
    expected = np.full(4, -np.inf) if isinstance(block, LogSumExp) else np.empty((0, 4))
    np.testing.assert_array_equal(backend.to_numpy(result), expected)
    gradients = compiled.evaluate_gradients(own, {}, backend.ones_like(result))
    assert backend.to_numpy(gradients["input"]).shape == (0, 4)


@pytest.mark.parametrize("name", BACKENDS)
def test_attention_over_no_keys_is_zero(name):
    backend = BACKENDS[name]()
    shapes = {"query": [1, 2, "q", 4], "key": [1, 2, "k", 4], "value": [1, 2, "k", 4]}
    compiled = ml.compile(ScaledDotProduct(is_causal=False), backend, shapes=shapes)
    keys = backend.zeros(1, 2, 0, 4)
    inputs = {"query": backend.ones(1, 2, 3, 4), "key": keys, "value": keys}
    output = compiled.evaluate({}, inputs)["output"]
    np.testing.assert_array_equal(backend.to_numpy(output), np.zeros((1, 2, 3, 4)))


def test_maxima_have_an_initial_value_only_for_axes_that_may_be_empty():
    for shape, begins in [(["n", 4], False), ([4, "n"], True), ([2, 4], False), (None, True)]:
        shapes = {} if shape is None else {"input": shape}
        source = ml.compile(Softmax(axis=-1), ml.NumpyBackend(), shapes=shapes).code
        assert ("initial=-np.inf" in source) == begins


@pytest.mark.parametrize("backend", [ml.CpuBackend(), ml.CBackend()], ids=["cpu", "c"])
def test_native_code_without_shapes_broadcasts_as_numpy(backend):
    model = Model()
    model |= ml.models.Add()(left="a", right="b", output="y")
    compiled = ml.compile(model, backend, inference=True)
    trained = ml.compile(model, backend, trainable_keys=["a", "b"])
    draw = np.random.default_rng(0).standard_normal
    shapes = [((3, 4), (3, 4)), ((3, 1), (3, 4)), ((1, 4), (3, 1)), ((0, 4), (1, 4))]
    for one, other in [*shapes, ((2, 1, 3), (5, 1)), ((2, 4), (2, 4))]:
        a, b = draw(one).astype("float32"), draw(other).astype("float32")
        got = compiled.evaluate({}, {"a": a, "b": b})["y"]
        np.testing.assert_array_equal(got, a + b)
        seed = np.ones_like(a + b)
        gradients = trained.evaluate({"a": a, "b": b}, {}, output_gradients={"y": seed})[1]
        assert [gradients[n].shape for n in "ab"] == [one, other]
    with pytest.raises(ml.MithrilError, match="do not fit together"):
        compiled.evaluate({}, {"a": np.ones(3, "float32"), "b": np.ones(4, "float32")})


@pytest.mark.parametrize("name", BACKENDS)
def test_arrays_of_another_byte_order(name):
    compiled = ml.compile(ml.models.Relu(), BACKENDS[name](), shapes={"input": [2]}, inference=True)
    got = compiled.evaluate({}, {"input": np.array([1.5, -2.0], ">f4")})["output"]
    np.testing.assert_array_equal(np.asarray(got), [1.5, 0.0])


def test_unsigned_operations_that_torch_lacks_are_errors():
    pytest.importorskip("torch")
    model = Model()
    a, b = (ml.IOKey(name, dtype="uint32") for name in "ab")
    model |= ml.models.Add()(left=a, right=b, output="y")
    compiled = ml.compile(model, ml.TorchBackend(), shapes={"a": [2], "b": [2]}, inference=True)
    one = np.ones(2, "uint32")
    with pytest.raises(ml.BackendError, match="Backend does not support operation of this dtype"):
        compiled.evaluate({}, {"a": one, "b": one})


OF_WIDE_INTEGERS = """
import numpy as np, mithril as ml
from mithril.models import Embedding, Linear, Model, Sum
narrow, most = Model(), np.array([2**31 - 1] * 3, "int32")
narrow |= Sum(axis=0)(input=ml.IOKey("x", dtype="int32"), output="y")
wide = Model()
wide += Embedding(10, 8)(input=ml.IOKey("ids", dtype="int64"), output="e")
wide += Linear(3)(output="y")
before = ml.compile(narrow, ml.JaxBackend(), shapes={"x": [3]}, inference=True)
first = ml.compile(wide, ml.JaxBackend(), shapes={"ids": ["b", "t"]})
ids = np.array([[1, 2, 3]])
print(first.evaluate(first.randomize_params(seed=0), {"ids": ids})["y"].shape)
for compiled in (before, ml.compile(narrow, ml.JaxBackend(), shapes={"x": [3]}, inference=True)):
    y = compiled.evaluate({}, {"x": most})["y"]
    print(y.dtype, int(y))
"""


def test_integers_of_jax_are_what_they_say_with_and_without_64_bits():
    pytest.importorskip("jax")
    command = [sys.executable, "-c", OF_WIDE_INTEGERS]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout.splitlines() == ["(1, 3, 3)", *["int32 2147483645"] * 2], run.stderr


@pytest.mark.parametrize("kind", INSTALLED)
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_casts_drop_the_fraction(kind, dtype):
    """Also after the maximum is subtracted, where XLA rounds downwards."""
    model = Model()
    x = ml.IOKey("x", differentiable=False)
    model |= Cast(getattr(ml, dtype))(input=(x - x.max(axis=1, keepdim=True)) * 5.0, output="y")
    values = np.random.default_rng(0).standard_normal((26, 32, 28)).astype(np.float32)
    make = getattr(ml, MAKERS[kind])
    compiled = ml.compile(model, make(dtype=ml.float32), shapes={"x": values.shape})
    found = np.asarray(compiled.backend.to_numpy(compiled.evaluate({}, {"x": values})["y"]))
    want = (values - values.max(axis=1, keepdims=True)) * np.float32(5)
    np.testing.assert_array_equal(found, want.astype(dtype))
