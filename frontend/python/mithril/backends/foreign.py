"""Converts arrays of any framework to NumPy arrays, and shares their memory."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["as_numpy", "shared"]

# Frameworks whose arrays need a function of their own, in `backends/<name>.py`.
OWN = ("torch", "mlx", "tinygrad")


def as_numpy(value: Any) -> NDArray[Any]:
    """Converts an array to a NumPy array of the same dtype, without a copy where that is possible.

    Errors: those of the framework, for arrays that are not in memory.
    """
    import numpy as np  # noqa: PLC0415

    for cls in type(value).__mro__:
        framework = cls.__module__.partition(".")[0]
        if framework in OWN:
            found: NDArray[Any] = import_module(f".{framework}", __package__).as_numpy(value)
            return found
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def shared(take: Callable[[Any], Any], array: Any) -> Any:
    """The array that `take`, a framework's `from_dlpack`, makes of another framework's array. None
    if one of the two frameworks has no DLPack for it: for bfloat16 in NumPy, for example."""
    if not hasattr(array, "__dlpack__"):
        return None
    if getattr(array, "requires_grad", False):
        array = array.detach()
    try:
        return take(array)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return None
