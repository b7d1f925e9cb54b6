"""Functions that see the inner values of a compiled model at each call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import TerminalError, UsageError, shown
from .reports import listed

if TYPE_CHECKING:
    from .variants import Variant

__all__ = ["HookedModel"]

Array = Any
Arrays = dict[str, Array]


class HookedModel(ABC):
    """The part of a compiled model that calls hooks."""

    _variant: Variant
    _output_names: tuple[str, ...]
    _file_path: str | None
    _debug: bool
    _state: Arrays | None
    _hooks: dict[str, list[Callable[[Array], object]]]
    _inner: list[str]
    """The names of the inner values that hooks need, which are outputs of the program."""

    @abstractmethod
    def _compile(self) -> None:
        """Compiles the model, with `_inner` among its outputs."""

    @abstractmethod
    def _choose_fast_paths(self) -> None:
        """Decides which calls need not run hooks."""

    def register_hook(self, name: str, hook: Callable[[Array], object]) -> None:
        """Calls `hook(array)` in each call with the value of an output, inner terminal or block.

        Errors: `TerminalError` for an unknown name; `UsageError` for a hook that is not a function.
        """
        if not isinstance(name, str):
            raise UsageError(
                "`name` must be the name of an output, an inner terminal or a block"
                f"\n  got: {shown(name)}"
            )
        if not callable(hook):
            raise UsageError(f"`hook` must be a function of one array\n  got: {shown(hook)}")
        if name not in self._variant.outputs:
            self._expose(name)
        self._hooks.setdefault(name, []).append(hook)
        self._choose_fast_paths()

    def _expose(self, name: str) -> None:
        """Makes an inner value an output, without changing the state or the file."""
        before, state, path = self._inner, self._state, self._file_path
        self._file_path = None
        block, _, part = name.rpartition(".")
        try:
            try:
                self._compile_with([*before, name])
            except TerminalError as error:
                if not (block and part.isdigit()):
                    raise
                # The name may end in the index of one of a block's values, as in `block.1`.
                try:
                    self._compile_with([*before, block])
                except TerminalError:
                    raise error from None
            outputs = self._variant.outputs
            if name not in outputs:
                several = [output for output in outputs if output.startswith(f"{name}.")]
                raise TerminalError(
                    f"Terminal not found: `{name}` is not a single value"
                    + (f"\n  hint: it has the values {listed(several, '`')}" if several else "")
                )
        except BaseException:
            self._compile_with(before)
            raise
        finally:
            self._state, self._file_path = state, path

    def _compile_with(self, inner: list[str]) -> None:
        self._inner = inner
        self._compile()

    def _run_hooks(self, outputs: Arrays) -> Arrays:
        """Passes values to hooks, prints their types for `debug`, and returns those that are
        outputs."""
        if not (self._hooks or self._debug):
            return outputs
        for name, hooks in self._hooks.items():
            for hook in hooks:
                hook(outputs[name])
        if self._debug:
            for name, value in outputs.items():
                print(f"{name}: {_core.DType(value.dtype).name}{list(value.shape)}")
        return {name: outputs[name] for name in self._output_names}
