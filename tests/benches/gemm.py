"""How fast kernels contract on one thread, as ratios to NumPy (OpenBLAS) and torch in the same run.

`python tests/benches/gemm.py [shape…]`, a shape like `256x256x256`, `1x768x768:y=k` or
`64x784x512:y=packed,dynamic=m`: m x n x k and what examples/contraction.rs understands. Needs
`cargo build --release -p mithril-native --example contraction`.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
import torch

torch.set_num_threads(1)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "target/release/examples/contraction"
SQUARES = ["8x8x8", "33x17x127", "256x256x256", "512x512x512", "1024x1024x1024"]
MODELS = ["32x3072x768", "1x4096x4096", "128x768x768", "128x3072x768", "128x768x3072", "64x512x784"]
SHAPES = [shape + y for shape in SQUARES + MODELS for y in (":y=outer", ":y=k")]
SECONDS = float(os.environ.get("SECONDS_EACH", "1.5"))


def aligned(shape):
    """Zeros, at the beginning of a line of the cache."""
    count = int(np.prod(shape))
    memory = np.zeros(count + 32, np.float32)
    start = (-memory.ctypes.data % 64) // 4
    return memory[start : start + count].reshape(shape)


def load(library):
    kernel = ctypes.CDLL(str(library)).kernel
    kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2
    kernel.restype = None
    return kernel


def call(kernel, scratch, buffers, dims, tasks):
    pointers = (ctypes.c_void_p * len(buffers))(*[b.ctypes.data for b in buffers])
    numbers = (ctypes.c_int64 * len(dims))(*dims)
    arguments = scratch.ctypes.data, ctypes.addressof(pointers), ctypes.addressof(numbers), 0, tasks
    keep = pointers, numbers, buffers, scratch
    return lambda keep=keep: kernel(*arguments)


def prepare(shape, options, folder):
    m, n, k = shape
    library = pathlib.Path(folder) / (f"{m}x{n}x{k}" + "-".join(["", *options]) + ".so")
    command = [PROGRAM, *map(str, shape), *options, library]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    facts = dict(word.split("=", 1) for word in said.split(" # ")[0].split())
    random = np.random.default_rng(0)
    x, y, bias, result = aligned((m, k)), aligned((k, n)), aligned((n,)), aligned((m, n))
    x[...], y[...] = random.standard_normal(x.shape), random.standard_normal(y.shape)
    dims, scratch = (1, m, n, k), aligned((int(facts["scratch"]) // 4,))
    peer_y = held = y
    if "y=k" in options:
        held = aligned((n, k))
        held[...] = y.T
        peer_y = held.T
    if "y=packed" in options:
        strip = int(facts["strip"])
        held = aligned((-(-n // strip), k, strip))
        pack = load(library.with_suffix(".pack.so"))
        call(pack, scratch, [x, y, held], dims, held.shape[0])()
    run = call(load(library), scratch, [x, held, bias, result], dims, int(facts["tasks"]))
    run()
    expected = np.maximum(x.astype(float) @ y, 0)
    error = abs(result - expected).max() / abs(expected).max()
    assert error < 1e-5, (shape, options, error)
    tx, ty, tr, nr = (
        torch.from_numpy(x),
        torch.from_numpy(peer_y),
        torch.empty(m, n),
        aligned((m, n)),
    )
    runs = {
        "mithril": run,
        "numpy": lambda: np.matmul(x, peer_y, out=nr),
        "torch": lambda: torch.mm(tx, ty, out=tr),
    }
    return runs, facts


def measure(runs, flops):
    """The least processor seconds of each, taken in turns: others may want the processor."""
    inner = max(1, int(2e-4 / (flops / 6e10 + 5e-7)))
    best = dict.fromkeys(runs, float("inf"))
    end = time.perf_counter() + SECONDS
    rounds = 0
    while time.perf_counter() < end or rounds < 20:
        rounds += 1
        for name, run in runs.items():
            run()
            start = time.process_time()
            for _ in range(inner):
                run()
            best[name] = min(best[name], (time.process_time() - start) / inner)
    return best


def main():
    print(
        f"{'m x n x k':38}{'us':>10}{'GFLOP/s':>9}{'/numpy':>8}{'/torch':>8}{'ms':>7}{'bytes':>7}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for text in sys.argv[1:] or SHAPES:
            sizes, _, options = text.partition(":")
            shape = tuple(map(int, sizes.split("x")))
            runs, facts = prepare(shape, [o for o in options.split(",") if o], folder)
            flops = 2 * np.prod(shape, dtype=float)
            best = measure(runs, flops)
            own = best["mithril"]
            print(
                f"{text:38}{own * 1e6:10.2f}{flops / own / 1e9:9.1f}{best['numpy'] / own:8.2f}"
                f"{best['torch'] / own:8.2f}{float(facts['ms']):7.0f}{facts['object']:>7}",
                flush=True,
            )


if __name__ == "__main__":
    main()
