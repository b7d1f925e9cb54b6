"""Special functions compared with mpmath: numbers of every magnitude, poles and other special
values, first and second derivatives, on every backend, with fixed and open dims."""

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
import torch
from scipy import special

import mithril as ml

RNG = np.random.default_rng(5)


def magnitudes(low: float, high: float) -> Any:
    return 10 ** RNG.uniform(low, high, 300)


POSITIVE = np.concatenate([RNG.uniform(0, 12, 500), magnitudes(-30, 4), 1 + magnitudes(-3, 0)])
SIGNED = np.concatenate([POSITIVE, RNG.uniform(-9, 0, 300), -magnitudes(-30, 1)])
UNIT = np.concatenate([RNG.uniform(0, 1, 500), magnitudes(-30, 0), 1 - magnitudes(-6, 0)])
NEAR = np.concatenate([SIGNED[np.abs(SIGNED) < 80], RNG.uniform(-80, 80, 300)])


def log_gamma(x: Any) -> Any:
    return mpmath.log(abs(mpmath.gamma(x)))


def slope_of_sinc(x: Any) -> Any:
    return (mpmath.cospi(x) - mpmath.sincpi(x)) / x if x else mpmath.mpf(0)


# The block, mpmath's function and its derivative, and where both are compared.
FUNCTIONS: dict[str, tuple[Any, Callable[..., Any], Callable[..., Any], Any]] = {
    "lgamma": (ml.Lgamma(), log_gamma, mpmath.digamma, SIGNED),
    "digamma": (ml.Digamma(), mpmath.digamma, lambda x: mpmath.psi(1, x), SIGNED),
    "erfinv": (
        ml.Erfinv(),
        mpmath.erfinv,
        lambda x: mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(mpmath.erfinv(x) ** 2),
        np.concatenate([UNIT, -UNIT]),
    ),
    "i0": (ml.I0(), lambda x: mpmath.besseli(0, x), lambda x: mpmath.besseli(1, x), NEAR),
    "sinc": (ml.Sinc(), mpmath.sincpi, slope_of_sinc, NEAR),
    "logit": (ml.Logit(), lambda x: mpmath.log(x / (1 - x)), lambda x: 1 / (x * (1 - x)), UNIT),
}
# Functions of frameworks, which lose digits: torch's and JAX's near zeros of the result.
OWN = {"numpy": {"i0", "sinc"}, "torch": set(FUNCTIONS), "jax": set(FUNCTIONS)}
OWN["mlx"] = {"sinc"}


@cache
def exact(name: str, dtype: str) -> Any:
    """The arguments; and of the function and its derivative, the values, and how much they change
    by a relative change of the argument."""
    _, function, derivative, values = FUNCTIONS[name]
    x = np.unique(values.astype(dtype))
    if name in ("erfinv", "logit"):
        x = x[np.abs(x) < 1]
    if name == "logit":
        x = x[x > 0]
    x = x[(x > 0) | (x != np.round(x))] if name.endswith("gamma") else x
    with mpmath.workdps(90):
        h = mpmath.mpf(10) ** -14
        numbers = [mpmath.mpf(float(v)) for v in x]

        def known(f: Callable[..., Any]) -> Any:
            pairs = [(f(v), f(v * (1 - h))) for v in numbers]
            return np.array([[float(y), float(abs(y - z) / h)] for y, z in pairs]).T

        return x, known(function), known(derivative)


def evaluate(block: Any, backend: Any, x: Any, size: Any = "n") -> Any:
    """The block's values, and its derivatives."""
    compiled = ml.compile(block, backend, shapes={"input": [size]}, trainable_keys=["input"])
    seed = {"output": backend.array(np.ones_like(x))}
    with np.errstate(over="ignore", invalid="ignore"):
        outputs, gradients = compiled.evaluate(
            {"input": backend.array(x)}, {}, output_gradients=seed
        )
    return [np.asarray(backend.to_numpy(a)) for a in (outputs["output"], gradients["input"])]


