"""Tiers of native code: instant code has the same bits as LLVM's, before and after it is
replaced."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from comparing import chain
from conftest import has

import mithril as ml
from mithril.models import (
    Add,
    Cumsum,
    Embedding,
    Erf,
    Gelu,
    LayerNorm,
    Linear,
    Model,
    MultiHeadAttention,
    Relu,
    RMSNorm,
    Sigmoid,
    Softmax,
    Sort,
    Tanh,
)

pytestmark = pytest.mark.skipif(not has("cpu"), reason="built without native code")


def transformer():
    model = Model()
    model |= LayerNorm(name="ln_1")(input="input", output="normed")
    model |= MultiHeadAttention(heads=4, is_causal=True, name="attn")(
        input="normed", output="attended"
    )
    model |= Add()(left="input", right="attended", output="middle")
    model |= RMSNorm(name="ln_2")(input="middle")
    model += Linear(dimension=70, name="up")
    model += Gelu(approximate=True)
    model += Linear(dimension=32, name="down")(output="output")
    return model


ZOO = {
    "mlp": (lambda: chain(Linear(33), Relu(), Linear(17), Tanh(), Linear(5)), (7, 24)),
    "softmax": (lambda: chain(Linear(10), Softmax()), (9, 24)),
    "norm": (lambda: chain(LayerNorm(), Linear(4), Sigmoid()), (3, 50)),
    "transformer": (transformer, (2, 19, 32)),
    "order": (lambda: chain(Linear(13), Sort(), Cumsum(1), Erf()), (6, 20)),
    "embedding": (lambda: chain(Embedding(50, 20), Softmax()), (3, 11)),
}


def inputs_of(name, shape):
    rng = np.random.default_rng(3)
    if name == "embedding":
        return {"input": rng.integers(0, 50, shape)}
    return {"input": rng.standard_normal(shape).astype(np.float32)}


def compiled_of(name, tier, dtype="float32", **options):
    make, shape = ZOO[name]
    backend = ml.CpuBackend(dtype=dtype, tier=tier)
    return ml.compile(make(), backend, shapes={"input": list(shape)}, **options), shape


def results(compiled, params, inputs):
    """The output and all gradients as bytes."""
    output = compiled.evaluate(params, inputs)["output"]
    seed = np.ones_like(output)
    again, gradients = compiled.evaluate(params, inputs, output_gradients={"output": seed})
    assert again["output"].tobytes() == output.tobytes()
    return {"output": output.tobytes()} | {n: g.tobytes() for n, g in gradients.items()}


def replaced(compiled, within=120.0):
    """Waits until LLVM's code has replaced all instant code."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        lines = compiled.report().splitlines()
        counts = [part for line in lines for part in line.split("; ") if "replaced" in part]
        if counts and all(c.split()[0] == c.split()[2] for c in counts):
            return
        time.sleep(0.01)
    raise AssertionError(compiled.report())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ZOO)
def test_instant_code_gives_the_same_bits(name, dtype):
    instant, shape = compiled_of(name, "instant", dtype)
    llvm, _ = compiled_of(name, "llvm", dtype)
    params = llvm.randomize_params(seed=4)
    inputs = inputs_of(name, shape)
    if name != "embedding":
        inputs = {"input": inputs["input"].astype(llvm.backend.own_dtype(dtype))}
    got, want = results(instant, params, inputs), results(llvm, params, inputs)
    assert "instant" in instant.report()
    assert got == want


@pytest.mark.parametrize("name", ZOO)
def test_code_is_replaced_while_threads_call(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MITHRIL_CACHE", str(tmp_path / "cache"))
    compiled, shape = compiled_of(name, "auto", cache=False)
    params, inputs = compiled.randomize_params(seed=4), inputs_of(name, shape)
    want = results(compiled, params, inputs)
    assert "instant" in compiled.report()
    done = threading.Event()

    def calls():
        count = 0
        while not done.is_set() or count < 5:
            assert results(compiled, params, inputs) == want
            count += 1
        return count

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(calls) for _ in range(8)]
        try:
            replaced(compiled)
        finally:
            done.set()
        assert all(call.result(timeout=60) >= 5 for call in running)
    assert results(compiled, params, inputs) == want
    # Code that was compiled in the background is cached for other models.
    again, _ = compiled_of(name, "auto", cache=False)
    assert results(again, params, inputs) == want
    assert "instant" not in again.report()


def test_large_products_wait_for_llvm(tmp_path, monkeypatch):
    monkeypatch.setenv("MITHRIL_CACHE", str(tmp_path / "cache"))
    compiled = ml.compile(
        chain(Linear(1009), Softmax()),
        ml.CpuBackend(tier="auto"),
        shapes={"input": [1024, 1024]},
        inference=True,
    )
    params = compiled.randomize_params(seed=0)
    compiled.evaluate(params, {"input": np.ones((1024, 1024), np.float32)})
    assert "1 compiled, 1 instant, 0 found" in compiled.report()


