"""Further settings of blocks, and shapes at their edges: a single element, a batch of one, windows
as large as what they slide over, more positions than elements, empty arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .attention import separate
from .images import maxima
from .reductions import quantile, weighted_density
from .row import LABELS, M, Row, row

F = torch.nn.functional
WEIGHTS = [0.5, 2.0, 1.0, 3.0]


def conv(axes: int, *shape: int, twice: bool = True, **settings: Any) -> Row:
    """A convolution of torch's module with these settings."""
    functions = (F.conv1d, F.conv2d, F.conv3d)
    names = ("stride", "padding", "dilation", "groups")
    own = {n: settings[n] for n in names if n in settings}
    mode = settings.get("padding_mode", "zeros")

    def function(x: Any, w: Any, b: Any = None) -> Any:
        if mode == "zeros":
            return functions[axes - 1](x, w, b, **own)
        padding = own["padding"]
        sides = [padding] * axes if isinstance(padding, int) else list(padding)
        pads = [n for side in reversed(sides) for n in (side, side)]
        rest = {n: v for n, v in own.items() if n != "padding"}
        return functions[axes - 1](F.pad(x, pads, mode), w, b, **rest)

    return row(function, shape, **settings).but(twice=twice)


def transposed(axes: int, *shape: int, **settings: Any) -> Row:
    functions = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
    names = ("stride", "padding", "output_padding", "dilation", "groups")
    own = {n: settings[n] for n in names if n in settings}
    return row(lambda x, w, b: functions[axes - 1](x, w, b, **own), shape, **settings)


def pooled(function: Callable[..., Any], *shape: int, **settings: Any) -> Row:
    own = {n: v for n, v in settings.items() if n != "kernel_size"}
    return row(lambda x: function(x, settings["kernel_size"], **own), shape, **settings)


def resized(*shape: int, **settings: Any) -> Row:
    own = {"scale_factor" if n == "scale" else n: v for n, v in settings.items()}
    return row(lambda x: F.interpolate(x, **own), shape, **settings)


def embedded(*shape: int, **settings: Any) -> Row:
    """An embedding with further settings, which in torch change the table itself."""
    own = {n: v for n, v in settings.items() if n not in ("num_embeddings", "dimension")}
    table = {"num_embeddings": 4, "dimension": 5} | settings
    found = row(lambda i, w: F.embedding(i, w.clone(), **own), shape, **table)
    return found.but(twice=False)


def bagged(*shape: int, **settings: Any) -> Row:
    table = {"num_embeddings": 4, "dimension": 5} | settings
    found = row(lambda i, w: F.embedding_bag(i, w.clone(), **settings), shape, **table)
    return found.but(twice=False)


def along(norm: Callable[..., Any], axes: tuple[int, ...]) -> Callable[..., Any]:
    """A normalisation of the last axes, over these ones."""
    last = tuple(range(-len(axes), 0))
    return lambda x, *own: norm(x.movedim(axes, last), *own).movedim(last, axes)


def layer_normed(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, w.shape, w, b)


def rms_normed(x: Any, w: Any) -> Any:
    return F.rms_norm(x, w.shape, w, 1e-5)


def grouped(x: Any, w: Any, b: Any) -> Any:
    return F.group_norm(x, len(w), w, b)


