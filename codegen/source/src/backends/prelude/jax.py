"""Functions for what JAX lacks; files are given the ones they call."""

import jax
import jax.numpy as jnp


def _sum_to(x, shape):
    """The sum over whatever broadcasting `shape` to that of x repeats."""
    new = x.ndim - len(shape)
    repeated = [i for i, n in enumerate(shape, new) if n == 1 and x.shape[i] != 1]
    return jnp.sum(x, axis=(*range(new), *repeated), dtype=x.dtype).reshape(shape)


def _broadcast(x, shape, axes):
    """x repeated to `shape`, its axes becoming `axes`."""
    axes = [a % len(shape) for a in axes]
    x = jnp.transpose(x, sorted(range(len(axes)), key=axes.__getitem__))
    spread = [1] * len(shape)
    for axis, n in zip(sorted(axes), x.shape):
        spread[axis] = n
    return jnp.broadcast_to(x.reshape(spread), shape)


def _split(results, count):
    """The first results, and the others."""
    return results[:count], results[count:]


def _checkpoint(function, *operands):
    """The results of `function`, whose inner values gradients compute again."""
    return jax.checkpoint(function)(*operands)


def _custom_gradient(function, vjp, *operands):
    """The results of `function`; `vjp` takes operands, results and their gradients."""

    def forward(*operands):
        results = function(*operands)
        return results, (operands, results)

    def backward(saved, gradients):
        operands, results = saved
        if not isinstance(results, tuple):
            results, gradients = (results,), (gradients,)
        seeds = [g for g in gradients if g.dtype != jax.dtypes.float0]
        given = vjp(*operands, *results, *seeds)
        given = iter(given if isinstance(given, tuple) else (given,))
        floats = [jnp.issubdtype(x.dtype, jnp.floating) for x in operands]
        return tuple(next(given) if is_float else None for is_float in floats)

    differentiated = jax.custom_vjp(function)
    differentiated.defvjp(forward, backward)
    return differentiated(*operands)


def _conv(x, weights, strides=None, dilations=None, low=None, high=None, interior=None):
    """The cross-correlation of (batch, channels, …) with (filters, channels, …)."""
    ones, zeros = (1,) * (x.ndim - 2), (0,) * (x.ndim - 2)
    return jax.lax.conv_general_dilated(
        x,
        weights,
        strides or ones,
        list(zip(low or zeros, high or zeros)),
        lhs_dilation=tuple(n + 1 for n in interior or zeros),
        rhs_dilation=dilations or ones,
    )


def _max_pool(x, sizes, strides=None, dilations=None, low=None, high=None):
    """The greatest elements that windows over the last axes see, -inf around."""
    ones, zeros = (1,) * len(sizes), (0,) * len(sizes)
    front = (1,) * (x.ndim - len(sizes))
    least = x.dtype.type(-jnp.inf)
    pads = [(0, 0)] * len(front) + list(zip(low or zeros, high or zeros))
    steps = front + (strides or ones)
    if not dilations:
        return jax.lax.reduce_window(x, least, jax.lax.max, front + sizes, steps, pads)
    # JAX has no gradient of dilated windows.
    x = jax.lax.pad(x, least, [(low, high, 0) for low, high in pads])
    windows = zip(sizes, dilations, strides or ones)
    for axis, (size, by, step) in enumerate(windows, len(front)):
        count = x.shape[axis] - by * (size - 1)
        taps = [
            jax.lax.slice_in_dim(x, at, at + count, step, axis)
            for at in range(0, by * size, by)
        ]
        x = taps[0]
        for tap in taps[1:]:
            x = jnp.maximum(x, tap)
    return x


def _scatter_add(x, indices, updates, axis):
    """x with each slice of `updates` added at its index of an axis."""
    return x.at[(slice(None),) * (axis % x.ndim) + (indices,)].add(updates)


def _scatter_add_along(x, indices, updates, axis):
    """x with each element of `updates` added at its index of an axis."""
    places = list(jnp.indices(indices.shape, sparse=True))
    places[axis] = indices
    return x.at[tuple(places)].add(updates)


def _slice_update(x, place, update):
    """x with `update` at a place."""
    # Of a place that is all of x: XLA may fail to compile the scatter.
    return update[place] if update.shape == x.shape else x.at[place].set(update)


def _dynamic_slice(x, starts, sizes):
    """The block of these sizes at `starts`, moved inside where it reaches beyond."""
    return jax.lax.dynamic_slice(
        x, [jnp.asarray(i).astype(jnp.int32) for i in starts], sizes
    )


def _dynamic_update_slice(x, update, starts):
    """x with `update` at `starts`, moved inside where it reaches beyond."""
    starts = [jnp.asarray(i).astype(jnp.int32) for i in starts]
    return jax.lax.dynamic_update_slice(x, update, starts)


def _gelu(x):
    """x times the normal distribution at x, by the erf that the gradient takes."""
    return 0.5 * x * (1.0 + jax.scipy.special.erf(x * 0.7071067811865476))


def _gelu_gradient(gradient, x):
    """The gradient of gelu by x."""
    distribution = 0.5 * (1.0 + jax.scipy.special.erf(x * 0.7071067811865476))
    density = 0.3989422804014327 * jnp.exp(-0.5 * x * x)
    return gradient * (distribution + x * density)


def _gelu_tanh_gradient(gradient, x):
    """The gradient of gelu by tanh, spelled as JAX does it forward, to be shared."""
    tanh = jnp.tanh(0.7978845608028654 * (x + 0.044715 * x**3))
    slope = 0.7978845608028654 * (1.0 + 0.134145 * x * x)
    return gradient * (0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * slope)


def _silu_gradient(gradient, x):
    """The gradient of silu by x."""
    share = jax.nn.sigmoid(x)
    return gradient * (share * (1.0 + x * (1.0 - share)))
