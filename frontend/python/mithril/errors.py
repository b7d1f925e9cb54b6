"""What Mithril raises. Every message says what is wrong, where, what was got and expected."""

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
