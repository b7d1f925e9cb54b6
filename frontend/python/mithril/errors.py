"""Mithril's errors. Each message says what is wrong and where, and gives the value got and the
value expected."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from . import _core

MORE = "\n  more: mithril error "
"""The last line of a message, up to the error's code."""

__all__ = [
    "BackendError",
    "BackendWarning",
    "IndexRangeError",
    "MithrilError",
    "ShapeError",
    "TerminalError",
    "UsageError",
]


def shown(value: object) -> str:
    """A value as text for a message: its repr, or its type and shape if the repr is long."""
    text = repr(value)
    if len(text) <= 60 and "\n" not in text:
        return text
    shape = getattr(value, "shape", None)
    sizes = "" if shape is None else f" of shape {tuple(shape)}"
    return f"{type(value).__name__}{sizes}"


def missing_name(module: str, name: str, names: Iterable[str]) -> Exception:
    """The error for a missing name, for a module's `__getattr__`, with a hint of similar names.

    `from module import name` gets an `ImportError`, as Python would drop the message of an
    `AttributeError`.
    """
    import dis  # noqa: PLC0415
    import sys  # noqa: PLC0415

    hint = _core.elsewhere(name) or _core.did_you_mean(name, list(names))
    text = f"module `{module}` has no `{name}`" + (f": {hint}" if hint else "")
    reader = sys._getframe(2)
    reads = reader.f_code.co_code[reader.f_lasti]
    if reads == dis.opmap["IMPORT_FROM"]:
        return ImportError(text)
    # Python would add a suggestion of its own, so name another object as the attribute's owner.
    return AttributeError(text, name=name, obj=object())


class MithrilError(ValueError):
    """An error that users can fix. All other errors of this package derive from it."""

    code = "E0100"
    """The code of this kind of error; `mithril error CODE` prints its page."""

    def __init__(self, *args: object, code: str | None = None) -> None:
        super().__init__(*args)
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}{MORE}{self.code}" if text else text


class ShapeError(MithrilError):
    """Shapes, ranks or dtypes are incompatible, in a model or in the arrays of a call."""

    code = "E0202"


class IndexRangeError(MithrilError, IndexError):
    """An integer that indexes an axis is out of range."""

    code = "E0205"


class TerminalError(MithrilError, AttributeError):
    """An unknown terminal. It is also an `AttributeError`, so that `hasattr(model, "x")` works."""

    code = "E0107"


class BackendError(MithrilError):
    """A backend cannot do something, or its framework is not installed."""

    code = "E0502"


class BackendWarning(UserWarning):
    """An option of a backend has no effect on its device."""


class UsageError(MithrilError, TypeError):
    """A function does not take this keyword or argument."""

    code = "E0402"


def listed(names: Collection[str]) -> str:
    """The first eight names, followed by the number of names if there are more."""
    some = ", ".join(f"`{name}`" for name in [*names][:8])
    return f"{some}, … ({len(names)})" if len(names) > 8 else some or "there are none"


def as_bool(given: object, keyword: str) -> bool:
    """The value of a bool keyword. Errors: `UsageError` if it is not True or False."""
    if getattr(given, "shape", ()) != () or given not in (True, False):
        raise UsageError(f"`{keyword}` must be True or False\n  got: {shown(given)}")
    return bool(given)


def valid_unicode(text: str, keyword: str) -> str:
    """The text given for `keyword`. Errors: `UsageError` if it contains a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"`{keyword}` contains a lone surrogate\n  got: {text!r}"
            "\n  expected: valid Unicode; bytes decoded with `surrogateescape` have lone surrogates"
        ) from error
    return text


def mapping(given: object, keyword: str, what: str) -> dict[str, Any]:
    """The value of a keyword that takes a dict by name. Errors: `UsageError` if it is not one."""
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(
            f"`{keyword}` must be a dict of {what}\n  got: {shown(given)}", code="E0303"
        )
    wrong = next((name for name in given or {} if not isinstance(name, str)), None)
    if wrong is not None:
        raise UsageError(
            f"`{keyword}` must be a dict of {what}"
            f"\n  got: {shown(wrong)} for a name\n  expected: a string",
            code="E0303",
        )
    for name in given or {}:
        valid_unicode(name, keyword)
    return dict(given or {})
