"""Transformers of any size, for plans on large meshes."""

import mithril as ml
from mithril.models import Embedding, Gelu, LayerNorm, Linear, MultiHeadAttention, Sequential


def gpt(layers, width, heads, vocabulary):
    def layer():
        attention = Sequential([LayerNorm(), MultiHeadAttention(heads, is_causal=True)])
        feed_forward = Sequential([LayerNorm(), Linear(4 * width), Gelu(), Linear(width)])
        return Sequential([ml.Residual(attention), ml.Residual(feed_forward)])

    ends = [LayerNorm(), Linear(vocabulary, use_bias=False)]
    return Sequential([Embedding(vocabulary, width), *(layer() for _ in range(layers)), *ends])
