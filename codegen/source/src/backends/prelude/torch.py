"""Functions that PyTorch lacks. A file contains those that it calls."""

import math

import torch
import torch.nn.functional as F


def _cholesky(x):
    """The Cholesky factor; NaN where x is not positive definite."""
    factor, info = torch.linalg.cholesky_ex(x)
    failed = torch.full_like(factor, math.nan).tril()
    return torch.where((info == 0)[..., None, None], factor, failed)


def _of_finite(function, x, triangle=None, **options):
    """function(x); of matrices with NaN or infinities, for which LAPACK fails, NaN.

    `triangle` has the elements that the function reads, if not all.
    """
    # Numbers times 0 are 0, infinities times 0 are NaN.
    zero = (x if triangle is None else triangle).detach() * 0
    unit = 1 + zero.sum((-2, -1), keepdim=True)
    # The product makes gradients NaN as well.
    results = function(torch.where(unit == 1, x * unit, 0), **options)
    if isinstance(results, torch.Tensor):
        return results * unit[..., 0]
    return [part * (unit if part.ndim == x.ndim else unit[..., 0]) for part in results]


def _sum_to(x, shape):
    """Sums x to `shape`: the transpose of broadcasting from `shape`."""
    new = x.ndim - len(shape)
    repeated = [i for i, n in enumerate(shape, new) if n == 1 and x.shape[i] != 1]
    axes = (*range(new), *repeated)
    return torch.sum(x, dim=axes, dtype=x.dtype).reshape(shape) if axes else x


def _broadcast(x, shape, axes):
    """Broadcasts x to `shape`; its axes become `axes` of the result."""
    axes = [a % len(shape) for a in axes]
    x = x.permute(sorted(range(len(axes)), key=axes.__getitem__))
    expanded = [1] * len(shape)
    for axis, n in zip(sorted(axes), x.shape):
        expanded[axis] = n
    return x.reshape(expanded).expand(shape)


def _iota(shape, axis, dtype, device=None):
    """0, 1, 2, … along `axis` of `shape`."""
    column = [1] * len(shape)
    column[axis] = shape[axis]
    return (
        torch.arange(shape[axis], dtype=dtype, device=device)
        .reshape(column)
        .expand(shape)
    )


def _sign(x):
    """The sign; NaN of NaN, where PyTorch has 0."""
    return torch.where(x.isnan(), x.detach(), x.sign())


def _sinc(x):
    """`sin(π x) / (π x)`, by a series near 0, where the derivative would cancel."""
    y = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    near = y.abs() < 0.5
    square = (math.pi * torch.where(near, y, 0)) ** 2
    series = torch.zeros_like(y)
    for i in range(10, -1, -1):
        series = series * square + (-1) ** i / math.factorial(2 * i + 1)
    return torch.where(near, series, torch.sinc(torch.where(near, 1, y))).to(x.dtype)


def _expand_dims(x, axes):
    """x with axes of size 1 inserted."""
    for axis in sorted(a % (x.ndim + len(axes)) for a in axes):
        x = x.unsqueeze(axis)
    return x


def _prod(x, axes, keepdim):
    """The product over several axes."""
    axes = range(x.ndim) if axes is None else axes
    for axis in sorted((a % x.ndim for a in axes), reverse=True):
        x = torch.prod(x, dim=axis, keepdim=keepdim, dtype=x.dtype)
    return x


def _pad(x, value, padding):
    """Pads each axis by (low, high, interior); negative numbers crop."""
    for axis, (_, _, interior) in enumerate(padding):
        if interior and x.shape[axis] > 1:
            x = x.movedim(axis, -1)
            filled = x.new_full((*x.shape, interior), 0) + value
            x = torch.cat([x.unsqueeze(-1), filled], dim=-1).flatten(-2)
            x = x[..., : x.shape[-1] - interior].movedim(-1, axis)
    pads = [max(n, 0) for low, high, _ in reversed(padding) for n in (low, high)]
    inside = F.pad(torch.ones_like(x, dtype=torch.bool), pads)
    y = torch.where(inside, F.pad(x, pads), value)
    crops = [(max(-low, 0), max(-high, 0)) for low, high, _ in padding]
    return y[tuple(slice(low, n - high) for n, (low, high) in zip(y.shape, crops))]


