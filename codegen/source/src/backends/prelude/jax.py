"""Functions that JAX lacks. A file contains those that it calls."""

import math

import jax
import jax.numpy as jnp


def _sum_to(x, shape):
    """Sums x to `shape`: the transpose of broadcasting from `shape`."""
    new = x.ndim - len(shape)
    repeated = [i for i, n in enumerate(shape, new) if n == 1 and x.shape[i] != 1]
    return jnp.sum(x, axis=(*range(new), *repeated), dtype=x.dtype).reshape(shape)


def _row_major(x):
    """x, whose last axis is contiguous. XLA may choose another layout if an axis has
    size 1, and then refuses to transform it."""
    from jax.experimental.layout import Layout, with_layout_constraint

    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


def _in_groups(group, groups):
    """The order of the rows by group, and the size of each group."""
    sizes = jnp.bincount(group, length=groups).astype(jnp.int32)
    return jnp.argsort(group), sizes


def _grouped_matmul(x, w, group):
    """The product of each row of x with the matrix of its group."""
    order, sizes = _in_groups(group, len(w))
    return jax.lax.ragged_dot(x[order], w, sizes)[jnp.argsort(order)]


def _grouped_outer(x, y, group, groups):
    """The sums over each group's rows of the outer products of x and y."""

    # JAX has no gradient of such sums of its own.
    @jax.custom_vjp
    def outer(x, y, group):
        order, sizes = _in_groups(group, groups)
        w = jax.ShapeDtypeStruct((groups, x.shape[1], y.shape[1]), x.dtype)
        of_w = jax.linear_transpose(lambda w: jax.lax.ragged_dot(x[order], w, sizes), w)
        return of_w(y[order])[0]

    def pullback(operands, gradient):
        x, y, group = operands
        of_x = _grouped_matmul(y, jnp.swapaxes(gradient, 1, 2), group)
        return of_x, _grouped_matmul(x, gradient, group), None

    outer.defvjp(lambda *operands: (outer(*operands), operands), pullback)
    return outer(x, y, group)


def _broadcast(x, shape, axes):
    """Broadcasts x to `shape`; its axes become `axes` of the result."""
    axes = [a % len(shape) for a in axes]
    x = jnp.transpose(x, sorted(range(len(axes)), key=axes.__getitem__))
    expanded = [1] * len(shape)
    for axis, n in zip(sorted(axes), x.shape):
        expanded[axis] = n
    return jnp.broadcast_to(x.reshape(expanded), shape)


def _split(results, count):
    """Splits results into the first `count` and the rest."""
    return results[:count], results[count:]


def _while(step, state, most):
    """Calls `step` while the first part of the state is true, at most `most` times.

    This is a scan over all steps: JAX has no reverse-mode gradient of `while_loop`.
    """

    def advance(state, _):
        return jax.lax.cond(state[0], step, lambda *state: state, *state), None

    return jax.lax.scan(advance, state, length=most)[0]


def _checkpoint(function, *operands):
    """Calls `function`; the backward pass recomputes its intermediate values."""
    return jax.checkpoint(function)(*operands)


def _custom_gradient(function, vjp, *operands):
    """Calls `function`; `vjp(operands, results, cotangents)` gives its gradient."""

    def forward(*operands):
        results = function(*operands)
        return results, (operands, results)

    def backward(saved, gradients):
        operands, results = saved
        if not isinstance(results, tuple):
            results, gradients = (results,), (gradients,)
        seeds = [g for g in gradients if g.dtype != jax.dtypes.float0]
        found = vjp(*operands, *results, *seeds)
        found = iter(found if isinstance(found, tuple) else (found,))
        floats = [jnp.issubdtype(x.dtype, jnp.floating) for x in operands]
        return tuple(next(found) if is_float else None for is_float in floats)

    differentiated = jax.custom_vjp(function)
    differentiated.defvjp(forward, backward)
    return differentiated(*operands)


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
    ones, zeros = (1,) * (x.ndim - 2), (0,) * (x.ndim - 2)
    return jax.lax.conv_general_dilated(
        x,
        weights,
        strides or ones,
        list(zip(low or zeros, high or zeros)),
        lhs_dilation=tuple(n + 1 for n in interior or zeros),
        rhs_dilation=dilations or ones,
        feature_group_count=groups,
    )


