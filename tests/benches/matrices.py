"""Factorisations and Fourier transforms against LAPACK and pocketfft, one thread, interleaved.

`OMP_NUM_THREADS=1 python tests/benches/matrices.py [--check]`. Each line: milliseconds of native
code, of C and of SciPy, and SciPy's time over both. `--check` fails below a fifth.
"""

import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft
import scipy.linalg

import mithril as ml

SECONDS = 0.3
SIZES = [8, 64, 256]
LENGTHS = [64, 1000, 1009, 4096, 65536]


def positive(x: Any) -> Any:
    return x @ x.T / len(x) + np.eye(len(x), dtype=x.dtype)


def shifted(x: Any) -> Any:
    return x + 4 * np.sqrt(len(x)) * np.eye(len(x), dtype=x.dtype)


# The block, its inputs by their names, and the same by SciPy.
MATRICES: dict[str, tuple[Callable[[], Any], Callable[[Any], dict[str, Any]], Callable[..., Any]]]
MATRICES = {
    "Cholesky": (
        ml.Cholesky,
        lambda x: {"input": positive(x)},
        lambda x: scipy.linalg.cholesky(x, lower=True, check_finite=False),
    ),
    "TriangularSolve": (
        ml.TriangularSolve,
        lambda x: {"a": np.tril(shifted(x)), "b": x},
        lambda a, b: scipy.linalg.solve_triangular(a, b, lower=True, check_finite=False),
    ),
    "Solve": (
        ml.Solve,
        lambda x: {"a": shifted(x), "b": x},
        lambda a, b: scipy.linalg.solve(a, b, check_finite=False),
    ),
    "Inverse": (ml.Inverse, lambda x: {"input": shifted(x)}, np.linalg.inv),
    "Det": (ml.Det, lambda x: {"input": x}, np.linalg.det),
    "QR": (ml.QR, lambda x: {"input": x}, np.linalg.qr),
    "SVD": (ml.SVD, lambda x: {"input": x}, np.linalg.svd),
    "Eigh": (ml.Eigh, lambda x: {"input": x + x.T}, np.linalg.eigh),
}


def spectrum() -> ml.Model:
    model = ml.Model()
    model |= ml.FFT()(input="x", imaginary_input="y", real="real", imaginary="imaginary")
    return model


def least(calls: list[Callable[[], Any]]) -> list[float]:
    """Milliseconds of each call: the least of several, in turns."""
    times = [float("inf")] * len(calls)
    end = time.perf_counter() + SECONDS * len(calls)
    while time.perf_counter() < end:
        for at, call in enumerate(calls):
            start = time.perf_counter()
            call()
            times[at] = min(times[at], time.perf_counter() - start)
    return [1e3 * value for value in times]


def compare(name: str, block: Callable[[], Any], inputs: dict[str, Any], by: Any) -> float:
    """Prints a line. Returns the lower ratio."""
    calls = []
    for make in (ml.CpuBackend, ml.CBackend):
        backend = make(dtype=ml.float32 if inputs_dtype(inputs) == np.float32 else ml.float64)
        shapes = {key: list(value.shape) for key, value in inputs.items()}
        compiled = ml.compile(block(), backend, shapes=shapes, inference=True)
        own = {key: backend.array(value) for key, value in inputs.items()}
        compiled.evaluate({}, own)
        calls.append(lambda compiled=compiled, own=own: compiled.evaluate({}, own))
    times = least([*calls, lambda: by(*inputs.values())])
    ratios = [times[2] / value for value in times[:2]]
    shown = "".join(f"{value:10.3f}" for value in times) + "".join(f"{r:8.2f}" for r in ratios)
    print(f"{name:32}{shown}", flush=True)
    return min(ratios)


def inputs_dtype(inputs: dict[str, Any]) -> Any:
    return next(iter(inputs.values())).dtype


def main() -> int:
    numbers = np.random.default_rng(0)
    print(f"{'':32}{'native':>10}{'C':>10}{'SciPy':>10}{'/native':>8}{'/C':>8}")
    ratios = []
    for dtype in (np.float32, np.float64):
        for name, (block, given, by) in MATRICES.items():
            for size in SIZES:
                inputs = given(numbers.standard_normal((size, size)).astype(dtype))
                title = f"{name}, {size} x {size}, {np.dtype(dtype)}"
                ratios.append(compare(title, block, inputs, by))
        for length in LENGTHS:
            x = {"input": numbers.standard_normal(length).astype(dtype)}
            title = f"RealFFT, {length}, {np.dtype(dtype)}"
            ratios.append(compare(title, ml.RealFFT, x, scipy.fft.rfft))
            pair = {key: numbers.standard_normal(length).astype(dtype) for key in ("x", "y")}
            title = f"FFT, {length}, {np.dtype(dtype)}"
            ratios.append(compare(title, spectrum, pair, lambda x, y: scipy.fft.fft(x + 1j * y)))
    return int("--check" in sys.argv and min(ratios) < 0.2)


if __name__ == "__main__":
    sys.exit(main())
