"""Random blocks of sequences and images for the models of `grower.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mithril import models

if TYPE_CHECKING:
    from grower import Grower

Shape = tuple[int, ...]
Block = tuple[Any, Shape]
# Longer axes take NumPy too long.
LONGEST = 40


def grow(grower: Grower) -> None:
    """Applies one block to a value, as sequences (batch, channels, length) or as images."""
    x, shape = grower.pick()
    if len(shape) < 2 or not all(0 < size <= LONGEST for size in shape):
        return
    batch = 1
    for size in shape[:-2]:
        batch *= size
    if batch > LONGEST:
        return
    own = (batch, *shape[-2:])
    if grower.choose.random() < 0.4:
        own = (batch, 1, *shape[-2:])
    block, left = grower.choose.choice(WAYS)(grower.choose, own)
    # Convolutions may compute with other products than NumPy, norms overflow, and the gradient of a
    # kernel that no output reads is 0 or NaN.
    tame = grower.apply(models.NanToNum(), grower.finite(x)) if grower.special else x
    if isinstance(block, models.LpPool):
        tame = tame * tame + 0.5
    value = grower.block(block, tame.reshape(own))
    grower.keep(value, left)


def windowed(choose: Any, own: Shape, *, dilated: bool = True) -> tuple[dict[str, Any], Shape]:
    """Settings of windows that fit, and the numbers of positions."""
    settings: dict[str, list[Any]] = {"kernel_size": [], "stride": [], "padding": []}
    if dilated:
        settings["dilation"] = []
    positions = []
    for size in own[2:]:
        kernel, stride = choose.randint(1, min(3, size)), choose.randint(1, 3)
        dilation = choose.randint(1, 2) if dilated and 2 * kernel - 1 <= size else 1
        low, high = (choose.randint(0, kernel // 2) for _ in range(2))
        high = choose.choice([low, high])
        settings["kernel_size"].append(kernel)
        settings["stride"].append(stride)
        settings["padding"].append((low, high))
        if dilated:
            settings["dilation"].append(dilation)
        positions.append((size + low + high - dilation * (kernel - 1) - 1) // stride + 1)
    return settings, tuple(positions)


def named(name: str, own: Shape) -> Any:
    """The block of this name for the number of axes."""
    return getattr(models, f"{name}{len(own) - 2}d")


def split(choose: Any, *counts: int) -> int:
    """A number of groups that divides all counts."""
    return choose.choice([n for n in range(1, 9) if all(count % n == 0 for count in counts)])


def conv(choose: Any, own: Shape) -> Block:
    settings, positions = windowed(choose, own)
    filters = choose.randint(1, 6)
    groups = split(choose, own[1], filters)
    block = named("Conv", own)(filters, groups=groups, **settings)
    return block, (own[0], filters, *positions)


def transposed(choose: Any, own: Shape) -> Block:
    filters = choose.randint(1, 6)
    groups = split(choose, own[1], filters)
    kernel, stride = choose.randint(1, 3), choose.randint(1, 3)
    padding, more = choose.randint(0, kernel // 2), choose.randint(0, stride - 1)
    left = [(size - 1) * stride + kernel - 2 * padding + more for size in own[2:]]
    if min(left) < 1:
        return conv(choose, own)
    block = named("ConvTranspose", own)(
        filters, kernel, stride=stride, padding=padding, output_padding=more, groups=groups
    )
    return block, (own[0], filters, *left)


def largest(choose: Any, own: Shape) -> Block:
    settings, positions = windowed(choose, own)
    return named("MaxPool", own)(**settings), (*own[:2], *positions)


def average(choose: Any, own: Shape) -> Block:
    settings, positions = windowed(choose, own, dilated=False)
    counted = choose.choice([True, False])
    block = named("AvgPool", own)(count_include_pad=counted, **settings)
    return block, (*own[:2], *positions)


def norm(choose: Any, own: Shape) -> Block:
    kernel = [choose.randint(1, min(3, size)) for size in own[2:]]
    block = models.LpPool(choose.choice([1.0, 2.0, 3.0]), kernel, stride=1)
    left = (size - width + 1 for size, width in zip(own[2:], kernel, strict=True))
    return block, (*own[:2], *left)


def adaptive(choose: Any, own: Shape) -> Block:
    sizes = [choose.randint(1, 5) for _ in own[2:]]
    block = choose.choice([models.AdaptiveAvgPool, models.AdaptiveMaxPool])
    return block(sizes), (*own[:2], *sizes)


def whole(choose: Any, own: Shape) -> Block:
    keepdim = choose.choice([True, False])
    block = choose.choice([models.GlobalAvgPool, models.GlobalMaxPool])(keepdim=keepdim)
    return block, (*own[:2], *([1] * len(own[2:]) if keepdim else []))


def bordered(choose: Any, own: Shape) -> Block:
    block = choose.choice([models.ReflectionPad, models.ReplicationPad, models.CircularPad])
    pairs = [[choose.randint(0, min(3, size - 1)) for _ in range(2)] for size in own[2:]]
    left = (size + sum(pair) for size, pair in zip(own[2:], pairs, strict=True))
    return block([tuple(pair) for pair in pairs]), (*own[:2], *left)


def resized(choose: Any, own: Shape) -> Block:
    sizes = [choose.randint(1, 9) for _ in own[2:]]
    mode = choose.choice(["nearest", "linear", *(["bicubic"] if len(own) == 4 else [])])
    aligned = choose.choice([True, False])
    return models.Upsample(size=sizes, mode=mode, align_corners=aligned), (*own[:2], *sizes)


def normalised(choose: Any, own: Shape) -> Block:
    elements = own[2] * (own[3] if len(own) == 4 else 1)
    blocks = [
        models.GroupNorm(split(choose, own[1]), eps=0.01),
        models.LocalResponseNorm(choose.randint(1, 4), alpha=0.5),
    ]
    if own[0] * elements > 1:
        blocks.append(named("BatchNorm", own)(eps=0.01))
    if elements > 1:
        blocks.append(models.InstanceNorm(eps=0.01))
    return choose.choice(blocks), own


def shuffled(choose: Any, own: Shape) -> Block:
    if len(own) != 4:
        return largest(choose, own)
    if own[2] % 2 == 0 and own[3] % 2 == 0:
        return models.PixelUnshuffle(2), (own[0], 4 * own[1], own[2] // 2, own[3] // 2)
    kernel = [choose.randint(1, min(3, size)) for size in own[2:]]
    count = (own[2] - kernel[0] + 1) * (own[3] - kernel[1] + 1)
    return models.Unfold(kernel), (own[0], own[1] * kernel[0] * kernel[1], count)


WAYS: list[Callable[[Any, Shape], Block]] = [
    conv,
    conv,
    transposed,
    largest,
    average,
    norm,
    adaptive,
    whole,
    bordered,
    resized,
    normalised,
    shuffled,
]
