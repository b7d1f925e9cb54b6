"""The CPU backend: native code for this machine, made by MLIR and LLVM. Arrays are NumPy's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .._core import did_you_mean, processor
from ..errors import UsageError, as_bool, shown
from .numpy import NumpyArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._core import Native, Program

__all__ = ["CpuBackend"]

Arrays = Any

DLPACK_CPU = 1
"""`kDLCPU`, DLPack's type of a device in host memory."""

MAX_THREADS = 1 << 16


class NativeArrays(NumpyArrays):
    """A backend whose code reads arrays in place, including those of other frameworks."""

    def adopt(self, value: object) -> NDArray[Any] | None:
        """Wraps an array in host memory as a NumPy array by DLPack, without a copy.

        Returns None for an array on a device, and for a tensor that requires gradients, as autograd
        could not follow the call.
        """
        if not hasattr(value, "__dlpack__") or getattr(value, "requires_grad", False):
            return None
        try:
            if value.__dlpack_device__()[0] != DLPACK_CPU:  # type: ignore[attr-defined]
                return None
            if hasattr(value, "resolve_neg"):
                # DLPack does not carry torch's flag for a delayed negation, so apply it first.
                value = value.resolve_neg()
            # NumPy cannot read bfloat16 from DLPack.
            taken = (
                self._as_numpy(value) if "bfloat16" in str(getattr(value, "dtype", "")) else None
            )
            return self.framework.from_dlpack(value) if taken is None else taken
        except (BufferError, RuntimeError, TypeError, ValueError, UsageError):
            return None


class CpuBackend(NativeArrays):
    """Runs models as native code. Arrays are `numpy.ndarray`; outputs own their memory.

    `threads` is the number of threads that work on a call; the default is the number of cores.
    `tier` selects the compiler. `"llvm"` compiles all kernels by LLVM before the first call.
    `"auto"` starts with code from Cranelift, which compiles faster, and replaces it when LLVM has
    compiled the same kernels in the background. The results depend on neither `threads` nor `tier`.

    `cpu` is the processor to compile for: `"native"` for this machine, or an x86-64 level that this
    machine supports, such as `"x86-64-v3"`. The default is the environment variable `MITHRIL_CPU`,
    or `"native"`. Code for different levels may add in different orders, so results may differ in
    their last digits.

    `donate` lets a call overwrite the given state arrays with the next state; they no longer hold
    the previous state. Read-only arrays are not overwritten. Params are never written: a call
    returns gradients, and the caller applies them.
    """

    kind: ClassVar[str] = "cpu"

    def __init__(
        self,
        dtype: object = None,
        *,
        precision: int | None = None,
        device: str | None = None,
        threads: int | None = None,
        tier: str = "llvm",
        cpu: str | None = None,
        donate: bool = False,
        **unknown: object,
    ) -> None:
        """Errors: as for every backend; `UsageError` for an invalid number of threads, or an
        unknown tier or processor; `BackendError` for a processor with features that this machine
        lacks."""
        super().__init__(dtype, precision=precision, device=device, **unknown)  # type: ignore[arg-type]
        whole = isinstance(threads, int) and not isinstance(threads, bool)
        if threads is not None and not (whole and 0 < threads <= MAX_THREADS):
            raise UsageError(
                f"`threads` is not a number of threads\n  got: {threads!r}"
                f"\n  expected: a number from 1 to {MAX_THREADS}"
            )
        tiers = self.target.tiers
        if tier not in tiers:
            near = did_you_mean(tier, tiers) if isinstance(tier, str) else None
            raise UsageError(
                f"`tier` is unknown\n  got: {tier!r}"
                "\n  expected: 'llvm' or 'auto'" + (f"\n  hint: {near}" if near else "")
            )
        if cpu is not None and not isinstance(cpu, str):
            raise UsageError(
                f"`cpu` is not a processor\n  got: {shown(cpu)}"
                '\n  expected: "native", "x86-64-v3" or another level'
            )
        self.threads = threads
        self.tier = tier
        self.cpu = processor(cpu)
        self.donate = as_bool(donate, "donate")

    def _options(self) -> tuple[str, ...]:
        return ("threads", "tier", "cpu", "donate")

    def compile_options(self) -> dict[str, Any]:
        return {"tier": self.tier, "cpu": self.cpu}

    def __repr__(self) -> str:
        cpu = "" if self.cpu == "native" else f", cpu={self.cpu!r}"
        return f"CpuBackend(dtype={self.dtype.name}{cpu})"

    def runner(self, program: Program, namespace: object, *, jit: bool) -> CpuRunner:
        native = program.native(self.samples, self.threads or 0)
        return CpuRunner(native, program, self, donate=self.donate)


class CpuRunner:
    """Calls native code. The native code checks its arguments."""

    def __init__(
        self, native: Native, program: Program, backend: NativeArrays, *, donate: bool = False
    ) -> None:
        self.native = native
        outputs = [result for result in program.results if result.state is None]
        self._outputs = {result.name for result in outputs}
        self._ones = {r.name: backend.ones(dtype=r.dtype) for r in outputs if not r.dims}
        self._donate = donate
        self.forward = partial(native.forward, donate=True) if donate else native.forward

    @property
    def code(self) -> str:
        return self.native.listing

    @property
    def report(self) -> list[str]:
        return self.native.report

    def joint(self, params: Arrays, inputs: Arrays, given: Any) -> Any:
        """`(outputs, gradients)`, or None if `given` is neither True nor a dict of output
        gradients."""
        if given is True:
            ones = self._ones.get("final_cost")
            given = None if ones is None else {"final_cost": ones}
        if type(given) is not dict or not given.keys() <= self._outputs:
            return None
        return self.native.joint(params, inputs, None, given)

    def gradients(
        self, params: Arrays, inputs: Arrays, state: Arrays, seeds: Any
    ) -> tuple[Arrays, Arrays, Arrays]:
        """Returns outputs, gradients by param, and the next state."""
        given = seeds.arrays
        if given is None and seeds.total in self._ones:
            given = {seeds.total: self._ones[seeds.total]}
        if given is None:
            # The call below needs the state again, so this call must not overwrite it.
            outputs = self.native.forward(params, inputs, state)
            given = seeds.of(outputs if state is None else outputs[0])
        joint = self.native.joint(params, inputs, state, given, donate=self._donate)
        outputs, gradients, *following = joint
        return outputs, gradients, following[0] if following else None
