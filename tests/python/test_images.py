"""Blocks of sequences, images and volumes with many settings, against PyTorch: results and
gradients on every backend, with fixed and with open dims."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from comparing import near
from conftest import CLASSES

import mithril as ml
from mithril import models
from mithril.models import Model

SIGNAL, IMAGE, VOLUME = (2, 6, 11), (2, 6, 9, 10), (2, 4, 5, 6, 7)


def conv(n: int) -> Any:
    return getattr(F, f"conv{n}d")


def transposed(n: int) -> Any:
    return getattr(F, f"conv_transpose{n}d")


# Blocks with settings, the shape of the input, the shapes of params, and PyTorch's function.
CASES: list[tuple[Any, tuple[int, ...], dict[str, tuple[int, ...]], Any]] = [
    (
        models.Conv1d(4, 3, stride=2, padding=[(2, 0)], dilation=2, groups=2),
        SIGNAL,
        {"w": (4, 3, 3), "b": (4,)},
        lambda x, w, b: F.conv1d(F.pad(x, (2, 0)), w, b, 2, 0, 2, 2),
    ),
    (
        models.Conv2d(6, (3, 2), stride=(2, 1), padding=(1, 2), groups=6, use_bias=False),
        IMAGE,
        {"w": (6, 1, 3, 2)},
        lambda x, w: F.conv2d(x, w, None, (2, 1), (1, 2), 1, 6),
    ),
    (
        models.Conv2d(9, 3, padding="same", dilation=2, groups=3),
        IMAGE,
        {"w": (9, 2, 3, 3), "b": (9,)},
        lambda x, w, b: F.conv2d(x, w, b, 1, "same", 2, 3),
    ),
    (
        models.Conv3d(4, (2, 3, 1), stride=(1, 2, 3), padding=1, groups=2),
        VOLUME,
        {"w": (4, 2, 2, 3, 1), "b": (4,)},
        lambda x, w, b: F.conv3d(x, w, b, (1, 2, 3), 1, 1, 2),
    ),
    (
        models.ConvTranspose1d(4, 3, stride=3, padding=1, output_padding=2, groups=2),
        SIGNAL,
        {"w": (6, 2, 3), "b": (4,)},
        lambda x, w, b: F.conv_transpose1d(x, w, b, 3, 1, 2, 2),
    ),
    (
        models.ConvTranspose2d(3, (3, 2), stride=(2, 3), padding=(1, 0), dilation=(1, 2)),
        IMAGE,
        {"w": (6, 3, 3, 2), "b": (3,)},
        lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 3), (1, 0), 0, 1, (1, 2)),
    ),
    (
        models.ConvTranspose2d(3, 2, dilation=3, output_padding=2, use_bias=False),
        IMAGE,
        {"w": (6, 3, 2, 2)},
        lambda x, w: F.conv_transpose2d(x, w, None, 1, 0, 2, 1, 3),
    ),
    (
        models.ConvTranspose3d(4, 3, stride=2, padding=2, output_padding=1, groups=4),
        VOLUME,
        {"w": (4, 1, 3, 3, 3), "b": (4,)},
        lambda x, w, b: F.conv_transpose3d(x, w, b, 2, 2, 1, 4),
    ),
    (models.MaxPool1d(3, stride=2, padding=1), SIGNAL, {}, lambda x: F.max_pool1d(x, 3, 2, 1)),
    (
        models.MaxPool2d(3, stride=2, padding=1, dilation=2, ceil_mode=True),
        IMAGE,
        {},
        lambda x: F.max_pool2d(x, 3, 2, 1, 2, True),
    ),
    (
        models.MaxPool2d(2, stride=3, padding=1, ceil_mode=True),
        (2, 3, 7, 8),
        {},
        lambda x: F.max_pool2d(x, 2, 3, 1, 1, True),
    ),
    (
        models.MaxPool3d((2, 3, 2), stride=1, padding=(1, 1, 0)),
        VOLUME,
        {},
        lambda x: F.max_pool3d(x, (2, 3, 2), 1, (1, 1, 0)),
    ),
    (
        models.AvgPool1d(3, stride=2, padding=1, count_include_pad=False),
        SIGNAL,
        {},
        lambda x: F.avg_pool1d(x, 3, 2, 1, False, False),
    ),
    (
        models.AvgPool2d((3, 2), stride=2, padding=1, ceil_mode=True),
        IMAGE,
        {},
        lambda x: F.avg_pool2d(x, (3, 2), 2, 1, True),
    ),
    (
        models.AvgPool2d(2, stride=3, padding=1, ceil_mode=True, count_include_pad=False),
        (2, 3, 7, 8),
        {},
        lambda x: F.avg_pool2d(x, 2, 3, 1, True, False),
    ),
    (
        models.AvgPool3d(3, stride=2, padding=1),
        VOLUME,
        {},
        lambda x: F.avg_pool3d(x, 3, 2, 1),
    ),
    (models.LpPool(2, 3, stride=1), IMAGE, {}, lambda x: F.lp_pool2d(x, 2, 3, 1)),
    (models.LpPool(4, [2], ceil_mode=True), SIGNAL, {}, lambda x: F.lp_pool1d(x, 4, 2, None, True)),
    (models.GlobalAvgPool(keepdim=True), VOLUME, {}, lambda x: F.adaptive_avg_pool3d(x, 1)),
    (models.GlobalMaxPool(), SIGNAL, {}, lambda x: F.adaptive_max_pool1d(x, 1)[..., 0]),
    (models.AdaptiveAvgPool((4, 5)), IMAGE, {}, lambda x: F.adaptive_avg_pool2d(x, (4, 5))),
    (models.AdaptiveAvgPool((2, None)), IMAGE, {}, lambda x: F.adaptive_avg_pool2d(x, (2, None))),
    (
        models.AdaptiveAvgPool((None, 2, None)),
        VOLUME,
        {},
        lambda x: F.adaptive_avg_pool3d(x, (None, 2, None)),
    ),
    (models.AdaptiveMaxPool((None, 3)), IMAGE, {}, lambda x: F.adaptive_max_pool2d(x, (None, 3))),
    (models.AdaptiveAvgPool(13), SIGNAL, {}, lambda x: F.adaptive_avg_pool1d(x, 13)),
    (models.AdaptiveMaxPool((4, 5)), IMAGE, {}, lambda x: F.adaptive_max_pool2d(x, (4, 5))),
    (models.AdaptiveMaxPool(3), VOLUME, {}, lambda x: F.adaptive_max_pool3d(x, 3)),
    (models.ReflectionPad([(2, 1)]), SIGNAL, {}, lambda x: F.pad(x, (2, 1), "reflect")),
    (models.ReflectionPad(3), IMAGE, {}, lambda x: F.pad(x, (3, 3, 3, 3), "reflect")),
    (models.ReplicationPad(2), VOLUME, {}, lambda x: F.pad(x, (2,) * 6, "replicate")),
    (models.ReflectionPad((1, 2)), SIGNAL, {}, torch.nn.ReflectionPad1d((1, 2))),
    (models.ReplicationPad((4, 3, 2, 1)), IMAGE, {}, torch.nn.ReplicationPad2d((4, 3, 2, 1))),
    (
        models.ReflectionPad((0, 1, 2, 3, 4, 1)),
        VOLUME,
        {},
        torch.nn.ReflectionPad3d((0, 1, 2, 3, 4, 1)),
    ),
    (models.CircularPad([(0, 0), (1, 2)]), IMAGE, {}, lambda x: F.pad(x, (1, 2, 0, 0), "circular")),
    (models.PixelShuffle(2), (2, 8, 3, 4), {}, lambda x: F.pixel_shuffle(x, 2)),
    (models.PixelUnshuffle(3), (2, 2, 6, 9), {}, lambda x: F.pixel_unshuffle(x, 3)),
    (
        models.Unfold((2, 3), dilation=2, padding=1, stride=(1, 2)),
        IMAGE,
        {},
        lambda x: F.unfold(x, (2, 3), 2, 1, (1, 2)),
    ),
    (
        models.Fold((9, 10), (2, 3), dilation=2, padding=1, stride=(1, 2)),
        (2, 6, 36),
        {},
        lambda x: F.fold(x, (9, 10), (2, 3), 2, 1, (1, 2)),
    ),
    (models.Upsample(size=(4, 17)), IMAGE, {}, lambda x: F.interpolate(x, (4, 17))),
    (models.Upsample(scale=(2.0, 1.5)), IMAGE, {}, lambda x: F.interpolate(x, None, (2.0, 1.5))),
    (
        models.Upsample(scale=(0.5, 3), mode="bilinear", antialias=True),
        IMAGE,
        {},
        lambda x: F.interpolate(x, None, (0.5, 3.0), mode="bilinear", antialias=True),
    ),
    (
        models.Upsample(scale=(1.0, 0.75), mode="bicubic"),
        IMAGE,
        {},
        lambda x: F.interpolate(x, None, (1.0, 0.75), mode="bicubic"),
    ),
    (models.Upsample(scale=[1.5]), SIGNAL, {}, lambda x: F.interpolate(x, scale_factor=(1.5,))),
    (models.Upsample(scale=3), SIGNAL, {}, lambda x: F.interpolate(x, scale_factor=3)),
    (
        models.Upsample(scale=0.5, mode="linear"),
        SIGNAL,
        {},
        lambda x: F.interpolate(x, scale_factor=0.5, mode="linear"),
    ),
    (
        models.Upsample(size=(5, 21), mode="bilinear", align_corners=True),
        IMAGE,
        {},
        lambda x: F.interpolate(x, (5, 21), mode="bilinear", align_corners=True),
    ),
    (
        models.Upsample(size=(7, 1, 9), mode="trilinear"),
        VOLUME,
        {},
        lambda x: F.interpolate(x, (7, 1, 9), mode="trilinear"),
    ),
    (
        models.Upsample(scale=1.25, mode="bicubic"),
        IMAGE,
        {},
        lambda x: F.interpolate(x, scale_factor=1.25, mode="bicubic"),
    ),
    (
        models.BatchNorm2d(),
        IMAGE,
        {"w": (6,), "b": (6,)},
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    ),
    (
        models.BatchNorm3d(use_bias=False),
        VOLUME,
        {"w": (4,)},
        lambda x, w: F.batch_norm(x, None, None, w, None, True),
    ),
    (
        models.GroupNorm(3),
        IMAGE,
        {"w": (6,), "b": (6,)},
        lambda x, w, b: F.group_norm(x, 3, w, b),
    ),
    (models.InstanceNorm(), VOLUME, {}, F.instance_norm),
    (
        models.LocalResponseNorm(4, alpha=0.5, beta=0.6, k=2),
        IMAGE,
        {},
        lambda x: F.local_response_norm(x, 4, 0.5, 0.6, 2),
    ),
]


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    """Distinct numbers, so that the gradient of a maximum is unique."""
    count = int(np.prod(shape))
    order = np.random.default_rng(seed).permutation(count)
    return (order / max(count, 1) * 4 - 2).reshape(shape).astype(np.float32)


def names(shape: tuple[int, ...], settings: Any, *, named: bool) -> list[Any]:
    """The shape, or one whose dims are open apart from the channels."""
    return ["n", shape[1], "height", "width", "depth"][: len(shape)] if named else list(shape)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_against_torch(make, case, named):
    block, shape, params, expected = CASES[case]
    x = numbers(shape, 3)
    arrays = {name: numbers(dims, seed) for seed, (name, dims) in enumerate(params.items())}
    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in arrays.items()}
    images = torch.tensor(x, requires_grad=True)
    want = expected(images, *leaves.values())
    seed = numbers(tuple(want.shape), 5)
    want.backward(torch.tensor(seed))
    model, backend = Model(), make()
    model |= block(input="input", output="output")
    dims = names(shape, params, named=named)
    compiled = ml.compile(model, backend, shapes={"input": dims}, trainable_keys=["input"])
    own = {name: name.rpartition(".")[2] for name in compiled.params if name != "input"}
    given = {"input": x} | {name: arrays[leaf] for name, leaf in own.items()}
    given = {name: backend.array(value) for name, value in given.items()}
    state = {"state": compiled.initial_state(given, {})} if compiled.states else {}
    outputs, gradients, *_ = compiled.evaluate(
        given, {}, output_gradients={"output": backend.array(seed)}, **state
    )
    near(backend.to_numpy(outputs["output"]), want, 2e-5)
    near(backend.to_numpy(gradients["input"]), images.grad, 5e-5)
    for name, leaf in own.items():
        near(backend.to_numpy(gradients[name]), leaves[leaf].grad, 1e-4)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((2, 3, 8, 9), {"kernel_size": 2}),
        ((2, 3, 9, 10), {"kernel_size": 3, "stride": 2, "padding": 1}),
        ((2, 3, 9, 10), {"kernel_size": (2, 3), "dilation": 2, "ceil_mode": True, "stride": 3}),
    ],
)
def test_indices_of_maxima(make, shape, settings, named):
    """The indices are PyTorch's, and `MaxUnpool2d` puts the maxima back to them."""
    x, backend = numbers(shape, 1), make()
    highest, places = F.max_pool2d(torch.tensor(x), **settings, return_indices=True)
    model = Model()
    pool = models.MaxPool2d(**settings, return_indices=True)
    model |= pool(input="input", output="highest", indices="places")
    kernel = {n: settings[n] for n in ("kernel_size", "stride", "padding") if n in settings}
    unpool = models.MaxUnpool2d(**kernel, output_size=shape[2:])
    model |= unpool(input="highest", indices="places", output="output")
    model.expose("highest")
    model.expose("places")
    dims = names(shape, settings, named=named)
    compiled = ml.compile(model, backend, shapes={"input": dims})
    outputs = compiled.evaluate({}, {"input": backend.array(x)})
    outputs = {name: np.asarray(backend.to_numpy(value)) for name, value in outputs.items()}
    near(outputs["highest"], highest, 0)
    np.testing.assert_array_equal(outputs["places"], places.numpy())
    back = torch.zeros(shape).flatten(2)
    back = back.scatter(2, places.flatten(2), highest.flatten(2)).reshape(shape)
    near(outputs["output"], back, 1e-6)


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize(
    ("block", "shape"), [("Dropout1d", (40, 50, 3)), ("Dropout2d", (40, 50, 2, 3))]
)
def test_dropout_of_channels(make, block, shape):
    """Channels are kept or dropped as a whole, as often as `rate` says; inference keeps all."""
    model, backend = Model(), make()
    model |= getattr(models, block)(rate=0.25)(input="input", key="key", output="output")
    x = backend.array(np.ones(shape, np.float32))
    compiled = ml.compile(model, backend, shapes={"input": list(shape)})
    outputs = compiled.evaluate({}, {"input": x, "key": np.array([1, 2], np.uint32)})
    kept = np.asarray(backend.to_numpy(outputs["output"])).reshape(2000, -1)
    assert (kept == kept[:, :1]).all()
    assert set(np.unique(kept)) == {0, np.float32(1 / 0.75)}
    # Five standard deviations of 2000 draws.
    assert abs((kept[:, 0] == 0).mean() - 0.25) < 5 * (0.25 * 0.75 / 2000) ** 0.5
    still = ml.compile(model, backend, shapes={"input": list(shape)}, inference=True)
    same = still.evaluate({}, {"input": x})["output"]
    np.testing.assert_array_equal(backend.to_numpy(same), np.ones(shape))


