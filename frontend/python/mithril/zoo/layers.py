"""Parts that several transformers share."""

from __future__ import annotations

from collections.abc import Collection

from ..models import (
    Add,
    Arange,
    Block,
    Connection,
    Embedding,
    Flatten,
    Linear,
    Model,
    RotaryEmbedding,
    ScaledDotProduct,
    Sigmoid,
    SwapAxes,
    Unflatten,
)

__all__ = ["Attention", "QuickGelu", "add_positions", "gated", "perceptron"]


class Attention(Model):
    """Attention with a linear layer `query`, `key`, `value` and `output` each: (batch, length,
    width) to the same shape.

    Unlike `MultiHeadAttention`, heads may have any width and scale, only the layers named in
    `biases` have a bias, and `rotary_base` rotates queries and keys by their positions. With
    `to_context`, the input `context` gives keys and values. With `use_mask`, the input `mask` is
    that of `ScaledDotProduct`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_width: int | None = None,
        kv_heads: int | None = None,
        scale: float | None = None,
        biases: Collection[str] = (),
        rotary_base: float | None = None,
        is_causal: bool = False,
        to_context: bool = False,
        use_mask: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        head_width = head_width or width // heads
        for role in ("query", "key", "value"):
            count = heads if role == "query" else kv_heads or heads
            source = "context" if to_context and role != "query" else "input"
            layer = Linear(count * head_width, use_bias=role in biases, name=role)
            self |= layer(input=source)
            self += Unflatten(-1, [count, head_width])
            self += SwapAxes(-2, -3)(output=f"{role}_heads")
        query, key = "query_heads", "key_heads"
        if rotary_base is not None:
            self |= RotaryEmbedding(rotary_base)(input=query, output="query_rotated")
            self |= RotaryEmbedding(rotary_base)(input=key, output="key_rotated")
            query, key = "query_rotated", "key_rotated"
        product = ScaledDotProduct(
            is_causal=is_causal, scale=scale, grouped=kv_heads not in (None, heads)
        )
        mask = {"mask": "mask"} if use_mask else {}
        self |= product(query=query, key=key, value="value_heads", **mask)
        self += SwapAxes(-2, -3)
        self += Flatten(start=-2)
        self += Linear(width, use_bias="output" in biases, name="output")(output="output")


class QuickGelu(Model):
    """`input * sigmoid(1.702 input)`: D. Hendrycks, K. Gimpel. Gaussian Error Linear Units.
    arXiv:1606.08415."""

    def __init__(self) -> None:
        super().__init__()
        value = self.add_input("input")
        self |= Sigmoid()(input=value * 1.702, output="gate")
        self.output = value * self.gate


def perceptron(width: int, hidden: int, activation: Block, *, use_bias: bool, name: str) -> Model:
    """The linear layers `up` and `down` with an activation between."""
    model = Model(name=name)
    model |= Linear(hidden, use_bias=use_bias, name="up")(input="input")
    model += activation
    model += Linear(width, use_bias=use_bias, name="down")(output="output")
    return model


def gated(width: int, hidden: int, activation: Block, *, name: str) -> Model:
    """The linear layers `up` and `down` with a gate between: N. Shazeer. GLU Variants Improve
    Transformer. arXiv:2002.05202."""
    model = Model(name=name)
    model |= Linear(hidden, use_bias=False, name="gate")(input="input")
    model += activation(output="opening")
    model |= Linear(hidden, use_bias=False, name="up")(input="input", output="values")
    product = model.opening * model.values
    model |= Linear(width, use_bias=False, name="down")(input=product, output="output")
    return model


def add_positions(
    model: Model, embedded: str, length: int | Connection, table: Embedding, output: str
) -> None:
    """Adds the rows of `table` for positions 0, 1, … to `embedded`, (batch, length, width)."""
    name = f"{table.name}_rows"
    model |= Arange(stop=length)(output=f"{table.name}_at")
    model |= table(input=f"{table.name}_at", output=name)
    model |= Add()(left=embedded, right=name, output=output)
