"""What a compilation has made and how long that took, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import _core
    from .backends.base import Backend

__all__ = ["listed", "reported"]

NAMED = 12
"""How many names a report has of each kind."""


def reported(
    program: _core.Program,
    backend: Backend,
    names: Mapping[str, Sequence[str]],
    native: Sequence[str],
    path: str | None,
) -> str:
    """Lines on the program: its names by what they are, the seconds of each stage, what native code
    has to say, and the file of the source."""
    lines = [f"{program.name}: {backend!r}"]
    lines += [f"  {what}: {listed(own)}" for what, own in names.items() if own]
    lines += [f"  {stage}: {1000 * t:.2f} ms" for stage, t in program.timings]
    lines += [f"  {line}" for line in native]
    if path is not None:
        lines.append(f"  written to {path}")
    return "\n".join(lines)


def listed(names: Sequence[str], quote: str = "") -> str:
    """The names, of many the first ones and how many more there are."""
    shown, rest = names[:NAMED], len(names) - NAMED
    text = ", ".join(f"{quote}{name}{quote}" for name in shown)
    return text + (f" and {rest:,} more" if rest > 0 else "")