@pytest.mark.parametrize("axes", [2, 3])
def test_running_statistics(axes):
    """Training moves the running mean and variance as PyTorch does, and inference uses them."""
    theirs = getattr(torch.nn, f"BatchNorm{axes}d")(4, momentum=0.3)
    shape = (3, 4, 5, 2, 3)[: axes + 2]
    block, backend = getattr(models, f"BatchNorm{axes}d")(momentum=0.3), ml.NumpyBackend()
    compiled = ml.compile(block, backend, shapes={"input": list(shape)})
    params = compiled.randomize_params()
    state = compiled.initial_state(params, {"input": numbers(shape, 0)})
    for seed in range(3):
        x = numbers(shape, seed)
        want = theirs(torch.tensor(x))
        outputs, state = compiled.evaluate(params, {"input": x}, state=state)
        near(outputs["output"], want, 1e-5)
    means = {name.rpartition(".")[2]: value for name, value in state.items()}
    near(means["running_mean"], theirs.running_mean, 1e-5)
    near(means["running_var"], theirs.running_var, 1e-5)


def with_strides(x: np.ndarray, order: tuple[int, ...]) -> torch.Tensor:
    """The array with its axes in this order in memory, and with gaps if it has one axis."""
    base = torch.zeros(*(x.shape[axis] for axis in order), 1 + (x.ndim == 1), dtype=torch.float64)
    return base[..., 0].permute(tuple(np.argsort(order))).copy_(torch.from_numpy(x))


