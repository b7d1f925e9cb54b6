"""Gradients where functions have poles, kinks or limits, compared with PyTorch: by each framework
and by Mithril."""

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import CLASSES

import mithril as ml

INF = np.inf
L = torch.linalg
RUNS = [
    (make, autodiff)
    for make in CLASSES
    for autodiff in ("framework", "mithril")
    if make.kind in ("torch", "jax", "mlx", "tinygrad") or autodiff == "mithril"
]


def rows(*values: Any) -> Any:
    return np.array(values, np.float32)


# The block, its inputs and PyTorch's function.
CASES: dict[str, tuple[Any, list[Any], Callable[..., Any]]] = {
    "erf": (ml.Erf(), [rows(0, INF, -INF, 10)], torch.erf),
    "erfinv": (ml.Erfinv(), [rows(1, -1, 0, 2, -2, 1e-20)], torch.erfinv),
    "logit": (ml.Logit(), [rows(0, 1, 0.5, -1, 2)], torch.logit),
    "lgamma": (ml.Lgamma(), [rows(0, -0.0, 2, INF, 1e-20)], torch.lgamma),
    "i0": (ml.I0(), [rows(80, 87, 92, 95, -95, 0, 1e-20, INF, -INF)], torch.special.i0),
    "xlogy": (ml.Xlogy(), [rows(1, 2, 0, 0), rows(0, INF, 3, INF)], torch.xlogy),
    "sqrt": (ml.Sqrt(), [rows(0, -0.0, -1, INF)], torch.sqrt),
    "log": (ml.Log(), [rows(0, -0.0, -1, INF)], torch.log),
    "log1p": (ml.Log1p(), [rows(0, -1, -2, INF)], torch.log1p),
    "expm1": (ml.Expm1(), [rows(0, INF, -INF, 1e-20)], torch.expm1),
    "exp": (ml.Exponential(), [rows(0, INF, -INF, 1000, -1000)], torch.exp),
    "reciprocal": (ml.Reciprocal(), [rows(0, -0.0, INF, -INF)], torch.reciprocal),
    "asin": (ml.Asin(), [rows(0, 1, -1, 2)], torch.asin),
    "acos": (ml.Acos(), [rows(0, 1, -1, 2)], torch.acos),
    "atan": (ml.Atan(), [rows(0, INF, -INF)], torch.atan),
    "sinh": (ml.Sinh(), [rows(0, INF, -INF, 1000)], torch.sinh),
    "cosh": (ml.Cosh(), [rows(0, INF, -INF, 1000)], torch.cosh),
    "tanh": (ml.Tanh(), [rows(0, INF, -INF, 100, -100)], torch.tanh),
    "sigmoid": (ml.Sigmoid(), [rows(0, -0.0, INF, -INF, 90, -90, 1000, -1000)], torch.sigmoid),
    "log sigmoid": (ml.LogSigmoid(), [rows(0, INF, -INF, 1000, -1000)], F.logsigmoid),
    "softplus": (ml.Softplus(), [rows(0, INF, -INF, 1000, -1000, 50, -50)], F.softplus),
    "silu": (ml.Silu(), [rows(0, 1000, -1000, 80, -80)], F.silu),
    "mish": (ml.Mish(), [rows(0, 1000, -1000, 80, -80)], F.mish),
    "gelu": (ml.Gelu(), [rows(0, 1000, -1000, 80, -80)], F.gelu),
    "elu": (ml.Elu(), [rows(0, INF, -INF, 1000, -1000)], F.elu),
    "relu": (ml.Relu(), [rows(0, -0.0, INF, -INF)], F.relu),
    "softsign": (ml.Softsign(), [rows(0, -0.0, 1e30, -1e30)], F.softsign),
    "abs": (ml.Absolute(), [rows(0, -0.0, INF, -INF, -1)], torch.abs),
    "sign": (ml.Sign(), [rows(0, -0.0, INF, -INF)], torch.sign),
    "power": (
        ml.Power(),
        [
            rows(0, 0, 0, 0, -2, -2, -2, -2, 2, INF, -0.0, 1e-30, 0, 0),
            rows(1, 2, 0.5, 0, 2, 3, -1, 0.5, INF, 0, 1, 2, 1.5, 3),
        ],
        torch.pow,
    ),
    "atan2": (
        ml.Atan2(),
        [rows(0, 0, 0, 1, -1), rows(0, 1, -1, 0, 0)],
        torch.atan2,
    ),
    "divide": (ml.Divide(), [rows(0, 1, 0, INF, 1), rows(0, 0, 1, INF, INF)], torch.div),
    "modulo": (ml.Modulo(), [rows(5, -5, 6), rows(3, 3, 3)], torch.remainder),
    "logsumexp": (
        ml.LogSumExp(axis=1),
        [rows([-INF, -INF, -INF], [0, -INF, 1], [1000, 1000, 999], [INF, INF, -INF])],
        lambda x: torch.logsumexp(x, 1),
    ),
    "softmax": (
        ml.Softmax(),
        [rows([-INF, 0, 1], [-INF, -INF, 0], [1000, 0, -1000], [-INF, -INF, -INF])],
        lambda x: torch.softmax(x, -1),
    ),
    "log softmax": (
        ml.LogSoftmax(),
        [rows([-INF, 0, 1], [-INF, -INF, 0], [1000, 0, -1000], [-INF, -INF, -INF])],
        lambda x: torch.log_softmax(x, -1),
    ),
    "variance of one": (
        ml.Variance(axis=1),
        [rows([1], [0])],
        lambda x: torch.var(x, 1, correction=0),
    ),
    "std of one": (ml.Std(axis=1), [rows([1], [0])], lambda x: torch.std(x, 1, correction=0)),
    "unbiased std of one": (ml.Std(axis=1, correction=1), [rows([1], [0])], lambda x: x.std(1)),
    "std of equal numbers": (
        ml.Std(axis=1),
        [rows([2, 2], [0, 0], [1, 2])],
        lambda x: torch.std(x, 1, correction=0),
    ),
    "norm": (
        ml.Norm(axis=1),
        [rows([0, 0], [3, 4], [0, 1])],
        lambda x: L.vector_norm(x, dim=1),
    ),
    "norm of order 1": (
        ml.Norm(p=1, axis=1),
        [rows([0, 0], [3, 4], [0, 1])],
        lambda x: L.vector_norm(x, 1, dim=1),
    ),
    "norm of order 3": (
        ml.Norm(p=3, axis=1),
        [rows([0, 0], [3, 4], [0, 1])],
        lambda x: L.vector_norm(x, 3, dim=1),
    ),
    "normalize": (ml.Normalize(axis=1), [rows([0, 0], [3, 4])], lambda x: F.normalize(x, dim=1)),
    "cosine similarity": (
        ml.CosineSimilarity(),
        [rows([0, 0], [3, 4]), rows([1, 2], [0, 0])],
        F.cosine_similarity,
    ),
    "distance": (
        ml.PairwiseDistance(),
        [rows([0, 0], [3, 4]), rows([0, 0], [3, 4])],
        F.pairwise_distance,
    ),
    "distances": (ml.Pdist(), [rows([0, 0], [0, 0], [1, 2])], F.pdist),
    "power average pool": (
        ml.LpPool(2, 2),
        [rows([[0, 0, 3, 4]])],
        lambda x: F.lp_pool1d(x, 2, 2),
    ),
    "prod": (
        ml.Prod(axis=1),
        [rows([0, 2, 3], [0, 0, 2], [1, 2, 3])],
        lambda x: torch.prod(x, 1),
    ),
    "cumprod": (
        ml.Cumprod(1),
        [rows([0, 2, 3], [0, 0, 2], [1, 2, 3])],
        lambda x: torch.cumprod(x, 1),
    ),
    "max": (
        ml.Max(axis=1),
        [rows([1, 1, 0], [-INF, -INF, -INF], [INF, INF, 0])],
        lambda x: torch.amax(x, 1),
    ),
    "det of nothing": (ml.Det(), [np.zeros((2, 0, 0), np.float32)], L.det),
    "log det of nothing": (ml.LogDet(), [np.zeros((0, 0), np.float32)], torch.logdet),
}
# What `docs/ops.md` says of a framework's own derivatives: other results where an input has one of
# these values.
OWN: dict[tuple[str, str], tuple[float, ...]] = {
    ("jax", "abs"): (0,),
    ("jax", "norm of order 1"): (0,),
    ("jax", "atan2"): (0,),
    ("mlx", "atan2"): (0,),
    ("jax", "power"): (0,),
    ("mlx", "power"): (0,),
    ("mlx", "lgamma"): (0, INF),
    ("tinygrad", "lgamma"): (0, INF),
    ("mlx", "logsumexp"): (INF, -INF),
    ("mlx", "i0"): (92, 95, -95, INF, -INF),
    ("tinygrad", "i0"): (92, 95, -95, INF, -INF),
    ("tinygrad", "erfinv"): (1, -1),
}


