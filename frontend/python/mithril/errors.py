"""What Mithril raises. Every message says what is wrong, where, what was got and expected."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from . import _core

MORE = "\n  more: mithril error "
"""What stands before the code of an error, which ends its message."""

__all__ = [
    "BackendError",
    "IndexRangeError",
    "MithrilError",
    "ShapeError",
    "TerminalError",
    "UsageError",
]


def shown(value: object) -> str:
    """A value in a message: as it is written, or what it is where that is long."""
    text = repr(value)
    if len(text) <= 60 and "\n" not in text:
        return text
    shape = getattr(value, "shape", None)
    sizes = "" if shape is None else f" of shape {tuple(shape)}"
    return f"{type(value).__name__}{sizes}"


def absent(module: str, name: str, names: Iterable[str]) -> Exception:
    """The error of a module's `__getattr__` for a name that is not there, with what is near it.

    For `from module import name` it is an `ImportError`: of an `AttributeError` Python would leave
    the message out.
    """
    import dis  # noqa: PLC0415
    import sys  # noqa: PLC0415

    hint = _core.elsewhere(name) or _core.did_you_mean(name, list(names))
    text = f"module `{module}` has no `{name}`" + (f": {hint}" if hint else "")
    reader = sys._getframe(2)
    reads = reader.f_code.co_code[reader.f_lasti]
    if reads == dis.opmap["IMPORT_FROM"]:
        return ImportError(text)
    # Python adds a near name of its own, unless the error says whose attribute it is.
    return AttributeError(text, name=name, obj=object())


class MithrilError(ValueError):
    """Anything a user can mend. All other errors of this package derive from it."""

    @property
    def code(self) -> str:
        """The code of the kind of error, whose page `mithril error CODE` prints."""
        return _core.error_code(super().__str__())

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}{MORE}{self.code}" if text else text


class ShapeError(MithrilError):
    """Shapes, ranks or dtypes that do not fit together, in a model or in the arrays given to it."""


class IndexRangeError(MithrilError, IndexError):
    """An integer that indexes an axis of an array and is out of its range."""


class TerminalError(MithrilError, AttributeError):
    """A terminal that is not there. An `AttributeError` too: `hasattr(model, "x")` is an answer."""


class BackendError(MithrilError):
    """What a backend cannot do, or a framework that is not installed."""


class UsageError(MithrilError, TypeError):
    """A keyword or an argument that a function does not take."""


def listed(names: Collection[str]) -> str:
    """The first eight names, and how many there are."""
    some = ", ".join(f"`{name}`" for name in [*names][:8])
    return f"{some}, … ({len(names)})" if len(names) > 8 else some or "there are none"


def truth(given: object, keyword: str) -> bool:
    """What a keyword that is True or False was given. Errors: `UsageError` for anything else."""
    if getattr(given, "shape", ()) != () or given not in (True, False):
        raise UsageError(f"`{keyword}` is True or False\n  got: {shown(given)}")
    return bool(given)


def unicode(text: str, keyword: str) -> str:
    """A text that `keyword` was given. Errors: `UsageError` for half of a surrogate pair in it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"`{keyword}` has half of a surrogate pair in it\n  got: {text!r}"
            "\n  expected: Unicode: halves come from bytes that were decoded by `surrogateescape`"
        ) from error
    return text


def mapping(given: object, keyword: str, what: str) -> dict[str, Any]:
    """What a keyword that is a dict by name was given. Errors: `UsageError` for anything else."""
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"`{keyword}` is a dict of {what}\n  got: {shown(given)}")
    wrong = next((name for name in given or {} if not isinstance(name, str)), None)
    if wrong is not None:
        raise UsageError(
            f"`{keyword}` is a dict of {what}"
            f"\n  got: {shown(wrong)} for a name\n  expected: a string"
        )
    for name in given or {}:
        unicode(name, keyword)
    return dict(given or {})
