"""Windows, softcaps, sinks and biases of attention, compared with their formulas in PyTorch:
forward and gradients on every backend, with fixed and open dims."""

import math
from typing import Any

import numpy as np
import pytest
import torch

import mithril as ml
from mithril.models import (
    AlibiBias,
    Model,
    MultiHeadAttention,
    RelativePositionBias,
    ScaledDotProduct,
)


def drawn(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(got: Any, want: Any, bound: float = 2e-5) -> None:
    want = want.detach().numpy() if isinstance(want, torch.Tensor) else want
    got = np.asarray(got)
    assert got.shape == want.shape
    greatest = max(np.abs(want).max(initial=0), 1.0)
    np.testing.assert_allclose(got, want, rtol=bound, atol=bound * greatest)


def seen_by(queries: int, keys: int, window: Any, causal: bool) -> Any:
    """The keys that each query sees, from the definition."""
    left, right = (window, window) if isinstance(window, int) else window or (-1, -1)
    seen = torch.ones(queries, keys, dtype=torch.bool)
    for i in range(queries):
        for j in range(keys):
            seen[i, j] = (
                (left < 0 or j >= i - left)
                and (right < 0 or j <= i + right)
                and (not causal or j <= i)
            )
    return seen


def attention(
    arrays: dict[str, Any],
    *,
    window: Any = None,
    is_causal: bool = False,
    softcap: float | None = None,
    scale: float | None = None,
    grouped: bool = False,
) -> Any:
    """Attention by its formula. Queries that see no key give 0."""
    query, key, value = (arrays[name] for name in ("query", "key", "value"))
    if grouped:
        times = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(times, -3) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.mT * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    seen = seen_by(query.shape[-2], key.shape[-2], window, is_causal).expand(scores.shape)
    mask = arrays.get("mask")
    if mask is not None and mask.dtype == torch.bool:
        seen = seen & mask
    elif mask is not None:
        seen = seen & (mask > -torch.inf)
        scores = scores + torch.where(mask > -torch.inf, mask, 0)
    if "sinks" in arrays:
        sinks = arrays["sinks"][..., None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores.masked_fill(~seen, -torch.inf), sinks], -1)
        return scores.softmax(-1)[..., :-1] @ value
    some = seen.any(-1, keepdim=True)
    weights = scores.masked_fill(~seen & some, -torch.inf).softmax(-1)
    return torch.where(some, weights @ value, 0)


# Numbers of queries and keys.
SIZES = [(1, 1), (7, 33), (40, 21), (70, 70)]
WINDOWS: list[dict[str, Any]] = [
    {"window": 3},
    {"window": (0, 2), "scale": 2.0},
    {"window": (-1, 4)},
    {"window": (36, -1)},
    {"window": (2, 9), "is_causal": True},
    {"window": 10**12},
    {"is_causal": True},
    {"softcap": 1.5},
    {"softcap": 0.7, "window": (4, 0), "scale": 3.0},
]


def compiled_attention(
    backend: Any, arrays: dict[str, Any], form: dict[str, list[Any]], **settings: Any
) -> Any:
    model = Model()
    names = {name: name for name in arrays}
    model |= ScaledDotProduct(**settings)(**names, output="output")
    trained = [name for name, x in arrays.items() if x.dtype == np.float32 and name != "mask"]
    if "mask" in arrays:
        model.set_types({"mask": ml.bool if arrays["mask"].dtype == bool else ml.float32})
    return ml.compile(model, backend, shapes=form, trainable_keys=trained)


