"""Random models: what all backends make of them, against each operation as it stands.

    python tests/python/fuzz.py 2000 --first 0

prints the seeds whose results differ, and how.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import mithril as ml
from mithril.models import (
    Absolute,
    Buffer,
    Erf,
    Gelu,
    Linear,
    LogSoftmax,
    MatrixMultiply,
    Maximum,
    Minimum,
    Model,
    Relu,
    Sigmoid,
    Silu,
    Softmax,
    SwapAxes,
    Tanh,
    Where,
)

BACKENDS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: ml.NumpyBackend(dtype=ml.float64),
    "torch": lambda: ml.TorchBackend(dtype=ml.float64),
    "jax": lambda: ml.JaxBackend(dtype=ml.float64),
    "cpu": lambda: ml.CpuBackend(dtype=ml.float64),
    "c": lambda: ml.CBackend(dtype=ml.float64),
}
# Whatever a model computes, sums of so few numbers do not lose more.
TOLERANCE = 1e-8

Value = Any


class Grower:
    """A model that grows by random operations on its values."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.model = Model()
        self.count = 0
        self.shapes: dict[str, list[int]] = {}
        # Connections with their shapes.
        self.values: list[tuple[Value, tuple[int, ...]]] = []
        for at in range(self.choose.randint(1, 3)):
            shape = self.choose.choice([(3, 4), (4, 4), (2, 3, 4), (4,), (3, 1), (1, 4)])
            self.shapes[f"x{at}"] = list(shape)
            self.keep(self.apply(Buffer(), f"x{at}"), shape)

    def apply(self, block: Any, *inputs: Value) -> Value:
        name = f"v{self.count}"
        self.count += 1
        self.model |= block(*inputs, name)
        return getattr(self.model, name)

    def keep(self, value: Value, shape: tuple[int, ...]) -> None:
        self.values.append((value, shape))

    def pick(self) -> tuple[Value, tuple[int, ...]]:
        # The newest are read the most, so that chains grow long.
        return self.values[-1 - min(int(self.choose.expovariate(0.6)), len(self.values) - 1)]

    def unary(self) -> None:
        x, shape = self.pick()
        tame = self.apply(Tanh(), x)
        ways: list[Callable[[], Value]] = [
            lambda: x * self.choose.choice([1.0, -1.0, 2.0, 0.5, 3.0]),
            lambda: x + self.choose.choice([0.0, 1.0, -2.0]),
            lambda: x / self.choose.choice([1.0, 4.0, -3.0]),
            lambda: -x,
            lambda: x**2,
            lambda: tame**3,
            tame.exp,
            (x**2 + 0.5).sqrt,
            (x**2 + 0.5).log,
            lambda: (x * x + 1.0) ** -0.5,
            lambda: 1.0 / (1.0 + (-tame).exp()),
            lambda: tame.exp().log(),
            lambda: self.apply(Absolute(), x),
            lambda: self.apply(Gelu(), x),
            lambda: self.apply(Silu(), x),
            lambda: self.apply(Sigmoid(), x),
            lambda: self.apply(Where(), x > 0.25, x, 0.5 * x),
            lambda: self.apply(Relu(), self.apply(Relu(), x)),
            lambda: x * (0.5 * (1.0 + self.apply(Erf(), x / 1.4142135623730951))),
            lambda: tame,
        ]
        self.keep(self.choose.choice(ways)(), shape)

    def binary(self) -> None:
        (x, a), (y, b) = self.pick(), self.choose.choice(self.values)
        try:
            shape = np.broadcast_shapes(a, b)
        except ValueError:
            return
        ways: list[Callable[[], Value]] = [
            lambda: x + y,
            lambda: x - y,
            lambda: x * y,
            lambda: x / (y * y + 1.0),
            lambda: self.apply(Maximum(), x, y),
            lambda: self.apply(Minimum(), x, y),
            lambda: (x + y) - y * 0.5,
            lambda: x * y + x,
            lambda: self.apply(Where(), x > y, x, y),
        ]
        self.keep(self.choose.choice(ways)(), shape)

    def fold(self) -> None:
        x, shape = self.pick()
        axis = self.choose.randrange(len(shape))
        axis = self.choose.choice([axis, axis - len(shape)])
        keep = self.choose.choice([True, False])
        kept = [1 if at == axis % len(shape) else n for at, n in enumerate(shape)]
        left = tuple(kept) if keep else shape[: axis % len(shape)] + shape[axis % len(shape) + 1 :]
        options = {"axis": axis, "keepdim": keep}
        ways: list[Callable[[], Value]] = [
            lambda: x.sum(**options),
            lambda: x.mean(**options),
            lambda: x.max(**options),
            lambda: x.var(**options),
            lambda: x.sum(**options) / float(shape[axis]),
            lambda: self.apply(Tanh(), x).exp().sum(**options).log(),
        ]
        if left:
            self.keep(self.choose.choice(ways)(), left)

    def rows(self) -> None:
        x, shape = self.pick()
        centred = x - x.mean(axis=-1, keepdim=True)
        tame = self.apply(Tanh(), x)

        def softmax() -> Value:
            powers = tame.exp()
            return powers / powers.sum(axis=-1, keepdim=True)

        def shifted() -> Value:
            powers = (x - x.max(axis=-1, keepdim=True)).exp()
            return powers * (1.0 / powers.sum(axis=-1, keepdim=True))

        def norm() -> Value:
            return centred / ((centred**2).mean(axis=-1, keepdim=True) + 0.01).sqrt()

        ways = [
            softmax,
            shifted,
            norm,
            lambda: self.apply(Softmax(), x),
            lambda: self.apply(LogSoftmax(), x),
            lambda: x / ((x * x).mean(axis=-1, keepdim=True) + 0.01).sqrt(),
        ]
        self.keep(self.choose.choice(ways)(), shape)

    def layout(self) -> None:
        x, shape = self.pick()
        order = list(range(len(shape)))
        self.choose.shuffle(order)
        flat = int(np.prod(shape))
        turned = tuple(shape[axis] for axis in order)
        ways: list[tuple[Callable[[], Value], tuple[int, ...]]] = [
            (lambda: x.transpose(tuple(order)), turned),
            (lambda: x.reshape((flat,)), (flat,)),
            (lambda: x.reshape((1, *shape)), (1, *shape)),
            (lambda: x.expand_dims(0), (1, *shape)),
            (lambda: x.reshape((flat,)).reshape(shape), shape),
        ]
        way, left = self.choose.choice(ways)
        if len(left) <= 4:
            self.keep(way(), left)

    def product(self) -> None:
        x, shape = self.pick()
        if len(shape) < 2:
            return
        width = self.choose.choice([2, 3, 4])
        if self.choose.random() < 0.5:
            name = f"v{self.count}"
            self.count += 1
            self.model |= Linear(width)(input=x, output=name)
            self.keep(getattr(self.model, name), (*shape[:-1], width))
        else:
            turned = self.apply(SwapAxes(-1, -2), x)
            scores = self.apply(MatrixMultiply(), x, turned) * 0.5
            self.keep(self.apply(MatrixMultiply(), self.apply(Softmax(), scores), x), shape)

    def grown(self) -> Model:
        kinds = [self.unary, self.unary, self.binary, self.fold, self.rows, self.layout]
        for _ in range(self.choose.randint(4, 14)):
            self.choose.choice([*kinds, self.product])()
        value, _ = self.values[-1]
        self.model |= Buffer()(input=value, output="y")
        return self.model


