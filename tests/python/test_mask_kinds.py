"""Masks without a declared dtype: bool selects, float is added. Also the axes of masks."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril.models import Add, Buffer, IOKey, Linear, Model, MultiHeadAttention, ScaledDotProduct

F = torch.nn.functional
BATCH, LENGTH, WIDTH, HEADS = 3, 5, 16, 4


@pytest.fixture(params=INSTALLED)
def made(request):
    return getattr(ml, MAKERS[request.param])()


def attention() -> Model:
    model = Model()
    model |= MultiHeadAttention(HEADS)(input="x", mask="mask", output="y")
    return model


def rows(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def padding(batch: int = BATCH, length: int = LENGTH) -> Any:
    """A (batch, keys) mask that shows each sequence's first keys."""
    return np.arange(length) < np.arange(2, batch + 2)[:, None]


def causal(length: int = LENGTH) -> Any:
    return np.tril(np.ones((length, length), bool))


def added(seen: Any) -> Any:
    return np.where(seen, 0, -np.inf).astype(np.float32)


def plain(backend: Any, found: dict[str, Any]) -> dict[str, Any]:
    return {name: backend.to_numpy(value) for name, value in found.items()}


def reference(params: dict[str, Any], x: Any, scores: Any) -> tuple[Any, dict[str, Any]]:
    """PyTorch's output for a mask with all axes, and the gradients of its sum."""
    own = {n: torch.tensor(v, dtype=torch.float64, requires_grad=True) for n, v in params.items()}
    path = next(name for name in own if name.endswith("w_query"))[: -len("w_query")]
    x = torch.tensor(x, dtype=torch.float64)

    def project(value: Any, name: str) -> Any:
        return value @ own[f"{path}w_{name}"] + own[f"{path}b_{name}"]

    heads = [
        project(x, n).unflatten(-1, (HEADS, -1)).transpose(1, 2) for n in ("query", "key", "value")
    ]
    mask = torch.tensor(scores if scores.dtype == bool else scores.astype(np.float64))
    seen = F.scaled_dot_product_attention(*heads, attn_mask=mask)
    y = project(seen.transpose(1, 2).flatten(2), "output")
    y.sum().backward()
    return y.detach().numpy(), {name: value.grad.numpy() for name, value in own.items()}


def check(compiled: Any, params: dict[str, Any], x: Any, mask: Any, scores: Any) -> None:
    """Compares a call with PyTorch. `scores` is the same mask with all axes."""
    backend = compiled.backend
    inputs = {"x": backend.from_numpy(x.copy()), "mask": backend.from_numpy(mask.copy())}
    # The first call determines the shapes if `shapes=` does not.
    compiled.evaluate(params, inputs)
    values = plain(backend, params)
    want, theirs = reference(values, x, scores)
    seed = {"y": backend.from_numpy(np.ones(want.shape, np.float32))}
    outputs, gradients = compiled.evaluate(params, inputs, output_gradients=seed)
    np.testing.assert_allclose(backend.to_numpy(outputs["y"]), want, rtol=1e-4, atol=1e-4)
    for name, gradient in plain(backend, gradients).items():
        np.testing.assert_allclose(gradient, theirs[name], rtol=1e-3, atol=1e-3)


FORMS = {
    "batch, keys": (padding(), padding()[:, None, None]),
    "queries, keys": (causal(), causal()),
    "keys": (padding()[1], padding()[1:2]),
    "1, keys": (padding()[1:2], padding()[1:2]),
    "batch, queries, keys": (
        padding()[:, None] & causal(),
        (padding()[:, None] & causal())[:, None],
    ),
    "batch, 1, keys": (padding()[:, None], padding()[:, None, None]),
    "1, queries, keys": (causal()[None], causal()),
    "batch, 1, 1, keys": (padding()[:, None, None], padding()[:, None, None]),
    "batch, heads, queries, keys": (np.tile(causal(), (BATCH, HEADS, 1, 1)), causal()),
}


@pytest.mark.parametrize(
    "shapes", [None, {"x": ["batch", "length", WIDTH]}], ids=["open", "shaped"]
)
@pytest.mark.parametrize("form", FORMS)
def test_first_call_determines_the_mask_dtype(made, form, shapes, caplog):
    """A bool mask, a float one, and a bool one again need two programs."""
    mask, scores = FORMS[form]
    compiled = ml.compile(attention(), made, shapes=shapes)
    params = compiled.randomize_params(seed=0)
    with caplog.at_level(logging.INFO, logger="mithril"):
        check(compiled, params, rows(BATCH, LENGTH, WIDTH), mask, scores)
        check(compiled, params, rows(BATCH, LENGTH, WIDTH), added(mask), added(scores))
        check(compiled, params, rows(BATCH, LENGTH, WIDTH), mask, scores)
    told = [r.getMessage() for r in caplog.records if r.name == "mithril"]
    assert len(told) == 2
    assert "mask of bool" in told[0]
    assert "mask of float32" in told[1]


