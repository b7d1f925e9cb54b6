"""The weights of PyTorch's transformers by the names of this library's params, and functions of
params in the order of their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

ATTENTION = [f"{kind}_{part}" for kind in "bw" for part in ("key", "output", "query", "value")]


def names(norms: int, attentions: tuple[str, ...]) -> list[str]:
    """The params of a layer, in the order of their names."""
    own = [f"{attention}.{name}" for attention in attentions for name in ATTENTION]
    own += [f"linear_{i}.{name}" for i in range(2) for name in "bw"]
    return own + [f"norm_{i}.{name}" for i in range(norms) for name in "bw"]


ENCODER = names(2, ("attention",))
DECODER = names(3, ("attention", "context_attention"))


def layer(own: dict[str, Any]) -> dict[str, Any]:
    """The weights of one layer by PyTorch's names. Biases may be missing."""
    found = {}
    for ours, theirs in [("attention", "self_attn"), ("context_attention", "multihead_attn")]:
        if f"{ours}.w_query" not in own:
            continue
        part = {n: own[f"{ours}.{n}"] for n in ATTENTION if f"{ours}.{n}" in own}
        rows = [part[f"w_{n}"].T for n in ("query", "key", "value")]
        found[f"{theirs}.in_proj_weight"] = torch.cat(rows)
        found[f"{theirs}.out_proj.weight"] = part["w_output"].T
        if "b_query" in part:
            biases = [part[f"b_{n}"] for n in ("query", "key", "value")]
            found[f"{theirs}.in_proj_bias"] = torch.cat(biases)
            found[f"{theirs}.out_proj.bias"] = part["b_output"]
    for i in range(3):
        for kind, place in (("linear", i + 1), ("norm", i + 1)):
            if f"{kind}_{i}.w" not in own:
                continue
            weight = own[f"{kind}_{i}.w"]
            found[f"{kind}{place}.weight"] = weight.T if kind == "linear" else weight
            if f"{kind}_{i}.b" in own:
                found[f"{kind}{place}.bias"] = own[f"{kind}_{i}.b"]
    return found


def below(own: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {n.removeprefix(prefix): v for n, v in own.items() if n.startswith(prefix)}


def stack(own: dict[str, Any]) -> dict[str, Any]:
    """The weights of several layers, and of a norm after them, by PyTorch's names."""
    numbers = sorted({n.split(".")[0] for n in own if n.startswith("layer_")})
    found = {}
    for i, name in enumerate(numbers):
        inner = layer(below(own, f"{name}."))
        found |= {f"layers.{i}.{n}": v for n, v in inner.items()}
    for ours, theirs in [("norm.w", "norm.weight"), ("norm.b", "norm.bias")]:
        if ours in own:
            found[theirs] = own[ours]
    return found


def whole(own: dict[str, Any]) -> dict[str, Any]:
    """The weights of `Transformer` by PyTorch's names."""
    found = {}
    for side in ("encoder", "decoder"):
        found |= {f"{side}.{n}": v for n, v in stack(below(own, f"{side}.")).items()}
    return found


def calls(
    make: Callable[[], Any], order: list[str], rename: Callable[..., Any], inputs: int
) -> Any:
    """A function of inputs and of params in this order."""

    def function(*values: Any) -> Any:
        own = dict(zip(order, values[inputs:], strict=True))
        return torch.func.functional_call(make().double(), rename(own), values[:inputs])

    return function


SETTINGS: dict[str, Any] = {"dim_feedforward": 5, "dropout": 0.0, "batch_first": True}
ONE_STACK = [f"layer_0.{n}" for n in ENCODER]
BOTH = [f"decoder.layer_0.{n}" for n in DECODER] + ["decoder.norm.b", "decoder.norm.w"]
BOTH += [f"encoder.layer_0.{n}" for n in ENCODER] + ["encoder.norm.b", "encoder.norm.w"]


def encoder_layer() -> Any:
    return torch.nn.TransformerEncoderLayer(4, 2, **SETTINGS)


def decoder_layer() -> Any:
    return torch.nn.TransformerDecoderLayer(4, 2, **SETTINGS)


TRANSFORMERS = {
    "TransformerEncoderLayer": calls(encoder_layer, ENCODER, layer, 1),
    "TransformerDecoderLayer": calls(decoder_layer, DECODER, layer, 2),
    "TransformerEncoder": calls(
        lambda: torch.nn.TransformerEncoder(encoder_layer(), 1, enable_nested_tensor=False),
        ONE_STACK,
        stack,
        1,
    ),
    "TransformerDecoder": calls(
        lambda: torch.nn.TransformerDecoder(decoder_layer(), 1),
        [f"layer_0.{n}" for n in DECODER],
        stack,
        2,
    ),
    "Transformer": calls(lambda: torch.nn.Transformer(4, 2, 1, 1, **SETTINGS), BOTH, whole, 2),
}
