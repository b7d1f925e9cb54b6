"""What optimizing is worth for models that are spelled from primitives.

    python tests/benches/clumsy.py

prints milliseconds a call, one thread, by backend and `optimization_level`: the least of several
calls, the levels in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import mithril as ml
from mithril.models import Buffer, Erf, MatrixMultiply, Model, SwapAxes

LEVELS = ("none", "basic", "full")
ROUNDS = 7


def apply(model: Model, name: str, block: Any, *inputs: Any) -> Any:
    model |= block(*inputs, name)
    return getattr(model, name)


def attention() -> tuple[Model, dict[str, list[int]]]:
    """Softmax of scaled products, spelled out."""
    model = Model()
    q, k, v = (apply(model, f"{name}_0", Buffer(), name) for name in "qkv")
    turned = apply(model, "turned", SwapAxes(-1, -2), k)
    scores = apply(model, "scores", MatrixMultiply(), q, turned) / 8.0
    powers = (scores - scores.max(axis=-1, keepdim=True)).exp()
    weights = powers / powers.sum(axis=-1, keepdim=True)
    apply(model, "y", MatrixMultiply(), weights, v)
    return model, {name: [1, 12, 512, 64] for name in "qkv"}


def layer_norm() -> tuple[Model, dict[str, list[int]]]:
    """A norm over rows by its means."""
    model = Model()
    x = apply(model, "x_0", Buffer(), "x")
    centred = x - x.mean(axis=-1, keepdim=True)
    y = centred / ((centred**2).mean(axis=-1, keepdim=True) + 1e-5) ** 0.5
    model |= Buffer()(input=y, output="y")
    return model, {"x": [4096, 768]}


def gelu() -> tuple[Model, dict[str, list[int]]]:
    """The normal distribution's share, times x."""
    model = Model()
    x = apply(model, "x_0", Buffer(), "x")
    y = x * 0.5 * (1.0 + apply(model, "erf", Erf(), x / 1.4142135623730951))
    model |= Buffer()(input=y, output="y")
    return model, {"x": [1024, 1024]}


def softmax() -> tuple[Model, dict[str, list[int]]]:
    """Exponentials over their sum: without a maximum, as it is written the first time."""
    model = Model()
    powers = apply(model, "x_0", Buffer(), "x").exp()
    model |= Buffer()(input=powers / powers.sum(axis=-1, keepdim=True), output="y")
    return model, {"x": [4096, 1024]}


def measure(make: Callable[[], Any], backend: Any) -> dict[str, float]:
    """Milliseconds by level."""
    model, shapes = make()
    numbers = np.random.default_rng(0)
    inputs = {
        name: backend.array(numbers.standard_normal(shape).astype(np.float32))
        for name, shape in shapes.items()
    }
    compiled = {
        level: ml.compile(model, backend, shapes=shapes, inference=True, optimization_level=level)
        for level in LEVELS
    }
    best = dict.fromkeys(LEVELS, float("inf"))
    for _ in range(ROUNDS):
        for level, run in compiled.items():
            start = time.perf_counter()
            np.asarray(run.evaluate({}, inputs)["y"])
            best[level] = min(best[level], time.perf_counter() - start)
    return {level: 1e3 * seconds for level, seconds in best.items()}


def main() -> None:
    """Prints a row for each model and backend."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    backends = [ml.CpuBackend(threads=1), ml.NumpyBackend(), ml.TorchBackend()]
    print(f"{'model':12}{'backend':10}" + "".join(f"{level:>10}" for level in LEVELS))
    for make in (attention, layer_norm, gelu, softmax):
        for backend in backends:
            row = measure(make, backend)
            cells = "".join(f"{row[level]:10.2f}" for level in LEVELS)
            print(f"{make.__name__:12}{backend.kind:10}{cells}")


if __name__ == "__main__":
    main()
