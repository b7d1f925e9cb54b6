"""A query whose mask hides every key gives 0 and gradients of 0, on every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril.models import MatrixMultiply, Model, ScaledDotProduct, Softmax, Transpose, Where

F = torch.nn.functional
HIDDEN = [3, 8]
"""The queries that see no key."""
QUERIES, KEYS = 9, 13
# Shapes of the mask, which broadcast to that of the scores, (2, 4, queries, keys).
FORMS: dict[str, tuple[int, ...]] = {
    "pairs": (QUERIES, KEYS),
    "each head": (2, 4, QUERIES, KEYS),
    "keys": (2, 1, 1, KEYS),
}


def seen(form: tuple[int, ...]) -> Any:
    """A bool mask in which some queries, or a whole batch, see no key."""
    chosen = np.random.default_rng(0).random(form) < 0.5
    chosen[..., 0] = True
    if form[-2] == QUERIES:
        chosen[..., HIDDEN, :] = False
    else:
        chosen[1] = False
    return chosen


def attending(form: tuple[int, ...], kind: Any, backend: Any, width: int, **options: Any) -> Any:
    groups = options.pop("groups", 4)
    model = Model()
    names = {"query": "q", "key": "k", "value": "v", "mask": "m"}
    model |= ScaledDotProduct(grouped=groups < 4)(**names, output="output")
    shapes = {"q": [2, 4, QUERIES, width], "m": list(form)}
    shapes |= {name: [2, groups, KEYS, width] for name in "kv"}
    trained = options.pop("trainable_keys", ["q", "k", "v"])
    return ml.compile(
        model, backend, shapes=shapes, dtypes={"m": kind}, trainable_keys=trained, **options
    )


def arrays(width: int, groups: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    shapes = {"q": (2, 4, QUERIES, width)} | dict.fromkeys("kv", (2, groups, KEYS, width))
    return {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}


def reference(params: dict[str, Any], mask: Any, seed: Any) -> tuple[Any, dict[str, Any]]:
    """PyTorch's result and gradients in double precision."""
    own = {n: torch.tensor(v, dtype=torch.float64, requires_grad=True) for n, v in params.items()}
    kind = torch.bool if mask.dtype == bool else torch.float64
    mask = torch.tensor(mask, dtype=kind, requires_grad=kind != torch.bool)
    gqa = params["k"].shape[1] < 4
    output = F.scaled_dot_product_attention(*own.values(), attn_mask=mask, enable_gqa=gqa)
    output.backward(torch.tensor(seed, dtype=torch.float64))
    own |= {} if mask.grad is None else {"m": mask}
    return output.detach().numpy(), {n: v.grad.numpy() for n, v in own.items()}


def near(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * max(np.abs(want).max(), 1))


def check(compiled: Any, mask: Any, width: int, groups: int = 4) -> None:
    backend, params = compiled.backend, arrays(width, groups)
    seed = np.random.default_rng(2).standard_normal((2, 4, QUERIES, width)).astype(np.float32)
    want, theirs = reference(params, mask, seed)
    given = {n: backend.from_numpy(v.copy()) for n, v in {**params, "m": mask}.items()}
    learned = {n: given[n] for n in compiled.params}
    inputs = {n: given[n] for n in compiled.inputs}
    seeds = {"output": backend.from_numpy(seed)}
    with np.errstate(all="raise"):
        outputs, gradients = compiled.evaluate(learned, inputs, output_gradients=seeds)
        alone = backend.to_numpy(compiled.evaluate(learned, inputs)["output"])
    output = backend.to_numpy(outputs["output"])
    near(output, want)
    near(alone, want)
    gradients = {n: backend.to_numpy(v) for n, v in gradients.items()}
    for name, gradient in gradients.items():
        near(gradient, theirs[name])
    rows = (..., HIDDEN, slice(None)) if mask.shape[-2] == QUERIES else (1,)
    assert not output[rows].any()
    assert not gradients["q"][rows].any()


@pytest.fixture(params=INSTALLED)
def made(request):
    return getattr(ml, MAKERS[request.param])()


# Heads of width 16 have an attention kernel; those of width 6 are decomposed.
@pytest.mark.parametrize("width", [16, 6])
@pytest.mark.parametrize("kind", [ml.bool, ml.float32], ids=["bool", "float"])
@pytest.mark.parametrize("form", FORMS)
def test_fully_masked_queries_give_zero(made, form, kind, width):
    mask = seen(FORMS[form])
    if kind is not ml.bool:
        mask = np.where(mask, 0.25, -np.inf).astype(np.float32)
    check(attending(FORMS[form], kind, made, width), mask, width)


@pytest.mark.parametrize("kind", [ml.bool, ml.float32], ids=["bool", "float"])
def test_groups_of_heads(made, kind):
    mask = seen((QUERIES, KEYS))
    mask = mask if kind is ml.bool else np.where(mask, 0.25, -np.inf).astype(np.float32)
    check(attending((QUERIES, KEYS), kind, made, 16, groups=2), mask, 16, 2)


@pytest.mark.parametrize("width", [16, 6])
def test_a_mask_that_is_trained(made, width):
    mask = np.where(seen((QUERIES, KEYS)), 0.25, -np.inf).astype(np.float32)
    compiled = attending(mask.shape, ml.float32, made, width, trainable_keys=["q", "k", "v", "m"])
    check(compiled, mask, width)


@pytest.mark.parametrize(
    "options", [{"optimization_level": "none"}, {"autodiff": "mithril"}], ids=str
)
def test_unoptimized_attention_handles_fully_masked_queries(made, options):
    mask = seen((QUERIES, KEYS))
    check(attending(mask.shape, ml.bool, made, 16, **options), mask, 16)


def test_a_softmax_that_is_written_out_may_become_it():
    """A softmax that stays a softmax gives NaN for such a row."""
    model = Model()
    q, k, v = (np.float32(arrays(16)[name]) for name in "qkv")
    mask = seen((QUERIES, KEYS))
    model |= Transpose((0, 1, 3, 2))(input="k", output="turned")
    model |= MatrixMultiply()("q", model.turned, output="products")
    model |= Where()("m", model.products * 0.25, -float("inf"), output="masked")
    model |= Softmax()(model.masked, output="weights")
    model |= MatrixMultiply()(model.weights, "v", output="output")
    shapes = {"q": q.shape, "k": k.shape, "v": v.shape, "m": mask.shape}
    found = {}
    for level in ("full", "none"):
        compiled = ml.compile(
            model, ml.NumpyBackend(), shapes=shapes, optimization_level=level, inference=True
        )
        with np.errstate(all="ignore"):
            found[level] = compiled.evaluate({}, {"q": q, "k": k, "v": v, "m": mask})["output"]
    assert np.isnan(found["none"][:, :, HIDDEN]).all()
    assert not found["full"][:, :, HIDDEN].any()
    others = [at for at in range(QUERIES) if at not in HIDDEN]
    near(found["full"][:, :, others], found["none"][:, :, others])