def arrays(backend: Any, given: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: backend.array(value) for name, value in given.items()}


def results(compiled: Any, inputs: dict[str, np.ndarray], params: dict[str, np.ndarray]) -> Any:
    """The output, and the gradient of its sum by each param."""
    backend = compiled.backend
    own = (arrays(backend, params), arrays(backend, inputs))
    if not params:
        return [np.asarray(compiled.evaluate(*own)["y"])]
    outputs = compiled.evaluate(*own)
    ones = {"y": backend.array(np.ones_like(np.asarray(outputs["y"])))}
    outputs, gradients = compiled.evaluate(*own, output_gradients=ones)
    return [np.asarray(outputs["y"]), *(np.asarray(gradients[name]) for name in sorted(params))]


def check(seed: int, backends: list[str]) -> str | None:
    """What is wrong on one of the backends; `None` where all agree."""
    grower = Grower(seed)
    model = grower.grown()
    numbers = np.random.default_rng(seed)
    inputs = {name: numbers.standard_normal(s) for name, s in grower.shapes.items()}
    options = {"shapes": grower.shapes}
    plain = ml.compile(model, BACKENDS["numpy"](), optimization_level="none", **options)
    inputs = {name: inputs[name] for name in plain.inputs}
    params = {
        name: 0.5 * numbers.standard_normal(value.shape)
        for name, value in plain.randomize_params(seed=0).items()
    }
    expected = results(plain, inputs, params)
    scale = max(float(np.max(np.abs(e), initial=1.0)) for e in expected)
    for name in backends:
        compiled = ml.compile(model, BACKENDS[name](), **options)
        for at, (got, want) in enumerate(zip(results(compiled, inputs, params), expected)):
            if got.shape != want.shape:
                return f"{name}: result {at} has the shape {got.shape}, expected {want.shape}"
            far = np.abs(got - want) > TOLERANCE * (scale + np.abs(want))
            if np.any(far | (np.isfinite(want) & ~np.isfinite(got))):
                worst = float(np.max(np.abs(got - want)))
                return f"{name}: result {at} is {worst:.3g} away"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, help="how many models")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--backends", default=",".join(BACKENDS), help="among them")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    failures = 0
    for seed in range(given.first, given.first + given.count):
        try:
            wrong = check(seed, given.backends.split(","))
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            failures += 1
            print(f"seed {seed}: {wrong}", flush=True)
    print(f"{failures} of {given.count} models differ")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
