"""Attention and positional encodings without `shapes=`: forward and gradients like PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril.models import (
    Add,
    Concat,
    CrossEntropy,
    Einsum,
    Embedding,
    LayerNorm,
    Linear,
    Mean,
    Model,
    MultiHeadAttention,
    PositionalEncoding,
    Relu,
    RotaryEmbedding,
    TrainModel,
)

F = torch.nn.functional
WIDTH, HEADS, WORDS, CLASSES = 16, 4, 11, 3


@pytest.fixture(params=INSTALLED)
def made(request):
    return getattr(ml, MAKERS[request.param])()


def x(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def layer() -> Model:
    model = Model()
    model |= LayerNorm(name="before")(input="x", output="a")
    model |= MultiHeadAttention(HEADS, name="attention")(input="a", mask="mask", output="b")
    model |= Add()("x", "b", output="h")
    model |= LayerNorm(name="between")(input="h", output="c")
    model |= Linear(32, name="up")(input="c", output="d")
    model |= Relu()(input="d", output="e")
    model |= Linear(WIDTH, name="down")(input="e", output="f")
    model |= Add()("h", "f", output="y")
    return model


def classifier() -> Any:
    model = Model()
    model |= Embedding(WORDS, WIDTH, name="words")(input="tokens", output="v")
    model |= PositionalEncoding()(input="v", output="p")
    model |= layer()(x="p", mask="mask", y="first")
    model |= layer()(x="first", mask="mask", y="second")
    model |= Mean(axis=1)(input="second", output="pooled")
    model |= Linear(CLASSES, name="head")(input="pooled", output="scores")
    training = TrainModel(model)
    training.add_loss(CrossEntropy(), reduce_steps=[Mean()], input="scores", target="labels")
    return training


def positions(length: int, width: int) -> Any:
    """The encoding of Vaswani et al. 2017, sec. 3.5."""
    at = torch.arange(length, dtype=torch.float64)[:, None]
    turn = at * 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack([turn.sin(), turn.cos()], -1).flatten(-2)


def normed(value: Any, params: dict[str, Any], name: str) -> Any:
    return F.layer_norm(value, (WIDTH,), params[f"{name}.w"], params[f"{name}.b"])


def attended(value: Any, params: dict[str, Any], name: str, mask: Any) -> Any:
    def project(value: Any, part: str) -> Any:
        return value @ params[f"{name}.w_{part}"] + params[f"{name}.b_{part}"]

    parts = ("query", "key", "value")
    heads = [project(value, part).unflatten(-1, (HEADS, -1)).transpose(-3, -2) for part in parts]
    seen = F.scaled_dot_product_attention(*heads, attn_mask=mask)
    return project(seen.transpose(-3, -2).flatten(-2), "output")


def classified(params: dict[str, Any], tokens: Any, mask: Any, labels: Any) -> Any:
    h = params["words.w"][torch.tensor(tokens)]
    h = h + positions(h.shape[-2], WIDTH)
    seen = torch.tensor(mask)[:, None, None]
    blocks = sorted({name.split(".")[0] for name in params} - {"words", "head"})
    for block in blocks:
        h = h + attended(normed(h, params, f"{block}.before"), params, f"{block}.attention", seen)
        inner = normed(h, params, f"{block}.between") @ params[f"{block}.up.w"]
        inner = (inner + params[f"{block}.up.b"]).relu()
        h = h + inner @ params[f"{block}.down.w"] + params[f"{block}.down.b"]
    scores = h.mean(1) @ params["head.w"] + params["head.b"]
    return F.cross_entropy(scores, torch.tensor(labels))


def test_a_classifier_of_sequences(made):
    """Sequences of several lengths, with a bool mask for padding."""
    compiled = ml.compile(classifier(), made)
    params = compiled.randomize_params(seed=0)
    rng = np.random.default_rng(1)
    index = np.int32 if made.kind == "jax" else np.int64
    for batch, length in ((4, 7), (6, 5), (5, 5)):
        tokens = rng.integers(0, WORDS, (batch, length)).astype(index)
        labels = rng.integers(0, CLASSES, batch).astype(index)
        mask = np.arange(length) < rng.integers(1, length + 1, batch)[:, None]
        inputs = {"tokens": tokens, "labels": labels, "mask": mask}
        outputs, gradients = compiled.evaluate(params, inputs, output_gradients=True)
        own = {
            name: torch.tensor(made.to_numpy(value), dtype=torch.float64, requires_grad=True)
            for name, value in params.items()
        }
        cost = classified(own, tokens.astype(np.int64), mask, labels.astype(np.int64))
        cost.backward()
        got = float(made.to_numpy(outputs["final_cost"]))
        assert got == pytest.approx(cost.item(), rel=1e-4)
        for name, value in own.items():
            gradient = made.to_numpy(gradients[name])
            np.testing.assert_allclose(gradient, value.grad.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"kv_heads": 2}, {"is_causal": True}], ids=str)
def test_attention_without_shapes_matches_attention_with_shapes(made, settings):
    """Attention on its own gives the same as with `shapes=`."""
    model = MultiHeadAttention(HEADS, **settings)
    opened = ml.compile(model, made)
    params = opened.randomize_params(seed=0)
    for shape in ((2, 5, WIDTH), (3, 4, WIDTH), (6, WIDTH)):
        inputs = {"input": made.from_numpy(x(*shape))}
        got = opened.evaluate(params, inputs)["output"]
        shaped = ml.compile(model, made, shapes={"input": shape})
        want = shaped.evaluate(params, inputs)["output"]
        np.testing.assert_allclose(made.to_numpy(got), made.to_numpy(want), rtol=1e-5, atol=1e-5)


def test_attention_to_another_sequence(made):
    model = Model()
    model |= MultiHeadAttention(HEADS)(input="x", context="other", output="y")
    opened = ml.compile(model, made)
    inputs = {"x": x(2, 5, WIDTH), "other": x(2, 3, 8)}
    params = opened.randomize_params(seed=0)
    got = made.to_numpy(opened.evaluate(params, inputs)["y"])
    shaped = ml.compile(model, made, shapes={n: v.shape for n, v in inputs.items()})
    want = made.to_numpy(shaped.evaluate(params, inputs)["y"])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_width_that_heads_do_not_divide(made):
    compiled = ml.compile(MultiHeadAttention(HEADS), made)
    with pytest.raises(ml.MithrilError) as caught:
        compiled.evaluate(compiled.randomize_params(seed=0), {"input": x(2, 5, 15)})
    assert "15" in str(caught.value)
    assert "MultiHeadAttention" in str(caught.value) or "input" in str(caught.value)


def test_positions(made):
    value = x(2, 5, WIDTH)
    compiled = ml.compile(PositionalEncoding(), made)
    got = made.to_numpy(compiled.evaluate({}, {"input": value})["output"])
    want = torch.tensor(value, dtype=torch.float64) + positions(5, WIDTH)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    with pytest.raises(ml.MithrilError, match="15"):
        compiled.evaluate({}, {"input": x(2, 5, 15)})


def test_rotary_embeddings_match_the_formula(made):
    """Su et al. 2021, eq. 34, applied to halves of vectors, with gradients."""
    compiled = ml.compile(RotaryEmbedding(), made, trainable_keys=["input"])
    for shape in ((2, 5, WIDTH), (2, 3, 4, 8)):
        value = torch.tensor(x(*shape), dtype=torch.float64, requires_grad=True)
        length, half = shape[-2], shape[-1] // 2
        turn = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        first, second = value[..., :half], value[..., half:]
        sine, cosine = turn.double().sin(), turn.double().cos()
        want = torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)
        seed = x(*shape)[::-1].copy()
        want.backward(torch.tensor(seed, dtype=torch.float64))
        params = {"input": made.from_numpy(x(*shape))}
        seeds = {"output": made.from_numpy(seed)}
        outputs, gradients = compiled.evaluate(params, {}, output_gradients=seeds)
        for got, theirs in ((outputs["output"], want.detach()), (gradients["input"], value.grad)):
            np.testing.assert_allclose(made.to_numpy(got), theirs, rtol=1e-4, atol=1e-4)


EINSUMS = {
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 5)),
    "ij,kj->ik": ((3, 4), (5, 4)),
    "ii->i": ((4, 4),),
    "...ii->...": ((2, 4, 4),),
    "ij->ji": ((3, 4),),
    "i,j,k->kij": ((2,), (3,), (4,)),
    "bhqd,bkhd->bhqk": ((2, 3, 4, 5), (2, 6, 3, 5)),
    "ij->": ((3, 4),),
    "i,jk,klm->ijm": ((2,), (3, 4), (4, 5, 6)),
    "ijkl,k->ijl": ((2, 3, 4, 5), (4,)),
    "b...i,i->b...": ((2, 3, 4), (4,)),
}


@pytest.mark.parametrize("equation", EINSUMS)
def test_einsum(made, equation):
    operands = [x(*shape) for shape in EINSUMS[equation]]
    names = [f"x{at}" for at in range(len(operands))]
    model = Model()
    model |= Einsum(equation)(names, output="y")
    compiled = ml.compile(model, made, trainable_keys=names)
    params = {n: made.from_numpy(v.copy()) for n, v in zip(names, operands, strict=True)}
    own = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in operands]
    want = torch.einsum(equation, *own)
    want.sum().backward()
    seed = {"y": made.from_numpy(np.ones(tuple(want.shape), np.float32))}
    outputs, gradients = compiled.evaluate(params, {}, output_gradients=seed)
    np.testing.assert_allclose(made.to_numpy(outputs["y"]), want.detach(), rtol=1e-5, atol=1e-5)
    for name, theirs in zip(names, own, strict=True):
        got = made.to_numpy(gradients[name])
        np.testing.assert_allclose(got, theirs.grad, rtol=1e-5, atol=1e-5)


def test_concat_of_flat_arrays(made):
    model = Model()
    model |= Concat(axis=None)(inputs=["a", "b"], output="y")
    compiled = ml.compile(model, made, trainable_keys=["a", "b"])
    for a, b in ((x(2, 3), x(4)), (x(5), x(2, 2, 2))):
        params = {"a": made.from_numpy(a), "b": made.from_numpy(b)}
        want = np.concatenate([a, b], axis=None)
        seed = x(want.size)[::-1].copy()
        seeds = {"y": made.from_numpy(seed)}
        outputs, gradients = compiled.evaluate(params, {}, output_gradients=seeds)
        np.testing.assert_array_equal(made.to_numpy(outputs["y"]), want)
        np.testing.assert_array_equal(made.to_numpy(gradients["a"]).ravel(), seed[: a.size])
