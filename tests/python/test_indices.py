"""Calls check integers that index an axis, on every backend and in C."""

import subprocess

import numpy as np
import pytest
from c_programs import SANITIZED, STRICT
from comparing import chain
from conftest import INSTALLED, MAKERS, has
from exported import export

import mithril as ml
from mithril.models import (
    CrossEntropy,
    Embedding,
    Gather,
    Linear,
    Mean,
    Model,
    OneHot,
    Scatter,
    Slice,
    Transpose,
)

BACKENDS = [getattr(ml, MAKERS[kind]) for kind in INSTALLED]
INSTALLED = pytest.mark.parametrize("backend", BACKENDS)
TOKENS = np.array([[0, 1, 2], [9, -10, 3]])


def embedding(backend, **options):
    model = Model()
    model |= Embedding(10, 4, name="tokens")(input="x", output="y")
    return ml.compile(model, backend(), shapes={"x": ["batch", 3]}, **options)


def classifier(loss, backend, **options):
    model = Model()
    model += Linear(5)(input="x")
    model += loss(target="t")
    model += Mean()(output="y")
    shapes = {"x": ["batch", 3], "t": ["batch"]}
    return ml.compile(model, backend(), shapes=shapes, **options)


def refused(compiled, inputs):
    with pytest.raises(ml.IndexRangeError) as caught:
        compiled.evaluate(compiled.randomize_params(seed=0), inputs)
    return str(caught.value)


@INSTALLED
def test_a_token_out_of_range(backend):
    compiled = embedding(backend)
    params = compiled.randomize_params(seed=0)
    assert compiled.evaluate(params, {"x": TOKENS})["y"].shape == (2, 3, 4)
    message = refused(compiled, {"x": np.array([[0, 1, 2], [3, 12, 4]])})
    assert message == (
        "Index out of range: `x` of inputs\n  where: block `tokens`\n  got: 12 at [1, 1]\n"
        "  expected: -10 to 9\n  more: mithril error E0205"
    )
    assert "got: -11 at [1, 2]" in refused(compiled, {"x": np.array([[0, 1, 2], [3, 4, -11]])})
    # It is an `IndexError`, as in the frameworks.
    with pytest.raises(IndexError):
        compiled.evaluate(params, {"x": TOKENS + 1})


@INSTALLED
def test_arrays_of_the_backend_itself(backend):
    compiled = embedding(backend)
    made = compiled.backend.array(np.array([[0, 1, 2], [3, 12, 4]]))
    assert "got: 12 at [1, 1]" in refused(compiled, {"x": made})
    good = compiled.backend.array(TOKENS)
    assert compiled.evaluate(compiled.randomize_params(), {"x": good})["y"].shape == (2, 3, 4)


@INSTALLED
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"weights": [1.0] * 5}])
def test_a_label_out_of_range(backend, options):
    compiled = classifier(CrossEntropy(**options, name="loss"), backend)
    inputs = {"x": np.ones((3, 3), "float32"), "t": np.array([0, 4, -100])}
    message = refused(compiled, inputs)
    assert message == (
        "Index out of range: `t` of inputs\n  where: block `loss`\n  got: -100 at [2]\n"
        "  expected: 0 to 4\n  more: mithril error E0205"
    )
    # Negative labels do not count from the end.
    assert "got: -1 at [0]" in refused(compiled, {**inputs, "t": np.array([-1, 0, 0])})
    gradients = compiled.evaluate_gradients
    with pytest.raises(ml.IndexRangeError, match="got: 5 at"):
        params = compiled.randomize_params(seed=0)
        gradients(params, {**inputs, "t": np.array([0, 5, 0])}, compiled.backend.ones())


@INSTALLED
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"weights": [1.0] * 5}])
def test_ignored_labels_are_not_checked(backend, options):
    compiled = classifier(CrossEntropy(ignore_index=-100, **options), backend)
    inputs = {"x": np.ones((3, 3), "float32"), "t": np.array([0, 4, -100])}
    compiled.evaluate(compiled.randomize_params(seed=0), inputs)
    message = refused(compiled, {**inputs, "t": np.array([0, -100, -99])})
    assert "got: -99 at [2]\n  expected: 0 to 4, or -100" in message


@INSTALLED
def test_without_shapes(backend):
    model = chain(Embedding(10, 4), Linear(3))
    compiled = ml.compile(model, backend())
    params = compiled.randomize_params(seed=0)
    compiled.evaluate(params, {"input": TOKENS})
    with pytest.raises(ml.IndexRangeError, match=r"got: 12 at \[0\]"):
        compiled.evaluate(params, {"input": np.array([12])})