def _max_pool(x, sizes, strides=None, dilations=None, low=None, high=None):
    """The maximum of each window over the last axes, which are padded with -inf."""
    ones, zeros = (1,) * len(sizes), (0,) * len(sizes)
    front = (1,) * (x.ndim - len(sizes))
    lowest = x.dtype.type(-jnp.inf)
    pads = [(0, 0)] * len(front) + list(zip(low or zeros, high or zeros))
    steps = front + (strides or ones)
    if not dilations:
        return jax.lax.reduce_window(x, lowest, jax.lax.max, front + sizes, steps, pads)
    # JAX cannot differentiate dilated windows.
    x = jax.lax.pad(x, lowest, [(low, high, 0) for low, high in pads])
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


def _sum_pool(x, sizes, strides=None, low=None, high=None):
    """The sum of each window over the last axes, which are padded with zeros."""
    ones, zeros = (1,) * len(sizes), (0,) * len(sizes)
    front = (1,) * (x.ndim - len(sizes))
    pads = [(0, 0)] * len(front) + list(zip(low or zeros, high or zeros))
    zero = x.dtype.type(0)
    if any(n < 0 for pair in pads for n in pair):
        # XLA fails on windows that are cropped.
        x = jax.lax.pad(x, zero, [(*pair, 0) for pair in pads])
        pads = [(0, 0)] * x.ndim
    steps = front + (strides or ones)
    return jax.lax.reduce_window(x, zero, jax.lax.add, front + sizes, steps, pads)


def _scatter_add(x, indices, updates, axis):
    """x with each slice of `updates` added at its index along `axis`."""
    return x.at[(slice(None),) * (axis % x.ndim) + (indices,)].add(updates)


def _scatter_add_along(x, indices, updates, axis):
    """x with each element of `updates` added at its index along `axis`."""
    return x.at[_places(indices, axis)].add(updates)


def _scatter_mul_along(x, indices, updates, axis):
    """x times each element of `updates` at its index along `axis`."""
    # JAX has no gradient of it.
    scatter = jax.custom_vjp(
        lambda x, i, updates: x.at[_places(i, axis)].multiply(updates)
    )

    def forward(*operands):
        return scatter(*operands), operands

    def backward(operands, gradient):
        x, i, updates = operands
        places = _places(i, axis)
        zeros = (x == 0).astype(x.dtype).at[places].add(updates == 0)
        factors = [jnp.where(v == 0, 1, v) for v in (x, updates)]
        product = gradient * _scatter_mul_along(factors[0], i, factors[1], axis)
        # The product of the other factors is 0 if another one is 0.
        x_gradient = jnp.where(zeros == (x == 0), product / factors[0], 0)
        others = zeros[places] == (updates == 0)
        return x_gradient, None, jnp.where(others, product[places] / factors[1], 0)

    scatter.defvjp(forward, backward)
    return scatter(x, indices, updates)


def _scatter_max_along(x, indices, updates, axis):
    """The maximum of x and each element of `updates` at its index along `axis`."""
    return x.at[_places(indices, axis)].max(updates)


def _scatter_min_along(x, indices, updates, axis):
    """The minimum of x and each element of `updates` at its index along `axis`."""
    return x.at[_places(indices, axis)].min(updates)


def _places(indices, axis):
    """The index of each element, which is that of `indices` along `axis`."""
    index = list(jnp.indices(indices.shape, sparse=True))
    index[axis] = indices
    return tuple(index)


def _slice_update(x, slices, update):
    """x with the elements at `slices` replaced by `update`."""
    # If the slices cover all of x, XLA may fail to compile the scatter.
    return update[slices] if update.shape == x.shape else x.at[slices].set(update)


def _dynamic_slice(x, starts, sizes):
    """The block of shape `sizes` at `starts`, clamped so that it lies inside x."""
    return jax.lax.dynamic_slice(
        x, [jnp.asarray(i).astype(jnp.int32) for i in starts], sizes
    )


