"""JAX: one `jax.jit` over the generated source, gradients by `jax.vjp`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .._core import DType
from ..errors import BackendError
from .base import Backend, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["JaxBackend"]


class JaxBackend(Backend):
    """Runs models as JAX source. Arrays are `jax.Array`.

    `device` is a platform, with a number where there are several: `"cpu"`, `"gpu:1"`. A backend of
    64-bit floats turns JAX's 64-bit types on for the whole process.
    """

    kind: ClassVar[str] = "jax"
    module: ClassVar[str] = "jax"
    package: ClassVar[str] = "jax"

    def _device(self, device: str | None) -> Any:
        if self.dtype.bits == 64:
            self.framework.config.update("jax_enable_x64", True)
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
        function: Callable[..., Any] = getattr(self.jnp, "concatenate" if name == "concat" else name)
        return function

    def from_numpy(self, array: NDArray[Any]) -> Any:
        return self.framework.device_put(narrow(self.framework, array), self.device)

    def is_array(self, value: object) -> bool:
        return isinstance(value, self.framework.Array)


def narrow(jax: Any, array: NDArray[Any]) -> NDArray[Any]:
    """Without JAX's 64-bit types, 64-bit integers in 32 bits: JAX would do it with a warning."""
    if jax.config.jax_enable_x64 or array.dtype.itemsize != 8 or array.dtype.kind not in "iu":
        return array
    return array.astype(f"{array.dtype.kind}4")


def _topk(lax: Any, jnp: Any, array: Any, k: int, axis: int = -1) -> tuple[Any, Any]:
    values, indices = lax.top_k(jnp.moveaxis(array, axis, -1), k)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(indices, -1, axis)
