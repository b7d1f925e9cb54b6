"""The dtypes in which blocks compute: that of the model, or their own."""

import ml_dtypes
import numpy as np
import pytest
from block_cases import array, build, variants
from cases import ROWS
from conftest import CLASSES

import mithril as ml
from mithril import _core, models
from mithril.models import (
    LSTM,
    BatchNorm1d,
    Cond,
    Conv2d,
    Embedding,
    LayerNorm,
    Linear,
    MatrixMultiply,
    Mean,
    Model,
    Relu,
    Scan,
    Sequential,
    Sum,
)

HALF = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
# Blocks that compute in at least single precision: matrices that are factorised, and spectra.
WIDE = ("float32", "float64")
# Where the processor has no instruction that rounds to bfloat16, clang calls this function for some
# kernels, and tinygrad does not link it.
UNKNOWN = "__truncsfbf2"


def name_of(array):
    return _core.DType(array.dtype).name


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if not row.signed])
def test_results_and_gradients_have_the_dtype_of_the_model(name, make):
    """Every float that a block returns has the dtype of its inputs, and every gradient that of its
    param, in each dtype of floats."""
    case = next(iter(variants(name)))
    model, shapes = build(name, case)
    taken = 0
    for dtype in ("float16", "bfloat16", "float64"):
        try:
            backend = make(dtype=dtype)
            compiled = ml.compile(model, backend, shapes=shapes, jit=make.kind == "c")
        except ml.MithrilError as error:
            assert dtype in HALF and any(wide in str(error) for wide in WIDE), error
            continue
        taken += 1
        try:
            check_dtypes(name, case, compiled, dtype)
        except RuntimeError as error:
            assert (make.kind, dtype) == ("tinygrad", "bfloat16") and UNKNOWN in str(error), error
    assert taken >= 1


def check_dtypes(name, case, compiled, dtype):
    backend = compiled.backend
    states_dtype = "dtype" in {p for p, *_ in _core.block_info(name).parameters}
    rng = np.random.default_rng(7)
    arguments = {a.name: a for a in compiled._program.arguments}
    given = {
        n: backend.from_numpy(array(rng, name, a, tuple(int(d) for d in a.dims)))
        for n, a in arguments.items()
        if a.role in ("param", "data")
    }
    params = {n: given[n] for n in compiled.params}
    inputs = {n: given[n] for n in compiled.inputs if n in given}
    outputs = compiled.evaluate(params, inputs)
    stated = {n: v for n, v in compiled._variant.outputs.items() if n in outputs}
    for n, value in outputs.items():
        assert name_of(value) == stated[n] or "int" in stated[n]
        own = {dtype} if not (states_dtype or case.dtypes) else {dtype, stated[n]}
        assert stated[n] in own or "float" not in stated[n], (name, n)
    floats = [n for n in outputs if stated[n] == dtype]
    if params and floats:
        ones = {n: backend.ones_like(outputs[n]) for n in floats}
        gradients = compiled.evaluate_gradients(params, inputs, ones)
        for n, gradient in gradients.items():
            assert name_of(gradient) == name_of(params[n]), n


@pytest.mark.parametrize("half", HALF)
def test_a_block_with_a_dtype_of_its_own(backend, half):
    """Against the same casts, written out in NumPy."""
    model = Sequential(
        [Linear(4, name="a"), Linear(5, name="b", dtype=half), Relu(), Linear(2, name="z")]
    )
    compiled = ml.compile(model, backend, shapes={"input": [3, 6]})
    params = compiled.randomize_params(seed=0)
    # Other numbers may be so near 0 that `Relu` passes a gradient in one precision alone.
    given = backend.array(np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32))
    outputs, gradients = compiled.evaluate(
        params, {"input": given}, output_gradients={"output": backend.ones(3, 2)}
    )
    assert {n: name_of(v) for n, v in gradients.items()} == {
        "a.w": "float32", "a.b": "float32", "b.w": half, "b.b": half, "z.w": "float32",
        "z.b": "float32",
    }  # fmt: skip
    assert name_of(outputs["output"]) == "float32"
    values = {n: np.asarray(backend.to_numpy(v)) for n, v in params.items()}
    a = np.asarray(backend.to_numpy(given)) @ values["a.w"] + values["a.b"]
    low = lambda x: x.astype(HALF[half]).astype(np.float32)  # noqa: E731
    b = low(low(low(a) @ low(values["b.w"])) + low(values["b.b"]))
    expected = np.maximum(b, 0) @ values["z.w"] + values["z.b"]
    tolerance = 0.004 if half == "float16" else 0.03
    np.testing.assert_allclose(backend.to_numpy(outputs["output"]), expected, atol=tolerance)
    whole = ml.compile(
        Sequential([Linear(4, name="a"), Linear(5, name="b"), Relu(), Linear(2, name="z")]),
        backend,
        shapes={"input": [3, 6]},
    )
    wide = {n: backend.cast(v, "float32") for n, v in params.items()}
    slopes = whole.evaluate_gradients(wide, {"input": given}, {"output": backend.ones(3, 2)})
    for n, slope in slopes.items():
        found = np.asarray(backend.to_numpy(gradients[n]), np.float32)
        np.testing.assert_allclose(found, backend.to_numpy(slope), atol=10 * tolerance)


