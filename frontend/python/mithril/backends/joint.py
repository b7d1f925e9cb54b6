"""Runs generated source that computes gradients without the framework's automatic
differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import Backend

__all__ = ["JointRunner"]

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]


class JointRunner:
    """Calls `forward` and `outputs_and_gradients` of generated source.

    `compiled` is the framework's just-in-time compiler, if it is used. With it, output gradients
    that are functions of the outputs cost an extra forward pass, as they need concrete arrays.
    """

    def __init__(
        self, backend: Backend, namespace: dict[str, Any], *, compiled: Compiler | None = None
    ) -> None:
        self._backend = backend
        self._joint = namespace.get("outputs_and_gradients")
        self._compiled = None if compiled is None else compiled(self._of_arrays)
        self.forward = namespace["forward"] if compiled is None else compiled(namespace["forward"])

    def gradients(self, params: Any, inputs: Any, state: Any, seeds: Any) -> tuple[Any, Any, Any]:
        """Returns outputs, gradients by param, and the next state."""
        own = () if state is None else (state,)
        if self._joint is None:
            result = self.forward(params, inputs, *own)
            outputs, following = (result, None) if state is None else result
            return outputs, {}, following
        if self._compiled is not None:
            given = seeds.arrays
            if given is None:
                result = self.forward(params, inputs, *own)
                given = seeds.of(result if state is None else result[0])
            result = self._compiled(params, inputs, own, given)
        else:
            result = self._joint(params, inputs, *own, lambda o: self._full(seeds.of(o), o))
        outputs, gradients, *following = result
        return outputs, gradients, following[0] if following else None

    def _of_arrays(self, params: Any, inputs: Any, own: Any, given: Any) -> Any:
        assert self._joint is not None
        return self._joint(params, inputs, *own, lambda outputs: self._full(given, outputs))

    def _full(self, given: Any, outputs: Any) -> dict[str, Any]:
        zeros = self._backend.zeros_like
        return {n: given[n] if n in given else zeros(value) for n, value in outputs.items()}
