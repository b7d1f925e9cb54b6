"""Images and volumes read at the positions of a grid, and affine grids, against PyTorch: results
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

OPEN = {"input": ["n", "c", "h", "w"], "grid": ["n", "i", "j", 2]}
OPEN_VOLUME = {"input": ["n", "c", "d", "h", "w"], "grid": ["n", "k", "i", "j", 3]}


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def positions(*shape: int, reach: float = 1.3) -> Any:
    return np.random.default_rng(2).uniform(-reach, reach, shape).astype(np.float32)


def check(backend: Any, block: Any, x: Any, grid: Any, options: Any, *, shapes: Any = None) -> None:
    tolerance = 1e-5
    images, at = torch.tensor(x, requires_grad=True), torch.tensor(grid, requires_grad=True)
    want = F.grid_sample(images, at, **options)
    seed = numbers(*want.shape, seed=5)
    want.backward(torch.tensor(seed))
    shapes = shapes or {"input": list(x.shape), "grid": list(grid.shape)}
    compiled = ml.compile(block, backend, shapes=shapes, trainable_keys=["input", "grid"])
    outputs, gradients = compiled.evaluate(
        {"input": backend.array(x), "grid": backend.array(grid)},
        {},
        output_gradients={"output": backend.array(seed)},
    )
    near(backend.to_numpy(outputs["output"]), want, tolerance)
    near(backend.to_numpy(gradients["input"]), images.grad, tolerance)
    near(backend.to_numpy(gradients["grid"]), at.grad, 10 * tolerance)


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("border", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_images(make, mode, border, align):
    x, grid, backend = numbers(2, 3, 5, 6, seed=1), positions(2, 4, 7, 2), make()
    # PyTorch reflects numbers of this size with rounding errors of whole pixels.
    far = 1e30 if border != "reflection" else 7.3
    grid[0, 0, 0] = far
    grid[1, 2] *= 3
    options = {"mode": mode, "padding_mode": border, "align_corners": align}
    block = ml.GridSample(**options)
    check(backend, block, x, grid, options)
    check(backend, block, x, grid, options, shapes=OPEN)


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("border", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_volumes(make, mode, border, align):
    x, grid, backend = numbers(2, 3, 4, 5, 6, seed=1), positions(2, 3, 2, 5, 3), make()
    options = {"mode": mode, "padding_mode": border, "align_corners": align}
    block = ml.GridSample(**options)
    check(backend, block, x, grid, options)
    check(backend, block, x, grid, options, shapes=OPEN_VOLUME)


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("border", ["zeros", "border", "reflection"])
def test_single_pixels_and_no_images(make, mode, border):
    backend = make()
    for align in (False, True):
        options = {"mode": mode, "padding_mode": border, "align_corners": align}
        block = ml.GridSample(**options)
        for shape in ((2, 3, 1, 1), (2, 3, 1, 4), (2, 0, 3, 4), (2, 1, 3, 1)):
            grid = positions(2, 4, 3, 2)
            if shape[2] > 1 or shape[3] > 1:
                check(backend, block, numbers(*shape, seed=1), grid, options, shapes=OPEN)
            check(backend, block, numbers(*shape, seed=1), grid, options)
        if mode != "bicubic":
            check(backend, block, numbers(2, 3, 1, 2, 1), positions(2, 1, 4, 3, 3), options)
        for count in (0, 2):
            x, grid = numbers(count, 3, 5, 6), positions(count, 0 if count else 4, 7, 2)
            compiled = ml.compile(block, backend, shapes=OPEN)
            inputs = {"input": backend.array(x), "grid": backend.array(grid)}
            got = backend.to_numpy(compiled.evaluate({}, inputs)["output"])
            assert got.shape == (count, 3, *grid.shape[1:3])


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("border", ["border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_places_at_the_edges_have_no_gradient(make, border, align):
    """The first and the last center of pixels, where PyTorch gives the gradient 0 as well."""
    x, backend = numbers(1, 2, 4, 4, seed=1), make()
    inner = 1.0 if align else 0.75
    ends = np.float32([[[[-inner, 0.1], [inner, 0.2], [0.3, -inner], [0.1, inner], [0, 0]]]])
    options = {"mode": "bilinear", "padding_mode": border, "align_corners": align}
    check(backend, ml.GridSample(**options), x, ends, options)


def test_halves_are_computed_in_single_precision():
    x, grid = numbers(2, 3, 5, 6, seed=1), positions(2, 4, 7, 2)
    for mode in ("bilinear", "bicubic"):
        backend = ml.CpuBackend(dtype=ml.float16)
        options = {"mode": mode, "padding_mode": "reflection", "align_corners": False}
        compiled = ml.compile(ml.GridSample(**options), backend, shapes=OPEN)
        halves = {"input": x.astype(np.float16), "grid": grid.astype(np.float16)}
        got = compiled.evaluate({}, {n: backend.array(a) for n, a in halves.items()})["output"]
        own = [torch.tensor(a.astype(np.float32)) for a in halves.values()]
        want = F.grid_sample(*own, **options).half()
        np.testing.assert_allclose(backend.to_numpy(got), want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid")
@pytest.mark.parametrize("size", [(4, 5), (1, 3), (1, 1), (2, 3, 4), (1, 1, 2)])
def test_affine_grids(make, align, size):
    backend, axes = make(), len(size)
    theta = numbers(3, axes, axes + 1, seed=4)
    leaf = torch.tensor(theta, requires_grad=True)
    want = F.affine_grid(leaf, [3, 2, *size], align_corners=align)
    seed = numbers(*want.shape, seed=5)
    want.backward(torch.tensor(seed))
    block = ml.AffineGrid(size=size, align_corners=align)
    for dims in ([3, axes, axes + 1], ["n", axes, axes + 1], ["n", "i", "j"]):
        compiled = ml.compile(block, backend, shapes={"input": dims}, trainable_keys=["input"])
        outputs, gradients = compiled.evaluate(
            {"input": backend.array(theta)}, {}, output_gradients={"output": backend.array(seed)}
        )
        near(backend.to_numpy(outputs["output"]), want, 1e-6)
        near(backend.to_numpy(gradients["input"]), leaf.grad, 1e-5)


def message(block: Any, **shapes: Any) -> str:
    with pytest.raises(MithrilError) as caught:
        ml.compile(block, ml.NumpyBackend(), shapes=shapes)
    return str(caught.value)


def test_mistakes_are_explained():
    text = message(ml.GridSample(), input=[2, 3, 4, 5], grid=[2, 6, 7, 3])
    assert "`GridSample` takes images and their positions" in text
    assert "(batch, height, width, 2)" in text
    text = message(ml.GridSample(), input=[2, 3, 4, 5], grid=[3, 6, 7, 2])
    assert "[2 x 3 x 4 x 5] and [3 x 6 x 7 x 2]" in text
    text = message(ml.GridSample(mode="bicubic"), input=[2, 3, 4, 5, 6], grid=[2, 3, 6, 7, 3])
    assert '`mode="bicubic"` is for images' in text
    text = message(ml.GridSample(), input=[2, 3, 0, 5], grid=[2, 6, 7, 2])
    assert "axis 2 of `input` is empty" in text
    text = message(ml.AffineGrid(size=(3, 4)), input=[2, 3, 4])
    assert "`AffineGrid` takes a matrix for each image" in text
    assert "(batch, 2, 3)" in text
    with pytest.raises(MithrilError, match="height and width, or depth, height and width"):
        ml.AffineGrid(size=4)
    compiled = ml.compile(ml.GridSample(), ml.NumpyBackend(), shapes=OPEN)
    inputs = {"input": numbers(2, 3, 0, 5), "grid": positions(2, 3, 4, 2)}
    with pytest.raises(MithrilError):
        compiled.evaluate({}, inputs)