def _conv(
    x,
    weights,
    strides=None,
    dilations=None,
    low=None,
    high=None,
    interior=None,
    groups=1,
    bias=None,
):
    """The cross-correlation of (batch, channels, …) with (filters, channels, …)."""
    count = x.ndim - 2
    ones, zeros = (1,) * count, (0,) * count
    low, high = low or zeros, high or zeros
    if interior or low != high or min(low, default=0) < 0:
        padding = zip(low, high, interior or zeros)
        x, low = _pad(x, 0, [(0, 0, 0), (0, 0, 0), *padding]), zeros
    if count == 0 and groups == 1:
        return F.linear(x, weights, bias)
    if count == 0:
        x, weights = x.unsqueeze(-1), weights.unsqueeze(-1)
        return F.conv1d(x, weights, bias, groups=groups).squeeze(-1)
    conv = (F.conv1d, F.conv2d, F.conv3d)[count - 1]
    return conv(x, weights, bias, strides or ones, low, dilations or ones, groups)


def _conv_transpose(
    x,
    weights,
    strides=None,
    dilations=None,
    low=None,
    high=None,
    groups=1,
    bias=None,
):
    """The transpose of a convolution, cropped by `low` and `high`."""
    count = x.ndim - 2
    ones, zeros = (1,) * count, (0,) * count
    if count == 0:
        x, weights = x.unsqueeze(-1), weights.unsqueeze(-1)
        y = F.conv_transpose1d(x, weights, groups=groups).squeeze(-1)
        return y if bias is None else y + bias
    strides, dilations = strides or ones, dilations or ones
    if weights.numel() == 0:
        # PyTorch refuses weights without channels.
        sizes = zip(x.shape[2:], weights.shape[2:], strides, dilations)
        sizes = [(n - 1) * step + gap * (k - 1) + 1 for n, k, step, gap in sizes]
        y = x.new_zeros(len(x), weights.shape[1] * groups, *sizes)
    else:
        conv = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[count - 1]
        y = conv(x, weights, None, strides, 0, 0, groups, dilations)
    crops = zip(reversed(low or zeros), reversed(high or zeros))
    y = F.pad(y, [-n for pair in crops for n in pair])
    return y if bias is None else y + bias.reshape(-1, *[1] * count)


def _batch_norm(x, mean, variance, weight, bias, momentum, eps):
    """x normalised per channel by its own mean and variance, and the running ones
    moved towards these."""
    mean, variance = mean.clone(), variance.clone()
    # In PyTorch 2.15, gradients are wrong where weights have strides, or where x and
    # its gradient have different ones around an axis of size 1.
    weight, bias = (None if v is None else v.contiguous() for v in (weight, bias))
    short = 1 in (len(x), *x.shape[2:])
    x = x.contiguous() if short else x
    cudnn = torch.backends.cudnn.enabled
    y = torch.batch_norm(x, weight, bias, mean, variance, True, momentum, eps, cudnn)
    if short and y.requires_grad:
        y.register_hook(torch.Tensor.contiguous)
    return y, mean, variance


def _max_pool(x, sizes, strides=None, dilations=None, low=None, high=None):
    """The maximum of each window over the last axes, which are padded with -inf."""
    count = len(sizes)
    ones, zeros = (1,) * count, (0,) * count
    strides, dilations = strides or ones, dilations or ones
    low, high = low or zeros, high or zeros
    if low != high or any(not 0 <= 2 * n <= size for n, size in zip(low, sizes)):
        pads = [n for pair in zip(reversed(low), reversed(high)) for n in pair]
        x, low = F.pad(x, pads, value=-torch.inf), zeros
    if count not in (1, 2, 3) or x.numel() == 0:
        for axis, size, step, gap in zip(range(-count, 0), sizes, strides, dilations):
            x = x.unfold(axis, gap * (size - 1) + 1, step)[..., ::gap].amax(-1)
        return x
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[count - 1]
    rows = x.reshape(-1, 1, *x.shape[-count:])
    y = pool(rows, sizes, strides, low, dilations)
    return y.reshape(*x.shape[:-count], *y.shape[2:])


