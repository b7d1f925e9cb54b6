"""Checks the rows of `docs/guide/from-pytorch.md` and `from-jax.md`, on what is the same there and
what differs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mithril as ml

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype("float32")
SCORES = RNG.standard_normal((5, 3)).astype("float32")
IMAGE = RNG.standard_normal((5, 3, 7)).astype("float32")
LABELS, PLACES = RNG.integers(0, 3, 5), RNG.integers(0, 3, (5, 7))
P = np.float32([[0.2, 0.8], [0.5, 0.5]])
Q = np.float32([[0.3, 0.7], [0.9, 0.1]])
HALVES = (SCORES > 0).astype("float32")


def given(block: ml.Block, *arrays: Any) -> Any:
    """The block's first output for these arrays, given in the order of its inputs."""
    shapes = {n: list(a.shape) for n, a in zip(block.inputs, arrays, strict=False)}
    compiled = ml.compile(block, ml.NumpyBackend(), shapes=shapes)
    inputs = dict(zip(compiled.inputs, arrays, strict=True))
    with np.errstate(divide="ignore"):
        return next(iter(compiled.evaluate({}, inputs).values()))


def joined(block: Callable[..., Any]) -> Any:
    model = ml.Model()
    model |= block(inputs=["a", "b"], output="output")
    return given(model, X, X)


