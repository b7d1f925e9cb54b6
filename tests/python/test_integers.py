"""Integers without a declared dtype: the same dict of arrays runs on every backend."""

import numpy as np
import pytest
from conftest import INSTALLED, MAKERS, has

import mithril as ml
from mithril.models import CrossEntropy, Embedding, Linear, Mean, Model

BACKENDS = [getattr(ml, MAKERS[kind]) for kind in INSTALLED]
INSTALLED = pytest.mark.parametrize("backend", BACKENDS)
DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def model():
    model = Model()
    model |= Embedding(10, 4)(input="x", output="e")
    model |= Linear(5)(input="e", output="logits")
    model |= CrossEntropy()(input="logits", target="t", output="losses")
    model += Mean()(input="losses", output="y")
    return model


SHAPES = {"x": ["batch", 3], "t": ["batch", 3]}
INPUTS = {"x": np.array([[0, 1, 2], [9, 3, 4]]), "t": np.array([[0, 1, 2], [4, 3, 4]])}


def reference():
    compiled = ml.compile(model(), ml.NumpyBackend(), shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    return params, compiled.evaluate(params, INPUTS)["y"]


@INSTALLED
@pytest.mark.parametrize("shapes", [None, SHAPES], ids=["open", "known"])
def test_every_dtype_on_every_backend(backend, shapes):
    backend = backend()
    compiled = ml.compile(model(), backend, shapes=shapes)
    params, want = reference()
    params = {name: backend.array(value) for name, value in params.items()}
    for dtype in DTYPES:
        inputs = {name: value.astype(dtype) for name, value in INPUTS.items()}
        for given in (inputs, {name: backend.array(value) for name, value in inputs.items()}):
            seeds = {"y": backend.ones(())}
            outputs, gradients = compiled.evaluate(params, given, output_gradients=seeds)
            y = backend.to_numpy(outputs["y"])
            np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6, err_msg=dtype)
            assert set(gradients) == set(params)
    y = backend.to_numpy(compiled.evaluate(params, INPUTS)["y"])
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


@INSTALLED
def test_a_dtype_that_was_set_is_kept(backend):
    shapes, dtypes = {"x": [3]}, {"x": ml.int32}
    one = Model()
    one |= Embedding(10, 4)(input="x", output="y")
    compiled = ml.compile(one, backend(), shapes=shapes, dtypes=dtypes)
    params = compiled.randomize_params(seed=0)
    compiled.evaluate(params, {"x": np.array([1, 2, 3], "int32")})
    with pytest.raises(ml.ShapeError, match="`x` of inputs has the wrong dtype"):
        compiled.evaluate(params, {"x": np.array([1, 2, 3], "int16")})


@INSTALLED
@pytest.mark.parametrize("dtype", ["float32", "float64", "bool"])
def test_other_dtypes_are_refused(backend, dtype):
    compiled = ml.compile(Embedding(10, 4), backend(), shapes={"input": [3]})
    with pytest.raises(ml.ShapeError, match="`input` of inputs has the wrong dtype"):
        compiled.evaluate(compiled.randomize_params(), {"input": np.ones(3, dtype)})


@INSTALLED
def test_floats_are_never_cast(backend):
    compiled = ml.compile(Linear(2), backend(), shapes={"input": [3]})
    with pytest.raises(ml.ShapeError, match="has the wrong dtype"):
        compiled.evaluate(compiled.randomize_params(), {"input": np.ones(3, "int64")})


@pytest.mark.skipif(not has("jax"), reason="JAX is not installed")
def test_values_that_jax_does_not_hold():
    compiled = ml.compile(Embedding(10, 4), ml.JaxBackend(), shapes={"input": [3]})
    params = compiled.randomize_params(seed=0)
    with pytest.raises(ml.IndexRangeError, match="got: 4294967296\n  expected: -2147483648 to"):
        compiled.evaluate(params, {"input": np.array([0, 2**32, 1])})
    with pytest.raises(ml.IndexRangeError, match="got: 3000000000"):
        compiled.evaluate(params, {"input": np.array([0, 3_000_000_000, 1], "uint32")})


@INSTALLED
def test_values_that_64_bits_do_not_hold(backend):
    compiled = ml.compile(Embedding(10, 4), backend(), shapes={"input": [3]})
    with pytest.raises(ml.IndexRangeError, match="got: 18446744073709551615"):
        x = np.array([0, 2**64 - 1, 1], "uint64")
        compiled.evaluate(compiled.randomize_params(), {"input": x})


@pytest.mark.skipif(not (has("torch") and has("cpu")), reason="needs torch and native code")
def test_tensors_of_torch_for_native_code():
    torch = pytest.importorskip("torch")
    compiled = ml.compile(Embedding(10, 4), ml.CpuBackend(), shapes={"input": [3]})
    params = compiled.randomize_params(seed=0)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        y = compiled.evaluate(params, {"input": torch.tensor([1, 2, 3], dtype=dtype)})["output"]
        np.testing.assert_array_equal(y, params["w"][1:4])


# Lack of memory, and arrays that do not fit.


@INSTALLED
def test_params_beyond_memory(backend):
    wide = Model()
    wide |= Linear(784, name="small")(input="x", output="h")
    wide |= Linear(10**9, name="huge")(input="h", output="y")
    compiled = ml.compile(wide, backend(), shapes={"x": ["batch", 8]})
    with pytest.raises(ml.MithrilError, match="Out of memory") as caught:
        compiled.randomize_params()
    message = str(caught.value)
    assert "the params of Model take 2.86 TiB" in message
    assert "where: block `huge`, whose `huge.w` is float32[784, 1000000000]: 2.85 TiB" in message
    assert "the memory of the device" in message


@INSTALLED
def test_params_beyond_memory_at_the_first_call(backend):
    compiled = ml.compile(Linear(10**9), backend())
    params = compiled.randomize_params()
    with pytest.raises(ml.MithrilError, match=r"Out of memory(.|\n)*block `Linear`"):
        compiled.evaluate(params, {"input": np.ones((2, 784), "float32")})


@INSTALLED
def test_a_batch_mismatch_names_both_inputs(backend):
    compiled = ml.compile(model(), backend(), shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    with pytest.raises(ml.ShapeError) as caught:
        compiled.evaluate(params, {**INPUTS, "t": np.zeros((5, 3), "int64")})
    assert "dims: `batch` is 2 in `x` and 5 in `t`" in str(caught.value)


def test_add_loss_reports_missing_outputs():
    trained = Model()
    trained |= Linear(2)(input="x", output="logits")
    training = ml.TrainModel(trained)
    with pytest.raises(ml.TerminalError) as caught:
        training.add_loss(CrossEntropy(), input="logit", target="t")
    assert "did you mean `logits`?" in str(caught.value)
    with pytest.raises(ml.TerminalError, match=r"expected: .*`logits`"):
        training.add_loss(CrossEntropy(), target="t")
