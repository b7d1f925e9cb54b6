"""Every block as a library that is compiled ahead of time, and called in a process without Mithril:
outputs, gradients and states, against NumPy."""

import shutil
from typing import Any

import numpy as np
import pytest
from block_cases import build, close, variants
from conftest import has
from exported import export
from test_blocks import NAMES, results, tolerance_of

import mithril as ml

pytestmark = [
    pytest.mark.skipif(not has("cpu"), reason="built without native code"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no linker"),
]


def by_role(found: dict[tuple[str, str], Any], role: str) -> dict[str, Any]:
    return {name: value for (own, name), value in found.items() if own == role}


@pytest.mark.parametrize("name", NAMES)
def test_every_block_is_a_library(name, tmp_path):
    case = variants(name)[0]
    outputs, gradients, values, weights = results(name, case, ml.NumpyBackend(dtype=ml.float64))
    model, shapes = build(name, case)
    compiled = ml.compile(
        model,
        ml.CpuBackend(dtype=ml.float64),
        shapes=shapes,
        random="exact",
        trainable_keys=[n for n, value in values.items() if value.dtype == np.float64],
    )
    library = export(compiled, tmp_path, name="block")
    params = {n: values[n] for n in compiled.params}
    inputs = {n: value for n, value in values.items() if n not in params}
    keys = {a.name for a in compiled._program.arguments if a.role == "key"}
    state = compiled.initial_state(params, inputs) if compiled.states else {}
    groups = {"param": params, "data": inputs, "state": state}
    groups["key"] = {n: np.array([1, 2], np.uint32) for n in keys}
    status, found = library.call(**groups)
    assert status == 0
    close(by_role(found, "output"), outputs, f"{name}: output", tolerance_of(name))
    if gradients:
        status, found = library.call("_gradients", **groups, cotangent=weights)
        assert status == 0
        close(by_role(found, "output"), outputs, f"{name}: output", tolerance_of(name))
        close(by_role(found, "gradient"), gradients, f"{name}: gradient of", tolerance_of(name))