def check(backend: Any, compiled: Any, arrays: dict[str, Any], **settings: Any) -> None:
    params = {n: backend.array(x) for n, x in arrays.items() if n != "mask"}
    inputs = {n: x if x.dtype == bool else backend.array(x) for n, x in arrays.items()}
    inputs = {n: x for n, x in inputs.items() if n == "mask"}
    seed = drawn(9, *arrays["query"].shape[:-1], arrays["value"].shape[-1])
    outputs, gradients = compiled.evaluate(
        params, inputs, output_gradients={"output": backend.array(seed)}
    )
    own = {
        name: torch.tensor(x) if x.dtype == bool else torch.tensor(x, dtype=torch.float64)
        for name, x in arrays.items()
    }
    for name in params:
        own[name].requires_grad_()
    want = attention(own, **settings)
    want.backward(torch.tensor(seed, dtype=torch.float64))
    near(outputs["output"], want)
    for name in params:
        near(gradients[name], own[name].grad)


def compare(backend: Any, cases: list[dict[str, Any]], **settings: Any) -> None:
    """All cases by one model with open numbers of queries and keys, the last by a fixed one."""
    fixed = {name: list(x.shape) for name, x in cases[-1].items()}
    form = {name: list(shape) for name, shape in fixed.items()}
    for name, length in {"query": "t", "key": "s", "value": "s"}.items():
        form[name][-2] = length
    if "mask" in form:
        form["mask"][-2:] = ["t", "s"]
    compiled = compiled_attention(backend, cases[0], form, **settings)
    for arrays in cases:
        check(backend, compiled, arrays, **settings)
    check(backend, compiled_attention(backend, cases[-1], fixed, **settings), cases[-1], **settings)


def operands(t: int, s: int, width: int, heads: int = 2) -> dict[str, Any]:
    return {
        "query": drawn(1, 2, 2, t, width),
        "key": drawn(2, 2, heads, s, width),
        "value": drawn(3, 2, heads, s, width),
    }


def widths(backend: Any) -> tuple[int, ...]:
    """Heads of width 16 have an attention kernel; those of width 6 are decomposed."""
    return (16, 6) if isinstance(backend, ml.CpuBackend) else (16,)


@pytest.mark.parametrize("settings", WINDOWS, ids=str)
def test_windows_and_softcaps(backend: Any, settings: dict[str, Any]) -> None:
    for width in widths(backend):
        compare(backend, [operands(t, s, width) for t, s in SIZES], **settings)


def masked(t: int, s: int, kind: str) -> Any:
    seen = np.random.default_rng(4).random((2, 1, t, s)) < 0.3
    return seen if kind == "bool" else np.where(seen, drawn(5, t, s), -np.inf).astype(np.float32)


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize(
    "settings",
    [{"window": (9, 3)}, {"is_causal": True}, {"softcap": 2.0, "window": 4}],
    ids=str,
)
def test_windows_with_a_mask(backend: Any, settings: dict[str, Any], kind: str) -> None:
    """Some queries see keys by the mask and others by the window, and some see none by both."""
    for width in widths(backend):
        sizes = ((37, 41), (41, 20))
        cases = [operands(t, s, width) | {"mask": masked(t, s, kind)} for t, s in sizes]
        compare(backend, cases, **settings)


@pytest.mark.parametrize(
    ("settings", "sinks", "kind"),
    [
        ({}, (2,), None),
        ({"is_causal": True}, (2, 1), None),
        ({"window": (6, 2)}, (1,), "bool"),
        ({"softcap": 1.0, "scale": 2.0}, (2,), "float"),
    ],
    ids=str,
)
def test_sinks(
    backend: Any, settings: dict[str, Any], sinks: tuple[int, ...], kind: str | None
) -> None:
    for width in widths(backend):
        cases = []
        for t, s in ((5, 9), (37, 20)):
            arrays = operands(t, s, width) | {"sinks": drawn(6, *sinks) * 3}
            cases.append(arrays | ({"mask": masked(t, s, kind)} if kind else {}))
        compare(backend, cases, **settings)


def test_large_sinks(backend: Any) -> None:
    for sink in (-50.0, 50.0):
        arrays = operands(5, 9, 16) | {"sinks": np.full(2, sink, np.float32)}
        compare(backend, [arrays])


