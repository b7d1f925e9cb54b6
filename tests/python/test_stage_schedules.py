"""Tables of schedules: every action once, after what it needs, and no more values than planned."""

import itertools

import pytest

from mithril.stage_plan import held_microbatches
from mithril.stage_schedule import Action, orders, table

SINGLE = ("gpipe", "1f1b")


def cases():
    """Schedules, ranks, stages of a rank, and microbatches, as `Pipeline.count` allows them."""
    schedules = ("gpipe", "1f1b", "interleaved", "zero-bubble")
    for schedule, ranks, chunks in itertools.product(schedules, (1, 2, 3, 4, 8), (1, 2, 3)):
        if schedule in SINGLE and chunks > 1:
            continue
        for count in (1, 2, 3, 4, 5, 8, 12, 16):
            if schedule == "1f1b" and count < ranks:
                continue
            if schedule in SINGLE or count % max(1, count // ranks) == 0:
                yield schedule, ranks, chunks, count


def made(schedule, ranks, chunks, count, *, training=True):
    return table(orders(schedule, ranks, chunks, count, training=training))


def ticks(own):
    """The ticks of the actions. Each action is there once, on the rank of its stage."""
    found = {}
    for tick, row in enumerate(own.steps):
        for rank, step in enumerate(row):
            if step.action is not None:
                assert step.action not in found
                assert step.action.stage % len(row) == rank
                found[step.action] = tick
    return found


@pytest.mark.parametrize("training", [True, False])
def test_every_action_is_there_once_and_after_those_it_needs(training):
    for schedule, ranks, chunks, count in cases():
        at = ticks(made(schedule, ranks, chunks, count, training=training))
        stages = ranks * chunks
        kinds = "FBW" if training else "F"
        wanted = itertools.product(kinds, range(stages), range(count))
        assert at.keys() == {Action(*own) for own in wanted}
        for (kind, stage, microbatch), tick in at.items():
            before = [Action("F", stage - 1, microbatch)] if kind == "F" and stage else []
            if kind == "B":
                before = [Action("F", stage, microbatch)]
                before += [Action("B", stage + 1, microbatch)] if stage + 1 < stages else []
            elif kind == "W":
                before = [Action("B", stage, microbatch)]
            assert all(at[own] < tick for own in before)


def test_stages_keep_as_many_microbatches_as_planned():
    for case in cases():
        own = made(*case)
        found, now = [0] * (case[1] * case[2]), [0] * (case[1] * case[2])
        for step in itertools.chain.from_iterable(own.steps):
            if step.action is not None and step.action.kind in "FW":
                now[step.action.stage] += 1 if step.action.kind == "F" else -1
                found = [max(pair) for pair in zip(found, now)]
        assert found == held_microbatches(*case)


def test_what_is_read_from_a_slot_was_written_there():
    for schedule, ranks, chunks, count in cases():
        own = made(schedule, ranks, chunks, count)
        slots = [{} for _ in range(ranks)]
        for row in own.steps:
            for rank, step in enumerate(row):
                if step.action is None:
                    continue
                kind, stage, microbatch = step.action
                held, place = slots[rank], (stage, microbatch)
                if kind == "F":
                    held["kept", step.kept] = place
                    assert stage == 0 or held["value", step.taken] == place
                    continue
                assert held["kept", step.kept] == place
                if kind == "B":
                    held["inner", step.inner] = place
                    assert stage == ranks * chunks - 1 or held["gradient", step.taken] == place
                else:
                    assert held["inner", step.inner] == place
            # What is sent arrives at the end of the tick.
            for rank, step in enumerate(row):
                before, after = row[rank - 1].action, row[(rank + 1) % ranks].action
                if step.value is not None:
                    slots[rank]["value", step.value] = before.stage + 1, before.microbatch
                if step.gradient is not None:
                    slots[rank]["gradient", step.gradient] = after.stage - 1, after.microbatch
        for held in slots:
            for kind, number in held:
                assert 0 <= number < getattr(own.slots, kind)


@pytest.mark.parametrize(
    ("schedule", "chunks", "length"),
    # Each rank has 24 actions for a stage, and waits for the ticks beyond them.
    [("gpipe", 1, 30), ("1f1b", 1, 30), ("interleaved", 2, 54), ("zero-bubble", 1, 27)],
)
def test_the_length_of_a_table(schedule, chunks, length):
    assert len(made(schedule, 4, chunks, 8).steps) == length


def test_the_order_of_1f1b():
    text = [
        "".join(step.action.kind if step.action else "." for step in rank)
        for rank in zip(*made("1f1b", 2, 1, 3).steps)
    ]
    assert text == ["FF.BWFBW.BW", ".FBWFBWFBW."]