def _sum_pool(x, sizes, strides=None, low=None, high=None):
    """The sum of each window over the last axes, which are padded with zeros."""
    count = len(sizes)
    zeros = (0,) * count
    pairs = zip(reversed(low or zeros), reversed(high or zeros))
    x = F.pad(x, [n for pair in pairs for n in pair])
    axes = range(x.ndim - count, x.ndim)
    for axis, size, step in zip(axes, sizes, strides or (1,) * count):
        x = x.unfold(axis, size, step)
    return x.sum(tuple(range(-count, 0)))


def _avg_pool(
    x, sizes, strides=None, low=None, high=None, uncounted=None, count_pad=True
):
    """The mean of the counted elements of each window over the last axes."""
    count = len(sizes)
    zeros = (0,) * count
    low, high, uncounted = low or zeros, high or zeros, uncounted or zeros
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    y = _sum_pool(wide, sizes, strides, low, high)
    ones = torch.ones(x.shape[-count:], dtype=y.dtype, device=x.device)
    ends = [after - rest for after, rest in zip(high, uncounted)]
    for pairs in ([(n, 0) for n in low], [(0, n) for n in ends]):
        pads = [n for pair in reversed(pairs) for n in pair]
        ones = F.pad(ones, pads, value=float(count_pad))
    rests = [n for rest in reversed(uncounted) for n in (0, rest)]
    counts = _sum_pool(F.pad(ones, rests), sizes, strides)
    return (y / counts.clamp(min=1)).to(x.dtype)


def _take(x, indices, axis):
    """The slices of x at `indices` along `axis`."""
    return x[(slice(None),) * (axis % x.ndim) + (indices.to(torch.int64),)]


def _scatter_add(x, indices, updates, axis):
    """x with each slice of `updates` added at its index along `axis`."""
    axis = axis % x.ndim
    count = indices.ndim
    front = updates.movedim(tuple(range(axis, axis + count)), tuple(range(count)))
    index = (indices.to(torch.int64),)
    return x.movedim(axis, 0).index_put(index, front, accumulate=True).movedim(0, axis)


def _stack(rows, shape, dtype, device):
    """Stacks rows along a new first axis; without rows, an empty array of `shape`."""
    return torch.stack(rows) if rows else torch.empty(shape, dtype=dtype, device=device)


def _slice_update(x, slices, update):
    """x with the elements at `slices` replaced by `update`."""
    y = x.clone()
    y[slices] = update
    return y


def _dynamic_slice(x, starts, sizes):
    """The block of shape `sizes` at `starts`, clamped so that it lies inside x."""
    return x[_block(x, starts, sizes)]


def _dynamic_update_slice(x, update, starts):
    """x with `update` written at `starts`, clamped so that it lies inside x."""
    return _slice_update(x, _block(x, starts, update.shape), update)


def _block(x, starts, sizes):
    """The slices of a block, clamped into x; a negative start counts from the end."""
    starts = [int(i) + (n if i < 0 else 0) for i, n in zip(starts, x.shape)]
    starts = [min(max(i, 0), n - size) for i, n, size in zip(starts, x.shape, sizes)]
    return tuple(slice(i, i + size) for i, size in zip(starts, sizes))


class _CustomGradient(torch.autograd.Function):
    """Calls a function whose gradient is computed by another function."""

    @staticmethod
    def forward(ctx, function, vjp, *operands):
        results = function(*operands)
        each = results if isinstance(results, tuple) else (results,)
        ctx.mark_non_differentiable(*(r for r in each if not r.is_floating_point()))
        ctx.save_for_backward(*operands, *each)
        ctx.vjp = vjp
        return results

    @staticmethod
    def backward(ctx, *gradients):
        saved = ctx.saved_tensors
        operands, results = saved[: -len(gradients)], saved[-len(gradients) :]
        seeds = [g for g, r in zip(gradients, results) if r.is_floating_point()]
        found = ctx.vjp(*saved, *seeds)
        found = iter(found if isinstance(found, tuple) else (found,))
        return (
            None,
            None,
            *(next(found) if x.is_floating_point() else None for x in operands),
        )


def _checkpoint(function, *operands):
    """Calls `function`; the backward pass recomputes its intermediate values."""
    return torch.utils.checkpoint.checkpoint(
        function, *operands, use_reentrant=False, preserve_rng_state=False
    )


def _has_dtype(result, dtypes):
    """Whether an array has one of these dtypes; autocast chooses those of floats."""
    is_float = result.is_floating_point() and dtypes[0].is_floating_point
    is_chosen = is_float and torch.is_autocast_enabled(result.device.type)
    return is_chosen or result.dtype in dtypes


