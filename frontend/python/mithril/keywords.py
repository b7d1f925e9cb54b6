"""Messages for keywords that a function does not have."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from . import _core
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["explain_unknown_keywords"]

P = ParamSpec("P")
T = TypeVar("T")


def explain_unknown_keywords(**elsewhere: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that makes a function raise a `UsageError` with a hint for an unknown
    keyword.

    `elsewhere` are keywords of other libraries, each with its name here.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        known = list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*args: P.args, **keywords: P.kwargs) -> T:
            unknown = next((name for name in keywords if name not in known), None)
            if unknown is None:
                return function(*args, **keywords)
            hint = _core.did_you_mean(unknown, known)
            if unknown in elsewhere:
                hint = f"it is called `{elsewhere[unknown]}` here"
            raise UsageError(
                f"`{function.__name__}` has no keyword `{unknown}`"
                f"\n  expected: {', '.join(f'`{k}`' for k in known)}"
                + (f"\n  hint: {hint}" if hint else "")
            )

        return call

    return decorated
