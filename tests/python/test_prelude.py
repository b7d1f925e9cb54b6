"""The helper functions that generated source contains where a framework lacks one."""

import math
import pathlib
import types
from functools import partial

import numpy as np
import pytest
from conftest import INSTALLED

FOLDER = pathlib.Path(__file__).parents[2] / "codegen/source/src/backends/prelude"


# Converts a NumPy array to the framework's, by the modules that its prelude imports.
INTO = {
    "torch": lambda module, x: module.torch.from_numpy(x.copy()),
    "jax": lambda module, x: module.jnp.asarray(x),
    "mlx": lambda module, x: module.mx.array(x),
    "tinygrad": lambda module, x: module.Tensor(x),
}


def prelude(framework):
    """The prelude of a framework. Skips the test if the framework is not installed."""
    if framework not in INSTALLED:
        pytest.skip(f"{framework} is not installed")
    module = types.ModuleType(f"prelude_{framework}")
    # The functions of a framework may be in several files.
    for path in sorted(FOLDER.glob(f"{framework}*.py")):
        exec(compile(path.read_text(), path, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize(("dtype", "bound"), [(np.float64, 1e-15), (np.float32, 5e-7)])
def test_erf_of_numpy(dtype, bound):
    x = np.linspace(-6, 6, 1001).astype(dtype)
    got = prelude("numpy")._erf(x)
    assert got.dtype == dtype
    assert np.max(np.abs(got - [math.erf(v) for v in x])) < bound
    ends = prelude("numpy")._erf(np.array([np.inf, -np.inf, np.nan], dtype=dtype))
    np.testing.assert_array_equal(ends, np.array([1, -1, np.nan], dtype=dtype))


def test_sigmoid_of_numpy_does_not_overflow():
    x = np.array([-1000, -1, 0, 1, 1000], dtype=np.float32)
    got = prelude("numpy")._sigmoid(x)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, [0, 1 / (1 + math.e), 0.5, math.e / (1 + math.e), 1], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_erf_inv_of_numpy_undoes_erf(dtype):
    x = np.linspace(-0.999, 0.999, 501).astype(dtype)
    back = [math.erf(v) for v in prelude("numpy")._erf_inv(x)]
    np.testing.assert_allclose(back, x, atol=1e-14 if dtype == np.float64 else 3e-7)


def test_threefry_is_that_of_jax():
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    mx = pytest.importorskip("mlx.core")
    numpy_key = np.array([1, 2], dtype=np.uint32)
    of_mlx, mlx_key = prelude("mlx"), mx.array(numpy_key)
    key = jax.numpy.asarray(numpy_key)
    numpy, of_torch = prelude("numpy"), prelude("torch")
    torch_key = torch.tensor([1, 2], dtype=torch.uint32)
    bits = np.asarray(jax.random.bits(key, (5, 3)))
    np.testing.assert_array_equal(numpy._random_bits(numpy_key, (5, 3), np.uint32), bits)
    np.testing.assert_array_equal(of_torch._random_bits(torch_key, (5, 3), torch.uint32), bits)
    np.testing.assert_array_equal(of_mlx._random_bits(mlx_key, (5, 3), mx.uint32), bits)
    split = np.asarray(jax.random.split(key, 3))
    np.testing.assert_array_equal(of_mlx._key_split(mlx_key, 3), split)
    np.testing.assert_array_equal(numpy._key_split(numpy_key, 3), split)
    np.testing.assert_array_equal(of_torch._key_split(torch_key, 3), split)
    folded = np.asarray(jax.random.fold_in(key, 7))
    np.testing.assert_array_equal(numpy._key_fold(numpy_key, 7), folded)
    np.testing.assert_array_equal(of_torch._key_fold(torch_key, 7), folded)
    np.testing.assert_array_equal(of_mlx._key_fold(mlx_key, 7), folded)
    uniform = np.asarray(jax.random.uniform(key, (40,)))
    np.testing.assert_array_equal(of_mlx._uniform(mlx_key, (40,), mx.float32), uniform)
    np.testing.assert_array_equal(numpy._uniform(numpy_key, (40,), np.float32), uniform)
    np.testing.assert_array_equal(of_torch._uniform(torch_key, (40,), torch.float32), uniform)
    normal = np.asarray(jax.random.normal(key, (40,)))
    np.testing.assert_allclose(numpy._normal(numpy_key, (40,), np.float32), normal, rtol=2e-5)
    np.testing.assert_allclose(of_mlx._normal(mlx_key, (40,), mx.float32), normal, rtol=2e-5)
    np.testing.assert_allclose(of_torch._normal(torch_key, (40,), torch.float32), normal, rtol=2e-5)


def test_threefry_of_tinygrad_is_that_of_jax():
    jax = pytest.importorskip("jax")
    own = prelude("tinygrad")
    numpy_key = np.array([1, 2], dtype=np.uint32)
    key, own_key = jax.numpy.asarray(numpy_key), own.Tensor(numpy_key)
    dtypes = own.dtypes
    bits = own._random_bits(own_key, (5, 3), dtypes.uint32)
    np.testing.assert_array_equal(bits, jax.random.bits(key, (5, 3)))
    np.testing.assert_array_equal(own._key_split(own_key, 3), jax.random.split(key, 3))
    np.testing.assert_array_equal(own._key_fold(own_key, 7), jax.random.fold_in(key, 7))
    uniform = own._uniform(own_key, (40,), dtypes.float32)
    np.testing.assert_array_equal(uniform, jax.random.uniform(key, (40,)))
    normal = own._normal(own_key, (40,), dtypes.float32)
    np.testing.assert_allclose(normal, jax.random.normal(key, (40,)), rtol=2e-5)


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "mlx", "tinygrad"])
def test_layouts(framework):
    module = prelude(framework)
    into = partial(INTO.get(framework, lambda module, x: x), module)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(module._sum_to(into(x), (1, 3)), [[3, 5, 7]])
    np.testing.assert_array_equal(module._sum_to(into(x), ()), 15)
    got = module._broadcast(into(x), (3, 4, 2), (2, 0))
    np.testing.assert_array_equal(got, np.broadcast_to(x.T[:, None, :], (3, 4, 2)))


