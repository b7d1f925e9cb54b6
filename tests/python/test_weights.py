"""Spectral norms and norms of weights compared with PyTorch's parametrizations, in training and
inference, with gradients, on every backend."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import mithril as ml

RNG = np.random.default_rng(9)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def linear(layer: Any) -> Any:
    """The weight of a linear layer as ours: (in, out)."""
    return layer.T


def same(layer: Any) -> Any:
    return layer


# The block, PyTorch's layer, its weight's layout here, and the shape of the input.
LAYERS: list[tuple[Any, Any, Any, list[int]]] = [
    (lambda: ml.Linear(5), lambda: nn.Linear(4, 5), linear, [3, 4]),
    (lambda: ml.Linear(1, use_bias=False), lambda: nn.Linear(4, 1, bias=False), linear, [2, 4]),
    (lambda: ml.Conv2d(6, 3), lambda: nn.Conv2d(2, 6, 3), same, [2, 2, 5, 6]),
    (lambda: ml.Conv1d(4, 2, groups=2), lambda: nn.Conv1d(6, 4, 2, groups=2), same, [1, 6, 7]),
    (
        lambda: ml.ConvTranspose2d(3, 2),
        lambda: nn.ConvTranspose2d(4, 3, 2),
        same,
        [2, 4, 3, 3],
    ),
]


def compiled_layer(block: Any, backend: Any, shape: list[int], named: bool, **options: Any) -> Any:
    model = ml.Model()
    model |= block(input="x", output="y")
    dims = [f"n{size}" if named and at == 0 else size for at, size in enumerate(shape)]
    return ml.compile(model, backend, shapes={"x": dims}, **options)


def close(backend: Any, got: Any, want: Any) -> None:
    np.testing.assert_allclose(backend.to_numpy(got), want, rtol=2e-4, atol=2e-5)


def suffixed(names: Any, suffix: str) -> str:
    """The only name that ends like this."""
    (name,) = [name for name in names if name.rsplit(".", 1)[-1] == suffix]
    return name


def step_of_torch(layer: Any, x: Any) -> tuple[Any, Any, Any]:
    leaf = torch.tensor(x)
    y = layer(leaf)
    seed = numbers(*y.shape)
    layer.zero_grad()
    y.backward(torch.tensor(seed))
    return y.detach(), seed, {n: p.grad for n, p in layer.named_parameters()}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("case", range(len(LAYERS)))
def test_spectral_norms_are_those_of_torch(case, named, backend):
    make, theirs, layout, shape = LAYERS[case]
    layer = parametrizations.spectral_norm(theirs(), n_power_iterations=2)
    own = layer.parametrizations.weight
    block = ml.SpectralNorm(make(), n_power_iterations=2)
    compiled = compiled_layer(block, backend, shape, named)
    names = list(compiled.params)
    weight = suffixed(names, "w")
    assert len(names) == 1 + (layer.bias is not None)
    params = {weight: layout(own.original.detach().numpy()).copy()}
    if layer.bias is not None:
        params[suffixed(names, "b")] = layer.bias.detach().numpy()
    params = {n: backend.array(p) for n, p in params.items()}
    u, v = own[0]._u.numpy().copy(), own[0]._v.numpy().copy()
    prefix = weight.removesuffix("w")
    state = {f"{prefix}w_u": backend.array(u), f"{prefix}w_v": backend.array(v)}
    assert sorted(compiled.states) == sorted(state)
    for _ in range(2):
        x = numbers(*shape)
        y, seed, gradients = step_of_torch(layer, x)
        outputs, found, state = compiled.evaluate(
            params,
            {"x": backend.array(x)},
            output_gradients={"y": backend.array(seed)},
            state=state,
        )
        close(backend, outputs["y"], y)
        close(backend, found[weight], layout(gradients["parametrizations.weight.original"]))
        if layer.bias is not None:
            close(backend, found[suffixed(names, "b")], gradients["bias"])
        close(backend, state[f"{prefix}w_u"], own[0]._u)
        close(backend, state[f"{prefix}w_v"], own[0]._v)
    layer.eval()
    x = numbers(*shape)
    inference = compiled_layer(block, backend, shape, named, inference=True)
    outputs, _ = inference.evaluate(params, {"x": backend.array(x)}, state=state)
    close(backend, outputs["y"], layer(torch.tensor(x)).detach())


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("case", range(len(LAYERS)))
def test_weight_norms_are_those_of_torch(case, whole, named, backend):
    make, theirs, layout, shape = LAYERS[case]
    layer = parametrizations.weight_norm(theirs(), dim=None if whole else 0)
    own = layer.parametrizations.weight
    compiled = compiled_layer(ml.WeightNorm(make(), whole=whole), backend, shape, named)
    names = list(compiled.params)
    norm, direction = suffixed(names, "w_g"), suffixed(names, "w_v")
    with torch.no_grad():
        own.original0.mul_(1.7)
    params = {
        norm: (own.original0 if whole else layout(own.original0)).detach().numpy().copy(),
        direction: layout(own.original1.detach().numpy()).copy(),
    }
    if layer.bias is not None:
        params[suffixed(names, "b")] = layer.bias.detach().numpy()
    assert sorted(params) == sorted(names)
    params = {n: backend.array(p) for n, p in params.items()}
    x = numbers(*shape)
    y, seed, gradients = step_of_torch(layer, x)
    outputs, found = compiled.evaluate(
        params, {"x": backend.array(x)}, output_gradients={"y": backend.array(seed)}
    )
    close(backend, outputs["y"], y)
    wanted = gradients["parametrizations.weight.original0"]
    close(backend, found[norm], wanted if whole else layout(wanted))
    close(backend, found[direction], layout(gradients["parametrizations.weight.original1"]))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("case", range(len(LAYERS)))
def test_norms_start_as_those_of_the_weight(case, whole, backend):
    """So the first weight is that of the block inside."""
    make, _, _, shape = LAYERS[case]
    compiled = compiled_layer(ml.WeightNorm(make(), whole=whole), backend, shape, False)
    params = compiled.randomize_params()
    names = list(params)
    direction = backend.to_numpy(params[suffixed(names, "w_v")])
    norm = backend.to_numpy(params[suffixed(names, "w_g")])
    axes = tuple(i for i, size in enumerate(norm.shape) if size == 1 or whole)
    wanted = np.sqrt(
        (direction.astype(np.float64) ** 2).sum(None if whole else axes, keepdims=not whole)
    )
    np.testing.assert_allclose(norm, wanted, rtol=1e-5)


def test_names_of_params_and_states():
    model = ml.Model()
    model += ml.SpectralNorm(ml.Linear(3), name="first")
    model += ml.WeightNorm(ml.Linear(2, use_bias=False))
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"input": [1, 4]})
    assert sorted(compiled.params) == ["first.b", "first.w", "weight_norm.w_g", "weight_norm.w_v"]


def test_spectral_norms_converge(backend):
    """After some steps the weight that is used has norm 1."""
    model = ml.Model()
    model |= ml.SpectralNorm(ml.Linear(4, use_bias=False))(input="x", output="y")
    compiled = ml.compile(model, backend, shapes={"x": [6, 6]})
    params = {"spectral_norm.w": backend.array(numbers(6, 4))}
    x = backend.array(np.eye(6, dtype=np.float32))
    for _ in range(60):
        outputs = compiled.evaluate(params, {"x": x})
    largest = np.linalg.svd(backend.to_numpy(outputs["y"]), compute_uv=False)[0]
    assert abs(largest - 1) < 1e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ml.SpectralNorm(ml.Relu()), "`Relu` has no param `w`"),
        (lambda: ml.WeightNorm(ml.Linear(2), weight="u"), "`Linear` has no param `u`"),
        (lambda: ml.WeightNorm(ml.MLP([ml.Relu()], [3])), "has no param `w`"),
        (lambda: ml.SpectralNorm(ml.Linear(2)(input="x")), "not a single layer"),
        (
            lambda: ml.compile(
                ml.SpectralNorm(ml.LayerNorm()), ml.NumpyBackend(), shapes={"input": [2, 3]}
            ),
            "no spectral norm",
        ),
        (
            lambda: ml.compile(
                ml.WeightNorm(ml.Linear(2), axis=3), ml.NumpyBackend(), shapes={"input": [2, 3]}
            ),
            "axis",
        ),
    ],
)
def test_mistakes_are_explained(make, message):
    with pytest.raises(ml.MithrilError, match=message):
        make()


def test_saved_blocks_load():
    for block in (ml.SpectralNorm(ml.Linear(3)), ml.WeightNorm(ml.Conv2d(2, 3), whole=True)):
        again = ml.Block.from_json(block.to_json())
        assert again.to_json() == block.to_json()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("case", range(len(LAYERS)))
def test_vectors_start_as_singular_vectors_of_the_weight(case, named, backend):
    """After 15 steps from random numbers, as in PyTorch, both are near those of the largest value.
    So the first calls, and inference without training, divide by nearly the spectral norm."""
    make, theirs, layout, shape = LAYERS[case]
    weight = theirs().weight.detach()
    transposed = isinstance(theirs(), nn.ConvTranspose2d)
    order = (1, 0, 2, 3) if transposed else tuple(range(weight.ndim))
    matrix = weight.permute(order).flatten(1).numpy()
    # Two clear directions, so that 15 steps suffice.
    left, values, right = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
    values = values.max() * 0.4 ** np.arange(len(values))
    rows = torch.tensor((left * values) @ right).reshape([weight.shape[i] for i in order])
    weight = rows.permute(order).float()
    compiled = compiled_layer(ml.SpectralNorm(make()), backend, shape, named, inference=True)
    name = suffixed(compiled.params, "w")
    params = compiled_layer(ml.SpectralNorm(make()), backend, shape, False).randomize_params()
    params[name] = backend.array(np.ascontiguousarray(layout(weight.numpy())))
    x = numbers(*shape)
    state = compiled.initial_state(params, {"x": backend.array(x)})
    u, v = (backend.to_numpy(state[f"{name}_{n}"]).astype(np.float64) for n in "uv")
    assert abs(np.linalg.norm(u) - 1) < 1e-5
    assert abs(np.linalg.norm(v) - 1) < 1e-5
    assert abs(abs(u @ left[:, 0]) - 1) < 1e-5
    assert abs(abs(v @ right[0]) - 1) < 1e-5
    assert abs(u @ ((left * values) @ right) @ v / values[0] - 1) < 1e-5
    layer = theirs()
    with torch.no_grad():
        layer.weight.copy_(weight / values[0])
        if layer.bias is not None:
            layer.bias.copy_(torch.tensor(backend.to_numpy(params[suffixed(params, "b")])))
    outputs = compiled.evaluate(params, {"x": backend.array(x)})
    close(backend, outputs["y"], layer(torch.tensor(x)).detach())


def test_vectors_of_traced_params_start_at_random():
    """The elements of params that JAX traces are not known."""
    jax = pytest.importorskip("jax")
    backend = ml.JaxBackend()
    compiled = compiled_layer(ml.SpectralNorm(ml.Linear(5)), backend, [3, 4], False)
    params = compiled.randomize_params()
    x = backend.array(numbers(3, 4))
    state = compiled.initial_state(params, {"x": x})
    call = lambda p, s: compiled.evaluate(p, {"x": x}, state=s)[0]["y"]  # noqa: E731
    np.testing.assert_allclose(jax.jit(call)(params, state), call(params, state), rtol=1e-5)
    traced = jax.jit(lambda p: compiled.initial_state(p, {"x": x}))(params)
    assert set(traced) == set(state)


@pytest.mark.parametrize("whole", [False, True])
def test_norms_of_a_weight_that_a_function_draws(whole, backend):
    """Norms follow from the weight also if `init` is a function, or is given with the params."""

    def drawn(key: Any, shape: Any) -> Any:
        assert key.shape == (2,)
        return np.arange(1.0, 1 + np.prod(shape)).reshape(shape)

    def check(params: Any) -> None:
        direction = backend.to_numpy(params[suffixed(params, "w_v")]).astype(np.float64)
        norm = backend.to_numpy(params[suffixed(params, "w_g")])
        wanted = np.sqrt((direction**2).sum(None if whole else 0, keepdims=not whole))
        np.testing.assert_allclose(norm, wanted, rtol=1e-6)

    block = ml.WeightNorm(ml.Linear(5, init=drawn), whole=whole)
    params = compiled_layer(block, backend, [3, 4], False).randomize_params()
    direction = backend.to_numpy(params[suffixed(params, "w_v")])
    np.testing.assert_array_equal(direction, np.arange(1.0, 21).reshape(4, 5))
    check(params)
    compiled = compiled_layer(ml.WeightNorm(ml.Linear(5), whole=whole), backend, [3, 4], False)
    params = compiled.randomize_params(init={"*w_v": 2.0})
    np.testing.assert_array_equal(backend.to_numpy(params[suffixed(params, "w_v")]), 2)
    check(params)
    check(compiled.randomize_params(init={"*w_v": drawn}))
    given = compiled.randomize_params(init={"*w_g": 3.0})
    np.testing.assert_array_equal(backend.to_numpy(given[suffixed(given, "w_g")]), 3)
    # The shape is known at the first call only.
    deferred = ml.compile(ml.WeightNorm(ml.Linear(5, init=drawn), whole=whole), backend)
    params = deferred.randomize_params()
    deferred.evaluate(params, {"input": backend.array(numbers(3, 4))})
    check({name: params[name] for name in params})
