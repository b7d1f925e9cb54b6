"""MLP, LeNet and U-Net."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import (
    BatchNorm2d,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Dropout,
    Flatten,
    Linear,
    MaxPool2d,
    Model,
    Relu,
    Sequential,
)
from .weights import Architecture, Rule, batch_norm, linear, plain

__all__ = ["MLP", "LeNet", "UNet"]


class MLP(Architecture):
    """A perceptron with hidden layers: (batch, features) to (batch, classes). A ReLU follows each
    hidden layer, and a dropout if its rate is not 0.

    Weights: `torchvision.ops.MLP`.

    Source: D. E. Rumelhart, G. E. Hinton, R. J. Williams. Learning Representations by
    Back-Propagating Errors. Nature 323, 1986.
    """

    def __init__(
        self,
        features: int = 784,
        *,
        hidden: Sequence[int] = (512, 256),
        classes: int = 10,
        dropout: float = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        layers: list[Linear | Relu | Dropout] = []
        for index, width in enumerate(hidden):
            layers += [Linear(width, name=f"linear_{index}"), Relu()]
            layers += [Dropout(dropout)] if dropout else []
        layers.append(Linear(classes, name=f"linear_{len(hidden)}"))
        self |= layers[0](input="input", **({} if hidden else {"output": "output"}))
        for layer in layers[1:]:
            self += layer(output="output") if layer is layers[-1] else layer
        self.set_shapes(input=["batch", features])
        # torchvision has an activation and a dropout after each hidden layer.
        count = len(hidden) + 1
        self._rules = [r for i in range(count) for r in linear(f"linear_{i}", f"{3 * i}")]


class LeNet(Architecture):
    """LeNet-5 as it is taught today, with ReLU and maxima: (batch, channels, 32, 32) to
    (batch, classes).

    Weights: `Net` of PyTorch's tutorial "Training a Classifier", with `conv1`, `conv2`, `fc1`,
    `fc2` and `fc3`.

    Source: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner. Gradient-Based Learning Applied to Document
    Recognition. Proceedings of the IEEE 86(11), 1998.
    """

    _rules = (*plain("conv{}"), *linear("fc{}"))

    def __init__(self, *, classes: int = 10, channels: int = 3, name: str | None = None) -> None:
        super().__init__(name=name)
        self |= Conv2d(6, 5, name="conv1")(input="input")
        self += Relu()
        self += MaxPool2d(2)
        self += Conv2d(16, 5, name="conv2")
        self += Relu()
        self += MaxPool2d(2)
        self += Flatten(start=1)
        self += Linear(120, name="fc1")
        self += Relu()
        self += Linear(84, name="fc2")
        self += Relu()
        self += Linear(classes, name="fc3")(output="output")
        self.set_shapes(input=["batch", channels, 32, 32])


def _convolution_rules(ours: str, theirs: str) -> list[Rule]:
    """The rules of `_convolutions`."""
    return [
        rule
        for first in (0, 1)
        for rule in (
            *plain(f"{ours}.conv{first + 1}", f"{theirs}.double_conv.{3 * first}"),
            *batch_norm(f"{ours}.bn{first + 1}", f"{theirs}.double_conv.{3 * first + 1}"),
        )
    ]


class UNet(Architecture):
    """A U-Net with padded convolutions and batch norms: (batch, channels, height, width) to
    (batch, classes, height, width). 16 divides height and width.

    `width` is the number of channels at full size; it doubles with each of four steps down.
    Weights: github.com/milesial/Pytorch-UNet, with `bilinear=False`.

    Source: O. Ronneberger, P. Fischer, T. Brox. U-Net: Convolutional Networks for Biomedical Image
    Segmentation. MICCAI 2015, arXiv:1505.04597.
    """

    _rules = (
        *_convolution_rules("inc", "inc"),
        *_convolution_rules("down{}.convs", "down{}.maxpool_conv.1"),
        *_convolution_rules("up{}.convs", "up{}.conv"),
        *plain("up{}.up"),
        *plain("outc", "outc.conv"),
    )
    _ignored = ("*.num_batches_tracked",)

    def __init__(
        self, *, classes: int = 2, channels: int = 3, width: int = 64, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self |= _convolutions(width, "inc")(input="input", output="level_0")
        for level in range(1, 5):
            down = [MaxPool2d(2), _convolutions(width << level, "convs")]
            self |= Sequential(down, name=f"down{level}")(
                input=f"level_{level - 1}", output=f"level_{level}"
            )
        source = "level_4"
        for step in range(1, 5):
            self |= Up(width << (4 - step), name=f"up{step}")(
                input=source, skip=f"level_{4 - step}", output=f"up_{step}"
            )
            source = f"up_{step}"
        self |= Conv2d(classes, 1, name="outc")(input=source, output="output")
        self.set_shapes(input=["batch", channels, None, None])


class Up(Model):
    """Doubles the size of `input`, joins it to `skip`, and convolves both."""

    def __init__(self, filters: int, name: str) -> None:
        super().__init__(name=name)
        self |= ConvTranspose2d(filters, 2, stride=2, name="up")(input="input", output="large")
        self |= Concat(axis=1)(inputs=["skip", "large"])
        self += _convolutions(filters, "convs")(output="output")


def _convolutions(filters: int, name: str) -> Sequential:
    """Two convolutions of 3 x 3, each with a norm and an activation."""
    layers: list[Conv2d | BatchNorm2d | Relu] = []
    for index in (1, 2):
        layers += [
            Conv2d(filters, 3, padding=1, use_bias=False, name=f"conv{index}"),
            BatchNorm2d(name=f"bn{index}"),
            Relu(),
        ]
    return Sequential(layers, name=name)
