"""One row for each block: all that the tests know of it. A new block needs a row here, and no other
list. `row.py` says what a row has; `edges.py` has further settings and shapes of some blocks."""

from importlib import import_module

from .edges import ALSO
from .row import Row

NAMES = """attention binary classical control elementwise images layers losses matrices metrics
random recurrent reductions shapes"""
FAMILIES = [import_module(f".{name}", __package__) for name in NAMES.split()]
ROWS: dict[str, Row] = {
    name: row.but(also=ALSO.get(name, ()))
    for family in FAMILIES
    for name, row in family.ROWS.items()
}
