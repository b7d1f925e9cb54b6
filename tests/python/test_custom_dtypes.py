"""Bodies of custom operations return the declared dtypes wherever their source runs: in one
process, on meshes, in pipelines, in loops, as gradients, and in a file without Mithril."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mithril as ml
from mithril.models import Add, Linear, Model, Scan

CHECKS = Path(__file__).with_name("custom_dtype_checks.py")
SHAPE = "(x: [*b]) -> (y: [*b])"
NARROW = {
    "numpy": ("return x.astype(np.float16)", "float16", "float32"),
    "torch": ("return x.bfloat16()", "bfloat16", "float32"),
    "jax": ("return x.astype(jnp.bfloat16)", "bfloat16", "float32"),
    "mlx": ("return x.astype(mx.float16)", "float16", "float32"),
    "tinygrad": ("return x.cast(dtypes.half)", "half", "float"),
}
BACKENDS = {
    "numpy": ml.NumpyBackend,
    "torch": ml.TorchBackend,
    "jax": ml.JaxBackend,
    "mlx": ml.MlxBackend,
    "tinygrad": ml.TinygradBackend,
}


def told(kind, error, name="scale", result="y"):
    _, got, expected = NARROW[kind]
    return (
        "Incompatible dtypes: a custom operation did not return the declared dtype"
        f"\n  where: the body of `{name}` for {kind}"
        f"\n  got: {got} for `{result}`\n  expected: {expected}"
        f"\n  hint: cast `{result}` to {expected} in the body"
    ) in str(error)


@pytest.mark.parametrize("kind", NARROW)
def test_a_file_that_runs_without_mithril(kind, tmp_path):
    block = ml.custom(name="scale", shape=SHAPE, **{kind: NARROW[kind][0]})
    own, path = BACKENDS[kind](), tmp_path / "model.py"
    ml.compile(block, own, shapes={"x": [2, 3]}, inference=True, file_path=str(path))
    spec = importlib.util.spec_from_file_location("custom_model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(ValueError, match="Incompatible dtypes") as error:
        module.forward({}, {"x": own.ones(2, 3)})
    assert told(kind, error.value)
    assert "mithril" not in path.read_text().replace("by Mithril", "")


@pytest.mark.parametrize("kind", NARROW)
def test_a_body_inside_a_loop(kind):
    step = Model()
    step |= ml.custom(name="scale", shape=SHAPE, **{kind: NARROW[kind][0]})(x="x", y="scaled")
    step |= Add()(left="total", right="scaled", output="next")
    sums, own = Scan(step, carry={"total": "next"}, over=["x"]), BACKENDS[kind]()
    compiled = ml.compile(sums, own, shapes={"x": [4, 3], "total": [3]}, inference=True)
    with pytest.raises(ml.ShapeError) as error:
        compiled.evaluate({}, {"x": own.ones(4, 3), "total": own.zeros(3)})
    assert told(kind, error.value)


@pytest.mark.parametrize("kind", NARROW)
def test_the_body_of_a_gradient(kind):
    right, narrow = {"numpy": "return 2 * x"}.get(kind, "return x + x"), NARROW[kind][0]
    gradient = {kind: narrow.replace("return x", "return y_gradient")}
    model = Model()
    model += Linear(3)(input="x")
    model += ml.custom(name="scale", shape=SHAPE, gradient=gradient, **{kind: right})(y="y")
    own = BACKENDS[kind]()
    compiled = ml.compile(model, own, shapes={"x": [2, 3]})
    params, x = compiled.randomize_params(0), own.ones(2, 3)
    compiled.evaluate(params, {"x": x})
    with pytest.raises(ml.ShapeError) as error:
        compiled.evaluate(params, {"x": x}, output_gradients={"y": x})
    assert told(kind, error.value, "scale_gradient", "x_gradient")


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_meshes_and_pipelines(kind):
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    ran = subprocess.run(
        [sys.executable, str(CHECKS), kind, "mesh", "pipeline"],
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr


def test_integers_of_64_bits_in_jax():
    """Without 64-bit types, JAX has 32 bits in their place, and either is right."""
    body = {"jax": "return jnp.argsort(x), x"}
    block = ml.custom(name="order", shape="(x: [n]) -> (at: i64[n], y: [n])", **body)
    compiled = ml.compile(block, ml.JaxBackend(), shapes={"x": [3]}, inference=True)
    found = compiled.evaluate({}, {"x": np.array([3, 1, 2], "f4")})["at"]
    assert np.asarray(found).tolist() == [1, 2, 0]
