"""Values of their own, added keys, masks of keys and returned weights of `MultiHeadAttention`,
compared with PyTorch: forward and gradients on every backend, with fixed and open dims."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from comparing import near
from conftest import CLASSES

import mithril as ml
from mithril.models import Model, MultiHeadAttention

RNG = np.random.default_rng(31)
KEY = np.array([1, 2], np.uint32)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def seen(*shape: int) -> Any:
    """A mask that hides some keys, but not the first."""
    mask = RNG.random(shape) < 0.6
    mask[..., 0] = True
    return mask


@dataclass
class Case:
    settings: dict[str, Any]
    queries: int = 3
    # The numbers of keys, and the widths of keys and values. Without, there is one sequence.
    keys: tuple[int, int, int] | None = (5, 6, 5)
    masks: dict[str, Any] = field(default_factory=dict)


BIAS, ZERO = {"add_bias_kv": True}, {"add_zero_attn": True}
WEIGHTS = {"return_weights": True}
BOTH = BIAS | ZERO | WEIGHTS
CASES = [
    Case({}),
    Case(WEIGHTS),
    Case(BIAS),
    Case(ZERO),
    Case(BOTH),
    Case(BOTH, masks={"mask": seen(3, 5)}),
    Case(WEIGHTS, masks={"mask": seen(3, 5), "key_mask": seen(2, 5)}),
    Case({}, masks={"key_mask": seen(2, 5)}),
    Case(BIAS | WEIGHTS, masks={"mask": numbers(3, 5), "key_mask": seen(2, 5)}),
    Case(ZERO, masks={"mask": seen(3, 5), "key_mask": numbers(2, 5)}),
    Case(WEIGHTS, masks={"mask": numbers(3, 5), "key_mask": numbers(2, 5)}),
    # Only the added keys are seen.
    Case(BOTH, masks={"mask": np.zeros((3, 5), bool)}),
    Case(ZERO, masks={"key_mask": np.zeros((2, 5), bool)}),
    Case(BOTH | {"is_causal": True}, keys=None),
    Case(WEIGHTS | {"is_causal": True}, keys=None),
    Case(BIAS | {"is_causal": True}, keys=(5, 4, 3), masks={"key_mask": seen(2, 5)}),
    Case(WEIGHTS, keys=(1, 6, 5)),
    Case(BOTH, queries=1, keys=(1, 4, 4)),
    Case(BOTH, keys=(0, 6, 5)),
    Case(BOTH, queries=0),
]


def hidden(mask: Any) -> Any:
    """A mask as PyTorch reads it."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)


def theirs(case: Case, arrays: dict[str, Any], own: dict[str, Any]) -> tuple[Any, Any]:
    """PyTorch's attention of two heads, and its weights."""
    query = arrays["input"].transpose(0, 1)
    key, value = (arrays[n].transpose(0, 1) if n in arrays else query for n in ("context", "value"))
    mask = hidden(arrays.get("mask"))
    if case.settings.get("is_causal"):
        mask = hidden(torch.tril(torch.ones(len(query), len(key), dtype=torch.bool)))
    output, weights = F.multi_head_attention_forward(
        query,
        key,
        value,
        query.shape[-1],
        2,
        None,
        torch.cat([own["b_query"], own["b_key"], own["b_value"]]),
        own.get("bias_key"),
        own.get("bias_value"),
        case.settings.get("add_zero_attn", False),
        0.0,
        own["w_output"].T,
        own["b_output"],
        key_padding_mask=hidden(arrays.get("key_mask")),
        attn_mask=mask,
        average_attn_weights=False,
        use_separate_proj_weight=True,
        q_proj_weight=own["w_query"].T,
        k_proj_weight=own["w_key"].T,
        v_proj_weight=own["w_value"].T,
    )
    return output.transpose(0, 1), weights


