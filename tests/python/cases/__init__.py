"""One row for each block: all that the tests know of it. A new block needs a row here, and no other
list. `row.py` says what a row has."""

from . import (
    attention,
    binary,
    classical,
    control,
    elementwise,
    images,
    layers,
    losses,
    matrices,
    metrics,
    random,
    recurrent,
    reductions,
    shapes,
)
from .row import Row

FAMILIES = (
    attention,
    binary,
    classical,
    control,
    elementwise,
    images,
    layers,
    losses,
    matrices,
    metrics,
    random,
    recurrent,
    reductions,
    shapes,
)
ROWS: dict[str, Row] = {name: row for family in FAMILIES for name, row in family.ROWS.items()}
