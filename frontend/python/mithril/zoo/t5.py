"""T5."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..models import (
    Add,
    Dropout,
    Einsum,
    Embedding,
    Gelu,
    Linear,
    Model,
    RelativePositionBias,
    Relu,
    RMSNorm,
    Where,
)
from .layers import Attention, gated, perceptron
from .weights import Architecture, Rule, linear, same, table

__all__ = ["T5"]

EPS = 1e-6


@dataclass(frozen=True)
class _Sizes:
    """The sizes and options that all layers have in common."""

    layers: int
    heads: int
    width: int
    head_width: int
    feedforward: int
    dropout: float
    is_gated: bool
    use_mask: bool

    def attention(
        self, name: str, *, use_mask: bool, is_causal: bool = False, to_context: bool = False
    ) -> Attention:
        """Attention that does not scale its scores."""
        return Attention(
            self.width,
            self.heads,
            head_width=self.head_width,
            scale=1.0,
            is_causal=is_causal,
            to_context=to_context,
            use_mask=use_mask,
            name=name,
        )

    def hidden(self) -> Model:
        """The hidden layer of each position."""
        if self.is_gated:
            return gated(self.width, self.feedforward, Gelu(approximate=True), name="hidden")
        return perceptron(self.width, self.feedforward, Relu(), use_bias=False, name="hidden")


class T5(Architecture):
    """T5: tokens `input`, (batch, length), for the encoder, and `target`, (batch, steps), for the
    decoder, to scores of the next token, (batch, steps, vocabulary).

    With `use_mask`, the input `mask`, (batch, length), is a bool array that is True for tokens of
    `input` and False for padding. `gated` and `tied=False` give version 1.1, whose hidden layers
    are gated and whose last layer is not the embedding. Weights:
    `transformers.T5ForConditionalGeneration`.

    Source: C. Raffel et al. Exploring the Limits of Transfer Learning with a Unified Text-to-Text
    Transformer. JMLR 21, 2020, arXiv:1910.10683.
    """

    _ignored = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)

    def __init__(
        self,
        *,
        layers: int = 6,
        heads: int = 8,
        width: int = 512,
        head_width: int = 64,
        feedforward: int = 2048,
        vocabulary: int = 32128,
        buckets: int = 32,
        max_distance: int = 128,
        dropout: float = 0.1,
        gated: bool = False,
        tied: bool = True,
        use_mask: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        sizes = _Sizes(layers, heads, width, head_width, feedforward, dropout, gated, use_mask)
        mask = {}
        if use_mask:
            mask["mask"] = self.add_input("mask", shape=["batch", "length"])[:, None, None]
        for side, tokens in (("encoder", "input"), ("decoder", "target")):
            # Both sides read the table `embedding`.
            words = Embedding(vocabulary, width, name=f"{side}_words")
            self |= words(input=tokens, w="embedding", output=f"{side}_embedded")
            decoder = side == "decoder"
            bias = RelativePositionBias(
                heads, buckets, max_distance, bidirectional=not decoder, name="bias"
            )
            context = {"context": "encoded"} if decoder else {}
            output = "decoded" if decoder else "encoded"
            stack = _Stack(sizes, bias, decoder=decoder)
            self |= stack(input=f"{side}_embedded", **context, **mask, output=output)
        if tied:
            scaled = self.decoded * width**-0.5
            self |= Einsum("blw,vw->blv")(inputs=[scaled, "embedding"], output="output")
        else:
            head = Linear(vocabulary, use_bias=False, name="head")
            self |= head(input="decoded", output="output")
        self.set_shapes(input=["batch", "length"], target=["batch", "steps"])
        last = [Rule("embedding", ("lm_head.weight",), same)] if tied else linear("head", "lm_head")
        self._rules = [*_shared(), *_side("encoder"), *_side("decoder"), *last]


class _Stack(Model):
    """The layers of one side, with a dropout before and a norm after them: (batch, length, width)
    to the same shape. Only the first layer of T5 has a bias of positions, which all layers add."""

    def __init__(self, sizes: _Sizes, bias: RelativePositionBias, *, decoder: bool) -> None:
        super().__init__(name="decoder" if decoder else "encoder")
        self |= bias(input="input", output="scores")
        masks = {"mask": "scores"}
        if decoder and sizes.use_mask:
            masks["context_mask"] = "mask"
        elif sizes.use_mask:
            # Padding has a score of -inf.
            self |= Where()("mask", self.scores[None], -math.inf, output="masked_scores")
            masks = {"mask": "masked_scores"}
        context = {"context": "context"} if decoder else {}
        self |= Dropout(sizes.dropout)(input="input", output="x_0")
        for at in range(sizes.layers):
            layer = _Layer(sizes, f"layer_{at}", decoder=decoder)
            self |= layer(input=f"x_{at}", **masks, **context, output=f"x_{at + 1}")
        self |= RMSNorm(EPS, name="norm")(input=f"x_{sizes.layers}")
        self += Dropout(sizes.dropout)(output="output")


class _Layer(Model):
    """Attention to itself, for a decoder attention to `context`, and a hidden layer; a norm before,
    and a residual around each."""

    def __init__(self, sizes: _Sizes, name: str, *, decoder: bool) -> None:
        super().__init__(name=name)
        own = sizes.attention("attention", is_causal=decoder, use_mask=True)
        source = "attended"
        self._add(own, "attention_norm", "input", source, sizes.dropout, mask="mask")
        if decoder:
            other = sizes.attention("context_attention", to_context=True, use_mask=sizes.use_mask)
            given = {"context": "context"}
            if sizes.use_mask:
                given["mask"] = "context_mask"
            source = "informed"
            self._add(other, "context_norm", "attended", source, sizes.dropout, **given)
        self._add(sizes.hidden(), "hidden_norm", source, "output", sizes.dropout)

    def _add(
        self, part: Model, norm: str, source: str, output: str, dropout: float, **given: str
    ) -> None:
        """Adds `part` of the normed source to the source."""
        self |= RMSNorm(EPS, name=norm)(input=source, output=f"{norm}_output")
        self |= part(input=f"{norm}_output", **given, output=f"{norm}_part")
        self |= Dropout(dropout)(input=f"{norm}_part", output=f"{norm}_dropped")
        self |= Add()(left=source, right=f"{norm}_dropped", output=output)


def _shared() -> list[Rule]:
    names = ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
    return [Rule("embedding", (f"{name}.weight",), same) for name in names]


def _side(side: str) -> list[Rule]:
    """The rules of the encoder or decoder."""
    bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
    rules = [*table(f"{side}.bias", bias), *table(f"{side}.norm", f"{side}.final_layer_norm")]
    parts = [("attention", "SelfAttention", "attention_norm")]
    parts += [("context_attention", "EncDecAttention", "context_norm")] * (side == "decoder")
    ours, theirs = f"{side}.layer_{{}}", f"{side}.block.{{}}.layer"
    for at, (part, public, norm) in enumerate(parts):
        rules += table(f"{ours}.{norm}", f"{theirs}.{at}.layer_norm")
        for role in ("query", "key", "value", "output"):
            rules += linear(f"{ours}.{part}.{role}", f"{theirs}.{at}.{public}.{role[0]}")
    last = f"{theirs}.{len(parts)}"
    rules += table(f"{ours}.hidden_norm", f"{last}.layer_norm")
    # A gated layer has the gate `wi_0` and the values `wi_1` in place of `wi`.
    for layer, public in (("gate", "wi_0"), ("up", "wi_1"), ("up", "wi"), ("down", "wo")):
        rules += linear(f"{ours}.hidden.{layer}", f"{last}.DenseReluDense.{public}")
    return rules
