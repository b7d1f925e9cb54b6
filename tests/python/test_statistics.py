"""Segments, scatters, order statistics and histograms compared with PyTorch, forward and gradients,
on every backend, with fixed and open dims."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import CLASSES

import mithril as ml

RNG = np.random.default_rng(4)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def ties(*shape: int) -> Any:
    """Numbers of which many are equal, or 0."""
    return RNG.integers(-2, 3, shape).astype(np.float32)


def own(included: bool, *shape: int) -> Any:
    """torch shares a gradient with an element that equals the maximum but is not included."""
    return ties(*shape) if included else ties(*shape) + np.float32(0.5)


def ids(count: int, *shape: int) -> Any:
    return RNG.integers(0, count, shape)


def spread(index: Any, x: Any) -> Any:
    return index.reshape(-1, *[1] * (x.ndim - 1)).expand(x.shape)


def segment_sum(count: int) -> Callable[..., Any]:
    return lambda x, i: torch.zeros(count, *x.shape[1:]).index_add(0, i, x)


def segment_mean(count: int) -> Callable[..., Any]:
    zeros = lambda x: torch.zeros(count, *x.shape[1:])  # noqa: E731
    return lambda x, i: zeros(x).scatter_reduce(0, spread(i, x), x, "mean", include_self=False)


def segment_max(count: int) -> Callable[..., Any]:
    least = lambda x: torch.full((count, *x.shape[1:]), -torch.inf)  # noqa: E731
    return lambda x, i: least(x).scatter_reduce(0, spread(i, x), x, "amax")


def scatter(axis: int, reduce: str, include: bool) -> Callable[..., Any]:
    return lambda x, i, u: x.scatter_reduce(axis, i, u, reduce, include_self=include)


def first_updates(function: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch has no gradient for more updates than indices."""
    return lambda x, i, y: function(x, i, y[tuple(slice(size) for size in i.shape)])


def quantile(q: float, how: str, **settings: Any) -> Callable[..., Any]:
    return lambda x: torch.quantile(x, q, interpolation=how, **settings)


def quantiles(q: list[float], how: str, **settings: Any) -> Callable[..., Any]:
    return lambda x: torch.quantile(x, torch.tensor(q), interpolation=how, **settings)


def search_sorted(right: bool) -> Callable[..., Any]:
    return lambda x, b: torch.searchsorted(b, x.contiguous(), right=right)


def bucketize(right: bool) -> Callable[..., Any]:
    return lambda x, b: torch.bucketize(x, b, right=right)


