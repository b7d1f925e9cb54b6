"""The PyTorch backend: gradients by autograd, further compilation by `torch.compile`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .._core import DType
from ..errors import BackendError, BackendWarning, MithrilError, UsageError, as_bool, shown
from ..units import bytes_of
from .joint import JointRunner
from .torch_arrays import TorchArrays, as_numpy
from .torch_autocast import LossScaler, autocast, under_autocast
from .torch_memory import MemoryLimit, check_hook, flow, limited, storage_sizes
from .torch_runner import TorchRunner, compiled, set_apart, within

if TYPE_CHECKING:
    import torch

    from .._core import Program
    from ..parts import PartsRunner
    from .base import Namespace
    from .torch_mesh_runner import MeshRunner

__all__ = ["TorchBackend", "as_numpy"]

MemoryHook = Callable[[str, int, int], object]

# Functions that have another name in torch.
ALIASES = {"concat": "cat", "power": "pow", "tile": "tile"}
# Reductions with `axis=` and `keepdims=`, which torch's functions call `dim=` and `keepdim=`.
REDUCTIONS = {
    "sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod", "all": "all",
    "any": "any", "argmax": "argmax", "argmin": "argmin",
}  # fmt: skip


class TorchBackend(TorchArrays):
    """Runs models as PyTorch source. Arrays are `torch.Tensor`.

    `device` is a torch device such as `"cpu"`, `"cuda:0"` or `"mps"`. With `requires_grad`,
    `randomize_params` returns leaf tensors that require gradients.

    `use_amp` runs models under `torch.autocast`: products and convolutions in float16 on CUDA, in
    bfloat16 elsewhere, or in the dtype that is given; params, gradients and reductions keep their
    dtype. In float16, output gradients are scaled so that no gradient becomes 0.

    `jit_compile` compiles models with `torch.compile`, or with TorchScript if it is `"script"`;
    `eager_mode` never compiles. `deterministic` and `benchmark` set torch's switches of those names
    for the whole process.

    `memory_limit` (`"4GB"`, or bytes) refuses calls that would need more, before they start; on
    CUDA, it is also torch's own limit. `memory_efficient` compiles every model with
    `gradient_checkpointing=True`, lets operations overwrite arrays that nothing else reads
    (`torch.relu_`), and frees memory as `release_unused` does: after each call, torch returns the
    memory that it caches on CUDA. `memory_allocation` can only be `"lazy"`, as torch
    always allocates lazily.

    `device_mesh` arranges processes in a grid, by sizes or by names with sizes: `(2, 1)`,
    `{"data": 2, "model": 2}`. The backend starts all but the first, which is this one; under
    `torchrun`, the ranks that it started are the mesh, and each runs the same script. Arrays are
    `torch.distributed.tensor.DTensor`, on the CPU, replicated unless they are created with
    `tensor_split=` or `device_mesh=`. The attribute `device_mesh` is PyTorch's `DeviceMesh`. The
    environment variable `MITHRIL_MESH_TIMEOUT` is the time in seconds that processes wait for each
    other, by default 300. `close()` ends the processes; they also end with this one.

    Options that have no effect on the device are named in a `BackendWarning`.
    """

    kind: ClassVar[str] = "torch"
    module: ClassVar[str] = "torch"
    package: ClassVar[str] = "torch"

    def __init__(
        self,
        dtype: object = None,
        *,
        precision: int | None = None,
        device: str | torch.device | None = None,
        requires_grad: bool = False,
        use_amp: object = False,
        jit_compile: bool | Literal["script"] = False,
        eager_mode: bool = False,
        deterministic: bool | None = None,
        benchmark: bool | None = None,
        memory_limit: str | int | None = None,
        memory_allocation: str | None = None,
        release_unused: bool = False,
        memory_efficient: bool = False,
        **unknown: object,
    ) -> None:
        """Errors: as for `Backend`, and `UsageError` for options that contradict each other."""
        refused = {"use_amp": use_amp, "jit_compile": jit_compile, "memory_limit": memory_limit}
        if unknown.get("device_mesh") is not None and any(refused.values()):
            name = next(name for name, value in refused.items() if value)
            raise UsageError(
                f"`{name}` is for models on one device\n  got: {name}={refused[name]!r} and "
                f"device_mesh={unknown['device_mesh']!r}\n  hint: leave one of them out"
            )
        super().__init__(dtype, precision=precision, device=device, **unknown)  # type: ignore[arg-type]
        _check_values(jit_compile, memory_allocation)
        self.requires_grad = as_bool(requires_grad, "requires_grad")
        self.amp_dtype = self._amp_dtype(use_amp)
        self.mixed_precision = self.use_amp
        self.jit_compile = jit_compile
        self.eager_mode = as_bool(eager_mode, "eager_mode")
        if jit_compile and eager_mode:
            raise UsageError("`jit_compile` and `eager_mode` contradict each other")
        self.checkpoints = as_bool(memory_efficient, "memory_efficient")
        if memory_efficient:
            self.in_place = "one" if self.use_amp else "all"
        self.release_unused = as_bool(release_unused, "release_unused") or self.checkpoints
        self._hooks: list[MemoryHook] = []
        self._limit_given = memory_limit
        self.memory_limit = None if memory_limit is None else self._limit_memory(memory_limit)
        self._set_switches(deterministic, benchmark)
        without = {"benchmark": benchmark, "release_unused": release_unused}
        self._warn([name for name, value in without.items() if value])

    def _set_switches(self, deterministic: bool | None, benchmark: bool | None) -> None:
        """Sets torch's switches of these names for the whole process."""
        given = {"deterministic": deterministic, "benchmark": benchmark}
        switches = {n: None if own is None else as_bool(own, n) for n, own in given.items()}
        if switches["deterministic"] is not None:
            if switches["deterministic"]:
                # cuBLAS is deterministic with such a workspace alone, and torch refuses others.
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            self.framework.use_deterministic_algorithms(switches["deterministic"])
        if switches["benchmark"] is not None:
            self.framework.backends.cudnn.benchmark = switches["benchmark"]

    def _warn(self, cuda_only: list[str]) -> None:
        if not cuda_only or self.device.type == "cuda":
            return
        names = " and ".join(f"`{name}`" for name in cuda_only)
        verb = "has" if len(cuda_only) == 1 else "have"
        warnings.warn(
            f"{names} {verb} an effect on CUDA alone\n  got: the device {str(self.device)!r}",
            BackendWarning,
            stacklevel=3,
        )

    def _amp_dtype(self, use_amp: object) -> torch.dtype | None:
        torch = self.framework
        if type(use_amp).__module__ == "numpy" and type(use_amp).__name__.startswith("bool"):
            use_amp = bool(use_amp)
        if use_amp is False or use_amp is None:
            return None
        if use_amp is True:
            half = torch.float16 if self.device.type == "cuda" else torch.bfloat16
            return half  # type: ignore[no-any-return]
        try:
            dtype = DType(use_amp)
        except MithrilError:
            dtype = None
        if dtype is None or dtype.name not in ("float16", "bfloat16"):
            raise UsageError(
                "`use_amp` is not a dtype of half the width"
                f"\n  got: {shown(use_amp) if dtype is None else dtype.name}"
                "\n  expected: True, False, float16 or bfloat16"
            )
        return self.own_dtype(dtype)  # type: ignore[no-any-return]

    @property
    def use_amp(self) -> bool:
        """Whether models run in mixed precision."""
        return self.amp_dtype is not None

    def _options(self) -> tuple[str, ...]:
        names = self.__init__.__kwdefaults__ or {}  # type: ignore[misc]
        return tuple(name for name in names if name not in ("precision", "device"))

    def _device_types(self) -> dict[str, type]:
        return {"a `torch.device`": self.framework.device, "the index of a GPU": int}

    def _device(self, device: Any) -> torch.device:
        torch = self.framework
        try:
            own = torch.device("cpu" if device is None else device)
            torch.empty(0, device=own)
        except (RuntimeError, AssertionError) as error:
            have = ["cpu"]
            have += [f"cuda:{i}" for i in range(torch.cuda.device_count())]
            have += ["mps"] if torch.backends.mps.is_available() else []
            # The other sentences list PyTorch's dispatch keys, or tell how to install a driver.
            reason = str(error).splitlines()[0].partition(". ")[0]
            raise BackendError(
                f"torch has no device `{device}` here\n  got: {reason}"
                f"\n  expected: {', '.join(have)}"
            ) from error
        return own  # type: ignore[no-any-return]

    def _limit_memory(self, limit: str | int) -> int:
        amount = bytes_of(limit, "memory_limit")
        if self.device.type == "cuda":
            total = self.framework.cuda.get_device_properties(self.device).total_memory
            fraction = min(1.0, amount / total)
            self.framework.cuda.set_per_process_memory_fraction(fraction, self.device)
        return amount

    @property
    def jit_default(self) -> bool:
        return bool(self.jit_compile)

    # Arrays.

    def _function(self, name: str) -> Callable[..., Any]:
        torch = self.framework
        if name in REDUCTIONS:
            return partial(_reduce, getattr(torch, REDUCTIONS[name]))
        if name in SPECIAL:
            return partial(SPECIAL[name], torch)
        function: Callable[..., Any] = getattr(torch, ALIASES.get(name, name))
        return function

    def memory(self) -> int | None:
        if self.device.type == "cuda":
            return int(self.framework.cuda.get_device_properties(self.device).total_memory)
        return super().memory() if self.device.type == "cpu" else None

    def lacks_memory(self, error: Exception) -> bool:
        short = isinstance(error, (MemoryError, self.framework.OutOfMemoryError))
        return short or "can't allocate memory" in str(error)

    def lacks_operation(self, error: Exception) -> bool:
        # PyTorch raises one of two errors for an operation that unsigned integers lack.
        return isinstance(error, NotImplementedError) or "Promotion for uint" in str(error)

    # Memory.

    def get_memory_stats(self) -> dict[str, int]:
        """The device memory in bytes: used by tensors (`allocated`) and cached by torch
        (`cached`)."""
        if self.device.type == "cuda":
            cuda = self.framework.cuda
            allocated = cuda.memory_allocated(self.device)
            return {"allocated": allocated, "cached": cuda.memory_reserved(self.device)}
        if self.device.type == "mps":
            mps = self.framework.mps
            allocated = mps.current_allocated_memory()
            return {"allocated": allocated, "cached": mps.driver_allocated_memory() - allocated}
        return {"allocated": sum(storage_sizes(self.framework, self.device)), "cached": 0}

    def register_memory_hook(self, hook: MemoryHook) -> None:
        """Calls `hook(device, allocated, freed)` after each call of a model compiled for this
        backend, with the bytes that the call allocated and freed in all. They differ by what is
        left, such as its results. Of models that `torch.compile` compiles for a CPU, only this
        difference is known.

        Errors: `UsageError` for a hook that does not take these three arguments.
        """
        check_hook(hook)
        self._hooks.append(hook)

    def clear_cache(self) -> None:
        """Returns the memory that torch caches to the device."""
        if self.device.type in ("cuda", "mps"):
            getattr(self.framework, self.device.type).empty_cache()

    def release(self) -> None:
        """Returns cached memory after a call, if an option asks for it."""
        if self.release_unused:
            self.clear_cache()

    def as_param(self, array: torch.Tensor) -> torch.Tensor:
        learned = self.requires_grad and array.is_floating_point()
        # An array that was moved to another device is no leaf.
        return array.detach().requires_grad_() if learned else array

    def written(self, source: str) -> str:
        if self.amp_dtype is None:
            return source
        return autocast(source, self.device.type, str(self.amp_dtype))

    def settled(self, array: torch.Tensor, dtype: str) -> torch.Tensor:
        # Autocast leaves the results of products and convolutions in half the width.
        is_half = self.use_amp and array.dtype == self.amp_dtype
        return array.to(self.own_dtype(dtype)) if is_half else array

    def recorded(self, runner: PartsRunner) -> Callable[..., Any]:
        if runner.kinds == {self.kind}:
            return runner.forward
        from .torch_borders import recorded  # noqa: PLC0415

        return recorded(self.framework, runner)

    def runner(
        self, program: Program, namespace: Namespace, *, jit: bool
    ) -> TorchRunner | JointRunner | MeshRunner:
        if self.mesh is not None:
            namespace()  # writes the file, and reports imports that fail
            on_mesh = self.mesh_runner(program, jit=jit)
            on_mesh.forward = self.around(on_mesh.forward, jit=jit)  # type: ignore[method-assign]
            on_mesh.gradients = self.around(on_mesh.gradients, jit=jit)  # type: ignore[method-assign]
            return on_mesh
        if jit and self.eager_mode:
            raise UsageError(
                "`jit` and `eager_mode` contradict each other"
                f"\n  got: jit=True and {self!r} with eager_mode=True"
                "\n  hint: leave one of them out"
            )
        own = namespace()
        if jit:
            set_apart(self.framework, own)
        limit = None
        if self.memory_limit is not None:
            limit = MemoryLimit(
                program, self.memory_limit, self._limit_given, checkpoints=self.checkpoints
            )
        runner: TorchRunner | JointRunner
        if program.own_gradients:
            compile = partial(compiled, self.framework, how=self.jit_compile)
            runner = JointRunner(self, own, compiled=compile if jit else None)
            # The source computes the gradients itself, so autograd does not need to record
            # operations.
            gradients = within(self.framework.no_grad, runner.gradients)
            if self.use_amp:
                gradients = under_autocast(gradients, self.scaler())
            runner.forward = self.around(runner.forward, jit=jit)
            runner.gradients = self.around(gradients, jit=jit)  # type: ignore[method-assign]
        else:
            runner = TorchRunner(self, own, jit=jit)
        if limit is not None:
            runner.forward = limited(limit, runner.forward, gradients=False)
            runner.gradients = limited(limit, runner.gradients, gradients=True)  # type: ignore[method-assign]
        return runner

    def scaler(self) -> LossScaler | None:
        """A scaler of output gradients, if models run in float16."""
        is_half = self.amp_dtype == self.framework.float16
        return LossScaler(self.framework) if is_half else None

    def around(self, call: Callable[..., Any], *, jit: bool) -> Callable[..., Any]:
        """Wraps a call in the hooks that the backend's options require."""

        def watched(*args: Any) -> Any:
            if not (self._hooks or self.release_unused):
                return call(*args)
            if not self._hooks:
                result = call(*args)
                self.release()
                return result
            with flow(self.framework, self.device, operations=not jit) as sizes:
                result = call(*args)
                self.release()
            for hook in self._hooks:
                hook(str(self.device), *sizes)
            return result

        return watched


