"""Cuts a model into stages of about equal cost: runs of consecutive blocks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from . import _core
from .errors import UsageError, listed
from .reports import counted

__all__ = ["balanced", "cut_points", "units"]


LARGE = 1.5
"""A block is too large from this part of an equal share of the time of a stage."""


class Unit(NamedTuple):
    """A block that is not cut."""

    path: str
    seconds: float
    """The time of its part of a step."""


def units(costs: _core.Costs, seconds: Mapping[str, float], stages: int) -> list[Unit]:
    """The blocks between which a model may be cut, in the order of computation: the blocks of the
    model. A block with equal blocks inside, such as the layers of a transformer, stands for these,
    and so does the most expensive one while it is too large, or there are fewer blocks than stages.

    Errors: `UsageError` if there are too few.
    """
    paths = [own.path for own in costs.blocks if own.path]
    inner: dict[str, list[str]] = {}
    for path in paths:
        inner.setdefault(path.rpartition(".")[0], []).append(path)
    found: list[str] = []

    def add(path: str, *, is_repeated: bool) -> None:
        repeated = set() if is_repeated else _repeated(inner.get(path, []), costs)
        if path and not repeated:
            found.append(path)
            return
        for own in inner.get(path, []):
            add(own, is_repeated=own in repeated)

    add("", is_repeated=False)
    total = sum(seconds.get(path, 0.0) for path in found)
    while opened := [path for path in found if inner.get(path)]:
        largest = max(opened, key=lambda path: seconds.get(path, 0.0))
        if len(found) >= stages and seconds.get(largest, 0.0) <= LARGE * total / stages:
            break
        at = found.index(largest)
        found[at : at + 1] = inner[largest]
    if len(found) < stages:
        raise UsageError(
            "the model has fewer blocks than stages"
            f"\n  got: {counted(stages, 'stage')}, and the blocks {listed(found)}"
            f"\n  expected: at most {counted(len(found), 'stage')}"
        )
    return [Unit(path, seconds.get(path, 0.0)) for path in found]


def _repeated(paths: Sequence[str], costs: _core.Costs) -> set[str]:
    """Those of these blocks whose names differ by a number alone, and whose costs are equal."""
    kinds: dict[tuple[object, ...], list[str]] = {}
    for path in paths:
        own = costs.at(path)
        if own is not None and own.params:
            name = re.sub(r"\d+$", "", path)
            kinds.setdefault((name, own.params, own.flops), []).append(path)
    return {path for same in kinds.values() if len(same) > 1 for path in same}


def balanced(own: Sequence[Unit], stages: int) -> list[list[str]]:
    """The paths of each stage. The most expensive stage is as cheap as possible, and of such cuts
    the one with the least sum of squares is chosen."""
    points = cut_points([unit.seconds for unit in own], stages)
    ends = [*points[1:], len(own)]
    return [[unit.path for unit in own[start:end]] for start, end in zip(points, ends)]


def cut_points(costs: Sequence[float], stages: int) -> list[int]:
    """Where each of `stages` runs of these costs begins."""
    total = [0.0]
    for cost in costs:
        total.append(total[-1] + cost)
    count = len(costs)
    # For the first `end` costs in some number of runs: the largest run, the sum of squares, and the
    # beginnings of the runs.
    best: list[tuple[float, float, tuple[int, ...]] | None]
    best = [(total[end], total[end] ** 2, (0,)) if end else None for end in range(count + 1)]
    for _ in range(stages - 1):
        after: list[tuple[float, float, tuple[int, ...]] | None] = [None] * (count + 1)
        for end in range(1, count + 1):
            for start in range(1, end):
                before = best[start]
                if before is None:
                    continue
                run = total[end] - total[start]
                made = max(before[0], run), before[1] + run**2, (*before[2], start)
                known = after[end]
                if known is None or made < known:
                    after[end] = made
        best = after
    found = best[count]
    assert found is not None, "there are at least as many costs as runs"
    return list(found[2])
