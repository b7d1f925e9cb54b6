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
    Relu,
    Residual,
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


# Models, and functions that draw their inputs.
MODELS = {
    "gpt": (gpt, lambda draw: draw.integers(0, 11, (2, 5))),
    "resnet": (resnet, lambda draw: draw.standard_normal((2, 3, 8, 8))),
    "recurrent": (recurrent, lambda draw: draw.standard_normal((2, 7, 4))),
}
