"""Patterns of names, in which `*` stands for any part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from . import _core
from .errors import TerminalError, listed

__all__ = ["first_matches"]

T = TypeVar("T")


def first_matches(
    given: Mapping[str, T], names: Sequence[str], keyword: str, kind: tuple[str, str]
) -> dict[str, T]:
    """For each name, the value of the first pattern that matches it. `kind` says what the names
    are, one and several: `("param", "params")`.

    Errors: `TerminalError` for a pattern that matches no name.
    """
    chosen: dict[str, T] = {}
    for pattern, value in given.items():
        found = [name for name in names if fnmatchcase(name, str(pattern))]
        if not found:
            near = _core.did_you_mean(str(pattern), list(names))
            raise TerminalError(
                f"Terminal not found: no {kind[0]} matches the pattern `{pattern}` of `{keyword}`"
                f"\n  expected: names of {kind[1]}, with `*` for any part: {listed(names)}"
                + (f"\n  hint: {near}" if near else "")
            )
        for name in found:
            chosen.setdefault(name, value)
    return chosen
