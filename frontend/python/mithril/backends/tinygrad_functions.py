"""tinygrad's array functions under NumPy's names, with NumPy's arguments."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["function"]

Array = Any
Axes = int | Sequence[int] | None


def function(name: str) -> Callable[..., Array]:
    """The function of this name in the table of array functions."""
    if name in METHODS:
        method = METHODS[name]
        return lambda x, *args: getattr(x, method)(*args)
    if name in REDUCTIONS:
        return lambda x, axis=None, keepdims=False: _reduced(name, x, axis, keepdims)
    return FUNCTIONS[name]


def _reduced(name: str, x: Array, axis: Axes, keepdims: bool) -> Array:
    if axis is None and name.startswith("arg"):
        found = getattr(x.flatten(), name)(0)
        return found.reshape((1,) * x.ndim) if keepdims else found
    return getattr(x, name)(axis, keepdim=keepdims)


def _expm1(x: Array) -> Array:
    near = x.abs() < 0.35
    small = near.where(x, 0)
    total = small.const_like(0.0)
    for i in range(13, 0, -1):
        total = (total + 1 / math.factorial(i)) * small
    return near.where(total, x.exp() - 1)


def _log1p(x: Array) -> Array:
    near = (x > -0.25) & (x < 0.3)
    small = near.where(x, 0)
    ratio = small / (small + 2)
    total = small.const_like(0.0)
    for i in range(21, 0, -2):
        total = total * ratio * ratio + 2 / i
    return near.where(ratio * total, (x + 1).log())


def _sinh(x: Array) -> Array:
    e = _expm1(x)
    return (x.abs() < 1).where(e * (e + 2) / (2 * e + 2), x.sinh())


def _tanh(x: Array) -> Array:
    e = _expm1(2 * x.clip(-20, 20))
    return e / (e + 2)


def _remainder(x: Array, y: Array) -> Array:
    rest = x - y * (x / y).trunc() if x.is_floating_point() else x % y
    return (rest.ne(0) & (rest < 0).ne(y < 0)).where(rest + y, rest)


def _expand_dims(x: Array, axis: Axes) -> Array:
    axes = [axis] if isinstance(axis, int) else list(axis or ())
    rank = x.ndim + len(axes)
    for one in sorted(a % rank for a in axes):
        x = x.unsqueeze(one)
    return x


def _squeeze(x: Array, axis: Axes = None) -> Array:
    if axis is None:
        return x.squeeze()
    axes = [axis] if isinstance(axis, int) else list(axis)
    for one in sorted((a % x.ndim for a in axes), reverse=True):
        x = x.squeeze(one)
    return x


def _flip(x: Array, axis: Axes = None) -> Array:
    return x.flip(tuple(range(x.ndim)) if axis is None else axis)


def _cumsum(x: Array, axis: int | None = None) -> Array:
    return x.flatten().cumsum(0) if axis is None else x.cumsum(axis)


def _ordered(x: Array, axis: int | None) -> tuple[Array, int]:
    return (x.flatten(), 0) if axis is None else (x, axis)


def _sort(x: Array, axis: int | None = -1) -> Array:
    x, axis = _ordered(x, axis)
    return x.sort(axis)[0]


def _argsort(x: Array, axis: int | None = -1) -> Array:
    x, axis = _ordered(x, axis)
    return x.argsort(axis)


def _topk(x: Array, k: int, axis: int = -1) -> tuple[Array, Array]:
    found: tuple[Array, Array] = x.topk(k, axis)
    return found


def _concat(arrays: Sequence[Array], axis: int = 0) -> Array:
    first, *rest = arrays
    return first.cat(*rest, dim=axis)


def _stack(arrays: Sequence[Array], axis: int = 0) -> Array:
    first, *rest = arrays
    return first.stack(*rest, dim=axis)


def _transpose(x: Array, axes: Sequence[int] | None = None) -> Array:
    return x.permute(tuple(reversed(range(x.ndim))) if axes is None else tuple(axes))


def _take(x: Array, indices: Array, axis: int | None = None) -> Array:
    x, axis = _ordered(x, axis)
    own = indices if isinstance(indices, type(x)) else type(x)(indices)
    return x[(slice(None),) * (axis % x.ndim) + (own,)]


def _tile(x: Array, reps: int | Sequence[int]) -> Array:
    return x.repeat((reps,) if isinstance(reps, int) else tuple(reps))


def _pad(x: Array, pad_width: Any, constant_values: float = 0) -> Array:
    if isinstance(pad_width, int):
        pad_width = [(pad_width, pad_width)] * x.ndim
    elif isinstance(pad_width[0], int):
        pad_width = [tuple(pad_width)] * x.ndim
    widths = tuple((int(low), int(high)) for low, high in pad_width)
    return x.pad(widths, value=constant_values)


def _round(x: Array) -> Array:
    near = x.trunc()
    rest = (x - near).abs()
    odd = ((near / 2).trunc() * 2).ne(near)
    away = (rest > 0.5) | (rest.eq(0.5) & odd)
    return away.where(near + (x < 0).where(-1.0, 1.0), near)


def _clip(x: Array, low: Any = None, high: Any = None) -> Array:
    return x if low is None and high is None else x.clip(low, high)


def _var(x: Array, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Array:
    return x.var(axis, keepdim=keepdims, correction=ddof)


def _std(x: Array, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Array:
    return x.std(axis, keepdim=keepdims, correction=ddof)


# Functions that are methods of their first argument.
METHODS = {
    "abs": "abs",
    "add": "add",
    "ceil": "ceil",
    "cos": "cos",
    "cosh": "cosh",
    "divide": "div",
    "equal": "eq",
    "exp": "exp",
    "floor": "floor",
    "isfinite": "isfinite",
    "isinf": "isinf",
    "isnan": "isnan",
    "log": "log",
    "log2": "log2",
    "logical_not": "logical_not",
    "matmul": "matmul",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "power": "pow",
    "sign": "sign",
    "sin": "sin",
    "sqrt": "sqrt",
    "square": "square",
    "subtract": "sub",
    "swapaxes": "transpose",
    "tan": "tan",
}
REDUCTIONS = ("all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "sum")
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "argsort": _argsort,
    "broadcast_to": lambda x, shape: x.expand(tuple(shape)),
    "clip": _clip,
    "concat": _concat,
    "cumsum": _cumsum,
    "expand_dims": _expand_dims,
    "expm1": _expm1,
    "flip": _flip,
    "floor_divide": operator.floordiv,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "less": operator.lt,
    "less_equal": operator.le,
    "log1p": _log1p,
    "logical_and": lambda x, y: x.bool() & y.bool(),
    "logical_or": lambda x, y: x.bool() | y.bool(),
    "outer": lambda x, y: x.flatten().unsqueeze(1) * y.flatten(),
    "pad": _pad,
    "remainder": _remainder,
    "repeat": lambda x, repeats, axis=None: x.repeat_interleave(repeats, axis),
    "reshape": lambda x, shape: x.reshape(shape),
    "round": _round,
    "sinh": _sinh,
    "sort": _sort,
    "squeeze": _squeeze,
    "stack": _stack,
    "std": _std,
    "take": _take,
    "tanh": _tanh,
    "tile": _tile,
    "topk": _topk,
    "transpose": _transpose,
    "tril": lambda x, k=0: x.tril(k),
    "triu": lambda x, k=0: x.triu(k),
    "var": _var,
    "where": lambda condition, x, y: condition.where(x, y),
}
