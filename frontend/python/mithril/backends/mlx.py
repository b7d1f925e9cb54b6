"""The MLX backend: gradients by MLX's function transformations, further compilation by
`mx.compile`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .._core import DType
from ..errors import BackendError
from ..seeds import ArraySeeds
from .base import Backend
from .functions import topk_by_sort
from .joint import JointRunner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._core import Program
    from ..parts import PartsRunner
    from .arrays import Arrays
    from .base import Namespace

__all__ = ["MlxBackend"]

# Functions that have another name in MLX.
ALIASES = {"concat": "concatenate", "bool": "bool_"}


class MlxBackend(Backend):
    """Runs models as MLX source. Arrays are `mlx.core.array`.

    `device` is `"cpu"`, `"gpu"`, or an `mx.Device` or `mx.DeviceType`; without it, MLX's default
    device is used. MLX has float64 on the CPU alone. Results of calls are computed, as by
    `mx.eval`, unless MLX traces the call.
    """

    kind: ClassVar[str] = "mlx"
    module: ClassVar[str] = "mlx.core"
    package: ClassVar[str] = "mlx"

    def _device_types(self) -> dict[str, type]:
        mx = self.framework
        return {"an `mx.Device`": mx.Device, "an `mx.DeviceType`": mx.DeviceType}

    def _device(self, device: Any) -> Any:
        mx = self.framework
        if device is not None and not isinstance(device, str):
            name = _device_name(mx, device)
            self._name_device(device, name)
            device = name
        have = [name for name in ("cpu", "gpu") if mx.is_available(mx.Device(getattr(mx, name), 0))]
        platform, _, index = (device or "").partition(":")
        own = mx.default_device()
        if device is not None:
            is_there = platform in have and (index or "0").isdecimal()
            own = mx.Device(getattr(mx, platform), int(index or 0)) if is_there else None
            if own is None or not mx.is_available(own):
                raise BackendError(
                    f"MLX has no device `{device}` here\n  expected: one of {', '.join(have)}"
                )
        if self.dtype.bits == 64 and own.type != mx.cpu:
            raise BackendError(
                f'MLX has float64 on the CPU alone\n  got: {own}\n  hint: use `device="cpu"`'
            )
        return None if device is None else own

    def own_dtype(self, dtype: object) -> Any:
        name = DType(dtype).name
        return getattr(self.framework, ALIASES.get(name, name))

    def _function(self, name: str) -> Callable[..., Any]:
        if name in SPECIAL:
            return partial(SPECIAL[name], self.framework)
        function: Callable[..., Any] = getattr(self.framework, ALIASES.get(name, name))
        return function

    def from_numpy(self, array: NDArray[Any]) -> Any:
        mx = self.framework
        if min(array.strides, default=0) < 0:
            array = array.copy()
        # MLX narrows float64 unless the dtype is given.
        return mx.array(array, dtype=mx.float64 if array.dtype.name == "float64" else None)

    def host_source(self, x: str, dtype: str) -> str:
        return f"np.array({x}.astype(mx.float32))" if dtype == "bfloat16" else f"np.array({x})"

    def from_host_source(self, x: str, dtype: str) -> str:
        # MLX narrows float64 unless the dtype is given.
        given = f", dtype=mx.{dtype}" if dtype in ("float64", "bfloat16") else ""
        return f"mx.array({x}{given})"

    def receive_source(self, x: str, dtype: str, source: Arrays) -> str | None:
        # Memory belongs to no device.
        return x if source.kind == self.kind else super().receive_source(x, dtype, source)

    def to_numpy(self, array: Any) -> NDArray[Any]:
        return as_numpy(array) if self.is_array(array) else self._as_numpy(array)

    def is_array(self, value: object) -> bool:
        return isinstance(value, self.framework.array)

    def is_readable(self, value: object) -> bool:
        return super().is_readable(value) and self._computed(value)

    def _computed(self, arrays: object) -> bool:
        """Computes arrays; False if a transformation such as `mx.compile` traces the call."""
        try:
            self.framework.eval(arrays)
        except ValueError as error:
            if "function transformations" not in str(error):
                raise
            return False
        return True

    def lacks_memory(self, error: Exception) -> bool:
        return isinstance(error, MemoryError) or "[malloc" in str(error)

    def recorded(self, runner: PartsRunner) -> Callable[..., Any]:
        if runner.kinds == {self.kind}:
            return runner.forward
        mx = self.framework

        def without(arrays: Any) -> dict[str, Any]:
            """NaN for what has no gradients here, so that it is not taken for 0."""
            return {n: mx.full(x.shape, float("nan"), x.dtype) for n, x in arrays.items()}

        forward = mx.custom_function(runner.forward)

        @forward.vjp  # type: ignore[untyped-decorator]
        def pullback(primals: Any, cotangents: Any, _: Any) -> Any:
            params, inputs, *rest = primals
            given = cotangents[0] if rest else cotangents
            floats = {n: g for n, g in given.items() if mx.issubdtype(g.dtype, mx.floating)}
            state = rest[0] if rest else None
            found = runner.gradients(params, inputs, state, ArraySeeds(floats))[1]
            return (found, without(inputs), *map(without, rest))

        return forward  # type: ignore[no-any-return]

    def runner(
        self, program: Program, namespace: Namespace, *, jit: bool
    ) -> MlxRunner | JointRunner:
        own = namespace()
        # `mx.compile` cannot trace conditions that depend on arrays.
        compiled = self.framework.compile if jit and not program.branches else None
        if program.own_gradients:
            runner: MlxRunner | JointRunner = JointRunner(self, own, compiled=compiled)
        else:
            runner = MlxRunner(self, own, compiled)
        runner.forward = self._around(runner.forward)
        runner.gradients = self._around(runner.gradients)  # type: ignore[method-assign]
        return runner

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Runs a call on the backend's device, and computes its results, so that errors are those
        of the call."""
        mx = self.framework

        def run(*args: Any) -> Any:
            with mx.stream(self.device) if self.device else nullcontext():
                result = call(*args)
                self._computed(result)
            return result

        return run


