"""The reverse of max pooling, and pooling at random positions, against PyTorch: results, indices
and gradients on every backend, with fixed and with open dims."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from comparing import near
from conftest import CLASSES

import mithril as ml
from mithril.errors import MithrilError

NAMES = "dhw"
KEY = np.array([1, 2], np.uint32)


def numbers(*shape: int, seed: int = 0) -> Any:
    """Distinct numbers, so that the gradient of a maximum is unique."""
    count = int(np.prod(shape))
    order = np.random.default_rng(seed).permutation(count)
    return (order / max(count, 1) * 4 - 2).reshape(shape).astype(np.float32)


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize(
    ("shape", "settings", "sizes"),
    [
        ((2, 3, 8), {"kernel_size": 2}, None),
        ((2, 3, 9), {"kernel_size": 3, "stride": 2, "padding": 1}, (10,)),
        ((2, 3, 6), {"kernel_size": 2}, (7,)),
        ((3, 6), {"kernel_size": 3}, None),
        ((2, 3, 1), {"kernel_size": 1}, None),
        ((2, 3, 4, 6), {"kernel_size": 2}, None),
        ((3, 4, 6), {"kernel_size": (2, 3)}, (5, 6)),
        ((2, 3, 4, 6, 2), {"kernel_size": 2}, None),
        ((2, 3, 5, 6, 7), {"kernel_size": (1, 2, 3), "stride": (1, 2, 2)}, (5, 6, 8)),
    ],
)
def test_unpooling(make, shape, settings, sizes):
    """At the indices of maxima, which are different elements of the output."""
    axes = len(settings["kernel_size"]) if isinstance(settings["kernel_size"], tuple) else None
    axes = axes or (len(shape) - 2 if len(shape) > 2 else 1)
    backend, pool = make(), getattr(F, f"max_pool{axes}d")
    highest, places = pool(torch.tensor(numbers(*shape)), **settings, return_indices=True)
    # Windows that overlap have equal maxima: PyTorch's gradient counts the element once.
    overlaps = settings.get("stride") is not None
    leaf = highest.clone().requires_grad_(True)
    unpool = getattr(F, f"max_unpool{axes}d")
    want = unpool(leaf, places, **settings, output_size=sizes)
    seed = numbers(*want.shape, seed=5)
    want.backward(torch.tensor(seed))
    block = getattr(ml, f"MaxUnpool{axes}d")(**settings, output_size=sizes)
    own = {"input": highest.numpy(), "indices": places.numpy()}
    dims = ["a", "b", "c", "d", "e"][: len(shape) - axes] + ["x", "y", "z"][:axes]
    for names in (list(highest.shape), dims):
        shapes = {"input": names, "indices": names}
        compiled = ml.compile(block, backend, shapes=shapes, trainable_keys=["input"])
        outputs, gradients = compiled.evaluate(
            {"input": backend.array(own["input"])},
            {"indices": backend.array(own["indices"])},
            output_gradients={"output": backend.array(seed)},
        )
        near(backend.to_numpy(outputs["output"]), want, 1e-6)
        if not overlaps:
            near(backend.to_numpy(gradients["input"]), leaf.grad, 1e-6)


FRACTIONAL = [
    ((2, 3, 9, 10), {"kernel_size": 2, "output_size": (5, 6)}),
    ((2, 3, 9, 10), {"kernel_size": (3, 2), "output_size": 4}),
    ((2, 3, 9, 10), {"kernel_size": 2, "output_ratio": 0.5}),
    ((1, 1, 5, 5), {"kernel_size": 5, "output_size": 1}),
    ((1, 2, 4, 4), {"kernel_size": 1, "output_size": 3}),
    ((0, 2, 4, 4), {"kernel_size": 2, "output_size": 3}),
    ((2, 0, 4, 4), {"kernel_size": 2, "output_size": 3}),
    ((2, 3, 7, 8, 9), {"kernel_size": 2, "output_size": (4, 5, 6)}),
    ((2, 3, 7, 8, 9), {"kernel_size": (2, 3, 1), "output_ratio": 0.6}),
]


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize(("shape", "settings"), FRACTIONAL)
def test_fractional_pooling_at_given_samples(make, shape, settings):
    axes, backend = len(shape) - 2, make()
    x = numbers(*shape)
    samples = np.random.default_rng(3).random((*shape[:2], axes), np.float32)
    leaf = torch.tensor(x, requires_grad=True)
    pool = getattr(F, f"fractional_max_pool{axes}d")
    theirs = dict(settings)
    if "output_ratio" in theirs:
        theirs["output_ratio"] = (theirs["output_ratio"],) * axes
    if 0 in shape:
        want = torch.zeros((*shape[:2], 3, 3)), torch.zeros((*shape[:2], 3, 3), dtype=torch.int64)
    else:
        want = pool(leaf, **theirs, _random_samples=torch.tensor(samples), return_indices=True)
    seed = numbers(*want[0].shape, seed=5)
    if 0 not in shape:
        want[0].backward(torch.tensor(seed))
    block = getattr(ml, f"FractionalMaxPool{axes}d")(**settings, draw=False, return_indices=True)
    for names in (list(shape), ["n", "c", *NAMES[:axes]]):
        shapes = {"input": names, "samples": [*names[:2], axes]}
        compiled = ml.compile(block, backend, shapes=shapes, trainable_keys=["input"])
        outputs, gradients = compiled.evaluate(
            {"input": backend.array(x)},
            {"samples": backend.array(samples)},
            output_gradients={"output": backend.array(seed)},
        )
        near(backend.to_numpy(outputs["output"]), want[0], 0)
        indices = backend.to_numpy(outputs["indices"])
        np.testing.assert_array_equal(indices, want[1].numpy())
        if 0 not in shape:
            near(backend.to_numpy(gradients["input"]), leaf.grad, 1e-6)


@pytest.mark.parametrize("make", CLASSES)
def test_fractional_pooling_at_random(make):
    """Windows are distinct, cover both ends, and differ between channels."""
    backend = make()
    x = np.tile(np.arange(20, dtype=np.float32), (3, 4, 20, 1))
    block = ml.FractionalMaxPool2d(kernel_size=1, output_size=(20, 12))
    compiled = ml.compile(block, backend, shapes={"input": list(x.shape)})
    got = compiled.evaluate({}, {"input": backend.array(x), "key": KEY})["output"]
    rows = np.asarray(backend.to_numpy(got))[:, :, 0]
    assert (np.diff(rows, axis=-1) >= 1).all()
    assert (np.diff(rows, axis=-1) <= 2).all()
    assert (rows[..., 0] == 0).all()
    assert (rows[..., -1] == 19).all()
    assert len(np.unique(rows.reshape(12, 12), axis=0)) > 1
    again = compiled.evaluate({}, {"input": backend.array(x), "key": KEY})["output"]
    np.testing.assert_array_equal(backend.to_numpy(again), backend.to_numpy(got))


def test_equal_and_undefined_numbers():
    """The first of equal elements has the gradient, and NaN is the maximum, as in PyTorch."""
    x = np.ones((1, 1, 4, 4), np.float32)
    x[0, 0, 1, 2] = np.nan
    samples = np.full((1, 1, 2), 0.5, np.float32)
    leaf = torch.tensor(x, requires_grad=True)
    settings = {"kernel_size": 2, "output_size": 3}
    want = F.fractional_max_pool2d(leaf, **settings, _random_samples=torch.tensor(samples))
    want.sum().backward()
    block = ml.FractionalMaxPool2d(**settings, draw=False)
    for make in CLASSES:
        backend = make()
        shapes = {"input": [1, 1, 4, 4], "samples": [1, 1, 2]}
        compiled = ml.compile(block, backend, shapes=shapes, trainable_keys=["input"])
        outputs, gradients = compiled.evaluate(
            {"input": backend.array(x)},
            {"samples": backend.array(samples)},
            output_gradients={"output": backend.array(np.ones((1, 1, 3, 3), np.float32))},
        )
        np.testing.assert_array_equal(backend.to_numpy(outputs["output"]), want.detach())
        np.testing.assert_array_equal(backend.to_numpy(gradients["input"]), leaf.grad)


def message(block: Any, **shapes: Any) -> str:
    with pytest.raises(MithrilError) as caught:
        ml.compile(block, ml.NumpyBackend(), shapes=shapes)
    return str(caught.value)


def test_mistakes_are_explained():
    text = message(ml.MaxUnpool1d(kernel_size=2), input=[2, 3, 4], indices=[2, 3, 5])
    assert "`indices` does not have the shape of `input`" in text
    pool = ml.FractionalMaxPool2d(kernel_size=3, output_size=3)
    text = message(pool, input=[2, 3, 4, 9])
    assert "an axis has too few elements for its windows" in text
    assert "4 elements for 3 windows of 3" in text
    text = message(pool, input=[2, 3, 4])
    assert "(batch, channels, height, width)" in text
    pool = ml.FractionalMaxPool2d(kernel_size=2, output_size=3, draw=False)
    text = message(pool, input=[2, 3, 9, 9], samples=[2, 3, 3])
    assert "`samples` has the wrong shape" in text
    assert "[2 x 3 x 2]: (batch, channels, pooled axes)" in text
    for settings, part in [
        ({}, "neither `output_size` nor `output_ratio`"),
        ({"output_size": 3, "output_ratio": 0.5}, "both"),
        ({"output_ratio": 1.0}, "`output_ratio` must be between 0 and 1"),
        ({"output_size": (1, 2, 3)}, "`output_size` must be given for 2 axes"),
    ]:
        with pytest.raises(MithrilError) as caught:
            ml.FractionalMaxPool2d(kernel_size=2, **settings)
        assert part in str(caught.value)
