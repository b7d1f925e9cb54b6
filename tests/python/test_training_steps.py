"""Steps of optimizers keep the dtypes of params, and gradients have them: the optimizers of the
frameworks, and Adam written out on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril import _core
from mithril.models import Linear, Sequential

Arrays = dict[str, Any]
Step = Callable[[Arrays, Arrays], Arrays]
RATE = 0.1
MOMENTUM = {"momentum": 0.9}
# Optimizers of each framework, with their settings.
OPTIMIZERS: dict[str, dict[str, dict[str, float]]] = {
    "torch": {"SGD": MOMENTUM, "Adam": {}, "AdamW": {}, "RMSprop": {}, "Adagrad": {}, "NAdam": {}},
    "jax": {
        **{"sgd": MOMENTUM, "adam": {}, "adamw": {}, "lion": {}},
        **{"rmsprop": {}, "adagrad": {}, "adafactor": {}},
    },
    "mlx": {
        **{"SGD": MOMENTUM, "Adam": {}, "AdamW": {}, "Lion": {}},
        **{"RMSprop": {}, "Adagrad": {}, "Adafactor": {}},
    },
    "tinygrad": {"SGD": MOMENTUM, "Adam": {}, "AdamW": {}, "LAMB": {}},
}


def of_torch(name: str, settings: Any, params: Arrays) -> Step:
    torch = pytest.importorskip("torch")
    optimizer = getattr(torch.optim, name)(params.values(), lr=RATE, **settings)

    def step(params: Arrays, gradients: Arrays) -> Arrays:
        for key, param in params.items():
            param.grad = gradients[key]
        optimizer.step()
        return params

    return step


def of_jax(name: str, settings: Any, params: Arrays) -> Step:
    optax = pytest.importorskip("optax")
    optimizer = getattr(optax, name)(RATE, **settings)
    state = optimizer.init(params)

    def step(params: Arrays, gradients: Arrays) -> Arrays:
        nonlocal state
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates)

    return step


def of_mlx(name: str, settings: Any, params: Arrays) -> Step:
    optimizers = pytest.importorskip("mlx.optimizers")
    optimizer = getattr(optimizers, name)(learning_rate=RATE, **settings)
    return lambda params, gradients: optimizer.apply_gradients(gradients, params)


def of_tinygrad(name: str, settings: Any, params: Arrays) -> Step:
    optim = pytest.importorskip("tinygrad.nn.optim")
    from tinygrad.helpers import Context  # noqa: PLC0415

    for param in params.values():
        param.is_param_()
    optimizer = getattr(optim, name)(list(params.values()), lr=RATE, **settings)

    def step(params: Arrays, gradients: Arrays) -> Arrays:
        for key, param in params.items():
            param.grad = gradients[key]
        with Context(TRAINING=1):
            optimizer.step()
        return params

    return step


STARTS = {"torch": of_torch, "jax": of_jax, "mlx": of_mlx, "tinygrad": of_tinygrad}
CASES = [(kind, name) for kind, own in OPTIMIZERS.items() for name in own if kind in INSTALLED]


def dtypes(arrays: Arrays) -> dict[str, str]:
    return {name: _core.DType(array.dtype).name for name, array in arrays.items()}


def check(backend: Any, start: Callable[[Arrays], Step]) -> None:
    """Takes steps in a model of three dtypes. They change every param."""
    layers = [Linear(4), Linear(4, dtype="bfloat16"), Linear(3, dtype="float16"), Linear(2)]
    compiled = ml.compile(Sequential(layers), backend, shapes={"input": [3, 5]})
    params = compiled.randomize_params(seed=0)
    own = dtypes(params)
    assert set(own.values()) == {"float32", "bfloat16", "float16"}
    read = lambda: {n: np.array(backend.to_numpy(p), np.float32) for n, p in params.items()}  # noqa: E731
    before, step = read(), start(params)
    for seed in (1.0, 0.5):
        inputs, seeds = {"input": backend.ones(3, 5)}, {"output": backend.ones(3, 2) * seed}
        gradients = compiled.evaluate_gradients(params, inputs, seeds)
        assert dtypes(gradients) == own
        params = step(params, gradients)
        assert dtypes(params) == own
    for name, value in read().items():
        assert np.isfinite(value).all() and (value != before[name]).any(), name
    assert dtypes(compiled.evaluate(params, inputs)) == {"output": "float32"}


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_optimizers_keep_the_dtypes(kind: str, name: str) -> None:
    settings = OPTIMIZERS[kind][name]
    check(getattr(ml, MAKERS[kind])(), lambda params: STARTS[kind](name, settings, params))


def test_adam_written_out_keeps_the_dtypes(backend: Any) -> None:
    """The loop of the guide to training. NumPy gives float32 for bfloat16 and a Python float, so
    the loop casts there."""

    def start(params: Arrays) -> Step:
        moments = [{n: backend.zeros_like(p) for n, p in params.items()} for _ in range(2)]
        count = 0

        def step(params: Arrays, gradients: Arrays) -> Arrays:
            nonlocal count
            count += 1
            mean, square = moments
            following = {}
            for n, gradient in gradients.items():
                mean[n] = 0.9 * mean[n] + (1 - 0.9) * gradient
                square[n] = 0.999 * square[n] + (1 - 0.999) * gradient**2
                size = backend.sqrt(square[n] / (1 - 0.999**count)) + 1e-7
                following[n] = params[n] - RATE * mean[n] / (1 - 0.9**count) / size
            own, found = dtypes(params), dtypes(following)
            wider = {n for n in own if found[n] != own[n]}
            of_numpy = isinstance(next(iter(params.values())), np.ndarray)
            assert wider == {n for n in own if of_numpy and own[n] == "bfloat16"}
            return following | {n: backend.cast(following[n], own[n]) for n in wider}

        return step

    check(backend, start)
