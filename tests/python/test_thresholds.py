"""Activations with thresholds and random slopes, similarities, and dropout that keeps the moments:
values, and what PyTorch gives at the bounds."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import CLASSES

import mithril as ml
from mithril.errors import MithrilError

RNG = np.random.default_rng(4)
# The bounds themselves, both sides, infinities and NaN.
SPECIAL = [-7.0, -1.0, -0.5, -0.25, -0.0, 0.0, 0.25, 0.5, 1.0, 6.0, 7.0, 1e30]
SPECIAL += [np.inf, -np.inf, np.nan]


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize(
    ("block", "function"),
    [
        (ml.Relu6(), F.relu6),
        (ml.Hardtanh(), F.hardtanh),
        (ml.Hardtanh(min=-0.5, max=6.0), lambda x: F.hardtanh(x, -0.5, 6.0)),
        (ml.Hardshrink(), F.hardshrink),
        (ml.Hardshrink(lambd=0.0), lambda x: F.hardshrink(x, 0.0)),
        (ml.Softshrink(), F.softshrink),
        (ml.Threshold(threshold=0.5, value=3.0), lambda x: F.threshold(x, 0.5, 3.0)),
        (ml.Celu(alpha=2.0), lambda x: F.celu(x, 2.0)),
        (ml.LogSigmoid(), F.logsigmoid),
    ],
    ids=[
        "relu6",
        "hardtanh",
        "other hardtanh",
        "hardshrink",
        "hardshrink at 0",
        "softshrink",
        "threshold",
        "celu",
        "log_sigmoid",
    ],
)
def test_bounds_are_those_of_torch(make, block, function):
    """Values and gradients, on the bounds as well."""
    x = np.array(SPECIAL, np.float32)
    leaf = torch.tensor(x, requires_grad=True)
    want = function(leaf)
    want.sum().backward()
    backend = make()
    compiled = ml.compile(block, backend, shapes={"input": [len(x)]}, trainable_keys=["input"])
    ones = {"output": backend.array(np.ones_like(x))}
    params = {"input": backend.array(x)}
    outputs, gradients = compiled.evaluate(params, {}, output_gradients=ones)
    got = backend.to_numpy(outputs["output"])
    np.testing.assert_allclose(got, want.detach(), rtol=1e-5, atol=1e-6)
    finite = np.isfinite(x)
    got = backend.to_numpy(gradients["input"])[finite]
    np.testing.assert_allclose(got, leaf.grad[finite], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", CLASSES)
def test_random_slopes(make):
    backend = make()
    x = np.full(4000, -2.0, np.float32)
    compiled = ml.compile(ml.RRelu(), backend, shapes={"input": [4000]})
    key = np.array([1, 2], np.uint32)
    slopes = backend.to_numpy(
        compiled.evaluate({}, {"input": backend.array(x), "key": key})["output"]
    )
    slopes = slopes / -2
    assert slopes.min() >= 1 / 8
    assert slopes.max() <= 1 / 3
    assert abs(slopes.mean() - 11 / 48) < 5 * (1 / 3 - 1 / 8) / np.sqrt(12 * 4000)
    still = ml.compile(ml.RRelu(), backend, shapes={"input": [4000]}, inference=True)
    got = backend.to_numpy(still.evaluate({}, {"input": backend.array(x)})["output"])
    np.testing.assert_allclose(got, F.rrelu(torch.tensor(x), training=False), rtol=1e-6)


@pytest.mark.parametrize("make", CLASSES)
def test_draws_of_categories(make):
    """One-hot vectors have the probabilities of the softmax, and the gradient of the soft ones."""
    backend = make()
    logits = np.tile(np.log(np.float32([0.1, 0.2, 0.7])), (4000, 1))
    key = np.array([1, 2], np.uint32)
    found = {}
    for hard in (True, False):
        model = ml.GumbelSoftmax(tau=0.5, hard=hard)
        compiled = ml.compile(model, backend, shapes={"input": [4000, 3]}, trainable_keys=["input"])
        seed = {"output": backend.array(logits)}
        outputs, gradients = compiled.evaluate(
            {"input": backend.array(logits)}, {"key": key}, output_gradients=seed
        )
        found[hard] = backend.to_numpy(outputs["output"]), backend.to_numpy(gradients["input"])
    hard, soft = found[True][0], found[False][0]
    np.testing.assert_allclose(hard.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(hard.argmax(1), soft.argmax(1))
    np.testing.assert_allclose(np.sort(hard)[:, :2], 0, atol=1e-6)
    np.testing.assert_allclose(hard.mean(0), [0.1, 0.2, 0.7], atol=0.04)
    np.testing.assert_allclose(found[True][1], found[False][1], rtol=1e-5, atol=1e-6)
    assert np.isfinite(soft).all()


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("block", [ml.AlphaDropout, ml.FeatureAlphaDropout])
def test_dropout_that_keeps_mean_and_variance(make, block):
    backend = make()
    x = numbers(200, 60, 4)
    compiled = ml.compile(block(rate=0.3), backend, shapes={"input": [200, 60, 4]})
    key = np.array([1, 2], np.uint32)
    y = backend.to_numpy(compiled.evaluate({}, {"input": backend.array(x), "key": key})["output"])
    assert abs(y.mean()) < 0.06
    assert abs(y.var() - 1) < 0.06
    scale = (0.7 * (1 + 0.3 * 1.7580993408473766**2)) ** -0.5
    lowest = np.float32(-1.7580993408473766 * scale * (1 - 0.3))
    dropped = np.isclose(y, lowest, atol=1e-6)
    assert abs(dropped.mean() - 0.3) < 0.03
    if block is ml.FeatureAlphaDropout:
        assert (dropped == dropped[:, :, :1]).mean() > 0.999
    still = ml.compile(block(rate=0.3), backend, shapes={"input": [200, 60, 4]}, inference=True)
    same = still.evaluate({}, {"input": backend.array(x)})["output"]
    np.testing.assert_array_equal(backend.to_numpy(same), x)


def compared(make: Any, block: Any, arrays: dict[str, Any], function: Any, **options: Any) -> None:
    backend = make()
    leaves = {n: torch.tensor(a, requires_grad=a.dtype.kind == "f") for n, a in arrays.items()}
    want = function(*leaves.values())
    seed = numbers(*want.shape)
    want.backward(torch.tensor(seed))
    floats = [n for n, a in arrays.items() if a.dtype.kind == "f"]
    compiled = ml.compile(block, backend, trainable_keys=floats, **options)
    params = {n: backend.array(arrays[n]) for n in floats}
    rest = {n: backend.array(a) for n, a in arrays.items() if n not in floats}
    seeds = {"output": backend.array(seed)}
    outputs, gradients = compiled.evaluate(params, rest, output_gradients=seeds)
    got = backend.to_numpy(outputs["output"])
    np.testing.assert_allclose(got, want.detach(), rtol=1e-5, atol=1e-5)
    for name in floats:
        got = backend.to_numpy(gradients[name])
        np.testing.assert_allclose(got, leaves[name].grad, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("make", CLASSES)
def test_similarities_of_vectors(make):
    pair = {"left": numbers(4, 3, 5), "right": numbers(4, 3, 5)}
    open_dims = {"shapes": {"left": ["b", "n", 5], "right": ["b", "n", 5]}}
    for axis in (0, 1, -1):
        function = lambda x, y, axis=axis: F.cosine_similarity(x, y, axis)  # noqa: E731
        compared(make, ml.CosineSimilarity(axis=axis), pair, function)
        compared(make, ml.CosineSimilarity(axis=axis), pair, function, **open_dims)
    # The gradient of the left side is 0, but for rounding errors, which grow as the side vanishes.
    left = numbers(4, 1, 5)
    mixed = {"left": left + 0.5 * np.sign(left), "right": numbers(3, 5)}
    compared(make, ml.CosineSimilarity(), mixed, F.cosine_similarity)
    zero = {"left": np.zeros((2, 3), np.float32), "right": numbers(2, 3)}
    backend = make()
    inputs = {n: backend.array(a) for n, a in zero.items()}
    got = ml.compile(ml.CosineSimilarity(), backend).evaluate({}, inputs)["output"]
    np.testing.assert_array_equal(backend.to_numpy(got), 0)
    for p in (1.0, 2.0, 3.0, np.inf):
        function = lambda x, y, p=p: F.pairwise_distance(x, y, p)  # noqa: E731
        compared(make, ml.PairwiseDistance(p=p), pair, function)
        function = lambda x, p=p: F.normalize(x, p, 1)  # noqa: E731
        compared(make, ml.Normalize(p=p), {"input": pair["left"]}, function)


@pytest.mark.parametrize("make", CLASSES)
def test_margins_of_classes(make):
    scores = numbers(5, 4)
    labels = RNG.integers(0, 4, 5).astype(np.int32)
    dtypes = {"target": ml.int32}
    for p in (1.0, 2.0):
        for margin in (0.5, 1.0):
            block = ml.MultiMargin(p=p, margin=margin)
            function = lambda x, y, p=p, m=margin: F.multi_margin_loss(  # noqa: E731
                x, y.long(), int(p), m, reduction="none"
            )
            compared(make, block, {"input": scores, "target": labels}, function, dtypes=dtypes)
    several = [[3, 0, -1, 1], [-1, 2, 1, 0], [0, 1, 2, 3], [2, -1, -1, -1], [1, 1, -1, -1]]
    function = lambda x, y: F.multilabel_margin_loss(x, y.long(), reduction="none")  # noqa: E731
    arrays = {"input": scores, "target": np.array(several, np.int32)}
    compared(make, ml.MultiLabelMargin(), arrays, function, dtypes=dtypes)


def message(build: Any, **shapes: Any) -> str:
    with pytest.raises(MithrilError) as caught:
        ml.compile(build(), ml.NumpyBackend(), shapes=shapes)
    return str(caught.value)


def test_mistakes_are_explained():
    text = message(ml.Glu, input=[3, 5])
    assert "axis -1 does not have two halves" in text
    assert "an even size" in text
    text = message(lambda: ml.ChannelShuffle(groups=3), input=[2, 4, 5])
    assert "channels do not divide into 3 groups" in text
    text = message(lambda: ml.Unflatten(axis=1, sizes=[2, 3]), input=[2, 4])
    assert "`sizes` do not make up the axis" in text
    assert "an axis of 4, and sizes [2, 3]" in text
    text = message(lambda: ml.Unflatten(axis=1, sizes=[-1, -1]), input=[2, 4])
    assert "one of which may be -1" in text
    text = message(lambda: ml.PRelu(per_channel=True), input=[3])
    assert "`input` has no axis of channels" in text
    text = message(ml.Dropout3d, input=[2, 3, 4])
    assert "(batch, channels, depth, height, width)" in text
    text = message(ml.MultiMargin, input=[], target=[])
    assert "`input` has no axis of classes" in text
