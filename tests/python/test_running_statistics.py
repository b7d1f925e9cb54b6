"""Running statistics over steps of training, compared with PyTorch on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from comparing import near_in_double
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril.models import BatchNorm1d, BatchNorm2d, InstanceNorm

TOLERANCES = {"float64": 1e-12, "float32": 2e-5, "bfloat16": 2.0**-6, "float16": 2.0**-9}


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def trained(block: Any, theirs: Any, backend: Any, shape: Any, dtype: str) -> None:
    """Takes steps in training, then one in inference, and compares outputs and states. PyTorch gets
    the same numbers in double precision, as it computes some statistics in half precision."""
    tolerance = TOLERANCES[dtype]
    compiled = ml.compile(block, backend, shapes={"input": list(shape)})
    params = compiled.randomize_params()
    batches = [numbers(*shape, seed=seed) + seed for seed in range(4)]
    batches = [torch.tensor(x).to(getattr(torch, dtype)).double() for x in batches]
    given = [backend.array(x.numpy()) for x in batches]
    state = compiled.initial_state(params, {"input": given[0]})
    for x, own in zip(given, batches, strict=True):
        before = {n: np.array(backend.to_numpy(v)) for n, v in state.items()}
        outputs, following = compiled.evaluate(params, {"input": x}, state=state)
        near_in_double(backend.to_numpy(outputs["output"]), theirs(own), tolerance)
        for n, v in before.items():
            np.testing.assert_array_equal(np.asarray(backend.to_numpy(state[n])), v)
        state = following
    buffers = {
        "num_batches" if n == "num_batches_tracked" else n: b for n, b in theirs.named_buffers()
    }
    for name, value in state.items():
        near_in_double(backend.to_numpy(value), buffers[name], tolerance)
    theirs.eval()
    still = ml.compile(block, backend, shapes={"input": list(shape)}, inference=True)
    outputs, after = still.evaluate(params, {"input": given[0]}, state=state)
    near_in_double(backend.to_numpy(outputs["output"]), theirs(batches[0]), tolerance)
    assert set(after) == set(state)


DTYPES = [
    (kind, dtype)
    for kind in INSTALLED
    for dtype in ("float32", "float64", "float16", "bfloat16")
    if dtype == "float32" or kind in ("numpy", "torch", "jax", "cpu")
]


@pytest.mark.parametrize(("kind", "dtype"), DTYPES)
@pytest.mark.parametrize("case", ["vectors", "images", "plain", "halved"])
def test_averages_over_all_batches(kind, dtype, case):
    backend = getattr(ml, MAKERS[kind])(dtype=dtype)
    block, theirs, shape = {
        "vectors": (BatchNorm1d(momentum=None), torch.nn.BatchNorm1d(3, momentum=None), (6, 3)),
        "images": (BatchNorm2d(None), torch.nn.BatchNorm2d(3, momentum=None), (2, 3, 4, 5)),
        "plain": (
            BatchNorm2d(momentum=None, use_scale=False, use_bias=False),
            torch.nn.BatchNorm2d(3, momentum=None, affine=False),
            (2, 3, 4, 5),
        ),
        "halved": (BatchNorm2d(momentum=0.5), torch.nn.BatchNorm2d(3, momentum=0.5), (2, 3, 1, 2)),
    }[case]
    trained(block, theirs.double(), backend, shape, dtype)


def test_the_number_of_batches_is_an_integer(backend):
    """A float16 would stop at 2048."""
    compiled = ml.compile(BatchNorm1d(momentum=None), backend, shapes={"input": [4, 3]})
    assert compiled.states == ("running_mean", "running_var", "num_batches")
    state = compiled.initial_state()
    assert "int" in str(backend.to_numpy(state["num_batches"]).dtype)
    assert "num_batches" not in ml.compile(BatchNorm1d(), backend, shapes={"input": [4, 3]}).states
    without = BatchNorm1d(momentum=None, track_running_stats=False)
    assert ml.compile(without, backend, shapes={"input": [4, 3]}).states == ()


def test_a_model_of_half_precision_counts_its_batches():
    backend = ml.TorchBackend()
    model = ml.Model()
    model |= BatchNorm1d(momentum=None, dtype="bfloat16")(input="input", output="output")
    compiled = ml.compile(model, backend, shapes={"input": [4, 3]})
    params = compiled.randomize_params()
    for _ in range(3):
        compiled.evaluate(params, {"input": backend.array(numbers(4, 3).astype(np.float32))})
    (count,) = (v for n, v in compiled.state.items() if n.endswith("num_batches"))
    assert count.dtype == torch.int64
    assert int(count) == 3


@pytest.mark.parametrize(("kind", "dtype"), DTYPES)
@pytest.mark.parametrize("case", ["sequences", "images", "shifted"])
def test_running_statistics_of_instances(kind, dtype, case):
    backend = getattr(ml, MAKERS[kind])(dtype=dtype)
    nn = torch.nn
    block, theirs, shape = {
        "sequences": (
            InstanceNorm(track_running_stats=True),
            nn.InstanceNorm1d(3, track_running_stats=True),
            (4, 3, 7),
        ),
        "images": (
            InstanceNorm(use_scale=True, use_bias=True, track_running_stats=True, momentum=0.3),
            nn.InstanceNorm2d(3, affine=True, track_running_stats=True, momentum=0.3),
            (2, 3, 4, 5),
        ),
        "shifted": (
            InstanceNorm(use_bias=True, track_running_stats=True, momentum=1.0),
            nn.InstanceNorm2d(3, affine=True, track_running_stats=True, momentum=1.0),
            (1, 3, 1, 2),
        ),
    }[case]
    trained(block, theirs.double(), backend, shape, dtype)


def test_instances_need_numbers_for_a_variance():
    block = InstanceNorm(track_running_stats=True)
    for shape in ([2, 3, 1], [2, 3], [0, 3, 4]):
        with pytest.raises(ml.MithrilError, match="`InstanceNorm` needs"):
            ml.compile(block, ml.NumpyBackend(), shapes={"input": shape})
    compiled = ml.compile(block, ml.NumpyBackend(), shapes={"input": ["n", 3, "m"]})
    compiled.evaluate({}, {"input": np.ones((2, 3, 2), np.float32)})
    with pytest.raises(ml.MithrilError):
        compiled.evaluate({}, {"input": np.ones((2, 3, 1), np.float32)})
    still = ml.compile(block, ml.NumpyBackend(), shapes={"input": [2, 3, 1]}, inference=True)
    got = still.evaluate({}, {"input": np.ones((2, 3, 1), np.float32)})["output"]
    np.testing.assert_allclose(got, np.ones((2, 3, 1)), rtol=1e-4)