def test_calls_may_alternate_between_mask_axes(made):
    compiled = ml.compile(attention(), made)
    params = compiled.randomize_params(seed=0)
    for form in ("batch, keys", "queries, keys", "batch, keys"):
        mask, scores = FORMS[form]
        check(compiled, params, rows(BATCH, LENGTH, WIDTH), mask, scores)


def test_mask_axes_of_the_first_call_are_kept(made):
    """A batch with as many sequences as queries is ambiguous; it is read like the earlier ones."""
    compiled = ml.compile(attention(), made)
    params = compiled.randomize_params(seed=0)
    for batch in (BATCH, LENGTH):
        mask = padding(batch)
        check(compiled, params, rows(batch, LENGTH, WIDTH), mask, mask[:, None, None])


def test_ambiguous_mask_axes_are_errors(made):
    compiled = ml.compile(attention(), made)
    params = compiled.randomize_params(seed=0)
    inputs = {"x": rows(LENGTH, LENGTH, WIDTH), "mask": padding(LENGTH)}
    with pytest.raises(ml.MithrilError) as caught:
        compiled.evaluate(params, inputs)
    text = str(caught.value)
    assert "(queries, keys) or (batch, keys)" in text
    assert "multi_head_attention" in text
    assert "mask[:, None]" in text
    # Follow the hint.
    check(compiled, params, inputs["x"], inputs["mask"][:, None], inputs["mask"][:, None, None])
    check(compiled, params, inputs["x"], inputs["mask"][None], inputs["mask"])


@pytest.mark.parametrize("second", ["batch", "length"])
def test_names_of_dims_tell_the_axes(made, second):
    shapes = {"x": ["batch", "length", WIDTH], "mask": [second, "length"]}
    compiled = ml.compile(attention(), made, shapes=shapes, dtypes={"mask": ml.bool})
    params = compiled.randomize_params(seed=0)
    mask = padding(LENGTH)
    scores = mask[:, None, None] if second == "batch" else mask
    check(compiled, params, rows(LENGTH, LENGTH, WIDTH), mask, scores)


@pytest.mark.parametrize("sizes", [(5, 5), (None, None)])
def test_ambiguous_mask_shapes_are_errors(sizes):
    shapes = {"x": [*sizes, WIDTH], "mask": sizes}
    with pytest.raises(ml.MithrilError, match=r"\(queries, keys\) or \(batch, keys\)"):
        ml.compile(attention(), ml.NumpyBackend(), shapes=shapes)


def test_a_mask_of_other_sizes():
    shapes = {"x": [3, 5, WIDTH], "mask": [4, 5]}
    with pytest.raises(ml.MithrilError, match=r"expected: \(5, keys\) or \(3, keys\)"):
        ml.compile(attention(), ml.NumpyBackend(), shapes=shapes)


def test_dtypes_at_compile(made):
    compiled = ml.compile(attention(), made, dtypes={"mask": ml.bool})
    params = compiled.randomize_params(seed=0)
    check(compiled, params, rows(BATCH, LENGTH, WIDTH), causal(), causal())
    with pytest.raises(ml.MithrilError) as caught:
        compiled.evaluate(params, {"x": rows(BATCH, LENGTH, WIDTH), "mask": added(causal())})
    assert "cast" not in str(caught.value)


def test_a_mask_that_is_moved_before(made):
    """The mask is found through blocks that only move elements."""
    model = Model()
    model |= Buffer()(input="mask", output="own")
    model |= MultiHeadAttention(HEADS)(input="x", mask=model.own[:, None, :], output="y")
    compiled = ml.compile(model, made)
    params = compiled.randomize_params(seed=0)
    for mask in (padding(), added(padding())):
        check(compiled, params, rows(BATCH, LENGTH, WIDTH), mask, mask[:, None, None])