T = torch.tensor
SAME: dict[str, Callable[[], Any]] = {
    "var": lambda: (given(ml.Variance(correction=1), X), T(X).var()),
    "std": lambda: (given(ml.Std(correction=1), X), T(X).std()),
    "flatten": lambda: (given(ml.Flatten(start=1), X), nn.Flatten()(T(X))),
    "torch.flatten": lambda: (given(ml.Flatten(), X), torch.flatten(T(X))),
    "cat": lambda: (joined(ml.Concat(axis=0)), torch.cat([T(X), T(X)])),
    "stack": lambda: (joined(ml.Stack()), torch.stack([T(X), T(X)])),
    "max": lambda: (given(ml.Max(axis=1), X), T(X).max(dim=1).values),
    "permute": lambda: (given(ml.Transpose([2, 0, 1]), X), T(X).permute(2, 0, 1)),
    "transpose": lambda: (given(ml.SwapAxes(0, 1), X), T(X).transpose(0, 1)),
    "index_select": lambda: (
        given(ml.Gather(), X, PLACES[0] % 2),
        T(X).index_select(0, T(PLACES[0] % 2)),
    ),
    "index_add": lambda: (
        given(ml.Scatter(), SCORES, LABELS, SCORES),
        T(SCORES).index_add(0, T(LABELS), T(SCORES)),
    ),
    "rms_norm": lambda: (
        given(ml.RMSNorm(use_scale=False, eps=1.1920929e-7), X * 1e-3),
        F.rms_norm(T(X * np.float32(1e-3)), (4,)),
    ),
    "layer_norm": lambda: (
        given(ml.LayerNorm(use_scale=False, use_bias=False), X),
        F.layer_norm(T(X), (4,)),
    ),
    "gelu": lambda: (given(ml.Gelu(), X), F.gelu(T(X))),
    "gelu tanh": lambda: (given(ml.Gelu(approximate=True), X), F.gelu(T(X), approximate="tanh")),
    "relu6": lambda: (given(ml.Clamp(0, 6), 9 * X), F.relu6(T(9 * X))),
    "softmax": lambda: (given(ml.Softmax(), X), F.softmax(T(X), -1)),
    "cross_entropy": lambda: (
        given(ml.CrossEntropy(), SCORES, LABELS),
        F.cross_entropy(T(SCORES), T(LABELS), reduction="none"),
    ),
    "cross_entropy of images": lambda: (
        given(ml.CrossEntropy(axis=1), IMAGE, PLACES),
        F.cross_entropy(T(IMAGE), T(PLACES), reduction="none"),
    ),
    "nll": lambda: (
        given(ml.CrossEntropy(input_type="log_probs"), np.log(P), LABELS[:2] % 2),
        F.nll_loss(T(P).log(), T(LABELS[:2] % 2), reduction="none"),
    ),
    "kl_div": lambda: (
        given(ml.KLDivergence(input_type="log_probs"), np.log(P), Q),
        F.kl_div(T(P).log(), T(Q), reduction="none"),
    ),
    "kl_div of probabilities": lambda: (
        given(ml.KLDivergence(), P, Q),
        F.kl_div(T(P).log(), T(Q), reduction="none"),
    ),
    "bce": lambda: (
        given(ml.BinaryCrossEntropy(input_type="probs"), P, Q),
        F.binary_cross_entropy(T(P), T(Q), reduction="none"),
    ),
    "bce with logits": lambda: (
        given(ml.BinaryCrossEntropy(), SCORES, HALVES),
        F.binary_cross_entropy_with_logits(T(SCORES), T(HALVES), reduction="none"),
    ),
    "smooth_l1": lambda: (
        given(ml.Huber(delta=0.5), SCORES, SCORES[::-1].copy()) / 0.5,
        F.smooth_l1_loss(T(SCORES), T(SCORES[::-1].copy()), beta=0.5, reduction="none"),
    ),
    "cosine": lambda: (
        given(ml.CosineEmbedding(), SCORES, SCORES[::-1].copy()),
        F.cosine_embedding_loss(T(SCORES), T(SCORES[::-1].copy()), torch.ones(5), reduction="none"),
    ),
    "jax.nn.gelu": lambda: (given(ml.Gelu(approximate=True), X), jax.nn.gelu(X)),
    "jnp.var": lambda: (given(ml.Variance(), X), jnp.var(X)),
    "jnp.take": lambda: (given(ml.Gather(), SCORES, LABELS), jnp.take(SCORES, LABELS, axis=0)),
    "jnp.add at": lambda: (
        given(ml.Scatter(), SCORES, LABELS, SCORES),
        jnp.asarray(SCORES).at[LABELS].add(SCORES),
    ),
    "one_hot": lambda: (given(ml.OneHot(3), LABELS), jax.nn.one_hot(LABELS, 3)),
    "top_k": lambda: (given(ml.TopK(2), SCORES), jax.lax.top_k(SCORES, 2)[0]),
    "l2_loss": lambda: (
        given(ml.SquaredError(), SCORES, HALVES),
        2 * optax.l2_loss(SCORES, HALVES),
    ),
    "optax.kl": lambda: (
        given(ml.KLDivergence(input_type="log_probs"), np.log(P), Q).sum(-1),
        optax.kl_divergence(np.log(P), Q),
    ),
    "optax.ce": lambda: (
        given(ml.CrossEntropy(), SCORES, LABELS),
        optax.softmax_cross_entropy_with_integer_labels(SCORES, LABELS),
    ),
    "optax.bce": lambda: (
        given(ml.BinaryCrossEntropy(), SCORES, HALVES),
        optax.sigmoid_binary_cross_entropy(SCORES, HALVES),
    ),
    "optax.huber": lambda: (given(ml.Huber(), SCORES, HALVES), optax.huber_loss(SCORES, HALVES)),
    "optax.cosine": lambda: (
        given(ml.CosineEmbedding(), SCORES, SCORES[::-1].copy()),
        optax.cosine_distance(SCORES, SCORES[::-1]),
    ),
    "dot_product_attention": lambda: (
        given(ml.ScaledDotProduct(), *[np.stack([X, X[::-1]])] * 3),
        jnp.swapaxes(
            jax.nn.dot_product_attention(*[jnp.swapaxes(np.stack([X, X[::-1]]), 1, 2)] * 3), 1, 2
        ),
    ),
}
DIFFER: dict[str, Callable[[], Any]] = {
    "var": lambda: (given(ml.Variance(), X), T(X).var()),
    "flatten": lambda: (given(ml.Flatten(), X), nn.Flatten()(T(X))),
    "cat": lambda: (joined(ml.Concat()), torch.cat([T(X), T(X)])),
    "rms_norm": lambda: (
        given(ml.RMSNorm(use_scale=False), X * 1e-3),
        F.rms_norm(T(X) * 1e-3, (4,)),
    ),
    "sign": lambda: (given(ml.Sign(), np.float32([np.nan])), T([np.nan]).sign()),
    "bce": lambda: (
        given(ml.BinaryCrossEntropy(input_type="probs"), np.float32([0]), np.float32([1])),
        F.binary_cross_entropy(T([0.0]), T([1.0]), reduction="none"),
    ),
    "jax.nn.gelu": lambda: (given(ml.Gelu(), X), jax.nn.gelu(X)),
    "jnp.concatenate": lambda: (joined(ml.Concat()), jnp.concatenate([X, X])),
}


def equal(ours: Any, theirs: Any) -> bool:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SAME)
def test_equivalent_settings_agree(name):
    assert equal(*SAME[name]())


@pytest.mark.parametrize("name", DIFFER)
def test_default_settings_differ(name):
    assert not equal(*DIFFER[name]())


def test_bool_attention_masks_are_inverted_for_torch_layers():
    """True means visible here and in torch's function, but hidden in torch's layer."""
    seen = np.tril(np.ones((3, 3), bool))
    model = ml.Model()
    block = ml.ScaledDotProduct()
    model |= block(query="q", key="k", value="v", mask="mask", output="output")
    compiled = ml.compile(model, ml.NumpyBackend(), dtypes={"mask": ml.bool})
    ours = compiled.evaluate({}, {"q": X, "k": X, "v": X, "mask": seen})["output"]
    x = T(X)
    assert equal(ours, F.scaled_dot_product_attention(x, x, x, attn_mask=T(seen)))
    layer = nn.MultiheadAttention(4, 1, bias=False, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(4))
        assert equal(ours, layer(x, x, x, attn_mask=T(~seen))[0])