def slopes(block: Any, arrays: list[Any], backend: Any, autodiff: str) -> Any:
    """The output, the seed of its gradient, and the gradients of the inputs."""
    names = list(block.inputs)
    own = {} if backend.kind in ("numpy", "cpu", "c") else {"autodiff": autodiff}
    shapes = {n: list(a.shape) for n, a in zip(names, arrays, strict=True)}
    compiled = ml.compile(block, backend, shapes=shapes, trainable_keys=names, **own)
    params = {n: backend.array(a) for n, a in zip(names, arrays, strict=True)}
    with np.errstate(all="ignore"):
        output = np.asarray(backend.to_numpy(compiled.evaluate(params, {})["output"]))
        seed = (1 + np.arange(output.size) % 3 / 2).reshape(output.shape).astype(output.dtype)
        seeds = {"output": backend.array(seed)}
        gradients = compiled.evaluate_gradients(params, {}, seeds)
    return output, seed, [np.asarray(backend.to_numpy(gradients[n])) for n in names]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom.*:", "ignore:Degrees of freedom:")
@pytest.mark.parametrize(("make", "autodiff"), RUNS)
@pytest.mark.parametrize("name", CASES)
def test_gradients_at_corners_are_those_of_torch(name, make, autodiff):
    block, arrays, function = CASES[name]
    backend = make()
    output, seed, got = slopes(block, arrays, backend, autodiff)
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    want = function(*leaves)
    want.backward(torch.tensor(seed))
    np.testing.assert_allclose(output, want.detach(), rtol=1e-5, atol=1e-6)
    if name.startswith("unbiased") and backend.kind == "tinygrad":
        return  # tinygrad divides 0 by 0 to 0 there.
    other = OWN.get((backend.kind, name), ()) if autodiff == "framework" else ()
    keep = ~np.any([np.isin(a, np.float32(other)) for a in arrays], axis=0)
    for slope, leaf in zip(got, leaves, strict=True):
        np.testing.assert_allclose(slope[keep], leaf.grad.numpy()[keep], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("make", "autodiff"), RUNS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slope_of_sinc_near_zero(dtype, make, autodiff):
    """Against mpmath: PyTorch and JAX subtract numbers that are nearly equal."""
    x = np.array([0, 1e-30, -1e-20, 1e-10, -1e-8, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.3, 0.49], dtype)
    _, seed, (got,) = slopes(ml.Sinc(), [x], make(dtype=dtype), autodiff)
    with mpmath.workdps(120):
        exact = [mpmath.mpf(float(v)) for v in x]
        want = [float((mpmath.cospi(v) - mpmath.sincpi(v)) / v) if v else 0 for v in exact]
    np.testing.assert_allclose(got, seed * want, rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize(("make", "autodiff"), RUNS)
def test_gradients_of_products_with_logarithms_of_zero(make, autodiff):
    """PyTorch alone has NaN for the right side."""
    arrays = [rows(0, -0.0, 0, 0), rows(0, 0, -1, 3)]
    _, seed, (left, right) = slopes(ml.Xlogy(), arrays, make(), autodiff)
    np.testing.assert_allclose(left, seed * [0, 0, 0, np.log(3)], rtol=1e-6)
    if make.kind != "torch" or autodiff == "mithril":
        np.testing.assert_array_equal(right, np.zeros(4))


@pytest.mark.parametrize(("make", "autodiff"), RUNS)
def test_gradients_at_poles_of_digamma(make, autodiff):
    """Those at integers are infinite. PyTorch has large numbers there, from the sine of -π."""
    if autodiff == "framework" and make.kind != "torch":
        return
    _, _, (got,) = slopes(ml.Digamma(), [rows(0, -0.0, -1, -2, 1, INF)], make(), autodiff)
    want = [INF, INF, INF, INF, 3 * np.pi**2 / 12, 0]
    np.testing.assert_allclose(np.where(got > 1e14, INF, got), want, rtol=1e-5)


@pytest.mark.parametrize(("make", "autodiff"), RUNS)
def test_quotients_that_are_rounded_have_no_gradient(make, autodiff):
    arrays = [rows(1, 0, 5), rows(0, 0, 3)]
    _, _, got = slopes(ml.FloorDivide(), arrays, make(), autodiff)
    for slope in got:
        np.testing.assert_array_equal(slope, np.zeros(3))


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
@pytest.mark.parametrize("make", [m for m in CLASSES if m.kind == "tinygrad"])
def test_sigmoid_of_halves_does_not_overflow(make, autodiff):
    """Halves overflow from the exponential of 11.1 on."""
    backend = make(dtype=ml.float16)
    x = np.array([-12, -14, 12, 0], np.float16)
    output, seed, (got,) = slopes(ml.Sigmoid(), [x], backend, autodiff)
    y = 1 / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(output, y, rtol=4e-3, atol=2e-7)
    np.testing.assert_allclose(got, seed * y * (1 - y), rtol=4e-3, atol=1e-3)
