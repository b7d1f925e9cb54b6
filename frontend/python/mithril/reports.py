"""The report of a compilation as text: its names and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import _core
    from .backends.base import Backend

__all__ = ["counted", "listed", "reported"]

MAX_NAMES = 12
"""The maximum number of names that a report lists for each kind."""


def reported(
    program: _core.Program,
    backend: Backend,
    names: Mapping[str, Sequence[str]],
    native: Sequence[str],
    path: str | None,
) -> str:
    """The text of the report: the names by kind, the time of each stage, the report of native code,
    and the path of the source file."""
    lines = [f"{program.name}: {backend!r}"]
    lines += [f"  {what}: {listed(own)}" for what, own in names.items() if own]
    lines += [f"  {stage}: {1000 * t:.2f} ms" for stage, t in program.timings]
    lines += [f"  {line}" for line in native]
    if path is not None:
        lines.append(f"  written to {path}")
    return "\n".join(lines)


def listed(names: Sequence[str], quote: str = "") -> str:
    """The first names, followed by the number of names that are left out."""
    shown, rest = names[:MAX_NAMES], len(names) - MAX_NAMES
    text = ", ".join(f"{quote}{name}{quote}" for name in shown)
    return text + (f" and {rest:,} more" if rest > 0 else "")


def counted(count: int, noun: str, plural: str = "s") -> str:
    """A number of things, such as `1 rank` or `2 ranks`."""
    return f"{count} {noun}{plural if count != 1 else ''}"
