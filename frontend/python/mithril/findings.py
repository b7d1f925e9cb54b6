"""The results of `ml.diff`, and how they are printed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from . import _core

__all__ = ["GRADIENT", "Culprit", "Difference", "Finding"]

GRADIENT = "gradient of "
"""The prefix of a param's name in the entries of its gradient."""


@dataclass(frozen=True)
class Culprit:
    """The cause of a difference."""

    stage: str
    """The name of a pass, or `code` if the target's code generation causes the difference."""
    rule: str | None = None
    """The rule of the pass that changes the values; None if no single rule does."""
    places: tuple[str, ...] = ()
    """The paths of the blocks in which the rule was applied."""

    def __str__(self) -> str:
        if self.stage == "code":
            return "no pass changes the values, so the target's generated code does"
        if self.rule is None:
            return f"the values differ after the pass `{self.stage}`"
        where = ", ".join(f"`{place}`" for place in self.places)
        return f"the rule `{self.rule}` of the pass `{self.stage}`" + (where and f", in {where}")


@dataclass(frozen=True)
class Finding:
    """The result of the comparison for one backend."""

    backend: str
    """The short name of the backend."""
    errors: Mapping[str, float]
    """The relative error of each output, gradient or block: the largest difference divided by the
    largest absolute value of the reference, unless that is 0."""
    outputs: tuple[str, ...]
    """The entries of `errors` that are the model's own outputs and gradients."""
    first: str | None = None
    """The path of the innermost block that differs first; `None` if no block differs."""
    culprit: Culprit | None = None
    """The cause of the difference, if `bisect` was set."""
    agrees: bool = True


@dataclass(frozen=True)
class Difference:
    """The result of `ml.diff`. It prints as a table, followed by a line for each backend."""

    reference: str
    tolerance: float
    findings: tuple[Finding, ...] = field(default_factory=tuple)

    @property
    def agrees(self) -> bool:
        """Whether all backends agree with the reference."""
        return all(finding.agrees for finding in self.findings)

    def __getitem__(self, backend: str) -> Finding:
        return next(finding for finding in self.findings if finding.backend == backend)

    def _table(self) -> tuple[str, str]:
        own = {name for finding in self.findings for name in finding.outputs}
        names = dict.fromkeys(itertools.chain(*(f.errors for f in self.findings)))
        names = dict.fromkeys([*(n for n in names if n not in own), *names])
        heads = ["", *(finding.backend for finding in self.findings)]
        rows = [[name, *(self._cell(f.errors.get(name)) for f in self.findings)] for name in names]
        return _core.table(heads, list(range(1, len(heads))), rows)

    def _cell(self, error: float | None) -> str:
        if error is None:
            return ""
        return f"{error:.1e}" + (" !" if error > self.tolerance else "  ")

    def _line(self, finding: Finding) -> str:
        if finding.agrees:
            return f"{finding.backend}: agrees"
        wrong = next(n for n in finding.outputs if finding.errors[n] > self.tolerance)
        where = f"in `{wrong}`, but in no single block"
        if finding.first is not None:
            where = f"first in `{finding.first}`"
        elif wrong.startswith(GRADIENT):
            where = f"in the {wrong[: len(GRADIENT)]}`{wrong[len(GRADIENT) :]}`"
        why = f"; {finding.culprit}" if finding.culprit is not None else ""
        return f"{finding.backend}: differs, {where}{why}"

    def _lines(self) -> list[str]:
        head = f"reference: {self.reference}; `!` marks differences above {self.tolerance:g}"
        return [head, *(self._line(finding) for finding in self.findings)]

    def __str__(self) -> str:
        head, *lines = self._lines()
        return "\n".join([head, self._table()[0].rstrip("\n"), *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *lines = self._lines()
        return f"<p>{head}</p>{self._table()[1]}" + "".join(f"<p>{line}</p>" for line in lines)
