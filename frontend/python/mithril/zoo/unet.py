"""U-Net."""

from __future__ import annotations

from ..models import (
    BatchNorm2d,
    Concat,
    Conv2d,
    ConvTranspose2d,
    MaxPool2d,
    Model,
    Relu,
    Sequential,
)
from .weights import Architecture, Rule, batch_norm, plain

__all__ = ["UNet"]


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
    Weights: Pytorch-UNet by milesial, with `bilinear=False`.

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
