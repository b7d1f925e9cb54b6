"""Divides the forward pass and the gradients of a stage into three functions, which run at
different times: the forward pass, the gradients of what the stage takes, and those of its params.

JAX traces all of it together. An equation of the trace that leads to the gradient of one param
alone belongs to the third function, any other that depends on output gradients to the second. What
a function reads of those before it is kept, and nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

__all__ = ["Pieces", "StageArguments"]

SEVERAL = -1
"""The mark of an equation that leads to several gradients, or to one that another stage takes."""


class StageArguments(NamedTuple):
    """What a stage computes for a microbatch, as lists of arrays or of their types."""

    params: Any
    inputs: Any
    taken: Any
    seeds: Any
    """The gradients of what it gives."""


class Pieces:
    """The three functions of a stage, with the types of what is kept between them."""

    def __init__(self, joint: Callable[..., tuple[Any, Any, Any]], types: StageArguments) -> None:
        """`joint` takes `StageArguments`, and returns lists: what the stage gives, the
        gradients of what it takes, and those of its params."""
        trace, lists = jax.make_jaxpr(joint, return_shape=True)(*types)
        leaves = jax.tree_util.tree_leaves(tuple(types))
        closed = jax.make_jaxpr(_without_calls(trace))(*leaves)
        variables = iter(closed.jaxpr.invars)
        self._arguments = StageArguments(*([next(variables) for _ in own] for own in types))
        self._constants = dict(zip(closed.jaxpr.constvars, closed.consts))
        results = iter(closed.jaxpr.outvars)
        self._gives, self._taken, self._params = ([next(results) for _ in own] for own in lists)
        self._equations = closed.jaxpr.eqns
        self._kept, self._inner = self._between()
        self.kept = [own.aval for own in self._kept]
        """The types of what the forward pass keeps."""
        self.inner = [own.aval for own in self._inner]
        """The types of what the second function keeps for the third one."""

    def _between(self) -> tuple[list[Any], list[Any]]:
        """The variables that the first function keeps for the others, and the second for the
        third."""
        arguments = self._arguments
        late = self._following(arguments.seeds)
        marks = self._marks()
        last: set[Any] = set()
        early_reads = dict.fromkeys(_variables(self._taken))
        last_reads = dict.fromkeys(_variables(self._params))
        for equation in self._equations:
            mark = _joined(marks[own] for own in equation.outvars if own in marks)
            if mark is None or late.isdisjoint(equation.outvars):
                continue
            last.update(equation.outvars if mark != SEVERAL else ())
            reads = last_reads if mark != SEVERAL else early_reads
            reads.update(dict.fromkeys(_variables(equation.invars)))
        forward = [own for own in {**early_reads, **last_reads} if own not in late]
        inner = [own for own in last_reads if own in late and own not in last]
        return self._storable(forward), inner

    def _storable(self, variables: Iterable[Any]) -> list[Any]:
        """The variables to keep so that these can be computed. A vector holds no random keys, so
        the operands of a key are kept in its place.

        Inputs and params are at hand. What depends on params alone, such as transposed weights, is
        computed again.
        """
        known = {*self._arguments.params, *self._arguments.inputs, *self._constants}
        fixed = {*self._arguments.params, *self._constants}
        of: dict[Any, Any] = {}
        for equation in self._equations:
            of.update(dict.fromkeys(equation.outvars, equation))
            if fixed.issuperset(_variables(equation.invars)):
                fixed.update(equation.outvars)
        waiting, found = list(variables), dict[Any, None]()
        for own in waiting:
            if own in known or own in fixed:
                continue
            if own in of and jnp.issubdtype(own.aval.dtype, jax.dtypes.prng_key):
                waiting += _variables(of[own].invars)
            else:
                found[own] = None
        return list(found)

    def _following(self, roots: Iterable[Any]) -> set[Any]:
        """These variables, and the results of equations that depend on one of them."""
        found = set(roots)
        for equation in self._equations:
            if not found.isdisjoint(_variables(equation.invars)):
                found.update(equation.outvars)
        return found

    def _marks(self) -> dict[Any, int]:
        """By variable the number of the param to whose gradient alone it leads, or `SEVERAL`."""
        marks: dict[Any, int] = dict.fromkeys(_variables(self._taken), SEVERAL)

        def mark(atoms: Iterable[Any], own: int) -> None:
            for variable in _variables(atoms):
                marks[variable] = own if marks.get(variable, own) == own else SEVERAL

        for at, result in enumerate(self._params):
            mark([result], at)
        for equation in reversed(self._equations):
            own = _joined(marks[v] for v in equation.outvars if v in marks)
            if own is not None:
                mark(equation.invars, own)
        return marks

    # Calls. Arguments and results are lists of arrays.

    def forward(self, params: Any, inputs: Any, taken: Any) -> tuple[Any, Any]:
        """What the stage gives, and what is kept."""
        given = self._given(StageArguments(params, inputs, taken, ()))
        return self._run(given, self._gives, self._kept)

    def backward(self, params: Any, inputs: Any, kept: Any, seeds: Any) -> tuple[Any, Any]:
        """The gradients of what the stage takes, and what is kept for those of its params."""
        given = self._given(StageArguments(params, inputs, (), seeds)) | dict(zip(self._kept, kept))
        return self._run(given, self._taken, self._inner)

    def weights(self, params: Any, inputs: Any, kept: Any, inner: Any) -> Any:
        """The gradients of the params."""
        given = self._given(StageArguments(params, inputs, (), ())) | dict(zip(self._kept, kept))
        return self._run(given | dict(zip(self._inner, inner)), self._params, ())[0]

    def _given(self, arrays: StageArguments) -> dict[Any, Any]:
        """The values of arguments and constants."""
        values = dict(self._constants)
        for variables, own in zip(self._arguments, arrays):
            values.update(zip(variables, own))
        return values

    def _run(
        self, values: dict[Any, Any], results: Sequence[Any], kept: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Computes variables from those whose values are given."""
        for equation in self._needed([*results, *kept], values):
            found = _applied(equation, [_value(own, values) for own in equation.invars])
            values.update(zip(equation.outvars, found))
        arrays = [jnp.asarray(_value(own, values), own.aval.dtype) for own in results]
        return arrays, [values[own] for own in kept]

    def _needed(self, wanted: Iterable[Any], known: Mapping[Any, Any]) -> list[Any]:
        """The equations that compute these variables from known ones, in order."""
        needed = {own for own in _variables(wanted) if own not in known}
        found = []
        for equation in reversed(self._equations):
            if not needed.isdisjoint(equation.outvars):
                found.append(equation)
                needed.update(own for own in _variables(equation.invars) if own not in known)
        return found[::-1]


