"""Reads and writes at indices, for MLX."""
# ruff: noqa: F821 — some names are those of the other files.

import mlx.core as mx


def _within(indices, x, axis):
    """Indices that end at the ends of an axis of x, as MLX reads any memory."""
    n = x.shape[axis]
    least = 0 if mx.issubdtype(indices.dtype, mx.unsignedinteger) else -n
    return mx.clip(mx.stop_gradient(indices), least, max(n - 1, 0))


def _take(x, indices, axis):
    """The slices of x at `indices` along `axis`; x may be empty."""
    if x.size and indices.size:
        return mx.take(x, mx.stop_gradient(indices), axis=axis)
    axis = axis % x.ndim
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return mx.zeros(shape, dtype=x.dtype)


def _take_along(x, indices, axis):
    """The elements of x at `indices` along `axis`; x may be empty."""
    if x.size and indices.size:
        return mx.take_along_axis(x, mx.stop_gradient(indices), axis=axis)
    return mx.zeros(indices.shape, dtype=x.dtype)


def _scatter_add(x, indices, updates, axis):
    """x with each slice of `updates` added at its index along `axis`."""
    if updates.size == 0:
        return x
    axis = axis % x.ndim
    front = range(axis, axis + indices.ndim)
    rest = [i for i in range(updates.ndim) if i not in front]
    updates = mx.transpose(updates, (*front, *rest))
    y = mx.moveaxis(x, axis, 0).at[mx.stop_gradient(indices)].add(updates)
    return mx.moveaxis(y, 0, axis)


def _scatter_add_along(x, indices, updates, axis):
    """x with each element of `updates` added at its index along `axis`."""
    return x.at[_places(indices, axis)].add(updates) if updates.size else x


def _scatter_mul_along(x, indices, updates, axis):
    """x times each element of `updates` at its index along `axis`."""
    # MLX has no gradient of it.
    places = _places(indices, axis)

    def backward(operands, gradient, _):
        x, updates = operands
        zeros = (x == 0).astype(x.dtype).at[places].add((updates == 0).astype(x.dtype))
        factors = [mx.where(v == 0, 1, v) for v in (x, updates)]
        product = gradient * _scatter_mul_along(factors[0], indices, factors[1], axis)
        # The product of the other factors is 0 if another one is 0.
        x_gradient = mx.where(zeros == (x == 0), product / factors[0], 0)
        others = zeros[places] == (updates == 0)
        return x_gradient, mx.where(others, product[places] / factors[1], 0)

    scatter = mx.custom_function(lambda x, updates: x.at[places].multiply(updates))
    scatter.vjp(backward)
    return scatter(x, updates) if updates.size else x


def _scatter_max_along(x, indices, updates, axis):
    """The maximum of x and each element of `updates` at its index along `axis`."""
    return _extremum(x, indices, updates, axis, "maximum")


def _scatter_min_along(x, indices, updates, axis):
    """The minimum of x and each element of `updates` at its index along `axis`."""
    return _extremum(x, indices, updates, axis, "minimum")


def _extremum(x, indices, updates, axis, name):
    """The extremum of x and `updates`; elements that tie share the gradient."""
    places = _places(indices, axis)

    def backward(operands, gradient, result):
        x, updates = operands
        first = (x == result).astype(x.dtype)
        second = (updates == result[places]).astype(x.dtype)
        share = gradient / first.at[places].add(second)
        return first * share, second * share[places]

    def combined(x, updates):
        if not _is_float(x):
            return getattr(x.at[places], name)(updates)
        # MLX compares floats and loses NaN.
        top = 2 ** (8 * x.dtype.size - 1) - 1
        last = top if name == "maximum" else -top - 1
        y = getattr(_ranks(x, last).at[places], name)(_ranks(updates, last))
        return mx.where(y < 0, y ^ top, y).view(x.dtype)

    scatter = mx.custom_function(combined)
    scatter.vjp(backward)
    return scatter(x, updates) if updates.size else x


def _ranks(x, last):
    """Integers in the order of the floats x, whose bits they are; `last` for NaN."""
    bits = x.view({2: mx.int16, 4: mx.int32, 8: mx.int64}[x.dtype.size])
    top = max(last, -last - 1)
    return mx.where(mx.isnan(x), last, mx.where(bits < 0, bits ^ top, bits))


def _places(indices, axis):
    """The index of each element, which is that of `indices` along `axis`."""
    places = []
    for i, n in enumerate(indices.shape):
        column = [1] * indices.ndim
        column[i] = n
        places.append(mx.arange(n).reshape(column))
    places[axis] = mx.stop_gradient(indices).astype(mx.int64)
    return tuple(places)


def _slice_update(x, slices, update):
    """x with the elements at `slices` replaced by `update`."""
    y = mx.array(x)
    y[slices] = update
    return y


def _dynamic_slice(x, starts, sizes):
    """The block of shape `sizes` at `starts`, clamped so that it lies inside x."""
    if 0 in sizes or not sizes:
        return mx.zeros(sizes, dtype=x.dtype) if sizes else x
    return mx.slice(x, _first(x, starts, sizes), tuple(range(x.ndim)), sizes)


def _dynamic_update_slice(x, update, starts):
    """x with `update` written at `starts`, clamped so that it lies inside x."""
    if update.size == 0 or not update.shape:
        return x if update.size == 0 else update
    start = _first(x, starts, update.shape)
    return mx.slice_update(x, update, start, tuple(range(x.ndim)))


def _first(x, starts, sizes):
    """Where a block begins, clamped into x; negative starts count from the end."""
    first = []
    for start, n, size in zip(starts, x.shape, sizes):
        at = mx.stop_gradient(mx.array(start)).astype(mx.int32)
        first.append(mx.clip(mx.where(at < 0, at + n, at), 0, n - size))
    return mx.stack(first)
