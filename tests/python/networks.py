"""Small whole networks, which tests of several backends share."""

import mithril as ml
from mithril import IOKey, Model
from mithril.models import (
    LSTM,
    Conv2d,
    Embedding,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool2d,
    MultiHeadAttention,
    RelativePositionBias,
    Relu,
    Residual,
    RMSNorm,
    Sequential,
)


def gpt():
    """Two pre-norm transformer layers over tokens."""
    layer = lambda: Sequential(  # noqa: E731
        [
            Residual(Sequential([LayerNorm(), MultiHeadAttention(2, is_causal=True)])),
            Residual(Sequential([LayerNorm(), Linear(32), ml.Gelu(), Linear(8)])),
        ]
    )
    return Sequential([Embedding(11, 8), layer(), layer(), LayerNorm(), Linear(11)])


def resnet():
    """A convolution with pooling, a residual block and a classifier."""
    block = [Conv2d(4, 3, padding=1), Relu(), Conv2d(4, 3, padding=1)]
    return Sequential(
        [
            Conv2d(4, 3, padding=1),
            Relu(),
            MaxPool2d(2, stride=2),
            Residual(Sequential(block)),
            Relu(),
            Flatten(start=1),
            Linear(3),
        ]
    )


def recurrent():
    model = Model()
    model |= LSTM(6)(input="input", output="hidden")
    model |= Linear(3)(input="hidden", output=IOKey("output"))
    return model


def t5():
    """An encoder and a decoder in the manner of T5: RMS norms before layers without biases, biases
    of relative positions, and attention of the decoder to the encoder. Both read one input."""
    model = Model()
    model |= Embedding(11, 8)(input="input", output="x")

    def add(layer, name, **given):
        """`name` plus a layer of its norm."""
        nonlocal model
        model |= RMSNorm()(input=name, output=f"{name}_norm")
        model |= layer(input=f"{name}_norm", output=f"{name}_layer", **given)
        model |= ml.Add()(left=name, right=f"{name}_layer", output=f"{name}_")
        return f"{name}_"

    def feed_forward():
        return Sequential([Linear(16, use_bias=False), Relu(), Linear(8, use_bias=False)])

    def stack(bidirectional):
        nonlocal model
        bias = RelativePositionBias(2, buckets=8, max_distance=16, bidirectional=bidirectional)
        name = "encoder" if bidirectional else "decoder"
        model |= bias(input="x", output=f"{name}_bias")
        model |= ml.Buffer()(input="x", output=name)
        attention = MultiHeadAttention(2, use_bias=False, is_causal=not bidirectional)
        return add(attention, name, mask=getattr(model, f"{name}_bias")[None])

    encoded = add(feed_forward(), stack(bidirectional=True))
    decoded = stack(bidirectional=False)
    decoded = add(MultiHeadAttention(2, use_bias=False), decoded, context=encoded)
    decoded = add(feed_forward(), decoded)
    model |= Linear(11, use_bias=False)(input=decoded, output=IOKey("output"))
    return model


# Models, and functions that draw their inputs.
MODELS = {
    "gpt": (gpt, lambda draw: draw.integers(0, 11, (2, 5))),
    "resnet": (resnet, lambda draw: draw.standard_normal((2, 3, 8, 8))),
    "recurrent": (recurrent, lambda draw: draw.standard_normal((2, 7, 4))),
}