def _custom_gradient(function, vjp, *operands):
    """Calls `function`; `vjp(operands, results, cotangents)` gives its gradient."""
    return _CustomGradient.apply(function, vjp, *operands)


def _fits_flash(query, key, value):
    """Whether PyTorch's flash attention for CPUs supports these arrays.

    It does not differentiate the log-sum-exp.
    """
    arrays = query, key, value
    shapes = [x.shape for x in arrays]
    plain = all(len(shape) == 4 for shape in shapes) and query.numel() > 0
    alike = plain and len({(*shape[:2], shape[3]) for shape in shapes}) == 1
    graded = torch.is_grad_enabled() and any(x.requires_grad for x in arrays)
    return alike and key.numel() > 0 and query.device.type == "cpu" and not graded


def _with_contiguous_rows(*arrays):
    """The arrays with a contiguous last axis, as flash attention requires."""
    return [x if x.stride(-1) == 1 else x.contiguous() for x in arrays]


def _repeat_heads(query, *arrays):
    """Repeats the heads of keys or values, so that each query head has its own."""
    return [x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in arrays]


def _grouped_matmul(x, w, group):
    """The product of each row of x with the matrix of its group."""
    product = x.new_zeros(len(x), w.shape[2])
    for i, matrix in enumerate(w):
        rows = torch.where(group == i)[0]
        product = product.index_copy(0, rows, x[rows] @ matrix)
    return product


def _grouped_outer(x, y, group, groups):
    """The sums over each group's rows of the outer products of x and y."""
    rows = [torch.where(group == i)[0] for i in range(groups)]
    return torch.stack([x[own].mT @ y[own] for own in rows])


def _window(query, key, mask=None, left=None, right=None, causal=False):
    """The mask of attention to the keys near each query.

    A query sees the keys from `left` before its position to `right` after it.
    """
    shape = query.shape[-2], key.shape[-2]
    seen = torch.ones(shape, dtype=torch.bool, device=query.device)
    if causal or right is not None:
        seen = seen.tril(0 if causal else right)
    if left is not None:
        seen = seen.triu(-left)
    if mask is None:
        return seen
    if mask.dtype == torch.bool:
        return mask & seen
    return torch.where(seen, mask, -torch.inf)


def _attention(query, key, value, causal=False, scale=None, grouped=False):
    """Attention, and the log-sum-exp of each query's scores for the gradient."""
    if grouped:
        key, value = _repeat_heads(query, key, value)
    if _fits_flash(query, key, value):
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *_with_contiguous_rows(query, key, value), 0.0, causal, scale=scale
        )
    output = F.scaled_dot_product_attention(
        query, key, value, is_causal=causal, scale=scale
    )
    scale = 1 / math.sqrt(query.shape[-1] or 1) if scale is None else scale
    scores = query * scale @ key.mT
    if causal:
        mask = torch.ones_like(scores, dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, -torch.inf)
    return output, torch.logsumexp(scores, -1)


def _attention_gradient(
    query,
    key,
    value,
    output,
    logsumexp,
    gradient,
    causal=False,
    scale=None,
    grouped=False,
):
    """The gradients of attention with respect to query, key and value."""
    if grouped:
        heads = _repeat_heads(query, key, value)
        first, *others = _attention_gradient(
            query, *heads, output, logsumexp, gradient, causal, scale
        )
        sizes = [(x.shape[-3], -1) for x in (key, value)]
        sums = [x.unflatten(-3, size).sum(-3) for x, size in zip(others, sizes)]
        return first, *sums
    if _fits_flash(query, key, value):
        backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        arrays = _with_contiguous_rows(gradient, query, key, value, output)
        return backward(*arrays, logsumexp, 0.0, causal, scale=scale)

    def attend(query, key, value):
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=causal, scale=scale
        )

    return torch.func.vjp(attend, query, key, value)[1](gradient)


def _constrain(x, *split):
    """The DTensor x, divided over its mesh: mesh axis i divides axis `split[i]`."""
    from torch.distributed.tensor import Replicate, Shard

    return x.redistribute(
        placements=[Replicate() if axis is None else Shard(axis) for axis in split]
    )
