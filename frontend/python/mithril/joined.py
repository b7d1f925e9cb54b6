"""Source of a model whose blocks have different backends: a module that calls those of the parts
and moves arrays between them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import _core
    from .backends.base import Backend
    from .part import Part

__all__ = ["joined_source"]

WIDTH = 88
# The import lines of names that expressions begin with.
IMPORTS = {
    "jax": "import jax",
    "jnp": "import jax.numpy as jnp",
    "ml_dtypes": "import ml_dtypes",
    "mx": "import mlx.core as mx",
    "np": "import numpy as np",
    "torch": "import torch",
    "Tensor": "from tinygrad import Tensor",
}


def joined_source(
    program: _core.Program,
    backends: Sequence[Backend],
    parts: Sequence[Part],
    sources: dict[int, int],
    stem: str,
) -> str | None:
    """The module that calls the parts, which are `{stem}_1` and so on. `sources` has the place of
    each value. None if a backend does not write Python source that other backends can call."""
    writer = _Writer(program, backends, sources)
    body = [line for at, part in enumerate(parts, 1) for line in writer.call(part, f"{stem}_{at}")]
    body += writer.answer()
    if not writer.is_possible:
        return None
    text = "\n".join(f"    {line}" for line in body)
    modules = [f"import {stem}_{at}" for at in range(1, len(parts) + 1)]
    used = [line for name, line in IMPORTS.items() if re.search(rf"\b{name}[.(]", text)]
    head = [f'"""{program.name}, compiled for several backends by Mithril."""', ""]
    if used:
        head += [*sorted(used, key=lambda line: line.split()[1]), ""]
    arguments = "params, inputs, state" if writer.states else "params, inputs"
    return "\n".join([*head, *modules, "", "", f"def forward({arguments}):", text, ""])


class _Writer:
    """Writes the calls. A value has a variable on each backend that reads it."""

    def __init__(
        self, program: _core.Program, backends: Sequence[Backend], sources: dict[int, int]
    ) -> None:
        self.is_possible = all(backend.writes for backend in backends)
        self._backends = backends
        self._sources = sources
        self._used = {"params", "inputs", "state", "outputs", "following", *IMPORTS}
        self._variables: dict[tuple[int, int], str] = {}
        for at, argument in enumerate(program.arguments):
            group = {"param": "params", "state": "state"}.get(argument.role, "inputs")
            self._variables[at, sources[at]] = f'{group}["{argument.name}"]'
        outcomes = [
            (r.state, r.name, r.dtype.name, value)
            for r, value in zip(program.results, program.result_values)
        ]
        self._outputs = [(name, dtype, v) for state, name, dtype, v in outcomes if state is None]
        self.states = [(state, dtype, v) for state, _, dtype, v in outcomes if state is not None]

    def call(self, part: Part, module: str) -> Iterator[str]:
        """The lines that move what a part reads, and call it."""
        yield f"# {self._backends[part.place]!r}"
        groups = []
        for arguments in (part.params, part.inputs):
            for name, value in arguments:
                yield from self._move(value, part.place, name, part.dtypes[value])
            groups.append(self._entries(arguments, part.place))
        one = len(part.results) == 1
        own = [self._fresh(name) for name, *_ in part.results]
        end = f')["{part.results[0][0]}"]' if one else ")"
        call = f"{own[0] if one else 'outputs'} = {module}.forward("
        yield from _laid_out(call, groups, end)
        for variable, (name, value, _) in zip(own, part.results):
            self._variables[value, part.place] = variable
            if not one:
                yield f'{variable} = outputs["{name}"]'

    def answer(self) -> Iterator[str]:
        """The lines that return the outputs on the model's backend, and the next state."""
        for name, dtype, value in (*self._outputs, *self.states):
            yield from self._move(value, 0, name, dtype)
        outputs, states = (
            self._entries(((name, value) for name, _, value in results), 0)
            for results in (self._outputs, self.states)
        )
        if not states:
            yield from _laid_out("return ", [outputs], "")
            return
        yield from _laid_out("outputs = ", [outputs], "")
        yield from _laid_out("following = ", [states], "")
        yield "return outputs, following"

    def _entries(self, values: Iterable[tuple[str, int]], place: int) -> list[str]:
        return [f'"{name}": {self._variables[value, place]}' for name, value in values]

    def _move(self, value: int, place: int, name: str, dtype: str) -> Iterator[str]:
        """The line that moves a value, if it is not there yet."""
        if (value, place) in self._variables:
            return
        source, target = self._backends[self._sources[value]], self._backends[place]
        known = self._variables[value, self._sources[value]]
        text = target.receive_source(known, dtype, source)
        if text is None:
            self.is_possible = False
        if text is None or text == known:
            self._variables[value, place] = known
            return
        own = self._variables[value, place] = self._fresh(f"{name}_{target.kind}")
        yield f"{own} = {text}"

    def _fresh(self, name: str) -> str:
        """A name for a variable that no other one has."""
        text = re.sub(r"\W", "_", name)
        text = f"_{text}" if text[0].isdigit() or keyword.iskeyword(text) else text
        own, at = text, 1
        while own in self._used:
            at += 1
            own = f"{text}_{at}"
        self._used.add(own)
        return own


def _laid_out(begin: str, groups: list[list[str]], end: str) -> Iterator[str]:
    """Dicts between `begin` and `end`, on one line if there is room. Without `end` there is one."""
    line = begin + ", ".join("{" + ", ".join(entries) + "}" for entries in groups) + end
    if len(line) <= WIDTH - 4:
        yield line
        return
    if not end:
        yield f"{begin}{{"
        yield from (f"    {entry}," for entry in groups[0])
        yield "}"
        return
    yield begin
    for entries in groups:
        short = f"    {{{', '.join(entries)}}},"
        if len(short) <= WIDTH - 4:
            yield short
        else:
            yield "    {"
            yield from (f"        {entry}," for entry in entries)
            yield "    },"
    yield end
