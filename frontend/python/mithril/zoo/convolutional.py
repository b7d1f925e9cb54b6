"""Networks of images that torchvision has: ResNet and MobileNetV2."""

from __future__ import annotations

from ..errors import UsageError, shown
from ..models import (
    Add,
    BatchNorm2d,
    Conv2d,
    Dropout,
    GlobalAvgPool,
    Linear,
    MaxPool2d,
    Model,
    Relu,
    Relu6,
    Sequential,
)
from .weights import Architecture, batch_norm, linear, plain

__all__ = ["MobileNetV2", "ResNet"]

STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
"""The number of residual blocks of each stage, by depth."""

INVERTED = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]
"""The expansion, channels, number of blocks and first stride of each stage: Sandler et al. 2018,
table 2."""


class ResNet(Architecture):
    """A residual network: (batch, channels, height, width) to (batch, classes).

    `depth` is 18, 34 or 50. Weights: `torchvision.models.resnet18`, `resnet34`, `resnet50`.

    Source: K. He, X. Zhang, S. Ren, J. Sun. Deep Residual Learning for Image Recognition. CVPR
    2016, arXiv:1512.03385, table 1.
    """

    _rules = (
        *plain("conv1"),
        *batch_norm("bn1"),
        *plain("layer{}.block_{}.conv{}", "layer{}.{}.conv{}"),
        *batch_norm("layer{}.block_{}.bn{}", "layer{}.{}.bn{}"),
        *plain("layer{}.block_{}.downsample.conv", "layer{}.{}.downsample.0"),
        *batch_norm("layer{}.block_{}.downsample.bn", "layer{}.{}.downsample.1"),
        *linear("fc"),
    )
    _ignored = ("*.num_batches_tracked",)

    def __init__(
        self, depth: int, *, classes: int = 1000, channels: int = 3, name: str | None = None
    ) -> None:
        if depth not in STAGES:
            raise UsageError(f"`depth` must be 18, 34 or 50\n  got: {shown(depth)}")
        super().__init__(name=name)
        self |= _conv(64, 7, 2, name="conv1")(input="input")
        self += BatchNorm2d(name="bn1")
        self += Relu()
        self += MaxPool2d(3, stride=2, padding=1)
        width = 64
        for stage, count in enumerate(STAGES[depth]):
            filters = 64 << stage
            out = filters if depth < 50 else 4 * filters
            blocks = []
            for at in range(count):
                stride = 2 if stage and not at else 1
                project = stride > 1 or width != out
                kind = BasicBlock if depth < 50 else Bottleneck
                blocks.append(kind(filters, stride, project, name=f"block_{at}"))
                width = out
            self += Sequential(blocks, name=f"layer{stage + 1}")
        self += GlobalAvgPool()
        self += Linear(classes, name="fc")(output="output")
        self.set_shapes(input=["batch", channels, None, None])


class BasicBlock(Model):
    """Two convolutions of 3 x 3 and a shortcut. `project` adds a convolution to the shortcut."""

    def __init__(self, filters: int, stride: int, project: bool, name: str) -> None:
        super().__init__(name=name)
        self |= _conv(filters, 3, stride, name="conv1")(input="input")
        self += BatchNorm2d(name="bn1")
        self += Relu()
        self += _conv(filters, 3, name="conv2")
        self += BatchNorm2d(name="bn2")(output="residual")
        _add_shortcut(self, filters, stride, project)


class Bottleneck(Model):
    """A convolution of 3 x 3 between two of 1 x 1, and a shortcut. The stride is that of the 3 x 3,
    as in torchvision."""

    def __init__(self, filters: int, stride: int, project: bool, name: str) -> None:
        super().__init__(name=name)
        self |= _conv(filters, 1, name="conv1")(input="input")
        self += BatchNorm2d(name="bn1")
        self += Relu()
        self += _conv(filters, 3, stride, name="conv2")
        self += BatchNorm2d(name="bn2")
        self += Relu()
        self += _conv(4 * filters, 1, name="conv3")
        self += BatchNorm2d(name="bn3")(output="residual")
        _add_shortcut(self, 4 * filters, stride, project)