def check(got: Any, truth: Any, x: Any, units: float, own: bool) -> None:
    """Compares within some units in the last place of the result, and as many of the argument; a
    framework's own function within many units of the result and of 1."""
    want, change = truth
    about = np.finfo(x.dtype)
    known = np.abs(want) < about.max / 2
    error = np.abs(got.astype(np.float64) - want)
    allowed = (400 if own else units) * about.eps * (np.abs(want) + change + own) + about.tiny
    wrong = np.flatnonzero(known & ~(error <= allowed))
    assert not len(wrong), (x[wrong][:3], got[wrong][:3], want[wrong][:3])


# Frameworks' derivatives with few digits.
FEW_DIGITS = {
    ("torch", "digamma"),
    ("jax", "erfinv"),
    ("jax", "digamma"),
    ("mlx", "digamma"),
    ("tinygrad", "erfinv"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_and_derivatives(name, dtype, backend):
    backend = type(backend)(dtype=dtype)
    x, value, slope = exact(name, dtype)
    own = name in OWN.get(backend.kind, set())
    got, got_slope = evaluate(FUNCTIONS[name][0], backend, x)
    assert got.dtype == got_slope.dtype == x.dtype
    check(got, value, x, 6, own)
    if (backend.kind, name) in FEW_DIGITS:
        some = (np.abs(slope[0]) < np.finfo(dtype).max / 2) & (x > 0)
        np.testing.assert_allclose(got_slope[some], slope[0][some], rtol=1e-4, atol=1e-5)
    else:
        check(got_slope, slope, x, 16, own)


SPECIAL = [
    0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    -1,
    -2,
    -3,
    1,
    2,
    0.5,
    -0.5,
    1e-40,
    -1e-40,
    1e30,
    -1e30,
]


@pytest.mark.parametrize("size", ["n", len(SPECIAL)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_are_those_of_torch(name, size, backend):
    x = np.float32(SPECIAL)
    function = {"i0": torch.i0, "sinc": torch.sinc}.get(name) or getattr(
        torch.special, {"lgamma": "gammaln"}.get(name, name)
    )
    want = function(torch.tensor(x)).numpy()
    with np.errstate(all="ignore"):
        got, _ = evaluate(FUNCTIONS[name][0], backend, x, size)
    if backend.kind == "jax":
        # JAX treats subnormal numbers as 0.
        keep = np.abs(x) != np.float32(1e-40)
        # It has NaN for the limits of these functions.
        keep &= ~((name == "lgamma") & np.isneginf(x)) & ~((name == "digamma") & (x == 0))
        got, want = got[keep], want[keep]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def trigamma(x: Any) -> Any:
    """SciPy has no reflection, and torch few digits."""
    with np.errstate(all="ignore"):
        reflected = (np.pi / np.sin(np.pi * x)) ** 2 - special.polygamma(1, 1 - x)
    return np.where(x < 0, reflected, special.polygamma(1, np.abs(x)))


ARGUMENTS = np.float32([0.1, 0.7, 1, 1.5, 2, 3, 8, 40, 1e5, -0.3, -1.7, -5.2])


def test_second_derivative_of_lgamma(backend):
    model = ml.Model()
    model |= ml.Lgamma()(input=ml.IOKey("x", differentiable=True), output="y")
    model |= ml.Sum()(input="y", output="total")
    shapes = {"x": [len(ARGUMENTS)]}
    compiled = ml.compile(model, backend, shapes=shapes, differentiate="total")
    x, ones = backend.array(ARGUMENTS), backend.array(np.ones_like(ARGUMENTS))
    outputs, gradients = compiled.evaluate({"x": x}, {}, output_gradients={"x_gradient": ones})
    wide = ARGUMENTS.astype(np.float64)
    to = backend.to_numpy
    np.testing.assert_allclose(to(outputs["x_gradient"]), special.digamma(wide), rtol=2e-5)
    np.testing.assert_allclose(to(gradients["x"]), trigamma(wide), rtol=2e-6)


def test_second_derivative_of_digamma(backend):
    """There is none of an infinite slope where another branch of the function is taken."""
    model = ml.Model()
    model |= ml.Digamma()(input=ml.IOKey("x", differentiable=True), output="y")
    model |= ml.Sum()(input="y", output="total")
    x = ARGUMENTS[:8]
    compiled = ml.compile(model, backend, shapes={"x": [8]}, differentiate="total")
    ones = {"x_gradient": backend.array(np.ones_like(x))}
    _, gradients = compiled.evaluate({"x": backend.array(x)}, {}, output_gradients=ones)
    want = special.polygamma(2, x.astype(np.float64))
    np.testing.assert_allclose(backend.to_numpy(gradients["x"]), want, rtol=5e-6)


def test_bounds_of_logit(backend):
    x = np.float32([-0.5, 0, 0.1, 0.2, 0.5, 0.9, 1, 1.5, np.nan])
    leaf = torch.tensor(x, requires_grad=True)
    want = torch.logit(leaf, 0.2)
    want.sum().backward()
    got, slope = evaluate(ml.Logit(eps=0.2), backend, x)
    np.testing.assert_allclose(got, want.detach(), rtol=1e-5, atol=1e-6)
    # The bound itself may be rounded to either side.
    inner = np.float32(0.2) != x
    np.testing.assert_allclose(slope[inner], leaf.grad.numpy()[inner], rtol=1e-5)


def test_products_with_logarithms(backend):
    x = np.float32([0, 0, 0, 1, 2, -1, np.nan, 0])
    y = np.float32([0, -1, np.nan, 0, 3, 2, 1, np.inf])
    shapes = {"left": ["n"], "right": ["n"]}
    compiled = ml.compile(ml.Xlogy(), backend, shapes=shapes, trainable_keys=["left", "right"])
    params = {"left": backend.array(x), "right": backend.array(y)}
    seed = {"output": backend.array(np.ones(8, np.float32))}
    with np.errstate(all="ignore"):
        outputs, gradients = compiled.evaluate(params, {}, output_gradients=seed)
    leaves = [torch.tensor(a, requires_grad=True) for a in (x, y)]
    want = torch.xlogy(*leaves)
    want.sum().backward()
    np.testing.assert_allclose(backend.to_numpy(outputs["output"]), want.detach(), rtol=1e-6)
    got, slope = backend.to_numpy(gradients["left"]), leaves[0].grad.numpy()
    np.testing.assert_allclose(got, slope, rtol=1e-6)
    slope = leaves[1].grad.numpy()
    # PyTorch differentiates its own function to NaN where `left` is 0.
    other = x != 0
    got = backend.to_numpy(gradients["right"])
    np.testing.assert_allclose(got[other], slope[other], rtol=1e-6)
    if backend.kind != "torch":
        np.testing.assert_array_equal(got[~other], np.zeros(4))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_halves_are_computed_in_single(name, dtype, backend):
    half = type(backend)(dtype=dtype)
    own = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    x = np.float32([0.01, 0.1, 0.3, 0.6, 0.9]).astype(own)
    found = []
    for made, values in ((half, x), (ml.NumpyBackend(), x.astype(np.float32))):
        found.append(evaluate(FUNCTIONS[name][0], made, values, 5))
    for got, want in zip(*found, strict=True):
        assert got.dtype == own
        unit = float(ml_dtypes.finfo(own).eps)
        np.testing.assert_allclose(got.astype(np.float32), want, rtol=unit)


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (), (1,)])
def test_shapes_without_elements(shape, backend):
    for block, *_ in FUNCTIONS.values():
        compiled = ml.compile(block, backend, shapes={"input": list(shape)}, inference=True)
        x = np.full(shape, 0.5, np.float32)
        assert (
            backend.to_numpy(compiled.evaluate({}, {"input": backend.array(x)})["output"]).shape
            == shape
        )
