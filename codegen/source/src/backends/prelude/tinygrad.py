"""Functions that tinygrad lacks. A file contains those that it calls."""
# ruff: noqa: F821 — some names are those of the other files.

import math

import tinygrad
from tinygrad import Tensor, dtypes


def _is_float(x):
    """Whether the elements are floats."""
    return dtypes.is_float(x.dtype)


def _listed(value):
    """One or several tensors as a list."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _custom_gradient(function, vjp, *operands):
    """Calls `function`; `vjp(operands, results, cotangents)` gives its gradient."""
    # A node for each operand, so that the derivative ends there.
    own = [x.contiguous_backward() for x in operands]
    results = function(*own)
    floats = [y for y in _listed(results) if _is_float(y)]
    places = list(dict.fromkeys(x.uop for x in own if x.device is not None))
    if not floats or not places:
        return results
    wide = max((y.dtype for y in floats), key=lambda dtype: dtype.itemsize)
    packed = Tensor.cat(*(y.cast(wide).flatten() for y in floats))

    def unpacked(whole):
        parts = whole.split([y.numel() for y in floats])
        return [p.reshape(y.shape).cast(y.dtype) for p, y in zip(parts, floats)]

    def backward(gradient, call):
        found = [None] * (len(call.src) - 1)
        varying = [x for x in own if _is_float(x)]
        seeds = unpacked(Tensor(gradient))
        for x, of_x in zip(varying, _listed(vjp(*own, *named, *seeds))):
            if x.device is not None:
                at = places.index(x.uop)
                found[at] = of_x if found[at] is None else found[at] + of_x
        return tuple(None if x is None else x.uop for x in found)

    lazy = tinygrad.function(lambda *_: packed, allow_implicit=True, grad_fxn=backward)
    parts = iter(unpacked(lazy(*own)))
    named = [next(parts) if _is_float(y) else y.detach() for y in _listed(results)]
    return tuple(named) if isinstance(results, (tuple, list)) else named[0]


def _checkpoint(function, *operands):
    """Calls `function`. The framework decides which values it computes again."""
    return function(*operands)


def _sum_to(x, shape):
    """Sums x to `shape`: the transpose of broadcasting from `shape`."""
    new = x.ndim - len(shape)
    repeated = [i for i, n in enumerate(shape, new) if n == 1 and x.shape[i] != 1]
    axes = (*range(new), *repeated)
    dtype = None if _is_float(x) else x.dtype
    return x.sum(axes, dtype=dtype).reshape(shape) if axes else x


def _broadcast(x, shape, axes):
    """Broadcasts x to `shape`; its axes become `axes` of the result."""
    axes = [a % len(shape) for a in axes]
    x = x.permute(sorted(range(len(axes)), key=axes.__getitem__))
    expanded = [1] * len(shape)
    for axis, n in zip(sorted(axes), x.shape):
        expanded[axis] = n
    return x.reshape(expanded).expand(shape)


def _expand_dims(x, axes):
    """x with new axes of one element."""
    rank = x.ndim + len(axes)
    new, sizes = [a % rank for a in axes], iter(x.shape)
    return x.reshape([1 if i in new else next(sizes) for i in range(rank)])


def _squeeze(x, axes):
    """x without `axes`, which have one element."""
    gone = [a % x.ndim for a in axes]
    return x.reshape([n for i, n in enumerate(x.shape) if i not in gone])


def _iota(shape, axis, dtype):
    """0, 1, 2, … along `axis` of `shape`."""
    return _along(Tensor.arange(shape[axis], dtype=dtype), axis, len(shape)).expand(
        shape
    )


def _along(x, axis, rank):
    """The elements of a vector along `axis` of an array of this rank."""
    axis = axis % rank
    return x.reshape([len(x) if i == axis else 1 for i in range(rank)])


def _pad(x, value, padding):
    """Pads each axis by (low, high, interior); negative numbers crop."""
    if x.numel() == 0:
        shape = [
            max(n + gap * max(n - 1, 0), 0) + low + high
            for n, (low, high, gap) in zip(x.shape, padding)
        ]
        return Tensor.full(shape, 1, dtype=x.dtype) * value
    number = 0 if isinstance(value, Tensor) else value
    inside = x.const_like(True, dtypes.bool)
    for axis, (_, _, gap) in enumerate(padding):
        if gap and x.shape[axis] > 1:
            x = _spread(x, axis, gap, number)
            inside = _spread(inside, axis, gap, False)
    widths = [(low, high) for low, high, _ in padding]
    if not isinstance(value, Tensor):
        return x.pad(widths, value=value)
    return inside.pad(widths).where(x.pad(widths), value)


def _spread(x, axis, gap, value):
    """x with `gap` elements of `value` between neighbours along `axis`."""
    n = x.shape[axis]
    widths = [(0, 0)] * (x.ndim + 1)
    widths[axis + 1] = (0, gap)
    x = x.unsqueeze(axis + 1).pad(widths, value=value).flatten(axis, axis + 1)
    return x.shrink_to(
        [n + gap * (n - 1) if i == axis else None for i in range(x.ndim)]
    )


def _windows(x, axes, sizes, strides=1, dilations=1):
    """Sliding windows over `axes`, which become window positions; taps come last."""
    if not axes:
        return x
    axes = [a % x.ndim for a in axes]
    rest = [i for i in range(x.ndim) if i not in axes]
    order = (*rest, *axes)
    taps = range(x.ndim, x.ndim + len(axes))
    windows = x.permute(order)._pool(tuple(sizes), strides, dilations)
    return windows.permute(*(order.index(i) for i in range(x.ndim)), *taps)


def _skew(x, axes, taps, shifts):
    """Shifts each of `axes` by the index along one of `taps`, times one of `shifts`."""
    for own, by, shift in zip(axes, taps, shifts):
        axis, tap = own % x.ndim, by % x.ndim
        reach = abs(shift) * max(x.shape[tap] - 1, 0)
        count = x.shape[axis] - reach
        first = _along(Tensor.arange(count), axis, x.ndim)
        steps = _along(Tensor.arange(x.shape[tap]), tap, x.ndim)
        places = first + steps * shift + (reach if shift < 0 else 0)
        shape = [count if i == axis else n for i, n in enumerate(x.shape)]
        x = _stored(x).gather(axis, places.expand(shape))
    return x


def _conv(
    x,
    weights,
    bias=None,
    strides=1,
    dilations=1,
    low=None,
    high=None,
    interior=None,
    groups=1,
):
    """The cross-correlation of (batch, channels, …) with (filters, channels, …)."""
    zeros = (0,) * (x.ndim - 2)
    low, high, interior = low or zeros, high or zeros, interior or zeros
    if any(interior):
        x = _pad(x, 0, [(0, 0, 0), (0, 0, 0), *((0, 0, gap) for gap in interior)])
    pads = [(0, 0), (0, 0), *zip(low, high)]
    if x.ndim == 2:
        x, weights = x.unsqueeze(2), weights.unsqueeze(2)
        return x.conv2d(weights, bias, groups).squeeze(2)
    return x.pad(pads).conv2d(weights, bias, groups, strides, dilations)


def _max_pool(x, sizes, strides=1, dilations=1, low=None, high=None):
    """The maximum of each window over the last axes, which are padded with -inf."""
    zeros = (0,) * len(sizes)
    pads = [(0, 0)] * (x.ndim - len(sizes)) + list(zip(low or zeros, high or zeros))
    windows = x.pad(pads, value=x.dtype.min)._pool(tuple(sizes), strides, dilations)
    return _max(windows, tuple(range(-len(sizes), 0)))


def _grouped_matmul(x, w, group):
    """The product of each row of x with the matrix of its group, read from memory."""
    group = group.cast(dtypes.int32).clip(0, w.shape[0] - 1)
    return (x.unsqueeze(1) @ _stored(w)[group]).squeeze(1)


def _grouped_outer(x, y, group, groups):
    """The sums over each group's rows of the outer products of x and y."""
    group = group.cast(dtypes.int32).clip(0, groups - 1)
    own = group.eq(Tensor.arange(groups).unsqueeze(1)).cast(x.dtype)
    return x.T * own.unsqueeze(1) @ y


