"""T5."""

from __future__ import annotations

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
)
from .layers import Attention, gated, perceptron
from .weights import Architecture, Rule, linear, same, table

__all__ = ["T5"]

EPS = 1e-6


class T5(Architecture):
    """T5: tokens `input`, (batch, length), for the encoder, and `target`, (batch, steps), for the
    decoder, to scores of the next token, (batch, steps, vocabulary).

    `gated` and `tied=False` give version 1.1, whose hidden layers are gated and whose last layer is
    not the embedding. Weights: `transformers.T5ForConditionalGeneration`.

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
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        for side, tokens in (("encoder", "input"), ("decoder", "target")):
            bias = RelativePositionBias(
                heads, buckets, max_distance, bidirectional=side == "encoder", name=f"{side}_bias"
            )
            # Both sides read the table `embedding`.
            words = Embedding(vocabulary, width, name=f"{side}_embedding")
            self |= words(input=tokens, w="embedding", output=f"{side}_words")
            self |= bias(input=f"{side}_words", output=f"{side}_scores")
            last = f"{side}_0"
            self |= Dropout(dropout)(input=f"{side}_words", output=last)
            for at in range(layers):
                layer = _Layer(
                    width,
                    heads,
                    head_width=head_width,
                    feedforward=feedforward,
                    dropout=dropout,
                    decoder=side == "decoder",
                    is_gated=gated,
                    name=f"{side}_layer_{at}",
                )
                context = {"context": "encoded"} if side == "decoder" else {}
                last = f"{side}_{at + 1}"
                self |= layer(input=f"{side}_{at}", mask=f"{side}_scores", **context, output=last)
            self |= RMSNorm(EPS, name=f"{side}_norm")(input=last, output=f"{side}_normed")
            output = "encoded" if side == "encoder" else "decoded"
            self |= Dropout(dropout)(input=f"{side}_normed", output=output)
        if tied:
            scaled = self.decoded * width**-0.5
            self |= Einsum("blw,vw->blv")(inputs=[scaled, "embedding"], output="output")
        else:
            self |= Linear(vocabulary, use_bias=False, name="head")(
                input="decoded", output="output"
            )
        self.set_shapes(input=["batch", "length"], target=["batch", "steps"])
        head = [Rule("embedding", ("lm_head.weight",), same)] if tied else linear("head", "lm_head")
        self._rules = [*_shared(), *_side("encoder"), *_side("decoder"), *head]


class _Layer(Model):
    """Attention to itself, for a decoder attention to `context`, and a hidden layer; a norm before,
    and a residual around each."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_width: int,
        feedforward: int,
        dropout: float,
        decoder: bool,
        is_gated: bool,
        name: str,
    ) -> None:
        super().__init__(name=name)
        own = Attention(
            width,
            heads,
            head_width=head_width,
            scale=1.0,
            is_causal=decoder,
            use_mask=True,
            name="attention",
        )
        self._add(own, "attention_norm", "input", "attended", dropout, mask="mask")
        source = "attended"
        if decoder:
            other = Attention(
                width,
                heads,
                head_width=head_width,
                scale=1.0,
                to_context=True,
                name="context_attention",
            )
            source = "informed"
            self._add(other, "context_norm", "attended", source, dropout, context="context")
        hidden = (
            gated(width, feedforward, Gelu(approximate=True), name="hidden")
            if is_gated
            else perceptron(width, feedforward, Relu(), use_bias=False, name="hidden")
        )
        self._add(hidden, "hidden_norm", source, "output", dropout)

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
    rules = [*table(f"{side}_bias", bias), *table(f"{side}_norm", f"{side}.final_layer_norm")]
    parts = [("attention", "SelfAttention", "attention_norm")]
    parts += [("context_attention", "EncDecAttention", "context_norm")] * (side == "decoder")
    ours, theirs = f"{side}_layer_{{}}", f"{side}.block.{{}}.layer"
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
