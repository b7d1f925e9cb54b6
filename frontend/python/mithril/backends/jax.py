"""The JAX backend: runs generated source under `jax.jit`, with gradients by `jax.vjp`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .._core import DType
from ..errors import BackendError
from .base import Backend
from .dtypes import numpy_dtype
from .foreign import shared
from .joint import JointRunner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._core import Program
    from .base import Namespace

__all__ = ["JaxBackend"]


class JaxBackend(Backend):
    """Runs models as JAX source. Arrays are `jax.Array`.

    `device` is a platform, with an index if it has several devices: `"cpu"`, `"gpu:1"`. A backend
    with 64-bit floats turns on JAX's 64-bit types for the whole process.
    """

    kind: ClassVar[str] = "jax"
    module: ClassVar[str] = "jax"
    package: ClassVar[str] = "jax"

    def _device(self, device: str | None) -> Any:
        if self.dtype.bits == 64:
            self.widen()
        self.jnp = self.framework.numpy
        if device is None:
            return None
        platform, _, index = device.partition(":")
        try:
            return self.framework.devices(platform)[int(index or 0)]
        except (RuntimeError, IndexError, ValueError) as error:
            have = ", ".join(str(d) for d in self.framework.devices())
            raise BackendError(
                f"JAX has no device `{device}`\n  expected: one of {have}"
            ) from error

    @property
    def jit_default(self) -> bool:
        return True

    def own_dtype(self, dtype: object) -> Any:
        return numpy_dtype(DType(dtype))

    def _function(self, name: str) -> Callable[..., Any]:
        if name == "topk":
            return partial(_topk, self.framework.lax, self.jnp)
        function: Callable[..., Any] = getattr(
            self.jnp, "concatenate" if name == "concat" else name
        )
        return function

    def from_numpy(self, array: NDArray[Any]) -> Any:
        return self.framework.device_put(narrow(self.framework, array), self.device)

    def receive(self, array: Any) -> Any:
        jax = self.framework
        if not self.is_array(array):
            own = shared(self.jnp.from_dlpack, array)
            array = self.from_numpy(self._as_numpy(array)) if own is None else own
        device = self.device or jax.devices()[0]
        is_here = len(array.devices()) > 1 or array.devices() == {device}
        return array if is_here else jax.device_put(array, device)

    def is_readable(self, value: object) -> bool:
        return super().is_readable(value) and not isinstance(value, self.framework.core.Tracer)

    def is_array(self, value: object) -> bool:
        return isinstance(value, self.framework.Array)

    def memory(self) -> int | None:
        device = self.device or self.framework.devices()[0]
        return super().memory() if device.platform == "cpu" else None

    def lacks_memory(self, error: Exception) -> bool:
        return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)

    @property
    def wide(self) -> bool:
        return bool(self.framework.config.jax_enable_x64)

    def widen(self) -> None:
        self.framework.config.update("jax_enable_x64", True)

    def runner(
        self, program: Program, namespace: Namespace, *, jit: bool
    ) -> JaxRunner | JointRunner:
        own = namespace()
        if program.own_gradients:
            return JointRunner(self, own, compiled=self.framework.jit if jit else None)
        return JaxRunner(self, own, jit=jit)


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


def narrow(jax: Any, array: NDArray[Any]) -> NDArray[Any]:
    """Casts 64-bit integers to 32 bits if JAX's 64-bit types are off; JAX would warn about it."""
    if jax.config.jax_enable_x64 or array.dtype.itemsize != 8 or array.dtype.kind not in "iu":
        return array
    return array.astype(f"{array.dtype.kind}4")


def _topk(lax: Any, jnp: Any, array: Any, k: int, axis: int = -1) -> tuple[Any, Any]:
    values, indices = lax.top_k(jnp.moveaxis(array, axis, -1), k)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(indices, -1, axis)
