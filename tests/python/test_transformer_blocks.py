"""The transformers of torch.nn: results and gradients against PyTorch on every backend, masks, and
dropout of the weights of attention."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases.transformers import layer, stack, whole
from comparing import near
from conftest import CLASSES, SOURCES

import mithril as ml
from mithril.errors import MithrilError

KEY = np.array([1, 2], np.uint32)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compared(  # noqa: PLR0917
    make: Any, block: Any, pair: Any, arrays: dict[str, Any], masks: Any, call: Any
) -> None:
    """Compares results and all gradients with those of PyTorch's module with the same weights."""
    backend = make()
    theirs, rename = pair
    floats = [n for n in arrays if n not in masks]
    shapes = {n: list(a.shape) for n, a in arrays.items()}
    dtypes = dict.fromkeys(masks, ml.bool)
    compiled = ml.compile(block, backend, shapes=shapes, trainable_keys=floats, dtypes=dtypes)
    rng = np.random.default_rng(7)
    initial = compiled.randomize_params(seed=3)
    own = {n: np.array(backend.to_numpy(p)) for n, p in initial.items() if n not in floats}
    own = {n: (p + 0.1 * rng.standard_normal(p.shape)).astype(np.float32) for n, p in own.items()}
    leaves = {n: torch.tensor(a, requires_grad=True) for n, a in own.items()}
    inputs = {n: torch.tensor(arrays[n], requires_grad=n in floats) for n in arrays}
    weights = rename(leaves)
    assert set(weights) == set(dict(theirs.named_parameters()))
    want = torch.func.functional_call(theirs, weights, *call(inputs))
    seed = numbers(*want.shape, seed=5)
    want.backward(torch.tensor(seed))
    params = {n: backend.array(a) for n, a in own.items()}
    params |= {n: backend.array(arrays[n]) for n in floats}
    rest = {n: backend.array(arrays[n]) for n in masks}
    outputs, gradients = compiled.evaluate(
        params, rest, output_gradients={"output": backend.array(seed)}
    )
    near(backend.to_numpy(outputs["output"]), want, 5e-5)
    for name, leaf in (leaves | {n: inputs[n] for n in floats}).items():
        near(backend.to_numpy(gradients[name]), leaf.grad, 3e-4)


SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"norm_first": True}, {"norm_first": True}),
    ({"activation": ml.Gelu(), "eps": 1e-3}, {"activation": "gelu", "layer_norm_eps": 1e-3}),
    ({"use_bias": False, "norm_first": True}, {"bias": False, "norm_first": True}),
]
BASE = {"feedforward": 12, "dropout": 0.0}
THEIRS = {"dim_feedforward": 12, "dropout": 0.0, "batch_first": True}
# Where queries attend to keys; PyTorch's masks are True where they do not.
SEEN = np.tril(np.ones((5, 5), bool))


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize(("settings", "options"), SETTINGS)
def test_encoder_layers(make, settings, options):
    theirs = torch.nn.TransformerEncoderLayer(8, 2, **THEIRS, **options)
    x = numbers(3, 5, 8)
    block = ml.TransformerEncoderLayer(8, 2, **BASE, **settings)
    compared(make, block, (theirs, layer), {"input": x}, (), lambda own: ((own["input"],), {}))
    arrays = {"input": x, "mask": SEEN}
    call = lambda own: ((own["input"],), {"src_mask": ~own["mask"]})  # noqa: E731
    compared(make, block, (theirs, layer), arrays, ("mask",), call)
    # A padding mask hides keys of each sequence.
    padding = np.ones((3, 5), bool)
    padding[1, 3:] = False
    arrays = {"input": x, "mask": padding}
    call = lambda own: ((own["input"],), {"src_key_padding_mask": ~own["mask"]})  # noqa: E731
    compared(make, block, (theirs, layer), arrays, ("mask",), call)
    # Both masks of PyTorch at once.
    arrays = {"input": x, "mask": SEEN, "key_mask": padding}
    both = lambda own: {"src_mask": ~own["mask"], "src_key_padding_mask": ~own["key_mask"]}  # noqa: E731
    call = lambda own: ((own["input"],), both(own))  # noqa: E731
    compared(make, block, (theirs, layer), arrays, ("mask", "key_mask"), call)
    causal = ml.TransformerEncoderLayer(8, 2, **BASE, **settings, is_causal=True)
    hidden = ~torch.tensor(SEEN)
    call = lambda own: ((own["input"],), {"src_mask": hidden, "is_causal": True})  # noqa: E731
    compared(make, causal, (theirs, layer), {"input": x}, (), call)


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize(("settings", "options"), SETTINGS)
def test_decoder_layers(make, settings, options):
    theirs = torch.nn.TransformerDecoderLayer(8, 2, **THEIRS, **options)
    arrays = {"input": numbers(3, 5, 8), "context": numbers(3, 4, 8, seed=1)}
    block = ml.TransformerDecoderLayer(8, 2, **BASE, **settings)
    compared(make, block, (theirs, layer), arrays, (), lambda own: (tuple(own.values()), {}))
    padding = np.ones((3, 4), bool)
    padding[1, 2:] = False
    arrays |= {"mask": SEEN, "context_mask": padding[:, None]}

    def call(own: Any) -> Any:
        masks = {
            "tgt_mask": ~own["mask"],
            "memory_key_padding_mask": ~own["context_mask"][:, 0],
        }
        return (own["input"], own["context"]), masks

    compared(make, block, (theirs, layer), arrays, ("mask", "context_mask"), call)
    own = np.ones((3, 5), bool)
    own[2, 1:4] = False
    across = np.ones((5, 4), bool)
    across[1, 1:] = False
    masks = {"mask": SEEN, "context_mask": across, "key_mask": own, "context_key_mask": padding}
    names = ("tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask")

    def all_masks(own: Any) -> Any:
        return (own["input"], own["context"]), {
            n: ~own[m] for n, m in zip(names, masks, strict=True)
        }

    compared(make, block, (theirs, layer), arrays | masks, tuple(masks), all_masks)


