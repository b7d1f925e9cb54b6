"""The transformer with encoder and decoder."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import Dropout, Embedding, Linear, PositionalEncoding
from ..models import Transformer as Layers
from .weights import Architecture, Rule, joint_attention, linear, plain, table

__all__ = ["Transformer"]


class Transformer(Architecture):
    """A transformer that translates: tokens `input`, (batch, length), and `target`, (batch, steps),
    to scores of the next token, (batch, steps, `target_vocabulary`).

    With `use_mask`, the input `mask`, (batch, length), is a bool array that is True for tokens of
    `input` and False for padding. Weights: `Seq2SeqTransformer` of PyTorch's tutorial "Language
    Translation with nn.Transformer and torchtext", with `src_tok_emb.embedding`,
    `tgt_tok_emb.embedding`, `transformer` (`nn.Transformer`) and `generator`.

    Source: A. Vaswani et al. Attention Is All You Need. NIPS 2017, arXiv:1706.03762.
    """

    _ignored = ("positional_encoding.pos_embedding",)

    def __init__(
        self,
        vocabulary: int,
        target_vocabulary: int,
        *,
        layers: int = 6,
        heads: int = 8,
        width: int = 512,
        feedforward: int = 2048,
        dropout: float = 0.1,
        norm_first: bool = False,
        use_mask: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        for tokens, size in (("input", vocabulary), ("target", target_vocabulary)):
            table_of = Embedding(size, width, name=f"{tokens}_embedding")
            self |= table_of(input=tokens, output=f"{tokens}_words")
            scaled = getattr(self, f"{tokens}_words") * width**0.5
            self |= PositionalEncoding()(input=scaled, output=f"{tokens}_placed")
            self |= Dropout(dropout)(input=f"{tokens}_placed", output=f"{tokens}_embedded")
        transformer = Layers(
            width,
            heads,
            layers,
            layers,
            feedforward,
            dropout=dropout,
            norm_first=norm_first,
            is_causal=True,
            name="transformer",
        )
        masks = {}
        if use_mask:
            mask = self.add_input("mask", shape=["batch", "length"])[:, None, None]
            masks = {"mask": mask, "context_mask": mask}
        self |= transformer(
            input="input_embedded", target="target_embedded", **masks, output="decoded"
        )
        self |= Linear(target_vocabulary, name="generator")(input="decoded", output="output")
        self.set_shapes(input=["batch", "length"], target=["batch", "steps"])

    _rules: Sequence[Rule] = (
        *table("input_embedding", "src_tok_emb.embedding"),
        *table("target_embedding", "tgt_tok_emb.embedding"),
        *linear("generator"),
        *joint_attention("transformer.{}.layer_{}.attention", "transformer.{}.layers.{}.self_attn"),
        *joint_attention(
            "transformer.{}.layer_{}.context_attention", "transformer.{}.layers.{}.multihead_attn"
        ),
        *(
            rule
            for at in range(3)
            for rule in plain(
                f"transformer.{{}}.layer_{{}}.norm_{at}",
                f"transformer.{{}}.layers.{{}}.norm{at + 1}",
            )
        ),
        *(
            rule
            for at in range(2)
            for rule in linear(
                f"transformer.{{}}.layer_{{}}.linear_{at}",
                f"transformer.{{}}.layers.{{}}.linear{at + 1}",
            )
        ),
        *plain("transformer.{}.norm"),
    )