def given(case: Case) -> dict[str, Any]:
    arrays = {"input": numbers(2, case.queries, 4)}
    if case.keys is not None:
        count, key, value = case.keys
        arrays |= {"context": numbers(2, count, key), "value": numbers(2, count, value)}
    return arrays


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_against_torch(number, make, named):
    case, backend = CASES[number], make()
    floats = given(case)
    arrays = floats | case.masks
    model = Model()
    outputs = ["output", "weights"][: 1 + case.settings.get("return_weights", False)]
    names = {n: n for n in [*arrays, *outputs]}
    model |= MultiHeadAttention(2, **case.settings)(**names)
    model.set_types({n: ml.bool if a.dtype == bool else ml.float32 for n, a in case.masks.items()})
    shapes: dict[str, Any] = {n: list(a.shape) for n, a in arrays.items()}
    if named:
        dims = {"input": ["n", "t"], "mask": ["t", "s"], "context": ["n", "s"]}
        dims |= {"value": ["n", "s"], "key_mask": ["n", "s"]}
        shapes = {n: [*dims[n], *shape[2:]] for n, shape in shapes.items()}
    compiled = ml.compile(model, backend, shapes=shapes, trainable_keys=list(floats))
    initial = compiled.randomize_params(seed=1)
    own = {n: np.array(backend.to_numpy(p)) for n, p in initial.items() if n not in floats}
    own = {n: p + 0.3 * numbers(*p.shape) for n, p in own.items()}
    leaves = {
        n: torch.tensor(a, dtype=torch.float64, requires_grad=True)
        for n, a in (own | floats).items()
    }
    params = {n.rpartition(".")[2]: leaves[n] for n in own}
    masks = {
        n: torch.tensor(a) if a.dtype == bool else torch.tensor(a, dtype=torch.float64)
        for n, a in case.masks.items()
    }
    both = theirs(case, {n: leaves[n] for n in floats} | masks, params)
    want = dict(zip(outputs, both, strict=False))
    seeds = {n: numbers(*w.shape) for n, w in want.items()}
    sum((want[n] * torch.tensor(seed)).sum() for n, seed in seeds.items()).backward()
    got, gradients = compiled.evaluate(
        {n: backend.array(a) for n, a in (own | floats).items()},
        {n: backend.array(a) for n, a in case.masks.items()},
        output_gradients={n: backend.array(seed) for n, seed in seeds.items()},
    )
    for name, value in want.items():
        near(backend.to_numpy(got[name]), value.float(), 2e-5)
    for name, leaf in leaves.items():
        slope = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        near(backend.to_numpy(gradients[name]), slope.float(), 1e-4)


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("heads", [2, 4])
def test_weights_after_dropout(make, heads):
    """In training, the weights are 0 or larger by the same factor, and the output is made of them,
    also where heads share keys."""
    backend = make()
    block = MultiHeadAttention(4, kv_heads=heads, dropout=0.25, return_weights=True)
    x = numbers(3, 40, 8)
    shapes = {"input": list(x.shape)}
    compiled = ml.compile(block, backend, shapes=shapes)
    params = compiled.randomize_params(seed=1)
    drawn = compiled.evaluate(params, {"input": backend.array(x), "dropout_key": KEY})
    still = ml.compile(block, backend, shapes=shapes, inference=True)
    whole = backend.to_numpy(still.evaluate(params, {"input": backend.array(x)})["weights"])
    weights = np.asarray(backend.to_numpy(drawn["weights"]))
    assert weights.shape == (3, 4, 40, 40)
    np.testing.assert_allclose(whole.sum(-1), 1, rtol=1e-5)
    kept = weights != 0
    np.testing.assert_allclose(weights[kept], (whole / 0.75)[kept], rtol=1e-4)
    assert abs(kept.mean() - 0.75) < 0.01
    own = {n.rpartition(".")[2]: np.asarray(backend.to_numpy(p)) for n, p in params.items()}
    value = (x @ own["w_value"] + own["b_value"]).reshape(3, 40, heads, 2).swapaxes(1, 2)
    joined = (weights @ value.repeat(4 // heads, 1)).swapaxes(1, 2).reshape(3, 40, 8)
    want = joined @ own["w_output"] + own["b_output"]
    near(np.asarray(backend.to_numpy(drawn["output"])), want, 2e-5)


def test_added_keys_start_as_those_of_torch():
    theirs = torch.nn.MultiheadAttention(4096, 2, add_bias_kv=True)
    compiled = ml.compile(
        MultiHeadAttention(2, add_bias_kv=True), ml.NumpyBackend(), shapes={"input": [1, 1, 4096]}
    )
    params = compiled.randomize_params(seed=0)
    for name, other in (("bias_key", theirs.bias_k), ("bias_value", theirs.bias_v)):
        assert other is not None
        assert params[name].shape == tuple(other.shape)
        assert abs(params[name].std() * 64 - 1) < 0.05
        assert abs(float(other.detach().std()) * 64 - 1) < 0.05


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"context": [2, 5, 4], "value": [2, 6, 4]}, "Incompatible shapes"),
        ({"key_mask": [2, 3, 3]}, "the axes of `key_mask`"),
        ({"key_mask": [2, 5]}, "Incompatible shapes"),
    ],
)
def test_mistakes_are_explained(shapes, message):
    model = Model()
    model |= MultiHeadAttention(2)(input="input", **{n: n for n in shapes}, output="output")
    model.set_types(dict.fromkeys({"key_mask"} & set(shapes), ml.bool))
    with pytest.raises(ml.MithrilError, match=message):
        ml.compile(model, ml.NumpyBackend(), shapes={"input": [2, 3, 4], **shapes})
