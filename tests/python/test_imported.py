"""Imported graphs: the operations and launches left after optimizing, as in docs/speed.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CLASSES

import mithril as ml

sys.path.insert(0, str(Path(__file__).parents[1] / "benches"))
from imported import CASES, LEVELS, Case, compiled, inputs, launches, operations

SPEED = Path(__file__).parents[2] / "docs" / "speed.md"


def stated(case: Case) -> tuple[list[int], list[int]]:
    """The numbers of operations and of launches, before and after, from the table in the docs."""
    row = re.search(rf"^\| {case.name} \|(.*)$", SPEED.read_text(), re.M)
    assert row, f"docs/speed.md has no row of `{case.name}`"
    before = [[int(number) for number in re.findall(r"\d+", cell)] for cell in row[1].split("|")]
    return before[0], before[1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_graphs_have_the_stated_operations_and_launches(case: Case) -> None:
    framework, native = ml.TorchBackend(), ml.CpuBackend(threads=1)
    counts = [operations(compiled(case, framework, level)) for level in LEVELS]
    calls = [launches(compiled(case, native, level))[0] for level in LEVELS]
    assert counts[1] < counts[0]
    assert (counts, calls) == stated(case)


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_graphs_keep_their_numbers(case: Case, make: Any) -> None:
    exact = ml.NumpyBackend(dtype=ml.float64)
    expected = compiled(case, exact, "none").evaluate({}, inputs(case, exact))["y"]
    backend = make()
    y = compiled(case, backend, "full").evaluate({}, inputs(case, backend))["y"]
    np.testing.assert_allclose(backend.to_numpy(y), expected, rtol=1e-4, atol=1e-5)
