"""The precision in which sums are accumulated, on each framework."""

import importlib

import numpy as np
import pytest
from conftest import INSTALLED
from source import emitted

TEXT = """mithril 1

func @main(%x: tensor<n x DTYPE>, %y: tensor<n x DTYPE>)
    -> (sum: tensor<DTYPE>, dot: tensor<DTYPE>) {
  %0 = sum(%x) {acc = ACC}
  %1 = dot_general(%x, %y) {x_contract = [0], y_contract = [0], acc = ACC}
  return %0, %1
}
"""

# An f32 accumulator loses the 1 in these f32 values. A sum of this many f16 ones exceeds the range
# in which f16 has every integer.
LOST = np.array([2**24, 1, -(2**24)], np.float32)
ONES = np.ones(4099, np.float16)


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "mlx", "tinygrad"])
@pytest.mark.parametrize(
    ("x", "dtype", "acc", "want"),
    [
        (LOST, "f32", "f64", 1),
        (ONES, "f16", "f32", 4100),
        (ONES, "f16", "f64", 4100),
    ],
)
def test_sums_and_products_use_the_accumulator_dtype(framework, x, dtype, acc, want):
    modules = {"jax": "jax.numpy", "mlx": "mlx.core"}
    if framework not in INSTALLED:
        pytest.skip(f"{framework} is not installed")
    module = importlib.import_module(modules.get(framework, framework))
    convert = module.Tensor if framework == "tinygrad" else module.asarray
    forward = emitted(TEXT.replace("DTYPE", dtype).replace("ACC", acc), framework)["forward"]
    outputs = forward({}, {"x": convert(x), "y": convert(np.ones_like(x))})
    for result in map(np.asarray, outputs.values()):
        assert result.dtype == x.dtype
        assert result == want