def test_composites_states_loops_and_tables(backend):
    """A composite, running statistics, a body of a loop, recurrent layers and integers."""
    step = Model()
    step |= Linear(4, name="inside")("x", output="y")
    model = Model()
    model += Embedding(7, 6, name="table", dtype="float64")(input="tokens", output="e")
    model += Sequential([Linear(4), LayerNorm()], name="inner", precision=64)
    model += BatchNorm1d(name="norm", dtype=ml.float64)
    model += LSTM(3, name="layer", dtype="float64")(output="s")
    tokens = np.array([[0, 1, 2], [6, 5, 4]])
    wide = Model()
    wide += Embedding(7, 6, name="table")(input="tokens", output="e")
    wide += Sequential([Linear(4), LayerNorm()], name="inner")
    wide += BatchNorm1d(name="norm")
    wide += LSTM(3, name="layer")(output="s")
    model |= Linear(2, name="head")(input="s", output=ml.IOKey("out"))
    wide |= Linear(2, name="head")(input="s", output=ml.IOKey("out"))
    compiled = ml.compile(model, backend, shapes={"tokens": [2, 3]})
    params = compiled.randomize_params(seed=0)
    dtypes = {n: name_of(v) for n, v in params.items()}
    assert {d for n, d in dtypes.items() if not n.startswith("head")} == {"float64"}
    assert dtypes["head.w"] == "float32"
    assert {name_of(v) for v in compiled.state.values()} == {"float64"}
    inputs = {"tokens": backend.from_numpy(tokens)}
    outputs = compiled.evaluate(params, inputs)["out"]
    assert name_of(outputs) == "float32"
    assert {name_of(v) for v in compiled.state.values()} == {"float64"}
    reference = type(backend)(dtype="float64")
    known = ml.compile(wide, reference, shapes={"tokens": [2, 3]})
    same = {n: reference.array(backend.to_numpy(v).astype(np.float64)) for n, v in params.items()}
    want = known.evaluate(same, {"tokens": reference.from_numpy(tokens)})["out"]
    np.testing.assert_allclose(backend.to_numpy(outputs), reference.to_numpy(want), atol=1e-6)


def test_a_loop_has_the_dtype_of_its_body():
    step = Model(dtype="float64")
    step |= Linear(4, name="inside")("x", output="y")
    loop = Model()
    loop |= Scan(step, over=["x"], collect=["y"], name="loop")(x="x", y=ml.IOKey("y"))
    compiled = ml.compile(loop, ml.NumpyBackend(), shapes={"x": [3, 2, 5]})
    params = compiled.randomize_params(seed=0)
    assert {v.dtype.name for v in params.values()} == {"float64"}
    out = compiled.evaluate(params, {"x": np.ones((3, 2, 5), np.float32)})["y"]
    assert out.dtype == np.float32


# Sums of numbers that cancel: in single precision, nothing is left of the small ones.
LARGE = np.array([[1e8, 1.0, -1e8, 1.0] * 8], np.float32)