def _check_values(jit_compile: object, memory_allocation: object) -> None:
    """Errors: `UsageError` for an unknown value of one of these options."""
    if getattr(jit_compile, "shape", ()) != () or jit_compile not in (True, False, "script"):
        raise UsageError(
            f"`jit_compile` has an unknown value\n  got: {shown(jit_compile)}"
            '\n  expected: True, False or "script"'
        )
    if memory_allocation is not None and memory_allocation != "lazy":
        raise UsageError(
            f"`memory_allocation` has an unknown value\n  got: {shown(memory_allocation)}"
            '\n  expected: "lazy"'
        )


def _reduce(
    function: Callable[..., Any], array: Any, axis: Any = None, keepdims: bool = False
) -> Any:
    if axis is None and not keepdims:
        return function(array)
    if axis is None:
        axis = tuple(range(array.ndim))
    if isinstance(axis, tuple) and function.__name__ in ("prod", "argmax", "argmin"):
        for one in sorted((a % array.ndim for a in axis), reverse=True):
            array = function(array, dim=one, keepdim=keepdims)
        return array
    return function(array, dim=axis, keepdim=keepdims)


def _deviation(function: Any, array: Any, axis: Any, keepdims: bool, ddof: int) -> Any:
    return function(array, dim=axis, keepdim=keepdims, correction=ddof)