def _index(indices):
    """Indices in a signed dtype that holds the size of any axis."""
    if indices.dtype in (dtypes.uint32, dtypes.uint64):
        return indices.cast(dtypes.int64)
    return indices.cast(dtypes.int32) if indices.dtype.itemsize < 4 else indices


def _stored(x):
    """x in memory, where `contiguous` alone does not place constants."""
    return x.clone() if x.device is None and x.numel() else x.contiguous()


def _take(x, indices, axis):
    """The slices of x at `indices` along `axis`.

    x lies in memory: a fused kernel would compute it again for each index.
    """
    return _stored(x)[(slice(None),) * (axis % x.ndim) + (_index(indices),)]


def _take_along(x, indices, axis):
    """The elements of x at `indices` along `axis`; negative ones count from the end."""
    indices = _index(indices)
    indices = (indices < 0).where(indices + x.shape[axis], indices)
    return _stored(x).gather(axis, indices)


def _scatter_add(x, indices, updates, axis):
    """x with each slice of `updates` added at its index along `axis`."""
    axis = axis % x.ndim
    front = range(axis, axis + indices.ndim)
    rest = [i for i in range(updates.ndim) if i not in front]
    rows = (
        _stored(updates)
        .permute((*front, *rest))
        .reshape(indices.numel(), *(updates.shape[i] for i in rest))
    )
    at = _index(indices).flatten()
    at = (at < 0).where(at + x.shape[axis], at)
    own = at.unsqueeze(1).eq(Tensor.arange(x.shape[axis]))
    own = own.reshape(*own.shape, *[1] * len(rest))
    total = own.where(rows.unsqueeze(1), 0).sum(0, dtype=_summed(x)).cast(x.dtype)
    order = list(range(1, x.ndim))
    order.insert(axis, 0)
    return x + total.permute(order)