@pytest.mark.parametrize("block", ["sum", "mean", "matmul", "linear", "conv"])
def test_sums_in_another_dtype(backend, block):
    """`acc` is the dtype of sums and products; results have the block's own."""
    ones = np.ones((32, 1), np.float32)
    made = {
        "sum": (lambda **own: Sum(axis=-1, **own), {"input": LARGE}, 16.0),
        "mean": (lambda **own: Mean(axis=-1, **own), {"input": LARGE}, 0.5),
        "matmul": (MatrixMultiply, {"left": LARGE, "right": ones}, 16.0),
        "linear": (
            lambda **own: Linear(1, use_bias=False, **own),
            {"input": LARGE, "w": ones},
            16.0,
        ),
        "conv": (
            lambda **own: Conv2d(1, (1, 32), use_bias=False, **own),
            {"input": LARGE.reshape(1, 1, 1, 32), "w": ones.reshape(1, 1, 1, 32)},
            16.0,
        ),
    }
    build, given, expected = made[block]
    shapes = {n: list(v.shape) for n, v in given.items() if n != "w"}
    model = Model()
    model |= build(acc="float64", name="own")(
        **{n: n for n in given if n != "w"}, output=ml.IOKey("output")
    )
    compiled = ml.compile(model, backend, shapes=shapes)
    params = {"own.w": backend.from_numpy(given["w"])} if "w" in given else {}
    inputs = {n: backend.from_numpy(v) for n, v in given.items() if n != "w"}
    out = compiled.evaluate(params, inputs)["output"]
    assert name_of(out) == "float32"
    assert float(backend.to_numpy(out).reshape(-1)[0]) == expected


def test_dtypes_are_saved():
    model = Model(acc="float64")
    model += Linear(4, dtype="float16", acc="float32")(input="x")
    model += Sequential([Linear(2)], precision=64)(output="y")
    loaded = Model.from_json(model.to_json())
    assert loaded.to_json() == model.to_json()
    for own in (model, loaded):
        compiled = ml.compile(own, ml.NumpyBackend(), shapes={"x": [1, 3]})
        assert [v.dtype.name for v in compiled.randomize_params(seed=0).values()] == [
            "float16", "float16", "float64", "float64",
        ]  # fmt: skip


def test_a_shared_block_keeps_one_param():
    """The second use reads the param of the first one in another dtype."""
    layer = Linear(3, name="own")
    model = Model()
    model += layer(input="x")
    model += Sequential([layer], name="half", dtype="float16")(output="y")
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"x": [2, 3]})
    params = compiled.randomize_params(seed=0)
    assert {v.dtype.name for v in params.values()} == {"float32"}
    given = {"x": np.ones((2, 3), np.float32)}
    out, slopes = compiled.evaluate(
        params, given, output_gradients={"y": np.ones((2, 3), np.float32)}
    )
    assert out["y"].dtype == np.float32
    assert {v.dtype.name for v in slopes.values()} == {"float32"}


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"dtype": "int32"}, ml.MithrilError, "must be a dtype of floats"),
        ({"dtype": "flaot16"}, ml.MithrilError, "did you mean `float16`"),
        ({"precision": 8}, ml.UsageError, "16, 32 or 64"),
        ({"precision": 16, "dtype": "float32"}, ml.UsageError, "disagree"),
        ({"dtype": "float64", "acc": "float32"}, ml.MithrilError, "narrower"),
        ({"acc": "bool"}, ml.MithrilError, "must be a dtype of floats"),
    ],
    ids=["integers", "name", "width", "two", "narrow", "bool"],
)
def test_wrong_dtypes_of_blocks(given, error, text):
    with pytest.raises(error, match=text):
        Linear(3, **given)


def test_wrong_uses_of_dtypes():
    model = Sequential([Linear(3, acc="float16")])
    with pytest.raises(ml.MithrilError, match="narrower"):
        ml.compile(model, ml.NumpyBackend(), shapes={"input": [2, 2]})
    branch = lambda **own: Sequential([Linear(2)], **own)  # noqa: E731
    either = Model()
    either |= Cond(branch(dtype="float64"), branch(), name="either")(
        condition="c", input="x", output=ml.IOKey("y")
    )
    with pytest.raises(ml.MithrilError, match="cannot have a dtype of its own"):
        ml.compile(either, ml.NumpyBackend(), shapes={"x": [2, 2]})
    # Blocks with a setting of this name keep it.
    assert models.Cast(dtype="int32") is not None
