"""The memory of models on PyTorch: how much is used, and a limit that calls are checked against."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ..errors import BackendError, UsageError, shown
from ..units import bytes_text

if TYPE_CHECKING:
    import torch

    from .._core import Program

__all__ = ["MemoryLimit", "check_hook", "flow", "limited", "storage_sizes"]

Call = Callable[..., Any]

Tensors = Mapping[str, "torch.Tensor"]


class MemoryLimit:
    """Refuses calls that would need more memory than a limit, before they start.

    What a call needs is planned from the shapes of its arrays: the arrays themselves and the peak
    of the inner values; for gradients also one array for each param, and all inner values that are
    no views, as autograd may keep them. With `checkpoints`, gradients keep only the peak.
    """

    def __init__(self, program: Program, limit: int, given: object, *, checkpoints: bool) -> None:
        """`given` is the limit as the user gave it, for messages."""
        self._program, self._limit, self._checkpoints = program, limit, checkpoints
        self._shown = given if isinstance(given, str) else bytes_text(limit)
        self._inner: dict[tuple[Any, ...], tuple[int, int]] = {}

    def check(
        self, params: Tensors, inputs: Tensors, state: Tensors | None, *, gradients: bool
    ) -> None:
        """Errors: `BackendError` if the call needs more than the limit."""
        arrays = {**params, **inputs, **(state or {})}
        given = sum(tensor.nbytes for tensor in arrays.values())
        peak, kept = self._planned({name: tuple(a.shape) for name, a in arrays.items()})
        parts = {"arrays of the call": given, "inner values at once": peak}
        if gradients:
            parts["gradients"] = sum(tensor.nbytes for tensor in params.values())
            if not self._checkpoints:
                parts["inner values that are kept"] = kept
        total = sum(parts.values())
        if total <= self._limit:
            return
        listed = ", ".join(f"{bytes_text(size)} of {name}" for name, size in parts.items() if size)
        way = "" if self._checkpoints or not gradients else ", or `memory_efficient=True`"
        raise BackendError(
            "this call needs more memory than `memory_limit` allows"
            f"\n  got: {bytes_text(total)}: {listed}"
            f"\n  expected: at most {self._shown}"
            f"\n  hint: a smaller batch{way} needs less"
        )

    def _planned(self, shapes: dict[str, tuple[int, ...]]) -> tuple[int, int]:
        """The bytes of inner values that are live at once, and of all of them."""
        key = tuple(shapes.values())
        found = self._inner.get(key)
        if found is None:
            inputs: dict[str, object] = {name: list(shape) for name, shape in shapes.items()}
            total = self._program.cost(inputs, {}).total
            found = (0, 0) if total is None else (_number(total.peak), _number(total.kept))
            self._inner[key] = found
        return found


def _number(size: object) -> int:
    """A size in bytes; 0 if it is a formula, as for a loop without a maximum."""
    return size if isinstance(size, int) else 0


def check_hook(hook: object) -> None:
    """Errors: `UsageError` if `hook` cannot be called as `hook(device, allocated, freed)`."""
    expected = "a function of a device and the bytes that a call allocated and freed"
    if not callable(hook):
        raise UsageError(
            f"a memory hook must be a function\n  got: {shown(hook)}\n  expected: {expected}"
        )
    try:
        signature = inspect.signature(hook)
    except (TypeError, ValueError):
        return  # functions in C need not have a signature
    try:
        signature.bind("cpu", 0, 0)
    except TypeError as error:
        name = getattr(hook, "__name__", type(hook).__name__)
        raise UsageError(
            f"a memory hook must take three arguments\n  got: {name}{signature}: {error}"
            f"\n  expected: {expected}"
        ) from error


def limited(limit: MemoryLimit, call: Call, *, gradients: bool) -> Call:
    """The call, which is refused if it needs more memory than the limit."""

    def checked(params: Tensors, inputs: Tensors, *rest: Any) -> Any:
        limit.check(params, inputs, rest[0] if rest else None, gradients=gradients)
        return call(params, inputs, *rest)

    return checked


@contextmanager
def flow(torch: Any, device: torch.device, *, operations: bool) -> Iterator[list[int]]:
    """The bytes that are allocated and freed on a device meanwhile: a list that gets them.

    CUDA counts both. Elsewhere, what PyTorch's operations allocate is counted by looking at their
    results, unless `operations` is false; the rest follows from what is in use before and after.
    """
    sizes = [0, 0]
    if device.type == "cuda":
        names = [f"allocated_bytes.all.{kind}" for kind in ("allocated", "freed")]
        before = [torch.cuda.memory_stats(device).get(name, 0) for name in names]
        yield sizes
        after = [torch.cuda.memory_stats(device).get(name, 0) for name in names]
        sizes[:] = [new - old for new, old in zip(after, before)]
        return
    start = sum(storage_sizes(torch, device))
    with allocations(torch, device) if operations else nullcontext([0]) as allocated:
        yield sizes
    change = sum(storage_sizes(torch, device)) - start
    allocated[0] = max(allocated[0], change, 0)
    sizes[:] = [allocated[0], allocated[0] - change]


@contextmanager
def allocations(torch: Any, device: torch.device) -> Iterator[list[int]]:
    """The bytes of the new results of PyTorch's operations on a device."""
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415

    total = [0]

    class Count(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            values = result if isinstance(result, tuple) else (result,)
            # Results that are views, or operands that were changed, have an alias in the schema.
            for value, returned in zip(values, func._schema.returns):
                own = isinstance(value, torch.Tensor) and returned.alias_info is None
                if own and value.device == device:
                    total[0] += value.untyped_storage().nbytes()
            return result

    with Count():  # type: ignore[no-untyped-call]
        yield total


def storage_sizes(torch: Any, device: torch.device) -> list[int]:
    """The bytes of each storage of the tensors that Python holds on a device."""
    import gc  # noqa: PLC0415

    seen = {}
    # Subclasses may have no memory of their own, as those by which `torch.compile` traces. Asking
    # for the type alone reads no attribute of objects of other libraries.
    kinds = (torch.Tensor, torch.nn.Parameter)
    for value in gc.get_objects():
        if type(value) not in kinds or value.is_meta or value.layout != torch.strided:
            continue
        # Those inside a transformation of `torch.func` have none either.
        if torch._C._functorch.is_functorch_wrapped_tensor(value):
            continue
        if value.device == device:
            storage = value.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
    return list(seen.values())
