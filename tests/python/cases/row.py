"""What the tests know of one block: its case, another library's function, and its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import mithril as ml

INT, BOOL, LABELS = {"*": ml.int64}, {"*": ml.bool}, {"target": ml.int64}
M, V = (3, 4), (4,)
ALL = ("*",)
# Values for which the gates of recurrent blocks do not saturate: there, gradients cancel.
UNSATURATED = (-0.4, 0.4)

Function = Callable[..., Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """What the tests know of a block."""

    function: Function | None = None
    """Another library's function of the inputs and params, in order."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    shapes: tuple[Shape, ...] | None = None
    """Shapes of the terminals in their order. By default one of (3, 4) each, and for elementwise
    blocks several."""
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    """Dtypes of terminals (`*` for all) that differ from what the block declares."""
    optional: tuple[str, ...] = ()
    """The optional terminals that the last shapes are those of."""
    range: tuple[float, float] = (0.1, 0.9)
    """The range of random numbers. Functions should be smooth there."""
    labels: int | None = None
    """The number of classes of integers, if not three."""
    symmetric: tuple[str, ...] = ()
    """Terminals (`*` for all but `b`) that are symmetric positive definite matrices."""
    several: bool = False
    """Compare all results, not only the standard output."""
    signed: bool = False
    """The signs of results are arbitrary, so backends differ."""
    tolerance: float = 0
    """The relative error that is allowed, if it is larger than that of other blocks."""
    kept: int | tuple[int, ...] = ()
    """Sizes that other sizes must not replace: settings, heads or pairs need them."""
    least: int = 0
    """The smallest size that the other library accepts."""
    halves: bool = True
    """Compare in half precision."""
    twice: bool = True
    """Compare second derivatives."""
    axes: tuple[Any, ...] = ()
    """Values of `axis` that count from the front, if not 1."""
    front: Mapping[str, Shape] | None = None
    """The shapes for these axes."""
    also: tuple[Row, ...] = ()
    """Other settings and shapes of the block, with a function each. Their other facts are those of
    this row, but `twice` and `optional`."""

    def is_symmetric(self, terminal: str) -> bool:
        return terminal in self.symmetric or (self.symmetric == ALL and terminal != "b")

    def but(self, **facts: Any) -> Row:
        """The row with other facts."""
        return replace(self, **facts)


def row(
    function: Function | None,
    *shapes: Shape,
    dtypes: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Row:
    """A block that another library has as well."""
    given = shapes if shapes or settings else None
    return Row(function, settings, given, dtypes or {})


def alone(*shapes: Shape, **settings: Any) -> Row:
    """A block that no other library has, or that draws other random numbers there."""
    return row(None, *shapes, **settings)
