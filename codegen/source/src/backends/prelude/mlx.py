"""Functions that MLX lacks. A file contains those that it calls."""

import math

import mlx.core as mx


def _with_gradient(result, x, backward):
    """`result`, a function of x, with the gradient `backward(x, gradient)`."""
    found = mx.custom_function(lambda x: result)
    found.vjp(lambda x, gradient, _: backward(x, gradient))
    return found(x)


def _sign(x):
    """The sign; NaN of NaN."""
    return mx.where(mx.isnan(x), mx.stop_gradient(x), mx.sign(x))


def _nonempty(x, axes, value):
    """x, or if `axes` are empty, one row of `value`: MLX may hang without elements."""
    if x.size:
        return x
    axes = range(x.ndim) if axes is None else axes
    axes = [a % x.ndim for a in ((axes,) if isinstance(axes, int) else axes)]
    shape = [1 if i in axes and n == 0 else n for i, n in enumerate(x.shape)]
    return mx.full(shape, value, dtype=x.dtype)


def _wide(x):
    """x in the dtype in which its sums are accumulated."""
    return x.astype(mx.float32) if x.dtype in (mx.float16, mx.bfloat16) else x


def _sum(x, axes, keepdims, acc=None):
    """The sum over `axes`, which may be empty."""
    wide = _nonempty(_wide(x) if acc is None else x.astype(acc), axes, 0)
    return mx.sum(wide, axis=axes, keepdims=keepdims).astype(x.dtype)


def _mean(x, axes, keepdims):
    """The mean over `axes`, which may be empty."""
    wide = _nonempty(_wide(x), axes, mx.nan)
    return mx.mean(wide, axis=axes, keepdims=keepdims).astype(x.dtype)


def _sum_to(x, shape):
    """Sums x to `shape`: the transpose of broadcasting from `shape`."""
    new = x.ndim - len(shape)
    repeated = [i for i, n in enumerate(shape, new) if n == 1 and x.shape[i] != 1]
    axes = (*range(new), *repeated)
    return _sum(x, axes, False).reshape(shape) if axes else x


def _variance(x, axes, correction, keepdim):
    """The variance over `axes`, divided by the count minus `correction`."""
    wide = _wide(x)
    deviation = wide - _mean(wide, axes, True)
    total = _sum(deviation * deviation, axes, keepdim)
    axes = range(x.ndim) if axes is None else axes
    axes = (axes,) if isinstance(axes, int) else axes
    count = math.prod(x.shape[axis] for axis in axes)
    return (total / mx.array(count - correction, dtype=wide.dtype)).astype(x.dtype)


def _products(equation, x, y):
    """`einsum` of integers, which MLX does not multiply as matrices."""
    inputs, output = equation.replace(" ", "").split("->")
    left, right = inputs.split(",")
    contracted = [name for name in dict.fromkeys(left + right) if name not in output]
    names = list(output) + contracted
    aligned = []
    for array, own in ((x, left), (y, right)):
        places = {name: i for i, name in enumerate(own)}
        ordered = mx.transpose(array, [places[name] for name in names if name in own])
        sizes = iter(ordered.shape)
        aligned.append(ordered.reshape([next(sizes) if n in own else 1 for n in names]))
    product = aligned[0] * aligned[1]
    axes = tuple(range(len(output), len(names)))
    return _sum(product, axes, False) if axes else product


def _broadcast(x, shape, axes):
    """Broadcasts x to `shape`; its axes become `axes` of the result."""
    axes = [a % len(shape) for a in axes]
    x = mx.transpose(x, sorted(range(len(axes)), key=axes.__getitem__))
    expanded = [1] * len(shape)
    for axis, n in zip(sorted(axes), x.shape):
        expanded[axis] = n
    return mx.broadcast_to(x.reshape(expanded), shape)


def _iota(shape, axis, dtype):
    """0, 1, 2, … along `axis` of `shape`."""
    column = [1] * len(shape)
    column[axis] = shape[axis]
    return mx.broadcast_to(mx.arange(shape[axis], dtype=dtype).reshape(column), shape)


def _position(function, x, axis, keepdims):
    """`mx.argmax` or `mx.argmin`, which refuse arrays without elements."""
    if x.size or axis is None:
        return function(x, axis=axis, keepdims=keepdims)
    return mx.sum(_nonempty(x, axis, 0) == 0, axis=axis, keepdims=keepdims)


def _logsumexp(x, axes, keepdims):
    """`mx.logsumexp`, which refuses arrays without elements."""
    x = _nonempty(x, axes, -mx.inf)
    if x.size:
        return mx.logsumexp(x, axis=axes, keepdims=keepdims)
    return mx.max(x, axis=axes, keepdims=keepdims)


def _log_softmax(x, axis):
    """The logarithm of softmax of an array that may be empty."""
    return x - mx.logsumexp(x, axis=axis, keepdims=True) if x.size else x


def _argsort(x, axis):
    """The indices that sort x from the largest on; equal elements keep their order."""
    order = mx.argsort(mx.flip(x, axis), axis=axis)
    return x.shape[axis] - 1 - mx.flip(order, axis).astype(mx.int64)