@pytest.mark.parametrize("framework", ["numpy", "torch", "mlx", "tinygrad"])
def test_pads_and_blocks(framework):
    module = prelude(framework)
    into = partial(INTO.get(framework, lambda module, x: x), module)
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    got = module._pad(into(x), 9, [(1, 0, 1), (-1, 2, 0)])
    want = [[9, 9, 9, 9], [2, 3, 9, 9], [9, 9, 9, 9], [5, 6, 9, 9]]
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(module._dynamic_slice(into(x), (5, -2), (1, 2)), [[5, 6]])
    update = into(np.zeros((1, 2), dtype=np.float32))
    got = module._dynamic_update_slice(into(x), update, (0, 9))
    np.testing.assert_array_equal(got, [[1, 0, 0], [4, 5, 6]])


def test_numpy_prelude_sorts_like_the_evaluator():
    module = prelude("numpy")
    x = np.array([2, np.nan, 1, 2], dtype=np.float32)
    np.testing.assert_array_equal(module._sort(x, 0, True), [np.nan, 2, 2, 1])
    np.testing.assert_array_equal(module._argsort(x, 0, True), [1, 0, 3, 2])
    np.testing.assert_array_equal(module._argsort(x, -1, False), [2, 0, 3, 1])


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "mlx", "tinygrad"])
def test_scatters_add_repeated_indices(framework):
    module = prelude(framework)
    into = partial(INTO.get(framework, lambda module, x: x), module)
    x, indices = into(np.zeros((2, 3), dtype=np.float32)), into(np.array([0, 2, 0], dtype=np.int32))
    updates = into(np.ones((2, 3), dtype=np.float32))
    got = module._scatter_add(x, indices, updates, 1)
    np.testing.assert_array_equal(got, [[2, 0, 1], [2, 0, 1]])
