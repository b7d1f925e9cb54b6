"""NumPy, on the CPU. Gradients come with the generated source."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .base import Backend, numpy_dtype, topk_by_sort

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NumpyBackend"]

ALIASES = {"concat": "concatenate"}


class NumpyBackend(Backend):
    """Runs models as NumPy source. Arrays are `numpy.ndarray`."""

    kind: ClassVar[str] = "numpy"
    module: ClassVar[str] = "numpy"
    package: ClassVar[str] = "numpy"

    def own_dtype(self, dtype: object) -> Any:
        from .._core import DType  # noqa: PLC0415

        return numpy_dtype(DType(dtype))

    def _function(self, name: str) -> Callable[..., Any]:
        if name == "topk":
            return partial(topk_by_sort, self.framework)
        function: Callable[..., Any] = getattr(self.framework, ALIASES.get(name, name))
        return function

    def from_numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def is_array(self, value: object) -> bool:
        return isinstance(value, self.framework.ndarray)
