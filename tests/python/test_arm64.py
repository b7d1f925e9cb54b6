"""Libraries for arm64, made on this machine and run by an emulator."""

import os
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from arm64 import Arm64Library
from c_programs import CROSS, EMULATOR
from comparing import chain, random
from conftest import has
from custom_operations import C
from exported import agrees, export, near

import mithril as ml
from mithril.models import LayerNorm, Linear, Model, Relu, Residual

pytestmark = pytest.mark.skipif(not has("cpu"), reason="built without native code")

agrees = partial(agrees, kind=Arm64Library, cpu="arm64")
exported = partial(export, kind=Arm64Library, cpu="arm64", name="model")


def test_cross_compiler_and_emulator_are_installed():
    """`tools/setup.sh test` installs them, so no test below may be left out."""
    assert shutil.which(CROSS), "tools/setup.sh installs it"
    assert shutil.which(EMULATOR), "tools/setup.sh installs it"


def test_a_network_with_gradients(tmp_path):
    model = chain(Linear(33), Relu(), Linear(17), ml.Tanh(), Linear(5))
    shapes = {"input": ["batch", 24]}
    for batch in (7, 1, 0, 130):
        agrees(model, tmp_path, {"input": random(batch, 24)}, {"batch": batch}, shapes)


def test_a_transformer_of_any_length(tmp_path):
    attention = chain(LayerNorm(), ml.MultiHeadAttention(heads=2, is_causal=True))
    mlp = chain(LayerNorm(), Linear(64), ml.Gelu(), Linear(16))
    model = chain(Residual(attention), Residual(mlp), Linear(11))
    shapes = {"input": ["batch", "length", 16]}
    for batch, length in ((2, 5), (1, 1), (3, 70)):
        dims = {"batch": batch, "length": length}
        inputs = {"input": random(batch, length, 16)}
        agrees(model, tmp_path, inputs, dims, shapes, tolerance=1e-4)


def test_convolutions(tmp_path):
    model = chain(ml.Conv2d(5, kernel_size=3, padding=1), Relu(), ml.MaxPool2d(kernel_size=2))
    shapes = {"input": ["batch", 3, 9, 11]}
    agrees(model, tmp_path, {"input": random(3, 3, 9, 11)}, {"batch": 3}, shapes, tolerance=1e-4)


def test_a_custom_operation_in_c(tmp_path):
    swish = ml.custom(name="swish", shape="(x: [n]) -> [n]", c=C["c"])
    compiled = ml.compile(swish, ml.CpuBackend(), shapes={"x": ["n"]}, inference=True)
    library = exported(compiled, tmp_path)
    x = random(37)
    status, results = library.call(dims={"n": 37}, data={"x": x})
    assert status == 0
    near(results["output", "output"], x / (1 + np.exp(-x)), 1e-6)


def test_a_model_with_state(tmp_path):
    model = chain(Linear(6), ml.BatchNorm1d(), Relu(), Linear(2))
    agrees(model, tmp_path, {"input": random(8, 3)}, {}, {"input": [8, 3]})


SERIES = (ml.Exponential, ml.Tanh, ml.Sine, ml.Erf, ml.Log1p, ml.Softplus, ml.Cosh, ml.Gelu)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-14)])
def test_elementary_functions_are_accurate_on_arm64(tmp_path, dtype, tolerance):
    model = Model()
    for index, block in enumerate(SERIES):
        model |= block()(input="input", output=f"y{index}")
    model |= ml.Softmax()(input="input", output="softmax")
    backend = ml.CpuBackend(dtype=dtype)
    compiled = ml.compile(model, backend, shapes={"input": ["n"]}, inference=True)
    library = exported(compiled, tmp_path)
    for n in (1, 3, 1001):
        x = np.abs(random(n).astype(dtype)) * 20
        status, results = library.call(dims={"n": n}, data={"input": x})
        assert status == 0
        for name, want in compiled.evaluate({}, {"input": x}).items():
            got = results["output", name]
            np.testing.assert_allclose(got, want, rtol=tolerance, err_msg=name)


