"""Amounts of memory as people write them."""

from __future__ import annotations

from operator import index

from . import _core
from .errors import UsageError, shown

__all__ = ["bytes_of", "bytes_text"]

MOST = 2**63 - 1


def bytes_text(amount: int) -> str:
    """`1.5 GiB`, as messages write it."""
    value = float(amount)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB" if value < 1000 else f"{value:.0f} TiB"


def bytes_of(amount: str | int, keyword: str) -> int:
    """The bytes of `"4GB"`, `"512 MiB"`, or a number of them.

    Errors: `UsageError` for what is no amount.
    """
    if isinstance(amount, str):
        found = _core.amount(amount)
        if found is not None:
            return min(found, MOST)
    elif hasattr(amount, "__index__") and not isinstance(amount, bool) and index(amount) >= 0:
        return min(index(amount), MOST)
    raise UsageError(f'`{keyword}` is no size\n  got: {shown(amount)}\n  expected: such as "4GB"')
