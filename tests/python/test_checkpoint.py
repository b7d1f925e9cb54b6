"""Gradient checkpointing, and the memory that native code works with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from conftest import CLASSES

import mithril as ml
from mithril.models import (
    MLP,
    Dropout,
    Gelu,
    LayerNorm,
    Linear,
    Model,
    MultiHeadAttention,
    Relu,
    Residual,
    Sequential,
    Tanh,
)

BACKENDS = CLASSES


def layers(count: int, width: int, *, checkpoint: bool = False) -> Model:
    """Equal layers, each with an MLP that is four times as wide."""
    model, x = Model(), "input"
    for i in range(count):
        mlp = MLP(activations=[Gelu(), Tanh()], dimensions=[4 * width, width])
        layer = Sequential([LayerNorm(), mlp], checkpoint=checkpoint)
        model |= Residual(layer)(input=x, output=f"x{i}")
        x = f"x{i}"
    model |= Linear(3)(input=x, output="output")
    return model


def different() -> Model:
    """Layers that all differ from each other."""
    sizes = [9, 8, 7, 6, 5, 4]
    activations = [Relu(), Tanh(), Gelu(), Tanh(), Relu(), Gelu()]
    return MLP(activations=activations, dimensions=sizes)


def attention() -> Model:
    """Attention with dropout, and dims that vary."""
    model, x = Model(), "input"
    for i in range(2):
        heads = MultiHeadAttention(2, is_causal=True)
        model |= Residual(Sequential([LayerNorm(), heads, Dropout(0.5)]))(input=x, output=f"x{i}")
        x = f"x{i}"
    model |= Linear(3)(input=x, output="output")
    return model


def recurrent() -> Model:
    model = Model()
    model |= ml.LSTM(5, layers=2)(input="input", output="output")
    return model


def gradients(model, backend, shape, **options):
    shapes = {"input": ["b", *shape[1:]]}
    compiled = ml.compile(model, backend("float64"), shapes=shapes, **options)
    own = compiled.backend
    inputs = {"input": own.array(np.random.default_rng(0).standard_normal(shape))}
    keys = [name for name in compiled.inputs if name != "input"]
    inputs |= {name: own.from_numpy(np.array([3, 4], "uint32")) for name in keys}
    outputs, found = compiled.evaluate(
        compiled.randomize_params(seed=1), inputs, output_gradients=lambda o: o["output"] * 2
    )
    named = {**outputs, **{f"d {name}": value for name, value in found.items()}}
    return compiled, {name: own.to_numpy(value) for name, value in named.items()}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (layers(3, 6), (4, 6)),
        (different(), (4, 5)),
        (attention(), (2, 5, 4)),
        (recurrent(), (2, 7, 4)),
    ],
)
def test_checkpointed_gradients_are_the_same(backend, model, shape):
    _, kept = gradients(model, backend, shape)
    for autodiff in ("framework", "mithril"):
        options = {"gradient_checkpointing": True, "autodiff": autodiff}
        _, again = gradients(model, backend, shape, **options)
        assert kept.keys() == again.keys()
        scale = max(float(abs(value).max()) for value in kept.values())
        for name, value in kept.items():
            np.testing.assert_allclose(again[name], value, rtol=0, atol=1e-13 * scale)


def test_steps_of_a_scan_are_recomputed():
    """The backward pass then keeps the carries of each step alone."""
    step = Model()
    step |= MLP(activations=[Tanh(), Tanh()], dimensions=[64, 8])(input="h", output="h_next")
    scan = ml.Scan(step, carry={"h": "h_next"}, steps=100)
    compiled = lambda **options: ml.compile(  # noqa: E731
        scan, ml.CpuBackend(), shapes={"h": [4, 8]}, trainable_keys=["h"], **options
    )
    most = compiled().memory()["total"]
    least = compiled(gradient_checkpointing=True).memory()["total"]
    assert least < 0.25 * most
    budget = (most + least) // 2
    assert compiled(memory_budget=budget).memory()["total"] <= budget


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [400, 407])
def test_a_long_loop_is_divided_into_segments(steps, reverse):
    """The carries of all steps do not fit into the budget; those of about sqrt(steps) segments do.
    Gradients stay the same, of carries, sequences and params."""
    step = Model()
    step |= Linear(64, name="own")(input="h", output="kept")
    step |= ml.Add()(left="kept", right="x", output="sum")
    step |= Tanh()(input="sum", output="next")
    step |= ml.Sum(axis=-1)(input="next", output="total")
    step.expose("next")
    scan = ml.Scan(step, carry={"h": "next"}, over=["x"], reverse=reverse)
    shapes = {"h": [16, 64], "x": [steps, 1, 64]}
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    weights = {"own.w": rng.standard_normal((64, 64)).astype(np.float32) / 16}
    weights["own.b"] = np.zeros(64, np.float32)
    totals, found = [], []
    for options in ({}, {"gradient_checkpointing": True}, {"memory_budget": 0}):
        if "memory_budget" in options:
            # Half of the carries of all steps must not be kept.
            options["memory_budget"] = totals[-1] - 4 * 16 * 64 * steps // 2
        model = Model()
        model |= scan(h="h", x="x", next="last", total="totals")
        compiled = ml.compile(
            model, ml.CpuBackend(), shapes=shapes, trainable_keys=["h", "x"], **options
        )
        params = {
            n: next(w for own, w in weights.items() if n.endswith(own))
            for n in compiled.params
            if n not in arrays
        }
        totals.append(compiled.memory()["total"])
        seeds = {"last": np.ones((16, 64), np.float32)}
        seeds["totals"] = np.ones((steps, 16), np.float32)
        outputs, gradients = compiled.evaluate({**params, **arrays}, {}, output_gradients=seeds)
        found.append({**outputs, **gradients})
    assert totals[2] < totals[1] <= totals[0]
    for name, value in found[0].items():
        np.testing.assert_allclose(found[2][name], value, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("backend", "call"),
    [
        (ml.TorchBackend, "_checkpoint("),
        (ml.JaxBackend, "_checkpoint("),
        (ml.MlxBackend, "_checkpoint("),
        (ml.TinygradBackend, "_checkpoint("),
    ],
)
def test_checkpoints_become_framework_checkpoints(backend, call):
    chosen, first = gradients(layers(3, 6, checkpoint=True), backend, (4, 6))
    usual, second = gradients(layers(3, 6), backend, (4, 6))
    assert chosen.code.count(f" = {call}") == 3
    assert call not in usual.code
    for name, value in second.items():
        np.testing.assert_allclose(first[name], value, rtol=0, atol=1e-13 * abs(value).max())


def test_checkpointing_lowers_the_peak_memory_of_numpy():
    peaks = []
    for again in (False, True):
        model = layers(8, 64)
        compiled = ml.compile(
            model, ml.NumpyBackend(), shapes={"input": [256, 64]}, gradient_checkpointing=again
        )
        params = compiled.randomize_params(seed=0)
        x = {"input": np.ones((256, 64), "f4")}
        tracemalloc.start()
        compiled.evaluate(params, x, output_gradients=np.ones((256, 3), "f4"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 0.4 * peaks[0]


def test_checkpoint_is_saved():
    text = layers(2, 4, checkpoint=True).to_json()
    assert text.count('"checkpoint"') == 1
    again = Model.from_json(text)
    assert again.to_json() == text
    shapes = {"input": [2, 4]}
    code = ml.compile(again, ml.TorchBackend(), shapes=shapes).code
    assert code.count(" = _checkpoint(") == 2
    inner = Model(checkpoint=True)
    inner |= Sequential([Linear(4), Tanh()])(input="input", output="output")
    outer = Model()
    outer |= inner(input="input", output="output")
    assert "_checkpoint(" in ml.compile(outer, ml.TorchBackend(), shapes=shapes).code
    inference = ml.compile(outer, ml.TorchBackend(), shapes=shapes, inference=True)
    assert inference.evaluate(inference.randomize_params(0), {"input": np.ones((2, 4), "f4")})


def test_checkpoint_requires_inner_blocks():
    with pytest.raises(ml.MithrilError, match="`checkpoint` needs a block with blocks inside"):
        Linear(4, checkpoint=True)


@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.CBackend])
def test_memory_budget_recomputes_as_few_blocks_as_possible(backend):
    model, shapes = layers(8, 32), {"input": [256, 32]}

    def compiled(**options):
        return ml.compile(model, backend(), shapes=shapes, **options)

    most = compiled().memory()["total"]
    least = compiled(gradient_checkpointing=True).memory()["total"]
    assert least < 0.5 * most
    totals = []
    for budget in (2 * most, (2 * most + least) // 3, (most + 2 * least) // 3, least):
        totals.append(compiled(memory_budget=budget).memory()["total"])
        assert totals[-1] <= budget
    assert totals[0] == most and totals[-1] == least
    assert totals == sorted(totals, reverse=True) and len(set(totals)) == 4
    with pytest.raises(ml.MithrilError, match=rf"at least {least} bytes"):
        compiled(memory_budget=least - 1)


def test_memory_budget_holds_if_recomputing_everything_takes_more():
    options = {"shapes": {"input": [256, 32]}, "memory_planning": "none"}
    none = ml.compile(layers(4, 32), ml.CpuBackend(), **options).memory()["total"]
    budgeted = ml.compile(layers(4, 32), ml.CpuBackend(), memory_budget=none, **options)
    assert budgeted.memory()["total"] <= none
    with pytest.raises(ml.MithrilError, match=r"at least \d+ bytes"):
        ml.compile(layers(4, 32), ml.CpuBackend(), memory_budget=1000, **options)


def test_marked_checkpoints_are_not_divided_again():
    shapes = {"input": [4, 6]}
    usual = ml.compile(layers(4, 6, checkpoint=True), ml.TorchBackend(), shapes=shapes)
    again = ml.compile(
        layers(4, 6, checkpoint=True), ml.TorchBackend(), shapes=shapes, gradient_checkpointing=True
    )
    assert again.code.count("torch.tanh") == usual.code.count("torch.tanh")


@pytest.mark.parametrize("budget", ["²GB", "much", -1, True, 1.5, "GB"])
def test_invalid_memory_budgets_are_errors(budget):
    with pytest.raises(ml.UsageError, match="`memory_budget` is not a size"):
        ml.compile(layers(2, 4), ml.CpuBackend(), memory_budget=budget)


@pytest.mark.parametrize("budget", ["1TB", "1.5 GiB", "100000000B", np.int64(10**9), 2**70])
def test_memory_budget_accepts_common_spellings(budget):
    shapes = {"input": [4, 4]}
    assert ml.compile(layers(2, 4), ml.CpuBackend(), shapes=shapes, memory_budget=budget).params


def test_budgets_that_cannot_be_kept_are_refused():
    model = layers(2, 4)
    with pytest.raises(ml.UsageError, match="frameworks manage their memory themselves"):
        ml.compile(model, ml.NumpyBackend(), memory_budget="1GB")
    with pytest.raises(ml.UsageError, match="`memory_budget` is not a size"):
        ml.compile(model, ml.CpuBackend(), memory_budget="much")
    with pytest.raises(ml.MithrilError, match="the dim `b` has no number"):
        ml.compile(model, ml.CpuBackend(), shapes={"input": ["b", 4]}, memory_budget="1GB")


def test_memory_of_dims_that_vary_follows_from_their_numbers():
    compiled = ml.compile(layers(2, 4), ml.CpuBackend(), shapes={"input": ["b", 4]})
    fixed = ml.compile(layers(2, 4), ml.CpuBackend(), shapes={"input": [16, 4]})
    small, large, own = compiled.memory(b=16), compiled.memory(b=64), fixed.memory()
    assert [small[k] for k in ("arguments", "results")] == [
        own[k] for k in ("arguments", "results")
    ]
    assert large["temporaries"] > small["temporaries"]
    assert small["total"] == sum(size for what, size in small.items() if what != "total")
    with pytest.raises(ml.MithrilError, match="the dim `b` has no number"):
        compiled.memory()
    with pytest.raises(ml.UsageError, match="the dim `b` must be a size"):
        compiled.memory(b=-3)
    with pytest.raises(ml.MithrilError, match="known ranks"):
        ml.compile(layers(2, 4), ml.CpuBackend()).memory()
    with pytest.raises(ml.BackendError, match="frameworks manage their memory"):
        ml.compile(layers(2, 4), ml.NumpyBackend()).memory()


@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.CBackend])
def test_values_that_share_no_memory_take_more_and_are_the_same(backend):
    greedy, first = gradients(layers(4, 6), backend, (4, 6))
    apart, second = gradients(layers(4, 6), backend, (4, 6), memory_planning="none")
    assert apart.memory(b=4)["temporaries"] > greedy.memory(b=4)["temporaries"]
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value)


MEASURE = """
import json, sys, time
import numpy as np
import mithril as ml
from test_checkpoint import layers