@pytest.mark.parametrize("make", CLASSES)
def test_stacks(make):
    own = torch.nn.TransformerEncoderLayer(8, 2, **THEIRS)
    theirs = torch.nn.TransformerEncoder(own, 2, torch.nn.LayerNorm(8), enable_nested_tensor=False)
    inner = ml.TransformerEncoderLayer(8, 2, **BASE)
    block = ml.TransformerEncoder(inner, 2, norm=ml.LayerNorm())
    arrays = {"input": numbers(3, 5, 8), "mask": SEEN}
    call = lambda own: ((own["input"],), {"mask": ~own["mask"]})  # noqa: E731
    compared(make, block, (theirs, stack), arrays, ("mask",), call)
    theirs = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(8, 2, **THEIRS), 2)
    block = ml.TransformerDecoder(ml.TransformerDecoderLayer(8, 2, **BASE), 2)
    arrays = {"input": numbers(3, 5, 8), "context": numbers(3, 4, 8, seed=1), "mask": SEEN}
    padding = np.ones((3, 4), bool)
    padding[1, 2:] = False
    arrays["context_key_mask"] = padding

    def call(own: Any) -> Any:
        masks = {"tgt_mask": ~own["mask"], "memory_key_padding_mask": ~own["context_key_mask"]}
        return (own["input"], own["context"]), masks

    compared(make, block, (theirs, stack), arrays, ("mask", "context_key_mask"), call)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("first", [False, True])
def test_whole_transformers(make, first):
    theirs = torch.nn.Transformer(8, 2, 2, 1, **THEIRS, norm_first=first)
    sizes = {"encoder_layers": 2, "decoder_layers": 1}
    block = ml.Transformer(8, 2, **sizes, **BASE, norm_first=first)
    padding = np.ones((3, 4), bool)
    padding[1, 2:] = False
    arrays = {"input": numbers(3, 4, 8), "target": numbers(3, 5, 8, seed=1)}
    arrays |= {"mask": padding, "target_mask": SEEN, "context_mask": padding[:, None]}

    def call(own: Any) -> Any:
        masks = {
            "src_key_padding_mask": ~own["mask"],
            "tgt_mask": ~own["target_mask"],
            "memory_key_padding_mask": ~own["mask"],
        }
        return (own["input"], own["target"]), masks

    compared(make, block, (theirs, whole), arrays, ("mask", "target_mask", "context_mask"), call)
    names = ("src_key_padding_mask", "tgt_mask", "tgt_key_padding_mask", "memory_key_padding_mask")
    own = np.ones((3, 5), bool)
    own[0, 3:] = False
    masks = {"key_mask": padding, "target_mask": SEEN, "target_key_mask": own}
    masks |= {"context_key_mask": padding}
    arrays = {n: arrays[n] for n in ("input", "target")} | masks

    def key_masks(own: Any) -> Any:
        return (own["input"], own["target"]), {
            n: ~own[m] for n, m in zip(names, masks, strict=True)
        }

    compared(make, block, (theirs, whole), arrays, tuple(masks), key_masks)
    arrays = {n: arrays[n] for n in ("input", "target")}
    causal = ml.Transformer(8, 2, **sizes, **BASE, norm_first=first, is_causal=True)
    hidden = ~torch.tensor(SEEN)
    call = lambda own: ((own["input"], own["target"]), {"tgt_mask": hidden})  # noqa: E731
    compared(make, causal, (theirs, whole), arrays, (), call)