# By dtype: the tolerance. The numbers of integers are exact.
DTYPES = {
    **dict.fromkeys(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"], 0),
    "float16": 2e-3,
    "bfloat16": 2e-2,
    "float32": 1e-5,
    "float64": 1e-6,
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_contractions_of_every_dtype(tmp_path, dtype):
    """Sums of more terms than an int8 holds: integers wrap around alike."""
    model = Model()
    for name, own in (("x", "left"), ("w", "right")):
        model |= ml.models.Cast(getattr(ml, dtype))(input=name, output=own)
    model |= ml.models.MatrixMultiply()("left", "right", "product")
    model |= ml.models.Cast(ml.float32)("product", "output")
    whole = np.random.default_rng(0).integers
    for k, columns in ((1, 1), (5, 7), (70, 33)):
        shapes = {"x": ["n", k], "w": [k, columns]}
        compiled = ml.compile(model, ml.CpuBackend(), shapes=shapes, inference=True)
        library = exported(compiled, tmp_path)
        for rows in (1, 3, 40):
            x, w = whole(0, 9, (rows, k)), whole(0, 9, (k, columns))
            inputs = {"x": x.astype(np.float32), "w": w.astype(np.float32)}
            if not DTYPES[dtype]:
                exact = (x @ w).astype(dtype).astype(np.float32)
            else:
                inputs = {name: value / 8 for name, value in inputs.items()}
                exact = inputs["x"] @ inputs["w"]
            status, results = library.call(dims={"n": rows}, data=inputs)
            assert status == 0
            near(results["output", "output"], exact, DTYPES[dtype])


def test_sorts_and_running_sums_have_the_same_bits(tmp_path):
    model = Model()
    model |= ml.models.Sort()(input="x", output="sorted")
    model |= ml.models.Cumsum(axis=-1)(input="whole", output="sums")
    shapes = {"x": [3, "n"], "whole": [3, "n"]}
    compiled = ml.compile(model, ml.CpuBackend(), shapes=shapes, inference=True)
    library = exported(compiled, tmp_path)
    inputs = {"x": random(3, 37), "whole": np.round(random(3, 37) * 9)}
    status, results = library.call(dims={"n": 37}, data=inputs)
    assert status == 0
    want = compiled.evaluate({}, inputs)
    for name in ("sorted", "sums"):
        np.testing.assert_array_equal(results["output", name], want[name])


THREADS = """
#include "model.h"
#include <stdlib.h>
#include <string.h>

static void run(void *context, int64_t parts, void (*part)(void *, int64_t), void *argument) {
  *(int64_t *)context += parts;
  for (int64_t i = parts - 1; i >= 0; i--) part(argument, i);
}

int main(void) {
  enum { N = 5, COUNT = N * 70 * 64 };
  static float x[COUNT], y[COUNT], z[COUNT];
  for (int i = 0; i < COUNT; i++) x[i] = (float)(i * 37 % 101) / 101;
  int64_t parts = 0;
  const struct mithril_threads threads = {4, run, &parts};
  size_t bytes = mithril_model_parallel_workspace_bytes(N, 4);
  void *workspace = aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (mithril_model_parallel(N, x, y, workspace, &threads) != 0) return 1;
  if (mithril_model(N, x, z, workspace) != 0) return 2;
  if (mithril_model(N, x, z, (char *)workspace + 4) != MITHRIL_ERROR_ALIGNMENT) return 3;
  if (mithril_model(N, NULL, z, workspace) != MITHRIL_ERROR_NULL) return 4;
  return memcmp(y, z, sizeof y) != 0 || parts <= 4 ? 5 : 0;
}
"""


def test_callers_may_provide_threads(tmp_path):
    attention = ml.MultiHeadAttention(heads=4, is_causal=True)
    compiled = ml.compile(chain(attention), shapes={"input": ["n", 70, 64]}, inference=True)
    bound = compiled.bind(compiled.randomize_params(seed=0))
    library = exported(bound, tmp_path)
    program = library.compile(THREADS)
    ran = library.run(program)
    assert ran.returncode == 0, ran.returncode


def test_the_metadata_and_the_symbols(tmp_path):
    compiled = ml.compile(chain(LayerNorm(), Linear(3)), shapes={"input": ["n", 8]})
    library = exported(compiled, tmp_path)
    assert library.meta["processors"] == ["arm64"]
    read = ["aarch64-linux-gnu-readelf", "-h", library.paths["library"]]
    assert "AArch64" in subprocess.check_output(read, text=True)
    table = ["aarch64-linux-gnu-nm", "-D", "--undefined-only", library.paths["library"]]
    needed = {line.split()[-1] for line in subprocess.check_output(table, text=True).splitlines()}
    assert needed <= {"memcpy", "memset", "memmove"}


def test_compile_command_makes_arm64_libraries(tmp_path):
    text = "mithril 1\n\nfunc @f(%x: tensor<n x f32>) -> (y: tensor<n x f32>) {\n"
    text += "  %y = exp(%x)\n  return %y\n}\n"
    (tmp_path / "f.mir").write_text(text)
    folder = os.path.dirname(sys.executable)
    command = [f"{folder}/mithril", "compile", tmp_path / "f.mir", "--cpu", "arm64"]
    subprocess.run([*command, "-o", tmp_path / "libf.so"], check=True)
    read = ["aarch64-linux-gnu-readelf", "-h", tmp_path / "libf.so"]
    assert "AArch64" in subprocess.check_output(read, text=True)
    command = [f"{folder}/mithril-opt", tmp_path / "f.mir", "--emit=asm", "--cpu=arm64"]
    assert "fmla\tv" in subprocess.check_output(command, text=True)


def test_arm64_is_only_for_libraries(monkeypatch):
    what = "Native code for arm64 cannot run on this machine, whose processor is of another"
    with pytest.raises(ml.BackendError, match=what) as caught:
        ml.CpuBackend(cpu="arm64")
    assert "hint: `export(cpu=)` and `mithril compile --cpu` make libraries" in str(caught.value)
    monkeypatch.setenv("MITHRIL_CPU", "arm64")
    with pytest.raises(ml.BackendError, match=what):
        ml.CpuBackend()
    monkeypatch.delenv("MITHRIL_CPU")
    with pytest.raises(ml.UsageError) as caught:
        ml.CpuBackend(cpu="arm65")
    assert "arm64" not in str(caught.value).replace("got: arm65", "")


def test_mistakes(tmp_path, monkeypatch):
    compiled = ml.compile(chain(Linear(2)), shapes={"input": [1, 2]})
    with pytest.raises(ml.MithrilError, match=r"different architectures\n  got: .*arm64"):
        compiled.export(tmp_path, cpu=["v2", "arm64"])
    with pytest.raises(ml.MithrilError, match="no such feature of processors"):
        compiled.export(tmp_path, cpu="arm64+avx2")
    with pytest.raises(ml.MithrilError, match=r"expected: native, .*, arm64"):
        compiled.export(tmp_path, cpu="arm65")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ml.MithrilError, match="there is no linker") as caught:
        compiled.export(tmp_path, name="net", cpu="arm64")
    assert "expected: aarch64-linux-gnu-gcc" in str(caught.value)
    assert "`apt-get install gcc-aarch64-linux-gnu` installs it" in str(caught.value)
