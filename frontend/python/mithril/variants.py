"""The compiled programs of a model: one for each set of ranks and mask dtypes that calls have."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from . import _core
from .arguments import Arguments
from .errors import MithrilError
from .parts import PartsRunner
from .sharding import Splits, check_splits
from .sources import explained_namespace

if TYPE_CHECKING:
    from .backends.base import Backend

__all__ = ["Variant", "Variants"]

Arrays = dict[str, Any]
Shapes = dict[str, "list[int | None]"]
Call = tuple[Arrays, Arrays, Arrays | None]


class Variant:
    """A program with its runner. A program that still needs ranks or dtypes has no code, so its
    `forward` returns None."""

    __slots__ = ("arguments", "check", "forward", "joint", "outputs", "program", "runner")

    def __init__(
        self,
        backend: Backend,
        program: _core.Program,
        *,
        jit: bool,
        file_path: str | None = None,
        others: Sequence[Backend] = (),
        homes: Mapping[str, int] | None = None,
        staged: Callable[[_core.Program], Any] | None = None,
    ) -> None:
        """`others` are the backends of blocks and params that are placed elsewhere, and `homes` has
        the places of such params. `staged` makes the runner of a model in stages."""
        self.program = program
        self.arguments = Arguments(backend, program)
        self.outputs = {r.name: r.dtype.name for r in program.results if r.state is None}
        self.runner: Any = None
        self.forward: Callable[..., Any] = _no_code
        self.joint: Callable[..., Any] | None = None
        self.check: Callable[..., bool] | None = None
        if staged is not None:
            self.runner = staged(program)
        elif program.is_open:
            return
        elif others:
            self.runner = PartsRunner(
                [backend, *others], program, jit=jit, file_path=file_path, homes=homes or {}
            )
        else:
            own = partial(explained_namespace, backend, program, file_path)
            self.runner = backend.runner(program, own, jit=jit)
        self.forward = backend.recorded(self.runner) if others else self.runner.forward
        self.joint = getattr(self.runner, "joint", None)
        # Native code checks its arguments itself.
        if backend.writes or others:
            checker = self.arguments.checker
            # Another variant may take arrays that this one refuses.
            self.check = checker.fits if program.one_of_several else checker.check

    def divide(self, backend: Backend, splits: Splits) -> None:
        """Sets how params and inputs are divided over the mesh.

        Errors: `ShapeError` for a split that does not fit a known shape.
        """
        check_splits(backend, splits, self.program)
        if self.runner is not None:
            self.runner.divide(splits)

    def fits(
        self, params: Arrays, inputs: Arrays, state: Arrays | None, output_gradients: Any
    ) -> bool:
        """Whether the program takes these arrays without any conversion."""
        if self.check is None or type(output_gradients) is not dict:
            return False
        try:
            return self.check(params, inputs, state, output_gradients)
        except MithrilError:
            return False  # the slow path converts arrays first and then raises the error

    def outputs_of(
        self, params: Arrays, inputs: Arrays, state: Arrays | None
    ) -> tuple[Arrays, Arrays | None]:
        """The outputs, and the next state or None."""
        if state is None:
            return self.forward(params, inputs), None
        outputs, following = self.forward(params, inputs, state)
        return outputs, following


def _no_code(*args: object) -> None:
    return None


class Variants:
    """The variants of a program that needs ranks or dtypes. Each is compiled at the first call that
    needs it."""

    def __init__(
        self,
        backend: Backend,
        root: _core.Program,
        compiled: Callable[[], _core.Program],
        made: Callable[[_core.Program], Variant],
    ) -> None:
        """`compiled` compiles `root` again; `made` makes the variant of a program."""
        self._backend = backend
        self._root = root
        self._compiled = compiled
        self._made = made
        # Programs by the ranks, dtypes and sizes that they were compiled for.
        self._programs: dict[tuple[Any, ...], _core.Program] = {}
        self._variants: tuple[Variant, ...] = ()
        self._lock = threading.Lock()
        _all.add(self)

    def renew_lock(self) -> None:
        """Replaces the lock in a forked child, where the thread that held it does not exist."""
        self._lock = threading.Lock()

    def variant(self, params: Arrays, inputs: Arrays, state: Arrays | None) -> Variant:
        """The variant for these arrays. Deferred params are drawn.

        Errors: for arrays that no variant takes; as for `ml.compile` with these ranks.
        """
        found = self._find(params, inputs, state)
        if found is None:
            with self._lock:
                # Another thread may have made the variant meanwhile.
                found = self._find(params, inputs, state) or self._make(params, inputs, state)
        return found

    def shapes(self, params: Arrays, inputs: Arrays) -> dict[str, list[int]]:
        """The shapes of params and states, as far as these arrays determine them."""
        with self._lock:
            program = self._root
            needed = [*program.needs_ranks, *program.needs_dtypes]
            if all(name in inputs or name in params for name in needed):
                program = self._fitting((params, inputs, None))[0]
            return self._checker(program).shapes(params, inputs)

    def _find(self, params: Arrays, inputs: Arrays, state: Arrays | None) -> Variant | None:
        admitted = (v for v in self._variants if v.arguments.checker.admits(params, inputs, state))
        return next(admitted, None)

    def _make(self, params: Arrays, inputs: Arrays, state: Arrays | None) -> Variant:
        self._checker(self._root).admits(params, inputs, state)  # raises for a non-dict
        program, details = self._fitting((params, inputs, state))
        arguments = Arguments(self._backend, program)
        params, inputs, state = arguments.prepared(params, inputs, state)
        sizes: dict[str, list[int]] = {}
        if program.is_open:
            sizes = arguments.checker.shapes(params, inputs, state)
            program = program.with_sizes(sizes)
        variant = self._made(program)
        details += [f"{param} of {own}" for param, own in sizes.items()]
        _log(program.name, details, repeated=bool(self._variants))
        self._variants = (variant, *self._variants)
        return variant

    def _checker(self, program: _core.Program) -> _core.Checker:
        return program.checker(self._backend.samples)

    def _fitting(self, arrays: Call) -> tuple[_core.Program, list[str]]:
        """The program for the ranks and dtypes of these arrays, and the text of its log entry.

        If that program does not take the arrays because they broadcast, it is compiled for their
        axes of size 1. If ranks do not determine the axes of a mask, it is compiled for all sizes.
        """
        wrong: MithrilError | None = None
        first = None
        for ones, sized in ((False, False), (True, False), (False, True)):
            try:
                found = self._for_call(arrays, ones=ones, sized=sized)
            except MithrilError as error:
                wrong = wrong or error
                continue
            if self._checker(found[0]).admits(*arrays):
                return found
            first = first or found
        if first is None:
            assert wrong is not None
            raise wrong
        return first

    def _for_call(
        self, arrays: Call, *, ones: bool, sized: bool
    ) -> tuple[_core.Program, list[str]]:
        program = self._root
        inputs = arrays[1]
        # The ranks, dtypes and sizes, and the text of the log entry.
        key: list[Any] = []
        details: list[str] = []
        sizes = {n: [*v.shape] for n, v in inputs.items() if hasattr(v, "shape")} if sized else {}
        while program.needs_ranks or program.needs_dtypes:
            ranks, masks = program.needs_ranks, program.needs_dtypes
            shapes = {name: self._sizes(name, program, arrays) for name in ranks}
            own: Shapes = {
                name: [1 if ones and size == 1 else None for size in shape]
                for name, shape in shapes.items()
            }
            dtypes = {name: self._dtype(name, program, arrays) for name in masks}
            key += sorted((name, *shape) for name, shape in own.items())
            key += sorted((name, dtype.name) for name, dtype in dtypes.items())
            key += sorted((name, *shape) for name, shape in sizes.items())
            details += [_rank(*item) for item in own.items()]
            details += [f"{name} of {dtype.name}" for name, dtype in dtypes.items()]
            place = tuple(key)
            if place not in self._programs:
                self._programs[place] = program.for_call(own, dtypes, sizes)
            program = self._programs[place]
        if program.widens and not self._backend.wide:
            self._backend.widen()
            self._root = self._compiled()
            self._programs.clear()
            return self._for_call(arrays, ones=ones, sized=sized)
        return program, details

    def _array(self, name: str, program: _core.Program, arrays: Call) -> Any:
        """An array of a call. Errors: as for the check of arguments."""
        given = next((dict_[name] for dict_ in arrays if dict_ and name in dict_), None)
        if not (hasattr(given, "shape") and hasattr(given, "dtype")):
            self._checker(program).require(*arrays)
            raise MithrilError(f"`{name}` has no shape\n  got: {type(given).__name__}")
        return given

    def _sizes(self, name: str, program: _core.Program, arrays: Call) -> tuple[int, ...]:
        return tuple(self._array(name, program, arrays).shape)

    def _dtype(self, name: str, program: _core.Program, arrays: Call) -> _core.DType:
        return _core.DType(self._array(name, program, arrays).dtype)


def _rank(terminal: str, shape: list[int | None]) -> str:
    broadcast = " and ".join(str(axis) for axis, size in enumerate(shape) if size == 1)
    along = f", broadcast along {broadcast}" if broadcast else ""
    return f"{terminal} of rank {len(shape)}{along}"


def _log(name: str, details: list[str], *, repeated: bool) -> None:
    """Logs that code was compiled during a call."""
    again = " again" if repeated else ""
    logging.getLogger("mithril").info("%s: compiled%s for %s", name, again, ", ".join(details))


_all: WeakSet[Variants] = WeakSet()


def _renew_locks() -> None:
    for variants in _all:
        variants.renew_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
