"""Extremes and orders of elements that keep NaN, which tinygrad's own ones lose."""
# ruff: noqa: F821 — some names are those of the other files.

import math

from tinygrad import Tensor, dtypes


def _maximum(x, y):
    """The larger element; NaN if one of them is NaN."""
    return _isnan(y).where(y, x.maximum(y))


def _minimum(x, y):
    """The smaller element; NaN if one of them is NaN."""
    return _isnan(y).where(y, x.minimum(y))


def _max(x, axis=None, keepdim=False):
    """The largest element; NaN if one of them is NaN."""
    return _isnan(x).any(axis, keepdim).where(math.nan, x.max(axis, keepdim))


def _min(x, axis=None, keepdim=False):
    """The smallest element; NaN if one of them is NaN."""
    return _isnan(x).any(axis, keepdim).where(math.nan, x.min(axis, keepdim))


def _argmax(x, axis=None, keepdim=False):
    """The index of the first maximum; NaN counts as the maximum."""
    return _first_nan(x, axis, keepdim, x.argmax(axis, keepdim))


def _argmin(x, axis=None, keepdim=False):
    """The index of the first minimum; NaN counts as the minimum."""
    return _first_nan(x, axis, keepdim, x.argmin(axis, keepdim))


def _first_nan(x, axis, keepdim, otherwise):
    """The index of the first NaN; without one `otherwise`."""
    unsure = _isnan(x)
    first = unsure.cast(dtypes.int8).argmax(axis, keepdim)
    return unsure.any(axis, keepdim).where(first, otherwise)


def _sort(x, axis, descending=False):
    """The elements in order, in memory; NaN counts as the largest."""
    x = _stored(x)
    unsure = _isnan(x)
    n, count = x.shape[axis], unsure.sum(axis, keepdim=True)
    y = unsure.where(math.inf, x).sort(axis, descending)[0]
    place = _along(Tensor.arange(n), axis, x.ndim)
    last = place < count if descending else place >= n - count
    return last.where(math.nan, y).contiguous()


def _argsort(x, axis, descending=False):
    """The indices of `_sort`, in memory; equal elements keep their order."""
    x = _stored(x)
    unsure = _isnan(x)
    order = unsure.where(math.inf, x).argsort(axis, descending)
    # NaN and infinity were equal.
    late = unsure.cast(dtypes.int8).gather(axis, order)
    return order.gather(axis, late.argsort(axis, descending)).contiguous()


def _cumsum(x, axis):
    """The sums up to each element along `axis`.

    x lies in memory: a fused kernel would compute it again for each sum.
    """
    return _stored(x).cumsum(axis).cast(x.dtype)


def _cumprod(x, axis):
    """The products up to each element along `axis`."""
    return _stored(x).cumprod(axis).cast(x.dtype)