def readers():
    """Blocks that read lengths `n` of two sequences of five elements."""
    lstm, many, scan, ctc, labels = (Model() for _ in range(5))
    lstm |= ml.LSTM(3, name="net")(input="x", lengths="n", output="y")
    cell = ml.GRUCell(4)
    many |= ml.ManyToOne(cell, use_lengths=True, name="reader")(input="x", lengths="n", output="y")
    carry = {"hidden": "output"}
    step = ml.Scan(
        ml.RNNCell(4), carry=carry, over=["input"], axis=1, use_lengths=True, name="scan"
    )
    scan |= step(input="x", lengths="n", hidden="h", output="y")
    ctc |= ml.CTC(name="ctc")(input="x", target="t", input_lengths="n", output="y")
    labels |= ml.CTC(name="ctc")(input="x", target="t", target_lengths="n", output="y")
    x = np.ones((2, 5, 3), "float32")
    yield lstm, {"x": x}, "net.layer"
    yield many, {"x": x}, "reader.inside"
    yield scan, {"x": x, "h": np.zeros((2, 4), "float32")}, "scan"
    yield ctc, {"x": x, "t": np.ones((2, 2), "int32")}, "ctc"
    yield labels, {"x": np.ones((2, 9, 3), "float32"), "t": np.ones((2, 5), "int32")}, "ctc"


@INSTALLED
@pytest.mark.parametrize("case", range(5))
def test_lengths_out_of_range(backend, case):
    model, arrays, where = list(readers())[case]
    shapes = {name: list(array.shape) for name, array in arrays.items()} | {"n": [2]}
    dtypes = {"t": ml.int32} if "t" in arrays else {}
    compiled = ml.compile(model, backend(), shapes=shapes, dtypes=dtypes)
    params = compiled.randomize_params(seed=0)
    for lengths in ([5, 0], [0, 0]):
        compiled.evaluate(params, {**arrays, "n": np.array(lengths)})
    message = refused(compiled, {**arrays, "n": np.array([1, 6])})
    assert where in message
    assert "got: 6 at [1]\n  expected: 0 to 5\n" in message
    assert "got: -1 at [0]" in refused(compiled, {**arrays, "n": np.array([-1, 5])})


@INSTALLED
def test_lengths_up_to_a_dim_of_the_call(backend):
    model, arrays, _ = next(readers())
    compiled = ml.compile(model, backend(), shapes={"x": ["b", "t", 3], "n": ["b"]})
    params = compiled.randomize_params(seed=0)
    compiled.evaluate(params, {**arrays, "n": np.array([5, 2])})
    message = refused(compiled, {**arrays, "n": np.array([5, 7])})
    assert "got: 7 at [1]\n  expected: 0 to 5 (`t` is 5)" in message


@INSTALLED
def test_the_range_may_be_a_dim_of_the_call(backend):
    compiled = ml.compile(Gather(axis=1), backend(), shapes={"input": [2, "n"], "indices": ["k"]})
    x = np.ones((2, 4), "float32")
    assert compiled.evaluate({}, {"input": x, "indices": np.array([3, -4])})["output"].shape
    with pytest.raises(ml.IndexRangeError, match=r"4 at \[1\]\n  expected: -4 to 3 \(`n` is 4\)"):
        compiled.evaluate({}, {"input": x, "indices": np.array([3, 4])})


@INSTALLED
def test_labels_and_scatter_indices_are_checked(backend):
    one_hot = ml.compile(OneHot(3), backend(), shapes={"input": [2]})
    assert "expected: 0 to 2" in refused(one_hot, {"input": np.array([-1, 0])})
    shapes = {"input": [4], "indices": [2], "updates": [2]}
    scatter = ml.compile(Scatter(), backend(), shapes=shapes)
    inputs = {"input": np.ones(4, "float32"), "updates": np.ones(2, "float32")}
    assert "expected: -4 to 3" in refused(scatter, {**inputs, "indices": np.array([0, 4])})
    indexer = Model()
    indexer |= ml.models.Indexer()(input="rows", index="places", output="y")
    compiled = ml.compile(indexer, backend(), shapes={"rows": [4, 2], "places": [3]})
    rows = np.ones((4, 2), "float32")
    message = refused(compiled, {"rows": rows, "places": np.array([0, -4, 4])})
    assert "`places`" in message
    assert "got: 4 at [2]" in message


