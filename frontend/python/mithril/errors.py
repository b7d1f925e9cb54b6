"""What Mithril raises. Every message says what is wrong, where, what was got and expected."""

__all__ = [
    "BackendError",
    "MithrilError",
    "ShapeError",
    "TerminalError",
    "UsageError",
]


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
