"""QR, eigenvectors and singular vectors compared with PyTorch, forward and gradients, on every
backend, with fixed and open dims. Signs of vectors are those of each backend."""

from typing import Any

import numpy as np
import pytest
import torch
from conftest import CLASSES, WITHOUT_C

import mithril as ml

RNG = np.random.default_rng(8)
L = torch.linalg
DOUBLE = CLASSES


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def symmetric(*shape: int) -> Any:
    """Symmetric matrices with eigenvalues that are not close to each other."""
    x = numbers(*shape)
    return x + np.swapaxes(x, -1, -2) + np.diag(3.0 * np.arange(shape[-1]))


def spread(*shape: int) -> Any:
    """Matrices with singular values that are not close to each other, nor to 0."""
    u, s, vh = np.linalg.svd(numbers(*shape), full_matrices=False)
    return (u * (1 + np.arange(s.shape[-1]))[::-1]) @ vh


SHAPES = [
    (3, 3),
    (5, 3),
    (3, 5),
    (1, 1),
    (4, 1),
    (1, 4),
    (2, 3, 4, 3),
    (2, 3, 4),
    (19, 17),
    (17, 19),
]
SQUARES = [(3, 3), (1, 1), (2, 2), (2, 4, 4), (2, 3, 5, 5), (0, 3, 3), (19, 19)]
EMPTY = [(0, 0), (3, 0), (0, 3), (0, 3, 2)]


def for_backend(shape: Any, backend: Any) -> Any:
    """The shape, with smaller sizes for tinygrad: there, each rotation of two columns is a part of
    one graph, which takes gigabytes for 20 columns."""
    return tuple(min(size, 6) for size in shape) if backend.kind == "tinygrad" else shape


def compiled(block: Any, shape: Any, backend: Any, named: bool = False, **options: Any) -> Any:
    dims = [f"n{size}" if named and size > 1 else size for size in shape]
    return ml.compile(block, backend, shapes={"input": dims}, **options)


def near(got: Any, want: Any, rtol: float) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * np.abs(want).max(initial=1e-30))


