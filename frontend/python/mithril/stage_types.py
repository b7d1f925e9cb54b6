"""What the stages of a pipeline run, for every backend: generated source and numbered values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from types import SimpleNamespace
from typing import Any

from ._core import DType
from .sources import namespace

__all__ = ["PartCode", "PipelineCode", "StageCode", "StageFunction", "ValueType"]

Named = tuple[tuple[str, int], ...]
"""Names in the source, with the numbers of their values."""


@dataclass(frozen=True)
class ValueType:
    """The type of a value of a microbatch."""

    shape: tuple[int, ...]
    dtype: str
    learned: bool
    """Whether it is a float that depends on params."""

    @property
    def nbytes(self) -> int:
        return -(-prod(self.shape) * DType(self.dtype).bits // 8)


@dataclass(frozen=True)
class PartCode:
    """Generated source, which a stage runs."""

    name: str
    source: str
    constants: tuple[tuple[str, str, list[int], bytes], ...]
    params: Named
    """Params, and values that depend on them."""
    inputs: Named
    results: Named

    def load(self) -> Callable[..., dict[str, Any]]:
        """Runs the source and returns its function of params and inputs by name."""
        constants = [(name, DType(own), shape, data) for name, own, shape, data in self.constants]
        text: Any = SimpleNamespace(name=self.name, source=self.source, constants=constants)
        forward: Callable[..., dict[str, Any]] = namespace(text, None)["forward"]
        return forward


@dataclass(frozen=True)
class StageCode:
    """What a stage runs, and the numbers of the values that it takes and gives."""

    parts: tuple[PartCode, ...]
    params: tuple[int, ...]
    """The params of the model that it reads."""
    inputs: tuple[int, ...]
    """The inputs of the model that it reads."""
    takes: tuple[int, ...]
    """The values from the stage before."""
    gives: tuple[int, ...]
    """The values for the stage after; for the last stage, the outputs of the model."""


class StageFunction:
    """The forward pass of a stage."""

    def __init__(self, code: StageCode) -> None:
        self._gives = code.gives
        self._parts = [(part, part.load()) for part in code.parts]

    def __call__(self, known: Mapping[int, Any]) -> list[Any]:
        """The values that the stage gives. `known` has its params, its inputs and the values that
        it takes, by number."""
        values = dict(known)
        for part, forward in self._parts:
            params = {name: values[number] for name, number in part.params}
            others = {name: values[number] for name, number in part.inputs}
            outputs = forward(params, others)
            values.update((number, outputs[name]) for name, number in part.results)
        return [values[number] for number in self._gives]


@dataclass(frozen=True)
class PipelineCode:
    """A model in stages, as every rank gets it."""

    axis: int
    """The axis of the mesh along which the stages lie."""
    schedule: str
    reduction: str
    """Whether an output without a batch is the mean or the sum of those of the microbatches."""
    microbatches: int
    stages: tuple[StageCode, ...]
    types: Mapping[int, ValueType]
    """The types of the arguments, of the values that cross between stages, and of the outputs."""
    params: Mapping[str, int]
    """The numbers of the params."""
    inputs: Mapping[str, tuple[int, int | None]]
    """The numbers of the inputs, and their batch axes."""
    keys: frozenset[str]
    """The inputs that are random keys."""
    outputs: Mapping[str, tuple[int, int | None]]
    """The numbers of the outputs, and their batch axes; None for one without a batch."""

    def readers(self, param: str, ranks: int) -> list[int]:
        """The places of the ranks along the axis that read a param."""
        number = self.params[param]
        found = [at % ranks for at, stage in enumerate(self.stages) if number in stage.params]
        return list(dict.fromkeys(found))

    def owner(self, param: str, ranks: int) -> int:
        """The place of the ranks on which `randomize_params` puts a param."""
        return next(iter(self.readers(param, ranks)), 0)

    @property
    def source(self) -> str:
        """The source of all stages."""
        texts = [
            f"# stage {at}\n\n{part.source}"
            for at, stage in enumerate(self.stages)
            for part in stage.parts
        ]
        return "\n".join(texts)
