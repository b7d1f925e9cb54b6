"""Runs models whose blocks have different backends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .joined import joined_source
from .part import Part
from .sources import write_source

if TYPE_CHECKING:
    from . import _core
    from .backends.base import Backend

__all__ = ["Border", "PartsRunner"]

Array = Any
Arrays = dict[str, Array]
FRAMES = 24
"""More Python calls than a part needs for its gradients, which enclose those of the next part."""


class Border(NamedTuple):
    """A value that goes from one backend to another."""

    name: str
    type: str
    """The dtype and the dims."""
    source: Backend
    target: Backend

    def __str__(self) -> str:
        return f"{self.name}: {self.type}, from {self.source!r} to {self.target!r}"


class PartsRunner:
    """Calls the parts of a program in their order. Values that cross from one backend to another
    are handed over without a copy if both keep them in the same memory."""

    def __init__(
        self,
        backends: Sequence[Backend],
        program: _core.Program,
        *,
        jit: bool,
        file_path: str | None = None,
        homes: Mapping[str, int],
    ) -> None:
        """`jit` is that of the first backend. Others decide themselves. `homes` has the places of
        params that do not lie where they are read. The source is written to
        `file_path`, and that of the parts to files beside it.

        Errors: `BackendError` for a file, if a backend does not write Python source.
        """
        self._backends = backends
        parts = program.parts([backend.wide for backend in backends])
        stem = None if file_path is None else Path(file_path).with_suffix("")
        self._parts = [
            Part(
                part,
                backends[part.place],
                jit=jit if part.place == 0 else None,
                file_path=None if stem is None else f"{stem}_{at}.py",
            )
            for at, part in enumerate(parts, start=1)
        ]
        self._arguments = [str(argument.name) for argument in program.arguments]
        # The place in whose memory each value is first.
        self._sources = {
            at: homes[a.name] if a.name in homes else self._home(at, a.role)
            for at, a in enumerate(program.arguments)
        }
        self._sources |= {v: part.place for part in self._parts for _, v, _ in part.results}
        self._outcomes = list(zip(program.results, program.result_values))
        self._outputs = [(r.name, value) for r, value in self._outcomes if r.state is None]
        self._states = [(r.state, value) for r, value in self._outcomes if r.state is not None]
        self._stem = program.name.lower() if stem is None else stem.name
        self._joined = joined_source(program, backends, self._parts, self._sources, self._stem)
        if file_path is not None:
            write_source(file_path, str(self._joined))

    def _home(self, value: int, role: str) -> int:
        """The place of an argument: that of the model, or that of the only parts that read a param,
        if it is another device of the same framework."""
        readers = {part.place for part in self._parts if value in part.names}
        if role != "param" or len(readers) != 1:
            return 0
        place = readers.pop()
        return place if self._backends[place].kind == self._backends[0].kind else 0

    def at_home(self, name: str, param: Array) -> Array:
        """The param on the device of the blocks that read it."""
        home = self._backends[self._sources[self._arguments.index(name)]]
        return self._backends[0].as_param(home.receive(param))

    # Descriptions.

    @property
    def kinds(self) -> set[str]:
        """The kinds of the backends that run parts."""
        return {part.backend.kind for part in self._parts}

    @property
    def others(self) -> str:
        """The parts that do not run on the model's backend, for messages."""
        own = self._backends[0].kind
        found = [repr(part.backend) for part in self._parts if part.backend.kind != own]
        return " and ".join(dict.fromkeys(found))

    def borders(self) -> Iterator[Border]:
        """The values that cross between backends, in the order of the parts that read them, and
        then the results that come to the model's backend."""
        come = set()
        for part in self._parts:
            for value, name in part.names.items():
                source = self._sources[value]
                if source != part.place:
                    yield Border(name, part.types[value], self._backends[source], part.backend)
                    come |= {value} if part.place == 0 else set()
        for result, value in self._outcomes:
            source = self._sources[value]
            if source != 0 and value not in come:
                kind = f"{result.dtype.name}[{', '.join(result.dims)}]"
                name = result.state or result.name
                yield Border(name, kind, self._backends[source], self._backends[0])

    @property
    def report(self) -> list[str]:
        """A line for each part and for each value that crosses."""
        lines = [f"part {at}: {part.backend!r}" for at, part in enumerate(self._parts, start=1)]
        return [*lines, *(f"transfer of {border}" for border in self.borders())]

    @property
    def code(self) -> str:
        """The code of the module that calls the parts, if all are Python, and of each part."""
        texts = [] if self._joined is None else [f"# {self._stem}.py\n\n{self._joined}"]
        for at, part in enumerate(self._parts, start=1):
            mark = "#" if part.backend.writes else "//"
            file = f"{self._stem}_{at}{part.backend.target.suffix}"
            lines = [f"{mark} {file}: {part.backend!r}"]
            if self._joined is None:
                lines += [
                    f"{mark} transfer({name}: {part.types[value]}) from {source!r}"
                    for value, name in part.names.items()
                    if (source := self._backends[self._sources[value]]) is not part.backend
                ]
            if part.backend.writes:
                text = part.backend.written(part.program.source)
            else:
                text = str(part.runner.code)
            texts.append("\n".join([*lines, "", text]))
        return "\n".join(texts)

    # Calls.

    def forward(self, params: Arrays, inputs: Arrays, state: Arrays | None = None) -> Any:
        """The outputs; with a state, also the next one."""
        values = self._values(params, inputs, state)
        for part in self._parts:
            own, others = self._taken(part, values)
            values |= part.settled(part.runner.forward(own, others))
        outputs = self._given(values, self._outputs)
        return outputs if state is None else (outputs, self._given(values, self._states))

    def gradients(
        self, params: Arrays, inputs: Arrays, state: Arrays | None, seeds: Any
    ) -> tuple[Arrays, Arrays, Arrays | None]:
        """Returns outputs, gradients by param, and the next state.

        Each part asks for the gradients of its outputs after its forward pass. The answer runs the
        next part, forward and backward.
        """
        values = self._values(params, inputs, state)
        cotangents: dict[int, Array] = {}

        def run(at: int) -> None:
            if at == len(self._parts):
                given = seeds.of(self._given(values, self._outputs))
                for name, value in self._outputs:
                    if name in given:
                        self._add(cotangents, value, given[name])
                return
            part = self._parts[at]
            own, others = self._taken(part, values)
            if not own:
                values.update(part.settled(part.runner.forward({}, others)))
                run(at + 1)
                return
            asked = _Seeds(part, values, cotangents, partial(run, at + 1))
            _, gradients, _ = part.runner.gradients(own, others, None, asked)
            for name, value in part.params:
                self._add(cotangents, value, gradients[name])

        frames = FRAMES * len(self._parts) + 200
        if sys.getrecursionlimit() < frames:
            sys.setrecursionlimit(frames)
        run(0)
        numbers = {name: at for at, name in enumerate(self._arguments)}
        found = {
            name: cotangents[at]
            if (at := numbers[name]) in cotangents
            else self._backends[self._sources[at]].zeros_like(param)
            for name, param in params.items()
        }
        following = None if state is None else self._given(values, self._states)
        return self._given(values, self._outputs), found, following

    def _values(self, params: Arrays, inputs: Arrays, state: Arrays | None) -> dict[int, Array]:
        given = {**params, **inputs, **(state or {})}
        return {at: given[name] for at, name in enumerate(self._arguments)}

    def _taken(self, part: Part, values: dict[int, Array]) -> tuple[Arrays, Arrays]:
        """The arrays that a part reads, in the memory of its backend."""

        def take(value: int) -> Array:
            array = values[value]
            # The caller may have put arguments anywhere; those of the model's backend stay there.
            is_argument = value < len(self._arguments) and part.place > 0
            is_here = self._sources[value] == part.place and not is_argument
            return array if is_here else part.backend.receive(array)

        params = {name: take(value) for name, value in part.params}
        return params, {name: take(value) for name, value in part.inputs}

    def _given(self, values: dict[int, Array], wanted: list[tuple[str, int]]) -> Arrays:
        """These values as arrays of the model's backend."""
        own = self._backends[0]
        return {
            name: values[value] if self._sources[value] == 0 else own.receive(values[value])
            for name, value in wanted
        }

    def _add(self, cotangents: dict[int, Array], value: int, gradient: Array) -> None:
        """Adds a gradient of a value, in the memory where the value is."""
        gradient = self._backends[self._sources[value]].receive(gradient)
        known = cotangents.get(value)
        cotangents[value] = gradient if known is None else known + gradient


class _Seeds:
    """The gradients of a part's outputs, which the later parts compute."""

    arrays = None
    total = None

    def __init__(
        self,
        part: Part,
        values: dict[int, Array],
        cotangents: dict[int, Array],
        following: Callable[[], None],
    ) -> None:
        self._part = part
        self._values = values
        self._cotangents = cotangents
        self._following = following

    def of(self, outputs: Arrays) -> Arrays:
        """Runs the later parts, and returns the gradients that they computed."""
        self._values.update(self._part.settled(outputs))
        self._following()
        return {
            name: self._cotangents[value]
            for name, value, is_float in self._part.results
            if is_float and value in self._cotangents
        }
