"""Amounts of memory as people write them."""

from __future__ import annotations

from .errors import UsageError, shown

__all__ = ["bytes_of"]

UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def bytes_of(amount: str | int, keyword: str) -> int:
    """The bytes of `"4GB"`, `"512 MiB"`, or a number of them.

    Errors: `UsageError` for what is no amount.
    """
    if isinstance(amount, int) and not isinstance(amount, bool) and amount >= 0:
        return amount
    if isinstance(amount, str):
        text = amount.strip().upper()
        for unit, factor in UNITS.items():
            number = text[: -len(unit)].strip()
            if text.endswith(unit) and number.replace(".", "", 1).isdigit():
                return int(float(number) * factor)
    raise UsageError(f'`{keyword}` is no size\n  got: {shown(amount)}\n  expected: such as "4GB"')
