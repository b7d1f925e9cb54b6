"""The array functions that every backend has."""

from __future__ import annotations

from typing import Any

__all__ = ["ALIASES", "FUNCTIONS", "topk_by_sort"]

ALIASES = {"concat": "concatenate"}
"""Functions that have another name in NumPy and in frameworks that follow it."""

FUNCTIONS = (
    "abs",
    "add",
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "broadcast_to",
    "ceil",
    "clip",
    "concat",
    "cos",
    "cosh",
    "cumsum",
    "divide",
    "equal",
    "exp",
    "expand_dims",
    "expm1",
    "flip",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "logical_and",
    "logical_not",
    "logical_or",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "outer",
    "pad",
    "power",
    "prod",
    "remainder",
    "repeat",
    "reshape",
    "round",
    "sign",
    "sin",
    "sinh",
    "sort",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "tan",
    "tanh",
    "tile",
    "topk",
    "transpose",
    "tril",
    "triu",
    "var",
    "where",
)
"""The array functions of every backend, with NumPy's names and semantics. `topk(x, k, axis=-1)`
returns the largest `k` elements in descending order, and their indices."""


def topk_by_sort(framework: Any, array: Any, k: int, axis: int = -1) -> tuple[Any, Any]:
    """The largest `k` elements and their indices, computed by NumPy's functions."""
    order = framework.flip(framework.argsort(array, axis=axis), axis=axis)
    indices = framework.take(order, framework.arange(k), axis=axis)
    return framework.take_along_axis(array, indices, axis=axis), indices
