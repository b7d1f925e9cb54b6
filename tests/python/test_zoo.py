"""The architectures of `mithril.zoo` compute what public implementations compute with the same
weights."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from conftest import INSTALLED, MAKERS
from zoo_cases import IMAGES, Case, randomized
from zoo_texts import TEXTS

import mithril as ml
from mithril import zoo

CASES = IMAGES | TEXTS
# Native code of large networks is compiled once. JAX compiles a few architectures, and tinygrad,
# which takes seconds for some layers, small ones.
WITHOUT_CPU = ["MobileNetV2", "ResNet-34", "ResNet-50"]
JAX = ["LeNet", "LSTM", "GPT-2", "T5"]
TINYGRAD = ["LeNet", "LSTM-forward", "GPT-2", "T5"]
# Layers with running statistics, recurrent layers, attention, and biases of relative positions.
# The norms of transformers' T5 compute in float32.
PRECISIONS = {"ResNet-18": 64, "LeNet": 64, "GPT-2": 64, "LSTM": 64, "T5": 32}


def theirs_of(case: Case, model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    with torch.no_grad():
        outputs = case.call(model, {n: torch.from_numpy(v) for n, v in inputs.items()})
    return {name: value.numpy() for name, value in outputs.items()}


def check(name: str, kinds: list[str]) -> None:
    """Compares outputs on these backends, for inputs of several sizes."""
    case = CASES[name]
    model, public = case.ours(), randomized(case.theirs())
    params, states = zoo.load(model, public.state_dict())
    want = [theirs_of(case, public, inputs) for inputs in case.inputs]
    for kind in kinds:
        if kind not in INSTALLED:
            continue
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


def kinds_of(name: str) -> list[str]:
    return [
        *["numpy", "torch", "mlx"],
        *["cpu"] * (name not in WITHOUT_CPU),
        *["jax"] * (name in JAX),
    ]


@pytest.mark.parametrize("name", IMAGES)
def test_images(name):
    check(name, kinds_of(name))


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name):
    check(name, kinds_of(name))


@pytest.mark.parametrize("name", TINYGRAD)
def test_tinygrad(name):
    check(name, ["tinygrad"])


def llama() -> tuple[Any, dict[str, Any]]:
    """A small model, and the weights of its public implementation."""
    case = CASES["Llama"]
    return case.ours(), dict(randomized(case.theirs()).state_dict())


@pytest.mark.parametrize("name", PRECISIONS)
def test_gradients(name):
    check_gradients(name, ["numpy", "torch", "jax", "mlx"])


@pytest.mark.parametrize("name", ["LeNet", "GPT-2"])
def test_gradients_of_tinygrad(name):
    check_gradients(name, ["tinygrad"])


def check_gradients(name: str, kinds: list[str]) -> None:
    """Gradients of all params. They are loaded by the same rules as the params. Batch norms train:
    their next statistics are also compared."""
    case, precision = CASES[name], PRECISIONS[name]
    dtype, most = (np.float64, 1e-7) if precision == 64 else (np.float32, 1e-4)
    model, public = case.ours(), randomized(case.theirs())
    public = public.double() if precision == 64 else public
    params, states = zoo.load(model, public.state_dict())
    if states:
        public.train()
    inputs = {n: v if v.dtype.kind == "i" else v.astype(dtype) for n, v in case.inputs[0].items()}
    result = case.call(public, {n: torch.from_numpy(v) for n, v in inputs.items()})["output"]
    seed = np.random.default_rng(1).standard_normal(result.shape).astype(dtype)
    result.backward(torch.from_numpy(seed))
    own = dict(public.named_parameters(remove_duplicate=False))
    want = {n: own[n].grad if n in own else v for n, v in public.state_dict().items()}
    # PyTorch gives both biases of a recurrent layer the gradient of their sum.
    want = {n: 0.5 * v if ".bias_ih_" in n or ".bias_hh_" in n else v for n, v in want.items()}
    want, next_states = zoo.load(model, want)
    for kind in kinds:
        if kind not in INSTALLED:
            continue
        backend = getattr(ml, MAKERS[kind])(precision=precision)
        compiled = ml.compile(model, backend)
        compiled.state = states
        seeds = {"output": backend.from_numpy(seed)}
        _, got = compiled.evaluate(params, inputs, output_gradients=seeds)
        assert set(got) == set(want)
        for names, values in ((got, want), (compiled.state, next_states)):
            for param, value in values.items():
                message = f"{backend.kind}: {param}"
                own = backend.to_numpy(names[param])
                np.testing.assert_allclose(own, value, rtol=most, atol=most, err_msg=message)


def test_arrays_of_numpy_and_float16():
    model, weights = llama()
    params, states = zoo.load(model, weights)
    again, _ = zoo.load(model, {name: value.numpy() for name, value in weights.items()})
    assert states == {}
    for name, value in params.items():
        np.testing.assert_array_equal(value, again[name])
    for dtype in (torch.float16, torch.bfloat16):
        halves = {name: value.to(dtype) for name, value in weights.items()}
        loaded, _ = zoo.load(model, halves)
        assert {str(value.dtype) for value in loaded.values()} == {str(dtype).split(".")[1]}
        head = halves["lm_head.weight"].float().numpy().T
        np.testing.assert_array_equal(loaded["head.w"].astype(np.float32), head)


def test_params_do_not_share_memory_with_the_weights():
    model, weights = llama()
    params, _ = zoo.load(model, weights)
    before = params["norm.w"].copy()
    weights["model.norm.weight"].add_(1)
    np.testing.assert_array_equal(params["norm.w"], before)


def test_names_without_the_prefix():
    model, weights = llama()
    bare = {name.removeprefix("model."): value for name, value in weights.items()}
    params, _ = zoo.load(model, weights)
    for name, value in zoo.load(model, bare).params.items():
        np.testing.assert_array_equal(value, params[name])


OLDER_NAMES = {
    "ViT": {
        ".attention.q_proj.": ".attention.attention.query.",
        ".attention.k_proj.": ".attention.attention.key.",
        ".attention.v_proj.": ".attention.attention.value.",
        ".attention.o_proj.": ".attention.output.dense.",
        ".mlp.fc1.": ".intermediate.dense.",
        ".mlp.fc2.": ".output.dense.",
        "vit.layers.": "vit.encoder.layer.",
    },
    "BERT": {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"},
}


@pytest.mark.parametrize("name", OLDER_NAMES)
def test_names_in_older_files(name):
    case = CASES[name]
    weights = randomized(case.theirs()).state_dict()
    older = {}
    for weight, value in weights.items():
        for new, old in OLDER_NAMES[name].items():
            weight = weight.replace(new, old)  # noqa: PLW2901
        older[weight] = value
    assert older.keys() != weights.keys()
    params, _ = zoo.load(case.ours(), weights)
    for param, value in zoo.load(case.ours(), older).params.items():
        np.testing.assert_array_equal(value, params[param])


def refused(model: Any, weights: dict[str, Any]) -> list[str]:
    """The lines of the error for these weights."""
    with pytest.raises(ml.UsageError) as caught:
        zoo.load(model, weights)
    return [line.strip() for line in str(caught.value).splitlines()]


def test_missing_and_left_over_weights():
    model, weights = llama()
    weights["model.norm.gain"] = weights.pop("model.norm.weight")
    del weights["lm_head.weight"]
    assert refused(model, weights) == [
        "the weights do not fit this Llama",
        "missing: `model.norm.weight`",
        "missing: `lm_head.weight`",
        "left over: `model.norm.gain`",
        "more: mithril error E0402",
    ]


def test_weights_of_wrong_shapes():
    model, weights = llama()
    weights["lm_head.weight"] = torch.zeros(31, 32)
    weights["model.norm.weight"] = torch.zeros(())
    lines = refused(model, weights)
    assert "wrong: `lm_head.weight` as `head.w`: got (32, 31), expected (32, 37)" in lines
    assert "wrong: `model.norm.weight` as `norm.w`: got (), expected (32,)" in lines
    assert len(lines) == 4


def test_joint_weights_of_wrong_shapes():
    case = CASES["Transformer"]
    model, weights = case.ours(), dict(case.theirs().state_dict())
    name = "transformer.encoder.layers.0.self_attn.in_proj_bias"
    weights[name] = torch.zeros(95)
    lines = refused(model, weights)
    param = "transformer.encoder.layer_0.attention.b_query"
    problem = "the last axis cannot be divided: (95,), expected (32,)"
    assert f"wrong: `{name}` as `{param}`: got {problem}" in lines


def test_tied_weights_may_be_left_out_but_not_differ():
    case = CASES["GPT-2"]
    model, weights = case.ours(), dict(case.theirs().state_dict())
    params, _ = zoo.load(model, weights)
    for name in ("lm_head.weight", "transformer.wte.weight"):
        rest = {n: v for n, v in weights.items() if n != name}
        np.testing.assert_array_equal(zoo.load(model, rest).params["wte"], params["wte"])
    weights["lm_head.weight"] = weights["lm_head.weight"] + 1
    lines = refused(model, weights)
    assert lines[1] == "wrong: `lm_head.weight` is tied to `transformer.wte.weight`, but differs"


def test_other_models_and_values():
    with pytest.raises(ml.UsageError, match="needs an architecture of"):
        zoo.load(ml.Linear(3), {})
    with pytest.raises(ml.UsageError, match="must be a dict of arrays by name"):
        zoo.load(CASES["MLP"].ours(), [])
    with pytest.raises(ml.UsageError, match="`depth` must be 18, 34 or 50"):
        zoo.ResNet(19)


def test_a_counter_is_ignored():
    case = CASES["ResNet-18"]
    weights = dict(case.theirs().state_dict())
    kept = {n: v for n, v in weights.items() if not n.endswith("num_batches_tracked")}
    assert len(kept) < len(weights)
    assert zoo.load(case.ours(), weights).params.keys() == zoo.load(case.ours(), kept).params.keys()


def test_the_package_is_imported_on_first_use():
    code = "import sys, mithril; assert 'mithril.zoo' not in sys.modules; mithril.zoo.GPT2"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["CLIP", "Llama", "LSTM"])
def test_training_from_new_params(name):
    """A small step against the gradient of drawn params reduces the loss."""
    case = CASES[name]
    output = "scores" if name == "CLIP" else "output"
    training = ml.TrainModel(case.ours())
    training.add_loss(ml.SquaredError(), input=output, target="target")
    inputs = dict(case.inputs[0])
    with torch.no_grad():
        shape = theirs_of(case, randomized(case.theirs()), inputs)[output].shape
    shapes = {name: value.shape for name, value in inputs.items()} | {"target": shape}
    compiled = ml.compile(training, ml.NumpyBackend(), shapes=shapes)
    params = compiled.randomize_params(seed=0)
    inputs["target"] = np.zeros(shape, np.float32)
    keys = {k: np.uint32([1, 2]) for k in compiled.inputs if k not in inputs}
    outputs, gradients = compiled.evaluate(params, inputs | keys, output_gradients=True)
    length = np.sqrt(sum((value**2).sum() for value in gradients.values()))
    moved = {n: v - np.float32(1e-3 / length) * gradients[n] for n, v in params.items()}
    again = compiled.evaluate(moved, inputs | keys)
    assert again["final_cost"] < outputs["final_cost"]
