"""Amounts of memory as people write them."""

from __future__ import annotations

from operator import index

from .errors import UsageError, shown

__all__ = ["bytes_of"]

DECIMAL = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS = {**DECIMAL, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "B": 1}
MOST = 2**63 - 1


def bytes_of(amount: str | int, keyword: str) -> int:
    """The bytes of `"4GB"`, `"512 MiB"`, or a number of them.

    Errors: `UsageError` for what is no amount.
    """
    if isinstance(amount, str):
        text = amount.strip().upper()
        unit = next((unit for unit in UNITS if text.endswith(unit)), "")
        number = text[: len(text) - len(unit)].strip()
        if unit and number.isascii() and number.replace(".", "", 1).isdecimal():
            return min(int(float(number) * UNITS[unit]), MOST)
    elif hasattr(amount, "__index__") and not isinstance(amount, bool) and index(amount) >= 0:
        return min(index(amount), MOST)
    raise UsageError(f'`{keyword}` is no size\n  got: {shown(amount)}\n  expected: such as "4GB"')
