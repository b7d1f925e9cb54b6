"""NaN among the elements of an input is in the results where NumPy and PyTorch have it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import mithril as ml

RNG = np.random.default_rng(0)


def spoiled(*shape: int) -> Any:
    """Random numbers, two of which are NaN."""
    x = RNG.standard_normal(shape).astype(np.float32)
    x.reshape(-1)[[1, -2]] = np.nan
    return x


VECTOR = np.float32([3, np.nan, -1, np.nan, 2, -np.inf, np.inf])
FINITE = VECTOR[:5]
BACKWARDS = VECTOR[::-1].copy()
MATRIX = spoiled(4, 6)
SIGNAL, IMAGE, VOLUME = spoiled(2, 3, 12), spoiled(2, 3, 8, 8), spoiled(1, 2, 6, 6, 6)
ROWS = np.float32([[1, 2], [np.nan, 3], [4, np.nan], [5, 6], [7, 8], [np.nan, 1]])
SEGMENTS = np.int32([0, 1, 0, 2, 1, 0])
BASE = np.float32([[np.nan, 1, 2], [3, 4, 5]])
PLACES = np.int32([[0, 1, 1], [1, 1, 0], [0, 0, 0]])
UPDATES = np.float32([[1, np.nan, 9], [-1, 7, np.nan], [2, 0, -9]])


def by_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: function(*map(torch.tensor, arrays)).numpy()


def of_segments(reduce: Any) -> Callable[..., Any]:
    return lambda x, places: np.stack([reduce(x[places == i], axis=0) for i in range(3)])


def scattered(reduce: str) -> Callable[..., Any]:
    return by_torch(lambda x, i, u: torch.scatter_reduce(x, 0, i.long(), u, reduce))


# The block, its inputs, and NumPy's or PyTorch's function.
CASES: dict[str, tuple[Any, list[Any], Callable[..., Any]]] = {
    "max": (ml.Max(axis=1), [MATRIX], lambda x: np.max(x, 1)),
    "max of columns": (ml.Max(axis=0), [MATRIX], lambda x: np.max(x, 0)),
    "max of all": (ml.Max(), [MATRIX], np.max),
    "max of one": (ml.Max(axis=1), [MATRIX[:, 1:2]], lambda x: np.max(x, 1)),
    "min": (ml.Min(axis=1), [MATRIX], lambda x: np.min(x, 1)),
    "sum": (ml.Sum(axis=1), [MATRIX], lambda x: np.sum(x, 1)),
    "mean": (ml.Mean(axis=1), [MATRIX], lambda x: np.mean(x, 1)),
    "prod": (ml.Prod(axis=1), [MATRIX], lambda x: np.prod(x, 1)),
    "variance": (ml.Variance(axis=1), [MATRIX], lambda x: np.var(x, 1)),
    "std": (ml.Std(axis=1), [MATRIX], lambda x: np.std(x, 1)),
    "norm": (ml.Norm(axis=1), [MATRIX], lambda x: np.linalg.norm(x, axis=1)),
    "maximum norm": (
        ml.Norm(p=np.inf, axis=1),
        [MATRIX],
        lambda x: np.linalg.norm(x, np.inf, axis=1),
    ),
    "logsumexp": (ml.LogSumExp(axis=1), [MATRIX], by_torch(lambda x: torch.logsumexp(x, 1))),
    "logsumexp of one": (
        ml.LogSumExp(axis=1),
        [MATRIX[:, 1:2]],
        by_torch(lambda x: torch.logsumexp(x, 1)),
    ),
    "argmax": (ml.ArgMax(axis=1), [MATRIX], lambda x: np.argmax(x, 1)),
    "argmin": (ml.ArgMin(axis=1), [MATRIX], lambda x: np.argmin(x, 1)),
    "cumsum": (ml.Cumsum(1), [MATRIX], lambda x: np.cumsum(x, 1)),
    "cumprod": (ml.Cumprod(1), [MATRIX], lambda x: np.cumprod(x, 1)),
    "sort": (ml.Sort(axis=1), [MATRIX], lambda x: np.sort(x, 1)),
    "sort of infinities": (ml.Sort(axis=0), [VECTOR], np.sort),
    "sort downwards": (
        ml.Sort(axis=0, descending=True),
        [VECTOR],
        lambda x: np.flip(np.sort(x)),
    ),
    "argsort": (ml.ArgSort(axis=1), [MATRIX], lambda x: np.argsort(x, 1, kind="stable")),
    "argsort downwards": (
        ml.ArgSort(axis=1, descending=True),
        [MATRIX],
        by_torch(lambda x: torch.sort(x, dim=1, descending=True, stable=True)[1]),
    ),
    "top k": (ml.TopK(3), [MATRIX], by_torch(lambda x: torch.topk(x, 3)[0])),
    "median": (ml.Median(axis=1), [MATRIX], by_torch(lambda x: torch.median(x, 1)[0])),
    "quantile": (ml.Quantile(0.3, axis=1), [MATRIX], lambda x: np.quantile(x, 0.3, axis=1)),
    "maximum": (ml.Maximum(), [VECTOR, BACKWARDS], np.maximum),
    "minimum": (ml.Minimum(), [VECTOR, BACKWARDS], np.minimum),
    "greater": (ml.Greater(), [VECTOR, BACKWARDS], np.greater),
    "greater or equal": (ml.GreaterEqual(), [VECTOR, BACKWARDS], np.greater_equal),
    "less": (ml.Less(), [VECTOR, BACKWARDS], np.less),
    "less or equal": (ml.LessEqual(), [VECTOR, BACKWARDS], np.less_equal),
    "equal": (ml.Equal(), [VECTOR, VECTOR], np.equal),
    "not equal": (ml.NotEqual(), [VECTOR, VECTOR], np.not_equal),
    "clamp": (ml.Clamp(min=-1.0, max=1.0), [VECTOR], lambda x: np.clip(x, -1, 1)),
    "clamp below": (ml.Clamp(min=-1.0), [VECTOR], lambda x: np.maximum(x, -1)),
    "clamp above": (ml.Clamp(max=1.0), [VECTOR], lambda x: np.minimum(x, 1)),
    "sign": (ml.Sign(), [VECTOR], np.sign),
    "relu": (ml.Relu(), [VECTOR], by_torch(F.relu)),
    "relu6": (ml.Relu6(), [VECTOR], by_torch(F.relu6)),
    "leaky relu": (ml.LeakyRelu(), [VECTOR], by_torch(F.leaky_relu)),
    "elu": (ml.Elu(), [VECTOR], by_torch(F.elu)),
    "selu": (ml.Selu(), [VECTOR], by_torch(F.selu)),
    "celu": (ml.Celu(), [VECTOR], by_torch(F.celu)),
    "hardtanh": (ml.Hardtanh(), [VECTOR], by_torch(F.hardtanh)),
    "hard sigmoid": (ml.HardSigmoid(), [VECTOR], by_torch(F.hardsigmoid)),
    "hardshrink": (ml.Hardshrink(), [VECTOR], by_torch(F.hardshrink)),
    "softshrink": (ml.Softshrink(), [VECTOR], by_torch(F.softshrink)),
    "sigmoid": (ml.Sigmoid(), [VECTOR], by_torch(torch.sigmoid)),
    "log sigmoid": (ml.LogSigmoid(), [VECTOR], by_torch(F.logsigmoid)),
    "softplus": (ml.Softplus(), [VECTOR], by_torch(F.softplus)),
    "tanh": (ml.Tanh(), [VECTOR], np.tanh),
    "erf": (ml.Erf(), [VECTOR], by_torch(torch.erf)),
    "silu": (ml.Silu(), [FINITE], by_torch(F.silu)),
    "mish": (ml.Mish(), [FINITE], by_torch(F.mish)),
    "gelu": (ml.Gelu(), [FINITE], by_torch(F.gelu)),
    "softmax": (ml.Softmax(), [MATRIX], by_torch(lambda x: torch.softmax(x, -1))),
    "softmin": (ml.Softmin(), [MATRIX], by_torch(lambda x: F.softmin(x, -1))),
    "log softmax": (ml.LogSoftmax(), [MATRIX], by_torch(lambda x: torch.log_softmax(x, -1))),
    "max pool 1d": (ml.MaxPool1d(3), [SIGNAL], by_torch(lambda x: F.max_pool1d(x, 3))),
    "padded max pool 1d": (
        ml.MaxPool1d(3, stride=1, padding=1),
        [SIGNAL],
        by_torch(lambda x: F.max_pool1d(x, 3, 1, 1)),
    ),
    "max pool 2d": (ml.MaxPool2d(2), [IMAGE], by_torch(lambda x: F.max_pool2d(x, 2))),
    "padded max pool 2d": (
        ml.MaxPool2d(3, stride=2, padding=1),
        [IMAGE],
        by_torch(lambda x: F.max_pool2d(x, 3, 2, 1)),
    ),
    "dilated max pool 2d": (
        ml.MaxPool2d(2, stride=1, dilation=2),
        [IMAGE],
        by_torch(lambda x: F.max_pool2d(x, 2, 1, 0, 2)),
    ),
    "max pool 3d": (ml.MaxPool3d(2), [VOLUME], by_torch(lambda x: F.max_pool3d(x, 2))),
    "global max pool": (ml.GlobalMaxPool(), [IMAGE], lambda x: np.max(x, (2, 3))),
    "adaptive max pool": (
        ml.AdaptiveMaxPool((3, 3)),
        [IMAGE],
        by_torch(lambda x: F.adaptive_max_pool2d(x, 3)),
    ),
    "average pool": (ml.AvgPool2d(2), [IMAGE], by_torch(lambda x: F.avg_pool2d(x, 2))),
    "global average pool": (ml.GlobalAvgPool(), [IMAGE], lambda x: np.mean(x, (2, 3))),
    "power average pool": (
        ml.LpPool(2, (2, 2)),
        [np.abs(IMAGE)],
        by_torch(lambda x: F.lp_pool2d(x, 2, 2)),
    ),
    "segment sum": (ml.SegmentSum(3), [ROWS, SEGMENTS], of_segments(np.sum)),
    "segment mean": (ml.SegmentMean(3), [ROWS, SEGMENTS], of_segments(np.mean)),
    "segment max": (ml.SegmentMax(3), [ROWS, SEGMENTS], of_segments(np.max)),
    **{
        f"scatter {reduce}": (
            ml.ScatterReduce(axis=0, reduce=reduce),
            [BASE, PLACES, UPDATES],
            scattered(reduce),
        )
        for reduce in ("sum", "prod", "mean", "amax", "amin")
    },
}


def result(block: Any, arrays: list[Any], backend: Any) -> Any:
    """The first output of a block."""
    model, names = ml.Model(), list(block.inputs)
    terminals = {
        n: ml.IOKey(n, dtype=a.dtype.name) if a.dtype.kind == "i" else n
        for n, a in zip(names, arrays, strict=True)
    }
    model |= block(**terminals, **{n: n for n in block.outputs})
    shapes = {n: list(a.shape) for n, a in zip(names, arrays, strict=True)}
    compiled = ml.compile(model, backend, shapes=shapes, inference=True)
    given = {
        n: backend.array(a, *([ml.int32] if a.dtype.kind == "i" else []))
        for n, a in zip(names, arrays, strict=True)
    }
    output = compiled.evaluate({}, given)[block.outputs[0]]
    return np.asarray(backend.to_numpy(output))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_nan_stays(name, backend):
    block, arrays, function = CASES[name]
    got = result(block, arrays, backend)
    want = np.asarray(function(*arrays))
    assert got.shape == want.shape
    if got.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_extremes_of_scattered_elements_of_each_dtype(reduce, dtype, backend):
    """Infinities are not lost, and NaN of either sign stays."""
    own = type(backend)(dtype=dtype)
    x = np.float32([[-np.inf, 1, 1, 5, -2, np.inf, 0, -1]])
    updates = np.float32(
        [
            [-np.inf, np.nan, -np.nan, 7, -3, 1, -0.0, 0.5],
            [-3, 2, 2, -7, -1, -np.inf, 0, -0.5],
        ]
    )
    arrays = [x, np.zeros(updates.shape, np.int32), updates]
    got = result(ml.ScatterReduce(axis=0, reduce=reduce), arrays, own)
    np.testing.assert_array_equal(got.astype("float32"), scattered(reduce)(*arrays))