def _pad(x, value, padding):
    """Pads each axis by (low, high, interior); negative numbers crop."""
    for axis, (_, _, interior) in enumerate(padding):
        if interior and x.shape[axis] > 1:
            x = mx.moveaxis(x, axis, -1)
            filled = mx.broadcast_to(
                mx.array(value, dtype=x.dtype), (*x.shape, interior)
            )
            x = mx.concatenate([mx.expand_dims(x, -1), filled], axis=-1)
            length = x.shape[-2] * x.shape[-1]
            x = x.reshape(*x.shape[:-2], length)[..., : length - interior]
            x = mx.moveaxis(x, -1, axis)
    pads = [(max(low, 0), max(high, 0)) for low, high, _ in padding]
    if isinstance(value, mx.array):
        # MLX fails to differentiate it.
        inside = mx.pad(mx.ones(x.shape, dtype=mx.bool_), pads)
        x = mx.where(inside, mx.pad(x, pads), value)
    else:
        x = mx.pad(x, pads, constant_values=value)
    crops = [(max(-low, 0), max(-high, 0)) for low, high, _ in padding]
    return x[tuple(slice(low, n - high) for n, (low, high) in zip(x.shape, crops))]


def _diagonal(x, offset=0):
    """The diagonals of the last two axes."""
    if x.size:
        return mx.diagonal(x, offset, -2, -1)
    rows, columns = x.shape[-2:]
    size = min(rows + min(offset, 0), columns - max(offset, 0))
    return mx.zeros((*x.shape[:-2], max(size, 0)), dtype=x.dtype)


def _stack(rows, shape, dtype):
    """Stacks rows along a new first axis; without rows, an empty array of `shape`."""
    return mx.stack(rows) if rows else mx.zeros(shape, dtype=dtype)


def _windows(x, axes, sizes, strides=None, dilations=None):
    """Sliding windows over `axes`, which become window positions; taps come last."""
    ones = (1,) * len(sizes)
    strides, dilations = strides or ones, dilations or ones
    shape, steps = list(x.shape), _steps(x)
    taps = []
    for axis, size, stride, gap in zip(axes, sizes, strides, dilations):
        shape[axis] = (x.shape[axis] - gap * (size - 1) - 1) // stride + 1
        taps.append(steps[axis] * gap)
        steps[axis] *= stride
    return _strided(x, (*shape, *sizes), (*steps, *taps), 0)


def _skew(x, axes, taps, shifts):
    """Shifts each of `axes` by the index along one of `taps`, times one of `shifts`."""
    shape, steps, offset = list(x.shape), _steps(x), 0
    own = list(steps)
    for axis, tap, shift in zip(axes, taps, shifts):
        reach = abs(shift) * max(x.shape[tap] - 1, 0)
        shape[axis] -= reach
        steps[tap] += shift * own[axis]
        offset += reach * own[axis] if shift < 0 else 0
    return _strided(x, shape, steps, offset)


def _steps(x):
    """The strides of the elements of x in row-major order."""
    return [math.prod(x.shape[axis + 1 :]) for axis in range(x.ndim)]


def _strided(x, shape, strides, offset):
    """The elements of x at these strides. Where there are none, MLX refuses."""
    if 0 in shape:
        return mx.zeros(shape, dtype=x.dtype)
    # MLX reduces overlapping views to wrong numbers, so this is a copy.
    return mx.contiguous(mx.as_strided(mx.contiguous(x), shape, strides, offset))


def _attention(query, key, value, mask, scale, causal=False):
    """MLX's attention; 0 where the mask hides every key. `causal` hides later keys."""
    is_bool = mask.dtype == mx.bool_
    if causal:
        seen = mx.tril(mx.ones((query.shape[-2], key.shape[-2]), dtype=mx.bool_))
        mask = mask & seen if is_bool else mx.where(seen, mask, -mx.inf)
    if is_bool:
        has_key = mx.any(mask, axis=-1, keepdims=True)
        mask = mask | ~has_key
    else:
        has_key = mx.max(mask, axis=-1, keepdims=True) != -mx.inf
        mask = mx.where(has_key, mask, 0)
    heads = mx.fast.scaled_dot_product_attention(
        query, key, value, scale=scale, mask=mask
    )
    return mx.where(has_key, heads, 0)


def _grouped_matmul(x, w, group):
    """The product of each row of x with the matrix of its group."""
    if x.size == 0 or w.size == 0:
        return mx.zeros((len(x), w.shape[2]), dtype=x.dtype)
    group = mx.clip(mx.stop_gradient(group).astype(mx.int32), 0, len(w) - 1)
    rows = mx.expand_dims(x, 1)
    # `mx.gather_mm` has no other dtype on the CPU.
    if x.dtype == mx.float32:
        return mx.gather_mm(rows, w, rhs_indices=group.astype(mx.uint32))[:, 0]
    return (rows @ w[group])[:, 0]


def _grouped_outer(x, y, group, groups):
    """The sums over each group's rows of the outer products of x and y."""
    own = (group == mx.arange(groups)[:, None]).astype(x.dtype)
    return mx.swapaxes(x, 0, 1) * own[:, None, :] @ y


