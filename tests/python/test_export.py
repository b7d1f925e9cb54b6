"""Libraries compiled ahead of time, called from C, from threads, and by ctypes without Mithril."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from comparing import chain, random
from conftest import has
from exported import Library, agrees, export, near
from library import NEW
from source import emitted

import mithril as ml
from mithril.models import LayerNorm, Linear, Model, Relu, Residual

pytestmark = [
    pytest.mark.skipif(not has("cpu"), reason="built without native code"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no linker"),
]
PROGRAMS = Path(__file__).parents[1] / "c"
SCAN = Path(__file__).parents[2] / "codegen/source/tests/models/scan.mir"
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]


def test_a_network_with_gradients(tmp_path):
    model = chain(Linear(33), Relu(), Linear(17), ml.Tanh(), Linear(5))
    shapes = {"input": ["batch", 24]}
    for batch in (7, 1, 0, 130):
        x = random(batch, 24)
        agrees(model, tmp_path, {"input": x}, {"batch": batch}, shapes)


def test_a_transformer_of_any_length(tmp_path):
    attention = chain(LayerNorm(), ml.MultiHeadAttention(heads=2, is_causal=True))
    mlp = chain(LayerNorm(), Linear(64), ml.Gelu(), Linear(16))
    model = chain(*(Residual(block) for block in (attention, mlp, attention, mlp)), Linear(11))
    shapes = {"input": ["batch", "length", 16]}
    for batch, length in ((2, 5), (1, 1), (3, 70)):
        dims = {"batch": batch, "length": length}
        inputs = {"input": random(batch, length, 16)}
        library = agrees(model, tmp_path, inputs, dims, shapes, tolerance=1e-4)
    # Dims that do not fit into memory are refused, and no result is written.
    status, _ = library.call(
        dims={"batch": -1, "length": 1},
        data={"input": random(1, 1, 16)},
    )
    assert status is None


def two_outputs():
    model = Model()
    model |= Linear(6)(input="x", output="h")
    model |= ml.Sigmoid()(input="h", output="y")
    model |= ml.Tanh()(input="h", output="z")
    return model


@pytest.mark.parametrize("given", [["y"], ["z"], []])
def test_output_gradients_that_are_not_given_are_zero(given, tmp_path):
    shapes = {"x": ["batch", 4]}
    compiled = ml.compile(two_outputs(), ml.CpuBackend(), shapes=shapes)
    params, inputs = compiled.randomize_params(seed=0), {"x": random(3, 4)}
    reference = ml.compile(two_outputs(), ml.NumpyBackend(), shapes=shapes)
    seeds = {name: random(3, 6, seed=3) for name in given}
    zeros = {name: np.zeros((3, 6), np.float32) for name in ("y", "z")}
    outputs, gradients = reference.evaluate(params, inputs, output_gradients=zeros | seeds)
    library = export(compiled, tmp_path, name="model", params=params, cpu=["v3", "v2"])
    status, results = library.call("_gradients", dims={"batch": 3}, data=inputs, cotangent=seeds)
    assert status == 0
    for name, want in outputs.items():
        near(results["output", name], want)
    for name, want in gradients.items():
        near(results["gradient", name], want)
    assert library.call("_gradients", dims={"batch": 3}, cotangent=seeds)[0] == 2
    assert "NULL stands for zeros" in library.paths["header"].read_text()


def test_a_model_with_state(tmp_path):
    model = chain(Linear(6), ml.BatchNorm1d(), Relu(), Linear(2))
    agrees(model, tmp_path, {"input": random(8, 3)}, {}, {"input": [8, 3]})


def test_results_may_be_copies_and_slices(tmp_path):
    """Results that are arguments or other results; dims that are divided."""
    model = Model()
    model |= ml.Buffer()(input="x", output="same")
    model |= ml.Exponential()(input="x", output="power")
    model |= ml.Buffer()(input="power", output="power_again")
    model |= ml.Slice(start=1, step=3)(input="power", output="part")
    model |= ml.Greater()(left="x", right="power", output="greater")
    backend = ml.CpuBackend(dtype="float64")
    compiled = ml.compile(model, backend, shapes={"x": ["n", 2]}, inference=True)
    library = export(compiled, tmp_path, name="parts")
    for n in (0, 1, 2, 3, 4, 5, 40):
        x = random(n, 2).astype(np.float64)
        want = compiled.evaluate({}, {"x": x})
        status, results = library.call(dims={"n": n}, data={"x": x})
        assert status == 0
        assert {name for _, name in results} == set(want)
        for name, value in want.items():
            assert np.array_equal(results["output", name], value), name


def test_saved_models_are_compiled_by_the_command(tmp_path):
    model = chain(Linear(6), Relu())
    model.save(tmp_path / "model.json")
    command = Path(sys.executable).with_name("mithril")
    options = ["--shape", "input=n,4", "--cpu", "v2,native"]
    paths = {"library": tmp_path / "libmodel.so", "metadata": tmp_path / "libmodel.json"}
    run = [command, "compile", tmp_path / "model.json", *options, "-o", paths["library"]]
    subprocess.run(run, check=True)
    # The export did not overwrite the saved model.
    reference = ml.compile(ml.Model.load(tmp_path / "model.json"), ml.NumpyBackend())
    params, x = {"linear.w": random(4, 6), "linear.b": random(6)}, random(3, 4)
    want = reference.evaluate(params, {"input": x})["output"]
    status, results = Library(paths, tmp_path).call(dims={"n": 3}, data={"input": x}, param=params)
    assert status == 0
    near(results["output", "output"], want)


def test_bound_params_are_part_of_the_library(tmp_path):
    compiled = ml.compile(chain(Linear(12), Relu(), Linear(3)), shapes={"input": [5, 40]})
    params, x = compiled.randomize_params(seed=0), random(5, 40)
    want = compiled.evaluate(params, {"input": x})["output"]
    library = export(compiled.bind(params), tmp_path, name="bound")
    assert all(array["role"] == "data" for array in library.function()["arguments"])
    status, results = library.call(data={"input": x})
    assert status == 0
    near(results["output", "output"], want)


def test_other_processors_give_the_same(tmp_path):
    """Series designed for fused multiply-add are also accurate without it."""
    blocks = (ml.Exponential, ml.Tanh, ml.Sine, ml.Erf, ml.Log1p, ml.Softplus, ml.Cosh, ml.Gelu)
    model = Model()
    for index, block in enumerate(blocks):
        model |= block()(input="input", output=f"y{index}")
    compiled = ml.compile(model, ml.CpuBackend(), shapes={"input": [1000]}, inference=True)
    x = np.abs(random(1000)) * 20
    want = compiled.evaluate({}, {"input": x})
    for cpu in ("v2", "v3", "native", "v2,v3"):
        library = export(compiled, tmp_path, name="series", cpu=cpu)
        status, results = library.call(data={"input": x})
        assert status == 0
        for name, value in want.items():
            np.testing.assert_allclose(
                results["output", name], value, rtol=5e-7, err_msg=f"{cpu} {name}"
            )


def test_export_fails_for_too_low_a_level(tmp_path):
    compiled = ml.compile(chain(ml.Floor()), shapes={"input": [4]}, inference=True)
    compiled.export(tmp_path, cpu="v2")
    with pytest.raises(ml.MithrilError, match="more than the processor has"):
        compiled.export(tmp_path, cpu="x86-64")


def flags():
    """The features of this machine's processor, under Linux's names."""
    told = Path("/proc/cpuinfo").read_text()
    return set(re.search(r"^flags\s*:(.*)$", told, re.MULTILINE)[1].split())


def missing_feature():
    """A feature that can be requested and that this machine lacks."""
    names = {
        "avx512bf16": "avx512_bf16",
        "avx512fp16": "avx512_fp16",
        "amx-int8": "amx_int8",
        "amx-bf16": "amx_bf16",
        "amx-fp16": "amx_fp16",
        "avxneconvert": "avx_ne_convert",
    }
    return next((name for name, flag in names.items() if flag not in flags()), None)


def test_an_old_processor_is_refused(tmp_path):
    feature = missing_feature()
    assert feature, "this machine has all features: the test needs one that it lacks"
    compiled = ml.compile(chain(Linear(4)), shapes={"input": [2, 3]}, inference=True)
    params, x = compiled.randomize_params(seed=0), random(2, 3)
    library = export(compiled, tmp_path, params=params, cpu=f"v3+{feature}")
    (processor,) = library.meta["processors"]
    # Requesting a tile feature adds `amx-tile`.
    assert processor.startswith("x86-64-v3+")
    assert processor.endswith(f"+{feature}")
    status, results = library.call(data={"input": x})
    assert status == 4
    assert results["output", "output"].tobytes() == bytes([NEW]) * 32
    # The library chooses the code for an older processor if it has it as well.
    library = export(compiled, tmp_path, params=params, cpu=["v2", f"v3+{feature}"])
    status, results = library.call(data={"input": x})
    assert status == 0
    near(results["output", "output"], x @ params["linear.w"] + params["linear.b"])


def test_tiles_are_for_processors_that_have_them(tmp_path):
    model = Model()
    for name, half in (("x", "left"), ("w", "right")):
        model |= ml.models.Cast(ml.bfloat16)(input=name, output=half)
    model |= ml.models.MatrixMultiply()("left", "right", "product")
    model |= ml.models.Cast(ml.float32)("product", "output")
    compiled = ml.compile(model, shapes={"x": ["n", 70], "w": [70, 33]}, inference=True)
    x, w = random(40, 70), random(70, 33, seed=1)
    for cpu, tiles in ((["v2", "v4+amx-bf16"], False), ("v4+amx-bf16", True)):
        library = export(compiled, tmp_path, name="net", cpu=cpu)
        assert library.meta["processors"][0] == "x86-64-v4+amx-tile+amx-bf16"
        status, results = library.call(dims={"n": 40}, data={"x": x, "w": w})
        assert status == (4 if tiles and "amx_bf16" not in flags() else 0)
        if status == 0:
            near(results["output", "output"], x @ w, 1e-2)


def build(folder, source, library, *more):
    """Compiles a C program that uses a library."""
    program = folder / "main"
    command = ["cc", *FLAGS, "-D_POSIX_C_SOURCE=200809L", f"-I{library.parent}", PROGRAMS / source]
    command += [library, f"-Wl,-rpath,{library.parent}", "-o", program, *more]
    subprocess.run([str(part) for part in command], check=True)
    return program


def test_callers_may_provide_threads(tmp_path):
    model = Model()
    model |= ml.models.MultiHeadAttention(heads=4, is_causal=True)(input="input", output="middle")
    model |= Linear(48)(input="middle", output="output")
    compiled = ml.compile(model, shapes={"input": ["n", 70, 64]}, inference=True)
    bound = compiled.bind(compiled.randomize_params(seed=0))
    library = export(bound, tmp_path, name="shared")
    program = build(tmp_path, "threads.c", library.paths["library"], "-lpthread")
    ran = subprocess.run([program], capture_output=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.returncode
    assert int(ran.stdout) > 8
    own = library.function()
    assert own["parallel"] == "mithril_shared_parallel"
    assert own["parallel_workspace_bytes"] == "mithril_shared_parallel_workspace_bytes"


def test_a_program_of_c(tmp_path):
    model = chain(Linear(20), Relu(), Linear(3))
    compiled = ml.compile(model, shapes={"input": ["batch", 6]})
    params, x, seed = compiled.randomize_params(seed=0), random(9, 6), random(9, 3, seed=1)
    names = ["linear_0.w", "linear_0.b", "linear_1.w", "linear_1.b"]
    library = export(compiled, tmp_path, name="net")
    program = build(tmp_path, "net.c", library.paths["library"], "-lpthread")
    (tmp_path / "in").write_bytes(
        b"".join(a.tobytes() for a in (x, *(params[n] for n in names), seed))
    )
    ran = subprocess.run([program, tmp_path / "in"], capture_output=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.returncode
    found = np.frombuffer(ran.stdout, np.float32)
    reference = ml.compile(model, ml.NumpyBackend(), shapes={"input": ["batch", 6]})
    outputs, gradients = reference.evaluate(params, {"input": x}, output_gradients=seed)
    wanted = [outputs["output"], *(gradients[name] for name in names)]
    ends = np.cumsum([want.size for want in wanted])
    for got, want in zip(np.split(found, ends[:-1]), wanted):
        near(got.reshape(want.shape), want)


def test_the_header_is_c_plus_plus(tmp_path):
    if shutil.which("c++") is None:
        return
    library = export(ml.compile(chain(Linear(2)), shapes={"input": [1, 2]}), tmp_path, name="net")
    (tmp_path / "main.cc").write_text(
        f'#include "{library.paths["header"]}"\nint main() {{ return MITHRIL_OK; }}\n'
    )
    flags = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
    subprocess.run(["c++", *flags, tmp_path / "main.cc"], check=True)


def test_a_library_needs_only_memcpy_and_memset(tmp_path):
    model = chain(LayerNorm(), ml.MultiHeadAttention(heads=2), Linear(3))
    library = export(ml.compile(model, shapes={"input": ["n", 5, 8]}), tmp_path, name="net")
    table = subprocess.run(
        ["nm", "-D", library.paths["library"]], capture_output=True, text=True, check=True
    )
    symbols = {line.split()[-1]: line.split()[-2] for line in table.stdout.splitlines()}
    needed = {name for name, kind in symbols.items() if kind in "Uw"}
    assert needed <= {"memcpy", "memset", "memmove"}
    own = {
        f"mithril_net{end}{how}{what}"
        for end in ("", "_gradients")
        for how in ("", "_parallel")
        for what in ("", "_workspace_bytes")
    }
    assert symbols.keys() - needed == own
    left = {path.name for path in library.paths["library"].parent.iterdir()}
    assert left == {"libnet.so", "libnet.json", "net.h"}


def test_unsupported_exports_are_errors(tmp_path, monkeypatch):
    model = chain(Linear(2))
    with pytest.raises(ml.BackendError, match="CpuBackend"):
        ml.compile(model, ml.NumpyBackend()).export(tmp_path)
    compiled = ml.compile(model)
    with pytest.raises(ml.MithrilError, match="evaluate it once"):
        compiled.export(tmp_path)
    compiled.evaluate(compiled.randomize_params(), {"input": random(1, 2)})
    compiled.export(tmp_path, name="net")
    for options, message in [
        ({"cpu": "v9"}, "no such processor"),
        ({"cpu": "v3+avx9"}, "no such feature"),
        ({"cpu": []}, "`cpu` is not a processor"),
        ({"cpu": 3}, "`cpu` is not a processor"),
        ({"name": "a/b"}, "this is not a valid name for files"),
        ({"params": {"ww": random(2)}}, "no param `ww`"),
        ({"params": {"linear.w": random(2, 2)}}, "`linear.b` is missing"),
        ({"params": {"linear.w": random(2, 3), "linear.b": random(2)}}, "wrong dtype or shape"),
    ]:
        with pytest.raises(ml.MithrilError, match=message):
            compiled.export(tmp_path, **options)
    before = (tmp_path / "libnet.so").read_bytes()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ml.MithrilError, match="there is no linker"):
        compiled.export(tmp_path, name="net")
    assert list((tmp_path / "libnet.so.objects").glob("*.o"))
    # The earlier library is unchanged.
    assert (tmp_path / "libnet.so").read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_call_costs_little(tmp_path):
    compiled = ml.compile(chain(Linear(8), Relu()), shapes={"input": [8, 8]}, inference=True)
    library = export(compiled, tmp_path, name="layer")
    program = build(tmp_path, "layer.c", library.paths["library"])
    ran = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60)
    assert float(ran.stdout) <= 0.3, f"{ran.stdout} microseconds"


@pytest.mark.parametrize("length", [0, 1, 6])
def test_loops_of_a_text_with_gradients(scan, length):
    """Compares scans in a library with NumPy's source; one library serves any trip count."""
    params = {"w": random(4, 4, seed=1) / 2, "h0": random(4, seed=2)}
    inputs = {"x": random(length, 4, seed=3), "mask": random(length, seed=4)}
    source = emitted(SCAN.read_text(), "numpy", "autodiff,dce")
    want = source["forward"](params, inputs)
    seeds = {name: random(*value.shape, seed=5) for name, value in want.items()}
    gradients = source["gradients"](params, inputs, seeds)
    dims = {"n": length}
    status, results = scan.call(dims=dims, data=inputs, param=params)
    assert status == 0
    for name, value in want.items():
        near(results["output", name], value)
    status, results = scan.call("_gradients", dims=dims, data=inputs, param=params, cotangent=seeds)
    assert status == 0
    for name, value in gradients.items():
        near(results["gradient", name], value)


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scan")
    library = folder / "libscan.so"
    command = [Path(sys.executable).with_name("mithril"), "compile", SCAN, "-o", library]
    subprocess.run([*command, "--gradients"], check=True)
    return Library({"metadata": library.with_suffix(".json")}, folder)


def test_export_names_params_of_unknown_size(tmp_path):
    model = Model()
    model |= ml.Add()(left="x", right="y", output="z")
    shapes = {"x": ["n", 4], "y": ["n", 4]}
    compiled = ml.compile(model, ml.CpuBackend(), shapes=shapes, trainable_keys=["x"])
    with pytest.raises(ml.MithrilError) as caught:
        compiled.export(tmp_path)
    assert "where these are unknown: the param `x` of [n x 4]" in str(caught.value)
    assert "hint: give the sizes by `shapes=`" in str(caught.value)
