"""Convolutions, pooling and other blocks of images."""

from __future__ import annotations

import math

import torch

from .row import row

F = torch.nn.functional


def cubes(x, size):
    """All cubes of this size in the last three axes."""
    return x.unfold(-3, size, 1).unfold(-3, size, 1).unfold(-3, size, 1)


def maxima(x, axis, size):
    """The maxima of `size` ranges of an axis, where ties share the gradient."""
    count = x.shape[axis]
    ranges = ((i * count // size, -(-(i + 1) * count // size)) for i in range(size))
    return torch.stack([x.narrow(axis, i, j - i).amax(axis) for i, j in ranges], axis)


def unpooled(axes):
    """Elements added at indices of images of twice the size. torch's own function takes distinct
    indices only."""

    def function(x, i):
        sizes = [2 * n for n in x.shape[-axes:]]
        zeros = x.new_zeros(*x.shape[:-axes], math.prod(sizes))
        sums = zeros.scatter_add(-1, i.flatten(-axes), x.flatten(-axes))
        return sums.unflatten(-1, sizes)

    return function


ROWS = {
    "Conv1d": row(
        lambda x, w, b: F.conv1d(x, w, b, padding=1, groups=2),
        (2, 4, 6),
        filters=6,
        kernel_size=3,
        padding=1,
        groups=2,
    ).but(kept=4),
    # torch has no filters for a convolution without channels.
    "Conv2d": row(
        lambda x, w, b: F.conv2d(x, w, b, padding=1),
        (2, 3, 6, 5),
        filters=4,
        kernel_size=3,
        padding=1,
    ).but(least=1),
    "Conv3d": row(
        lambda x, w, b: F.conv3d(x, w, b, padding=1),
        (2, 7, 5, 2, 5),
        filters=4,
        kernel_size=3,
        padding=1,
    ),
    "ConvTranspose1d": row(
        lambda x, w, b: F.conv_transpose1d(x, w, b, 2, groups=2),
        (2, 4, 6),
        filters=6,
        kernel_size=3,
        stride=2,
        groups=2,
    ).but(kept=4),
    "ConvTranspose2d": row(
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1),
        (2, 7, 6, 5),
        filters=4,
        kernel_size=3,
        stride=2,
        padding=1,
    ),
    "ConvTranspose3d": row(F.conv_transpose3d, (2, 7, 5, 2, 5), filters=4, kernel_size=2),
    # torch does not pool images without channels.
    "MaxPool1d": row(lambda x: x.unfold(-1, 2, 2).amax(-1), (2, 3, 6), kernel_size=2).but(least=1),
    "MaxPool2d": row(
        lambda x: x.unfold(-2, 2, 2).unfold(-2, 3, 3).amax((-1, -2)),
        (2, 3, 6, 5),
        kernel_size=(2, 3),
    ),
    "MaxPool3d": row(
        lambda x: cubes(F.pad(x, (1,) * 6, value=-torch.inf), 3).amax((-1, -2, -3)),
        (2, 7, 5, 2, 5),
        kernel_size=3,
        stride=1,
        padding=1,
    ),
    "AvgPool1d": row(lambda x: F.avg_pool1d(x, 2), (2, 3, 6), kernel_size=2),
    "AvgPool2d": row(
        lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
        (2, 7, 6, 5),
        kernel_size=3,
        stride=2,
        padding=1,
        ceil_mode=True,
        count_include_pad=False,
    ),
    "AvgPool3d": row(
        lambda x: F.avg_pool3d(F.pad(x, (1,) * 6), 3, 1),
        (2, 7, 5, 2, 5),
        kernel_size=3,
        stride=1,
        padding=1,
    ),
    "LpPool": row(lambda x: F.lp_pool2d(x, 3, (2, 1)), (2, 7, 6, 5), norm=3.0, kernel_size=(2, 1)),
    "GlobalAvgPool": row(lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), (2, 3, 6, 5)),
    "GlobalMaxPool": row(lambda x: x.amax((2, 3)), (2, 3, 6, 5)),
    "AdaptiveAvgPool": row(
        lambda x: F.adaptive_avg_pool2d(x, (4, 2)), (2, 7, 6, 5), output_size=(4, 2)
    ),
    "AdaptiveMaxPool": row(
        lambda x: maxima(maxima(x, -2, 4), -1, 2), (2, 7, 6, 5), output_size=(4, 2)
    ),
    "MaxUnpool1d": row(unpooled(1), (2, 7, 6), (2, 7, 6), kernel_size=2),
    "MaxUnpool2d": row(unpooled(2), (2, 7, 6, 5), (2, 7, 6, 5), kernel_size=2),
    "MaxUnpool3d": row(unpooled(3), (2, 7, 5, 2, 5), (2, 7, 5, 2, 5), kernel_size=2),
    "FractionalMaxPool2d": row(
        lambda x, s: F.fractional_max_pool2d(x, 2, 3, _random_samples=s.detach()) + 0 * s.sum(),
        (2, 7, 6, 5),
        (2, 7, 2),
        kernel_size=2,
        output_size=3,
        draw=False,
    ).but(kept=2),
    "FractionalMaxPool3d": row(
        lambda x, s: F.fractional_max_pool3d(x, 2, 2, _random_samples=s.detach()) + 0 * s.sum(),
        (2, 7, 5, 5, 6),
        (2, 7, 3),
        kernel_size=2,
        output_size=2,
        draw=False,
    ).but(kept=3),
    "ReflectionPad": row(
        lambda x: F.pad(x, (0, 3, 1, 2), "reflect"), (2, 7, 6, 5), padding=((1, 2), (0, 3))
    ),
    "ReplicationPad": row(
        lambda x: F.pad(x, (0, 3, 1, 2), "replicate"), (2, 7, 6, 5), padding=((1, 2), (0, 3))
    ),
    "CircularPad": row(
        lambda x: F.pad(x, (0, 3, 1, 2), "circular"), (2, 7, 6, 5), padding=((1, 2), (0, 3))
    ),
    "PixelShuffle": row(lambda x: F.pixel_shuffle(x, 2), (2, 4, 6, 5), factor=2).but(kept=4),
    # torch does not divide the sizes of empty images.
    "PixelUnshuffle": row(lambda x: F.pixel_unshuffle(x, 2), (2, 3, 4, 4), factor=2).but(
        kept=4, least=1
    ),
    "Unfold": row(
        lambda x: F.unfold(x, (2, 3), padding=1, stride=2),
        (2, 7, 6, 5),
        kernel_size=(2, 3),
        stride=2,
        padding=1,
    ),
    "Fold": row(lambda x: F.fold(x, (5, 4), 2), (2, 12, 12), output_size=(5, 4), kernel_size=2).but(
        kept=12
    ),
    "Upsample": row(
        lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
        (2, 7, 6, 5),
        scale=1.5,
        mode="bilinear",
    ),
    "GridSample": row(
        lambda x, g: F.grid_sample(x, g, align_corners=False), (7, 4, 5, 8), (7, 5, 9, 2)
    ).but(kept=2),
    "AffineGrid": row(
        lambda x: F.affine_grid(x, [len(x), 1, 4, 7], align_corners=False), (5, 2, 3), size=(4, 7)
    ).but(kept=(2, 3)),
}
