"""Differences between targets that the op reference lists, seen through blocks."""

import numpy as np
import pytest
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril.models import Clamp, Gather, Power, Softmax

NAN = float("nan")
KINDS = [kind for kind in INSTALLED if kind != "c"]


def answers(kind, block, arrays):
    """The output, and the gradients by name."""
    backend = getattr(ml, MAKERS[kind])()
    given = {name: np.array(value, "float32") for name, value in arrays.items()}
    shapes = {name: list(value.shape) for name, value in given.items()}
    model = ml.compile(block, backend, shapes=shapes, trainable_keys=list(given))
    params = {name: backend.array(value) for name, value in given.items()}
    with np.errstate(all="ignore"):
        outputs, gradients = model.evaluate(
            params, {}, output_gradients=lambda own: {"output": own["output"] * 0 + 1}
        )
    read = backend.to_numpy
    return read(outputs["output"]).tolist(), {n: read(g).tolist() for n, g in gradients.items()}


def same(got, want):
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", KINDS)
def test_softmax_of_infinity_differs_between_frameworks(kind):
    output, _ = answers(kind, Softmax(), {"input": [np.inf, 1]})
    same(output, [NAN, NAN] if kind in ("torch", "jax", "mlx", "tinygrad") else [NAN, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_clamp_at_its_edges(kind):
    output, gradients = answers(kind, Clamp(0.0, 1.0), {"input": [0, 1, 0.5]})
    same(output, [0, 1, 0.5])
    edge = {"torch": 0, "jax": 0.5, "mlx": 0}.get(kind, 1)
    same(gradients["input"], [edge, edge, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_zero_to_the_power_of_zero(kind):
    output, gradients = answers(kind, Power(), {"base": [0], "exponent": [0]})
    same(output, [1])
    same(gradients["base"], [NAN if kind in ("jax", "mlx") else 0])
    same(gradients["exponent"], [-np.inf if kind == "mlx" else 0])


@pytest.mark.parametrize("axis", [0, 1])
# MLX reads beyond the array.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mlx"])
def test_take_out_of_range(kind, axis):
    backend = getattr(ml, MAKERS[kind])()
    shapes = {"input": [3, 3], "indices": [2]}
    model = ml.compile(Gather(axis=axis), backend, shapes=shapes, checks=False)
    indices = backend.cast(backend.array(np.array([7, -7])), "int32" if kind == "jax" else "int64")
    inputs = {"input": backend.array(np.eye(3, dtype="float32")), "indices": indices}
    if kind in ("numpy", "torch"):
        with pytest.raises(IndexError):
            model.evaluate({}, inputs)
        return
    output = backend.to_numpy(model.evaluate({}, inputs)["output"])
    if kind == "tinygrad":
        same(output, np.zeros((2, 3) if axis == 0 else (3, 2)))
        return
    clamped = np.take(np.eye(3), [2, 0], axis)
    same(output, clamped if axis == 0 or kind == "cpu" else np.full((3, 2), NAN))
