"""A linear layer through the public interface against torch's, in f32 and bfloat16, interleaved.

`python tests/benches/linear.py [MxKxN …]`, THREADS=2 for two. Each line: milliseconds of a call
with the weight as an argument, with it bound, and of torch; then torch's over both.
"""

import os
import sys
import time

import ml_dtypes
import numpy as np
import torch

import mithril as ml
from mithril.models import Linear

THREADS = int(os.environ.get("THREADS", "1"))
torch.set_num_threads(THREADS)

SHAPES = ["64x64x64", "256x256x256", "512x512x512", "1024x1024x1024", "128x768x3072"]
SHAPES += ["32x768x3072", "1000x333x77", "1x4096x4096"]
DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
SECONDS = 0.5


def fastest(calls):
    times = [[] for _ in calls]
    end = time.perf_counter() + SECONDS * len(calls)
    while time.perf_counter() < end:
        for own, call in zip(times, calls, strict=True):
            start = time.perf_counter()
            call()
            own.append(time.perf_counter() - start)
    return [min(own) * 1e3 for own in times]


def measure(m, k, n, dtype):
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape).astype(DTYPES[dtype]) for shape in ((m, k), (n, k)))
    backend = ml.CpuBackend(dtype=dtype, threads=THREADS)
    compiled = ml.compile(Linear(n, use_bias=False), backend, shapes={"input": [m, k]})
    name = compiled.params[0]
    own = w.T.copy()
    bound = compiled.bind({name: own})
    want = x.astype(float) @ w.astype(float).T
    got = bound.evaluate({}, {"input": x})["output"].astype(float)
    error = abs(got - want).max() / abs(want).max()
    assert error < (1e-5 if dtype == "float32" else 1e-2), (m, k, n, dtype, error)
    tx, tw = (torch.from_numpy(a.astype(np.float32)).to(getattr(torch, dtype)) for a in (x, w))
    calls = [
        lambda: compiled.evaluate({name: own}, {"input": x}),
        lambda: bound.evaluate({}, {"input": x}),
        lambda: torch.nn.functional.linear(tx, tw),
    ]
    given, constant, peer = fastest(calls)
    print(
        f"{m}x{k}x{n} {dtype:9} {given:9.4f} {constant:9.4f} {peer:9.4f}"
        f"  {peer / given:.2f} {peer / constant:.2f}",
        flush=True,
    )


for shape in sys.argv[1:] or SHAPES:
    for dtype in DTYPES:
        measure(*map(int, shape.split("x")), dtype)