def _dynamic_update_slice(x, update, starts):
    """x with `update` written at `starts`, clamped so that it lies inside x."""
    starts = [jnp.asarray(i).astype(jnp.int32) for i in starts]
    return jax.lax.dynamic_update_slice(x, update, starts)


def _gelu(x):
    """gelu, computed by the same erf as `_gelu_gradient`, so that XLA shares it."""
    return 0.5 * x * (1.0 + jax.scipy.special.erf(x * 0.7071067811865476))


def _gelu_gradient(gradient, x):
    """The gradient of gelu."""
    distribution = 0.5 * (1.0 + jax.scipy.special.erf(x * 0.7071067811865476))
    density = 0.3989422804014327 * jnp.exp(-0.5 * x * x)
    return gradient * (distribution + x * density)


def _gelu_tanh_gradient(gradient, x):
    """The gradient of gelu_tanh, with the tanh of JAX's gelu, so that XLA shares it."""
    tanh = jnp.tanh(0.7978845608028654 * (x + 0.044715 * x**3))
    slope = 0.7978845608028654 * (1.0 + 0.134145 * x * x)
    return gradient * (0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * slope)


def _silu_gradient(gradient, x):
    """The gradient of silu."""
    sigmoid = jax.nn.sigmoid(x)
    return gradient * (sigmoid * (1.0 + x * (1.0 - sigmoid)))


def _with_slopes(function, *slopes):
    """`function` with these derivatives, functions of its result and operands. Those of
    JAX are wrong at some numbers."""
    own = jax.custom_jvp(function)
    own.defjvps(
        *(lambda t, *values, slope=slope: t * slope(*values) for slope in slopes)
    )
    return own


def _sinc(x):
    """`sin(π x) / (π x)`, by a series near 0, where the derivative would cancel."""
    y = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    near = abs(y) < 0.5
    z = jnp.pi * jnp.where(near, y, 0)
    terms = [(-1) ** i / math.factorial(2 * i + 1) for i in range(10, -1, -1)]
    series = jnp.polyval(jnp.array(terms, z.dtype), z * z)
    return jnp.where(near, series, jnp.sinc(jnp.where(near, 1, y))).astype(x.dtype)


def _i0(x):
    """The modified Bessel function of order 0."""
    return _with_slopes(jnp.i0, lambda y, x: jax.scipy.special.i1(x))(x)


def _lgamma(x):
    """The logarithm of the magnitude of the gamma function."""

    def slope(y, x):
        pole = jnp.copysign(x.dtype.type(jnp.inf), -x)
        return jnp.where(x == 0, pole, jax.scipy.special.digamma(x))

    return _with_slopes(jax.scipy.special.gammaln, slope)(x)


def _logit(x):
    """`log(x / (1 - x))`, the inverse of the logistic function."""

    def slope(y, x):
        return jnp.where((x < 0) | (x > 1), jnp.nan, 1 / (x * (1 - x)))

    return _with_slopes(jax.scipy.special.logit, slope)(x)


def _xlogy(x, y):
    """`x * log(y)`; 0 if x is 0."""

    def of_x(z, x, y):
        none = (x == 0) & (y <= 0)
        return jnp.where(none, 0, jnp.log(jnp.where(none, 1, y)))

    def of_y(z, x, y):
        zero = x == 0
        return jnp.where(zero, 0, x / jnp.where(zero, 1, y))

    return _with_slopes(jax.scipy.special.xlogy, of_x, of_y)(x, y)


def _det(x):
    """The determinant of each matrix. JAX does not differentiate that of empty ones."""
    return jnp.linalg.det(x) if x.size else jnp.ones(x.shape[:-2], x.dtype)


def _constrain(x, mesh, *spec):
    """x, divided over the mesh: `spec` names the mesh axes that divide each axis."""
    spec = jax.sharding.PartitionSpec(*spec)
    return jax.lax.with_sharding_constraint(x, jax.sharding.NamedSharding(mesh, spec))