def test_a_mask_of_a_model_in_a_model(made):
    outer = Model()
    outer |= attention()(x="x", mask="mask", y="h")
    outer |= attention()(x="h", mask="mask", y="y")
    compiled = ml.compile(outer, made)
    params = compiled.randomize_params(seed=0)
    got = {}
    for mask in (padding(), added(padding())):
        inputs = {"x": rows(BATCH, LENGTH, WIDTH), "mask": mask}
        got[mask.dtype] = made.to_numpy(compiled.evaluate(params, inputs)["y"])
    first, second = got.values()
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-5)


def test_masks_used_in_arithmetic_are_float():
    model = attention()
    model |= Add()("mask", 1.0, output="more")
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"x": [2, 3, WIDTH], "mask": [3, 3]})
    assert "mask" in compiled.code


def test_scaled_dot_product(made):
    model = Model()
    names = {"query": "q", "key": "k", "value": "v", "mask": "mask"}
    model |= ScaledDotProduct()(**names, output="y")
    compiled = ml.compile(model, made)
    heads = {name: rows(2, HEADS, LENGTH, WIDTH) for name in "qkv"}
    want = F.scaled_dot_product_attention(
        *(torch.tensor(v) for v in heads.values()), attn_mask=torch.tensor(causal())
    )
    for mask in (causal(), added(causal())):
        got = made.to_numpy(compiled.evaluate({}, heads | {"mask": mask})["y"])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_mask_of_integers_is_refused(made):
    compiled = ml.compile(attention(), made)
    params = compiled.randomize_params(seed=0)
    with pytest.raises(ml.MithrilError) as caught:
        compiled.evaluate(params, {"x": rows(2, 3, WIDTH), "mask": np.ones((2, 1, 3), np.int64)})
    text = str(caught.value)
    assert "`mask` is a mask" in text
    assert "mask != 0" in text
    assert "cast" not in text


@pytest.mark.parametrize(
    "shapes", [None, {"x": [2, 3, WIDTH], "mask": [3, 3]}], ids=["open", "shaped"]
)
def test_code_requires_mask_dtypes(made, shapes, tmp_path):
    compiled = ml.compile(attention(), made, shapes=shapes)
    for ask in (lambda: compiled.code, lambda: compiled.module, compiled.explain):
        with pytest.raises(ml.MithrilError, match=r"dtype.* of `mask`") as caught:
            ask()
        assert '`dtypes={"mask": ml.bool}`' in str(caught.value)
    if made.target.dialect != "machine":
        path = tmp_path / f"m{made.target.suffix}"
        with pytest.raises(ml.MithrilError, match=r"dtypes="):
            ml.compile(attention(), made, shapes=shapes, file_path=path)
    if not made.writes:
        with pytest.raises(ml.MithrilError, match=r"dtypes="):
            compiled.export(tmp_path)
    if shapes:
        sized = ml.compile(attention(), made, shapes=shapes, dtypes={"mask": ml.bool})
        assert sized.code
        assert np.asarray(made.to_numpy(compiled.randomize_params(seed=0)[compiled.params[0]])).size


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (np.ones((2, 4), bool), 'dtypes={"input": ml.bool}'),
        (np.ones((2, 4), np.float64), "backend.array(x)"),
        (np.ones((2, 4), np.int64), 'backend.cast(x, "float32")'),
    ],
    ids=["bool", "float64", "int64"],
)
def test_hints_keep_the_meaning(given, hint):
    compiled = ml.compile(Linear(3), ml.NumpyBackend(), shapes={"input": [2, 4]})
    with pytest.raises(ml.MithrilError) as caught:
        compiled.evaluate(compiled.randomize_params(seed=0), {"input": given})
    assert hint in str(caught.value)


def test_a_float_mask_for_a_bool_input():
    """A cast would turn -inf into True."""
    compiled = ml.compile(
        attention(), ml.NumpyBackend(), shapes={"x": [2, 3, WIDTH]}, dtypes={"mask": ml.bool}
    )
    with pytest.raises(ml.MithrilError, match="compare to get bools"):
        compiled.evaluate(
            compiled.randomize_params(seed=0),
            {"x": rows(2, 3, WIDTH), "mask": np.zeros((1, 3, 3), np.float32)},
        )


def test_adding_a_bool_is_an_error():
    """A bool mask added to scores as zeros and ones would hide nothing."""
    model = Model()
    model |= Add()(left="scores", right=IOKey("mask", dtype=ml.bool), output="y")
    with pytest.raises(ml.MithrilError, match="`Where`"):
        ml.compile(model, ml.NumpyBackend(), shapes={"scores": [3], "mask": [3]})
