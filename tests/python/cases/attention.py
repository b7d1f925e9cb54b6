"""Attention, positions, transformers and experts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from mithril import models

from .row import row
from .transformers import TRANSFORMERS

F = torch.nn.functional
SMALL = {"dimension": 4, "heads": 2, "feedforward": 5, "dropout": 0.0}


def attention(x: Any, *params: Any) -> Any:
    """Attention with two heads, which share one head of keys and values."""
    w_query, w_key, w_value, w_output, b_query, b_key, b_value, b_output = params
    parts = (x @ w + b for w, b in [(w_query, b_query), (w_key, b_key), (w_value, b_value)])
    heads = (part.unflatten(-1, (-1, 2)).transpose(-3, -2) for part in parts)
    joined = F.scaled_dot_product_attention(*heads, enable_gqa=True)
    return joined.transpose(-3, -2).flatten(-2) @ w_output + b_output


def separate(heads: int, *, zeros: bool = False) -> Callable[..., Any]:
    """torch's attention of `x` to keys and values of other widths, and the weights of the keys."""

    def function(x: Any, context: Any, value: Any, *params: Any) -> tuple[Any, Any]:
        w_query, w_key, w_value, w_output, b_query, b_key, b_value, b_output, *added = params
        output, weights = F.multi_head_attention_forward(
            *(part.transpose(0, 1) for part in (x, context, value)),
            x.shape[-1],
            heads,
            None,
            torch.cat([b_query, b_key, b_value]),
            *(added or (None, None)),
            zeros,
            0.0,
            w_output.T,
            b_output,
            average_attn_weights=False,
            use_separate_proj_weight=True,
            q_proj_weight=w_query.T,
            k_proj_weight=w_key.T,
            v_proj_weight=w_value.T,
        )
        return output.transpose(0, 1), weights

    return function


def offsets(x: Any) -> Any:
    """The distances from each row to each row."""
    return torch.arange(x.shape[-2]) - torch.arange(x.shape[-2])[:, None]


def angles(x: Any) -> Any:
    """The angle of each pair of features at each position."""
    length, width = x.shape[-2:]
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return (torch.arange(length)[:, None] * rates).to(x.dtype)


def rotated(x: Any) -> Any:
    """Pairs of features as complex numbers, times those of their angles."""
    pairs = torch.complex(*x.chunk(2, -1)) * torch.polar(torch.ones_like(angles(x)), angles(x))
    return torch.cat([pairs.real, pairs.imag], -1)


def positioned(x: Any) -> Any:
    return x + torch.stack([angles(x).sin(), angles(x).cos()], -1).flatten(-2)


def alibi(x: Any) -> Any:
    """The slopes of three heads: those of two, and the first of those of four."""
    slopes = torch.tensor([2.0**-4, 2.0**-8, 2.0**-2], dtype=x.dtype)
    return -slopes[:, None, None] * offsets(x).abs()


def relative_bias(x: Any, w: Any) -> Any:
    """T5's bias with 8 buckets up to a distance of 20."""
    relative = offsets(x)
    far = relative.abs().clamp(min=1).float()
    steps = (far / 2).log() / math.log(20 / 2) * 2
    large = (2 + steps.long()).clamp(max=3)
    bucket = torch.where(relative.abs() < 2, relative.abs(), large) + 4 * (relative > 0)
    # The gradient of the input is 0.
    return w[bucket].permute(2, 0, 1) + 0 * x.sum()


def mixture(x: Any, w_router: Any, w_in: Any, w_out: Any) -> Any:
    """Two of three experts for each token."""
    tokens = x.flatten(0, -2)
    logits = tokens @ w_router
    values, experts = logits.topk(2)
    every = torch.einsum("td,edf->tef", tokens, w_in).relu()
    every = torch.einsum("tef,efd->ted", every, w_out)
    own = every.take_along_dim(experts[..., None], 1)
    return (own * values.softmax(-1)[..., None]).sum(1).reshape(x.shape)


def grouped(left: Any, right: Any, ends: Any) -> Any:
    """The product of each row with the matrix of the first group that ends after it."""
    own = (torch.arange(len(left))[:, None] >= ends).sum(-1)
    inside = (own < len(right))[:, None]
    products = (left[:, :, None] * right[own.clamp(max=len(right) - 1)]).sum(1)
    return torch.where(inside, products, torch.zeros_like(products))


ROWS = {
    # The number of groups is known.
    "GroupedMatrixMultiply": row(grouped, (6, 4), (3, 4, 5), (3,)).but(kept=3),
    "ScaledDotProduct": row(F.scaled_dot_product_attention, (2, 3, 4), (2, 5, 4), (2, 5, 6)),
    "MultiHeadAttention": row(attention, (2, 3, 4), heads=2, kv_heads=1).but(kept=4, several=True),
    "RotaryEmbedding": row(rotated, (2, 3, 4)).but(kept=4),
    "PositionalEncoding": row(positioned, (2, 3, 4)).but(kept=4),
    "AlibiBias": row(alibi, (2, 3, 4), heads=3),
    # The gradient of a bucket would be a sum over half a million pairs of positions.
    "RelativePositionBias": row(relative_bias, (2, 3, 4), heads=3, buckets=8, max_distance=20).but(
        kept=3
    ),
    "TransformerEncoderLayer": row(TRANSFORMERS["TransformerEncoderLayer"], (2, 3, 4), **SMALL).but(
        kept=4
    ),
    "TransformerDecoderLayer": row(
        TRANSFORMERS["TransformerDecoderLayer"], (2, 3, 4), (2, 5, 4), **SMALL
    ).but(kept=4),
    "TransformerEncoder": row(
        TRANSFORMERS["TransformerEncoder"],
        (2, 3, 4),
        layer=models.TransformerEncoderLayer(**SMALL),
        layers=1,
    ).but(kept=4),
    "TransformerDecoder": row(
        TRANSFORMERS["TransformerDecoder"],
        (2, 3, 4),
        (2, 5, 4),
        layer=models.TransformerDecoderLayer(**SMALL),
        layers=1,
    ).but(kept=4),
    "Transformer": row(
        TRANSFORMERS["Transformer"],
        (2, 3, 4),
        (2, 5, 4),
        **SMALL,
        encoder_layers=1,
        decoder_layers=1,
    ).but(kept=4),
    # torch's own single precision is 2e-5 off for tokens of width 333.
    # Rounding at each step changes which number is the largest.
    "MoE": row(mixture, (2, 3, 4), experts=3, k=2).but(kept=4, halves=False),
}
