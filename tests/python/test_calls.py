"""Source that calls functions: external ones, functions with their own gradients, and scans."""

from pathlib import Path

import numpy as np
import pytest
from conftest import INSTALLED
from source import emitted

import mithril as ml

ROOT = Path(__file__).parents[2]
SCAN = (ROOT / "codegen/source/tests/models/scan.mir").read_text(encoding="utf-8")
CUSTOM = """mithril 1

func @main(%x: tensor<n x f32> param, %i: tensor<n x i32>) -> (y: tensor<n x f32>) {
  %0, %1 = custom_gradient(%x, %i) {callee = @scaled, vjp = @thrice}
  %y = square(%0)
  return %y
}

extern func @scaled(%x: tensor<n x f32>, %i: tensor<n x i32>)
    -> (y: tensor<n x f32>, i: tensor<n x i32>) {
  body numpy "return {x} * {i}.astype(np.float32), {i}"
  body torch "return {x} * {i}, {i}"
  body jax "return {x} * {i}, {i}"
  body mlx "return {x} * {i}, {i}"
  body tinygrad "return {x} * {i}, {i}"
}

// Not the true gradient: the result shows that it is taken.
func @thrice(%x: tensor<n x f32>, %i: tensor<n x i32>, %y: tensor<n x f32>,
    %j: tensor<n x i32>, %g: tensor<n x f32>) -> (dx: tensor<n x f32>) {
  %0 = constant() {value = dense<tensor<f32>, 3.0>}
  %1 = mul(%g, %0)
  return %1
}
"""


def of_numpy(text, params, inputs, seeds):
    """Outputs, and gradients by the generated function."""
    scope = emitted(text, "numpy", "autodiff,dce")
    return scope["forward"](params, inputs), scope["gradients"](params, inputs, seeds)


def of_torch(text, params, inputs, seeds):
    """Outputs, and gradients by torch's autograd."""
    torch = pytest.importorskip("torch")
    params = {name: torch.tensor(x, requires_grad=True) for name, x in params.items()}
    inputs = {name: torch.tensor(x) for name, x in inputs.items()}
    outputs = emitted(text, "torch")["forward"](params, inputs)
    seeded = [(outputs[name] * torch.tensor(seed)).sum() for name, seed in seeds.items()]
    gradients = torch.autograd.grad(sum(seeded), list(params.values()))
    plain = {name: x.detach().numpy() for name, x in outputs.items()}
    return plain, {name: g.numpy() for name, g in zip(params, gradients)}


def of_jax(text, params, inputs, seeds):
    """Outputs, and gradients by JAX's autodiff."""
    jax = pytest.importorskip("jax")
    forward = jax.jit(emitted(text, "jax")["forward"])
    outputs, back = jax.vjp(lambda params: forward(params, inputs), params)
    (gradients,) = back({name: jax.numpy.asarray(seed) for name, seed in seeds.items()})
    return outputs, gradients


def of_mlx(text, params, inputs, seeds):
    """Outputs, and gradients by MLX."""
    mx = pytest.importorskip("mlx.core")
    params, inputs, seeds = (
        {name: mx.array(x) for name, x in arrays.items()} for arrays in (params, inputs, seeds)
    )

    def total(params):
        outputs = emitted(text, "mlx")["forward"](params, inputs)
        return sum(mx.sum(outputs[name] * seed) for name, seed in seeds.items()), outputs

    (_, outputs), gradients = mx.value_and_grad(total)(params)
    return tuple({name: np.asarray(x) for name, x in own.items()} for own in (outputs, gradients))


def of_tinygrad(text, params, inputs, seeds):
    """Outputs, and gradients by tinygrad."""
    if "tinygrad" not in INSTALLED:
        pytest.skip("tinygrad or its compiler is not installed")
    tensor = ml.TinygradBackend().from_numpy
    params, inputs, seeds = (
        {name: tensor(x) for name, x in arrays.items()} for arrays in (params, inputs, seeds)
    )
    outputs = emitted(text, "tinygrad")["forward"](params, inputs)
    total = sum((outputs[name] * seed).sum() for name, seed in seeds.items())
    gradients = dict(zip(params, total.gradient(*params.values())))
    return tuple({name: x.numpy() for name, x in own.items()} for own in (outputs, gradients))


RUNS = {
    "numpy": of_numpy,
    "torch": of_torch,
    "jax": of_jax,
    "mlx": of_mlx,
    "tinygrad": of_tinygrad,
}


@pytest.mark.parametrize("framework", RUNS)
def test_custom_gradient_of_an_external_function_is_used(framework):
    x, i = np.array([0.5, -1, 2], np.float32), np.array([1, 2, -3], np.int32)
    seed = np.array([1, 10, 100], np.float32)
    outputs, gradients = RUNS[framework](CUSTOM, {"x": x}, {"i": i}, {"y": seed})
    assert outputs["y"].dtype == np.float32
    np.testing.assert_allclose(outputs["y"], (x * i) ** 2, rtol=1e-6)
    np.testing.assert_allclose(gradients["x"], 3 * 2 * (x * i) * seed, rtol=1e-6)


@pytest.mark.parametrize("framework", ["torch", "jax", "mlx", "tinygrad"])
@pytest.mark.parametrize("length", [0, 1, 6])
def test_scans_agree_with_their_derived_gradients(framework, length):
    """`test_differential` compares NumPy's with the evaluator."""
    draw = np.random.default_rng(length)
    array = lambda *shape: draw.uniform(-1, 1, shape).astype(np.float32)  # noqa: E731
    params = {"w": array(4, 4), "h0": array(4)}
    inputs = {"x": array(length, 4), "mask": array(length)}
    shapes = {"hidden": (length, 4), "last": (4,), "total": (4,), "squares": (3, 4)}
    seeds = {name: array(*shape) for name, shape in shapes.items()}
    want, want_gradients = of_numpy(SCAN, params, inputs, seeds)
    got, gradients = RUNS[framework](SCAN, params, inputs, seeds)
    for name, shape in shapes.items():
        assert got[name].shape == shape
        assert got[name].dtype == np.float32
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-5)
    for name, x in params.items():
        assert gradients[name].shape == x.shape
        np.testing.assert_allclose(gradients[name], want_gradients[name], rtol=1e-4, atol=1e-4)


def test_scan_over_an_empty_sequence_returns_its_carries():
    inputs = {"x": np.zeros((0, 4), np.float32), "mask": np.zeros(0, np.float32)}
    params = {"w": np.zeros((4, 4), np.float32), "h0": np.arange(4, dtype=np.float32)}
    outputs = emitted(SCAN, "numpy")["forward"](params, inputs)
    np.testing.assert_array_equal(outputs["last"], params["h0"])
    assert outputs["hidden"].shape == (0, 4)
