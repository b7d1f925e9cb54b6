"""Saved models with bodies of custom operations: nothing of a file runs unless it is trusted."""

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import INSTALLED, MAKERS
from custom_operations import GRADIENT, SWISH, C, bodies, swish

import mithril as ml
from mithril.models import Linear, Model

BACKENDS = {kind: getattr(ml, MAKERS[kind]) for kind in INSTALLED}


def malicious(target, path):
    """A body that writes a file as a side effect."""
    if target in ("c", "cpu"):
        return f"""
            int open(const char *, int, ...);
            open("{path}", 0101, 0600);
            for (int64_t i = 0; i < x_size; ++i) output[i] = x[i];
        """
    return f"open({str(path)!r}, 'w').close()\nreturn x"


def saved(block, folder):
    """The file of a model that contains the block."""
    model = Model()
    model |= Linear(3, name="first")(input="x", output="h")
    model |= block(x="h", output="y")
    path = folder / "model.json"
    model.save(path)
    return path


def evaluated(model, backend):
    compiled = ml.compile(model, backend, shapes={"x": [2, 4]}, inference=True)
    params = compiled.randomize_params(seed=0)
    x = compiled.backend.array(np.ones((2, 4), "f4"))
    return compiled.evaluate(params, {"x": x})["y"]


@pytest.mark.parametrize("target", BACKENDS)
def test_a_body_runs_only_if_it_is_trusted(target, tmp_path):
    trace = tmp_path / "trace"
    block = ml.custom(name="own", shape="(x: [*b]) -> [*b]", **{target: malicious(target, trace)})
    path = saved(block, tmp_path)
    text = path.read_text()
    for load, given in (
        (ml.Model.load, path),
        (ml.Block.load, path),
        (ml.Model.from_json, text),
        (ml.Block.from_json, text),
    ):
        with pytest.raises(ml.MithrilError, match="contains code, which is not trusted") as error:
            evaluated(load(given), BACKENDS[target]())
        message = str(error.value)
        assert f"got: bodies of `own` for {target}\n" in message
        assert "hint: read the bodies in the file; `trust_code=True`" in message
        assert (str(path) in message) == (given is path)
        assert error.value.code == "E0601"
    assert not trace.exists()
    # Loading runs nothing even from a file that is trusted.
    model = ml.Model.load(path, trust_code=True)
    assert not trace.exists()
    evaluated(model, BACKENDS[target]())
    assert trace.exists()


TEXT = """mithril 1
func @outer(%x: tensor<*b x float>) -> (output: tensor<*b x float>) {
  %0 = call(%x) {callee = @inner}
  return %0
}
extern func @inner(%x: tensor<*b x float>) -> (y: tensor<*b x float>) {
  body numpy "open('trace', 'w').close()" "return {x}"
  body c "system(\\"touch trace\\");"
}
"""


def test_bodies_in_texts_and_gradients_are_code(tmp_path):
    path = saved(ml.load_function(TEXT), tmp_path)
    with pytest.raises(ml.MithrilError, match="bodies of `inner` for numpy, c\n"):
        ml.Model.load(path)
    gradient = {"numpy": "return output_gradient"}
    block = ml.custom(name="own", mir=SWISH.replace("(y:", "(output:"), gradient=gradient)
    path = saved(block, tmp_path)
    with pytest.raises(ml.MithrilError, match="bodies of `swish_gradient` for numpy\n"):
        ml.Model.load(path)


def test_a_body_that_a_file_hides_is_found(tmp_path):
    """A file need not be one that `save` wrote."""
    path = saved(ml.load_function(SWISH.replace("(y:", "(output:")), tmp_path)
    ml.Model.load(path)  # operations alone are no code
    whole = json.loads(path.read_text())
    function = next(block for block in whole["blocks"] if block.get("function"))
    function["bodies"] = {"numpy": "return x", "torch": "return x"}
    path.write_text(json.dumps(whole))
    with pytest.raises(ml.MithrilError, match="bodies of `swish` for numpy, torch\n"):
        ml.Model.load(path)
    function["bodies"] = {}
    function["text"] = function["text"].replace("{\n", '{\n  body numpy "return {x}"\n', 1)
    path.write_text(json.dumps(whole))
    with pytest.raises(ml.MithrilError, match="bodies of `swish` for numpy\n"):
        ml.Model.load(path)


EVIL = '*/"""\nopen("trace", "w")\nint trace;\n"""/*'


