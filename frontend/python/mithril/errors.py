"""What Mithril raises. Every message says what is wrong, where, what was got and expected."""

from collections.abc import Mapping
from typing import Any

__all__ = [
    "BackendError",
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


class MithrilError(ValueError):
    """Anything a user can mend. All other errors of this package derive from it."""


class ShapeError(MithrilError):
    """Shapes, ranks or dtypes that do not fit together, in a model or in the arrays given to it."""


class TerminalError(MithrilError, AttributeError):
    """A terminal that is not there. An `AttributeError` too: `hasattr(model, "x")` is an answer."""


class BackendError(MithrilError):
    """What a backend cannot do, or a framework that is not installed."""


class UsageError(MithrilError, TypeError):
    """A keyword or an argument that a function does not take."""


def truth(given: object, keyword: str) -> bool:
    """What a keyword that is True or False was given. Errors: `UsageError` for anything else."""
    if getattr(given, "shape", ()) != () or given not in (True, False):
        raise UsageError(f"`{keyword}` is True or False\n  got: {shown(given)}")
    return bool(given)


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
    return dict(given or {})
