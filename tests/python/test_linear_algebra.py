"""Linear algebra compared with PyTorch, forward and gradients, on every backend, with fixed and
open dims."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CLASSES, WITHOUT_C

import mithril as ml

RNG = np.random.default_rng(6)
L = torch.linalg


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def square(*shape: int) -> Any:
    """Matrices far from singular."""
    return numbers(*shape) / max(shape[-1], 1) + 2 * np.eye(shape[-1])


def positive(*shape: int) -> Any:
    """Symmetric positive definite matrices."""
    x = square(*shape)
    return x + np.swapaxes(x, -1, -2)


def triangular(upper: bool, transposed: bool, unit: bool, left: bool) -> Callable[..., Any]:
    def solve(a: Any, b: Any) -> Any:
        triangle = a.triu() if upper else a.tril()
        if transposed:
            triangle = triangle.mT
        return L.solve_triangular(
            triangle, b, upper=upper != transposed, left=left, unitriangular=unit
        )

    return solve


SIZES = [(3, 3), (1, 1), (0, 0), (2, 4, 4), (2, 3, 5, 5), (0, 3, 3), (19, 19), (37, 37)]
# The block, its inputs and PyTorch's function.
CASES: list[tuple[Any, list[Any], Callable[..., Any]]] = [
    *[(ml.Cholesky(), [positive(*size)], L.cholesky) for size in SIZES],
    (ml.Cholesky(upper=True), [positive(2, 4, 4)], lambda x: L.cholesky(x, upper=True)),
    *[(ml.Inverse(), [square(*size)], L.inv) for size in SIZES],
    *[(ml.Det(), [square(*size)], L.det) for size in SIZES],
    *[(ml.LogDet(), [positive(*size)], torch.logdet) for size in SIZES],
    *[
        (ml.MatrixPower(n), [square(*size)], lambda x, n=n: L.matrix_power(x, n))
        for n in (-2, -1, 0, 1, 2, 3, 7)
        for size in [(3, 3), (0, 0), (2, 4, 4)]
    ],
    *[
        (
            ml.TriangularSolve(
                lower=not upper, transposed=transposed, unit_diagonal=unit, left=left
            ),
            [square(*a), numbers(*(b if left else (*b[:-2], b[-1], b[-2])))],
            triangular(upper, transposed, unit, left),
        )
        for upper in (False, True)
        for transposed in (False, True)
        for unit in (False, True)
        for left in (True, False)
        for a, b in [((5, 5), (5, 3)), ((2, 18, 18), (2, 18, 9))]
    ],
    *[
        (ml.TriangularSolve(), [square(*a), numbers(*b)], triangular(False, False, False, True))
        for a, b in [
            ((1, 1), (1, 1)),
            ((0, 0), (0, 2)),
            ((3, 3), (3, 0)),
            ((3, 3), (4, 3, 2)),
            ((4, 3, 3), (3, 2)),
            ((4, 1, 3, 3), (5, 3, 2)),
            ((41, 41), (41, 1)),
        ]
    ],
    *[
        (ml.Solve(), [square(*a), numbers(*b)], L.solve)
        for a, b in [
            ((3, 3), (3, 2)),
            ((3, 3), (3,)),
            ((2, 3, 3), (2, 3)),
            ((3, 3, 3), (3, 3)),
            ((2, 3, 3), (3, 4)),
            ((2, 3, 3), (3,)),
            ((3, 3), (2, 3, 4)),
            ((4, 1, 3, 3), (5, 3, 2)),
            ((1, 1), (1, 1)),
            ((0, 0), (0, 2)),
            ((0, 0), (0,)),
            ((3, 3), (3, 0)),
            ((0, 3, 3), (0, 3, 2)),
            ((70, 70), (70, 33)),
            ((2, 35, 35), (2, 35)),
        ]
    ],
]


def compiled(
    block: Any, arrays: Any, backend: Any, named: bool, learned: bool, **options: Any
) -> Any:
    names = list(block.inputs)
    # Dims of one size have one name.
    dims = [[f"n{size}" if named and size > 1 else size for size in a.shape] for a in arrays]
    return ml.compile(
        block,
        backend,
        shapes=dict(zip(names, dims, strict=True)),
        trainable_keys=names if learned else [],
        inference=not learned,
        **options,
    )


def check(case: Any, named: bool, backend: Any, rtol: float, **options: Any) -> None:
    block, arrays, reference = case
    dtype = np.dtype(backend.dtype.name)
    arrays = [a.astype(dtype) for a in arrays]
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    want = reference(*leaves)
    seed = np.asarray(RNG.standard_normal(want.shape)).astype(dtype)
    want.backward(torch.tensor(seed))
    model = compiled(block, arrays, backend, named, True, **options)
    params = {n: backend.array(a) for n, a in zip(block.inputs, arrays, strict=True)}
    seeds = {"output": backend.array(seed)}
    outputs, gradients = model.evaluate(params, {}, output_gradients=seeds)
    near(backend.to_numpy(outputs["output"]), want.detach(), rtol)
    for name, leaf in zip(block.inputs, leaves, strict=True):
        near(backend.to_numpy(gradients[name]), leaf.grad, 5 * rtol)


def near(got: Any, want: Any, rtol: float) -> None:
    want = np.asarray(want)
    assert np.asarray(got).shape == want.shape
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * np.abs(want).max(initial=1e-30))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_results_are_those_of_torch(case, named, backend):
    block, arrays, _ = CASES[case]
    # JAX does not differentiate determinants of empty matrices.
    is_empty = isinstance(block, ml.Det) and arrays[0].shape[-1] == 0
    own = {"autodiff": "mithril"} if is_empty and backend.kind == "jax" else {}
    check(CASES[case], named, backend, 2e-5, **own)


@pytest.mark.parametrize(
    "make",
    WITHOUT_C,
)
@pytest.mark.parametrize("case", range(0, len(CASES), 3))
def test_results_in_double_precision(case, make):
    check(CASES[case], False, make(dtype=ml.float64), 1e-12)


def run(block: Any, backend: Any, *arrays: Any) -> Any:
    model = compiled(block, arrays, backend, False, False)
    given = {n: backend.array(a) for n, a in zip(block.inputs, arrays, strict=True)}
    return np.asarray(backend.to_numpy(model.evaluate({}, given)["output"]))


def test_matrices_that_are_not_positive_definite(backend):
    x = np.float32([np.eye(3), [[4, 2, 0], [2, 1, 1], [0, 1, 3]], np.eye(3), -np.eye(3)])
    got = run(ml.Cholesky(), backend, x)
    np.testing.assert_array_equal(got[[0, 2]], x[[0, 2]])
    failed = np.tril(np.full((3, 3), np.nan))
    np.testing.assert_array_equal(got[[1, 3]], [failed, failed])
    np.testing.assert_array_equal(run(ml.Cholesky(), backend, x[3]), failed)


def test_the_upper_triangle_is_not_read(backend):
    if backend.kind == "jax":
        return
    x = positive(9, 9).astype(np.float32)
    upper = np.tril(x) + np.triu(np.full_like(x, 7), 1)
    np.testing.assert_allclose(run(ml.Cholesky(), backend, upper), np.linalg.cholesky(x), 1e-4)
    b = numbers(9, 2).astype(np.float32)
    want = np.linalg.solve(np.tril(x), b)
    for other in (np.nan, np.inf):
        lower = np.tril(x) + np.triu(np.full_like(x, other), 1)
        np.testing.assert_allclose(run(ml.TriangularSolve(), backend, lower, b), want, 1e-4)


def test_singular_matrices(backend):
    x = np.float32([np.eye(2), [[1, 2], [2, 4]]])
    np.testing.assert_array_equal(run(ml.Det(), backend, x), [1, 0])
    np.testing.assert_array_equal(run(ml.LogDet(), backend, x), [0, -np.inf])
    for got in (
        run(ml.Inverse(), backend, x),
        run(ml.Solve(), backend, x, np.ones((2, 2, 1), np.float32)),
    ):
        assert np.isfinite(got[0]).all()
        assert not np.isfinite(got[1]).all()
    zero = np.zeros((2, 2), np.float32)
    assert not np.isfinite(run(ml.Inverse(), backend, zero)).any()
    ones = np.ones((2, 1), np.float32)
    infinite = np.nan if backend.kind in ("mlx", "tinygrad") else np.inf
    np.testing.assert_array_equal(run(ml.TriangularSolve(), backend, zero, ones)[0], [infinite])


def test_logarithms_of_negative_determinants(backend):
    x = np.float32([[[0, 1], [1, 0]], [[0, 2], [-1, 0]]])
    got = run(ml.LogDet(), backend, x)
    np.testing.assert_allclose(got, [np.nan, np.log(2)], rtol=1e-6)


def test_determinants_do_not_overflow(backend):
    x = np.float32(1e30 * np.eye(4))
    np.testing.assert_allclose(run(ml.LogDet(), backend, x), 4 * np.log(1e30), rtol=1e-6)


def test_pivots_are_chosen(backend):
    x = np.float32([[1e-20, 1, 0], [1, 1, 3], [2, 0, 1]])
    b = np.float32([1, 2, 3])
    np.testing.assert_allclose(run(ml.Solve(), backend, x, b), np.linalg.solve(x, b), rtol=1e-5)
    np.testing.assert_allclose(run(ml.Det(), backend, x), np.linalg.det(x), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "make",
    WITHOUT_C,
)
def test_halves_are_computed_in_single_precision(make, dtype):
    backend = make(dtype=dtype)
    x = positive(6, 6)
    own = backend.array(x)
    rounded = np.asarray(backend.to_numpy(own)).astype(np.float64)
    b = backend.array(numbers(6, 2))
    right = np.asarray(backend.to_numpy(b)).astype(np.float64)
    step = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
    for block, arrays, want in (
        (ml.Cholesky(), [own], np.linalg.cholesky(rounded)),
        (ml.Inverse(), [own], np.linalg.inv(rounded)),
        (ml.Det(), [own], np.linalg.det(rounded)),
        (ml.LogDet(), [own], np.log(np.linalg.det(rounded))),
        (ml.MatrixPower(3), [own], np.linalg.matrix_power(rounded, 3)),
        (ml.Solve(), [own, b], np.linalg.solve(rounded, right)),
        (ml.TriangularSolve(), [own, b], np.linalg.solve(np.tril(rounded), right)),
    ):
        model = compiled(block, [np.empty(a.shape) for a in arrays], backend, False, False)
        got = model.evaluate({}, dict(zip(block.inputs, arrays, strict=True)))["output"]
        got = np.asarray(backend.to_numpy(got))
        assert got.dtype.name == dtype
        near(got.astype(np.float64), want, step)


@pytest.mark.parametrize("n", [8, 64, 130, 256])
@pytest.mark.parametrize("make", [ml.CpuBackend, ml.CBackend])
def test_large_matrices(n, make):
    backend = make(dtype=ml.float64)
    x = positive(n, n)
    near(run(ml.Cholesky(), backend, x), np.linalg.cholesky(x), 1e-12)
    x, b = numbers(n, n), numbers(n, 5)
    near(run(ml.Solve(), backend, x, b), np.linalg.solve(x, b), 1e-9)
    near(run(ml.Inverse(), backend, x), np.linalg.inv(x), 1e-9)
    sign, log = np.linalg.slogdet(x)
    got = run(ml.LogDet(), backend, x if sign > 0 else x[::-1])
    if np.isnan(got):
        got = run(ml.LogDet(), backend, np.roll(x, 1, 0))
    near(got, log, 1e-10)


@pytest.mark.parametrize(
    ("block", "shapes", "message"),
    [
        (ml.Cholesky(), {"input": [3, 4]}, "the matrices of `input` are not square"),
        (ml.Inverse(), {"input": [2, 3, 4]}, "the matrices of `input` are not square"),
        (ml.Det(), {"input": [3]}, "at least 2"),
        (ml.LogDet(), {"input": [3, 2]}, "the matrices of `input` are not square"),
        (ml.MatrixPower(-1), {"input": [3, 2]}, "the matrices of `input` are not square"),
        (ml.Solve(), {"a": [3, 2], "b": [3]}, "the matrices of `a` are not square"),
        (ml.Solve(), {"a": [3, 3], "b": [4, 2]}, "the rows of `a` and `b`"),
        (ml.Solve(), {"a": [3, 3], "b": []}, "at least"),
        (ml.TriangularSolve(), {"a": [3, 3], "b": [3]}, "at least 2"),
        (ml.TriangularSolve(), {"a": [2, 3, 3], "b": [4, 3, 1]}, "2 against 4 in axis -1"),
    ],
)
def test_mistakes_are_told(block, shapes, message):
    with pytest.raises(ml.MithrilError, match=message):
        ml.compile(block, ml.NumpyBackend(), shapes=shapes)


@pytest.mark.parametrize("name", ["Cholesky", "Inverse", "Det", "LogDet", "MatrixPower"])
def test_every_rank_is_refused_or_compiled(name):
    settings = {"n": 2} if name == "MatrixPower" else {}
    for rank in range(7):
        for last in ([], [2, 2], [2, 3]):
            dims = ([2] * rank + last)[-rank:] if rank else []
            try:
                ml.compile(getattr(ml, name)(**settings), ml.CpuBackend(), shapes={"input": dims})
            except ml.MithrilError:
                assert rank < 2 or last == [2, 3]


SECOND: list[tuple[Any, list[Any], Callable[..., Any]]] = [
    (ml.Cholesky(), [positive(4, 4)], L.cholesky),
    (ml.Inverse(), [square(3, 3)], L.inv),
    (ml.Det(), [square(2, 3, 3)], L.det),
    (ml.LogDet(), [positive(3, 3)], torch.logdet),
    (ml.MatrixPower(-3), [square(3, 3)], lambda x: L.matrix_power(x, -3)),
    (ml.Solve(), [square(2, 3, 3), numbers(3, 2)], L.solve),
    (
        ml.TriangularSolve(lower=False, transposed=True),
        [square(3, 3), numbers(2, 3, 2)],
        triangular(True, True, False, True),
    ),
]


@pytest.mark.parametrize(
    "make",
    CLASSES,
)
@pytest.mark.parametrize("case", range(len(SECOND)))
def test_second_derivatives_are_those_of_torch(case, make):
    block, arrays, reference = SECOND[case]
    backend, names = make(dtype=ml.float64), list(block.inputs)
    model = ml.Model()
    model |= block(**{n: n for n in names}, output="result")
    model |= ml.Buffer()(input=(model.result**3).sum(), output="cost")
    shapes = {n: list(a.shape) for n, a in zip(names, arrays, strict=True)}
    both = ml.compile(model, backend, shapes=shapes, differentiate="cost", trainable_keys=names)
    vectors = [numbers(*a.shape) for a in arrays]
    if isinstance(block, ml.Cholesky):
        vectors = [v + v.T for v in vectors]
    take = lambda values, end="": {  # noqa: E731
        f"{n}{end}": backend.array(v) for n, v in zip(names, values, strict=True)
    }
    outputs, products = both.evaluate(take(arrays), {}, output_gradients=take(vectors, "_gradient"))
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    first = torch.autograd.grad((reference(*leaves) ** 3).sum(), leaves, create_graph=True)
    along = sum((g * torch.tensor(v)).sum() for g, v in zip(first, vectors, strict=True))
    second = torch.autograd.grad(along, leaves)
    for n, one, two in zip(names, first, second, strict=True):
        near(backend.to_numpy(outputs[f"{n}_gradient"]), one.detach(), 1e-10)
        near(backend.to_numpy(products[n]), two, 1e-9)


@pytest.mark.parametrize("make", [ml.NumpyBackend, ml.TorchBackend])
def test_failed_decompositions_are_explained(make):
    """Custom operations may call functions that fail."""
    bodies = {"numpy": "return np.linalg.inv(x)", "torch": "return torch.linalg.inv(x)"}
    backend = make()
    block = ml.custom(name="invert", shape="(x: [n, n]) -> [n, n]", **bodies)
    compiled = ml.compile(block, backend, shapes={"x": [3, 3]}, inference=True)
    with pytest.raises(ml.BackendError, match="cannot decompose a matrix of this call") as error:
        compiled.evaluate({}, {"x": backend.zeros(3, 3)})
    assert "expected: a matrix for which its algorithm succeeds" in str(error.value)


# tinygrad's factors are rotations of its own. Their gradients take minutes to compile.
RIGID = [make for make in CLASSES if make.kind != "tinygrad"]


@pytest.mark.parametrize("make", RIGID)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "block", [ml.SVD(), ml.Eigh(), ml.Eigvalsh(), ml.SVD(full_matrices=True)], ids=repr
)
def test_factors_of_matrices_that_are_not_finite_are_nan(block, value, make):
    """Those of the other matrices of a batch, and their gradients, are what they were."""
    backend = make()
    x = numbers(2, 3, 3).astype(np.float32)
    x = x + np.swapaxes(x, -1, -2) + np.diag([9, 5, 2]).astype(np.float32)
    spoiled = np.stack([x[0], x[0], x[1], x[0]])
    spoiled[1, 2, 0] = spoiled[1, 0, 2] = spoiled[3, 1, 1] = value
    found = [factors(block, backend, given) for given in (x, spoiled, spoiled[1])]
    for n, want in found[0].items():
        got = found[1][n]
        near(got[[0, 2]], want, 1e-4)
        # JAX has finite vectors of some of these matrices.
        if backend.kind == "jax" and n not in ("s", "eigenvalues", "output"):
            continue
        for bad in (got[1], got[3], found[2][n]):
            assert np.all(np.isnan(bad))


@pytest.mark.parametrize("make", [make for make in RIGID if make.kind != "jax"])
@pytest.mark.parametrize("block", [ml.Eigh(), ml.Eigvalsh()], ids=repr)
def test_nan_above_the_diagonal_is_not_read(block, make):
    backend = make()
    x = np.float32([[2, 1, 0], [1, 3, 1], [0, 1, 5]])
    want = factors(block, backend, x)
    x[0, 1] = x[0, 2] = np.nan
    for n, got in factors(block, backend, x).items():
        np.testing.assert_allclose(got, want[n], rtol=1e-5, atol=1e-6)


def factors(block: Any, backend: Any, x: Any) -> Any:
    """The outputs, and the gradient of the input."""
    model = compiled(block, [x], backend, False, True)
    params = {"input": backend.array(x)}
    outputs = model.evaluate(params, {})
    # These gradients do not depend on the signs of vectors.
    seeds = {n: 2 * v if n != "s" else backend.ones_like(v) for n, v in outputs.items()}
    gradient = model.evaluate_gradients(params, {}, seeds)["input"]
    every = {**outputs, "input": gradient}
    return {n: np.asarray(backend.to_numpy(v)) for n, v in every.items()}
