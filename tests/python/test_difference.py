"""`ml.diff`, `mithril diff`, `keep=`, and gradients that Mithril generates for frameworks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import CLASSES

import mithril as ml
from mithril.models import (
    MLP,
    BatchNorm1d,
    Cast,
    Divide,
    Embedding,
    Gelu,
    LayerNorm,
    Linear,
    Model,
    MultiHeadAttention,
    Relu,
    Residual,
    Sequential,
    Softmax,
    Tanh,
)

MITHRIL = Path(sys.executable).with_name("mithril")


def classifier() -> Model:
    model = Model(name="classifier")
    model |= Linear(8, name="first")(input="input", output="hidden")
    model |= MLP(activations=[Tanh(), Gelu()], dimensions=[16, 8], name="mlp")(
        input="hidden", output="inner"
    )
    model |= LayerNorm(name="norm")(input="inner", output="normed")
    model |= Linear(3, name="last")(input="normed", output="output")
    return model


def ratio() -> Model:
    """`x / x` inside a block. By `math="fast"` it is 1, otherwise NaN where x is 0."""
    inner = Model(name="inner")
    inner |= Divide(name="ratio")(numerator="input", denominator="input", output="output")
    model = Model()
    model |= Linear(4, use_bias=False, name="first")(input="input", output="hidden")
    model |= inner(input="hidden", output="one")
    model |= Softmax(name="last")(input="one", output="output")
    return model


class Wrong(ml.NumpyBackend):
    """A backend with one wrong function."""

    def runner(self, program, namespace, **options):
        def spoilt():
            own = namespace()

            class Library:
                def __getattr__(self, name):
                    if name == "tanh":
                        return lambda x: np.tanh(x) * np.float32(1.01)
                    return getattr(np, name)

            own["np"] = Library()
            return own

        return super().runner(program, spoilt, **options)


def test_all_backends_agree_block_by_block_and_in_gradients():
    found = ml.diff(classifier(), shapes={"input": ["batch", 4]}, gradients=True, bisect=True)
    assert found.agrees
    assert [f.backend for f in found.findings] == [
        "numpy",
        "torch",
        "jax",
        "mlx",
        "tinygrad",
        "cpu",
        "c",
    ]
    for finding in found.findings:
        assert {"first", "mlp", "norm", "last", "output"} <= set(finding.errors)
        assert "gradient of mlp.linear_0.w" in finding.outputs
        assert max(finding.errors.values()) < 1e-5
        assert finding.culprit is None
    assert "cpu: agrees" in str(found)


def test_a_model_of_tokens_agrees_with_double_precision():
    block = Residual(Sequential([LayerNorm(), MultiHeadAttention(2, is_causal=True)]))
    model = Model()
    model |= Embedding(11, 8, name="tokens")(input="input", output="x")
    model |= block(input="x", output="y")
    model |= Softmax(name="softmax")(input="y", output="output")
    found = ml.diff(model, ["torch", "cpu"], against="fp64", shapes={"input": ["b", "t"]})
    assert found.agrees and "float64" in str(found)
    assert 0 < found["cpu"].errors["output"] < 1e-5


def test_a_wrong_function_of_a_target_is_found_in_its_block():
    found = ml.diff(classifier(), [Wrong()], shapes={"input": [2, 4]}, bisect=True)
    finding = found["numpy"]
    assert not found.agrees and not finding.agrees
    assert finding.first == "mlp.tanh"
    assert finding.errors["first"] < 1e-6
    assert finding.errors["mlp"] > 1e-3
    assert finding.culprit.stage == "code"
    text = str(found)
    assert "differs, first in `mlp.tanh`; no pass changes the values" in text
    assert " !" in text


# tinygrad itself replaces `x / x` by 1.
@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "mlx", "cpu", "c"])
def test_a_rule_that_changes_numbers_is_named(backend):
    zeros = {"input": np.zeros((2, 4), "float32")}
    shapes = {"input": ["n", 4]}
    found = ml.diff(ratio(), backend, shapes=shapes, inputs=zeros, math="fast", bisect=True)
    finding = found[backend]
    assert finding.first == "inner.ratio"
    assert finding.culprit.stage == "eqsat"
    assert finding.culprit.rule == "div-same"
    assert finding.culprit.places == ("inner.ratio",)
    assert ml.diff(ratio(), backend, shapes=shapes, inputs=zeros).agrees


def test_diff_looks_inside_checkpointed_blocks():
    inner = Sequential([Linear(4), Tanh()], checkpoint=True, name="inner")
    found = ml.diff(Sequential([inner, Linear(3)]), [Wrong()], shapes={"input": [2, 4]})
    assert found["numpy"].first == "inner.tanh"


def test_next_states_are_compared():
    model = Sequential([Tanh(name="tanh"), BatchNorm1d(name="norm")])
    shapes = {"input": [8, 4]}
    found = ml.diff(model, [Wrong()], shapes=shapes, tolerance=1e-3)
    assert not found.agrees
    assert any(name.startswith("state ") for name in found["numpy"].outputs)
    assert ml.diff(model, ["torch", "cpu"], shapes=shapes, gradients=True).agrees


def test_a_block_may_have_the_name_of_an_output():
    model = Model()
    model |= Sequential([Tanh(), Linear(4)], name="output")(input="input", output="h")
    model |= Linear(3, name="last")(input="h", output="output")
    found = ml.diff(model, [Wrong()], shapes={"input": [2, 4]})
    assert found["numpy"].first == "output.tanh"


def test_bisecting_with_states_kept_values_and_gradients():
    model = Sequential([Linear(4), BatchNorm1d(), Tanh(), Linear(3)])
    options = {"shapes": {"input": [6, 5]}, "keep": ["tanh"], "gradients": True, "bisect": True}
    assert ml.diff(model, [Wrong()], **options)["numpy"].culprit.stage == "code"
    tokens = Sequential([Embedding(5, 4), Tanh(), Linear(2)])
    found = ml.diff(tokens, ["jax"], shapes={"input": [3, 5]}, bisect=True, tolerance=1e-12)
    assert found["jax"].culprit.stage == "code"


def test_outputs_of_other_floats_have_gradients_too():
    model = Sequential([Linear(3), Tanh(), Cast("float64")])
    found = ml.diff(model, [Wrong()], shapes={"input": [2, 4]}, gradients=True)
    assert found["numpy"].errors["gradient of linear.w"] > 1e-3


def test_invalid_arguments_of_diff_are_errors():
    model = classifier()
    with pytest.raises(ml.UsageError, match=r"did you mean .torch"):
        ml.diff(model, ["troch"], shapes={"input": [2, 4]})
    with pytest.raises(ml.UsageError, match="`backends` cannot be compared"):
        ml.diff(model, [], shapes={"input": [2, 4]})
    with pytest.raises(ml.MithrilError, match="shape"):
        ml.diff(model, ["numpy"])
    shapes = {"input": [2, 4]}
    with pytest.raises(ml.UsageError, match="`model` cannot be compared"):
        ml.diff(5)
    for tolerance in ("x", -1, float("nan")):
        with pytest.raises(ml.UsageError, match="`tolerance` must be a number of at least 0"):
            ml.diff(model, ["numpy"], shapes=shapes, tolerance=tolerance)
    for wrong in ({"shapes": 5}, {"shapes": {1: [2, 4]}}, {"shapes": shapes, "inputs": 5}):
        with pytest.raises(ml.UsageError, match="must be a dict of"):
            ml.diff(model, ["numpy"], **wrong)


def test_diff_passes_memory_budget_only_to_native_code():
    found = ml.diff(classifier(), ["numpy", "cpu"], shapes={"input": [2, 4]}, memory_budget="1MB")
    assert all(finding.agrees for finding in found.findings)


def test_diff_command_reports_by_exit_status(tmp_path):
    file = str(tmp_path / "ratio.json")
    ratio().save(file)
    arrays = tmp_path / "zeros.npz"
    np.savez(arrays, input=np.zeros((2, 4)))
    common = [str(MITHRIL), "diff", file, "--shape", "input=n,4", "--backends", "torch,cpu"]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*common, *more], capture_output=True, text=True, check=False)

    same = run("--gradients", "--tolerance", "1e-3")
    assert (same.returncode, same.stderr) == (0, "")
    assert "cpu: agrees" in same.stdout
    other = run("--math", "fast", "--inputs", str(arrays), "--bisect")
    assert other.returncode == 1
    rule = "the rule `div-same` of the pass `eqsat`, in `inner.ratio`"
    assert f"cpu: differs, first in `inner.ratio`; {rule}" in other.stdout
    (tmp_path / "bad.npz").write_bytes(b"no arrays")
    bad = run("--inputs", str(tmp_path / "bad.npz"))
    assert bad.returncode == 2 and "an .npz file of arrays" in bad.stderr
    wrong = run("--backends", "nump")
    assert wrong.returncode == 2
    assert "there is no backend `nump`" in wrong.stderr


@pytest.mark.parametrize(
    "backend",
    CLASSES,
)
def test_kept_blocks_are_outputs_at_any_depth(backend):
    model, shapes = classifier(), {"input": [2, 4]}
    keep = ["mlp.linear_0", "mlp.tanh", "hidden"]
    compiled = ml.compile(model, backend("float64"), shapes=shapes, keep=keep)
    assert set(compiled.outputs) == {"output", *keep}
    params = compiled.randomize_params(seed=3)
    x = np.random.default_rng(0).standard_normal((2, 4))
    outputs = compiled.evaluate(params, {"input": compiled.backend.array(x)})
    own = {name: compiled.backend.to_numpy(value) for name, value in outputs.items()}
    p = {name: compiled.backend.to_numpy(value) for name, value in params.items()}
    hidden = x @ p["first.w"] + p["first.b"]
    inner = hidden @ p["mlp.linear_0.w"] + p["mlp.linear_0.b"]
    np.testing.assert_allclose(own["hidden"], hidden, rtol=1e-12)
    np.testing.assert_allclose(own["mlp.linear_0"], inner, rtol=1e-12)
    np.testing.assert_allclose(own["mlp.tanh"], np.tanh(inner), rtol=1e-12)


def test_hooks_reach_blocks_and_leave_outputs_alone():
    compiled = ml.compile(classifier(), ml.NumpyBackend(), shapes={"input": [2, 4]})
    seen = []
    compiled.register_hook("mlp.tanh", lambda value: seen.append(value.shape))
    outputs = compiled.evaluate(compiled.randomize_params(0), {"input": np.ones((2, 4), "f4")})
    assert seen == [(2, 16)]
    assert list(outputs) == ["output"] == list(compiled.outputs)
    with pytest.raises(ml.TerminalError, match=r"did you mean .mlp"):
        compiled.register_hook("mlp.tahn", print)
    with pytest.raises(ml.MithrilError, match="`input` is an input"):
        compiled.register_hook("input", print)


def test_hooks_on_blocks_with_states():
    model = Sequential([Linear(4), BatchNorm1d(), Tanh()])
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"input": [6, 5]})
    params, x = compiled.randomize_params(0), {"input": np.ones((6, 5), "f4")}
    compiled.evaluate(params, x)
    before = {name: value.copy() for name, value in compiled.state.items()}
    seen = []
    compiled.register_hook("batch_norm1d", lambda value: seen.append(value.shape))
    for name, value in before.items():
        np.testing.assert_array_equal(compiled.state[name], value)
    compiled.evaluate(params, x)
    assert seen == [(6, 4)] and compiled.outputs == ("output",)


@pytest.mark.parametrize(
    "backend", [ml.TorchBackend, ml.JaxBackend, ml.MlxBackend, ml.TinygradBackend]
)
@pytest.mark.parametrize("jit", [False, None])
def test_gradients_in_the_source_are_those_of_the_framework(backend, jit):
    model = Model()
    model |= Sequential(
        [Linear(8), Relu(), MultiHeadAttention(2, is_causal=True), LayerNorm(), Gelu(), Linear(3)]
    )(input="input", output="output")
    x = np.random.default_rng(1).standard_normal((2, 5, 4))
    results = []
    for autodiff in ("framework", "mithril"):
        compiled = ml.compile(
            model, backend("float64"), shapes={"input": ["b", "t", 4]}, autodiff=autodiff, jit=jit
        )
        assert ("outputs_and_gradients" in compiled.code) == (autodiff == "mithril")
        params = compiled.randomize_params(seed=5)
        array = compiled.backend.array
        given = [
            {"output": array(np.cos(np.arange(30.0)).reshape(2, 5, 3))},
            lambda outputs: {"output": outputs["output"] * 2},
        ]
        for output_gradients in given:
            outputs, gradients = compiled.evaluate(
                params, {"input": array(x)}, output_gradients=output_gradients
            )
            results.append({**outputs, **{f"d {n}": g for n, g in gradients.items()}})
            assert not isinstance(outputs["output"], torch.Tensor) or not any(
                g.requires_grad for g in gradients.values()
            )
    for framework, own in zip(results[:2], results[2:]):
        assert framework.keys() == own.keys()
        # The gradient of the bias of keys is 0 except for rounding.
        scale = max(float(abs(np.asarray(value)).max()) for value in framework.values())
        for name, value in framework.items():
            np.testing.assert_allclose(np.asarray(own[name]), np.asarray(value), atol=1e-12 * scale)


def test_gradient_comparison_uses_random_cotangents():
    """A softmax has a constant sum, so for ones its gradient is 0 except for rounding."""
    model = Model()
    model |= Linear(8, name="project")(input="x", output="h")
    model |= Softmax()(input="h", output="y")
    options = {"shapes": {"x": [4, 3]}, "gradients": True, "against": "float64"}
    found = ml.diff(model, ["numpy", "torch"], **options)
    assert found.agrees, found
    assert ml.diff(model, ["torch"], dtype="bfloat16", **options).agrees


def test_keep_preserves_repeated_blocks():
    def layer(name: str) -> Model:
        block = Model(name=name)
        block |= Linear(6, name="up")(input="input", output="h")
        block |= Tanh(name="bend")(input="h", output="bent")
        block |= Linear(4, name="down")(input="bent", output="output")
        return block

    model = Model()
    for i in range(12):
        model |= layer(f"h_{i}")(input=f"x_{i}", output=f"x_{i + 1}")
    options = {"shapes": {"x_0": [3, 4]}}
    plain = ml.compile(model, ml.NumpyBackend(), **options)
    paths = ["h_7", "h_2.bend", "h_9.up"]
    compiled = ml.compile(model, ml.NumpyBackend(), keep=paths, **options)
    assert len(compiled.code) < 1.5 * len(plain.code)
    params = plain.randomize_params(seed=0)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("f4")
    outputs, gradients = compiled.evaluate(
        params, {"x_0": x}, output_gradients={"x_12": np.ones((3, 4), "f4")}
    )
    values = {}
    for i in range(12):
        own = {name: params[f"h_{i}.{name}"] for name in ("up.w", "up.b", "down.w", "down.b")}
        values[f"h_{i}.up"] = x @ own["up.w"] + own["up.b"]
        values[f"h_{i}.bend"] = np.tanh(values[f"h_{i}.up"])
        x = values[f"h_{i}"] = values[f"h_{i}.bend"] @ own["down.w"] + own["down.b"]
    for path in paths:
        np.testing.assert_allclose(outputs[path], values[path], rtol=1e-4, atol=1e-6)
    _, expected = plain.evaluate(
        params,
        {"x_0": np.random.default_rng(0).standard_normal((3, 4)).astype("f4")},
        output_gradients=np.ones((3, 4), "f4"),
    )
    for name, gradient in expected.items():
        np.testing.assert_allclose(gradients[name], gradient, rtol=1e-4, atol=1e-6)
