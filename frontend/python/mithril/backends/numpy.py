"""NumPy, on the CPU. Gradients come with the generated source."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .base import Backend, numpy_dtype, topk_by_sort

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._core import Program
    from .base import Namespace

__all__ = ["NumpyBackend"]

ALIASES = {"concat": "concatenate"}


class NumpyArrays(Backend):
    """A backend whose arrays are `numpy.ndarray`."""

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


class NumpyBackend(NumpyArrays):
    """Runs models as NumPy source. Arrays are `numpy.ndarray`."""

    kind: ClassVar[str] = "numpy"

    def runner(
        self, program: Program, namespace: Namespace, *, jit: bool, checkpoint: bool
    ) -> NumpyRunner:
        return NumpyRunner(self, namespace())


class NumpyRunner:
    """Calls the functions of a generated NumPy source."""

    def __init__(self, backend: NumpyBackend, namespace: dict[str, Any]) -> None:
        self.forward = namespace["forward"]
        self._joint = namespace.get("outputs_and_gradients")
        self._backend = backend

    def gradients(self, params: Any, inputs: Any, state: Any, seeds: Any) -> tuple[Any, Any, Any]:
        """Outputs, gradients by param, next state."""
        own = () if state is None else (state,)
        if self._joint is None:
            result = self.forward(params, inputs, *own)
            outputs, following = (result, None) if state is None else result
            return outputs, {}, following

        def full(outputs: Any) -> dict[str, Any]:
            given = seeds.of(outputs)
            zeros = self._backend.zeros_like
            return {n: given[n] if n in given else zeros(value) for n, value in outputs.items()}

        outputs, gradients, *following = self._joint(params, inputs, *own, full)
        return outputs, gradients, following[0] if following else None