def _pad(torch: Any, array: Any, pad_width: Any, constant_values: float = 0) -> Any:
    if isinstance(pad_width, int):
        pad_width = [(pad_width, pad_width)] * array.ndim
    elif isinstance(pad_width[0], int):
        pad_width = [tuple(pad_width)] * array.ndim
    flat = [int(n) for pair in reversed(pad_width) for n in pair]
    return torch.nn.functional.pad(array, flat, value=constant_values)


def _squeeze(torch: Any, array: Any, axis: Any = None) -> Any:
    return torch.squeeze(array) if axis is None else torch.squeeze(array, axis)


def _take(torch: Any, array: Any, indices: Any, axis: int | None = None) -> Any:
    if axis is None:
        return torch.take(array, indices)
    flat = torch.index_select(array, axis, indices.reshape(-1))
    axis %= array.ndim
    return flat.reshape(*array.shape[:axis], *indices.shape, *array.shape[axis + 1 :])


def _flip(torch: Any, array: Any, axis: Any = None) -> Any:
    if axis is None:
        axis = range(array.ndim)
    return torch.flip(array, (axis,) if isinstance(axis, int) else tuple(axis))


def _clip(torch: Any, array: Any, a_min: Any = None, a_max: Any = None) -> Any:
    return torch.clip(array, a_min, a_max)


