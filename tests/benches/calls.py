"""What `evaluate` costs beyond the generated function, by backend and number of arrays.

    python tests/benches/calls.py [--rounds 20000]

The bound is 3 µs for up to eight arrays and 50 ns for each more: for arrays that were seen before,
and for new ones at each call, as those of a training step are. It prints a table, and fails where a
bound is exceeded and `--check` is given.
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


def best(call: Callable[..., Any], arguments: list[Any], rounds: int) -> float:
    """Seconds a call takes, the least of twenty measurements or more."""
    least = float("inf")
    rounds = max(rounds // 20 // len(arguments), 1)
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(rounds):
            for params, inputs in arguments:
                call(params, inputs)
        least = min(least, (time.perf_counter() - start) / rounds / len(arguments))
    return least


def stepped(backend: Any, params: dict[str, Any]) -> dict[str, Any]:
    """New params, as a step of training makes them."""
    if backend.kind != "jax":
        return {name: value * 2 for name, value in params.items()}
    import jax  # noqa: PLC0415

    new: dict[str, Any] = jax.jit(lambda own: {n: v * 2 for n, v in own.items()})(params)
    return new


def overhead(backend: Any, layers: int, rounds: int) -> tuple[int, float, float, float]:
    """The number of arrays; seconds beyond the generated function, for the same arrays and for new
    ones; the generated function's own."""
    compiled = ml.compile(chain(layers), backend, shapes={"input": [2, 4]}, jit=backend.jit_default)
    known = (compiled.randomize_params(seed=0), {"input": backend.ones(2, 4)})
    # More than the caches nearest to the processor hold.
    new = [(stepped(backend, known[0]), {"input": backend.ones(2, 4)}) for _ in range(20)]
    compiled.evaluate(*known)
    variant = compiled._variant
    forward = variant.forward
    variant.forward = nothing
    costs = [
        best(compiled.evaluate, arguments, rounds) - best(nothing, arguments, rounds)
        for arguments in ([known] * 20, new)
    ]
    variant.forward = forward
    return len(known[0]) + 1, *costs, best(forward, [known], max(rounds // 10, 20))


def nothing(params: object, inputs: object) -> None:
    """In the place of the generated function, whose own time varies more than what is measured."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20000)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    exceeded = False
    print(f"{'backend':8}{'arrays':>8}{'same':>12}{'new':>12}{'bound':>12}{'function':>12}")
    kinds = (ml.NumpyBackend, ml.TorchBackend, ml.JaxBackend, ml.MlxBackend, ml.TinygradBackend)
    for make in kinds:
        try:
            backend = make()
        except ml.BackendError as error:
            print(str(error).splitlines()[0])
            continue
        for layers in (1, 3, 20, 100):
            arrays, same, new, function = overhead(backend, layers, options.rounds)
            bound = 3e-6 + 50e-9 * max(0, arrays - 8)
            exceeded |= max(same, new) > bound
            times = "".join(f"{1e6 * t:9.2f} µs" for t in (same, new, bound, function))
            print(f"{backend.kind:8}{arrays:8}{times}")
    return int(exceeded and options.check)


if __name__ == "__main__":
    sys.exit(main())
