"""Factorisations and Fourier transforms against LAPACK and pocketfft, one thread, interleaved.

`OMP_NUM_THREADS=1 python tests/benches/matrices.py [--check]` takes some two minutes. Each line:
milliseconds of native code, of C and of SciPy, and SciPy's time over both. `--check` fails below a
fifth.
"""

import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.fft
import scipy.linalg

import mithril as ml

SECONDS = 0.1
SIZES = [(8, 8), (64, 64), (256, 256), (512, 512), (768, 768)]
RECTANGLES = [(300, 500), (500, 300)]
# Blocks whose matrices need not be square.
RECTANGULAR = ["QR", "SVD"]
LENGTHS = [64, 1000, 1009, 4096, 65536, 65537, 63257]


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
    "LogDet": (
        ml.LogDet,
        lambda x: {"input": positive(x)},
        lambda x: np.linalg.slogdet(x)[1],
    ),
    "MatrixPower": (
        lambda: ml.MatrixPower(n=5),
        lambda x: {"input": x / np.float32(np.sqrt(len(x)))},
        lambda x: np.linalg.matrix_power(x, 5),
    ),
    "QR": (ml.QR, lambda x: {"input": x}, np.linalg.qr),
    "SVD": (
        ml.SVD,
        lambda x: {"input": x},
        lambda x: np.linalg.svd(x, full_matrices=False),
    ),
    "Eigvalsh": (ml.Eigvalsh, lambda x: {"input": x + x.T}, np.linalg.eigvalsh),
    "Eigh": (ml.Eigh, lambda x: {"input": x + x.T}, np.linalg.eigh),
}


def complex_parts(block: Any) -> ml.Model:
    """The block with both parts of a complex input."""
    model = ml.Model()
    outputs = {name: name for name in block.outputs}
    model |= block(input="x", imaginary_input="y", **outputs)
    return model


# A name, the shape of the input, the block, and the same by SciPy. Each takes one array, or the two
# parts of a complex one.
Transform = tuple[str, tuple[int, ...], Callable[[], Any], Callable[..., Any]]


def of_length(n: int) -> list[Transform]:
    half = (n // 2 + 1,)
    return [
        ("RealFFT", (n,), ml.RealFFT, scipy.fft.rfft),
        ("FFT", (n,), lambda: complex_parts(ml.FFT()), lambda x, y: scipy.fft.fft(x + 1j * y)),
        (
            "InverseFFT",
            (n,),
            lambda: complex_parts(ml.InverseFFT()),
            lambda x, y: scipy.fft.ifft(x + 1j * y),
        ),
        (
            "InverseRealFFT",
            half,
            lambda: complex_parts(ml.InverseRealFFT(n=n)),
            lambda x, y: scipy.fft.irfft(x + 1j * y, n),
        ),
    ]


OF_SEVERAL_LINES: list[Transform] = [
    ("RealFFT", (64, 1000), ml.RealFFT, scipy.fft.rfft),
    ("FFT", (64, 1000), lambda: complex_parts(ml.FFT()), lambda x, y: scipy.fft.fft(x + 1j * y)),
    (
        "2-D FFT",
        (256, 256),
        lambda: complex_parts(ml.FFT(axis=(0, 1))),
        lambda x, y: scipy.fft.fft2(x + 1j * y),
    ),
]


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


def matrices(numbers: Any, dtype: Any) -> Iterator[float]:
    for name, (block, given, by) in MATRICES.items():
        for shape in SIZES + RECTANGLES * (name in RECTANGULAR):
            inputs = given(numbers.standard_normal(shape).astype(dtype))
            title = f"{name}, {shape[0]} x {shape[1]}, {np.dtype(dtype)}"
            yield compare(title, block, inputs, by)


def transforms(numbers: Any, dtype: Any) -> Iterator[float]:
    alone = [own for n in LENGTHS for own in of_length(n)]
    for name, shape, block, by in alone + OF_SEVERAL_LINES:
        keys = ("input",) if block is ml.RealFFT else ("x", "y")
        inputs = {key: numbers.standard_normal(shape).astype(dtype) for key in keys}
        title = f"{name}, {' x '.join(map(str, shape))}, {np.dtype(dtype)}"
        yield compare(title, block, inputs, by)


def main() -> int:
    numbers = np.random.default_rng(0)
    print(f"{'':32}{'native':>10}{'C':>10}{'SciPy':>10}{'/native':>8}{'/C':>8}")
    ratios = []
    for dtype in (np.float32, np.float64):
        ratios += [*matrices(numbers, dtype), *transforms(numbers, dtype)]
    return int("--check" in sys.argv and min(ratios) < 0.2)


if __name__ == "__main__":
    sys.exit(main())
