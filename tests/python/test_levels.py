"""The processor to compile native code for: `cpu=`, and the environment variable MITHRIL_CPU."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import INSTALLED
from exported import export

import mithril as ml
from mithril import _core

pytestmark = pytest.mark.skipif("cpu" not in INSTALLED, reason="LLVM is not there")

LEVELS = _core.processors()
X = np.linspace(-3, 3, 5 * 33, dtype=np.float32).reshape(5, 33)


def softmax(backend):
    model = ml.Model()
    model |= ml.Linear(8)(input="x", w="w", b="b", output="h")
    model |= ml.Softmax()(input="h", output="y")
    compiled = ml.compile(model, backend, shapes={"x": ["n", 33]})
    params = {"w": np.full((33, 8), 0.25, "float32"), "b": np.arange(8, dtype="float32")}
    return compiled, compiled.evaluate(params, {"x": X})["y"]


@pytest.mark.parametrize("tier", ["llvm", "instant"])
@pytest.mark.parametrize("level", LEVELS)
def test_levels_agree(level, tier):
    backend = ml.CpuBackend(cpu=level, tier=tier)
    assert backend.cpu == level
    assert repr(backend) == f"CpuBackend(dtype=float32, cpu='{level}')"
    _, y = softmax(backend)
    np.testing.assert_allclose(y, softmax(ml.NumpyBackend())[1], rtol=1e-5, atol=1e-7)


def few_features(backend, features):
    """A linear layer with few features, an open batch and integer values, so results are exact."""
    model = ml.Model()
    model |= ml.Linear(9)(input="x", w="w", b="b", output="y")
    compiled = ml.compile(model, backend, shapes={"x": ["batch", features]})
    whole = np.random.default_rng(0).integers
    params = {"w": whole(-3, 4, (features, 9)), "b": whole(-3, 4, 9)}
    params = {name: value.astype("float32") for name, value in params.items()}
    data = {"x": whole(-3, 4, (33, features)).astype("float32")}
    seeds = {"y": whole(-3, 4, (33, 9)).astype("float32")}
    return compiled, params, data, seeds


@pytest.mark.parametrize("features", [5, 7, 8, 13])
@pytest.mark.parametrize("level", LEVELS)
def test_weights_of_few_features(level, features):
    compiled, params, data, seeds = few_features(ml.CpuBackend(cpu=level), features)
    _, gradients = compiled.evaluate(params, data, output_gradients=seeds)
    np.testing.assert_array_equal(gradients["w"], data["x"].T @ seeds["y"])
    np.testing.assert_array_equal(gradients["b"], seeds["y"].sum(0))


@pytest.mark.parametrize("features", [7, 8])
def test_libraries_for_few_features(tmp_path, features):
    for level in ("v2", "v3"):
        compiled, params, data, seeds = few_features(ml.CpuBackend(), features)
        library = export(compiled, tmp_path / level, name="few", params=params, cpu=level)
        dims = {"batch": 33}
        status, results = library.call("_gradients", dims=dims, data=data, cotangent=seeds)
        assert status == 0
        np.testing.assert_array_equal(results["gradient", "w"], data["x"].T @ seeds["y"])


def test_each_level_has_its_own_code():
    model = ml.Model()
    model += ml.Exponential()(input="x", output="y")

    def listing(level):
        compiled = ml.compile(model, ml.CpuBackend(cpu=level), shapes={"x": [64]}, cache=True)
        return compiled.evaluate({}, {"x": X[0, :1].repeat(64)})["y"], compiled

    known = [listing(level) for level in LEVELS]
    again = [listing(level) for level in LEVELS]
    for (y, one), (same, other) in zip(known, again, strict=True):
        np.testing.assert_array_equal(y, same)
        assert one._program is not None
        assert other._program is not None


def test_short_names(monkeypatch):
    monkeypatch.delenv("MITHRIL_CPU", raising=False)
    assert ml.CpuBackend(cpu="v2").cpu == "x86-64-v2"
    assert ml.CpuBackend(cpu="native").cpu == ml.CpuBackend().cpu == "native"
    assert repr(ml.CpuBackend()) == "CpuBackend(dtype=float32)"


def test_environment_variable_selects_the_level(monkeypatch):
    monkeypatch.setenv("MITHRIL_CPU", "v2")
    assert ml.CpuBackend().cpu == "x86-64-v2"
    assert ml.CpuBackend(cpu="native").cpu == "native"
    monkeypatch.setenv("MITHRIL_CPU", "")
    assert ml.CpuBackend().cpu == "native"
    monkeypatch.setenv("MITHRIL_CPU", "v7")
    with pytest.raises(ml.UsageError, match=r"got: MITHRIL_CPU=v7\n  expected: native, x86-64"):
        ml.CpuBackend()


def test_no_such_level():
    with pytest.raises(ml.UsageError, match="there is no such processor\n  got: x86-64-v5"):
        ml.CpuBackend(cpu="x86-64-v5")
    with pytest.raises(ml.UsageError, match="no such feature of processors"):
        ml.CpuBackend(cpu="v3+avx9")
    with pytest.raises(ml.UsageError, match="got: 3"):
        ml.CpuBackend(cpu=3)


# No processor has both features.
ABSENT = "v4+amx-fp16+avxneconvert"


def test_levels_that_the_machine_lacks_are_errors(monkeypatch):
    what = r"cannot run on this machine, which lacks .*amx-fp16.*\n  got: {}\n  expected: what"
    with pytest.raises(ml.BackendError, match=what.format(re.escape(ABSENT))):
        ml.CpuBackend(cpu=ABSENT)
    monkeypatch.setenv("MITHRIL_CPU", ABSENT)
    with pytest.raises(ml.BackendError, match=what.format(re.escape(f"MITHRIL_CPU={ABSENT}"))):
        ml.CpuBackend()


def test_c_is_compiled_for_the_level(tmp_path, monkeypatch):
    seen = tmp_path / "seen"
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {seen}\nexec cc "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("MITHRIL_CACHE", str(tmp_path / "cache"))
    for cpu, flag in [("v2", "-march=x86-64-v2 "), ("", "-march=native ")]:
        monkeypatch.setenv("MITHRIL_CPU", cpu)
        softmax(ml.CBackend())
        assert flag in seen.read_text()
    monkeypatch.setenv("MITHRIL_CPU", ABSENT)
    with pytest.raises(ml.BackendError, match="lacks"):
        softmax(ml.CBackend())


def test_libraries_are_for_the_level(tmp_path):
    compiled, _ = softmax(ml.CpuBackend(cpu="v2"))
    paths = compiled.export(tmp_path, name="level")
    assert '"x86-64-v2"' in paths["metadata"].read_text()


def test_commands_take_the_level(checkout, tmp_path):
    said = subprocess.check_output([checkout / ".venv/bin/mithril", "--version"], text=True)
    assert f"\nlevels: {', '.join(LEVELS)}" in said
    environment = {**os.environ, "MITHRIL_CPU": "v2"}
    text = "mithril 1\n\nfunc @f(%x: tensor<n x f32>) -> (y: tensor<n x f32>) {\n"
    text += "  %y = exp(%x)\n  return %y\n}\n"
    (tmp_path / "f.mir").write_text(text)
    command = [checkout / ".venv/bin/mithril-opt", tmp_path / "f.mir", "--emit=mlir"]
    narrow = subprocess.check_output(command, text=True, env=environment)
    assert "vector<4xf32>" in narrow
    environment["MITHRIL_CPU"] = ABSENT
    refused = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert "which lacks" in refused.stderr
    script = "import mithril as ml; print(ml.CpuBackend())"
    environment["MITHRIL_CPU"] = "v2"
    shown = subprocess.check_output([sys.executable, "-c", script], text=True, env=environment)
    assert "cpu='x86-64-v2'" in shown
