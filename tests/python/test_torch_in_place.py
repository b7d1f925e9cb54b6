"""`memory_efficient=True` of PyTorch: operations overwrite arrays that nothing else reads."""

from __future__ import annotations

import gc
import re

import pytest
from block_cases import close, variants
from test_blocks import NAMES, results, tolerance_of

import mithril as ml
from mithril.models import BatchNorm2d, Conv2d, Linear, MaxPool2d, Relu, Sequential, Sigmoid

torch = pytest.importorskip("torch")

SHAPES = {"input": [4, 3, 8, 8]}


def images():
    layers = [Conv2d(8, 3, padding=1), BatchNorm2d(), Relu(), MaxPool2d(2), Conv2d(8, 3), Relu()]
    return Sequential([*layers, Linear(16), Sigmoid(), Linear(4)])


@pytest.mark.parametrize("name", NAMES)
def test_every_block_in_place(name):
    for case in variants(name):
        want = results(name, case, ml.TorchBackend(dtype=ml.float64))
        backend = ml.TorchBackend(dtype=ml.float64, memory_efficient=True)
        for autodiff in ("framework", "mithril"):
            got = results(name, case, backend, autodiff=autodiff)
            for part, kind in zip(got[:2], ("output", "gradient of"), strict=False):
                expected = want[0] if kind == "output" else want[1]
                close(part, expected, f"{case}, {autodiff}: {kind}", tolerance_of(name))


def test_calls_allocate_less():
    """What is overwritten is not allocated again."""
    allocated = {}
    for efficient in (False, True):
        backend = ml.TorchBackend(memory_efficient=efficient)
        compiled = ml.compile(images(), backend, shapes=SHAPES, inference=True)
        params = compiled.randomize_params(seed=0)
        calls = []
        backend.register_memory_hook(lambda *sizes, calls=calls: calls.append(sizes))
        gc.collect()
        compiled.evaluate(params, {"input": torch.ones(SHAPES["input"])})
        allocated[efficient] = calls[0][1]
    # The results of ReLUs, and of the addition and the sigmoid after the first product.
    saved = [(4, 8, 8, 8), (4, 8, 2, 2), (4, 8, 2, 16), (4, 8, 2, 16), (4, 8, 2, 4)]
    assert allocated[False] - allocated[True] == sum(4 * torch.Size(s).numel() for s in saved)


@pytest.mark.parametrize(
    ("use_amp", "written"),
    [(False, {"add_", "relu_", "sigmoid_"}), (True, {"relu_", "sigmoid_"})],
)
def test_arrays_keep_the_dtypes_of_autocast(use_amp, written):
    """Under autocast, a sum has the wider dtype of its operands."""
    backend = ml.TorchBackend(memory_efficient=True, use_amp=use_amp)
    plain = ml.TorchBackend(use_amp=use_amp)
    compiled, other = (ml.compile(images(), b, shapes=SHAPES) for b in (backend, plain))
    assert set(re.findall(r"\b[a-z]+_(?=\()", compiled.code)) == written
    params = compiled.randomize_params(seed=0)
    inputs = {"input": torch.randn(SHAPES["input"], generator=torch.Generator().manual_seed(0))}
    found = [c.evaluate(params, inputs)["output"] for c in (compiled, other)]
    assert found[0].dtype == found[1].dtype
    torch.testing.assert_close(*found, rtol=0, atol=0)
