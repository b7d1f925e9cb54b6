"""`MoE` compared with a loop over its experts in PyTorch: forward and gradients on every backend,
with fixed and open dims."""

from typing import Any

import numpy as np
import pytest
import torch
from conftest import CLASSES

import mithril as ml
from mithril.models import Model, MoE

F = torch.nn.functional


def drawn(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(got: Any, want: Any, bound: float = 1e-5) -> None:
    got, want = np.asarray(got), want.detach().numpy()
    assert got.shape == want.shape
    greatest = max(np.abs(want).max(initial=0), 1.0)
    np.testing.assert_allclose(got, want, rtol=bound, atol=bound * greatest)


def mixture(x: Any, p: dict[str, Any], k: int, **settings: Any) -> tuple[Any, Any]:
    """The experts one by one, each with its own tokens."""
    activation = getattr(F, settings.get("activation", "relu"))
    tokens = x.flatten(0, -2)
    logits = tokens @ p["w_router"]
    count = logits.shape[1]
    values, experts = torch.topk(logits, k)
    probabilities = logits.softmax(-1)
    is_normal = settings.get("normalize", True)
    weights = values.softmax(-1) if is_normal else probabilities.gather(-1, experts)
    output = torch.zeros_like(tokens)
    for i in range(count):
        rows, places = torch.where(experts == i)
        own = tokens[rows]
        hidden = own @ p["w_in"][i]
        hidden = hidden + p["b_in"][i] if "b_in" in p else hidden
        hidden = activation(hidden)
        if "w_gate" in p:
            gate = own @ p["w_gate"][i]
            hidden = hidden * (gate + p["b_gate"][i] if "b_gate" in p else gate)
        result = hidden @ p["w_out"][i]
        result = result + p["b_out"][i] if "b_out" in p else result
        output = output.index_add(0, rows, result * weights[rows, places, None])
    share = F.one_hot(experts.flatten(), count).to(tokens.dtype).mean(0)
    return output.reshape(x.shape), count * (share * probabilities.mean(0)).sum()


SETTINGS: list[dict[str, Any]] = [
    {"experts": 4, "k": 2},
    {"experts": 4, "k": 1, "normalize": False, "use_bias": True},
    {"experts": 3, "k": 3, "activation": "silu", "gated": True, "dimension": 7},
    {"experts": 5, "k": 2, "activation": "gelu", "gated": True, "use_bias": True},
    {"experts": 1, "k": 1},
]


def params_of(width: int, settings: dict[str, Any]) -> dict[str, Any]:
    hidden, count = settings.get("dimension", 4 * width), settings["experts"]
    shapes = {
        "w_router": (width, count),
        "w_in": (count, width, hidden),
        "w_out": (count, hidden, width),
    }
    if settings.get("gated"):
        shapes["w_gate"] = (count, width, hidden)
    if settings.get("use_bias"):
        shapes |= {"b_in": (count, hidden), "b_out": (count, width)}
        if settings.get("gated"):
            shapes["b_gate"] = (count, hidden)
    return {name: drawn(i, *shape) for i, (name, shape) in enumerate(sorted(shapes.items()))}


def built(backend: Any, shape: list[Any], settings: dict[str, Any]) -> Any:
    model = Model()
    names = dict.fromkeys(params_of(2, settings))
    model |= MoE(**settings)(
        input="input", output="output", balance="balance", **{name: name for name in names}
    )
    return ml.compile(model, backend, shapes={"input": shape}, trainable_keys=["input"])


def check(backend: Any, compiled: Any, x: Any, params: Any, settings: dict[str, Any]) -> None:
    seed, weight = drawn(9, *x.shape), np.float32(0.7)
    outputs, gradients = compiled.evaluate(
        {n: backend.array(v) for n, v in ({"input": x} | params).items()},
        {},
        output_gradients={"output": backend.array(seed), "balance": backend.array(weight)},
    )
    own = {n: torch.tensor(v, dtype=torch.float64, requires_grad=True) for n, v in params.items()}
    leaf: Any = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    rest = {n: v for n, v in settings.items() if n not in ("experts", "k", "dimension")}
    output, balance = mixture(leaf, own, settings["k"], **rest)
    near(outputs["output"], output)
    loss = (output * torch.tensor(seed)).sum()
    if x.size:
        near(outputs["balance"], balance)
        loss = loss + 0.7 * balance
    loss.backward()
    if x.size:
        for name, param in (own | {"input": leaf}).items():
            near(gradients[name], param.grad)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_values_and_gradients_are_those_of_a_loop(backend: Any, settings: dict[str, Any]) -> None:
    width = 6
    params = params_of(width, settings)
    compiled = built(backend, ["batch", "tokens", width], settings)
    for batch, tokens in ((3, 17), (1, 1), (2, 40)):
        check(backend, compiled, drawn(7, batch, tokens, width), params, settings)
    compiled = built(backend, [9, width], settings)
    check(backend, compiled, drawn(8, 9, width), params, settings)


def test_second_derivatives(backend: Any) -> None:
    """JAX has no gradient of the gradient of its own grouped product."""
    settings = {"experts": 3, "k": 2, "activation": "silu"}
    model = Model()
    names = {name: name for name in params_of(3, settings)}
    model |= MoE(**settings)(input="input", output="output", **names)
    model |= ml.Sum()(input="output", output="total")
    options = {"shapes": {"input": [4, 3]}, "trainable_keys": ["input"]}
    compiled = ml.compile(model, backend, differentiate="total", **options)
    params = {"input": drawn(7, 4, 3)} | params_of(3, settings)
    own = {name: backend.array(value) for name, value in params.items()}
    seed = {"w_in_gradient": backend.array(drawn(8, *params["w_in"].shape))}
    found = compiled.evaluate(own, {}, output_gradients=seed)[1]

    leaves: Any = {
        n: torch.tensor(v, dtype=torch.float64, requires_grad=True) for n, v in params.items()
    }
    weights = {n: leaf for n, leaf in leaves.items() if n != "input"}
    output, _ = mixture(leaves["input"], weights, 2, activation="silu")
    (slope,) = torch.autograd.grad(output.sum(), leaves["w_in"], create_graph=True)
    own_seed = torch.tensor(drawn(8, *params["w_in"].shape))
    want = torch.autograd.grad((slope * own_seed).sum(), [*leaves.values()], allow_unused=True)
    for name, value in zip(leaves, want, strict=True):
        near(backend.to_numpy(found[name]), torch.zeros(1) if value is None else value, 1e-4)


def test_an_expert_without_tokens(backend: Any) -> None:
    """The router sends every token to the first two of three experts."""
    settings = {"experts": 3, "k": 2}
    params = params_of(4, settings)
    params["w_router"] = np.zeros((4, 3), np.float32)
    params["w_router"][0] = [5, 4, -5]
    x = np.abs(drawn(7, 11, 4)) + 0.5
    check(backend, built(backend, ["n", 4], settings), x, params, settings)


@pytest.mark.filterwarnings("ignore:.*(empty slice|invalid value)")
def test_no_tokens(backend: Any) -> None:
    """The balance of no tokens is a mean of no elements."""
    settings = {"experts": 3, "k": 2}
    compiled = built(backend, ["n", 4], settings)
    params = params_of(4, settings)
    given = {"input": np.zeros((0, 4), np.float32)} | params
    outputs = compiled.evaluate({n: backend.array(v) for n, v in given.items()}, {})
    assert np.asarray(outputs["output"]).shape == (0, 4)


def test_native_code_holds_no_copies_of_weights() -> None:
    """Neither the matrices of each token nor its outer products are in memory."""
    settings = {"experts": 4, "k": 2, "dimension": 64}
    compiled = built(ml.CpuBackend(), [4096, 32], settings)
    params, x = params_of(32, settings), drawn(7, 4096, 32)
    check(ml.CpuBackend(), compiled, x, params, settings)
    # The outer products alone would be 64 MiB.
    assert compiled.memory()["temporaries"] < 32 * 2**20


def test_wrong_settings() -> None:
    with pytest.raises(ml.MithrilError, match="`k` of `MoE` is more than `experts`"):
        MoE(2, k=3)
    with pytest.raises(ml.MithrilError, match="activation"):
        MoE(2, activation="nothing")


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("ends", [[2, 2, 10], [0, 4, 7], [10, 10, 10], [0, 0, 0]])
def test_products_of_groups(make, ends):
    """Rows after the last group give 0."""
    backend = make()
    rng = np.random.default_rng(3)
    left = rng.standard_normal((10, 8)).astype(np.float32)
    right = rng.standard_normal((3, 8, 4)).astype(np.float32)
    leaves = [torch.tensor(a, requires_grad=True) for a in (left, right)]
    starts = [0, *ends[:-1]]
    parts = [
        leaves[0][a:b] @ leaves[1][i] for i, (a, b) in enumerate(zip(starts, ends, strict=True))
    ]
    want = torch.cat([*parts, torch.zeros(10 - ends[-1], 4)])
    own = F.grouped_mm(*leaves, offs=torch.tensor(ends, dtype=torch.int32))
    np.testing.assert_allclose(own[: ends[-1]].detach(), want[: ends[-1]].detach(), atol=1e-5)
    seed = rng.standard_normal((10, 4)).astype(np.float32)
    if want.requires_grad:
        want.backward(torch.tensor(seed))
    for rows in (10, "n"):
        shapes = {"left": [rows, 8], "right": [3, 8, 4], "offsets": [3]}
        block = ml.GroupedMatrixMultiply()
        compiled = ml.compile(block, backend, shapes=shapes, trainable_keys=["left", "right"])
        outputs, gradients = compiled.evaluate(
            {"left": backend.array(left), "right": backend.array(right)},
            {"offsets": np.array(ends, np.int32)},
            output_gradients={"output": backend.array(seed)},
        )
        got = backend.to_numpy(outputs["output"])
        np.testing.assert_allclose(got, want.detach(), rtol=1e-5, atol=1e-5)
        for name, leaf in zip(("left", "right"), leaves, strict=True):
            grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            got = backend.to_numpy(gradients[name])
            np.testing.assert_allclose(got, grad, rtol=1e-4, atol=1e-5)


def test_mistakes_with_groups():
    for shapes in (
        {"left": [10, 8], "right": [3, 8, 4], "offsets": [2]},
        {"left": [10], "right": [3, 8, 4], "offsets": [3]},
        {"left": [10, 8], "right": ["g", 8, 4], "offsets": ["g"]},
    ):
        with pytest.raises(ml.MithrilError, match="rows, matrices and offsets do not match"):
            ml.compile(ml.GroupedMatrixMultiply(), ml.NumpyBackend(), shapes=shapes)
    shapes = {"left": [10, 7], "right": [3, 8, 4], "offsets": [3]}
    with pytest.raises(ml.MithrilError):
        ml.compile(ml.GroupedMatrixMultiply(), ml.NumpyBackend(), shapes=shapes)