HOLES = np.float32([[1, np.nan, 2], [3, 1, 0]])
UNSURE = np.float32([np.nan, -np.inf, np.inf, 0, 1, 1.5, 2, 3, 9])
EDGES = np.float32([0, 1, 1, 2, 3])
# The block, its inputs and PyTorch's function.
CASES: list[tuple[Any, list[Any], Callable[..., Any]]] = [
    *[
        case
        for count in (1, 4)
        for x, i in (
            (numbers(7, 3), ids(count, 7)),
            (ties(9), ids(count, 9)),
            (ties(6, 2, 3), ids(count, 6)),
            (numbers(0, 3), ids(count, 0)),
            (numbers(5, 0), ids(count, 5)),
            (numbers(1), ids(count, 1)),
        )
        for case in (
            (ml.SegmentSum(count), [x, i], segment_sum(count)),
            (ml.SegmentMean(count), [x, i], segment_mean(count)),
            (ml.SegmentMax(count), [x, i], segment_max(count)),
        )
    ],
    *[
        (
            ml.ScatterReduce(axis=axis, reduce=reduce, include_self=include),
            arrays,
            scatter(axis, reduce, include),
        )
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for include in (True, False)
        for axis, arrays in (
            (0, [own(include, 4, 3), ids(4, 6, 3), ties(6, 3)]),
            (-1, [numbers(2, 5), ids(5, 2, 8), numbers(2, 8)]),
            (1, [own(include, 2, 3, 2), ids(3, 2, 4, 2), ties(2, 4, 2)]),
            (0, [ties(3), ids(3, 0), ties(0)]),
            (0, [ties(1), ids(1, 4), ties(4)]),
        )
    ],
    (
        ml.TakeAlongAxis(axis=1),
        [numbers(3, 4), ids(4, 3, 2)],
        lambda x, i: torch.take_along_dim(x, i, 1),
    ),
    (ml.TakeAlongAxis(), [numbers(3), ids(3, 5)], lambda x, i: torch.take_along_dim(x, i, 0)),
    *[
        (
            ml.TakeAlongAxis(axis=axis, partial=True),
            [numbers(*shape), ids(shape[axis], *part)],
            lambda x, i, axis=axis: torch.gather(x, axis, i),
        )
        for axis, shape, part in (
            (0, (4, 5), (7, 2)),
            (1, (4, 5), (1, 3)),
            (-1, (2, 3, 4), (1, 3, 6)),
            (1, (2, 3, 4), (2, 0, 3)),
            (0, (3, 2), (4, 2)),
            (0, (3,), (2,)),
        )
    ],
    *[
        (
            ml.ScatterReduce(axis=axis, reduce=reduce, include_self=include, partial=True),
            [own(include, *shape), ids(shape[axis], *part), ties(*updates)],
            first_updates(scatter(axis, reduce, include)),
        )
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for include in (True, False)
        for axis, shape, part, updates in (
            (0, (4, 5), (7, 2), (8, 3)),
            (-1, (2, 3, 4), (1, 2, 6), (2, 2, 6)),
            (0, (4, 3), (6, 3), (6, 4)),
            (0, (3,), (2,), (5,)),
            (1, (2, 3), (0, 2), (2, 2)),
        )
    ],
    *[
        (ml.Quantile(q, interpolation=how, **own), [x], quantile(q, how, **theirs))
        for how in ("linear", "lower", "higher", "midpoint", "nearest")
        for q in (0.0, 0.3, 0.5, 1.0)
        for x, own, theirs in (
            (numbers(4, 6), {"axis": -1}, {"dim": -1}),
            (numbers(5, 3), {"axis": 0, "keepdim": True}, {"dim": 0, "keepdim": True}),
            (numbers(12), {}, {}),
        )
    ],
    *[
        (ml.Quantile(q, interpolation=how, **own), [x], quantiles(q, how, **theirs))
        for how in ("linear", "lower", "higher", "midpoint", "nearest")
        for q in ([0.25, 0.5, 0.9], [0.0, 1.0], [0.3], [0.123456789, 0.5])
        for x, own, theirs in (
            (numbers(4, 6, 3), {"axis": 1}, {"dim": 1}),
            (numbers(5, 3), {"axis": 0, "keepdim": True}, {"dim": 0, "keepdim": True}),
            (numbers(3, 4), {"keepdim": True}, {"keepdim": True}),
            (numbers(12), {}, {}),
            (numbers(1, 2), {"axis": 0}, {"dim": 0}),
        )
    ],
    (ml.Quantile([0.2, 0.5], axis=1), [HOLES], quantiles([0.2, 0.5], "linear", dim=1)),
    (ml.Quantile([0.2, 0.5], axis=0), [HOLES], quantiles([0.2, 0.5], "linear", dim=0)),
    (ml.Quantile(0.4), [numbers(2, 3, 2)], quantile(0.4, "linear")),
    (
        ml.Quantile(0.4, keepdim=True),
        [numbers(2, 3)],
        lambda x: torch.quantile(x, 0.4).reshape(1, 1),
    ),
    (ml.Quantile(0.7), [numbers(1)], quantile(0.7, "linear")),
    (ml.Quantile(0.5, axis=1), [HOLES], quantile(0.5, "linear", dim=1)),
    (ml.Quantile(0.5, axis=1), [numbers(0, 3)], lambda x: x.mean(1)),
    (ml.Median(axis=1), [numbers(3, 5)], lambda x: torch.median(x, 1).values),
    (ml.Median(axis=0), [numbers(4, 3)], lambda x: torch.median(x, 0).values),
    (
        ml.Median(axis=-1, keepdim=True),
        [numbers(2, 6)],
        lambda x: torch.median(x, -1, keepdim=True).values,
    ),
    (ml.Median(), [numbers(3, 4)], torch.median),
    (ml.Median(axis=1), [HOLES], lambda x: torch.median(x, 1).values),
    (ml.Median(axis=1), [numbers(3, 1)], lambda x: torch.median(x, 1).values),
    *[
        (block(right=right), [x, EDGES[:count]], reference(right))
        for right in (False, True)
        for count in (0, 1, 2, 5)
        for x in (UNSURE, numbers(2, 3), numbers(0))
        for block, reference in (
            (ml.SearchSorted, search_sorted),
            (ml.Bucketize, bucketize),
        )
    ],
    *[
        (
            ml.SearchSorted(right=right),
            [ties(3, 4), np.sort(ties(3, 7))],
            lambda x, b, right=right: torch.searchsorted(b, x, right=right),
        )
        for right in (False, True)
    ],
    (
        ml.Histogram(5, -1, 2),
        [numbers(6, 20)],
        lambda x: torch.histc(x, 5, -1, 2).long(),
    ),
    (ml.Histogram(7), [numbers(50)], lambda x: torch.histc(x, 7).long()),
    (
        ml.Histogram(3, 0, 3),
        [np.float32([0, 1, 2, 3, 3.5, -1, np.nan, 1])],
        lambda x: torch.tensor([1, 2, 2]),
    ),
    (ml.Histogram(2), [np.float32([5, 5, 5])], lambda x: torch.tensor([0, 3])),
    (ml.Histogram(4, 0, 1), [numbers(0)], lambda x: torch.zeros(4, dtype=torch.int64)),
]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_statistics_are_those_of_torch(case, named, backend):
    block, arrays, reference = CASES[case]
    names = list(block.inputs)[: len(arrays)]
    leaves = [torch.tensor(a, requires_grad=a.dtype == np.float32) for a in arrays]
    want = reference(*leaves)
    seed = RNG.standard_normal(want.shape).astype(np.float32)
    if want.requires_grad:
        want.backward(torch.tensor(seed))
    if backend.kind == "jax":
        arrays = [a.astype(np.int32) if a.dtype == np.int64 else a for a in arrays]
    # Dims of one size have one name, unless they are those of different axes.
    dims = [[f"n{size}" if named else size for size in a.shape] for a in arrays]
    floats = [n for n, a in zip(names, arrays, strict=True) if a.dtype == np.float32]
    learned = floats if want.requires_grad else []
    compiled = ml.compile(
        block,
        backend,
        shapes=dict(zip(names, dims, strict=True)),
        dtypes={n: a.dtype for n, a in zip(names, arrays, strict=True)},
        trainable_keys=learned,
        inference=not learned,
    )
    given = {n: backend.array(a) if n in floats else a for n, a in zip(names, arrays, strict=True)}
    params = {n: given[n] for n in learned}
    rest = {n: given[n] for n in names if n not in learned}
    to = backend.to_numpy
    if not learned:
        got = np.asarray(to(compiled.evaluate(params, rest)["output"]))
        assert got.dtype.kind == "i"
        np.testing.assert_array_equal(got, want)
        return
    outputs, gradients = compiled.evaluate(
        params, rest, output_gradients={"output": backend.array(seed)}
    )
    got, want = to(outputs["output"]), want.detach().numpy()
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    for name, leaf in zip(names, leaves, strict=True):
        if name in learned and not (block.__class__ is ml.SegmentMax and not leaf.numel()):
            got, want = to(gradients[name]), leaf.grad.numpy()
            # tinygrad's sort gives NaN no gradient.
            kept = ~np.isnan(given[name].numpy()) if backend.kind == "tinygrad" else np.s_[:]
            np.testing.assert_allclose(got[kept], want[kept], rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("open_dims", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (2, 1)])