def held(what):
    lines = open("/proc/self/status").read().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))

options = json.loads(sys.argv[1])
shapes = {"input": ["b", 256]}
compiled = ml.compile(layers(8, 256), ml.CpuBackend(threads=1), shapes=shapes, **options)
params = compiled.randomize_params(seed=1)

def step(rows):
    x, given = np.ones((rows, 256), "f4"), np.ones((rows, 3), "f4")
    before = held("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")
    kept = compiled.evaluate(params, {"input": x}, output_gradients=given)
    return kept, held("VmHWM") - before

# The first step compiles, which also takes memory. It keeps its gradients: the second's are new.
first, _ = step(8)
# The thread that compiled ends after two idle seconds, and reads code of MLIR that nothing did yet.
time.sleep(3)
second, growth = step(2048)
print(json.dumps([growth, compiled.memory(b=2048)]))
"""


@pytest.mark.parametrize("options", [{}, {"gradient_checkpointing": True}])
def test_reported_memory_matches_measured_memory(options, tmp_path):
    run = [sys.executable, "-c", MEASURE, json.dumps(options)]
    folder = str(__file__).rpartition("/")[0]
    # Guards around buffers take memory that `memory()` does not count.
    environment = {**os.environ, "MITHRIL_GUARD": "0"}
    done = subprocess.run(
        run, env=environment, capture_output=True, text=True, check=True, cwd=folder
    )
    growth, told = json.loads(done.stdout)
    taken = told["arguments"] + growth
    assert abs(taken - told["total"]) <= 0.02 * told["total"], (growth, told)