def _summed(x):
    """The dtype in which elements of x are summed."""
    return dtypes.float32 if x.dtype in (dtypes.half, dtypes.bfloat16) else x.dtype


def _scatter_along(x, indices, updates, axis, reduce):
    """x combined with each element of `updates` at its index along `axis`."""
    indices = _index(indices)
    indices = (indices < 0).where(indices + x.shape[axis], indices)
    return x.scatter_reduce(axis, indices, _stored(updates), reduce).cast(x.dtype)


def _scatter_extremum(x, indices, updates, axis, reduce):
    """The extremum of x and `updates`; elements that tie share the gradient."""

    def combined(x, updates):
        y = _scatter_along(x, indices, updates, axis, reduce)
        if not _is_float(x):
            return y
        first, second = (_isnan(z).cast(dtypes.int32) for z in (x, updates))
        found = _scatter_along(first, indices, second, axis, "sum") > 0
        return found.where(math.nan, y)

    def backward(x, updates, result, gradient):
        first = x.eq(result).cast(x.dtype)
        second = updates.eq(_take_along(result, indices, axis)).cast(x.dtype)
        share = gradient / _scatter_along(first, indices, second, axis, "sum")
        return first * share, second * _take_along(share, indices, axis)

    return _custom_gradient(combined, backward, x, updates)


def _stack(rows, shape, dtype):
    """Stacks rows along a new first axis; without rows, an empty array of `shape`."""
    return Tensor.stack(rows) if rows else Tensor.zeros(shape, dtype=dtype)


