"""Fourier transforms for tinygrad, as products of matrices."""
# ruff: noqa: F821 — some names are those of the other files.

import math

from tinygrad import Tensor, dtypes


def _fourier(real, imaginary, n=None, axis=-1, norm="backward", inverse=False):
    """The Fourier transform, a product of matrices: the real and imaginary part."""
    n = real.shape[axis] if n is None else n
    dtype, cos, sin = _turns(n, n, n, inverse, real)
    real = _resized(real, n, axis)
    first, second = real @ cos, real @ sin
    if imaginary is not None:
        imaginary = _resized(imaginary, n, axis)
        first, second = first - imaginary @ sin, second + imaginary @ cos
    scale = _norm_factor(n, norm, inverse)
    return [_moved(part * scale, axis).cast(dtype) for part in (first, second)]


def _real_fourier(x, n=None, axis=-1, norm="backward"):
    """The first half of the Fourier transform of real numbers."""
    n = x.shape[axis] if n is None else n
    dtype, cos, sin = _turns(n, n, n // 2 + 1, False, x)
    x, scale = _resized(x, n, axis), _norm_factor(n, norm, False)
    return [_moved(x @ part * scale, axis).cast(dtype) for part in (cos, sin)]


def _inverse_real_fourier(real, imaginary, n=None, axis=-1, norm="backward"):
    """The inverse of `_real_fourier`."""
    n = 2 * real.shape[axis] - 2 if n is None else n
    half = n // 2 + 1
    dtype, cos, sin = _turns(n, half, n, True, real)
    # The elements that are left out are the conjugates of those between the ends.
    weights = [1.0 if i == 0 or 2 * i == n else 2.0 for i in range(half)]
    weights = Tensor(weights, dtype=cos.dtype).unsqueeze(1)
    weights = weights * _norm_factor(n, norm, True)
    y = _resized(real, half, axis) @ (cos * weights)
    if imaginary is not None:
        y = y - _resized(imaginary, half, axis) @ (sin * weights)
    return _moved(y, axis).cast(dtype)


def _turns(n, rows, columns, inverse, x):
    """The dtype of x, and cosines and sines of the products of indices."""
    first = Tensor.arange(rows, dtype=dtypes.int64).unsqueeze(1)
    angles = (first * Tensor.arange(columns, dtype=dtypes.int64)) % n
    # Angles from -π to π.
    angles = (angles * 2 > n).where(angles - n, angles).cast(dtypes.float64)
    angles = (angles * (2 * math.pi / n)).contiguous()
    cos, sin = (
        y.cast(_wide(x).dtype).contiguous() for y in (_cos(angles), angles.sin())
    )
    return x.dtype, cos, sin if inverse else -sin


def _resized(x, n, axis):
    """x with `axis` moved to the end, and cut or padded with zeros to n elements."""
    order = [i for i in range(x.ndim) if i != axis % x.ndim] + [axis % x.ndim]
    x = _wide(x).permute(order)
    widths = [(0, 0)] * (x.ndim - 1) + [(0, n - x.shape[-1])]
    return x.pad(widths)


def _moved(x, axis):
    """x with its last axis moved to `axis`."""
    order = list(range(x.ndim - 1))
    order.insert(axis % x.ndim, x.ndim - 1)
    return x.permute(order)


def _norm_factor(n, norm, inverse):
    """The factor of a transform of n elements."""
    if norm == "ortho":
        return n**-0.5
    return 1 / n if (norm == "forward") != inverse else 1.0