def test_grouped_heads(backend: Any) -> None:
    for settings in ({"window": (8, 1)}, {"softcap": 1.0, "is_causal": True}):
        for width in widths(backend):
            arrays = operands(33, 17, width, heads=1) | {"sinks": drawn(6, 2)}
            compare(backend, [arrays], grouped=True, **settings)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0)])
def test_no_queries_or_keys(backend: Any, sizes: tuple[int, int]) -> None:
    for settings in ({"window": 2}, {"is_causal": True, "softcap": 3.0}):
        for width in widths(backend):
            for more in ({}, {"sinks": drawn(6, 2)}):
                compare(backend, [operands(*sizes, width) | more], **settings)


def test_native_code_holds_no_scores() -> None:
    arrays = operands(64, 64, 16) | {"sinks": drawn(6, 2)}
    form = {name: list(x.shape) for name, x in arrays.items()}
    compiled = compiled_attention(ml.CpuBackend(), arrays, form, window=(7, 0), softcap=2.0)
    assert "softmax" not in compiled.code
    assert "64 x 64" not in compiled.code
    assert compiled.code.count("attention_gradient(") == 3


def slopes(heads: int) -> list[float]:
    """The slopes of Press et al. 2022, from the authors' code."""

    def power(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return power(closest) + slopes(2 * closest)[0::2][: heads - closest]


@pytest.mark.parametrize("heads", [1, 3, 8, 12])
def test_alibi(backend: Any, heads: int) -> None:
    model = Model()
    model |= AlibiBias(heads)(input="input", context="context", output="output")
    for queries, keys in (("t", "s"), (3, 5)):
        form = {"input": [2, queries, 4], "context": [2, keys, 4]}
        compiled = ml.compile(model, backend, shapes=form, inference=True)
        for t, s in ((1, 1), (0, 2), (4, 0), (3, 5)) if queries == "t" else ((3, 5),):
            inputs = {"input": drawn(1, 2, t, 4), "context": drawn(2, 2, s, 4)}
            got = compiled.evaluate({}, {n: backend.array(x) for n, x in inputs.items()})
            distance = np.abs(np.arange(s) - np.arange(t)[:, None])
            want = -np.array(slopes(heads))[:, None, None] * distance
            near(got["output"], want.astype(np.float32), 1e-6)


def t5_bucket(relative: Any, bidirectional: bool, buckets: int, max_distance: int) -> Any:
    """The bucket of a relative position, from the code of T5 in `transformers`."""
    found = torch.zeros_like(relative)
    if bidirectional:
        buckets //= 2
        found += (relative > 0).to(torch.long) * buckets
        relative = torch.abs(relative)
    else:
        relative = -torch.min(relative, torch.zeros_like(relative))
    exact = buckets // 2
    large = exact + (
        torch.log(relative.float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    ).to(torch.long)
    large = torch.min(large, torch.full_like(large, buckets - 1))
    return found + torch.where(relative < exact, relative, large)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "limit"), [(32, 128), (4, 8), (64, 1000)])
def test_relative_position_bias(
    backend: Any, bidirectional: bool, buckets: int, limit: int
) -> None:
    settings: Any = {"buckets": buckets, "max_distance": limit, "bidirectional": bidirectional}
    model = Model()
    model |= RelativePositionBias(3, **settings)(
        input="input", context="context", w="w", output="output"
    )
    for queries, keys in (("t", "s"), (3, 300)):
        form = {"input": [queries, 1], "context": [keys, 1]}
        compiled = ml.compile(model, backend, shapes=form)
        sizes = ((5, 290), (300, 7), (1, 1), (0, 2), (3, 0), (3, 300))
        for t, s in sizes if queries == "t" else sizes[-1:]:
            w, seed = drawn(3, buckets, 3), drawn(4, 3, t, s)
            inputs = {"input": drawn(1, t, 1), "context": drawn(2, s, 1)}
            outputs, gradients = compiled.evaluate(
                {"w": backend.array(w)},
                {n: backend.array(x) for n, x in inputs.items()},
                output_gradients={"output": backend.array(seed)},
            )
            table = torch.tensor(w, dtype=torch.float64, requires_grad=True)
            relative = torch.arange(s)[None] - torch.arange(t)[:, None]
            bucket = t5_bucket(relative, bidirectional, buckets, limit)
            want: Any = table[bucket].permute(2, 0, 1)
            want.backward(torch.tensor(seed, dtype=torch.float64))
            near(outputs["output"], want)
            near(gradients["w"], table.grad)