def test_options_are_checked():
    with pytest.raises(ml.UsageError, match="did you mean `auto`") as error:
        ml.CpuBackend(tier="atuo")
    assert "expected: 'llvm' or 'auto'" in str(error.value)
    with pytest.raises(ml.UsageError, match="tier"):
        ml.CpuBackend(tier=1)


# These tests run in separate processes.

ONCE = """
import logging, os, sys, time
import numpy as np, mithril as ml
logging.basicConfig(format="%(levelname)s %(message)s")
model = ml.Model()
model |= ml.models.MultiHeadAttention(heads=2, is_causal=True)(input="input", output="y")
model |= ml.models.Softmax()(input="y", output="z")
compiled = ml.compile(
    model, ml.CpuBackend(tier="auto"), shapes={"input": [2, 70, 64]}, inference=True
)
params = compiled.randomize_params(seed=0)
x = np.ones((2, 70, 64), np.float32)
first = compiled.evaluate(params, {"input": x})["z"]
"""


def run(code, folder, **environment):
    environment = {**os.environ, "MITHRIL_CACHE": str(folder), **environment}
    command = [sys.executable, "-c", ONCE + code]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


ENDINGS = {
    "returns": "",
    "exits": "sys.exit(0)",
    "is cut off": "os._exit(0)",
    "has dropped the model": "del compiled",
    "forks": """
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("pause", [0.0, 0.1])
def test_processes_may_exit_while_kernels_compile(ending, pause, tmp_path):
    ended = run(f"time.sleep({pause})\n" + ENDINGS[ending], tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_without_llvm_instant_code_stays(tmp_path):
    code = """
for _ in range(1000):
    time.sleep(0.01)
    assert compiled.evaluate(params, {"input": x})["z"].tobytes() == first.tobytes()
    if "cannot be generated" in compiled.report():
        break
for _ in range(3):
    compiled.evaluate(params, {"input": x})
"""
    ended = run(code, tmp_path, MITHRIL_NATIVE=str(tmp_path / "missing.so"))
    assert ended.returncode == 0, ended.stderr
    warning = "WARNING Model: kernels keep Cranelift's code: "
    assert ended.stderr.startswith(warning)
    assert ended.stderr.count("WARNING") == 1


FORKED = """
def other(tier):
    model = ml.Model()
    model |= ml.models.Softmax()(input="input", output="z")
    shapes = {"input": [4, 70]}
    return ml.compile(model, ml.CpuBackend(tier=tier), shapes=shapes, inference=True)

def work():
    assert compiled.evaluate(params, {"input": x})["z"].tobytes() == first.tobytes()
    for tier in ["auto", "llvm"]:
        z = other(tier).evaluate({}, {"input": np.ones((4, 70), np.float32)})["z"]
        assert np.allclose(z, 1 / 70)
"""
FORKS = {
    "fork": """
child = os.fork()
if child == 0:
    work()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
    "multiprocessing": """
import multiprocessing
workers = [multiprocessing.get_context("fork").Process(target=work) for _ in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
assert [worker.exitcode for worker in workers] == [0, 0]
""",
    "another thread compiles": """
import threading
model = ml.Model()
model |= ml.models.MultiHeadAttention(heads=4)(input="input", output="y")
foreground = ml.compile(model, ml.CpuBackend(), shapes={"input": [2, 33, 64]}, inference=True)
held = foreground.randomize_params(seed=0)
thread = threading.Thread(target=foreground.evaluate, args=(held, {"input": x[:, :33]}))
thread.start()
child = os.fork()
if child == 0:
    work()
    foreground.evaluate(held, {"input": x[:, :33]})
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
thread.join()
""",
}


@pytest.mark.parametrize("how", FORKS)
@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_a_process_may_fork_while_it_compiles(how, pause, tmp_path):
    """The child calls code that its parent compiled, and compiles code itself."""
    ended = run(f"{FORKED}\ntime.sleep({pause})\n{FORKS[how]}", tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_forked_processes_continue_tier_up(tmp_path):
    """The child compiles the kernels that its parent had not started when it forked."""
    code = """
import re
def replaced():
    done, total = map(int, re.search(r"(\\d+) of (\\d+) replaced", compiled.report()).groups())
    return done == total
child = os.fork()
if child == 0:
    deadline = time.monotonic() + 60
    while not replaced():
        assert time.monotonic() < deadline, compiled.report()
        assert compiled.evaluate(params, {"input": x})["z"].tobytes() == first.tobytes()
        time.sleep(0.01)
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ended = run(code, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