@pytest.mark.parametrize("shape", [(7, 5), (1, 5, 4), (1, 5, 1, 4), (2, 5, 1, 4), (1, 5, 4, 4)])
def test_gradients_of_batch_norm_with_strides(shape):
    """`torch.batch_norm` (2.15) has wrong gradients for weights with strides, and for some strides
    around axes of size 1."""
    model = models.Sequential([getattr(models, f"BatchNorm{max(len(shape) - 2, 1)}d")()])
    backend, options = ml.TorchBackend(dtype=ml.float64), {"shapes": {"input": list(shape)}}
    names = ["input", *ml.compile(model, backend, **options).params]
    compiled = ml.compile(model, backend, **options, trainable_keys=names)
    values = [numbers(dims, 0).astype(float) for dims in (shape, (5,), (5,))]
    seed = numbers(shape, 1).astype(float)
    x, w, b = leaves = [torch.from_numpy(v).requires_grad_() for v in values]
    along = [axis for axis in range(len(shape)) if axis != 1]
    centred = x - x.mean(along, keepdim=True)
    y = centred / (x.var(along, correction=0, keepdim=True) + 1e-5).sqrt()
    spread = (slice(None), *[None] * (len(shape) - 2))
    wanted = torch.autograd.grad(y * w[spread] + b[spread], leaves, torch.from_numpy(seed))
    orders = list(itertools.permutations(range(len(shape))))
    for order, other in itertools.product(orders, (orders[0], orders[-1])):
        given = [order, (0,), (0,)]
        params = {n: with_strides(v, own) for n, v, own in zip(names, values, given, strict=True)}
        seeds = {"output": with_strides(seed, other)}
        _, gradients = compiled.evaluate(params, {}, output_gradients=seeds)
        for name, want in zip(names, wanted, strict=True):
            near(gradients[name].numpy(), want, 1e-12)


@pytest.mark.parametrize(
    ("block", "call"),
    [
        (models.Conv2d(4, 3, padding=1, groups=2), "F.conv2d({}, padding=1, groups=2)"),
        (models.ConvTranspose2d(4, 2, stride=2), "F.conv_transpose2d({}, stride=2)"),
        (models.MaxPool2d(2), "F.max_pool2d({}, 2)"),
        (models.AvgPool2d(3, padding=1, stride=2), "F.avg_pool2d({}, 3, 2, padding=1)"),
        (models.MaxPool2d((2, 3), stride=1), "F.max_pool2d({}, (2, 3), 1)"),
    ],
)
def test_torch_source_calls_torch(block, call):
    model = Model()
    model |= block(input="input", output="output")
    source = ml.compile(model, ml.TorchBackend(), shapes={"input": ["n", 4, "h", "w"]}).code
    before, after = call.split("{}")
    lines = [line for line in source.splitlines() if before in line]
    assert len(lines) == 1
    assert lines[0].endswith(after) or after in lines[0]