def _slice_update(x, slices, update):
    """x with the elements at `slices` replaced by `update`."""
    if slices[0] is ...:
        slices = (slice(None),) * (x.ndim + 1 - len(slices)) + slices[1:]
    inside = x.const_like(True, dtypes.bool)
    for axis, (own, n) in enumerate(zip(slices, x.shape)):
        places = range(n)[own]
        if not places:
            return x
        steps = _along(Tensor.arange(n), axis, x.ndim) - places[0]
        at = steps // places.step
        inside = inside & (steps % places.step).eq(0) & (at >= 0) & (at < len(places))
        update = _take(update, at.flatten().clip(0, len(places) - 1), axis)
    return inside.where(update, x)


def _dynamic_slice(x, starts, sizes):
    """The block of shape `sizes` at `starts`, clamped so that it lies inside x."""
    for axis, (start, size) in enumerate(zip(starts, sizes)):
        first = _first(start, x.shape[axis], size)
        x = _take(x, Tensor.arange(size) + first, axis)
    return x


def _dynamic_update_slice(x, update, starts):
    """x with `update` written at `starts`, clamped so that it lies inside x."""
    if update.numel() == 0:
        return x
    inside = x.const_like(True, dtypes.bool)
    for axis, (start, n, size) in enumerate(zip(starts, x.shape, update.shape)):
        at = _along(Tensor.arange(n), axis, x.ndim) - _first(start, n, size)
        inside = inside & (at >= 0) & (at < size)
        update = _take(update, at.flatten().clip(0, size - 1), axis)
    return inside.where(update, x)


def _first(start, n, size):
    """Where a block begins, clamped into n; negative starts count from the end."""
    if not isinstance(start, Tensor):
        return min(max(start + n if start < 0 else start, 0), n - size)
    at = _index(start).detach()
    return (at < 0).where(at + n, at).clip(0, n - size)


def _threefry(key, high, low):
    """Encrypts counters of two words: Threefry-2x32-20 (Salmon et al. 2011)."""
    wide = [word.cast(dtypes.uint64) for word in (key[1], key[0], low, high)]
    x = (wide[2] << 32 | wide[3]).threefry(wide[0] << 32 | wide[1])
    return x.cast(dtypes.uint32), (x >> 32).cast(dtypes.uint32)


def _key_split(key, count=2):
    """`count` new keys derived from `key`, as rows."""
    low = Tensor.arange(count, dtype=dtypes.uint32)
    return Tensor.stack(*_threefry(key, low.const_like(0), low), dim=1)


def _key_fold(key, data):
    """A new key derived from `key` and a number."""
    low = Tensor([data], dtype=dtypes.uint32)
    return Tensor.cat(*_threefry(key, low.const_like(0), low))


def _random_bits(key, shape, dtype):
    """Uniform unsigned integers."""
    counts = Tensor.arange(math.prod(shape), dtype=dtypes.uint32)
    high, low = _threefry(key, counts.const_like(0), counts)
    if dtype.itemsize == 8:
        return (high.cast(dtypes.uint64) << 32 | low.cast(dtypes.uint64)).reshape(shape)
    return (high ^ low).cast(dtype).reshape(shape)


def _uniform(key, shape, dtype, low=0.0, high=1.0):
    """Uniform floats in [low, high)."""
    digits = dtypes.finfo(dtype)[1]
    width = 8 if digits < 8 else dtype.bitsize
    bits = _random_bits(key, shape, getattr(dtypes, f"uint{width}"))
    unit = (bits >> (width - digits)).cast(dtypes.float64) * 2.0**-digits
    low, high = Tensor(low, dtype=dtype), Tensor(high, dtype=dtype)
    if width < 32:
        return (unit.cast(dtype) * (high - low) + low).maximum(low)
    scaled = unit * (high - low).cast(dtypes.float64) + low.cast(dtypes.float64)
    return scaled.cast(dtype).maximum(low)


def _normal(key, shape, dtype):
    """Standard normal floats, from uniform floats by the inverse error function."""
    least = 2.0 ** -(dtypes.finfo(dtype)[1] + 1) - 1
    u = _uniform(key, shape, dtype, least, 1.0)
    return (math.sqrt(2) * _erf_inv(u.cast(dtypes.float64))).cast(dtype)
