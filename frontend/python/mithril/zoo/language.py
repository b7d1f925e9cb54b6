"""GPT-2, BERT and Llama."""

from __future__ import annotations

from ..models import (
    Add,
    Dropout,
    Einsum,
    Embedding,
    Gelu,
    LayerNorm,
    Linear,
    Model,
    RMSNorm,
    Silu,
    Tanh,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from .layers import Attention, add_positions, gated
from .weights import (
    Architecture,
    Rule,
    attention,
    linear,
    old_norm,
    outside,
    part,
    plain,
    same,
    table,
)

__all__ = ["BERT", "GPT2", "Llama"]


class GPT2(Architecture):
    """GPT-2: tokens, (batch, length), to scores of the next token, (batch, length, vocabulary).
    The embedding is also the last layer.

    Weights: `transformers.GPT2LMHeadModel`.

    Source: A. Radford, J. Wu, R. Child, D. Luan, D. Amodei, I. Sutskever. Language Models are
    Unsupervised Multitask Learners. OpenAI, 2019.
    """

    _rules = (
        Rule("wte", ("wte.weight",), same),
        Rule("wte", ("lm_head.weight",), same, inside=False),
        *table("wpe", "wpe"),
        *plain("h.layer_{}.norm_0", "h.{}.ln_1"),
        *(
            Rule(
                f"h.layer_{{}}.attention.{ours}_{role}",
                (f"h.{{}}.attn.c_attn.{kind}",),
                part(at, 3),
            )
            for at, role in enumerate(("query", "key", "value"))
            for ours, kind in (("w", "weight"), ("b", "bias"))
        ),
        # The linear layers of GPT-2 have weights of (in, out).
        Rule("h.layer_{}.attention.w_output", ("h.{}.attn.c_proj.weight",), same),
        Rule("h.layer_{}.attention.b_output", ("h.{}.attn.c_proj.bias",), same),
        *plain("h.layer_{}.norm_1", "h.{}.ln_2"),
        *plain("h.layer_{}.linear_0", "h.{}.mlp.c_fc"),
        *plain("h.layer_{}.linear_1", "h.{}.mlp.c_proj"),
        *plain("h.norm", "ln_f"),
    )
    _ignored = ("*.attn.bias", "*.attn.masked_bias")
    _prefixes = ("transformer.",)

    def __init__(
        self,
        *,
        layers: int = 12,
        heads: int = 12,
        width: int = 768,
        vocabulary: int = 50257,
        positions: int = 1024,
        dropout: float = 0.1,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        tokens = self.add_input("input", shape=["batch", "length"])
        words = Embedding(vocabulary, width, name="wte")
        self |= words(input="input", w="wte", output="words")
        add_positions(self, "words", tokens.shape[1], Embedding(positions, width, name="wpe"), "x")
        self |= Dropout(dropout)(input="x", output="dropped")
        layer = TransformerEncoderLayer(
            width,
            heads,
            4 * width,
            dropout=dropout,
            activation=Gelu(approximate=True),
            norm_first=True,
            is_causal=True,
        )
        stack = TransformerEncoder(layer, layers, norm=LayerNorm(), name="h")
        self |= stack(input="dropped", output="hidden")
        self |= Einsum("blw,vw->blv")(inputs=["hidden", "wte"], output="output")


class BERT(Architecture):
    """BERT: `input`, the tokens, and `token_types`, 0 for the first sentence and 1 for the second,
    both (batch, length), to `output`, (batch, length, width), and `pooled`, (batch, width).

    With `use_mask`, the input `mask`, (batch, length), is a bool array that is True for tokens and
    False for padding. Weights: `transformers.BertModel`.

    Source: J. Devlin, M.-W. Chang, K. Lee, K. Toutanova. BERT: Pre-training of Deep Bidirectional
    Transformers for Language Understanding. NAACL 2019, arXiv:1810.04805.
    """

    _rules = (
        *table("words", "embeddings.word_embeddings"),
        *table("positions", "embeddings.position_embeddings"),
        *table("types", "embeddings.token_type_embeddings"),
        *old_norm("norm", "embeddings.LayerNorm"),
        *attention(
            "encoder.layer_{}.attention",
            {
                "query": "encoder.layer.{}.attention.self.query",
                "key": "encoder.layer.{}.attention.self.key",
                "value": "encoder.layer.{}.attention.self.value",
                "output": "encoder.layer.{}.attention.output.dense",
            },
        ),
        *old_norm("encoder.layer_{}.norm_0", "encoder.layer.{}.attention.output.LayerNorm"),
        *linear("encoder.layer_{}.linear_0", "encoder.layer.{}.intermediate.dense"),
        *linear("encoder.layer_{}.linear_1", "encoder.layer.{}.output.dense"),
        *old_norm("encoder.layer_{}.norm_1", "encoder.layer.{}.output.LayerNorm"),
        *linear("pooler", "pooler.dense"),
    )
    _ignored = ("*embeddings.position_ids", "*embeddings.token_type_ids")
    _prefixes = ("bert.",)

    def __init__(
        self,
        *,
        layers: int = 12,
        heads: int = 12,
        width: int = 768,
        feedforward: int | None = None,
        vocabulary: int = 30522,
        positions: int = 512,
        types: int = 2,
        dropout: float = 0.1,
        use_mask: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        tokens = self.add_input("input", shape=["batch", "length"])
        self |= Embedding(vocabulary, width, name="words")(input="input", output="word_rows")
        self.add_input("token_types", shape=["batch", "length"])
        self |= Embedding(types, width, name="types")(input="token_types", output="type_rows")
        self |= Add()(left="word_rows", right="type_rows", output="both")
        table = Embedding(positions, width, name="positions")
        add_positions(self, "both", tokens.shape[1], table, "x")
        self |= LayerNorm(1e-12, name="norm")(input="x")
        self += Dropout(dropout)(output="embedded")
        layer = TransformerEncoderLayer(
            width, heads, feedforward or 4 * width, dropout=dropout, activation=Gelu(), eps=1e-12
        )
        mask = {}
        if use_mask:
            mask["mask"] = self.add_input("mask", shape=["batch", "length"])[:, None, None]
        encoder = TransformerEncoder(layer, layers, name="encoder")
        self |= encoder(input="embedded", **mask, output="output")
        self |= Linear(width, name="pooler")(input=self.output[:, 0])
        self += Tanh()(output="pooled")
        self.expose("output")


class Llama(Architecture):
    """Llama: tokens, (batch, length), to scores of the next token, (batch, length, vocabulary).

    With `kv_heads`, several heads share keys and values. `tied` makes the embedding the last layer.
    Weights: `transformers.LlamaForCausalLM`, without `rope_scaling`.

    Source: H. Touvron et al. LLaMA: Open and Efficient Foundation Language Models.
    arXiv:2302.13971.
    """

    _ignored = ("*.rotary_emb.inv_freq",)
    _prefixes = ("model.",)

    def __init__(
        self,
        *,
        layers: int = 32,
        heads: int = 32,
        width: int = 4096,
        feedforward: int = 11008,
        vocabulary: int = 32000,
        kv_heads: int | None = None,
        head_width: int | None = None,
        rotary_base: float = 10000.0,
        eps: float = 1e-6,
        tied: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        words = Embedding(vocabulary, width, name="words")
        self |= words(input="input", w="embedding", output="x_0")
        for at in range(layers):
            attention = Attention(
                width,
                heads,
                head_width=head_width,
                kv_heads=kv_heads,
                rotary_base=rotary_base,
                is_causal=True,
                name="attention",
            )
            layer = _LlamaLayer(attention, width, feedforward, eps, name=f"layer_{at}")
            self |= layer(input=f"x_{at}", output=f"x_{at + 1}")
        self |= RMSNorm(eps, name="norm")(input=f"x_{layers}", output="hidden")
        if tied:
            self |= Einsum("blw,vw->blv")(inputs=["hidden", "embedding"], output="output")
        else:
            head = Linear(vocabulary, use_bias=False, name="head")
            self |= head(input="hidden", output="output")
        self.set_shapes(input=["batch", "length"])
        last = [Rule("embedding", ("lm_head.weight",), same)] if tied else linear("head", "lm_head")
        self._rules = [*_LLAMA, *outside(last)]


class _LlamaLayer(Model):
    """Attention and a gated perceptron, each after a norm and added to its input."""

    def __init__(
        self, attention: Attention, width: int, feedforward: int, eps: float, *, name: str
    ) -> None:
        super().__init__(name=name)
        self |= RMSNorm(eps, name="norm_0")(input="input", output="normed")
        self |= attention(input="normed", output="attended")
        self |= Add()(left="input", right="attended", output="sum")
        self |= RMSNorm(eps, name="norm_1")(input="sum", output="normed_sum")
        hidden = gated(width, feedforward, Silu(), name="mlp")
        self |= hidden(input="normed_sum", output="result")
        self |= Add()(left="sum", right="result", output="output")


_LLAMA = (
    Rule("embedding", ("embed_tokens.weight",), same),
    *table("norm", "norm"),
    *table("layer_{}.norm_0", "layers.{}.input_layernorm"),
    *table("layer_{}.norm_1", "layers.{}.post_attention_layernorm"),
    *(
        rule
        for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o"))
        for rule in linear(f"layer_{{}}.attention.{ours}", f"layers.{{}}.self_attn.{theirs}_proj")
    ),
    *(
        rule
        for layer in ("gate", "up", "down")
        for rule in linear(f"layer_{{}}.mlp.{layer}", f"layers.{{}}.mlp.{layer}_proj")
    ),
)