@pytest.mark.parametrize("target", BACKENDS)
def test_names_in_a_file_do_not_become_code(target, tmp_path, monkeypatch):
    """Kinds of models have no rules for names, and are written into source."""
    monkeypatch.chdir(tmp_path)
    backend = BACKENDS[target]()
    inner = Model()
    inner |= Linear(3, name="first")(input="x", output="y")
    model = Model()
    model |= inner(x="x", y="y")
    whole = json.loads(model.to_json())
    models = [block for block in whole["blocks"] if "model" in block]
    assert len(models) == 2
    for block in models:
        block["model"] = EVIL
    loaded = ml.Model.from_json(json.dumps(whole))
    compiled = ml.compile(loaded, backend, shapes={"x": [2, 4]}, inference=True)
    params = compiled.randomize_params(seed=0)
    compiled.evaluate(params, {"x": backend.array(np.ones((2, 4), "f4"))})
    assert not (tmp_path / "trace").exists()


def test_names_of_dims_in_a_file_are_checked():
    model = Model()
    model |= Linear(3)(input="x", output="y")
    model.set_shapes(x=["some_dim", 4])
    text = model.to_json().replace('"some_dim"', json.dumps(EVIL))
    with pytest.raises(ml.MithrilError, match="this is not a name of a dim"):
        ml.compile(ml.Model.from_json(text), ml.NumpyBackend(), inference=True)


def test_all_operations_are_told(tmp_path):
    model = Model()
    for i in range(10):
        model += ml.custom(
            name=f"own_{i}", shape="(x: [*b]) -> [*b]", numpy="return x", torch="return x"
        )
    path = tmp_path / "model.json"
    model.save(path)
    with pytest.raises(ml.MithrilError) as error:
        ml.Model.load(path)
    assert "`own_0` for numpy, torch; `own_1` for numpy, torch;" in str(error.value)
    assert "`own_7` for numpy, torch; and 2 more" in str(error.value)


@pytest.mark.parametrize("target", BACKENDS)
def test_trusted_operations_are_those_that_were_saved(target, tmp_path):
    own = C if target in ("c", "cpu") else {**bodies(), "gradient": GRADIENT}
    path = saved(ml.custom(name="swish", shape="(x: [*b]) -> [*b]", **own), tmp_path)
    loaded = ml.Model.load(path, trust_code=True)
    assert loaded.to_json() == path.read_text()
    backend = BACKENDS[target]()
    compiled = ml.compile(loaded, backend, shapes={"x": [2, 4]})
    params = compiled.randomize_params(seed=0)
    own = {name: backend.to_numpy(value) for name, value in params.items()}
    x, ones = np.ones((2, 4), "f4"), backend.array(np.ones((2, 3), "f4"))
    inputs = {"x": backend.array(x)}
    outputs, gradients = compiled.evaluate(params, inputs, output_gradients={"y": ones})
    hidden = x @ own["first.w"] + own["first.b"]
    np.testing.assert_allclose(backend.to_numpy(outputs["y"]), swish(hidden), rtol=1e-5)
    s = 1 / (1 + np.exp(-hidden))
    expected = (s * (1 + hidden * (1 - s))).sum(0)
    np.testing.assert_allclose(backend.to_numpy(gradients["first.b"]), expected, rtol=1e-4)


def test_copies_and_pickles_keep_bodies():
    model = Model()
    model += ml.custom(name="own", shape="(x: [*b]) -> [*b]", numpy="return x")
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.copy()):
        assert again.to_json() == model.to_json()


def test_the_command_line_asks_for_trust(tmp_path):
    block = ml.custom(name="own", shape="(x: [*b]) -> [*b]", numpy="return x")
    path = saved(block, tmp_path)
    mithril = str(Path(sys.executable).parent / "mithril")

    def ran(*arguments):
        command = [mithril, *arguments, str(path), "--shape", "x=2,4"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    for arguments in (
        ["summary"],
        ["compile", "--inference", "--output", "-", "--target", "numpy"],
        ["diff", "--inference", "--backends", "numpy"],
    ):
        refused = ran(*arguments)
        assert refused.returncode != 0
        assert "contains code, which is not trusted" in refused.stderr
        assert ran(*arguments, "--trust-code").returncode == 0, ran(
            *arguments, "--trust-code"
        ).stderr


def test_trust_is_a_bool():
    with pytest.raises(ml.UsageError, match="True or False"):
        ml.Model.load("model.json", trust_code="yes")
