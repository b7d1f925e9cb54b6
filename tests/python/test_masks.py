"""Attention with a mask, by kernels that never hold all scores in memory."""

import numpy as np
import pytest
import torch
from conftest import has

import mithril as ml
from mithril.models import Buffer, Model, ScaledDotProduct

F = torch.nn.functional
BACKENDS = {"cpu": ml.CpuBackend, "c": ml.CBackend}
SIZES = [(1, 1), (7, 33), (33, 17), (17, 127), (70, 64)]
# Shapes of the mask, with the dims of queries ("t") and keys ("s"), for 2 batches of 4 heads.
FORMS = [
    ["t", "s"],
    ["s"],
    ["t", 1],
    [2, 1, 1, "s"],
    [1, 1, "t", "s"],
    [2, 4, "t", "s"],
    [4, 1, "s"],
]


@pytest.fixture(params=[name for name in BACKENDS if has(name)])
def make(request):
    return BACKENDS[request.param]


def attending(backend, form, dtype=ml.float32, *, groups=4, trained="qkv", **settings):
    model = Model()
    names = {"query": "q", "key": "k", "value": "v", "mask": "m"}
    model |= ScaledDotProduct(grouped=groups < 4, **settings)(**names, output="output")
    shapes = {"q": [2, 4, "t", 16], "m": form}
    shapes |= {"k": [2, groups, "s", 16], "v": [2, groups, "s", 32]}
    model.set_types({"m": dtype})
    return ml.compile(model, backend, shapes=shapes, trainable_keys=list(trained))


def arrays(t, s, groups=4):
    rng = np.random.default_rng(t + s)
    shapes = {"q": (2, 4, t, 16), "k": (2, groups, s, 16), "v": (2, groups, s, 32)}
    drawn = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    return {name: value.astype(np.float32) for name, value in drawn.items()}


def drawn_mask(form, dtype, t, s):
    shape = [{"t": t, "s": s}.get(dim, dim) for dim in form]
    numbers = np.random.default_rng(1).standard_normal(shape)
    if dtype is not ml.bool:
        return numbers.astype(np.float32)
    seen = numbers > 0
    # PyTorch has no gradient for queries that see no key.
    seen[..., 0] = True
    return seen


def reference(params, mask, seed, **settings):
    """PyTorch's output and gradients in double precision."""
    own = {n: torch.tensor(v, dtype=torch.float64, requires_grad=True) for n, v in params.items()}
    mask = torch.tensor(mask if mask.dtype == bool else mask.astype(np.float64))
    mask = mask.expand(1, -1) if mask.ndim == 1 else mask
    output = F.scaled_dot_product_attention(*own.values(), attn_mask=mask, **settings)
    output.backward(torch.tensor(seed, dtype=torch.float64))
    return output.detach().numpy(), {name: value.grad.numpy() for name, value in own.items()}


def near(got, want, bound=1e-5):
    assert got.shape == want.shape
    greatest = max(np.abs(want).max(initial=0), 1.0)
    np.testing.assert_allclose(got, want, rtol=bound, atol=bound * greatest)


def seeded(shape):
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def compare(compiled, form, dtype, sizes, groups=4, **settings):
    t, s = sizes
    params, mask = arrays(t, s, groups), drawn_mask(form, dtype, t, s)
    seed = seeded((2, 4, t, 32))
    output, gradients = compiled.evaluate(params, {"m": mask}, output_gradients={"output": seed})
    want, theirs = reference(params, mask, seed, enable_gqa=groups < 4, **settings)
    near(output["output"], want)
    for name, gradient in gradients.items():
        near(gradient, theirs[name])


@pytest.mark.parametrize("dtype", [ml.bool, ml.float32], ids=["bool", "float"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_values_and_gradients_are_those_of_torch(make, form, dtype):
    compiled = attending(make(), form, dtype)
    for sizes in SIZES:
        compare(compiled, form, dtype, sizes)


@pytest.mark.parametrize("dtype", [ml.bool, ml.float32], ids=["bool", "float"])
def test_grouped_heads_and_a_scale(make, dtype):
    for form in (["t", "s"], [2, 4, "t", "s"]):
        compiled = attending(make(), form, dtype, groups=2, scale=0.4)
        compare(compiled, form, dtype, (33, 17), groups=2, scale=0.4)


def test_scores_are_never_all_in_memory():
    compiled = attending(ml.CpuBackend(), [2, 1, 1, "s"])
    compare(compiled, [2, 1, 1, "s"], ml.float32, (7, 9))
    assert compiled.code.count("attention_gradient(") == 3
    assert "softmax" not in compiled.code


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0)])
def test_no_queries_or_keys(make, sizes):
    t, s = sizes
    for dtype in (ml.bool, ml.float32):
        compiled = attending(make(), ["t", "s"], dtype)
        params, inputs = arrays(t, s), {"m": drawn_mask(["t", "s"], ml.float32, t, s)}
        inputs["m"] = inputs["m"].astype(bool if dtype is ml.bool else np.float32)
        seed = {"output": seeded((2, 4, t, 32))}
        output, gradients = compiled.evaluate(params, inputs, output_gradients=seed)
        np.testing.assert_array_equal(output["output"], np.zeros((2, 4, t, 32), np.float32))
        assert {n: v.shape for n, v in gradients.items()} == {n: v.shape for n, v in params.items()}
        assert not any(np.any(gradient) for gradient in gradients.values())


