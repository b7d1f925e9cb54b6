"""A part of a model that runs on one backend."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from .sources import explained_namespace

if TYPE_CHECKING:
    from . import _core
    from .backends.base import Backend

__all__ = ["Part"]


class Part:
    """A part of a model with its runner. Values are numbered; `values` holds those of a call."""

    def __init__(
        self, own: _core.Part, backend: Backend, *, jit: bool | None, file_path: str | None
    ) -> None:
        program = own.program
        if program.widens and not backend.wide:
            backend.widen()
        self.place = own.place
        self.backend = backend
        self.program = program
        arguments = list(zip(program.arguments, own.reads))
        self.params = [(a.name, value) for a, value in arguments if a.role == "param"]
        self.inputs = [(a.name, value) for a, value in arguments if a.role != "param"]
        self.results = [
            (r.name, value, r.dtype.is_float) for r, value in zip(program.results, own.writes)
        ]
        self.types = {value: f"{a.dtype.name}[{', '.join(a.dims)}]" for a, value in arguments}
        self.names = {value: str(a.name) for a, value in arguments}
        self.dtypes = {value: a.dtype.name for a, value in arguments}
        self._outputs = {r.name: r.dtype.name for r in program.results}
        self.runner = backend.runner(
            program,
            partial(explained_namespace, backend, program, file_path),
            jit=backend.jit_default if jit is None else jit,
        )

    def settled(self, outputs: dict[str, Any]) -> dict[int, Any]:
        """The values of these outputs, in the dtypes that the other parts take."""
        settle, dtypes = self.backend.settled, self._outputs
        return {value: settle(outputs[name], dtypes[name]) for name, value, _ in self.results}