ATTENDED = ("context", "value")
ALSO: dict[str, tuple[Row, ...]] = {
    "MultiHeadAttention": (
        row(separate(2), (2, 3, 4), (2, 5, 6), (2, 5, 3), heads=2, return_weights=True).but(
            optional=ATTENDED
        ),
        row(
            separate(1, zeros=True),
            (2, 3, 4),
            (2, 1, 6),
            (2, 1, 3),
            heads=1,
            add_bias_kv=True,
            add_zero_attn=True,
            return_weights=True,
        ).but(optional=ATTENDED),
    ),
    "Quantile": (
        row(
            lambda x: torch.stack([quantile(x, q) for q in (0.0, 0.3, 1.0)]),
            M,
            q=[0.0, 0.3, 1.0],
            axis=-1,
        ),
        row(lambda x: quantile(x.T, 0.5)[None, None], (4, 1), q=[0.5], axis=0, keepdim=True),
    ),
    "Histogram": (
        row(weighted_density, M, M, bins=[0.0, 0.25, 0.5, 1.0], density=True).but(
            optional=("weights",)
        ),
    ),
    "Conv1d": (
        conv(1, 1, 1, 1, filters=1, kernel_size=1),
        conv(1, 2, 3, 5, filters=2, kernel_size=5),
        conv(1, 2, 2, 9, filters=4, kernel_size=3, dilation=2, stride=2, groups=2),
        conv(1, 2, 2, 6, filters=3, kernel_size=3, padding=2, padding_mode="circular"),
        conv(1, 1, 1, 1500, filters=1, kernel_size=90),
    ),
    "Conv2d": (
        conv(2, 1, 1, 1, 1, filters=1, kernel_size=1),
        conv(2, 1, 2, 4, 3, filters=3, kernel_size=(4, 3)),
        conv(2, 2, 4, 6, 7, filters=4, kernel_size=3, stride=(2, 3), padding=(1, 2), groups=4),
        conv(2, 2, 3, 8, 7, filters=2, kernel_size=(2, 3), dilation=(3, 2), padding=1),
        conv(2, 2, 3, 5, 4, filters=2, kernel_size=3, padding="same", use_bias=False),
        conv(2, 2, 3, 1, 1, filters=2, kernel_size=3, padding=1),
        conv(2, 2, 3, 5, 6, filters=2, kernel_size=3, padding=(2, 1), padding_mode="reflect"),
        conv(2, 2, 3, 5, 6, filters=2, kernel_size=3, padding=2, padding_mode="replicate"),
        conv(2, 1, 1, 40, 36, filters=1, kernel_size=10, padding=3),
        conv(2, 0, 3, 5, 6, filters=2, kernel_size=3, twice=False),
    ),
    "Conv3d": (
        conv(3, 1, 1, 2, 2, 2, filters=1, kernel_size=2),
        conv(3, 2, 4, 3, 4, 5, filters=2, kernel_size=(1, 2, 3), stride=(1, 2, 1), groups=2).but(
            kept=4
        ),
    ),
    "ConvTranspose1d": (
        transposed(1, 1, 1, 1, filters=1, kernel_size=1),
        transposed(1, 2, 3, 4, filters=2, kernel_size=3, stride=3, output_padding=2, dilation=2),
    ),
    "ConvTranspose2d": (
        transposed(2, 1, 1, 1, 1, filters=2, kernel_size=(3, 2)),
        transposed(
            2,
            2,
            4,
            3,
            5,
            filters=4,
            kernel_size=3,
            stride=(2, 1),
            padding=1,
            groups=2,
            output_padding=(1, 0),
        ),
    ),
    "ConvTranspose3d": (
        transposed(3, 1, 2, 2, 1, 3, filters=1, kernel_size=(2, 1, 2), stride=2, padding=(1, 0, 0)),
    ),
    "MaxPool1d": (
        pooled(F.max_pool1d, 2, 3, 1, kernel_size=1),
        pooled(F.max_pool1d, 2, 3, 9, kernel_size=3, stride=2, padding=1, ceil_mode=True),
    ),
    "MaxPool2d": (
        pooled(F.max_pool2d, 1, 2, 3, 3, kernel_size=3),
        pooled(F.max_pool2d, 2, 3, 8, 7, kernel_size=2, stride=3, dilation=2, ceil_mode=True),
        pooled(F.max_pool2d, 2, 3, 6, 5, kernel_size=3, stride=1, padding=1),
    ),
    "AvgPool1d": (pooled(F.avg_pool1d, 2, 3, 5, kernel_size=4, stride=3, padding=2),),
    "AvgPool2d": (
        pooled(F.avg_pool2d, 1, 1, 2, 3, kernel_size=(2, 3)),
        pooled(F.avg_pool2d, 2, 3, 7, 6, kernel_size=3, padding=1, divisor_override=4),
        pooled(F.avg_pool2d, 2, 3, 7, 6, kernel_size=2, ceil_mode=True),
    ),
    "AdaptiveAvgPool": (
        row(lambda x: F.adaptive_avg_pool2d(x, 7), (2, 3, 4, 5), output_size=7),
        row(lambda x: F.adaptive_avg_pool1d(x, 1), (2, 3, 1), output_size=1),
        row(lambda x: F.adaptive_avg_pool2d(x, (2, None)), (2, 3, 4, 5), output_size=(2, None)),
    ),
    "AdaptiveMaxPool": (
        row(lambda x: maxima(x, -1, 5), (2, 3, 3), output_size=5),
        row(lambda x: x.amax((-2, -1), True), (2, 3, 4, 5), output_size=1),
        row(lambda x: maxima(x, -1, 3), (2, 3, 4, 5), output_size=(None, 3)),
    ),
    "Upsample": (
        resized(2, 3, 5, 4, size=(3, 9), mode="nearest-exact"),
        resized(2, 3, 5, size=7, mode="nearest"),
        resized(2, 3, 5, 4, size=(3, 7), mode="area"),
        resized(2, 3, 7, 6, size=(3, 4), mode="bilinear", antialias=True),
        resized(2, 3, 9, 8, scale=0.5, mode="bicubic", antialias=True),
        resized(2, 3, 5, 4, size=(8, 3), mode="bicubic", align_corners=True),
        resized(1, 1, 1, 1, size=(3, 2), mode="bicubic"),
        resized(2, 3, 2, 3, 4, scale=2.0, mode="trilinear"),
        resized(2, 3, 5, 4, scale=(2.0, 1.5)),
        resized(2, 3, 5, 4, scale=(0.5, 1.5), mode="bilinear"),
    ),
    "BatchNorm2d": (
        row(
            lambda x: F.batch_norm(x, None, None, training=True),
            (1, 3, 1, 4),
            use_scale=False,
            use_bias=False,
            track_running_stats=False,
        ),
        row(
            lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
            (2, 3, 1, 4),
            momentum=None,
        ),
    ),
    "InstanceNorm": (
        row(F.instance_norm, (2, 3, 6), track_running_stats=True).but(least=2),
        row(
            lambda x, w: F.instance_norm(x, weight=w),
            (2, 3, 4, 5),
            use_scale=True,
            track_running_stats=True,
            momentum=0.5,
        ),
    ),
    "GroupNorm": (
        row(grouped, (2, 3, 1), groups=3).but(kept=3, twice=False),
        row(lambda x, w, b: F.group_norm(x, 1, w, b), (1, 3, 2, 4), groups=1),
    ),
    "Embedding": (
        row(
            lambda i, w: F.embedding(i, w, padding_idx=1),
            (2, 3),
            num_embeddings=4,
            dimension=5,
            padding_idx=-3,
        ).but(twice=False),
        row(F.embedding, (), num_embeddings=3, dimension=1),
        embedded(2, 3, max_norm=1.0),
        embedded(2, 3, max_norm=0.8, norm_type=1.0, padding_idx=1, scale_grad_by_freq=True),
        embedded(scale_grad_by_freq=True),
    ),
    "EmbeddingBag": (
        row(
            lambda i, w: F.embedding_bag(i, w, mode="sum", padding_idx=1),
            (2, 3),
            num_embeddings=4,
            dimension=5,
            mode="sum",
            padding_idx=1,
        ).but(twice=False),
        row(
            lambda i, w: F.embedding_bag(i, w, mode="max"),
            (3, 1),
            num_embeddings=4,
            dimension=2,
            mode="max",
        ).but(twice=False),
        bagged(2, 3, max_norm=1.0, padding_idx=1),
        bagged(2, 3, mode="sum", scale_grad_by_freq=True, max_norm=0.7, norm_type=3.0),
        bagged(2, 3, mode="max", max_norm=0.9),
    ),
    "CrossEntropy": (
        row(lambda x, y: F.cross_entropy(x, y, reduction="none"), (1, 4), (1,)),
        row(
            lambda x, y: F.cross_entropy(x, y, reduction="none", label_smoothing=0.1),
            (3, 4, 2),
            (3, 2),
            label_smoothing=0.1,
            axis=1,
        ),
    ),
    "KLDivergence": (
        row(
            lambda x, y: F.kl_div(x, y, reduction="none", log_target=True),
            M,
            M,
            input_type="log_probs",
            target_type="log_probs",
        ),
    ),
    "MultiMargin": (
        row(
            lambda x, y: F.multi_margin_loss(
                x, y, 2, 0.5, torch.tensor(WEIGHTS, dtype=x.dtype), reduction="none"
            ),
            M,
            (3,),
            dtypes=LABELS,
            p=2.0,
            margin=0.5,
            weights=WEIGHTS,
        ).but(kept=4, twice=False),
    ),
    "MultiLabelSoftMargin": (
        row(
            lambda x, y: F.multilabel_soft_margin_loss(
                x, y, torch.tensor(WEIGHTS, dtype=x.dtype), reduction="none"
            ),
            M,
            M,
            weights=WEIGHTS,
        ).but(kept=4),
    ),
    "FFT": (
        row(lambda x: torch.fft.fft(x).real, (1,)),
        row(lambda x: torch.fft.fft(x).real, (2, 37)),
        row(lambda x: torch.fft.fft2(x).real, (3, 4, 6), axis=[-2, -1]),
        row(lambda x: torch.fft.fft(x, 5, 0, "ortho").real, (7, 2), n=5, axis=0, norm="ortho"),
    ),
    "InverseFFT": (
        row(lambda x: torch.fft.ifft(x, 6, norm="forward").real, (2, 4), n=6, norm="forward"),
    ),
    "RealFFT": (
        row(lambda x: torch.fft.rfft(x).real, (1,)),
        row(lambda x: torch.fft.rfft(x, 9).real, (2, 13), n=9),
    ),
    "InverseRealFFT": (row(lambda x: torch.fft.irfft(x, 7), (2, 4), n=7),),
    "Cholesky": (row(torch.linalg.cholesky, (1, 1)), row(torch.linalg.cholesky, (2, 0, 3, 3))),
    "Solve": (row(torch.linalg.solve, (1, 1), (1, 1)), row(torch.linalg.solve, (5, 5), (5, 1))),
    "Inverse": (row(torch.linalg.inv, (1, 1)), row(torch.linalg.inv, (2, 2, 4, 4))),
    "Det": (row(torch.linalg.det, (1, 1)), row(torch.linalg.det, (5, 5))),
    "LogDet": (row(torch.logdet, (1, 1)),),
    "MatrixPower": (
        row(lambda x: torch.linalg.matrix_power(x, 0) + 0 * x, (3, 3), n=0),
        row(lambda x: torch.linalg.matrix_power(x, 5), (2, 3, 3), n=5),
    ),
    "QR": (
        row(lambda x: tuple(torch.linalg.qr(x)), (1, 1)),
        row(lambda x: tuple(torch.linalg.qr(x)), (4, 4)),
    ),
    "Eigvalsh": (row(torch.linalg.eigvalsh, (1, 1)), row(torch.linalg.eigvalsh, (3, 5, 5))),
    "Sum": (row(lambda x: x.sum((0, 2)), (2, 3, 4), axis=(0, 2)), row(torch.sum, (0, 3))),
    "Mean": (row(lambda x: x.mean(0, keepdim=True), (1, 3), axis=0, keepdim=True),),
    "Cumsum": (row(lambda x: torch.cumsum(x, 0), (1,), axis=0),),
    "SegmentSum": (
        row(
            lambda x, i: x.new_zeros(2, x.shape[1]).index_add(0, i, x), (0, 2), (0,), num_segments=2
        ),
    ),
    "TopK": (row(lambda x: torch.topk(x, 1).values, (2, 1), k=1),),
    "MatrixMultiply": (
        row(torch.matmul, (4,), (4,)),
        row(torch.matmul, (1, 1), (1, 1)),
        row(torch.matmul, (2, 0), (0, 3)),
        row(torch.matmul, (3, 1, 2, 4), (5, 4, 1)),
    ),
    "Linear": (
        row(lambda x, w: x @ w, (4,), dimension=1, use_bias=False),
        row(lambda x, w, b: x @ w + b, (0, 4), dimension=2),
    ),
    "LayerNorm": (
        row(layer_normed, (2, 1)).but(twice=False),
        row(layer_normed, (2, 3, 4, 5), axis=(-3, -2, -1)),
        row(along(layer_normed, (1,)), (2, 3, 4), axis=1),
        row(along(layer_normed, (-1, 0)), (2, 3, 4), axis=(-1, 0)),
        row(lambda x, b: F.layer_norm(x, x.shape) + b, (3, 4), axis=(0, 1), use_scale=False),
    ),
    "RMSNorm": (
        row(rms_normed, (2, 3, 4), axis=(-2, -1)),
        row(along(rms_normed, (1,)), (2, 3, 4), axis=1),
    ),
    "Softmax": (
        row(lambda x: torch.softmax(x, 0), (1, 3), axis=0),
        row(lambda x: torch.softmax(x, 1), (2, 3, 4), axis=1),
    ),
}
