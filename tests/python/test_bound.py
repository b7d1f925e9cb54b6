"""Bound weights exist once in memory, in the layout that kernels read."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import has

import mithril as ml
from mithril.models import Embedding, Linear, Model, Relu

pytestmark = pytest.mark.skipif(not has("cpu"), reason="built without native code")
LAYERS, WIDTH = 32, 1024

MEASURE = """
import ctypes, gc, json
import numpy as np
import mithril as ml
from test_bound import LAYERS, WIDTH, layers

def held(what):
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = open("/proc/self/status").read().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))

# What the first call of all loads is there before.
small = ml.compile(layers(1, 64), shapes={"input": ["n", 64]}, inference=True)
small.bind(small.randomize_params(seed=0)).evaluate({}, {"input": np.ones((1, 64), "f4")})
shapes = {"input": ["n", WIDTH]}
compiled = ml.compile(layers(LAYERS, WIDTH), shapes=shapes, inference=True)
x = {"input": np.ones((1, WIDTH), "f4")}
before = held("VmRSS")
params = {name: np.full(array.shape, 0.01, "f4")
          for name, array in compiled.randomize_params(seed=0).items()}
bound = compiled.bind(params)
del params
open("/proc/self/clear_refs", "w").write("5")
bound.evaluate({}, x)
most = held("VmHWM") - before
after = held("VmRSS") - before
bound.explain()
explained = held("VmRSS") - before
print(json.dumps([after, most, explained]))
"""


def layers(count, width):
    model = Model()
    for _ in range(count):
        model += Linear(width)
        model += Relu()
    return model


def test_weights_exist_once():
    def measured():
        run = [sys.executable, "-c", MEASURE]
        folder = Path(__file__).parent
        done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=folder)
        return json.loads(done.stdout)

    measured()  # compiles the kernels, which also takes memory
    after, most, explained = measured()
    weights = 4 * LAYERS * (WIDTH * WIDTH + WIDTH)
    assert after <= 1.25 * weights, after / weights
    assert most <= 1.6 * weights, most / weights
    assert explained <= 1.25 * weights, explained / weights


def bound_layers():
    """A model that is compiled, bound and called; also its params, input and output."""
    model = Model()
    model |= Linear(96, name="first")(input="x", output="h")
    model += Relu()(output="r")
    model += Linear(40, name="second")(output="y")
    compiled = ml.compile(model, shapes={"x": ["n", 64]})
    params = compiled.randomize_params(seed=0)
    x = np.random.default_rng(0).standard_normal((5, 64)).astype("f4")
    bound = compiled.bind(params)
    y = bound.evaluate({}, {"x": x})["y"]
    want = compiled.evaluate(params, {"x": x})["y"]
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
    return bound, params, x, y


def test_packed_weights_are_unpacked_for_other_readers(tmp_path):
    bound, params, x, y = bound_layers()
    # The hook makes it another program, with an inner value as output.
    seen = []
    bound.register_hook("h", seen.append)
    np.testing.assert_array_equal(bound.evaluate({}, {"x": x})["y"], y)
    (hidden,) = seen
    want = x @ params["first.w"] + params["first.b"]
    np.testing.assert_allclose(hidden, want, rtol=1e-5, atol=1e-5)
    assert "hex" in bound.module
    assert bound.explain().before > 0
    # Bind again: the earlier constants are part of the new model.
    again = bound.bind({})
    np.testing.assert_array_equal(again.evaluate({}, {"x": x})["y"], y)


def test_exported_libraries_contain_packed_weights(tmp_path):
    bound, _, x, y = bound_layers()
    from exported import export  # noqa: PLC0415

    library = export(bound, tmp_path, name="model")
    status, results = library.call(dims={"n": 5}, data={"x": x})
    assert status == 0
    np.testing.assert_allclose(results["output", "y"], y, rtol=1e-5, atol=1e-5)


def test_compiles_with_equal_constants_share_memory():
    model = Linear(96)
    w = np.random.default_rng(0).standard_normal((64, 96)).astype("f4")
    constants = {"w": w, "b": np.zeros(96, "f4")}
    x = {"input": np.ones((3, 64), "f4")}
    first = ml.compile(model, constant_keys=constants, shapes={"input": ["n", 64]}, cache=True)
    want = first.evaluate({}, x)["output"]
    # The model has a copy, so changing the array has no effect.
    w[:] = 0
    np.testing.assert_array_equal(first.evaluate({}, x)["output"], want)
    first.register_hook("output", lambda _: None)
    np.testing.assert_array_equal(first.evaluate({}, x)["output"], want)


def test_matrices_read_packed_and_unpacked_are_stored_twice():
    """The same matrix is an embedding's table and the weights of the logits."""
    model = Model()
    model |= Embedding(70, 32)(input="tokens", w="table", output="h")
    model |= Linear(48)(input="h", w="square", output="z")
    model |= ml.MatrixMultiply()(left="z", right=ml.IOKey("last"), output="u")
    model |= ml.MatrixMultiply()(left="h", right=model.table.T, output="logits")
    shapes = {"tokens": ["n"], "last": [48, 3]}
    compiled = ml.compile(model, shapes=shapes, trainable_keys=["last"])
    params = compiled.randomize_params(seed=0)
    tokens = {"tokens": np.array([1, 69, 5, 5])}
    want = compiled.evaluate(params, tokens)
    bound = compiled.bind(params)
    for _ in range(2):
        got = bound.evaluate({}, tokens)
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-5)
        bound.register_hook("h", lambda _: None)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_partly_bound_models_have_gradients_of_other_params(dtype):
    model = Model()
    model |= Linear(48, name="first")(input="x", output="h")
    model |= Linear(24, name="second")(input="h", output="y")
    backend = ml.CpuBackend(dtype=dtype)
    compiled = ml.compile(model, backend, shapes={"x": [7, 32]})
    params = compiled.randomize_params(seed=0)
    x = {"x": backend.randn(7, 32)}
    seeds = {"y": backend.ones(7, 24)}
    outputs, gradients = compiled.evaluate(params, x, output_gradients=seeds)
    second = {name: params[name] for name in params if name.startswith("second")}
    first = {name: params[name] for name in params if name.startswith("first")}
    bound = compiled.bind(second)
    tolerance = {"rtol": 5e-2, "atol": 5e-2} if "16" in dtype else {"rtol": 1e-4, "atol": 1e-4}
    # First the forward pass only, then with gradients, which read the weights in another order.
    plain = bound.evaluate(first, x)
    own, got = bound.evaluate(first, x, output_gradients=seeds)
    for found in (plain, own):
        np.testing.assert_allclose(found["y"].astype("f4"), outputs["y"].astype("f4"), **tolerance)
    for name, value in got.items():
        np.testing.assert_allclose(value.astype("f4"), gradients[name].astype("f4"), **tolerance)
