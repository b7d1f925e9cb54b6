"""`mithril bench`: the measurements of this machine, and how compiling uses them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mithril as ml
from mithril import calibration
from mithril.models import Model, Power

MEASURED = {"overhead", "bytes", "products", "scalars"}
COMMAND = Path(sys.executable).with_name("mithril")


def bench(file, *arguments):
    environment = os.environ | {"MITHRIL_PROFILE": str(file)}
    return subprocess.run(
        [COMMAND, "bench", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def cube():
    model = Model()
    model |= Power()(base="x", exponent=3.0, output="y")
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"x": [1000, 1000]})
    return compiled.code


def test_new_measurements_are_added_to_the_profile(tmp_path):
    file = tmp_path / "settings" / "profile.json"
    file.parent.mkdir()
    torch = dict.fromkeys(MEASURED, 2.5)
    file.write_text(json.dumps({"torch": torch}))
    ran = bench(file, "--backends=numpy", "--calibrate")
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^numpy +\d+ ns +[\d.]+ GB/s", ran.stdout, re.MULTILINE)
    kept = json.loads(file.read_text())
    assert kept["torch"] == torch
    assert kept["numpy"].keys() == MEASURED
    assert all(number > 0 for number in kept["numpy"].values())


def test_bench_saves_nothing_by_default(tmp_path):
    file = tmp_path / "profile.json"
    ran = bench(file, "--backends=cpu")
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^cpu +\d+ ns", ran.stdout, re.MULTILINE)
    assert "native" not in ran.stdout
    assert not file.exists()


def test_measurements_are_of_this_machine():
    """Bounds that hold on any machine: an addition takes at most 0.1 ms, a multiplication at least
    a femtosecond."""
    found = calibration.measure("numpy")
    assert 10 < found["overhead"] < 100_000
    assert 0.1 < found["bytes"] < 10_000
    assert 0.1 < found["products"] < 1_000_000
    assert 0.01 < found["scalars"] < 100_000


def test_compiles_use_the_measured_profile(tmp_path, monkeypatch):
    assert "x**3" not in cube()
    dear = {"overhead": 1e9, "bytes": 8.0, "products": 60.0, "scalars": 4.0}
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({"numpy": dear}))
    monkeypatch.setenv("MITHRIL_PROFILE", str(file))
    assert "x**3" in cube()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"nupmy": {}}', '{"numpy": {"overhead": 0}}', '{"numpy": 3}'],
)
def test_unreadable_profiles_are_errors(text, tmp_path, monkeypatch):
    file = tmp_path / "profile.json"
    file.write_text(text)
    monkeypatch.setenv("MITHRIL_PROFILE", str(file))
    with pytest.raises(ml.MithrilError, match="cannot be read") as raised:
        cube()
    assert str(file) in str(raised.value)
    assert "mithril bench --calibrate" in str(raised.value)


def test_calibration_replaces_an_unreadable_profile(tmp_path):
    file = tmp_path / "profile.json"
    file.write_text("{")
    ran = bench(file, "--backends=numpy", "--calibrate")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(file.read_text()).keys() == {"numpy"}


def test_an_unknown_backend():
    ran = bench("", "--backends=nupmy")
    assert ran.returncode == 2
    assert "there is no backend `nupmy` to measure" in ran.stderr


def test_the_processes_of_a_mesh_are_measured_and_plans_use_it(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    file = tmp_path / "profile.json"
    numpy = dict.fromkeys(MEASURED, 2.5)
    file.write_text(json.dumps({"numpy": numpy}))
    ran = bench(file, "--mesh", "--calibrate")
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^cpu-gloo +\d+ µs +[\d.]+ GB/s", ran.stdout, re.MULTILINE)
    measured = json.loads(file.read_text())
    assert measured.keys() == {"numpy", "cpu-gloo"}
    assert measured["numpy"] == numpy
    # Bounds that hold on any machine.
    own = measured["cpu-gloo"]
    assert 0.1 < own["products"] < 100_000
    assert 0.1 < own["bytes"] < 10_000
    assert 0.001 < own["link"] < 1_000
    assert 100 < own["latency"] < 1e9
    assert 1e8 < own["memory"] < 1e15
    model = ml.Sequential([ml.Linear(64), ml.Relu(), ml.Linear(8)])
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"input": [64, 32]})
    monkeypatch.setenv("MITHRIL_PROFILE", str(file))
    before = compiled.explain_sharding((2,), given={"input": (0,)})
    file.write_text(json.dumps({"cpu-gloo": {**own, "link": own["link"] / 10}}))
    slower = compiled.explain_sharding((2,), given={"input": (0,)})
    times = [plan.blocks[0].transfer for plan in (before, slower)]
    assert times[1] == pytest.approx(10 * times[0])
    file.write_text(json.dumps({"cpu-gloo": {**own, "link": 0}}))
    with pytest.raises(ml.MithrilError, match="`link` of `cpu-gloo`"):
        compiled.explain_sharding((2,))
