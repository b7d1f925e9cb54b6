"""What optimizing is worth for graphs as importers give them.

    python tests/benches/imported.py [--rounds 15]

Each graph spells one part of a model node by node, as exporters of ONNX do. It prints, with
`optimization_level="none"` and with the default: operations that the framework's source has,
launches of native code and the bytes they read and write, and milliseconds a call of one thread,
the least of several calls, both in turns.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import mithril as ml
from mithril.models import (
    Arange,
    Buffer,
    Cast,
    Concat,
    Dropout,
    Erf,
    ExpandDims,
    Gather,
    LessEqual,
    MatrixMultiply,
    Model,
    Relu,
    Reshape,
    Shape,
    Sigmoid,
    Softmax,
    Squeeze,
    Transpose,
    Where,
)

Value = Any
Shapes = dict[str, list[int]]

LEVELS = ("none", "full")
ROWS: Shapes = {"x": [512, 768]}
TEXT: Shapes = {"x": [4, 128, 768]}
VECTORS: Shapes = {name: [768] for name in ("weight", "bias")}
HEADS: Shapes = {name: [4, 12, 128, 64] for name in "qkv"}
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


class Graph:
    """A model that is written node by node."""

    def __init__(self) -> None:
        self.model = Model()
        self._count = 0

    def __call__(self, block: Any, *inputs: Value) -> Value:
        self._count += 1
        name = f"node_{self._count}"
        self.model |= block(*inputs, output=name)
        return getattr(self.model, name)

    def input(self, name: str) -> Value:
        return self(Buffer(), name)

    def concat(self, *dims: Value) -> Value:
        """One-element arrays as one: how shapes are put together."""
        return self(Concat(axis=0), list(dims))


@dataclass
class Case:
    name: str
    write: Callable[[Graph], Value]
    shapes: Shapes


CASES: list[Case] = []


def case(name: str, shapes: Shapes) -> Callable[[Callable[[Graph], Value]], None]:
    return lambda write: CASES.append(Case(name, write, shapes))


@case("identities and dropouts", ROWS)
def _(g: Graph) -> Value:
    x = g(Dropout(0.1), g(Buffer(), g.input("x")))
    x = g(Buffer(), g(Dropout(0.1), g(Buffer(), x * 1.0)))
    return g(Relu(), g(Relu(), x)) + x


@case("casts there and back", ROWS)
def _(g: Graph) -> Value:
    x = g.input("x")
    wide = g(Cast(ml.float64), x)
    y = g(Cast(ml.float32), wide) * 2.0
    mask = g(Cast(ml.float32), g(Cast(ml.int64), g(Cast(ml.int32), x > 0.0)))
    return y * mask


@case("transposes in pairs", {"x": [8, 64, 32, 32]})
def _(g: Graph) -> Value:
    last = g(Transpose((0, 2, 3, 1)), g.input("x"))
    first = g(Transpose((0, 3, 1, 2)), last)
    y = g(Transpose((0, 2, 3, 1)), g(Relu(), first))
    return g(Transpose((0, 3, 1, 2)), y * 2.0)


@case("squeezes and unsqueezes", TEXT)
def _(g: Graph) -> Value:
    x = g(Squeeze(0), g(ExpandDims(0), g.input("x")))
    y = g(ExpandDims(1), x)
    y = g(Squeeze(1), g(Relu(), g(Squeeze(2), g(ExpandDims(2), y))))
    return y + x


@case("heads by shape arithmetic", TEXT)
def _(g: Graph) -> Value:
    x = g.input("x")
    shape = g(Shape(), x)
    batch, tokens = (g(ExpandDims(0), g(Gather(), shape, axis)) for axis in (0, 1))
    heads = g(Reshape(), x, g.concat(batch, tokens, [12], [64]))
    turned = g(Transpose((0, 2, 1, 3)), heads) * 0.125
    back = g(Transpose((0, 2, 1, 3)), turned)
    return g(Reshape(), back, g.concat(batch, tokens, [768]))


@case("layer norm by nodes", {**TEXT, **VECTORS})
def _(g: Graph) -> Value:
    x = g.input("x")
    centred = x - x.mean(axis=-1, keepdim=True)
    variance = (centred**2.0).mean(axis=-1, keepdim=True)
    normal = centred / (variance + 1e-5).sqrt()
    return normal * g.input("weight") + g.input("bias")


@case("gelu by nodes", ROWS)
def _(g: Graph) -> Value:
    x = g.input("x")
    return (x * (g(Erf(), x / 1.4142135381698608) + 1.0)) * 0.5


@case("attention with a mask of -1e9", {**HEADS, "mask": [4, 1, 1, 128]})
def _(g: Graph) -> Value:
    q, k, v = (g.input(name) for name in "qkv")
    hidden = (1.0 - g.input("mask")) * -1e9
    scores = g(MatrixMultiply(), q, g(Transpose((0, 1, 3, 2)), k)) / 8.0 + hidden
    powers = (scores - scores.max(axis=-1, keepdim=True)).exp()
    return g(MatrixMultiply(), powers / powers.sum(axis=-1, keepdim=True), v)


@case("batch norm as arithmetic", {**ROWS, **VECTORS, "mean": [768], "variance": [768]})
def _(g: Graph) -> Value:
    x = g.input("x")
    mean, variance, weight, bias = (g.input(n) for n in ("mean", "variance", "weight", "bias"))
    return ((x - mean) * (1.0 / (variance + 1e-5).sqrt())) * weight + bias


@case("branches twice, masks of constants", {"x": [4, 128, 128]})
def _(g: Graph) -> Value:
    x = g.input("x")
    rows, columns = (g(ExpandDims(axis), g(Arange(128))) for axis in (1, 0))
    causal = g(LessEqual(), columns, rows)
    one, other = (g(Softmax(), g(Where(), causal, x * 0.125, -float("inf"))) for _ in range(2))
    return one * g(Sigmoid(), x) + other * g(Sigmoid(), x * 1.0)


def compiled(case: Case, backend: Any, level: str) -> ml.CompiledModel:
    """The case, compiled at a level for use."""
    graph = Graph()
    graph.model |= Buffer()(input=case.write(graph), output="y")
    options: dict[str, Any] = {"inference": True, "optimization_level": level}
    return ml.compile(graph.model, backend, shapes=case.shapes, **options)


def inputs(case: Case, backend: Any) -> dict[str, Any]:
    random = np.random.default_rng(0)
    arrays = {name: random.random(shape, np.float32) for name, shape in case.shapes.items()}
    return {name: backend.array(array) for name, array in arrays.items()}


def operations(model: ml.CompiledModel) -> int:
    """How many operations its source has: literals are none."""
    return len(re.findall(r"^  %.* = (?!constant\()", model.module, re.MULTILINE))


def launches(model: ml.CompiledModel) -> tuple[int, int]:
    """How many kernels native code calls, and how many bytes these read and write."""
    count = re.search(r"main: (\d+) launch", model.report())
    traffic = re.findall(r"x (\d+), .*?, ([\d.]+) (\w+):", model.report())
    times = [int(times) * float(size) * UNITS[unit] for times, size, unit in traffic]
    return int(count[1]) if count else 0, round(sum(times))


def milliseconds(case: Case, backend: Any, rounds: int) -> list[float]:
    models = [compiled(case, backend, level) for level in LEVELS]
    given = inputs(case, backend)
    best = [float("inf")] * len(models)
    for _ in range(rounds):
        for at, model in enumerate(models):
            start = time.perf_counter()
            model.evaluate({}, given)
            best[at] = min(best[at], time.perf_counter() - start)
    return [1e3 * seconds for seconds in best]


def main() -> None:
    """Prints a row for each graph."""
    import torch  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    native, framework = ml.CpuBackend(threads=1), ml.TorchBackend()
    print("| graph | operations | launches | MB | native ms | torch ms |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        counts = [operations(compiled(case, framework, level)) for level in LEVELS]
        calls = [launches(compiled(case, native, level)) for level in LEVELS]
        cells = [
            " → ".join(str(count) for count in counts),
            " → ".join(str(count) for count, _ in calls),
            " → ".join(f"{size / 1e6:.3g}" for _, size in calls),
            *(
                " → ".join(f"{ms:.3g}" for ms in milliseconds(case, backend, rounds))
                for backend in (native, framework)
            ),
        ]
        print(f"| {case.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
