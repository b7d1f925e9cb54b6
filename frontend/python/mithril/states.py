"""The state that a compiled model keeps between calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    from .backends.base import Backend

__all__ = ["held", "traced"]


def held(backend: Backend, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state as the model keeps it: without what the framework recorded to compute gradients.

    Errors: `UsageError` if a transformation of the framework traces the call, so that the arrays
    have no elements that outlive it.
    """
    changed = traced(backend, state)
    if changed:
        raise UsageError(
            "a traced call cannot change the state of the model"
            f"\n  got: `{changed[0]}` inside a transformation of {backend.kind} around `evaluate`"
            "\n  hint: pass the state, and keep the next one: "
            "`outputs, state = compiled.evaluate(params, inputs, state)`, first with "
            "`compiled.initial_state()`"
        )
    return {name: backend.without_history(array) for name, array in state.items()}


def traced(backend: Backend, state: Mapping[str, Any]) -> list[str]:
    """The names of the arrays that a transformation of the framework traces."""
    return [name for name, array in state.items() if not backend.is_readable(array)]