class MlxRunner:
    """Calls generated MLX source, and computes gradients by `mx.value_and_grad`."""

    def __init__(
        self,
        backend: MlxBackend,
        namespace: dict[str, Any],
        compiled: Callable[[Callable[..., Any]], Callable[..., Any]] | None,
    ) -> None:
        self._mx = mx = backend.framework
        self._raw = namespace["forward"]
        self.forward = compiled(self._raw) if compiled else self._raw
        self._differentiated = mx.value_and_grad(self._weighted)
        self._of_arrays = compiled(self._joint) if compiled else None

    def _weighted(self, params: Any, inputs: Any, state: Any, given: Any) -> tuple[Any, ...]:
        """The sum of all outputs, each times its output gradient, so that the gradients of this sum
        are those wanted. Returns the outputs and the next state as well."""
        mx = self._mx
        own = () if state is None else (state,)
        result = self._raw(params, inputs, *own)
        outputs, following = (result, None) if state is None else result
        total = mx.array(0.0)
        detached = {name: mx.stop_gradient(value) for name, value in outputs.items()}
        for name, seed in given(detached).items():
            if mx.issubdtype(outputs[name].dtype, mx.floating):
                product = outputs[name] * mx.stop_gradient(seed)
                total = total + mx.sum(product).astype(mx.float32)
        return total, outputs, following

    def _joint(self, params: Any, inputs: Any, state: Any, given: Any) -> tuple[Any, Any, Any]:
        if not params:
            return *self._weighted(params, inputs, state, lambda _: {})[1:2], {}, None
        functions = given if callable(given) else lambda _: given
        (_, outputs, following), gradients = self._differentiated(params, inputs, state, functions)
        return outputs, gradients, following

    def gradients(self, params: Any, inputs: Any, state: Any, seeds: Any) -> tuple[Any, Any, Any]:
        """Returns outputs, gradients by param, and the next state."""
        if self._of_arrays is None:
            return self._joint(params, inputs, state, seeds.of)
        given = seeds.arrays
        if given is None:
            own = () if state is None else (state,)
            result = self.forward(params, inputs, *own)
            given = seeds.of(result if state is None else result[0])
        found: tuple[Any, Any, Any] = self._of_arrays(params, inputs, state, given)
        return found


def _device_name(mx: Any, device: Any) -> str:
    """The name of an `mx.Device` or `mx.DeviceType`, with its index unless that is 0."""
    if isinstance(device, mx.DeviceType):
        return str(device.name)
    name = str(device.type.name)
    # MLX shows the index of a device only in its text.
    index = str(device).rstrip(")").rpartition(", ")[2]
    return name if index == "0" else f"{name}:{index}"


def as_numpy(array: Any) -> NDArray[Any]:
    """Converts an MLX array to a NumPy array, without a copy."""
    import mlx.core as mx  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    if array.dtype == mx.bfloat16:
        import ml_dtypes  # noqa: PLC0415

        return np.asarray(array.view(mx.int16)).view(ml_dtypes.bfloat16)
    return np.asarray(array)


def _cumsum(mx: Any, array: Any, axis: Any = None) -> Any:
    return mx.cumsum(array.reshape(-1) if axis is None else array, axis=axis or 0)


# Functions whose arguments or results in MLX differ from NumPy's.
SPECIAL: dict[str, Callable[..., Any]] = {
    "cumsum": _cumsum,
    "equal": lambda mx, x, y: mx.equal(x, y),
    "topk": topk_by_sort,
}
