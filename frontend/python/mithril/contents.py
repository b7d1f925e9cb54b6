"""What a compiled model consists of: names, code and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from . import _core
from .errors import BackendError, UsageError, mapping
from .placement import Placement
from .reports import reported

if TYPE_CHECKING:
    from .backends.base import Backend
    from .pipeline import Pipeline
    from .variants import Variant

__all__ = ["Contents"]


class Contents:
    """The part of a compiled model that tells what it consists of."""

    backend: Backend
    _placement: Placement
    _pipeline: Pipeline | None
    _variant: Variant
    _file_path: str | None
    _params: list[str]
    _inputs: list[str]
    _keys: list[str]
    _states: list[str]
    _output_names: tuple[str, ...]

    @property
    def _program(self) -> _core.Program:
        """The program of the last call."""
        return self._variant.program

    @property
    def _runner(self) -> Any:
        """The runner of the last call's program. Errors: there is no code yet."""
        self._program.settled()
        return self._variant.runner

    @property
    def params(self) -> tuple[str, ...]:
        """The names of the trainable params."""
        return tuple(self._params)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, including keys of random numbers."""
        return tuple(self._inputs + self._keys)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return self._output_names

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states."""
        return tuple(self._states)

    @property
    def code(self) -> str:
        """The generated source, or the launches and kernels of native code. If the code depends on
        ranks that `shapes=` does not give, this is the code for the ranks of the last call.

        Errors: `MithrilError` before the first call, naming the terminals whose ranks are needed,
        or the masks whose dtypes are needed.
        """
        is_source = self.backend.writes and self._placement.is_single and self._pipeline is None
        if not is_source:
            return str(self._runner.code)
        return self.backend.written(self._program.source)

    @property
    def module(self) -> str:
        """The IR module that the code was generated from, in MLIR's text format.

        Errors: as for `code`.
        """
        return self._program.module

    @property
    def timings(self) -> dict[str, float]:
        """The time of each stage of the compilation in seconds."""
        return dict(self._program.timings)

    def report(self) -> str:
        """The names of arguments and outputs, and the time of each compile stage, as text. For a
        model that was compiled with `verbose=True` it includes the time of each native kernel in a
        call."""
        return self._report_of(self._variant)

    def _report_of(self, variant: Variant) -> str:
        names = {
            "params": self.params,
            "inputs": self.inputs,
            "state": self.states,
            "outputs": self.outputs,
        }
        runner = variant.runner
        is_source = self.backend.writes and self._placement.is_single
        native = [] if is_source or runner is None else runner.report
        return reported(variant.program, self.backend, names, native, self._file_path)

    def memory(self, **dims: int) -> dict[str, int]:
        """The memory of a call of native code in bytes: `arguments`, `results`, `temporaries`,
        `constants` and their `total`. If there are gradients, the call is a training step.

        `dims` gives values to dims without a number, such as `batch=32`.

        Errors: `BackendError` for a backend that makes no native code; `MithrilError` for dims that
        have no number, or that the model does not have.
        """
        _check_sizes(dims)
        found = self._program.memory(dims) if self._placement.is_single else None
        if found is None:
            raise BackendError(
                f"frameworks manage their memory themselves\n  got: {self.backend!r}"
                "\n  hint: `cost` of the model counts bytes"
            )
        return found

    def cost(
        self, shapes: Mapping[str, Sequence[int | str | None]] | None = None, **dims: int
    ) -> _core.Costs:
        """The cost of each block in one forward pass of the unoptimized model: floating-point
        operations, bytes of memory traffic, params, and the peak memory of inner values in bytes.
        Costs are formulas if dims have no numbers.

        `shapes` gives shapes to inputs that were compiled without them, and `dims` gives values to
        dims.

        Errors: `MithrilError` for unknown inputs and dims, or shapes that do not fit.
        """
        _check_sizes(dims)
        return self._program.cost(mapping(shapes, "shapes", "shapes by name"), dims)

    def explain(self) -> _core.Explanation:
        """The rewrite rules that were applied to the model, with their places and gains. It prints
        as a table; its `rules` hold the same as data. The gain of a rule is the estimated time that
        the backend would take longer without it.
        """
        return self._program.explain()

    def __repr__(self) -> str:
        return (
            f"CompiledModel({self._program.name}, {self.backend!r}, "
            f"{', '.join(self.inputs)} -> {', '.join(self.outputs)})"
        )

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "a compiled model cannot be pickled or copied: its code belongs to this process"
            "\n  hint: pickle the model and the params, and compile the model where it is used"
        )


def _check_sizes(dims: Mapping[str, int]) -> None:
    for name, size in dims.items():
        whole = isinstance(size, int) and not isinstance(size, bool)
        if not (whole and 0 <= size < 2**48):
            raise UsageError(
                f"the dim `{name}` must be a size\n  got: {size!r}"
                "\n  expected: an integer below 2**48"
            )