def _conv(
    x,
    weights,
    bias=None,
    strides=None,
    dilations=None,
    low=None,
    high=None,
    interior=None,
    groups=1,
):
    """The cross-correlation of (batch, channels, …) with (filters, channels, …)."""
    count = x.ndim - 2
    ones, zeros = (1,) * count, (0,) * count
    low, high, interior = low or zeros, high or zeros, interior or zeros
    fits = count in (1, 2) or (count == 3 and groups == 1)
    fits = fits and x.dtype != mx.float64
    fits = fits and x.size > 0 and weights.size > 0
    # MLX gives wrong gradients of operands that it dilates.
    if not fits or min((*low, *high)) < 0 or any(interior):
        x = _pad(x, 0, [(0, 0, 0), (0, 0, 0), *zip(low, high, interior)])
        low, high = zeros, zeros
    if fits:
        y = mx.conv_general(
            mx.moveaxis(x, 1, -1),
            mx.moveaxis(weights, 1, -1),
            stride=strides or ones,
            padding=(low, high),
            kernel_dilation=dilations or ones,
            groups=groups,
        )
        y = mx.moveaxis(y, -1, 1)
    else:
        y = _correlation(x, weights, strides, dilations, groups)
    return y if bias is None else y + bias.reshape(-1, *ones)


def _correlation(x, weights, strides, dilations, groups):
    """A convolution as a product of matrices, for what `mx.conv_general` lacks."""
    count = x.ndim - 2
    windows = _windows(
        x, tuple(range(2, x.ndim)), weights.shape[2:], strides, dilations
    )
    positions = windows.shape[2 : 2 + count]
    taps = range(2 + count, 2 + 2 * count)
    columns = mx.transpose(windows, (0, 1, *taps, *range(2, 2 + count)))
    filters, rest = weights.shape[0] // groups, math.prod(weights.shape[1:])
    columns = columns.reshape(len(x), groups, rest, math.prod(positions))
    y = weights.reshape(groups, filters, rest) @ columns
    return y.reshape(len(x), groups * filters, *positions)


def _max_pool(x, sizes, strides=None, dilations=None, low=None, high=None):
    """The maximum of each window over the last axes, which are padded with -inf."""
    count = len(sizes)
    zeros = (0,) * count
    pads = [(n, m, 0) for n, m in zip(low or zeros, high or zeros)]
    x = _pad(x, -mx.inf, [(0, 0, 0)] * (x.ndim - count) + pads)
    axes = tuple(range(x.ndim - count, x.ndim))
    windows = _windows(x, axes, sizes, strides, dilations)
    return mx.max(windows, axis=tuple(range(-count, 0)))


def _checkpoint(function, *operands):
    """Calls `function`; the backward pass recomputes its intermediate values."""
    # `mx.checkpoint` differentiates integers, too.
    copied = _with_copies(function)
    once = mx.custom_function(copied)

    def backward(operands, gradients, results):
        operands, gradients, results = map(_listed, (operands, gradients, results))
        floats = [i for i, x in enumerate(operands) if _is_float(x)]

        def varying(*given):
            all_operands = list(operands)
            for i, x in zip(floats, given):
                all_operands[i] = x
            return [y for y in _listed(copied(*all_operands)) if _is_float(y)]

        seeds = [g for g, y in zip(gradients, results) if _is_float(y)]
        given = [operands[i] for i in floats]
        found = iter(mx.vjp(varying, given, seeds)[1])
        return _each(
            next(found) if _is_float(x) else mx.zeros_like(x) for x in operands
        )

    once.vjp(backward)
    return once(*operands)


def _custom_gradient(function, vjp, *operands):
    """Calls `function`; `vjp(operands, results, cotangents)` gives its gradient."""
    differentiated = mx.custom_function(_with_copies(function))

    def backward(operands, gradients, results):
        operands, gradients, results = map(_listed, (operands, gradients, results))
        seeds = [g for g, y in zip(gradients, results) if _is_float(y)]
        found = iter(_listed(vjp(*operands, *results, *seeds)))
        return _each(
            next(found) if _is_float(x) else mx.zeros_like(x) for x in operands
        )

    differentiated.vjp(backward)
    return differentiated(*operands)


def _with_copies(function):
    """`function`, each of whose results is an array of its own.

    MLX loses the gradient of a result that is also an operand or another result.
    """

    def copied(*operands):
        seen, own = {id(x) for x in operands}, []
        results = function(*operands)
        for result in _listed(results):
            own.append(mx.contiguous(result) if id(result) in seen else result)
            seen.add(id(result))
        return tuple(own) if isinstance(results, (tuple, list)) else own[0]

    return copied


def _is_float(x):
    """Whether the elements are floats."""
    return mx.issubdtype(x.dtype, mx.floating)


def _each(gradients):
    """The gradients of all operands, as MLX takes them."""
    each = tuple(gradients)
    return each if len(each) > 1 else each[0]


def _listed(value):
    """One or several arrays as a list."""
    return list(value) if isinstance(value, (tuple, list)) else [value]