# Functions whose arguments or defaults in torch differ from NumPy's.
SPECIAL: dict[str, Callable[..., Any]] = {
    "argsort": lambda t, x, axis=-1: t.argsort(x, dim=axis, stable=True),
    "clip": _clip,
    "concat": lambda t, arrays, axis=0: t.cat(tuple(arrays), dim=axis),
    "cumsum": lambda t, x, axis=None: t.cumsum(x.reshape(-1) if axis is None else x, axis or 0),
    "equal": lambda t, x, y: t.eq(x, y),
    "expand_dims": lambda t, x, axis: t.unsqueeze(x, axis),
    "flip": _flip,
    "maximum": lambda t, x, y: t.maximum(*_both_tensors(t, x, y)),
    "minimum": lambda t, x, y: t.minimum(*_both_tensors(t, x, y)),
    "pad": _pad,
    "repeat": lambda t, x, repeats, axis=None: t.repeat_interleave(x, repeats, dim=axis),
    "reshape": lambda t, x, shape: t.reshape(x, (shape,) if isinstance(shape, int) else shape),
    "sort": lambda t, x, axis=-1: t.sort(x, dim=axis).values,
    "squeeze": _squeeze,
    "stack": lambda t, arrays, axis=0: t.stack(tuple(arrays), dim=axis),
    "std": lambda t, x, axis=None, keepdims=False, ddof=0: _deviation(
        t.std, x, axis, keepdims, ddof
    ),
    "take": _take,
    "topk": lambda t, x, k, axis=-1: tuple(t.topk(x, k, dim=axis)),
    "transpose": lambda t, x, axes=None: t.permute(x, axes or tuple(reversed(range(x.ndim)))),
    "tril": lambda t, x, k=0: t.tril(x, k),
    "triu": lambda t, x, k=0: t.triu(x, k),
    "var": lambda t, x, axis=None, keepdims=False, ddof=0: _deviation(
        t.var, x, axis, keepdims, ddof
    ),
}


def _both_tensors(torch: Any, x: Any, y: Any) -> tuple[Any, Any]:
    like = x if isinstance(x, torch.Tensor) else y
    as_tensor = partial(torch.as_tensor, dtype=like.dtype, device=like.device)
    return as_tensor(x), as_tensor(y)