@INSTALLED
def test_indices_are_checked_through_slices_and_casts(backend):
    """Through slices, other axes and casts. Elements that a slice drops are not checked."""
    model = Model()
    model |= Slice(start=1, axis=1)(input="x", output="rest")
    model |= Transpose()(input="rest", output="turned")
    model |= ml.Cast(ml.int32)(input="turned", output="narrow")
    model |= chain(Embedding(10, 4, name="words"))(input="narrow", output="y")
    narrow = backend is getattr(ml, "JaxBackend", None)
    dtype = "int32" if narrow else "int64"
    shapes = {"x": ["batch", "length"]}
    compiled = ml.compile(model, backend(), shapes=shapes, dtypes={"x": dtype})
    x = np.array([[-100, 1, 2], [99, 3, 4]], dtype)
    params = compiled.randomize_params(seed=0)
    assert compiled.evaluate(params, {"x": x})["y"].shape == (2, 2, 4)
    x[1, 2] = 10
    message = refused(compiled, {"x": x})
    assert "words`\n  got: 10 at [1, 2]" in message


@INSTALLED
def test_computed_indices_are_not_checked(backend):
    model = Model()
    model |= ml.Minimum()(left="x", right=9, output="least")
    model |= Embedding(10, 4)(input="least", output="y")
    compiled = ml.compile(model, backend(), shapes={"x": [3]}, dtypes={"x": ml.int32})
    out = compiled.evaluate(compiled.randomize_params(), {"x": np.array([1, 12, 3], "int32")})
    assert out["y"].shape == (3, 4)


@pytest.mark.parametrize("kind", [kind for kind in ("cpu", "c") if has(kind)])
def test_disabled_checks_clamp_indices(kind):
    compiled = embedding(getattr(ml, MAKERS[kind]), checks=False)
    params = compiled.randomize_params(seed=0)
    y = compiled.evaluate(params, {"x": np.array([[0, 1, 12]])})["y"]
    # Without checks the index is clamped to the last row.
    np.testing.assert_array_equal(y[0, 2], params["tokens.w"][9])
    if kind == "c":
        assert "return MITHRIL_ERROR_INDEX" not in compiled.code


@pytest.mark.parametrize("kind", [kind for kind in ("cpu", "c") if has(kind)])
def test_clamping_does_not_overflow(kind):
    compiled = embedding(getattr(ml, MAKERS[kind]), checks=False)
    params = compiled.randomize_params(seed=0)
    ends = np.array([[2**63 - 1, -(2**63), 2**63 - 4]])
    y = compiled.evaluate(params, {"x": ends})["y"]
    np.testing.assert_array_equal(y[0], params["tokens.w"][[9, 0, 9]])


def test_checks_must_be_a_bool():
    with pytest.raises(ml.UsageError, match="`checks` must be True or False"):
        embedding(ml.NumpyBackend, checks="yes")


@pytest.mark.skipif(not has("jax"), reason="JAX is not installed")
def test_traced_indices_are_not_checked():
    jax = pytest.importorskip("jax")
    compiled = embedding(ml.JaxBackend)
    params = compiled.randomize_params(seed=0)
    run = jax.jit(lambda x: compiled.evaluate(params, {"x": x})["y"])
    assert run(compiled.backend.array(TOKENS + 5)).shape == (2, 3, 4)


def layouts():
    plain = np.arange(20).reshape(4, 5)
    yield plain
    yield np.asfortranarray(plain)
    yield plain[::-1, ::2]
    yield plain.astype(">i8")
    yield np.broadcast_to(np.arange(5), (3, 5))


@INSTALLED
def test_index_errors_are_found_in_every_memory_layout(backend):
    """Finds a wrong element at any position, in any memory layout."""
    model = ml.compile(Embedding(20, 2), backend(), shapes={"input": ["n", "m"]})
    params = model.randomize_params(seed=0)
    for x in layouts():
        model.evaluate(params, {"input": x})
        for place in [(0, 0), (x.shape[0] - 1, 1), (1, x.shape[1] - 1)]:
            wrong = np.empty_like(x, order="K")
            wrong[...] = x
            wrong[place] = 20
            with pytest.raises(ml.IndexRangeError, match=rf"20 at \[{place[0]}, {place[1]}\]"):
                model.evaluate(params, {"input": wrong})


# The same checks in C.

CALL = """
#include "model.c"
#include <stdio.h>

int main(void) {
  static float w[40], y[24];
  static const int64_t good[] = {0, 1, 2, 9, -10, 3}, bad[] = {0, 1, 2, 9, 10, 3};
  const mithril_model_params params = {w};
  printf("%d", mithril_model(2, good, &params, y, NULL));
  y[0] = 7;
  printf(" %d %g", mithril_model(2, bad, &params, y, NULL), y[0]);
  return 0;
}
"""