def hidden():
    """A bool mask of hidden keys. Two queries see no key."""
    hidden = np.random.default_rng(2).random((37, 41)) < 0.5
    hidden[:, 0] = False
    hidden[[3, 36]] = True
    return hidden


@pytest.mark.parametrize("dtype", [ml.bool, ml.float32], ids=["bool", "float"])
def test_fully_masked_queries_give_zero(make, dtype):
    mask = np.where(hidden(), -np.inf, 0).astype(np.float32)
    mask = mask == 0 if dtype is ml.bool else mask
    params, seed = arrays(*mask.shape), seeded((2, 4, 37, 32))
    compiled = attending(make(), ["t", "s"], dtype)
    output, gradients = compiled.evaluate(params, {"m": mask}, output_gradients={"output": seed})
    want, theirs = reference(params, mask, seed)
    near(output["output"], np.nan_to_num(want))
    assert not output["output"][:, :, [3, 36]].any()
    assert not gradients["q"][:, :, [3, 36]].any()
    for name, gradient in gradients.items():
        near(gradient, theirs[name])


def parts(mask, params, seed):
    """Output and gradients of NumPy's source, which decomposes attention."""
    compiled = attending(ml.NumpyBackend(), ["t", "s"])
    with np.errstate(all="ignore"):
        output, gradients = compiled.evaluate(params, {"m": mask}, output_gradients=seed)
    return output["output"], gradients


@pytest.mark.parametrize("least", [-1e4, -1e9, np.finfo(np.float32).min])
def test_rows_masked_by_a_finite_number_stay_finite(make, least):
    """If a finite number hides all keys of a query, it sees all, the more evenly the larger the
    number is."""
    mask = np.where(hidden(), least, 0).astype(np.float32)
    params, seed = arrays(*mask.shape), {"output": seeded((2, 4, 37, 32))}
    output, gradients = attending(make(), ["t", "s"]).evaluate(
        params, {"m": mask}, output_gradients=seed
    )
    want, theirs = parts(mask, params, seed)
    bound = 1e-3 if least == -1e4 else 1e-5
    near(output["output"], want, bound)
    for name, gradient in gradients.items():
        near(gradient, theirs[name], bound)
    if least < -1e8:
        near(output["output"][:, :, 3], params["v"].mean(2))


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("where", ["mask", "query", "key"])
def test_infinite_and_undefined_scores(make, where, value):
    mask, params = drawn_mask(["t", "s"], ml.float32, 37, 41), arrays(37, 41)
    if where == "mask":
        mask[4, 7], mask[36, 40] = value, value
    else:
        params["q" if where == "query" else "k"][1, 2, 3, 4] = value
    seed = {"output": seeded((2, 4, 37, 32))}
    output, _ = attending(make(), ["t", "s"]).evaluate(params, {"m": mask}, output_gradients=seed)
    want, _ = parts(mask, params, seed)
    assert np.isnan(want).any()
    assert not np.isnan(want).all()
    np.testing.assert_allclose(output["output"], want, rtol=1e-5, atol=1e-5)


def test_a_mask_that_is_trained(make):
    """The gradient of the mask is reduced to its shape, and the kernel does not compute it."""
    compiled = attending(make(), [4, 1, "s"], trained="qkvm")
    params = arrays(9, 13)
    mask = drawn_mask([4, 1, "s"], ml.float32, 9, 13)
    seed = seeded((2, 4, 9, 32))
    output = {"output": seed}
    _, gradients = compiled.evaluate(params | {"m": mask}, {}, output_gradients=output)
    own = torch.tensor(mask, dtype=torch.float64, requires_grad=True)
    heads = [torch.tensor(v, dtype=torch.float64) for v in params.values()]
    F.scaled_dot_product_attention(*heads, attn_mask=own).backward(torch.tensor(seed).double())
    near(gradients["m"], own.grad.numpy())
    _, theirs = reference(params, mask, seed)
    for name in "qkv":
        near(gradients[name], theirs[name])


def test_a_mask_that_is_computed_and_moved(make):
    """Transposed, sliced, and computed from other masks: the kernel reads the right elements."""
    model = Model()
    model |= Buffer()(input="pair", output="seen")
    model |= Buffer()(input="padding", output="there")
    turned = model.seen.transpose((1, 0))
    model |= ScaledDotProduct()(query="q", key="k", value="v", mask=turned, output="first")
    added = (1.0 - model.there[:, None, None, ::2]) * -1e9
    model |= ScaledDotProduct()(query="q", key="k", value="v", mask=added, output="second")
    model.set_types({"pair": ml.bool})
    shapes = {name: [2, 4, 19, 16] for name in "qkv"} | {"pair": [19, 19], "padding": [2, 38]}
    compiled = ml.compile(model, make(), shapes=shapes, inference=True)
    params = {name: arrays(19, 19)[name][..., :16] for name in "qkv"}
    seen = np.random.default_rng(3).random((19, 19)) < 0.5
    seen[0] = True
    padding = (np.arange(38) < [[30], [12]]).astype(np.float32)
    got = compiled.evaluate({}, params | {"pair": seen, "padding": padding})
    heads = [torch.tensor(v) for v in params.values()]
    first = F.scaled_dot_product_attention(*heads, attn_mask=torch.tensor(seen.T))
    near(got["first"], first.numpy())
    shown = torch.tensor(padding[:, None, None, ::2] > 0)
    near(got["second"], F.scaled_dot_product_attention(*heads, attn_mask=shown).numpy())
