"""Kernels that LLVM cannot compile: Cranelift compiles them, and a warning names each."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import NATIVE, has
from exported import Library

pytestmark = pytest.mark.skipif(not has("cpu"), reason="built without native code")

# A code generator that replaces each kernel whose text contains FAILS by an instruction of another
# processor. LLVM's error for it is fatal.
STUB = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const char *data; size_t len; } Bytes;
typedef void (*Take)(unsigned char *, Bytes);
typedef int (*Compile)(Bytes, Bytes, Bytes, Bytes, unsigned, Take, unsigned char *);

static const char OF_ANOTHER_LEVEL[] =
    "llvm.func @kernel(%to: !llvm.ptr, %x: vector<16xf32>) {"
    "  %ones = llvm.mlir.constant(-1 : i16) : i16"
    "  %round = llvm.mlir.constant(4 : i32) : i32"
    "  %y = llvm.call_intrinsic \"llvm.x86.avx512.mask.scalef.ps.512\"(%x, %x, %x, %ones, %round)"
    "    : (vector<16xf32>, vector<16xf32>, vector<16xf32>, i16, i32) -> vector<16xf32>"
    "  llvm.store %y, %to : vector<16xf32>, !llvm.ptr"
    "  llvm.return }";

int mithril_native_compile(Bytes text, Bytes triple, Bytes cpu, Bytes features, unsigned stage,
                           Take take, unsigned char *sink) {
    Compile compile = (Compile)dlsym(dlopen(getenv("REAL"), RTLD_NOW), "mithril_native_compile");
    const char *fails = getenv("FAILS");
    if (memmem(text.data, text.len, fails, strlen(fails))) {
        text = (Bytes){OF_ANOTHER_LEVEL, sizeof OF_ANOTHER_LEVEL - 1};
        cpu = (Bytes){"x86-64-v3", 9};
        features = (Bytes){"", 0};
    }
    return compile(text, triple, cpu, features, stage, take, sink);
}
"""

# Of the two kernels, only the text of the first contains the size of `a`.
COUNT = 4243
MODEL = (
    f"""
import logging, sys, threading
import numpy as np
import mithril as ml
logging.basicConfig(format="%(levelname)s %(message)s")
COUNT = {COUNT}
"""
    + """
def model():
    built = ml.Model(name="Twins")
    built |= ml.models.Tanh(name="first")(input="a", output="y")
    built |= ml.models.Sigmoid(name="second")(input="b", output="z")
    return built

x = {"a": np.linspace(-2, 2, COUNT, dtype=np.float32), "b": np.ones((3, 5), np.float32)}
want = {"y": np.tanh(x["a"]), "z": 1 / (1 + np.exp(-x["b"]))}

def compiled(**options):
    shapes = {"a": [COUNT], "b": [3, 5]}
    return ml.compile(model(), ml.CpuBackend(**options), shapes=shapes, inference=True)

def check(own):
    for _ in range(3):
        got = own.evaluate({}, x)
        assert all(np.allclose(got[name], want[name], atol=1e-6) for name in want)
"""
)


@pytest.fixture(scope="session")
def stub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stub")
    (folder / "stub.c").write_text(STUB)
    path = folder / "stub.so"
    command = ["cc", "-shared", "-fPIC", "-o", path, folder / "stub.c", "-ldl"]
    subprocess.run(command, check=True)
    return path


def run(code, stub, cache, fails=str(COUNT)):
    settings = {"MITHRIL_NATIVE": str(stub), "REAL": str(NATIVE), "FAILS": fails}
    settings |= {"MITHRIL_CACHE": str(cache)}
    env = os.environ | settings
    command = [sys.executable, "-c", MODEL + code]
    return subprocess.run(
        command, capture_output=True, text=True, env=env, timeout=300, check=False
    )


def test_cranelift_compiles_what_llvm_fails_on(stub, tmp_path):
    code = "own = compiled(); check(own); print(own.report())"
    ended = run(code, stub, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "1 compiled, 1 by Cranelift since LLVM failed, 0 found" in ended.stdout
    assert ended.stderr.count("WARNING") == 1
    assert "Twins: LLVM failed on a kernel" in ended.stderr
    assert "block `first`" in ended.stderr
    assert "LLVM ended with a fatal error: " in ended.stderr
    assert "please report it" in ended.stderr
    # Cranelift's code is not cached in place of LLVM's.
    ended = run(code, NATIVE, tmp_path)
    assert "1 compiled, 1 found" in ended.stdout
    assert ended.stderr == ""


def test_calls_continue_if_background_llvm_fails(stub, tmp_path):
    code = """
import time
own = compiled(tier="auto")
for _ in range(1000):
    check(own)
    time.sleep(0.01)
    if "LLVM failed" in own.report():
        break
check(own)
"""
    ended = run(code, stub, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("WARNING") == 1
    assert "block `first`" in ended.stderr


def test_llvm_failures_are_handled_on_many_threads(stub, tmp_path):
    code = """
threads = [threading.Thread(target=lambda: check(compiled())) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check(compiled())
print("done")
"""
    ended = run(code, stub, tmp_path, fails="")
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
    assert ended.stderr.count("WARNING") == 2 * 9


def test_exported_libraries_contain_fallback_kernels(stub, tmp_path):
    code = f"""
paths = compiled().export({str(tmp_path / "out")!r}, cpu=["x86-64-v2", "x86-64-v3"])
print(*(f"{{role}}={{path}}" for role, path in paths.items() if path))
"""
    ended = run(code, stub, tmp_path / "cache")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("WARNING") == 2
    paths = dict(word.split("=") for word in ended.stdout.split())
    library = Library({role: Path(path) for role, path in paths.items()}, tmp_path)
    inputs = {"a": np.linspace(-2, 2, COUNT, dtype=np.float32), "b": np.ones((3, 5), np.float32)}
    status, got = library.call(data=inputs)
    assert status == 0
    np.testing.assert_allclose(got["output", "y"], np.tanh(inputs["a"]), atol=1e-6)
    np.testing.assert_allclose(got["output", "z"], 1 / (1 + np.exp(-1.0)), atol=1e-6)