def test_bias_is_trained_through_attention(backend: Any) -> None:
    """The bias of T5, which does not scale scores."""
    model = Model()
    model |= RelativePositionBias(2, buckets=8, max_distance=20)(
        input="query", context="key", w="w", output="bias"
    )
    model |= ScaledDotProduct(scale=1.0)(
        query="query", key="key", value="value", mask=model.bias, output="output"
    )
    for width in widths(backend):
        arrays = operands(19, 33, width) | {"w": drawn(7, 8, 2)}
        form = {name: list(x.shape) for name, x in arrays.items()}
        compiled = ml.compile(model, backend, shapes=form, trainable_keys=list(arrays))
        seed = drawn(9, 2, 2, 19, width)
        outputs, gradients = compiled.evaluate(
            {name: backend.array(x) for name, x in arrays.items()},
            {},
            output_gradients={"output": backend.array(seed)},
        )
        own = {
            n: torch.tensor(x, dtype=torch.float64, requires_grad=True) for n, x in arrays.items()
        }
        relative = torch.arange(33)[None] - torch.arange(19)[:, None]
        bias = own["w"][t5_bucket(relative, True, 8, 20)].permute(2, 0, 1)
        scores = own["query"] @ own["key"].mT + bias
        want: Any = scores.softmax(-1) @ own["value"]
        want.backward(torch.tensor(seed, dtype=torch.float64))
        near(outputs["output"], want)
        for name, x in own.items():
            near(gradients[name], x.grad)


HEADS, EACH = 4, 16


def with_alibi(mask: Any, t: int, s: int) -> Any:
    """The mask with ALiBi's bias for four heads."""
    distance = (torch.arange(s)[None] - torch.arange(t)[:, None]).abs()
    bias = -torch.tensor(slopes(HEADS), dtype=torch.float64)[:, None, None] * distance
    if mask is None:
        return bias
    return torch.where(mask, bias, -torch.inf) if mask.dtype == torch.bool else mask + bias


def multi_head(params: dict[str, Any], inputs: dict[str, Any], settings: dict[str, Any]) -> Any:
    """Multi-head attention by its formula."""

    def split(x: Any, name: str) -> Any:
        x = x @ params[f"w_{name}"] + params[f"b_{name}"]
        return x.unflatten(-1, (-1, EACH)).transpose(-2, -3)

    x, y, mask = inputs["input"], inputs["context"], inputs.get("mask")
    arrays = {"query": split(x, "query"), "key": split(y, "key"), "value": split(y, "value")}
    if settings.get("alibi"):
        mask = with_alibi(mask, x.shape[-2], y.shape[-2])
    if mask is not None:
        arrays["mask"] = mask
    if settings.get("use_sinks"):
        arrays["sinks"] = params["sinks"]
    own = {n: v for n, v in settings.items() if n in ("window", "softcap", "is_causal")}
    joined = attention(arrays, grouped=True, **own).transpose(-2, -3).flatten(-2)
    return joined @ params["w_output"] + params["b_output"]


