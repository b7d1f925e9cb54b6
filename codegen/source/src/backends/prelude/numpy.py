"""Functions that NumPy lacks. A file contains those that it calls."""

import math

import numpy as np


def _erf(x):
    """The error function: exact in float64, otherwise a rational approximation."""
    if x.dtype == np.float64:
        return np.vectorize(math.erf, otypes=[np.float64])(x)[()]
    y = np.clip(x.astype(np.float32), -4, 4)
    square = y * y
    numerator = y * np.polyval(_ERF_NUMERATOR, square)
    return (numerator / np.polyval(_ERF_DENOMINATOR, square)).astype(x.dtype)


_ERF_NUMERATOR = np.array(
    [
        -2.72614225801306e-10,
        2.77068142495902e-08,
        -2.10102402082508e-06,
        -5.69250639462346e-05,
        -7.34990630326855e-04,
        -2.95459980854025e-03,
        -1.60960333262415e-02,
    ],
    dtype=np.float32,
)

_ERF_DENOMINATOR = np.array(
    [
        -1.45660718464996e-05,
        -2.13374055278905e-04,
        -1.68282697438203e-03,
        -7.37332916720468e-03,
        -1.42647390514189e-02,
    ],
    dtype=np.float32,
)


def _sigmoid(x):
    """The logistic function, without overflow."""
    t = np.exp(-np.abs(x))
    return np.where(x >= 0, np.ones_like(t), t) / (1 + t)


def _cholesky(x):
    """The Cholesky factor; NaN where x is not positive definite."""
    return _each_matrix(np.linalg.cholesky, np.tril(np.full_like(x, np.nan)), x)


def _solve(a, b):
    """The solution of a @ x = b; NaN where a is singular."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = np.broadcast_to(a, batch + a.shape[-2:])
    b = np.broadcast_to(b, batch + b.shape[-2:])
    return _each_matrix(np.linalg.solve, np.full_like(b, np.nan), a, b)


def _inverse(x):
    """The inverse; NaN where x is singular."""
    return _each_matrix(np.linalg.inv, np.full_like(x, np.nan), x)


def _each_matrix(function, failed, *arrays):
    """function(*arrays); of matrices for which it raises, those of `failed`."""
    try:
        return function(*arrays)
    except np.linalg.LinAlgError:
        if failed.ndim == 2:
            return failed
    for i in range(len(failed)):
        failed[i] = _each_matrix(function, failed[i], *(x[i] for x in arrays))
    return failed


def _of_finite(function, x, triangle=None, **options):
    """function(x); of matrices with NaN or infinities, for which LAPACK fails, NaN.

    `triangle` has the elements that the function reads, if not all.
    """
    finite = np.isfinite(x if triangle is None else triangle).all((-2, -1))
    if finite.all():
        return function(x, **options)
    results = function(np.where(finite[..., None, None], x, 0), **options)
    for part in results if isinstance(results, tuple) else [results]:
        part[~finite] = np.nan
    return results


def _triangular_solve(a, b, lower, transposed=False, unit_diagonal=False):
    """The solution of a @ x = b by substitution, of a triangle of a."""
    if transposed:
        a, lower = np.swapaxes(a, -2, -1), not lower
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.empty(batch + b.shape[-2:], dtype=b.dtype)
    n = a.shape[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        for i in range(n) if lower else reversed(range(n)):
            known = slice(0, i) if lower else slice(i + 1, n)
            rest = b[..., i, :] - (a[..., i, None, known] @ x[..., known, :])[..., 0, :]
            x[..., i, :] = rest if unit_diagonal else rest / a[..., i, i, None]
    return x


def _sum_to(x, shape):
    """Sums x to `shape`: the transpose of broadcasting from `shape`."""
    new = x.ndim - len(shape)
    repeated = [i for i, n in enumerate(shape, new) if n == 1 and x.shape[i] != 1]
    total = np.sum(x, axis=(*range(new), *repeated), dtype=_accumulator(x.dtype))
    return total.astype(x.dtype).reshape(shape)


def _accumulator(dtype):
    """The dtype in which sums of this dtype are accumulated."""
    return np.float32 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def _grouped_matmul(x, w, group):
    """The product of each row of x with the matrix of its group."""
    product = np.zeros((len(x), w.shape[2]), x.dtype)
    wide = _accumulator(x.dtype)
    for i, matrix in enumerate(w):
        rows = np.flatnonzero(group == i)
        product[rows] = x[rows].astype(wide) @ matrix.astype(wide)
    return product


def _grouped_outer(x, y, group, groups):
    """The sums over each group's rows of the outer products of x and y."""
    sums = np.zeros((groups, x.shape[1], y.shape[1]), x.dtype)
    wide = _accumulator(x.dtype)
    for i in range(groups):
        rows = np.flatnonzero(group == i)
        sums[i] = x[rows].astype(wide).T @ y[rows].astype(wide)
    return sums


