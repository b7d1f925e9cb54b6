"""Fourier transforms compared with PyTorch's and SciPy's, forward and gradients, on every backend,
with fixed and open dims."""

from collections.abc import Callable
from typing import Any

import levels
import numpy as np
import pytest
import scipy.fft
import torch
from conftest import CLASSES

import mithril as ml

RNG = np.random.default_rng(5)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def complex_of(parts: tuple[Any, ...]) -> Any:
    return torch.complex(*parts) if len(parts) == 2 else parts[0]


def parts_of(function: Callable[..., Any], **settings: Any) -> Callable[..., tuple[Any, ...]]:
    """The real and the imaginary part of a function of one or two parts."""

    def both(*parts: Any) -> tuple[Any, ...]:
        y = function(complex_of(parts), **settings)
        return (y.real, y.imag) if y.is_complex() else (y,)

    return both


def two(*shape: int) -> list[Any]:
    return [numbers(*shape), numbers(*shape)]


# The lengths need all kinds of passes: factors 2 to 5, unrolled ones, loops, and convolutions.
LENGTHS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 32, 49, 60, 64, 67, 77, 97, 101, 118]
CASES: list[tuple[Any, list[Any], Callable[..., tuple[Any, ...]]]] = [
    *[(ml.FFT(), two(3, n), parts_of(torch.fft.fft)) for n in LENGTHS],
    *[(ml.InverseFFT(), two(3, n), parts_of(torch.fft.ifft)) for n in LENGTHS],
    *[(ml.RealFFT(), [numbers(3, n)], parts_of(torch.fft.rfft)) for n in LENGTHS],
    *[
        (ml.InverseRealFFT(n=n), two(3, n // 2 + 1), parts_of(torch.fft.irfft, n=n))
        for n in LENGTHS
    ],
    (ml.InverseRealFFT(), two(2, 9), parts_of(torch.fft.irfft)),
    (ml.FFT(), [numbers(8)], parts_of(torch.fft.fft)),
    (ml.FFT(), two(1), parts_of(torch.fft.fft)),
    (ml.FFT(), two(0, 6), parts_of(torch.fft.fft)),
    (ml.RealFFT(), [numbers(2, 0, 6)], parts_of(torch.fft.rfft)),
    # More lines than lanes, and lines that are not contiguous.
    (ml.FFT(), two(37, 12), parts_of(torch.fft.fft)),
    (ml.FFT(axis=0), two(12, 37), parts_of(torch.fft.fft, dim=0)),
    (ml.FFT(axis=1), two(3, 10, 32), parts_of(torch.fft.fft, dim=1)),
    (ml.InverseFFT(axis=-2), two(2, 10, 5), parts_of(torch.fft.ifft, dim=-2)),
    (ml.RealFFT(axis=0), [numbers(15, 4)], parts_of(torch.fft.rfft, dim=0)),
    (ml.InverseRealFFT(axis=0), two(6, 19), parts_of(torch.fft.irfft, dim=0)),
    *[
        (block(norm=norm), two(2, 6), parts_of(function, norm=norm))
        for norm in ("ortho", "forward")
        for block, function in (
            (ml.FFT, torch.fft.fft),
            (ml.InverseFFT, torch.fft.ifft),
            (ml.InverseRealFFT, torch.fft.irfft),
        )
    ],
    (ml.RealFFT(norm="ortho"), [numbers(2, 7)], parts_of(torch.fft.rfft, norm="ortho")),
    # Cut, and padded with zeros.
    *[
        case
        for n in (4, 10, 101)
        for case in (
            (ml.FFT(n=n), two(2, 6), parts_of(torch.fft.fft, n=n)),
            (ml.FFT(n=n, axis=0), [numbers(6, 2)], parts_of(torch.fft.fft, n=n, dim=0)),
            (ml.InverseFFT(n=n), two(2, 6), parts_of(torch.fft.ifft, n=n)),
            (ml.RealFFT(n=n), [numbers(2, 6)], parts_of(torch.fft.rfft, n=n)),
            (ml.InverseRealFFT(n=n), two(2, 6), parts_of(torch.fft.irfft, n=n)),
        )
    ],
    # Several axes.
    (ml.FFT(axis=[-2, -1]), two(2, 6, 8), parts_of(torch.fft.fft2)),
    (
        ml.FFT(axis=[0, 2], n=[4, 5]),
        two(6, 2, 3),
        parts_of(torch.fft.fftn, s=(4, 5), dim=(0, 2)),
    ),
    (
        ml.InverseFFT(axis=[-2, -1], norm="ortho"),
        two(6, 8),
        parts_of(torch.fft.ifft2, norm="ortho"),
    ),
    (ml.RealFFT(axis=[-2, -1]), [numbers(2, 6, 9)], parts_of(torch.fft.rfft2)),
    (ml.InverseRealFFT(axis=[-2, -1]), two(6, 5), parts_of(torch.fft.irfft2)),
    (
        ml.InverseRealFFT(axis=[0, 1], n=[3, 7]),
        two(6, 5),
        parts_of(torch.fft.irfft2, s=(3, 7), dim=(0, 1)),
    ),
]


def compile_with(block: Any, backend: Any, shapes: Any) -> Any:
    names = list(shapes)
    model = ml.Model()
    model |= block(**{n: n for n in names}, **{o: o for o in block.outputs})
    return ml.compile(model, backend, shapes=shapes, trainable_keys=names)


def check(compiled: Any, backend: Any, arrays: Any, reference: Any) -> None:
    """Compares outputs and gradients with those of a function of torch in double precision."""
    names, to = list(compiled.params), np.dtype(backend.dtype.name)
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    want = reference(*leaves)
    outputs = ["real", "imaginary"] if len(want) == 2 else ["output"]
    seeds = [RNG.standard_normal(y.shape) for y in want]
    torch.autograd.backward(want, [torch.tensor(seed) for seed in seeds])
    params = {n: backend.array(a.astype(to)) for n, a in zip(names, arrays, strict=True)}
    given = {n: backend.array(seed.astype(to)) for n, seed in zip(outputs, seeds, strict=True)}
    got, gradients = compiled.evaluate(params, {}, output_gradients=given)
    tolerance = 3e-6 if to == np.float32 else 1e-13
    pairs = [(got[n], y.detach()) for n, y in zip(outputs, want, strict=True)]
    pairs += [(gradients[n], leaf.grad) for n, leaf in zip(names, leaves, strict=True)]
    for found, wanted in pairs:
        value = backend.to_numpy(found)
        assert value.dtype == to and value.shape == wanted.shape
        scale = wanted.abs().max().item() if wanted.numel() else 1
        np.testing.assert_allclose(value, wanted, rtol=0, atol=tolerance * max(scale, 1e-6))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_transforms_are_those_of_torch(case, named, backend):
    block, arrays, reference = CASES[case]
    names = list(block.inputs)[: len(arrays)]
    shape = [f"n{size}" if named else size for size in arrays[0].shape]
    compiled = compile_with(block, backend, dict.fromkeys(names, shape))
    check(compiled, backend, arrays, reference)


@pytest.mark.parametrize("make", [ml.NumpyBackend, ml.CpuBackend, ml.CBackend])
def test_one_program_transforms_all_lengths(make):
    """In double precision, with the accuracy of SciPy."""
    backend = make(dtype=ml.float64)
    names = ["input", "imaginary_input"]
    compiled = compile_with(ml.FFT(), backend, {name: ["b", "n"] for name in names})
    lengths = [*range(1, 70), 97, 127, 128, 211, 343, 997, 1000, 1024, 1331, 2310, 3721, 4099]
    # The compiler of C takes long for each length.
    part = 4 if make is ml.CBackend and not levels.ALL else 1
    for n in lengths[int(levels.SEED) % part :: part]:
        check(compiled, backend, two(2, n), parts_of(torch.fft.fft))


@pytest.mark.parametrize("n", [16, 64, 97, 997, 1000, 1024, 4096, 4099])
def test_errors_are_those_of_pocketfft(n):
    """Single precision, against transforms in double precision."""
    x = numbers(20, n) + 1j * numbers(20, n)
    want = scipy.fft.fft(x)
    own = scipy.fft.fft(x.astype(np.complex64))
    backend = ml.CpuBackend()
    names = ["input", "imaginary_input"]
    compiled = compile_with(ml.FFT(), backend, {name: [20, n] for name in names})
    inputs = dict(zip(names, (x.real.astype(np.float32), x.imag.astype(np.float32)), strict=True))
    got = compiled.evaluate(inputs, {})
    got = got["real"] + 1j * got["imaginary"]
    error = np.sqrt(np.mean(np.abs(got - want) ** 2) / np.mean(np.abs(want) ** 2))
    theirs = np.sqrt(np.mean(np.abs(own - want) ** 2) / np.mean(np.abs(want) ** 2))
    assert error < 2 * theirs


def test_second_order(backend):
    """The gradient of a squared gradient, against torch."""
    x = numbers(3, 6).astype(np.float32)
    model = ml.Model()
    model |= ml.RealFFT()(input="x", real="real", imaginary="imaginary")
    model |= ml.InverseRealFFT()(
        input=model.real**2, imaginary_input=model.imaginary * model.real, output="output"
    )
    model |= ml.Sum()(input=model.output**2, output="total")
    compiled = ml.compile(model, backend, shapes={"x": [3, 6]}, trainable_keys=["x"])
    one = {"total": backend.array(np.float32(1))}
    _, gradients = compiled.evaluate({"x": backend.array(x)}, {}, output_gradients=one)
    leaf = torch.tensor(x, requires_grad=True)
    y = torch.fft.rfft(leaf)
    z = torch.fft.irfft(torch.complex(y.real**2, y.imag * y.real))
    (z**2).sum().backward()
    np.testing.assert_allclose(backend.to_numpy(gradients["x"]), leaf.grad, rtol=2e-5, atol=1e-3)


def test_halves_are_computed_in_single_precision():
    x = (numbers(3, 50) * 30).astype(np.float16)
    want = torch.fft.rfft(torch.tensor(x).float())
    for make in CLASSES:
        backend = make(dtype=ml.float16)
        compiled = ml.compile(ml.RealFFT(), backend, shapes={"input": [3, 50]})
        got = compiled.evaluate({}, {"input": backend.array(x)})
        for name, part in (("real", want.real), ("imaginary", want.imag)):
            value = backend.to_numpy(got[name])
            assert value.dtype == np.float16
            np.testing.assert_allclose(value, part.half(), rtol=2e-3, atol=0.5)


def test_source_is_what_one_would_write():
    backend = ml.NumpyBackend(dtype=ml.float64)
    numpy = compile_with(ml.FFT(), backend, {"input": [3, 8], "imaginary_input": [3, 8]})
    assert "spectrum = np.fft.fft(x + 1j * imaginary_input)\n" in numpy.code
    assert "spectrum.real" in numpy.code and "spectrum.imag" in numpy.code
    shapes: Any = {"input": ["b", 8]}
    torch_ = ml.compile(ml.RealFFT(n=6), ml.TorchBackend(), shapes=shapes, inference=True)
    assert "spectrum = torch.fft.rfft(x, n=6)\n" in torch_.code
    jax = ml.compile(ml.RealFFT(norm="ortho"), ml.JaxBackend(), shapes=shapes, inference=True)
    assert 'spectrum = jnp.fft.rfft(x, norm="ortho")\n' in jax.code


@pytest.mark.parametrize(
    ("block", "shape", "message"),
    [
        (ml.FFT(), [], "scalar"),
        (ml.FFT(axis=2), [3, 4], "axis"),
        (ml.FFT(axis=[0, -2]), [3, 4], "named twice"),
        (ml.FFT(n=[2, 3]), [3, 4], "`n` must have a length for each axis"),
        (ml.RealFFT(), [3, 0], "no elements"),
        (ml.InverseRealFFT(), [3, 1], "no elements"),
    ],
)
def test_mistakes_are_explained(block, shape, message):
    with pytest.raises(ml.MithrilError, match=message):
        ml.compile(block, ml.NumpyBackend(), shapes={"input": shape})


@pytest.mark.parametrize("cpu", [None, "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("dtype", [ml.float32, ml.float64])
def test_a_single_line_of_each_length(cpu, dtype):
    """A line that is alone, in vectors of any width."""
    backend = ml.CpuBackend(dtype=dtype, **({"cpu": cpu} if cpu else {}))
    for n in (*range(1, 20), 25, 31, 97):
        for shape in ([n], [1, n], ["n"]):
            x = numbers(n).astype(dtype.name).reshape([n if s == "n" else s for s in shape])
            compiled = ml.compile(ml.FFT(), backend, shapes={"input": shape})
            outputs = compiled.evaluate({}, {"input": x})
            want = np.fft.fft(x)
            got = outputs["real"] + 1j * outputs["imaginary"]
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
