"""What `evaluate` costs beyond the generated function, by backend and number of arrays.

    python tests/benches/calls.py [--rounds 20000]

The bound is 3 µs for up to eight arrays and 50 ns for each more. It prints a table, and fails where
a bound is exceeded and `--check` is given.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import mithril as ml


def chain(layers: int) -> ml.Block:
    """A model of `layers` linear layers: two params each, and one input."""
    model = ml.Model()
    for _ in range(layers):
        model += ml.Linear(4)
    return model


def best(call: Callable[[], Any], rounds: int) -> float:
    """Seconds a call takes, the least of twenty measurements."""
    least = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(rounds // 20):
            call()
        least = min(least, (time.perf_counter() - start) / (rounds // 20))
    return least


def overhead(backend: Any, layers: int, rounds: int) -> tuple[int, float, float]:
    """The number of arrays, and seconds beyond the generated function: with its work and alone."""
    compiled = ml.compile(chain(layers), backend, shapes={"input": [2, 4]}, jit=False)
    params = compiled.randomize_params(seed=0)
    inputs = {"input": backend.ones(2, 4)}
    compiled.evaluate(params, inputs)
    forward = compiled._forward
    compiled._forward = nothing
    alone = best(lambda: compiled.evaluate(params, inputs), rounds)
    alone -= best(lambda: nothing(params, inputs), rounds)
    compiled._forward = forward
    return len(params) + 1, alone, best(lambda: forward(params, inputs), max(rounds // 10, 20))


def nothing(params: object, inputs: object) -> None:
    """In the place of the generated function, whose own time varies more than what is measured."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20000)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    exceeded = False
    print(f"{'backend':8}{'arrays':>8}{'overhead':>12}{'bound':>10}{'function':>12}")
    for make in (ml.NumpyBackend, ml.TorchBackend, ml.JaxBackend):
        try:
            backend = make()
        except ml.BackendError as error:
            print(str(error).splitlines()[0])
            continue
        for layers in (1, 3, 20, 100):
            arrays, cost, function = overhead(backend, layers, options.rounds)
            bound = 3e-6 + 50e-9 * max(0, arrays - 8)
            exceeded |= cost > bound
            print(
                f"{backend.kind:8}{arrays:8}{1e6 * cost:9.2f} µs{1e6 * bound:7.2f} µs"
                f"{1e6 * function:9.1f} µs"
            )
    return int(exceeded and options.check)


if __name__ == "__main__":
    sys.exit(main())
