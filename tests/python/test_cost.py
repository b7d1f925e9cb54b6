"""Costs before a run, and explanations of rewrites."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import CLASSES
from torch.utils.flop_counter import FlopCounterMode

import mithril as ml
from mithril.models import (
    MLP,
    Buffer,
    Embedding,
    Gelu,
    LayerNorm,
    Linear,
    Model,
    Relu,
    Sequential,
    Softmax,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "benches"))
from compose import TOKENS, gpt2


def test_cost_of_an_mlp_matches_the_formula():
    costs = MLP(activations=[Relu(), Relu()], dimensions=[128, 10]).cost({"input": [32, 784]})
    first, second = 784 * 128 + 128, 128 * 10 + 10
    assert costs.total.params == first + second
    products = 2 * 32 * (784 * 128 + 128 * 10)
    biases_and_relus = 2 * 32 * (128 + 10)
    assert costs.total.flops == products + biases_and_relus
    linear = costs.at("linear_0")
    assert linear.params == first
    # Input, weights and product; then product, bias and sum.
    assert linear.bytes == 4 * (32 * 784 + 784 * 128 + 32 * 128 + 2 * 32 * 128 + 128)
    assert costs.at("linear_7") is None
    assert next(block.path for block in costs.blocks) == ""


def test_costs_of_open_dims_are_formulas():
    total = Linear(10).cost({"input": ["n", 20]}).total
    assert total.flops == "410*n"
    # The product, and the sum with the bias.
    assert total.peak == "80*n"
    assert total.params == 210


def test_peak_of_unknown_dims_is_a_maximum_of_candidates():
    model = Model()
    model |= Linear(10, use_bias=False)(input="x", output="h")
    model |= ml.Sum(axis=0)(input="h", output="s")
    model |= Relu()(input="y", output="r")
    model |= Relu()(input="r", output="r2")
    costs = model.cost({"x": ["n", 20], "y": ["m"]})
    # Which of the two is larger depends on `n` and `m`.
    assert costs.total.peak == "max(8*m + 40, 40*n + 40)"
    assert "max(8*m + 40, 40*n + 40) B" in costs.table()
    known = model.cost({"x": [3, 20], "y": [100]}).total.peak
    assert known == max(8 * 100 + 40, 40 * 3 + 40)


@pytest.mark.parametrize("backend", CLASSES)
def test_a_compiled_model_knows_its_costs(backend):
    mlp = MLP(activations=[Relu(), Relu()], dimensions=[128, 10])
    shapes = {"input": ["n", 784]}
    compiled = ml.compile(mlp, backend(), shapes=shapes)
    for dims, shapes in [({}, {"input": ["n", 784]}), ({"n": 32}, {"input": [32, 784]})]:
        want = mlp.cost(shapes, inference=False)
        assert str(compiled.cost(**dims)) == str(want)
        assert compiled.cost(**dims).total.peak == want.total.peak
    assert str(compiled.cost({"input": [32, 784]})) == str(want)
    with pytest.raises(ml.MithrilError, match="there is no symbol `m`"):
        compiled.cost(m=3)
    with pytest.raises(ml.MithrilError, match="there is no argument `inputs`"):
        compiled.cost({"inputs": [3, 784]})
    with pytest.raises(ml.UsageError, match="the dim `n` must be a size"):
        compiled.cost(n=-1)


@pytest.mark.parametrize("backend", CLASSES)
def test_costs_of_what_is_compiled_without_shapes(backend):
    compiled = ml.compile(Linear(10), backend())
    assert compiled.cost().total.flops == Linear(10).cost().total.flops
    want = str(Linear(10).cost({"input": [4, 20]}, inference=False))
    assert str(compiled.cost({"input": [4, 20]})) == want
    x = np.ones((4, 20), np.float32)
    compiled.evaluate(compiled.randomize_params(), {"input": x})
    if not compiled.backend.writes:
        # Native code is compiled for the shapes of the first call, except that the batch may vary.
        assert compiled.cost().total.params == 210


def test_costs_of_open_ranks_are_formulas():
    total = Linear(10).cost().total
    assert total.flops == "20*input_1*size(*input) + 10*size(*input)"
    assert total.peak == "80*size(*input)"


def test_costs_take_dtypes_by_name():
    half, single = (Relu().cost({"input": [8]}, dtype=d).total for d in ("float16", ml.float32))
    assert (half.bytes, single.bytes) == (32, 64)
    with pytest.raises(ml.MithrilError, match="this is not a dtype"):
        Relu().cost({"input": [8]}, dtype="float15")


def test_an_embedding_computes_nothing():
    costs = Embedding(1000, 64).cost({"input": [2, 7]})
    assert costs.total.flops == 0
    assert costs.total.params == 64_000


def test_peak_counts_values_that_are_live_at_once():
    costs = Sequential([Relu(), Relu(), Relu()]).cost({"input": [250]})
    # A block's input and output; the caller owns the input of the model.
    assert costs.total.peak == 2 * 1000
    assert costs.at("relu_0").peak == 1000


def test_gpt2_costs_what_a_counting_run_counts():
    layers, tokens = 2, TOKENS
    costs = gpt2(layers).cost({"input": [1, tokens]})
    width, words = 768, 50257
    block = 12 * width * width + 13 * width
    assert costs.total.params == 2 * words * width + 1024 * width + layers * block + 2 * width
    assert costs.at("h_1").params == block
    compiled = ml.compile(
        gpt2(layers), ml.TorchBackend(), shapes={"input": [1, tokens]}, inference=True
    )
    params = compiled.randomize_params(seed=0)
    with FlopCounterMode(display=False) as counter:
        compiled.evaluate(params, {"input": torch.zeros((1, tokens), dtype=torch.int64)})
    # torch's counter counts only matrix products.
    assert counter.get_total_flops() <= costs.total.flops <= 1.02 * counter.get_total_flops()


def test_gpt2_small_is_known():
    costs = gpt2(12).cost({"input": [1, TOKENS]})
    # 124,439,808 when embedding and logits share a matrix (Radford et al. 2019).
    assert costs.total.params == 124_439_808 + 50257 * 768
    assert costs.at("h_0.attn").params == 4 * 768 * 768 + 4 * 768


def clumsy() -> Model:
    model = Model()
    model |= Linear(8, name="project")(input="x", output="h")
    powers = model.h.exp()
    model |= Buffer()(input=powers / powers.sum(axis=-1, keepdim=True), output="y")
    return model


@pytest.mark.parametrize("backend", CLASSES)
def test_explanations_name_rules_and_blocks(backend):
    compiled = ml.compile(clumsy(), backend(), shapes={"x": [4, 3]})
    explanation = compiled.explain()
    (softmax,) = [fired for fired in explanation.rules if fired.rule == "softmax"]
    assert softmax.math == "recognise"
    assert softmax.topic == "composites"
    assert "divide" in softmax.places
    assert explanation.before > 0
    assert "softmax" in str(explanation)
    assert "<td>softmax</td>" in explanation._repr_html_()


def test_simple_models_are_not_rewritten():
    model = Sequential([Linear(4), LayerNorm(), Gelu(), Softmax()])
    compiled = ml.compile(model, shapes={"input": [4, 3]})
    compiled.evaluate(compiled.randomize_params(seed=0), {"input": np.ones((4, 3), np.float32)})
    explanation = compiled.explain()
    assert not [fired for fired in explanation.rules if fired.math != "exact"]


@pytest.mark.parametrize("math", ["exact", "recognise"])
def test_math_option_limits_rewrites(math):
    model = Model()
    model |= Buffer()(input="x", output="h")
    model |= Buffer()(input=model.h.exp() / model.h.exp().sum(axis=-1, keepdim=True), output="y")
    code = ml.compile(model, ml.NumpyBackend(), shapes={"x": [4, 3]}, math=math).code
    assert ("np.max(" in code) == (math == "recognise")


def test_invalid_option_values_are_errors():
    with pytest.raises(ml.UsageError, match="`math` has an invalid value"):
        ml.compile(Relu(), math="wild")


def test_the_command_line_says_the_same(tmp_path):
    file = tmp_path / "model.json"
    clumsy().save(file)

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [Path(sys.executable).with_name("mithril"), *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    shape = ["--shape", "x=4,3"]
    cost = run("cost", str(file), *shape)
    assert cost == str(clumsy().cost({"x": [4, 3]}))
    cost = run("cost", str(file), "--shape", "x=n,3")
    assert cost == str(clumsy().cost({"x": ["n", 3]}))
    assert cost.splitlines()[-1].endswith("68*n B")
    explained = run("explain", str(file), *shape, "--target", "torch")
    backend = ml.TorchBackend()
    assert explained == f"{ml.compile(clumsy(), backend, shapes={'x': [4, 3]}).explain()}\n"
    assert "softmax" not in run("explain", str(file), *shape, "--math", "exact")


def test_compile_command_prints_timings(tmp_path):
    file, command = str(tmp_path / "model.json"), Path(sys.executable).with_name("mithril")
    Sequential([Linear(4), Relu()]).save(file)
    run = [str(command), "compile", file, "--shape", "input=n,3", "-o", "-", "--timing"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    stages = [line.split()[0] for line in done.stderr.splitlines()]
    assert stages[0] == "stage" and stages[-1] == "total"
    assert {"lower", "eqsat", "emit"} <= set(stages)
    assert "def forward" in done.stdout


def test_summary_command_works_without_shapes(tmp_path):
    file, command = str(tmp_path / "model.json"), Path(sys.executable).with_name("mithril")
    model = Sequential([Softmax(axis=1)])
    model.save(file)
    run = [str(command), "summary", file]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.rstrip() == str(model.summary()).rstrip()
    done = subprocess.run([*run, "--shape", "input=n"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "axis 1 is out of range" in done.stderr
