"""Convolution and pooling compared with PyTorch, forward and gradients, on every backend."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from comparing import near
from conftest import CLASSES

import mithril as ml
from mithril.models import Conv2d, MaxPool2d, Model

# Shapes of images and filters, and the settings of the block.
CONVS = [
    ((2, 3, 8, 9), 4, {"kernel_size": 3}),
    ((2, 3, 8, 9), 4, {"kernel_size": 3, "padding": 1, "use_bias": False}),
    ((1, 1, 1, 1), 1, {"kernel_size": 1}),
    ((3, 2, 7, 7), 5, {"kernel_size": (2, 3), "stride": 2}),
    ((2, 4, 12, 11), 3, {"kernel_size": 3, "stride": (3, 2), "padding": (2, 1)}),
    ((2, 3, 13, 10), 2, {"kernel_size": (3, 2), "dilation": (2, 3), "padding": "same"}),
    ((1, 3, 9, 17), 6, {"kernel_size": 3, "stride": 2, "dilation": 2, "padding": 2}),
    ((2, 2, 5, 6), 3, {"kernel_size": (5, 6)}),
    ((2, 2, 3, 3), 3, {"kernel_size": 5, "padding": 1}),
    ((1, 2, 6, 7), 2, {"kernel_size": 2, "stride": 3, "padding": "valid"}),
    ((0, 2, 6, 7), 2, {"kernel_size": 3}),
    ((1, 17, 20, 21), 19, {"kernel_size": 3, "padding": 1}),
    ((2, 4, 20, 9), 2, {"kernel_size": (4, 3), "padding": "same"}),
    ((0, 1, 40, 12), 1, {"kernel_size": (9, 5), "use_bias": False}),
]
POOLS = [
    ((2, 3, 8, 9), {"kernel_size": 2}),
    ((2, 3, 9, 10), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ((1, 2, 7, 20), {"kernel_size": (3, 2), "stride": (1, 2), "dilation": (2, 1)}),
    ((1, 1, 1, 1), {"kernel_size": 1}),
    ((2, 2, 5, 6), {"kernel_size": (5, 6)}),
    ((0, 2, 6, 7), {"kernel_size": 3}),
    ((1, 3, 33, 17), {"kernel_size": 3, "stride": 1, "padding": 1}),
]


def numbers(shape, seed):
    """Distinct numbers, so that the gradient of a maximum is unique."""
    count = int(np.prod(shape))
    order = np.random.default_rng(seed).permutation(count)
    return (order / max(count, 1) * 4 - 2).reshape(shape).astype(np.float32)


def check(block, backend, x, params, expected, *, named):
    """Compares results and gradients with those of `expected`, a function of torch tensors."""
    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    images = torch.tensor(x, requires_grad=True)
    want = expected(images, leaves)
    seed = numbers(want.shape, 5)
    want.backward(torch.tensor(seed))
    model = Model()
    model |= block(input="input", output="output")
    shapes = {"input": ["n", x.shape[1], "h", "w"] if named else list(x.shape)}
    compiled = ml.compile(model, backend, shapes=shapes, trainable_keys=["input"])
    own = {name: name.rpartition(".")[2] for name in compiled.params if name != "input"}
    arrays = {"input": x} | {name: params[leaf] for name, leaf in own.items()}
    arrays = {name: backend.array(value) for name, value in arrays.items()}
    outputs, gradients = compiled.evaluate(
        arrays, {}, output_gradients={"output": backend.array(seed)}
    )
    near(backend.to_numpy(outputs["output"]), want, 1e-5)
    near(backend.to_numpy(gradients["input"]), images.grad, 1e-5)
    for name, leaf in own.items():
        near(backend.to_numpy(gradients[name]), leaves[leaf].grad, 1e-4)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("case", range(len(CONVS)))
def test_convolution(make, case, named):
    shape, filters, settings = CONVS[case]
    kernel = settings["kernel_size"]
    kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
    params = {"w": numbers((filters, shape[1], *kernel), 1)}
    if settings.get("use_bias", True):
        params["b"] = numbers((filters,), 2)
    padding = settings.get("padding", 0)
    others = {name: settings[name] for name in ("stride", "dilation") if name in settings}

    def expected(x, leaves):
        return F.conv2d(x, leaves["w"], leaves.get("b"), padding=padding, **others)

    check(Conv2d(filters, **settings), make(), numbers(shape, 3), params, expected, named=named)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("case", range(len(POOLS)))
def test_max_pooling(make, case, named):
    shape, settings = POOLS[case]
    block = MaxPool2d(**settings)

    def expected(x, _):
        return F.max_pool2d(x, **settings)

    check(block, make(), numbers(shape, 3), {}, expected, named=named)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "case",
    [
        ((2, 1, 40, 31), 1, 9),
        ((1, 3, 50, 40), 4, 16),
        ((2, 2, 800), 3, 250),
        ((1, 1, 4000), 1, 100),
    ],
)
def test_long_filters_in_numpy(case, dtype):
    """NumPy computes them by Fourier transforms, unless a result is not finite."""
    shape, filters, size = case
    block = getattr(ml, f"Conv{len(shape) - 2}d")(filters, size, padding=size // 2, use_bias=False)
    shapes = {"input": ["n", shape[1], *(None for _ in shape[2:])]}
    compiled = ml.compile(block, ml.NumpyBackend(dtype=dtype), shapes=shapes)
    assert "output = _fft_conv(x, w" in compiled.code
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(dtype)
    w = compiled.randomize_params(seed=0)["w"]
    convolve = getattr(F, f"conv{len(shape) - 2}d")
    tolerance = 2e-6 if dtype == "float32" else 1e-14
    for special in (None, np.nan, np.inf):
        if special is not None:
            x[(0,) * x.ndim] = special
        got = compiled.evaluate({"w": w}, {"input": x})["output"]
        want = convolve(torch.tensor(x), torch.tensor(w), padding=size // 2).numpy()
        assert got.dtype == dtype
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
        known = np.isfinite(want)
        assert np.abs(got[known] - want[known]).max() <= tolerance * np.abs(want[known]).max()


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("padding", [0, 1, "same"])
@pytest.mark.parametrize("channels, filters", [(1, 1), (3, 2)])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_few_filters_in_numpy(axes, channels, filters, padding, dilation):
    """NumPy copies no windows of all axes for them."""
    block = getattr(ml, f"Conv{axes}d")(
        filters, kernel_size=3, padding=padding, dilation=dilation, use_bias=False
    )
    shape = (2, channels, 13, 12, 14)[: 2 + axes]
    compiled = ml.compile(
        block, ml.NumpyBackend(), shapes={"input": shape}, trainable_keys=["input"]
    )
    few = filters == channels == 1 or 4 * filters <= 3 * channels
    assert ("_row_conv(x" in compiled.code) == few
    params = compiled.randomize_params(seed=0)
    params["input"] = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x, w = (torch.tensor(params[name], requires_grad=True) for name in ("input", "w"))
    want = getattr(F, f"conv{axes}d")(x, w, padding=padding, dilation=dilation)
    seed = torch.randn(want.shape)
    want.backward(seed)
    outputs, gradients = compiled.evaluate(params, {}, output_gradients={"output": seed.numpy()})
    near(outputs["output"], want.detach().numpy())
    near(gradients["input"], x.grad.numpy())
    near(gradients["w"], w.grad.numpy())