@pytest.mark.parametrize("make", CLASSES)
def test_open_lengths_and_inference(make):
    """Dropout does nothing in inference; sequences may have any length."""
    backend = make()
    block = ml.TransformerEncoderLayer(8, 2, feedforward=12, dropout=0.5)
    shapes = {"input": ["n", "length", 8]}
    training = ml.compile(block, backend, shapes=shapes)
    params = training.randomize_params()
    still = ml.compile(block, backend, shapes=shapes, inference=True)
    none = ml.compile(
        ml.TransformerEncoderLayer(8, 2, feedforward=12, dropout=0.0), backend, shapes=shapes
    )
    for batch, length in ((2, 5), (1, 1), (0, 3)):
        x = backend.array(numbers(batch, length, 8))
        got = backend.to_numpy(still.evaluate(params, {"input": x})["output"])
        want = backend.to_numpy(none.evaluate(params, {"input": x})["output"])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        if batch:
            drawn = training.evaluate(params, {"input": x, "key": KEY})["output"]
            assert np.abs(backend.to_numpy(drawn) - got).max() > 1e-2


def test_copies_of_a_layer_have_their_own_params():
    block = ml.TransformerEncoder(ml.TransformerEncoderLayer(8, 2, **BASE), 2)
    compiled = ml.compile(block, ml.NumpyBackend(), shapes={"input": [2, 3, 8]})
    params = compiled.randomize_params()
    weights = [params[f"layer_{i}.linear_0.w"] for i in range(2)]
    assert np.abs(weights[0] - weights[1]).max() > 0.01
    whole = ml.Transformer(8, 2, encoder_layers=1, decoder_layers=1, **BASE)
    shapes = {"input": [2, 3, 8], "target": [2, 3, 8]}
    params = ml.compile(whole, ml.NumpyBackend(), shapes=shapes).randomize_params()
    bound = (6 / (8 + 12)) ** 0.5
    for name in ("encoder.layer_0.linear_0.w", "decoder.layer_0.linear_1.w"):
        largest = np.abs(params[name]).max()
        assert 0.8 * bound < largest <= bound


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("grouped", [False, True])
def test_dropout_of_the_weights_of_attention(make, grouped):
    """Each weight is 0 or larger by the same factor: with one-hot values, results are weights."""
    backend = make()
    heads = 4 if grouped else 2
    query, key = numbers(3, heads, 40, 4), numbers(3, 2, 30, 4, seed=1)
    value = np.broadcast_to(np.eye(30, dtype=np.float32), (3, 2, 30, 30)).copy()
    block = ml.ScaledDotProduct(dropout=0.25, grouped=grouped)
    arrays = {"query": query, "key": key, "value": value}
    given = {n: backend.array(a) for n, a in arrays.items()}
    compiled = ml.compile(block, backend, shapes={n: list(a.shape) for n, a in arrays.items()})
    drawn = compiled.evaluate({}, given | {"dropout_key": KEY})["output"]
    got = backend.to_numpy(drawn)
    still = ml.compile(block, backend, inference=True)
    weights = backend.to_numpy(still.evaluate({}, given)["output"])
    own = [torch.tensor(a) for a in arrays.values()]
    want = F.scaled_dot_product_attention(*own, enable_gqa=grouped)
    near(weights, want, 1e-5)
    kept = got != 0
    np.testing.assert_allclose(got[kept], (weights / 0.75)[kept], rtol=1e-4)
    assert abs(kept.mean() - 0.75) < 5 * (0.75 * 0.25 / kept.size) ** 0.5
    flat = kept.reshape(3 * heads, -1)
    assert not (flat[0] == flat[1]).all()


def test_mistakes_are_explained():
    with pytest.raises(MithrilError) as caught:
        ml.TransformerDecoder(ml.TransformerEncoderLayer(8, 2), 2)
    assert "a layer of `TransformerDecoder` needs the input `context`" in str(caught.value)
    with pytest.raises(MithrilError, match="it is called `heads` here"):
        ml.TransformerEncoderLayer(8, nhead=2)
    for block, shape, text in [
        (ml.TransformerEncoderLayer(8, 3), [2, 3, 8], "the width is not a multiple of `heads`"),
        (ml.TransformerEncoderLayer(8, 2), [2, 3, 4], "Incompatible shapes"),
    ]:
        with pytest.raises(MithrilError) as caught:
            ml.compile(block, ml.NumpyBackend(), shapes={"input": shape})
        assert text in str(caught.value)


@pytest.mark.parametrize("make", SOURCES)
def test_dropout_multiplies_no_identity(make):
    """The weights of keys are computed once, not read from the attention of an identity matrix."""
    block = ml.MultiHeadAttention(2, dropout=0.1, is_causal=True)
    source = ml.compile(block, make(), shapes={"input": [2, 5, 8]}).code
    assert "eye(" not in source
    forward = source.partition("def outputs_and_gradients")[0].partition("def forward")[2]
    assert forward.count(" @ ") + forward.count("mx.addmm(") == 6
