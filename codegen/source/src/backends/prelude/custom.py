"""Functions of registered backends that define no others. `xp` is the array module."""

import numpy as xp


def _broadcast(x, shape, axes):
    """Broadcasts x to `shape`; its axes become `axes` of the result."""
    axes = [a % len(shape) for a in axes]
    x = xp.transpose(x, sorted(range(len(axes)), key=axes.__getitem__))
    expanded = [1] * len(shape)
    for axis, n in zip(sorted(axes), x.shape):
        expanded[axis] = n
    return xp.broadcast_to(x.reshape(tuple(expanded)), shape)


def _sum_to(x, shape):
    """Sums x to `shape`: the transpose of broadcasting from `shape`."""
    new = x.ndim - len(shape)
    repeated = [i for i, n in enumerate(shape, new) if n == 1 and x.shape[i] != 1]
    axes = (*range(new), *repeated)
    return xp.sum(x, axis=axes).astype(x.dtype).reshape(shape) if axes else x


def _iota(shape, axis, dtype):
    """0, 1, 2, … along `axis` of `shape`."""
    column = [1] * len(shape)
    column[axis] = shape[axis]
    return xp.broadcast_to(
        xp.arange(shape[axis], dtype=dtype).reshape(tuple(column)), shape
    )


def _stack(rows, shape, dtype):
    """Stacks rows along a new first axis; without rows, an empty array of `shape`."""
    return xp.stack(rows) if rows else xp.zeros(shape, dtype=dtype)


def _checkpoint(function, *operands):
    """Calls `function`. The framework keeps its intermediate values."""
    return function(*operands)
