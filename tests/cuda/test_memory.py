"""Memory of PyTorch on an NVIDIA GPU: statistics, limits and recomputation."""

from __future__ import annotations

import pytest
import torch
from models import CUDA, SHAPES, mlp, step

import mithril as ml
from mithril.errors import BackendError, MithrilError
from mithril.models import MLP, Buffer, Relu, Sequential


def test_memory_statistics_hooks_and_the_cache():
    backend = ml.TorchBackend(device=CUDA)
    before = backend.get_memory_stats()
    x = backend.ones(1024, 1024)
    during = backend.get_memory_stats()
    assert during["allocated"] - before["allocated"] == x.nbytes
    assert during["cached"] >= during["allocated"]
    del x
    assert backend.get_memory_stats()["cached"] >= 4 * 2**20
    backend.clear_cache()
    after = backend.get_memory_stats()
    assert after["allocated"] == before["allocated"]
    assert after["cached"] < during["cached"]
    compiled = ml.compile(mlp(), backend, shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    calls = []
    backend.register_memory_hook(lambda *args: calls.append(args))
    outputs = compiled.evaluate(params, {"input": backend.ones(1024, 32)})
    ((device, allocated, freed),) = calls
    assert device == CUDA
    assert allocated >= outputs["output"].nbytes
    assert freed == 0


def test_release_unused_returns_what_torch_caches():
    cached = []
    for release in (False, True):
        torch.cuda.empty_cache()
        backend = ml.TorchBackend(device=CUDA, release_unused=release)
        compiled = ml.compile(mlp(1024), backend, shapes=SHAPES)
        step(compiled, backend.ones(8192, 32))
        stats = backend.get_memory_stats()
        cached.append(stats["cached"] - stats["allocated"])
    assert cached[1] < cached[0] / 2


def test_the_memory_limit_refuses_calls_and_limits_torch():
    backend = ml.TorchBackend(device=CUDA, memory_limit="256MB")
    compiled = ml.compile(mlp(), backend, shapes=SHAPES)
    step(compiled, backend.ones(64, 32))
    with pytest.raises(BackendError, match="more memory than `memory_limit` allows"):
        step(compiled, backend.ones(2**20, 32))
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**28, device=CUDA)


def test_a_call_that_lacks_memory_says_so():
    backend = ml.TorchBackend(device=CUDA)
    compiled = ml.compile(mlp(4096), backend, shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    x = backend.ones(2**18, 32)
    torch.cuda.set_per_process_memory_fraction(0.02)
    with pytest.raises(MithrilError, match="memory") as error:
        compiled.evaluate(params, {"input": x})
    print(error.value)


def test_memory_efficient_needs_less():
    peaks = []
    for efficient in (False, True):
        model = Sequential([mlp_block() for _ in range(8)])
        backend = ml.TorchBackend(device=CUDA, memory_efficient=efficient)
        compiled = ml.compile(model, backend, shapes={"input": [8192, 256]})
        params = compiled.randomize_params(seed=0)
        x = backend.ones(8192, 256)
        start = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        compiled.evaluate(params, {"input": x}, output_gradients={"output": torch.ones_like})
        peaks.append(torch.cuda.max_memory_allocated() - start)
    print(peaks)
    assert peaks[1] < 0.6 * peaks[0]


def mlp_block():
    return MLP(activations=[Relu(), Relu(), Buffer()], dimensions=[1024, 1024, 256])


def test_the_planned_memory_is_about_what_torch_allocates():
    backend = ml.TorchBackend(device=CUDA, memory_limit=2**36)
    compiled = ml.compile(mlp(512), backend, shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    x = {"input": backend.ones(8192, 32)}
    total = compiled.cost({"input": [8192, 32]}).total
    seeds = {"output": backend.ones(8192, 10)}
    compiled.evaluate(params, x, output_gradients=seeds)
    start = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    compiled.evaluate(params, x, output_gradients=seeds)
    peak = torch.cuda.max_memory_allocated() - start
    kept = total.kept + total.peak + sum(value.nbytes for value in params.values())
    assert peak <= kept <= 4 * peak
