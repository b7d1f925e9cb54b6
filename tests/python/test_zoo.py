"""The architectures of `mithril.zoo` compute what public implementations compute with the same
weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import INSTALLED, MAKERS
from zoo_cases import CASES, Case, randomized

import mithril as ml
from mithril import zoo

BACKENDS = [kind for kind in ("numpy", "torch", "cpu") if kind in INSTALLED]
JAX = ["MobileNetV2-half"]


def theirs_of(case: Case, model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    with torch.no_grad():
        outputs = case.call(model, {n: torch.from_numpy(v) for n, v in inputs.items()})
    return {name: value.numpy() for name, value in outputs.items()}


@pytest.mark.parametrize("name", CASES)
def test_outputs(name):
    """Equal outputs on several backends, for inputs of several sizes."""
    case = CASES[name]
    model, public = case.ours(), randomized(case.theirs())
    params, states = zoo.load(model, public.state_dict())
    want = [theirs_of(case, public, inputs) for inputs in case.inputs]
    for kind in [*BACKENDS, *(["jax"] if name in JAX and "jax" in INSTALLED else [])]:
        backend = getattr(ml, MAKERS[kind])()
        compiled = ml.compile(model, backend, inference=True)
        assert set(params) == set(compiled.params)
        assert set(states) == set(compiled.states)
        compiled.state = states
        for inputs, outputs in zip(case.inputs, want, strict=True):
            got = compiled.evaluate(params, inputs)
            for output, value in outputs.items():
                own, message = backend.to_numpy(got[output]), f"{kind}: {output}"
                np.testing.assert_allclose(own, value, rtol=1e-4, atol=1e-4, err_msg=message)