def test_bags_are_those_of_torch(mode, shape, open_dims, backend):
    dtype = np.int32 if backend.kind == "jax" else np.int64
    bags = RNG.integers(0, 5, shape).astype(dtype)
    block = ml.EmbeddingBag(5, 2, mode=mode)
    shapes = {"input": ["bags", "length"] if open_dims else list(shape)}
    compiled = ml.compile(block, backend, shapes=shapes, dtypes={"input": dtype})
    w = ties(5, 2)
    seed = numbers(shape[0], 2)
    (name,) = compiled.params
    outputs, gradients = compiled.evaluate(
        {name: backend.array(w)}, {"input": bags}, output_gradients={"output": backend.array(seed)}
    )
    leaf = torch.tensor(w, requires_grad=True)
    want = F.embedding_bag(torch.tensor(bags, dtype=torch.int64), leaf, mode=mode)
    want.backward(torch.tensor(seed))
    to = backend.to_numpy
    np.testing.assert_allclose(to(outputs["output"]), want.detach(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(to(gradients[name]), leaf.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("open_dims", [False, True])
@pytest.mark.parametrize("padding", [1, -2, None])
@pytest.mark.parametrize("mode", ["sum", "weighted", "mean", "max"])
def test_padding_and_weights_of_bags(mode, padding, open_dims, backend):
    """The second bag is only padding."""
    dtype = np.int32 if backend.kind == "jax" else np.int64
    left_out = 0 if padding is None else padding % 5
    bags = np.array([[0, left_out, 4, 4], [left_out] * 4, [2, 0, 2, left_out]], dtype)
    weighted, mode = mode == "weighted", "sum" if mode == "weighted" else mode
    block = ml.EmbeddingBag(5, 2, mode=mode, padding_idx=padding)
    model = ml.Model()
    given = {"per_sample_weights": "weights"} if weighted else {}
    model |= block(input="input", output="output", **given)
    dims: Any = ["bags", "length"] if open_dims else list(bags.shape)
    shapes = {"input": dims} | ({"weights": dims} if weighted else {})
    compiled = ml.compile(
        model,
        backend,
        shapes=shapes,
        dtypes={"input": dtype},
        trainable_keys=["weights"] if weighted else [],
    )
    w, factors, seed = ties(5, 2), numbers(3, 4), numbers(3, 2)
    name = next(n for n in compiled.params if n != "weights")
    params = {name: backend.array(w)} | ({"weights": backend.array(factors)} if weighted else {})
    outputs, gradients = compiled.evaluate(
        params, {"input": bags}, output_gradients={"output": backend.array(seed)}
    )
    leaf, own = (torch.tensor(a, requires_grad=True) for a in (w, factors))
    want = F.embedding_bag(
        torch.tensor(bags, dtype=torch.int64),
        leaf,
        mode=mode,
        padding_idx=padding,
        per_sample_weights=own if weighted else None,
    )
    want.backward(torch.tensor(seed))
    to = backend.to_numpy
    np.testing.assert_allclose(to(outputs["output"]), want.detach(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(to(gradients[name]), leaf.grad, rtol=1e-5, atol=1e-6)
    if weighted:
        np.testing.assert_allclose(to(gradients["weights"]), own.grad, rtol=1e-5, atol=1e-6)


def test_mistakes_with_bags():
    with pytest.raises(ml.MithrilError, match="`padding_idx` is out of range"):
        ml.EmbeddingBag(3, 2, padding_idx=3)
    for mode, shape, message in (
        ("mean", [4, 2], "rows of a sum"),
        ("sum", [4, 3], "the shape of"),
    ):
        model = ml.Model()
        block = ml.EmbeddingBag(3, 2, mode=mode)
        model |= block(input="input", per_sample_weights="weights", output="output")
        shapes = {"input": [4, 2], "weights": shape}
        with pytest.raises(ml.MithrilError, match=message):
            ml.compile(model, ml.NumpyBackend(), shapes=shapes)


def run(block: Any, backend: Any, *arrays: Any) -> Any:
    names = list(block.inputs)
    shapes = {n: list(a.shape) for n, a in zip(names, arrays, strict=True)}
    dtypes = {n: a.dtype for n, a in zip(names, arrays, strict=True)}
    compiled = ml.compile(block, backend, shapes=shapes, dtypes=dtypes, inference=True)
    given = {n: backend.array(a, a.dtype.name) for n, a in zip(names, arrays, strict=True)}
    return np.asarray(backend.to_numpy(compiled.evaluate({}, given)["output"]))


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatters_of_integers(reduce, backend):
    x, u = (RNG.integers(-4, 5, n).astype(np.int32) for n in (5, 9))
    i = RNG.integers(0, 5, 9).astype(np.int32)
    for include in (True, False):
        got = run(ml.ScatterReduce(reduce=reduce, include_self=include), backend, x, i, u)
        want = scatter(0, reduce, include)(*map(torch.tensor, (x, i.astype(np.int64), u)))
        assert got.dtype == np.int32
        np.testing.assert_array_equal(got, want)


def test_segments_of_integers(backend):
    x, i = np.int32([3, 1, -2]), np.int32([2, 2, 0])
    np.testing.assert_array_equal(run(ml.SegmentSum(3), backend, x, i), [-2, 0, 4])
    least = np.iinfo(np.int32).min
    np.testing.assert_array_equal(run(ml.SegmentMax(3), backend, x, i), [-2, least, 3])
    np.testing.assert_array_equal(run(ml.Median(), backend, x), 1)


def test_sums_of_halves():
    """They are in single precision: 4000 is beyond the integers of float16."""
    x = np.ones(4000, np.float16)
    for make in CLASSES:
        backend = make(dtype=ml.float16)
        got = run(ml.SegmentMean(1), backend, x, np.zeros(4000, np.int32))
        np.testing.assert_array_equal(got, np.ones(1, np.float16))


@pytest.mark.parametrize("named", [False, True])
def test_places_among_many_boundaries(named, backend):
    boundaries = np.sort(numbers(1000))
    x = np.concatenate([numbers(3000), boundaries[::7]])
    shapes = {"input": ["m"], "boundaries": ["n"]} if named else None
    shapes = shapes or {"input": [len(x)], "boundaries": [1000]}
    for right in (False, True):
        block = ml.SearchSorted(right=right)
        compiled = ml.compile(block, backend, shapes=shapes, inference=True)
        given = {"input": backend.array(x), "boundaries": backend.array(boundaries)}
        got = backend.to_numpy(compiled.evaluate({}, given)["output"])
        side = "right" if right else "left"
        np.testing.assert_array_equal(got, np.searchsorted(boundaries, x, side))


def weighted(*settings: float) -> Any:
    model = ml.Model()
    model |= ml.Histogram(*settings)(input="input", weights="weights", output="output")
    return model


@pytest.mark.parametrize(
    ("block", "shapes", "message"),
    [
        (ml.SegmentSum(3), {"input": [4, 2], "segment_ids": [5]}, "`segment_ids` does not match"),
        (ml.SegmentMax(3), {"input": [4], "segment_ids": [4, 1]}, "`segment_ids` does not match"),
        (ml.Bucketize(), {"input": [4], "boundaries": [4, 1]}, "are not a vector"),
        (ml.SearchSorted(), {"input": [4], "boundaries": [2, 4]}, "`boundaries` does not match"),
        (ml.TakeAlongAxis(partial=True), {"input": [4, 2], "indices": [3, 3]}, "not a part of"),
        (ml.TakeAlongAxis(partial=True), {"input": [4, 2], "indices": [3]}, "not a part of"),
        (ml.Quantile(0.5), {"input": [0]}, "a quantile of no elements"),
        (ml.Median(axis=0), {"input": [0, 3]}, "a quantile of no elements"),
        (ml.Histogram(3), {"input": [0]}, "needs a range"),
        (weighted(3), {"input": [2, 3], "weights": [3, 2]}, "`weights` of `Histogram` has the"),
        (weighted(3), {"input": [2, 3], "weights": [6]}, "`weights` of `Histogram` has the"),
        (ml.EmbeddingBag(3, 2), {"input": [4]}, "takes bags of indices"),
        (ml.EmbeddingBag(3, 2, mode="max"), {"input": [4, 0]}, "no maximum of empty bags"),
    ],
)
def test_mistakes_are_told(block, shapes, message):
    dtypes = {"segment_ids": ml.int64} if "segment_ids" in shapes else {}
    with pytest.raises(ml.MithrilError, match=message):
        ml.compile(block, ml.NumpyBackend(), shapes=shapes, dtypes=dtypes)


HISTOGRAMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"bins": 4, "min": 0, "max": 1}, {"bins": 4, "range": (0, 1)}),
    ({"bins": 7}, {"bins": 7}),
    ({"bins": [-0.5, 0, 0.25, 2]}, {"bins": [-0.5, 0, 0.25, 2]}),
    ({"bins": [0, 1]}, {"bins": [0, 1]}),
]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", range(len(HISTOGRAMS)))
def test_histograms_are_those_of_numpy(case, weighted, density, named, backend):
    settings, theirs = HISTOGRAMS[case]
    x, weights = numbers(5, 7), np.abs(numbers(5, 7))
    x[0, :4] = settings["bins"][0] if isinstance(settings["bins"], list) else 0
    x[1, :2] = theirs["range"][1] if "range" in theirs else 1
    arrays = {"input": x} | ({"weights": weights} if weighted else {})
    shapes = {n: ["m", "n"] if named else [5, 7] for n in arrays}
    model = ml.Model()
    model |= ml.Histogram(**settings, density=density)(**{n: n for n in arrays}, output="output")
    compiled = ml.compile(model, backend, shapes=shapes, inference=True)
    outputs = compiled.evaluate({}, {n: backend.array(a) for n, a in arrays.items()})
    got = backend.to_numpy(outputs["output"])
    want, _ = np.histogram(x, **theirs, density=density, weights=weights if weighted else None)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_gradients_of_weighted_histograms(backend):
    """Each weight has the gradient of its bin; those outside have none."""
    x, weights = np.float32([0, 0.5, 1, 3, np.nan]), np.float32([1, 2, 3, 4, 5])
    shapes = {"input": [5], "weights": [5]}
    compiled = ml.compile(weighted(2, 0, 1), backend, shapes=shapes, trainable_keys=["weights"])
    outputs, gradients = compiled.evaluate(
        {"weights": backend.array(weights)},
        {"input": backend.array(x)},
        output_gradients={"output": backend.array(np.float32([10, 20]))},
    )
    np.testing.assert_array_equal(backend.to_numpy(outputs["output"]), [1, 5])
    np.testing.assert_array_equal(backend.to_numpy(gradients["weights"]), [10, 20, 20, 0, 0])


def test_settings_of_statistics_are_checked():
    for make, message in (
        (lambda: ml.Quantile([]), "`q` of `Quantile` is an empty list"),
        (lambda: ml.Quantile([0.5, 2]), r"`q\[1\]` of `Quantile` is out of range"),
        (lambda: ml.Histogram([1]), "`bins` of `Histogram` are no edges"),
        (lambda: ml.Histogram([1, 1]), "`bins` of `Histogram` are no edges"),
        (lambda: ml.Histogram([0, 1], min=0), "`min` of `Histogram` has no meaning"),
        (lambda: ml.Histogram(0), "`bins` of `Histogram` is out of range"),
    ):
        with pytest.raises(ml.MithrilError, match=message):
            make()