@pytest.mark.skipif(not has("c"), reason="there is no C compiler")
def test_c_source_checks_indices(tmp_path):
    compiled = embedding(ml.CBackend, file_path=tmp_path / "model.c")
    assert "x: indices from -10 to 9, of block `tokens`" in compiled.code
    (tmp_path / "main.c").write_text(CALL)
    command = ["cc", *STRICT, "-O2", "main.c", "-o", "main", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ran = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    # The call wrote no result.
    assert ran.stdout == "0 5 7"


ENDS = """
#include "model.c"

int main(void) {
  static float w[40], y[12];
  static const int64_t ends[] = {INT64_MAX, INT64_MIN, INT64_MAX - 4};
  const mithril_model_params params = {w};
  return mithril_model(1, ends, &params, y, NULL);
}
"""


@pytest.mark.skipif(not has("c"), reason="there is no C compiler")
def test_c_source_clamps_without_overflow(tmp_path):
    embedding(ml.CBackend, checks=False, file_path=tmp_path / "model.c")
    (tmp_path / "main.c").write_text(ENDS)
    command = ["cc", *STRICT, *SANITIZED, "main.c", "-o", "main", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run(["./main"], cwd=tmp_path, check=True)


@pytest.mark.skipif(not has("cpu"), reason="built without native code")
def test_libraries_check_indices(tmp_path):
    model = Model()
    model |= Slice(start=1, axis=1)(input="x", output="rest")
    model |= Embedding(10, 4)(input="rest", output="e")
    model |= Linear(3)(input="e", output="logits")
    model |= CrossEntropy(ignore_index=-1)(input="logits", target="t", output="y")
    shapes = {"x": ["batch", "length"], "t": ["batch", 2]}
    compiled = ml.compile(model, ml.CpuBackend(), shapes=shapes, dtypes={"t": ml.int8})
    params = compiled.randomize_params(seed=0)
    library = export(compiled, tmp_path, name="model", params=params)
    x, t = np.array([[99, 1, 2], [-99, 9, -10]]), np.array([[0, -1], [2, 1]], "int8")

    def status(x, t, end=""):
        seeds = {"y": np.ones((2, 2), "float32")} if end else {}
        dims = {"batch": 2, "length": 3}
        return library.call(end, dims=dims, data={"x": x, "t": t}, cotangent=seeds)[0]

    for end in ("", "_gradients"):
        assert status(x, t, end) == 0
        assert status(x + (x == 9), t, end) == 5
        assert status(x, t - 1, end) == 5
        assert status(x, t + (t == 2), end) == 5
    (function, _) = library.meta["functions"]
    assert function["indices"] == [
        "x: indices that are read from -10 to 9, of block `embedding`",
        "t: indices from 0 to 2, or -1, of block `cross_entropy`",
    ]


@pytest.mark.parametrize("kind", [kind for kind in ("mlx", "cpu", "c") if has(kind)])
@pytest.mark.parametrize("block", ["Gather", "TakeAlongAxis", "Embedding"])
def test_computed_indices_are_clamped(kind, block):
    """These do not check what a model computes, and must not read other memory."""
    model = Model()
    places = ml.IOKey("places") * 7
    made = Embedding(4, 3) if block == "Embedding" else getattr(ml, block)(axis=0)
    named = {"input": places} if block == "Embedding" else {"input": "x", "indices": places}
    model |= made(**named, output="y")
    backend = getattr(ml, MAKERS[kind])()
    compiled = ml.compile(model, backend, trainable_keys=["x"] if block != "Embedding" else [])
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    shape = (3, 3) if block == "TakeAlongAxis" else (3,)
    index = np.broadcast_to(np.array([-1, 0, 1]).reshape(-1, *[1] * (len(shape) - 1)), shape)
    key = "embedding.w" if block == "Embedding" else "x"
    seed = np.ones((3, 3), np.float32)
    outputs, gradients = compiled.evaluate(
        {key: backend.array(x)},
        {"places": backend.array(index.astype(np.int32))},
        output_gradients={"y": backend.array(seed)},
    )
    np.testing.assert_array_equal(backend.to_numpy(outputs["y"]), x[[0, 0, 3]])
    np.testing.assert_array_equal(backend.to_numpy(gradients[key]).sum(1), [6, 0, 0, 3])
