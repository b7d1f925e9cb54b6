"""`mithril bench`: measures the cost of operations on this machine, on each backend."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from ._core import targets
from .errors import BackendError, MithrilError, UsageError

__all__ = ["measure", "measure_processes"]

BACKENDS = {target.name: target.class_name for target in targets() if target.measured}
"""The classes of the backends that are measured, by their short names."""

_CHAIN = 32
"""Operations in a chain."""
_MATRIX = 512
"""Rows and columns of the matrices whose product measures arithmetic."""
_CACHED = 256
"""Rows and columns of a matrix that stays in the cache."""
_LARGE = 2048
"""Rows and columns of a matrix that does not fit into the cache."""
_EXPONENTIAL = 13
"""The cost of an exponential and a negation, in float32 additions."""


def measure(backend: str) -> dict[str, float]:
    """Measures float32 operations on a backend of `BACKENDS`.

    Returns the fixed cost of an operation in nanoseconds (`overhead`), and three rates per
    nanosecond: bytes read and written (`bytes`), multiplications and additions of matrix products
    (`products`), and additions of elementwise operations on cached arrays (`scalars`).

    Errors: there is no such backend, or its framework is not installed.
    """
    if backend not in BACKENDS:
        known = ", ".join(BACKENDS)
        raise UsageError(f"there is no backend `{backend}` to measure\n  expected: {known}")
    from . import backends  # noqa: PLC0415

    make = getattr(backends, BACKENDS[backend])
    small = [_product_chain(make, count, 8) for count in (_CHAIN, 2 * _CHAIN)]
    overhead = max((small[1] - small[0]) / _CHAIN, 1.0)
    elements = _LARGE * _LARGE
    moved = max(_large_addition(make) - overhead, 1.0)
    product = max(_product_chain(make, 1, _MATRIX) - overhead, 1.0)
    scalar = max(_exponential_chain(make, _CHAIN) / _CHAIN - 2 * overhead, 1.0)
    return {
        "overhead": overhead,
        "bytes": 3 * 4 * elements / moved,
        "products": 2 * _MATRIX**3 / product,
        "scalars": _EXPONENTIAL * _CACHED**2 / scalar,
    }


def measure_processes() -> dict[str, float]:
    """Measures the processes of a mesh of PyTorch on this machine, one for each core, at most 4.

    Returns for a process, while all of them compute, multiplications and additions of matrix
    products (`products`) and bytes read and written (`bytes`) per nanosecond, and its part of the
    memory in bytes (`memory`); for a link between two processes bytes per nanosecond (`link`), and
    nanoseconds until the first byte arrives (`latency`).

    Errors: PyTorch is not installed.
    """
    import os  # noqa: PLC0415

    from .backends.torch import TorchBackend  # noqa: PLC0415
    from .memory import host_memory  # noqa: PLC0415

    count = min(max(os.cpu_count() or 2, 2), 4)
    backend = TorchBackend(device_mesh=(count,))
    try:
        from .backends.torch_speed import speeds  # noqa: PLC0415

        return {**backend.ranks.call(speeds), "memory": (host_memory() or 8e9) / count}
    finally:
        backend.close()


def _product_chain(make: Callable[[], Any], count: int, size: int) -> float:
    """Nanoseconds of a chain of products with a matrix whose elements are all 1 / `size`."""
    from .models import MatrixMultiply, Model  # noqa: PLC0415

    model = Model()
    last = "x"
    for step in range(count):
        output = f"y{step}" if step + 1 < count else "output"
        model |= MatrixMultiply()(left=last, right="w", output=output)
        last = output
    return _fastest(make, model, {"x": [size, size], "w": [size, size]}, 1 / size)


def _large_addition(make: Callable[[], Any]) -> float:
    """Nanoseconds of one addition of two matrices that do not fit into the cache."""
    from .models import Add, Model  # noqa: PLC0415

    model = Model()
    model |= Add()(left="x", right="w", output="output")
    return _fastest(make, model, {"x": [_LARGE, _LARGE], "w": [_LARGE, _LARGE]}, 1.0)


def _exponential_chain(make: Callable[[], Any], count: int) -> float:
    """Nanoseconds of a chain of exponentials, each of a negated value."""
    from .models import Exponential, Model, Negate  # noqa: PLC0415

    model = Model()
    last = "x"
    for step in range(count):
        output = f"y{step}" if step + 1 < count else "output"
        model |= Negate()(input=last, output=f"n{step}")
        model |= Exponential()(input=f"n{step}", output=output)
        last = output
    return _fastest(make, model, {"x": [_CACHED, _CACHED]}, 1.0)


def _fastest(
    make: Callable[[], Any], model: Any, shapes: dict[str, list[int]], fill: float
) -> float:
    """Minimum nanoseconds over several runs of the unoptimized model."""
    from .compilation import compile as compile_model  # noqa: PLC0415

    backend = make()
    compiled = compile_model(
        model, backend, shapes=shapes, inference=True, optimization_level="none"
    )
    data = {name: backend.ones(shape) * fill for name, shape in shapes.items()}

    def run() -> None:
        result = compiled.evaluate({}, data)["output"]
        if hasattr(result, "block_until_ready"):
            result.block_until_ready()

    run()
    least = float("inf")
    until = time.perf_counter() + 0.3
    while time.perf_counter() < until:
        start = time.perf_counter_ns()
        run()
        least = min(least, time.perf_counter_ns() - start)
    return least


def main(request: str) -> NoReturn:
    """Runs `mithril bench`: prints the measurements as JSON."""
    import json  # noqa: PLC0415
    import sys  # noqa: PLC0415

    asked = json.loads(request)
    requested, mesh = asked["backends"], asked["mesh"]
    backends = requested or ([] if mesh else BACKENDS)
    # Each is measured by a function; a backend may be missing, unless the user named it.
    calls: list[tuple[str, Callable[[], dict[str, float]]]] = [
        (backend, partial(measure, backend)) for backend in backends
    ]
    if mesh:
        calls.append(("cpu-gloo", measure_processes))
    measured = {}
    for name, call in calls:
        try:
            measured[name] = call()
        except (MithrilError, OSError) as error:
            if requested or mesh or not isinstance(error, BackendError):
                print(f"error: {error}", file=sys.stderr)
                sys.exit(2)
    print(json.dumps(measured))
    sys.exit(0)