@pytest.mark.parametrize("kind", [None, "bool", "float"])
@pytest.mark.parametrize(
    "settings",
    [
        {"alibi": True},
        {"alibi": True, "is_causal": True, "use_sinks": True},
        {"window": (3, 0), "softcap": 1.0, "kv_heads": 2},
        {"window": 2, "alibi": True, "use_sinks": True, "kv_heads": 1},
    ],
    ids=str,
)
def test_multi_head_attention(backend: Any, settings: dict[str, Any], kind: str | None) -> None:
    t, s, width = 14, 9, HEADS * EACH
    model = Model()
    names = {"input": "input", "context": "context"} | ({"mask": "mask"} if kind else {})
    model |= MultiHeadAttention(HEADS, **settings)(**names, output="output")
    form: dict[str, list[Any]] = {"input": [2, "t", width], "context": [2, "s", width]}
    arrays = {"input": drawn(1, 2, t, width), "context": drawn(2, 2, s, width)}
    if kind:
        arrays["mask"] = masked(t, s, kind)
        form["mask"] = [2, 1, "t", "s"]
        model.set_types({"mask": ml.bool if kind == "bool" else ml.float32})
    compiled = ml.compile(model, backend, shapes=form)
    sizes = {n: x.shape for n, x in sorted(compiled.randomize_params().items())}
    params = {n: drawn(i, *size) * 0.2 for i, (n, size) in enumerate(sizes.items())}
    seed = drawn(9, 2, t, width)
    outputs, gradients = compiled.evaluate(
        {n: backend.array(x) for n, x in params.items()},
        {n: x if x.dtype == bool else backend.array(x) for n, x in arrays.items()},
        output_gradients={"output": backend.array(seed)},
    )
    own = {n: torch.tensor(x, dtype=torch.float64, requires_grad=True) for n, x in params.items()}
    inputs = {n: torch.tensor(x) for n, x in arrays.items()}
    inputs = {n: x if x.dtype == torch.bool else x.double() for n, x in inputs.items()}
    want = multi_head({n.rsplit(".", 1)[-1]: x for n, x in own.items()}, inputs, settings)
    want.backward(torch.tensor(seed, dtype=torch.float64))
    near(outputs["output"], want)
    for name, param in own.items():
        near(gradients[name], param.grad)


@pytest.mark.parametrize("dtype", [ml.float16, ml.bfloat16, ml.float64])
def test_other_dtypes(backend: Any, dtype: Any) -> None:
    if dtype is ml.bfloat16 and isinstance(backend, ml.NumpyBackend):
        pytest.importorskip("ml_dtypes")
    backend = type(backend)(dtype=dtype)
    model = Model()
    model |= ScaledDotProduct(window=(4, 1), softcap=2.0)(
        query="query", key="key", value="value", sinks="sinks", output="output"
    )
    arrays = operands(9, 12, 16) | {"sinks": drawn(6, 2)}
    form = {name: list(x.shape) for name, x in arrays.items()}
    compiled = ml.compile(model, backend, shapes=form, trainable_keys=list(arrays))
    params = {name: backend.array(x) for name, x in arrays.items()}
    got = compiled.evaluate(params, {})["output"]
    own = {
        name: torch.tensor(np.asarray(backend.to_numpy(x), np.float64))
        for name, x in params.items()
    }
    want = attention(own, window=(4, 1), softcap=2.0)
    bound = {ml.float16: 4e-3, ml.bfloat16: 3e-2, ml.float64: 1e-12}[dtype]
    near(np.asarray(backend.to_numpy(got), np.float64), want, bound)


@pytest.mark.parametrize("window", [-2, (1, 2, 3), (3, -5), ()])
def test_wrong_windows(window: Any) -> None:
    for block in (ScaledDotProduct, lambda **settings: MultiHeadAttention(2, **settings)):
        with pytest.raises(ml.MithrilError, match="window"):
            block(window=window)


def test_wrong_settings() -> None:
    with pytest.raises(ml.MithrilError, match="buckets"):
        RelativePositionBias(2, buckets=3)
    with pytest.raises(ml.MithrilError, match="max_distance"):
        RelativePositionBias(2, buckets=32, max_distance=8)
    with pytest.raises(ml.MithrilError, match="softcap"):
        ScaledDotProduct(softcap=0.0)
