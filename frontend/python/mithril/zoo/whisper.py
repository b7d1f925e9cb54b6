"""The encoder of Whisper."""

from __future__ import annotations

from ..models import Add, Conv1d, Dropout, Embedding, Gelu, LayerNorm, Model, SwapAxes
from .layers import Attention, add_positions, perceptron
from .weights import Architecture, linear, plain, table

__all__ = ["WhisperEncoder"]


class WhisperEncoder(Architecture):
    """The encoder of Whisper: log-mel spectrograms, (batch, mels, frames), to states,
    (batch, (frames + 1) // 2, width). There are at most `2 * positions` frames.

    Weights: the encoder of `transformers.WhisperModel`, or all weights of such a model that begin
    with `encoder.` or `model.encoder.`.

    Source: A. Radford et al. Robust Speech Recognition via Large-Scale Weak Supervision. ICML 2023,
    arXiv:2212.04356.
    """

    _prefixes = ("model.encoder.", "encoder.")

    def __init__(
        self,
        *,
        layers: int = 4,
        heads: int = 6,
        width: int = 384,
        feedforward: int | None = None,
        mels: int = 80,
        positions: int = 1500,
        dropout: float = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self |= Conv1d(width, 3, padding=1, name="conv1")(input="input")
        self += Gelu()
        self += Conv1d(width, 3, stride=2, padding=1, name="conv2")
        self += Gelu()
        self += SwapAxes(1, 2)(output="rows")
        table_of = Embedding(positions, width, name="positions")
        add_positions(self, "rows", self.rows.shape[1], table_of, "embedded")
        self |= Dropout(dropout)(input="embedded", output="x_0")
        for at in range(layers):
            layer = Model(name=f"layer_{at}")
            layer |= LayerNorm(name="norm_0")(input="input", output="normed")
            # Whisper's keys have no bias.
            heads_of = Attention(
                width, heads, biases=("query", "value", "output"), name="attention"
            )
            layer |= heads_of(input="normed")
            layer += Dropout(dropout)(output="attended")
            layer |= Add()(left="input", right="attended", output="sum")
            layer |= LayerNorm(name="norm_1")(input="sum", output="normed_sum")
            hidden = perceptron(width, feedforward or 4 * width, Gelu(), use_bias=True, name="mlp")
            layer |= hidden(input="normed_sum")
            layer += Dropout(dropout)(output="result")
            layer |= Add()(left="sum", right="result", output="output")
            self |= layer(input=f"x_{at}", output=f"x_{at + 1}")
        self |= LayerNorm(name="norm")(input=f"x_{layers}", output="output")
        self.set_shapes(input=["batch", mels, None])

    _rules = (
        *plain("conv{}"),
        *table("positions", "embed_positions"),
        *plain("norm", "layer_norm"),
        *plain("layer_{}.norm_0", "layers.{}.self_attn_layer_norm"),
        *plain("layer_{}.norm_1", "layers.{}.final_layer_norm"),
        *linear("layer_{}.attention.query", "layers.{}.self_attn.q_proj"),
        *linear("layer_{}.attention.key", "layers.{}.self_attn.k_proj"),
        *linear("layer_{}.attention.value", "layers.{}.self_attn.v_proj"),
        *linear("layer_{}.attention.output", "layers.{}.self_attn.out_proj"),
        *linear("layer_{}.mlp.up", "layers.{}.fc1"),
        *linear("layer_{}.mlp.down", "layers.{}.fc2"),
    )