def _broadcast(x, shape, axes):
    """Broadcasts x to `shape`; its axes become `axes` of the result."""
    axes = [a % len(shape) for a in axes]
    x = np.transpose(x, np.argsort(axes))
    expanded = [1] * len(shape)
    for axis, n in zip(sorted(axes), x.shape):
        expanded[axis] = n
    return np.broadcast_to(x.reshape(expanded), shape)


def _iota(shape, axis, dtype):
    """0, 1, 2, … along `axis` of `shape`."""
    column = [1] * len(shape)
    column[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis]).astype(dtype).reshape(column), shape)


def _pad(x, value, padding):
    """Pads each axis by (low, high, interior); negative numbers crop."""
    shape = [
        n + max(n - 1, 0) * interior for n, (_, _, interior) in zip(x.shape, padding)
    ]
    y = np.full(shape, value, dtype=x.dtype)
    y[tuple(slice(None, None, interior + 1) for _, _, interior in padding)] = x
    if padding:
        pads = [(max(low, 0), max(high, 0)) for low, high, _ in padding]
        y = np.pad(y, pads, constant_values=value)
    crops = [(max(-low, 0), max(-high, 0)) for low, high, _ in padding]
    return y[tuple(slice(low, n - high) for n, (low, high) in zip(y.shape, crops))]


def _windows(x, axes, sizes, strides=None, dilations=None):
    """Sliding windows over `axes`, which become window positions; taps come last."""
    ones = (1,) * len(sizes)
    strides, dilations = strides or ones, dilations or ones
    spans = tuple(by * (size - 1) + 1 for size, by in zip(sizes, dilations))
    # `sliding_window_view` does not support floats of 8 bits.
    bits = x.view(np.uint8) if x.dtype.itemsize == 1 else x
    y = np.lib.stride_tricks.sliding_window_view(bits, spans, axes).view(x.dtype)
    positions = [slice(None)] * x.ndim
    for axis, by in zip(axes, strides):
        positions[axis] = slice(None, None, by)
    return y[(*positions, *(slice(None, None, by) for by in dilations))]


def _skew(x, axes, taps, shifts):
    """Shifts each of `axes` by the index along one of `taps`, times one of `shifts`."""
    # `as_strided` does not support floats of 8 bits.
    bits = x.view(np.uint8) if x.dtype.itemsize == 1 else x
    shape, strides, first = list(x.shape), list(x.strides), [slice(None)] * x.ndim
    for axis, tap, shift in zip(axes, taps, shifts):
        reach = abs(shift) * max(x.shape[tap] - 1, 0)
        shape[axis] -= reach
        strides[tap] += shift * x.strides[axis]
        if shift < 0:
            first[axis] = slice(reach, None)
    y = np.lib.stride_tricks.as_strided(bits[tuple(first)], shape, strides)
    return y.view(x.dtype)


