"""Amounts of memory as text, such as `4GB`."""

from __future__ import annotations

from operator import index

from . import _core
from .errors import UsageError, shown

__all__ = ["bytes_of", "bytes_text"]

MAX_BYTES = 2**63 - 1


def bytes_text(amount: int) -> str:
    """The amount as messages print it, such as `1.5 GiB`."""
    value = float(amount)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{_digits(value)} {unit}"
        value /= 1024
    return f"{_digits(value)} TiB"


def _digits(value: float) -> str:
    """The number with three digits, or as many as its integer part has."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def bytes_of(amount: str | int, keyword: str) -> int:
    """The number of bytes of `"4GB"`, of `"512 MiB"`, or of an integer.

    Errors: `UsageError` if it is not an amount.
    """
    if isinstance(amount, str):
        found = _core.amount(amount)
        if found is not None:
            return min(found, MAX_BYTES)
    elif hasattr(amount, "__index__") and not isinstance(amount, bool) and index(amount) >= 0:
        return min(index(amount), MAX_BYTES)
    raise UsageError(
        f"`{keyword}` is not a size\n  got: {shown(amount)}"
        '\n  expected: an amount of memory such as "4GB"'
    )
