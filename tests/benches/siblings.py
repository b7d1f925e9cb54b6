"""What joining products that share an operand is worth.

    python tests/benches/siblings.py

prints microseconds a call at `optimization_level="basic"`, which joins nothing, and at the default,
one thread, by case and backend: the least of many calls, the two in turns.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import mithril as ml
from mithril.models import Linear, Model, MultiHeadAttention

SECONDS = 0.5


def siblings(width: int, count: int, use_bias: bool) -> Model:
    model = Model()
    for at in range(count):
        model |= Linear(width, use_bias=use_bias)(input="x", output=f"y{at}")
    return model


def attention() -> Model:
    model = Model()
    model |= MultiHeadAttention(12)(input="x", output="y0")
    return model


# The model, the shape of its input, and whether its weights are known or it is trained.
CASES: list[tuple[str, Callable[[], Model], list[int], str]] = [
    ("3 of 64 with biases, 1 row, bound", lambda: siblings(64, 3, True), [1, 64], "bound"),
    ("3 of 64 with biases, 8 rows, bound", lambda: siblings(64, 3, True), [8, 64], "bound"),
    ("12 of 64 with biases, 8 rows, bound", lambda: siblings(64, 12, True), [8, 64], "bound"),
    ("3 of 768 with biases, 1 row, bound", lambda: siblings(768, 3, True), [1, 768], "bound"),
    ("3 to 4 columns, 4096x768", lambda: siblings(4, 3, False), [4096, 768], "given"),
    ("the same, trained", lambda: siblings(4, 3, False), [4096, 768], "trained"),
    ("attention of GPT-2, 128 tokens, bound", attention, [1, 128, 768], "bound"),
    ("the same, trained", attention, [1, 128, 768], "trained"),
]


def calls(make: Callable[[], Model], backend: Any, shape: list[int], how: str) -> list[Any]:
    def compiled(level: str) -> Callable[[], Any]:
        own = (
            {"autodiff": "mithril"} if how == "trained" and backend.kind in ("torch", "jax") else {}
        )
        made = ml.compile(
            make(),
            backend,
            shapes={"x": shape},
            inference=how != "trained",
            optimization_level=level,
            **own,
        )
        numbers = np.random.default_rng(0)
        draw = lambda of: backend.array(numbers.standard_normal(of).astype(np.float32))  # noqa: E731
        params = {name: draw(value.shape) for name, value in made.randomize_params().items()}
        inputs = {"x": draw(shape)}
        if how == "bound":
            made, params = made.bind(params), {}
        if how == "trained":
            outputs = made.evaluate(params, inputs)
            own = {"output_gradients": {name: draw(value.shape) for name, value in outputs.items()}}
            return lambda: made.evaluate(params, inputs, **own)
        return lambda: made.evaluate(params, inputs)

    return [compiled("basic"), compiled("full")]


def fastest(calls: list[Callable[[], Any]], wait: Callable[[Any], Any]) -> list[float]:
    best = [float("inf")] * len(calls)
    for call in calls:
        wait(call())
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for at, call in enumerate(calls):
            start = time.perf_counter()
            wait(call())
            best[at] = min(best[at], time.perf_counter() - start)
    return [1e6 * seconds for seconds in best]


def main() -> None:
    """Prints a row for each case."""
    import jax  # noqa: PLC0415

    torch.set_num_threads(1)
    backends = [ml.NumpyBackend(), ml.TorchBackend(), ml.JaxBackend(), ml.CpuBackend(threads=1)]
    for name, make, shape, how in CASES:
        cells = []
        for backend in backends:
            wait = jax.block_until_ready if backend.kind == "jax" else lambda value: value
            before, after = fastest(calls(make, backend, shape, how), wait)
            cells.append(f"{backend.kind} {before:.1f} → {after:.1f}")
        print(f"{name}: " + ", ".join(cells), flush=True)


if __name__ == "__main__":
    main()