def transposed(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def signs(got: Any, want: Any) -> Any:
    """The sign of each column relative to that of the other matrix."""
    return np.where((got * want).sum(-2, keepdims=True) < 0, -1, 1).astype(got.dtype)


def check(case: Any, backend: Any, named: bool, rtol: float) -> None:
    """The reference gives PyTorch's results. Those named `vectors` may differ in sign."""
    block, make, reference, shape = case
    shape = for_backend(shape, backend)
    x = make(*shape).astype(backend.dtype.name)
    leaf = torch.tensor(x, requires_grad=True)
    want = dict(zip(block.outputs, reference(leaf), strict=True))
    plain = {n: v.detach().numpy() for n, v in want.items()}
    seeds = {n: RNG.standard_normal(v.shape).astype(x.dtype) for n, v in plain.items()}
    sum((v * torch.tensor(seeds[n])).sum() for n, v in want.items()).backward()
    # Mithril differentiates what the framework refuses.
    own = {"autodiff": "mithril"} if is_refused(block, shape, backend.kind) else {}
    model = compiled(block, x.shape, backend, named, trainable_keys=["input"], **own)
    params = {"input": backend.array(x)}
    outputs = model.evaluate(params, {})
    got = {n: np.asarray(backend.to_numpy(v)) for n, v in outputs.items()}
    columns = next((n for n in ("u", "eigenvectors") if n in got), None)
    if columns:
        own = signs(got[columns], plain[columns])
        got[columns], seeds[columns] = got[columns] * own, seeds[columns] * own
        if "vh" in got:
            got["vh"], seeds["vh"] = (v["vh"] * transposed(own) for v in (got, seeds))
    for n, v in plain.items():
        near(got[n], v, rtol)
    given = {n: backend.array(v) for n, v in seeds.items()}
    gradient = np.asarray(backend.to_numpy(model.evaluate_gradients(params, {}, given)["input"]))
    wanted = leaf.grad.numpy()
    if isinstance(block, (ml.Eigh, ml.Eigvalsh)):
        gradient, wanted = (v + transposed(v) for v in (gradient, wanted))
    near(gradient, wanted, 20 * rtol)


REFERENCES: list[tuple[Any, Any, Any, Any]] = [
    (ml.QR(), L.qr, numbers, SHAPES),
    (ml.Eigh(), L.eigh, symmetric, SQUARES),
    (ml.Eigvalsh(), lambda x: (L.eigvalsh(x),), symmetric, SQUARES),
    (ml.SVD(), lambda x: L.svd(x, full_matrices=False), spread, SHAPES),
]
CASES = [
    (block, make, reference, shape)
    for block, reference, make, shapes in REFERENCES
    for shape in shapes
]


def is_refused(block: Any, shape: Any, kind: str) -> bool:
    """Whether the framework does not differentiate the QR factorisation of wide matrices."""
    return isinstance(block, ml.QR) and shape[-1] > shape[-2] and kind == "jax"


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_results_are_those_of_torch(case, named, backend):
    check(CASES[case], backend, named, 1e-4)


@pytest.mark.parametrize("make_backend", DOUBLE)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_results_in_double_precision(case, make_backend):
    backend = make_backend(dtype=ml.float64)
    check(CASES[case], backend, False, 1e-11)


def run(block: Any, backend: Any, x: Any) -> Any:
    model = compiled(block, x.shape, backend, inference=True)
    outputs = model.evaluate({}, {"input": backend.array(x)})
    return [np.asarray(backend.to_numpy(outputs[n])) for n in block.outputs]


@pytest.mark.parametrize("shape", EMPTY)
def test_empty_matrices(shape, backend):
    size = min(shape[-2:])
    q, r = run(ml.QR(), backend, np.zeros(shape, np.float32))
    assert q.shape == (*shape[:-1], size)
    assert r.shape == (*shape[:-2], size, shape[-1])
    u, s, vh = run(ml.SVD(), backend, np.zeros(shape, np.float32))
    assert (u.shape, vh.shape) == (q.shape, r.shape)
    assert s.shape == (*shape[:-2], size)
    if shape == (0, 0):
        (values,) = run(ml.Eigvalsh(), backend, np.zeros(shape, np.float32))
        assert values.shape == (0,)


def orthonormal(x: Any, tolerance: float) -> None:
    """Checks the columns of a matrix."""
    np.testing.assert_allclose(transposed(x) @ x, np.eye(x.shape[-1]), atol=tolerance)


DEGENERATE = {
    "zero": np.zeros((4, 4)),
    "identity": np.eye(5),
    "ones": np.ones((6, 6)),
    "rank 2": np.outer(np.arange(1, 8), np.arange(7)) + np.ones((7, 7)),
    "diagonal": np.diag([1e-30, 3.0, 0.0, -2.0, 3.0]),
    "graded": np.diag(10.0 ** -np.arange(0, 12, 2)) + 1e-14 * np.ones((6, 6)),
    "large": 1e20 * np.array([[2.0, 1, 0], [1, 2, 1], [0, 1, 2]]),
    "small": 1e-25 * np.array([[2.0, 1, 0], [1, 2, 1], [0, 1, 2]]),
    "permutation": np.eye(6)[[1, 2, 3, 4, 5, 0]],
    "zeros on the diagonal": np.diag([1.0, 0, 2, 0, 3]) + np.diag(np.ones(4), 1),
    "shift": np.eye(6, k=1),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_matrices(name, backend):
    x = DEGENERATE[name].astype(np.float32)
    own = x.astype(np.float64)
    scale = max(np.abs(own).max(), 1e-30)
    q, r = (v.astype(np.float64) for v in run(ml.QR(), backend, x))
    orthonormal(q, 1e-5)
    np.testing.assert_allclose(q @ r, own, atol=2e-6 * scale)
    assert not np.tril(r, -1).any()
    u, s, vh = (v.astype(np.float64) for v in run(ml.SVD(), backend, x))
    orthonormal(u, 1e-5)
    orthonormal(vh.T, 1e-5)
    np.testing.assert_allclose((u * s) @ vh, own, atol=5e-6 * scale)
    np.testing.assert_allclose(s, np.linalg.svd(own)[1], atol=3e-6 * scale)
    both = (x + x.T) / 2
    own = both.astype(np.float64)
    values, vectors = (v.astype(np.float64) for v in run(ml.Eigh(), backend, both))
    orthonormal(vectors, 1e-5)
    np.testing.assert_allclose((vectors * values) @ vectors.T, own, atol=5e-6 * scale)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(own), atol=3e-6 * scale)


@pytest.mark.parametrize("shape", [(8, 8), (64, 64), (150, 90), (70, 130), (256, 256)])
@pytest.mark.parametrize("make", [ml.CpuBackend, ml.CBackend])
def test_large_matrices(shape, make):
    backend, x = make(dtype=ml.float64), numbers(*shape)
    q, r = run(ml.QR(), backend, x)
    want = np.linalg.qr(x)
    near(q, want[0], 1e-10)
    near(r, want[1], 1e-11)
    u, s, vh = run(ml.SVD(), backend, x)
    orthonormal(u, 1e-12)
    orthonormal(vh.T, 1e-12)
    near((u * s) @ vh, x, 1e-12)
    near(s, np.linalg.svd(x)[1], 1e-12)
    if shape[0] == shape[1]:
        values, vectors = run(ml.Eigh(), backend, x + x.T)
        orthonormal(vectors, 1e-12)
        near((vectors * values) @ vectors.T, x + x.T, 1e-12)
        near(values, np.linalg.eigvalsh(x + x.T), 1e-12)
        near(run(ml.Eigvalsh(), backend, x + x.T)[0], values, 1e-12)


LARGE_DEGENERATE = {
    "rank 5": numbers(90, 5) @ numbers(5, 70),
    "ones": np.ones((65, 130)),
    "triangle": np.triu(np.ones((80, 80))),
    "graded": numbers(100, 80) * 10.0 ** -np.linspace(0, 12, 80),
    "near the identity": np.eye(70) + 1e-9 * numbers(70, 70),
    "zero": np.zeros((70, 100)),
    "last column": np.eye(96)[:, -1:] @ numbers(1, 80),
    "shift": np.eye(80, k=1),
    "blocks": np.kron(np.eye(20), numbers(4, 4)),
    "large": 1e300 * numbers(64, 64),
    "subnormal": 1e-310 * numbers(64, 64),
}


@pytest.mark.parametrize("name", LARGE_DEGENERATE)
@pytest.mark.parametrize("make", [ml.CpuBackend, ml.CBackend])
def test_singular_vectors_of_large_degenerate_matrices(make, name):
    x = LARGE_DEGENERATE[name]
    u, s, vh = run(ml.SVD(), make(dtype=ml.float64), x)
    orthonormal(u, 1e-12)
    orthonormal(vh.T, 1e-12)
    # Subnormal numbers have fewer digits.
    scale = max(np.abs(x).max(), 1e-300)
    np.testing.assert_allclose((u * (s / scale)) @ vh, x / scale, atol=1e-12)
    assert (np.diff(s) <= 0).all()
    np.testing.assert_allclose(s / scale, np.linalg.svd(x / scale)[1], atol=1e-12)
    if name not in ("large", "subnormal"):
        own = x.astype(np.float32)
        u, s, vh = (v.astype(np.float64) for v in run(ml.SVD(), make(), own))
        orthonormal(u, 1e-4)
        orthonormal(vh.T, 1e-4)
        np.testing.assert_allclose((u * s) @ vh, own, atol=1e-4 * scale)


@pytest.mark.parametrize("make", [ml.CpuBackend, ml.CBackend])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_singular_values_that_are_not_numbers(make, value):
    x = numbers(2, 70, 80)
    x[0, 3, 4] = value
    _, s, _ = run(ml.SVD(), make(dtype=ml.float64), x)
    assert np.isnan(s[0]).any()
    near(s[1], np.linalg.svd(x[1])[1], 1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "make",
    WITHOUT_C,
)
def test_halves_are_computed_in_single_precision(make, dtype):
    backend = make(dtype=dtype)
    own = backend.array(symmetric(5, 5))
    rounded = np.asarray(backend.to_numpy(own)).astype(np.float64)
    step = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
    for block, want in (
        (ml.QR(), np.linalg.qr(rounded)),
        (ml.Eigvalsh(), [np.linalg.eigvalsh(rounded)]),
    ):
        model = compiled(block, (5, 5), backend, inference=True)
        got = model.evaluate({}, {"input": own})
        for name, other in zip(block.outputs, want, strict=True):
            one = np.asarray(backend.to_numpy(got[name]))
            assert one.dtype.name == dtype
            near(one.astype(np.float64), other, step)


@pytest.mark.parametrize(
    ("block", "shape", "message"),
    [
        (ml.QR(), [3], "at least 2"),
        (ml.SVD(), [], "at least 2"),
        (ml.Eigh(), [3, 4], "the matrices of `input` are not square"),
        (ml.Eigvalsh(), [2, 3, 4], "the matrices of `input` are not square"),
        (ml.Eigh(), [4], "at least 2"),
    ],
)
def test_mistakes_are_told(block, shape, message):
    with pytest.raises(ml.MithrilError, match=message):
        ml.compile(block, ml.NumpyBackend(), shapes={"input": shape})


@pytest.mark.parametrize("make", DOUBLE)
@pytest.mark.parametrize("case", range(4))
def test_second_derivatives_are_those_of_torch(case, make):
    """Of the squares of all results, which do not depend on signs."""
    block, reference, numbers_of, _ = REFERENCES[case]
    x, vector = numbers_of(4, 4), numbers(4, 4)
    is_symmetric = isinstance(block, (ml.Eigh, ml.Eigvalsh))
    vector = vector + vector.T if is_symmetric else vector
    weights = [numbers(*v.shape) for v in reference(torch.tensor(x))]
    model = ml.Model()
    names = list(block.outputs)
    model |= block(input="input", **{n: f"own_{n}" for n in names})
    terms = [(getattr(model, f"own_{n}") ** 2) * w for n, w in zip(names, weights, strict=True)]
    cost = terms[0].sum()
    for term in terms[1:]:
        cost = cost + term.sum()
    model |= ml.Buffer()(input=cost, output="cost")
    backend = make(dtype=ml.float64)
    both = ml.compile(
        model, backend, shapes={"input": [4, 4]}, differentiate="cost", trainable_keys=["input"]
    )
    outputs, products = both.evaluate(
        {"input": backend.array(x)},
        {},
        output_gradients={"input_gradient": backend.array(vector)},
    )
    leaf = torch.tensor(x, requires_grad=True)
    parts = zip(reference(leaf), weights, strict=True)
    total = sum((v**2 * torch.tensor(w)).sum() for v, w in parts)
    (first,) = torch.autograd.grad(total, leaf, create_graph=True)
    (second,) = torch.autograd.grad((first * torch.tensor(vector)).sum(), leaf)
    found = backend.to_numpy(outputs["input_gradient"]), backend.to_numpy(products["input"])
    for got, want, rtol in zip(found, (first.detach(), second), (1e-9, 1e-8), strict=True):
        both = [np.asarray(v) for v in (got, want)]
        near(*(v + v.T if is_symmetric else v for v in both), rtol)


WIDE_AND_TALL = [*SHAPES, *EMPTY]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("shape", WIDE_AND_TALL)
def test_complete_factors(shape, named, backend):
    """The first columns, and gradients of these, are those of the reduced factors."""
    shape = for_backend(shape, backend)
    x = (spread(*shape) if 0 not in shape else numbers(*shape)).astype(np.float32)
    rows, columns = shape[-2:]
    size = min(rows, columns)
    results = {}
    for block in (ml.QR(), ml.QR(mode="complete"), ml.SVD(), ml.SVD(full_matrices=True)):
        own = {"autodiff": "mithril"} if is_refused(ml.QR(), shape, backend.kind) else {}
        model = compiled(block, shape, backend, named, trainable_keys=["input"], **own)
        outputs = model.evaluate({"input": backend.array(x)}, {})
        got = {n: np.asarray(backend.to_numpy(v)) for n, v in outputs.items()}
        rng = np.random.default_rng(3)
        seeds = {n: np.zeros(v.shape, np.float32) for n, v in got.items()}
        for n, v in seeds.items():
            part = (..., slice(size)) if n == "s" else (..., slice(rows), slice(columns))
            part = (..., slice(rows), slice(size)) if n in ("q", "u") else part
            part = (..., slice(size), slice(columns)) if n in ("r", "vh") else part
            v[part] = rng.standard_normal(v[part].shape)
        given = {n: backend.array(v) for n, v in seeds.items()}
        gradient = model.evaluate_gradients({"input": backend.array(x)}, {}, given)["input"]
        results[repr(block)] = got, np.asarray(backend.to_numpy(gradient))
    (reduced, slope), (complete, other), (some, few), (whole, all_) = results.values()
    assert complete["q"].shape == (*shape[:-1], rows)
    assert complete["r"].shape == shape
    assert whole["u"].shape == (*shape[:-1], rows)
    assert whole["vh"].shape == (*shape[:-2], columns, columns)
    for square in (complete["q"], whole["u"], transposed(whole["vh"])):
        identity = np.broadcast_to(np.eye(square.shape[-1]), square.shape)
        np.testing.assert_allclose(transposed(square) @ square, identity, atol=1e-5)
    np.testing.assert_allclose(complete["q"][..., :size], reduced["q"], atol=1e-6)
    np.testing.assert_allclose(complete["r"][..., :size, :], reduced["r"], atol=1e-6)
    assert not complete["r"][..., size:, :].any()
    np.testing.assert_allclose(whole["u"][..., :size], some["u"], atol=1e-6)
    np.testing.assert_allclose(whole["vh"][..., :size, :], some["vh"], atol=1e-6)
    np.testing.assert_allclose(whole["s"], some["s"], atol=1e-6)
    want = torch.linalg.qr(torch.tensor(x), mode="complete")
    np.testing.assert_allclose(complete["q"] @ complete["r"], x, atol=1e-4)
    assert tuple(want[0].shape) == complete["q"].shape
    assert tuple(want[1].shape) == complete["r"].shape
    near(other, slope, 1e-3)
    near(all_, few, 1e-3)


@pytest.mark.parametrize("name", DEGENERATE)
def test_complete_factors_of_degenerate_matrices(name, backend):
    x = DEGENERATE[name].astype(np.float32)[:, :-2]
    (q, r) = run(ml.QR(mode="complete"), backend, x)
    orthonormal(q.astype(np.float64), 1e-5)
    scale = max(np.abs(x).max(), 1e-30)
    np.testing.assert_allclose(q @ r / scale, x / scale, atol=2e-6)
    u, _, vh = run(ml.SVD(full_matrices=True), backend, x.T)
    orthonormal(u.astype(np.float64), 1e-5)
    orthonormal(vh.astype(np.float64).T, 1e-5)
