"""Random blocks of the whole library, for the models of `grower.py`. Their settings, and the shapes
of their inputs, are those of the rows in `cases`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from block_cases import build, variants
from cases import ROWS
from cases.row import Row
from grower_functions import made

import mithril as ml
from mithril import models

if TYPE_CHECKING:
    from grower import Grower

Shape = tuple[int, ...]
# Blocks whose results jump. Rounding errors of their inputs would change them.
JUMPS = {"Floor", "Ceil", "Round", "Sign", "Threshold", "Hardshrink", "FloorDivide", "Modulo"}
JUMPS |= {"Unique"}
# The results whose signs are not arbitrary.
UNSIGNED = {"Eigh": "eigenvalues", "SVD": "s"}
# Settings in place of those of the rows: no segment is empty, whose maximum would be -inf.
SETTINGS = {"SegmentMax": {"num_segments": 3}}


class Terminal(NamedTuple):
    """An input of a block."""

    name: str
    dtype: str
    dims: Shape


@dataclass(frozen=True)
class Described:
    """The inputs of a block, and the dtype of its first output."""

    inputs: list[Terminal]
    is_float: bool


@cache
def described(name: str, number: int) -> Described:
    model, shapes = build(name, variants(name)[number])
    backend = ml.NumpyBackend(dtype=ml.float64)
    program = ml.compile(model, backend, shapes=shapes, jit=False)._program
    inputs = [
        Terminal(a.name, a.dtype.name, tuple(int(d) for d in a.dims))
        for a in program.arguments
        if a.role == "data"
    ]
    is_float = program.results[0].dtype.name.startswith("float")
    return Described(inputs, is_float)


@cache
def names() -> list[str]:
    """The blocks with results that are the same on each backend."""
    return [name for name, row in ROWS.items() if name in UNSIGNED or not row.signed]


def chosen(number: float) -> str:
    """A block for a number below 1. A further block changes few of the choices, so that seeds keep
    their models."""
    return min(names(), key=lambda name: crc32(f"{number} {name}".encode()))


def grow(grower: Grower) -> None:
    """Multiplies a value by a weighted mean of the results of a block, whose inputs are made of the
    elements of the value."""
    x, shape = grower.pick()
    name = chosen(grower.choose.random())
    number = grower.choose.randrange(len(variants(name)))
    own = described(name, number)
    if grower.special or 0 in shape or any(0 in terminal.dims for terminal in own.inputs):
        return
    flat = None if name in JUMPS or not own.is_float else x.reshape((prod(shape),))
    elements = flat, prod(shape)
    # Equal inputs would put `x % y` at a jump.
    step = 0.1 if name in JUMPS else 0.0
    given = {
        t.name: filled(grower, ROWS[name], t, elements, 0.2718 + at * step)
        for at, t in enumerate(own.inputs)
    }
    case = variants(name)[number]
    block = getattr(models, name)(**{**case.settings, **SETTINGS.get(name, {})})
    named = {"inputs": list(given.values())} if "inputs" in case.shapes else given
    result = made(grower, block, UNSIGNED.get(name, block.outputs[0]), **named)
    if name == "Split":
        result = result[0]
    if not own.is_float or "dtype" in case.settings:
        result = grower.apply(models.Cast(grower.dtype), result)
    sums = grower.apply(models.Cumsum(axis=-1), result.reshape((-1,)))
    size = grower.apply(models.Cast(grower.dtype), grower.apply(models.Size(), result))
    grower.keep(x * (grower.apply(models.Mean(), sums) / size + 0.5), shape)


def filled(
    grower: Grower, row: Row, terminal: Terminal, elements: tuple[Any, int], first: float
) -> Any:
    """An input: integers, bools, or numbers in the range of the block's row. Half of a number is
    one of the elements, if there are any, and the other half, which starts at `first`, differs from
    element to element, so that no two are equal."""
    dims = terminal.dims
    ramp = grower.apply(models.Arange(prod(dims)))
    if terminal.dtype == "bool":
        return (ramp * 5 % 3 > 0).reshape(dims)
    if "int" in terminal.dtype:
        labels = ramp * 5 % (row.labels or 3)
        return grower.apply(models.Cast(ml.DType(terminal.dtype)), labels).reshape(dims)
    own = grower.apply(models.Cast(grower.dtype), ramp)
    numbers = (own * 0.6180339 + first) % 1.0
    flat, size = elements
    if flat is not None:
        some = grower.apply(models.Gather(), flat, ramp % size)
        numbers = numbers * 0.5 + grower.apply(models.Sigmoid(), some) * 0.5
    low, high = row.range
    values = (numbers * (high - low) + low).reshape(dims)
    if not row.is_symmetric(terminal.name):
        return values
    turned = grower.apply(models.SwapAxes(-1, -2), values)
    unit = grower.apply(models.Eye(dims[-1], dtype=grower.dtype))
    return (values + turned) / (4.0 * dims[-1]) + unit