def _variables(atoms: Iterable[Any]) -> list[Any]:
    return [own for own in atoms if not isinstance(own, Literal)]


def _value(atom: Any, values: Mapping[Any, Any]) -> Any:
    return atom.val if isinstance(atom, Literal) else values[atom]


def _joined(marks: Iterable[int]) -> int | None:
    """The mark of an equation whose results have these; None without any."""
    own = {*marks}
    return own.pop() if len(own) == 1 else SEVERAL if own else None


def _applied(equation: Any, values: Sequence[Any]) -> Sequence[Any]:
    """The results of an equation of a trace."""
    own = equation.primitive.get_bind_params(equation.params)
    # Older versions of JAX give the functions of an equation apart.
    functions, options = own if isinstance(own, tuple) else ((), own)
    found = equation.primitive.bind(*functions, *values, **options)
    return found if equation.primitive.multiple_results else [found]


def _without_calls(closed: Any) -> Callable[..., list[Any]]:
    """The function of a trace. Inner calls of `jax.jit` are replaced by their equations, so that
    these can run at different times."""

    def run(own: Any, arguments: Sequence[Any]) -> list[Any]:
        values = dict(zip([*own.jaxpr.constvars, *own.jaxpr.invars], [*own.consts, *arguments]))
        for equation in own.jaxpr.eqns:
            given = [_value(atom, values) for atom in equation.invars]
            is_call = equation.primitive.name in ("jit", "pjit")
            found = run(equation.params["jaxpr"], given) if is_call else _applied(equation, given)
            values.update(zip(equation.outvars, found))
        return [_value(atom, values) for atom in own.jaxpr.outvars]

    return lambda *arguments: run(closed, arguments)