def _add_shortcut(block: Model, filters: int, stride: int, project: bool) -> None:
    """Adds the input, or a projection of it, to `residual`."""
    shortcut = "input"
    if project:
        layers = [_conv(filters, 1, stride, name="conv"), BatchNorm2d(name="bn")]
        block |= Sequential(layers, name="downsample")(input="input", output="shortcut")
        shortcut = "shortcut"
    block |= Add()(left="residual", right=shortcut)
    block += Relu()(output="output")


def _conv(filters: int, kernel: int, stride: int = 1, groups: int = 1, *, name: str) -> Conv2d:
    """A convolution without bias, which keeps the size of images for a stride of 1."""
    return Conv2d(
        filters,
        kernel,
        stride=stride,
        padding=kernel // 2,
        groups=groups,
        use_bias=False,
        name=name,
    )


class MobileNetV2(Architecture):
    """A network of inverted residuals: (batch, channels, height, width) to (batch, classes).

    `width` multiplies the channels of each layer. Weights: `torchvision.models.mobilenet_v2`.

    Source: M. Sandler, A. Howard, M. Zhu, A. Zhmoginov, L.-C. Chen. MobileNetV2: Inverted Residuals
    and Linear Bottlenecks. CVPR 2018, arXiv:1801.04381.
    """

    _rules = (
        *plain("features_{}.conv", "features.{}.0"),
        *batch_norm("features_{}.bn", "features.{}.1"),
        *plain("features_{}.conv_{}.conv", "features.{}.conv.{}.0"),
        *batch_norm("features_{}.conv_{}.bn", "features.{}.conv.{}.1"),
        *plain("features_{}.conv_{}", "features.{}.conv.{}"),
        *batch_norm("features_{}.bn_{}", "features.{}.conv.{}"),
        *linear("classifier", "classifier.1"),
    )
    _ignored = ("*.num_batches_tracked",)

    def __init__(
        self,
        *,
        classes: int = 1000,
        width: float = 1.0,
        dropout: float = 0.2,
        channels: int = 3,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        size = _rounded(32 * width)
        self |= _stage(size, 3, 2, name="features_0")(input="input")
        at = 1
        for expansion, filters, count, first in INVERTED:
            out = _rounded(filters * width)
            for index in range(count):
                stride = 1 if index else first
                self += InvertedResidual(size, out, stride, expansion, f"features_{at}")
                size, at = out, at + 1
        self += _stage(_rounded(1280 * max(1.0, width)), 1, name=f"features_{at}")
        self += GlobalAvgPool()
        self += Dropout(dropout)
        self += Linear(classes, name="classifier")(output="output")
        self.set_shapes(input=["batch", channels, None, None])


def _rounded(channels: float) -> int:
    """The nearest multiple of 8 that is at least 90 % of `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _stage(filters: int, kernel: int, stride: int = 1, groups: int = 1, *, name: str) -> Sequential:
    """A convolution, a norm and an activation."""
    layers = [
        _conv(filters, kernel, stride, groups, name="conv"),
        BatchNorm2d(name="bn"),
        Relu6(),
    ]
    return Sequential(layers, name=name)


class InvertedResidual(Model):
    """Expands `size` channels, filters each one, and projects them to `out` channels."""

    def __init__(self, size: int, out: int, stride: int, expansion: int, name: str) -> None:
        super().__init__(name=name)
        hidden = size * expansion
        if expansion > 1:
            self |= _stage(hidden, 1, name="conv_0")(input="input", output="expanded")
        last = len(self) + 1
        source = "expanded" if expansion > 1 else "input"
        depthwise = _stage(hidden, 3, stride, groups=hidden, name=f"conv_{last - 1}")
        self |= depthwise(input=source)
        self += _conv(out, 1, name=f"conv_{last}")
        if stride == 1 and size == out:
            self += BatchNorm2d(name=f"bn_{last + 1}")(output="residual")
            self |= Add()(left="input", right="residual", output="output")
        else:
            self += BatchNorm2d(name=f"bn_{last + 1}")(output="output")
