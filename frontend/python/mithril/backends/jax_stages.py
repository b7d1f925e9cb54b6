"""The stages of a pipeline, as functions that JAX traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from ..stage_types import StageCode, StageFunction, ValueType
from .jax_packs import Pack
from .jax_pieces import Pieces, StageArguments

__all__ = ["JaxStage"]


class JaxStage:
    """A stage. Arrays are given as lists, in the order of the numbers of its code."""

    def __init__(self, code: StageCode, types: Mapping[int, ValueType]) -> None:
        self.code = code
        self._types = types
        self._function = StageFunction(code)
        self.learned_params = [
            n for n in code.params if jnp.issubdtype(types[n].dtype, jnp.floating)
        ]
        """The numbers of the params that have gradients."""
        self.learned_takes = [number for number in code.takes if types[number].learned]
        self.learned_gives = [number for number in code.gives if types[number].learned]
        self.takes = Pack(types[number] for number in code.takes)
        self.gives = Pack(types[number] for number in code.gives)
        self.gradients = Pack(types[number] for number in self.learned_takes)
        """Where the gradients of the values that it takes lie in a message."""

    @cached_property
    def pieces(self) -> Pieces:
        """The forward pass and the gradients in functions that run at different times."""
        own = self.code.params, self.code.inputs, self.code.takes, self.learned_gives
        return Pieces(self._joint, StageArguments(*map(self._shapes, own)))

    @cached_property
    def kept(self) -> Pack:
        """Where the values lie that the forward pass keeps."""
        return Pack(self.pieces.kept)

    @cached_property
    def inner(self) -> Pack:
        """Where the values lie that wait for the gradients of params."""
        return Pack(self.pieces.inner)

    def outputs(self, params: Any, inputs: Any, taken: Any) -> list[Any]:
        """What the stage gives."""
        numbers = (*self.code.params, *self.code.inputs, *self.code.takes)
        return self._function(dict(zip(numbers, (*params, *inputs, *taken))))

    def _shapes(self, numbers: Sequence[int]) -> list[Any]:
        own = [self._types[number] for number in numbers]
        return [jax.ShapeDtypeStruct(of.shape, of.dtype) for of in own]

    def _joint(self, params: Any, inputs: Any, taken: Any, seeds: Any) -> tuple[Any, Any, Any]:
        """What the stage gives, and the gradients of what it takes and of its params."""
        code = self.code
        known = dict(zip((*code.params, *code.inputs, *code.takes), (*params, *inputs, *taken)))

        def given(own: dict[int, Any]) -> tuple[Any, Any]:
            values = self._function({**known, **own})
            pairs = zip(code.gives, values)
            return [value for n, value in pairs if self._types[n].learned], values

        roots = {number: known[number] for number in (*self.learned_takes, *self.learned_params)}
        _, pullback, gives = jax.vjp(given, roots, has_aux=True)
        (found,) = pullback(list(seeds))
        takes = [found[number] for number in self.learned_takes]
        return gives, takes, [found[number] for number in self.learned_params]
