"""Native code for this machine's processor, made by MLIR and LLVM. Arrays are NumPy's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .._core import did_you_mean, processor
from ..errors import UsageError, shown, truth
from .numpy import NumpyArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._core import Native, Program

__all__ = ["CpuBackend"]

Arrays = Any

DLPACK_CPU = 1
"""`kDLCPU` of DLPack's devices."""

MOST_THREADS = 1 << 16

TIERS = ("llvm", "auto", "instant")
"""What `tier` may be; `instant` code is never replaced, and is there for tests."""


class NativeArrays(NumpyArrays):
    """A backend whose code reads arrays where they are, those of other frameworks too."""

    def adopt(self, value: object) -> NDArray[Any] | None:
        """The elements of an array in the processor's memory, in place, as DLPack gives them.

        None for one that is elsewhere, and for a tensor that a gradient is wanted of: no gradient
        would come back.
        """
        if not hasattr(value, "__dlpack__") or getattr(value, "requires_grad", False):
            return None
        try:
            if value.__dlpack_device__()[0] != DLPACK_CPU:  # type: ignore[attr-defined]
                return None
            if hasattr(value, "resolve_neg"):
                # DLPack says nothing of a sign that torch has not written yet.
                value = value.resolve_neg()
            # NumPy takes no bfloat16 from DLPack.
            taken = (
                self._as_numpy(value) if "bfloat16" in str(getattr(value, "dtype", "")) else None
            )
            return self.framework.from_dlpack(value) if taken is None else taken
        except (BufferError, RuntimeError, TypeError, ValueError, UsageError):
            return None


class CpuBackend(NativeArrays):
    """Runs models as native code. Arrays are `numpy.ndarray`; outputs own their memory.

    `threads` is how many work on a call: as many as the machine has cores, if it is left out.
    `tier` is what the first calls run: `"llvm"` compiles all kernels before; `"auto"` answers with
    code that is made in an instant, until LLVM has compiled the same kernels behind the calls. The
    results depend on neither.

    `cpu` is the processor that code is made for: `"native"`, which is this machine's, or a level of
    x86-64 that this machine has, such as `"x86-64-v3"`. Left out, it is what the environment's
    `MITHRIL_CPU` says, or `"native"`. Other levels add in other orders, so results may differ in
    their last digits.

    `donate` lets a call write the next state over the arrays of the state that it is given, which
    hold the state before no more; those that are read-only stay as they are. Params are never
    written: a call gives gradients, and what becomes of them is the caller's.
    """

    kind: ClassVar[str] = "cpu"
    writes: ClassVar[bool] = False
    extension: ClassVar[str | None] = None

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
        """Errors: as for every backend; `UsageError` for a number of threads there cannot be,
        or a tier or a processor that there is not; `BackendError` for a processor with features
        that this machine lacks."""
        super().__init__(dtype, precision=precision, device=device, **unknown)
        whole = isinstance(threads, int) and not isinstance(threads, bool)
        if threads is not None and not (whole and 0 < threads <= MOST_THREADS):
            raise UsageError(
                f"`threads` is how many work on a call\n  got: {threads!r}"
                f"\n  expected: a number from 1 to {MOST_THREADS}"
            )
        if tier not in TIERS:
            near = did_you_mean(tier, list(TIERS)) if isinstance(tier, str) else None
            raise UsageError(
                f"`tier` is what the first calls run\n  got: {tier!r}"
                "\n  expected: 'llvm' or 'auto'" + (f"\n  hint: {near}" if near else "")
            )
        if cpu is not None and not isinstance(cpu, str):
            raise UsageError(
                f"`cpu` is the processor that code is made for\n  got: {shown(cpu)}"
                '\n  expected: "native", "x86-64-v3" or another level'
            )
        self.threads = threads
        self.tier = tier
        self.cpu = processor(cpu)
        self.donate = truth(donate, "donate")

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
    """Calls native code, which checks what it is given."""

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
        """`(outputs, gradients)`, where the output gradients are there and all are arrays."""
        if given is True:
            ones = self._ones.get("final_cost")
            given = None if ones is None else {"final_cost": ones}
        if type(given) is not dict or not given.keys() <= self._outputs:
            return None
        return self.native.joint(params, inputs, None, given)

    def gradients(
        self, params: Arrays, inputs: Arrays, state: Arrays, seeds: Any
    ) -> tuple[Arrays, Arrays, Arrays]:
        """Outputs, gradients by param, next state."""
        given = seeds.arrays
        if given is None and seeds.total in self._ones:
            given = {seeds.total: self._ones[seeds.total]}
        if given is None:
            # The state is needed once more.
            outputs = self.native.forward(params, inputs, state)
            given = seeds.of(outputs if state is None else outputs[0])
        joint = self.native.joint(params, inputs, state, given, donate=self._donate)
        outputs, gradients, *following = joint
        return outputs, gradients, following[0] if following else None