def _conv(
    x,
    weights,
    strides=None,
    dilations=None,
    low=None,
    high=None,
    interior=None,
    groups=1,
):
    """The cross-correlation of (batch, channels, …) with (filters, channels, …)."""
    count = x.ndim - 2
    zeros = (0,) * count
    padding = list(zip(low or zeros, high or zeros, interior or zeros))
    if any(any(of) for of in padding):
        x = _pad(x, 0, [(0, 0, 0), (0, 0, 0), *padding])
    axes = tuple(range(2, x.ndim))
    windows = _windows(x, axes, weights.shape[2:], strides, dilations)
    taps = tuple(range(x.ndim, x.ndim + count))
    if groups == 1:
        y = np.tensordot(weights, windows, ((1, *axes), (1, *taps)))
        return np.moveaxis(y, 0, 1)
    filters, rest = weights.shape[0] // groups, math.prod(weights.shape[1:])
    positions = windows.shape[2 : x.ndim]
    columns = np.moveaxis(windows, taps, range(2, 2 + count))
    columns = columns.reshape(len(x), groups, rest, math.prod(positions))
    y = weights.reshape(groups, filters, rest) @ columns
    return y.reshape(len(x), groups * filters, *positions)


def _row_conv(x, weights, dilations=None, low=None, high=None):
    """The cross-correlation with few filters: copies windows of the last axis alone."""
    count = x.ndim - 2
    zeros = (0,) * count
    if low or high:
        pads = zip(low or zeros, high or zeros, zeros)
        x = _pad(x, 0, [(0, 0, 0), (0, 0, 0), *pads])
    filters, channels, *taps, last = weights.shape
    steps = dilations or (1,) * count
    if weights.shape == (1, 1, last) and steps == (1,) and x.shape[-1] > 1000:
        y = [np.correlate(signal, weights[0, 0]) for signal in x[:, 0]]
        return np.array(y, x.dtype).reshape(len(x), 1, x.shape[-1] - last + 1)
    windows = _windows(x, (-1,), (last,), dilations=steps[-1:])
    sizes = windows.shape[2:-1]
    windows = np.ascontiguousarray(np.moveaxis(windows, -1, 2))
    windows = windows.reshape(len(x), channels * last, *sizes)
    sizes = [n - (k - 1) * d for n, k, d in zip(sizes, (*taps, 1), steps)]

    def product(place):
        spans = [slice(i * d, i * d + n) for i, d, n in zip(place, steps, sizes)]
        rows = weights[(slice(None), slice(None), *place)].reshape(filters, -1)
        columns = windows[(slice(None), slice(None), *spans)]
        return rows @ columns.reshape(len(x), channels * last, math.prod(sizes))

    return sum(map(product, np.ndindex(*taps))).reshape(len(x), filters, *sizes)


def _fft_conv(x, weights, low=None, high=None):
    """The cross-correlation with long filters, by Fourier transforms."""
    count = x.ndim - 2
    if low or high:
        pads = zip(low or (0,) * count, high or (0,) * count)
        x = np.pad(x, [(0, 0), (0, 0), *pads])
    sizes, taps = x.shape[2:], weights.shape[2:]
    if count == 1 and sizes[0] > 16 * taps[0]:
        return _fft_conv_of_signals(x, weights)
    axes = tuple(range(2, x.ndim))
    lengths = [_fast_length(n) for n in sizes]
    with np.errstate(invalid="ignore", over="ignore"):
        left = np.fft.rfftn(x, lengths, axes)
        right = np.fft.rfftn(weights, lengths, axes).conj()
        if x.shape[1] == 1:
            products = left * right[:, 0]
        else:
            products = np.einsum("bc...,fc...->bf...", left, right)
        y = np.fft.irfftn(products, lengths, axes).astype(x.dtype, copy=False)
    y = y[(..., *(slice(n - k + 1) for n, k in zip(sizes, taps)))]
    # A transform spreads a number that is not finite over the whole result.
    return y if np.isfinite(y).all() else _conv(x, weights)


