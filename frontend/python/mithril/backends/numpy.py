"""The NumPy backend, on the CPU. The generated source also computes the gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .base import Backend
from .dtypes import numpy_dtype
from .joint import JointRunner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._core import Program
    from .base import Namespace


__all__ = ["NumpyBackend"]


class NumpyArrays(Backend):
    """A backend whose arrays are `numpy.ndarray`."""

    module: ClassVar[str] = "numpy"
    package: ClassVar[str] = "numpy"

    def own_dtype(self, dtype: object) -> Any:
        from .._core import DType  # noqa: PLC0415

        return numpy_dtype(DType(dtype))

    def from_numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def is_array(self, value: object) -> bool:
        return isinstance(value, self.framework.ndarray)


class NumpyBackend(NumpyArrays):
    """Runs models as NumPy source. Arrays are `numpy.ndarray`."""

    kind: ClassVar[str] = "numpy"

    def host_source(self, x: str, dtype: str) -> str:
        return f"{x}.astype(np.float32)" if dtype == "bfloat16" else x

    def from_host_source(self, x: str, dtype: str) -> str:
        return f"{x}.astype(ml_dtypes.bfloat16)" if dtype == "bfloat16" else x

    def runner(self, program: Program, namespace: Namespace, *, jit: bool) -> Any:
        if jit and type(self).jit is not Backend.jit:  # a subclass compiles the source
            return super().runner(program, namespace, jit=jit)
        return JointRunner(self, namespace())
