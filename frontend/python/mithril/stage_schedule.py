"""Schedules of pipelines as tables: what each rank computes at each tick, and where values wait.

A tick is the time of one action. At its end, ranks send each other values. The order of actions is
that of the schedules of `torch.distributed.pipelining`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Action", "Slots", "Step", "Table", "orders", "table"]

FORWARD, BACKWARD, WEIGHTS = "F", "B", "W"


class Action(NamedTuple):
    """What a rank computes in a tick."""

    kind: str
    """`F`: the forward pass, `B`: the gradients of the values that the stage takes, or `W`: the
    gradients of its params."""
    stage: int
    microbatch: int


class Step(NamedTuple):
    """A tick of a rank: its action, and the slots that it reads and writes.

    A slot is the number of a place where values of one microbatch wait. None: there are none.
    """

    action: Action | None
    taken: int | None = None
    """The slot that the action reads: values of the stage before for `F`, gradients of the stage
    after for `B`."""
    kept: int | None = None
    """The slot of the inner values that `F` writes, and `B` and `W` read."""
    inner: int | None = None
    """The slot of the inner gradients that `B` writes and `W` reads."""
    value: int | None = None
    """The slot for values that arrive at the end of the tick."""
    gradient: int | None = None
    """The slot for gradients that arrive at the end of the tick."""


class Slots(NamedTuple):
    """The number of slots of each kind, on the rank that needs the most."""

    value: int
    gradient: int
    kept: int
    inner: int


@dataclass(frozen=True)
class Table:
    """The steps of all ranks: `steps[tick][rank]`."""

    steps: list[list[Step]]
    slots: Slots


def orders(
    schedule: str, ranks: int, chunks: int, microbatches: int, *, training: bool
) -> list[list[Action]]:
    """The actions of each rank, in order. `chunks` is the number of stages of a rank: rank r has
    the stages r, r + ranks and so on."""
    rounds = microbatches // max(1, microbatches // ranks)
    total = chunks * microbatches
    found = []
    for rank in range(ranks):
        # Stages take turns after each round of microbatches.
        places = [
            (at // rounds % chunks, at // (rounds * chunks) * rounds + at % rounds)
            for at in range(total)
        ]
        forward = [Action(FORWARD, chunk * ranks + rank, own) for chunk, own in places]
        if not training:
            found.append(forward)
            continue
        hops = (2 if schedule == "interleaved" else 1) * (ranks - 1 - rank)
        first = total if schedule == "gpipe" else min((chunks - 1) * rounds + hops, total)
        # Gradients of params fill the time in which a rank would wait for others.
        delay = rank if schedule == "zero-bubble" else 0
        backward = [((chunks - 1 - chunk) * ranks + rank, own) for chunk, own in places]
        own_order = []
        for at in range(total + first + delay):
            own_order += forward[at : at + 1]
            if 0 <= at - first < total:
                own_order.append(Action(BACKWARD, *backward[at - first]))
            if at - first - delay >= 0:
                own_order.append(Action(WEIGHTS, *backward[at - first - delay]))
        found.append(own_order)
    return found


def table(own_orders: Sequence[Sequence[Action]]) -> Table:
    """Gives each action of these orders a tick: the first one at which its rank is free and its
    operands have arrived."""
    rows = _rows(own_orders)
    done = {action: tick for tick, row in enumerate(rows) for action in row if action is not None}
    slots = [_slots(order, done) for order in own_orders]
    steps = []
    for tick, row in enumerate(rows):
        arriving = _arriving(rows, tick, done)
        steps.append([_step(*own, slots[at]) for at, own in enumerate(zip(row, arriving))])
    counts = [max(len({*own[kind].values()}) for own in slots) for kind in Slots._fields]
    return Table(steps, Slots(*counts))


def _rows(own_orders: Sequence[Sequence[Action]]) -> list[list[Action | None]]:
    """The actions of each tick by rank."""
    stages = 1 + max(action.stage for order in own_orders for action in order)
    done: set[Action] = set()
    rows: list[list[Action | None]] = []
    at = [0] * len(own_orders)
    while any(place < len(order) for place, order in zip(at, own_orders)):
        row: list[Action | None] = []
        for place, order in zip(at, own_orders):
            following = order[place] if place < len(order) else None
            is_ready = following is not None and done.issuperset(_needed(following, stages))
            row.append(following if is_ready else None)
        assert any(row), "a rank waits for an action that another one has after its own"
        done.update(action for action in row if action is not None)
        at = [place + (action is not None) for place, action in zip(at, row)]
        rows.append(row)
    return rows


def _needed(action: Action, stages: int) -> list[Action]:
    """The actions of earlier ticks that an action needs."""
    kind, stage, microbatch = action
    if kind == FORWARD:
        return [Action(FORWARD, stage - 1, microbatch)] if stage else []
    if kind == BACKWARD:
        own = Action(FORWARD, stage, microbatch)
        return [own, Action(BACKWARD, stage + 1, microbatch)] if stage + 1 < stages else [own]
    return [Action(BACKWARD, stage, microbatch)]


Numbers = dict["tuple[int, int]", int]
"""Slots by stage and microbatch."""


def _slots(order: Sequence[Action], done: dict[Action, int]) -> dict[str, Numbers]:
    """The slots of a rank, by what they hold. The values of two microbatches may have one slot if
    those of the first are read before those of the second are written."""
    spans: dict[str, list[tuple[int, int, tuple[int, int]]]] = {own: [] for own in Slots._fields}
    for kind, stage, microbatch in order:
        place = stage, microbatch
        now = done[Action(kind, *place)]
        before = Action(FORWARD, stage - 1, microbatch)
        after = Action(BACKWARD, stage + 1, microbatch)
        if kind == FORWARD and before in done:
            spans["value"].append((done[before], now, place))
        elif kind == BACKWARD and after in done:
            spans["gradient"].append((done[after], now, place))
        elif kind == WEIGHTS:
            spans["kept"].append((done[Action(FORWARD, *place)], now, place))
            spans["inner"].append((done[Action(BACKWARD, *place)], now, place))
    return {kind: _numbered(sorted(own)) for kind, own in spans.items()}


def _numbered(spans: Sequence[tuple[int, int, tuple[int, int]]]) -> Numbers:
    """A slot for each span of ticks. A slot is free again at the tick at which its span ends."""
    ends: list[int] = []
    found: Numbers = {}
    for start, end, place in spans:
        free = next((at for at, own in enumerate(ends) if own <= start), len(ends))
        ends[free : free + 1] = [end]
        found[place] = free
    return found


def _arriving(
    rows: Sequence[Sequence[Action | None]], tick: int, done: dict[Action, int]
) -> list[tuple[tuple[int, int] | None, tuple[int, int] | None]]:
    """For each rank the stages and microbatches that take the values and the gradients which
    arrive at the end of a tick."""
    row = rows[tick]
    found = []
    for rank in range(len(row)):
        before, after = row[rank - 1], row[(rank + 1) % len(row)]
        value = gradient = None
        if before is not None and before.kind == FORWARD:
            value = before.stage + 1, before.microbatch
            value = value if Action(FORWARD, *value) in done else None
        if after is not None and after.kind == BACKWARD and after.stage:
            gradient = after.stage - 1, after.microbatch
        found.append((value, gradient))
    return found


def _step(
    action: Action | None,
    arriving: tuple[tuple[int, int] | None, tuple[int, int] | None],
    slots: dict[str, Numbers],
) -> Step:
    value, gradient = arriving
    into = {
        "value": None if value is None else slots["value"][value],
        "gradient": None if gradient is None else slots["gradient"][gradient],
    }
    if action is None:
        return Step(None, **into)
    place = action.stage, action.microbatch
    taken = {FORWARD: "value", BACKWARD: "gradient"}.get(action.kind)
    return Step(
        action,
        None if taken is None else slots[taken].get(place),
        slots["kept"].get(place),
        slots["inner"].get(place) if action.kind != FORWARD else None,
        **into,
    )
