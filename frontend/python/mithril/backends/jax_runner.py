"""Calls of generated JAX source, with gradients by `jax.vjp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .jax import JaxBackend

__all__ = ["JaxRunner"]


class JaxRunner:
    """Calls generated JAX source. Separate `jax.jit` functions compute the forward pass, the
    gradients for given arrays, and the forward and backward passes for output gradients that are
    functions of the outputs."""

    def __init__(self, backend: JaxBackend, namespace: dict[str, Any], *, jit: bool) -> None:
        self._jax = jax = backend.framework
        forward = namespace["forward"]
        self._raw = forward
        compiled = jax.jit if jit else _as_is
        self.forward = compiled(forward)
        self._forward_with_pullback = compiled(self._pullback)
        self._apply_pullback = compiled(_call)
        self._forward_backward = compiled(self._joint)

    def _pullback(self, params: Any, inputs: Any, state: Any) -> tuple[Any, Any, Any]:
        """Returns the pullback (`jax.vjp`) to the params, the outputs, and the next state."""
        jnp = self._jax.numpy

        def varying(params: Any) -> tuple[Any, Any]:
            own = () if state is None else (state,)
            result = self._raw(params, inputs, *own)
            outputs, following = (result, None) if state is None else result
            floats = {n: v for n, v in outputs.items() if jnp.issubdtype(v.dtype, jnp.floating)}
            return floats, (outputs, following)

        _, pullback, rest = self._jax.vjp(varying, params, has_aux=True)
        return pullback, rest[0], rest[1]

    def _joint(self, params: Any, inputs: Any, state: Any, seeds: Any) -> tuple[Any, Any, Any]:
        pullback, outputs, following = self._pullback(params, inputs, state)
        return outputs, pullback(self._full(seeds, outputs))[0], following

    def _full(self, seeds: Any, outputs: Any) -> Any:
        jnp = self._jax.numpy
        floats = {n: v for n, v in outputs.items() if jnp.issubdtype(v.dtype, jnp.floating)}
        return {n: seeds[n] if n in seeds else jnp.zeros_like(v) for n, v in floats.items()}

    def gradients(self, params: Any, inputs: Any, state: Any, seeds: Any) -> tuple[Any, Any, Any]:
        """Returns outputs, gradients by param, and the next state."""
        arrays = seeds.arrays
        if arrays is not None:
            result: tuple[Any, Any, Any] = self._forward_backward(params, inputs, state, arrays)
            return result
        pullback, outputs, following = self._forward_with_pullback(params, inputs, state)
        given = self._full(seeds.of(outputs), outputs)
        return outputs, self._apply_pullback(pullback, given)[0], following


def _as_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _call(function: Callable[..., Any], argument: Any) -> Any:
    return function(argument)
