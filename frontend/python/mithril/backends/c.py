"""The C backend: C source, compiled by the system's compiler. Arrays are NumPy's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import BackendError
from .cpu import CpuRunner, NativeArrays

if TYPE_CHECKING:
    from .._core import Program

__all__ = ["CBackend"]


class CBackend(NativeArrays):
    """Runs models as C. Arrays are `numpy.ndarray`; outputs own their memory.

    The source, `compiled.code`, is one file of C11 with a documented interface; `file_path=` writes
    it to a file. The first call compiles it to a library, with the compiler that the environment
    variable `CC` names, or with `cc`. With `jit=False` nothing is compiled, and the model cannot be
    called.
    """

    kind: ClassVar[str] = "c"

    @property
    def jit_default(self) -> bool:
        return True

    def runner(self, program: Program, namespace: object, *, jit: bool) -> CpuRunner:
        native = program.native(self.samples, 1)
        runner = CpuRunner if jit else SourceRunner
        return runner(native, program, self)


class SourceRunner(CpuRunner):
    """Refuses calls: the source is generated but not compiled."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.forward = self.joint = self.gradients = _refuse  # type: ignore[method-assign, assignment]


def _refuse(*args: object) -> Any:
    raise BackendError(
        "this model cannot be called\n  got: `jit=False`"
        "\n  hint: leave `jit=` out, or compile the source in `code`"
    )
