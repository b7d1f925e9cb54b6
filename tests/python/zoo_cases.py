"""Architectures of `mithril.zoo` with their public implementations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torchvision
import zoo_modules

from mithril import zoo

Arrays = dict[str, Any]
RNG = np.random.default_rng(0)


@dataclass
class Case:
    ours: Callable[[], Any]
    theirs: Callable[[], torch.nn.Module]
    inputs: list[Arrays]
    """Inputs of several sizes, by our names."""
    call: Callable[[Any, Arrays], Arrays]
    """The outputs of the public implementation by our names."""


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def indices(bound: int, *shape: int) -> Any:
    return RNG.integers(0, bound, shape)


def called(model: Any, inputs: Arrays) -> Arrays:
    """The one output for the inputs in order."""
    return {"output": model(*inputs.values())}


def randomized(model: Any, seed: int = 0) -> Any:
    """The model for inference with other random weights and statistics, none of them 0 or 1."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() > 1:
                value.normal_(0, 1 / math.sqrt(value[0].numel()))
            else:
                value.add_(0.1 * torch.randn(value.shape))
        for name, value in model.named_buffers():
            if name.endswith("running_mean"):
                value.normal_(0, 0.1)
            elif name.endswith("running_var"):
                value.uniform_(0.5, 1.5)
    return model.eval()


def images(*sizes: tuple[int, ...]) -> list[Arrays]:
    return [{"input": floats(*size)} for size in sizes]


def resnet(depth: int, *sizes: tuple[int, ...]) -> Case:
    theirs = getattr(torchvision.models, f"resnet{depth}")
    return Case(
        lambda: zoo.ResNet(depth, classes=10),
        lambda: theirs(num_classes=10),
        images(*sizes),
        called,
    )


IMAGES = {
    "ResNet-18": resnet(18, (1, 3, 64, 64), (2, 3, 33, 47)),
    "ResNet-34": resnet(34, (1, 3, 32, 32)),
    "ResNet-50": resnet(50, (1, 3, 32, 32)),
    "MobileNetV2": Case(
        lambda: zoo.MobileNetV2(classes=10),
        lambda: torchvision.models.mobilenet_v2(num_classes=10),
        images((1, 3, 32, 32), (2, 3, 33, 47)),
        called,
    ),
    "MobileNetV2-half": Case(
        lambda: zoo.MobileNetV2(classes=10, width=0.5),
        lambda: torchvision.models.mobilenet_v2(num_classes=10, width_mult=0.5),
        images((1, 3, 32, 32)),
        called,
    ),
    "MLP": Case(
        lambda: zoo.MLP(12, hidden=(9, 8), classes=3),
        lambda: torchvision.ops.MLP(12, [9, 8, 3]),
        images((4, 12), (1, 12)),
        called,
    ),
    "MLP-linear": Case(
        lambda: zoo.MLP(12, hidden=(), classes=3),
        lambda: torchvision.ops.MLP(12, [3]),
        images((4, 12)),
        called,
    ),
    "LeNet": Case(zoo.LeNet, zoo_modules.LeNet, images((2, 3, 32, 32), (1, 3, 32, 32)), called),
    "U-Net": Case(
        lambda: zoo.UNet(width=4),
        lambda: zoo_modules.UNet(3, 2, 4),
        images((1, 3, 32, 48), (2, 3, 16, 16)),
        called,
    ),
}