def _fft_conv_of_signals(x, weights):
    """The same for signals, of overlapping parts some times as long as the filters."""
    batch, channels, n = x.shape
    filters, _, taps = weights.shape
    step, positions = 8 * taps, n - taps + 1
    parts = -(-positions // step)
    x = np.pad(x, ((0, 0), (0, 0), (0, parts * step - positions)))
    x = np.moveaxis(_windows(x, (2,), (step + taps - 1,), (step,)), 2, 1)
    y = _fft_conv(x.reshape(batch * parts, channels, step + taps - 1), weights)
    y = np.moveaxis(y.reshape(batch, parts, filters, step), 1, 2)
    return y.reshape(batch, filters, parts * step)[..., :positions]


def _fast_length(n):
    """The smallest product of twos, threes and fives that is at least n."""
    return next(m for m in range(n, 2 * n) if 30**40 % m == 0)


def _scatter_add(x, indices, updates, axis):
    """x with each slice of `updates` added at its index along `axis`."""
    y = np.array(x)
    np.add.at(
        np.moveaxis(y, axis, 0), indices, _to_front(updates, axis % x.ndim, indices)
    )
    return y


def _to_front(updates, axis, indices):
    """Moves the axes of `indices`, which start at `axis`, to the front of `updates`."""
    count = np.ndim(indices)
    return np.moveaxis(updates, range(axis, axis + count), range(count))


def _scatter_add_along(x, indices, updates, axis):
    """x with each element of `updates` added at its index along `axis`."""
    y = np.array(x)
    np.add.at(y, _places(indices, axis), updates)
    return y


def _scatter_mul_along(x, indices, updates, axis):
    """x times each element of `updates` at its index along `axis`."""
    y = np.array(x)
    np.multiply.at(y, _places(indices, axis), updates)
    return y


def _scatter_max_along(x, indices, updates, axis):
    """The maximum of x and each element of `updates` at its index along `axis`."""
    y = np.array(x)
    np.maximum.at(y, _places(indices, axis), updates)
    return y


def _scatter_min_along(x, indices, updates, axis):
    """The minimum of x and each element of `updates` at its index along `axis`."""
    y = np.array(x)
    np.minimum.at(y, _places(indices, axis), updates)
    return y


def _places(indices, axis):
    """The index of each element, which is that of `indices` along `axis`."""
    index = list(np.indices(indices.shape, sparse=True))
    index[axis] = indices
    return tuple(index)


def _stack(rows, shape, dtype):
    """Stacks rows along a new first axis; without rows, an empty array of `shape`."""
    return np.stack(rows) if rows else np.empty(shape, dtype)


def _slice_update(x, slices, update):
    """x with the elements at `slices` replaced by `update`."""
    y = np.array(x)
    y[slices] = update
    return y


def _dynamic_slice(x, starts, sizes):
    """The block of shape `sizes` at `starts`, clamped so that it lies inside x."""
    return x[_block(x, starts, sizes)]


def _dynamic_update_slice(x, update, starts):
    """x with `update` written at `starts`, clamped so that it lies inside x."""
    y = np.array(x)
    y[_block(x, starts, update.shape)] = update
    return y


def _block(x, starts, sizes):
    """The slices of a block, clamped into x; a negative start counts from the end."""
    starts = [int(i) + (n if i < 0 else 0) for i, n in zip(starts, x.shape)]
    starts = [min(max(i, 0), n - size) for i, n, size in zip(starts, x.shape, sizes)]
    return tuple(slice(i, i + size) for i, size in zip(starts, sizes))


def _sort(x, axis, descending):
    """Sorts along `axis`; NaN sorts as the largest."""
    y = np.sort(x, axis=axis)
    return np.flip(y, axis) if descending else y


def _argsort(x, axis, descending):
    """The indices that sort x along `axis`; equal elements keep their order."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    order = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(order, axis)
