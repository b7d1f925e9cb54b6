"""ViT and CLIP: transformers of images."""

from __future__ import annotations

import math

from ..models import (
    Arange,
    ArgMax,
    Block,
    Concat,
    Conv2d,
    Dropout,
    ElementWiseAffine,
    Embedding,
    Flatten,
    Gelu,
    LayerNorm,
    Linear,
    Model,
    Normalize,
    Ones,
    SwapAxes,
    TransformerEncoder,
    TransformerEncoderLayer,
    Where,
    ZerosLike,
)
from .layers import QuickGelu, add_positions
from .weights import (
    Architecture,
    Rule,
    as_vector,
    attention,
    flat,
    linear,
    outside,
    plain,
    same,
    table,
)

__all__ = ["CLIP", "ViT"]


def _add_patches(model: Model, image: int, patch: int, width: int, use_bias: bool) -> None:
    """Adds what turns `input`, an image, into `embedded`: a row `cls` and one for each patch, plus
    their positions."""
    projection = Conv2d(width, patch, stride=patch, use_bias=use_bias, name="patches")
    model |= projection(input="input")
    model += Flatten(start=2)
    model += SwapAxes(1, 2)(output="rows")
    # The first row of each image: the bias is learned, and is the same for all.
    model |= ZerosLike()(input=model.rows[:, :1])
    model += ElementWiseAffine(use_scale=False, name="cls")(output="first")
    model |= Concat(axis=1)(inputs=["first", "rows"], output="all_rows")
    count = (image // patch) ** 2 + 1
    table_of = Embedding(count, width, name="positions")
    add_positions(model, "all_rows", count, table_of, "embedded")


class ViT(Architecture):
    """A vision transformer: (batch, channels, image, image) to (batch, classes).

    `image` is the height and width of images, `patch` that of the squares that they are cut into.
    Weights: `transformers.ViTForImageClassification`.

    Source: A. Dosovitskiy et al. An Image is Worth 16x16 Words: Transformers for Image Recognition
    at Scale. ICLR 2021, arXiv:2010.11929.
    """

    _prefixes = ("vit.",)

    def __init__(
        self,
        *,
        classes: int = 1000,
        image: int = 224,
        patch: int = 16,
        layers: int = 12,
        heads: int = 12,
        width: int = 768,
        feedforward: int | None = None,
        channels: int = 3,
        dropout: float = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        _add_patches(self, image, patch, width, use_bias=True)
        self |= Dropout(dropout)(input="embedded", output="dropped")
        layer = TransformerEncoderLayer(
            width,
            heads,
            feedforward or 4 * width,
            dropout=dropout,
            activation=Gelu(),
            eps=1e-12,
            norm_first=True,
        )
        encoder = TransformerEncoder(layer, layers, norm=LayerNorm(1e-12), name="encoder")
        self |= encoder(input="dropped", output="encoded")
        self |= Linear(classes, name="classifier")(input=self.encoded[:, 0], output="output")
        self.set_shapes(input=["batch", channels, image, image])

    _rules = (
        Rule("cls.b", ("embeddings.cls_token",), flat),
        Rule("positions.w", ("embeddings.position_embeddings",), flat),
        *plain("patches", "embeddings.patch_embeddings.projection"),
        *attention(
            "encoder.layer_{}.attention",
            {
                "query": "layers.{}.attention.q_proj",
                "key": "layers.{}.attention.k_proj",
                "value": "layers.{}.attention.v_proj",
                "output": "layers.{}.attention.o_proj",
            },
        ),
        *plain("encoder.layer_{}.norm_0", "layers.{}.layernorm_before"),
        *plain("encoder.layer_{}.norm_1", "layers.{}.layernorm_after"),
        *linear("encoder.layer_{}.linear_0", "layers.{}.mlp.fc1"),
        *linear("encoder.layer_{}.linear_1", "layers.{}.mlp.fc2"),
        # The names in files of weights, before version 5 of transformers.
        *attention(
            "encoder.layer_{}.attention",
            {
                "query": "encoder.layer.{}.attention.attention.query",
                "key": "encoder.layer.{}.attention.attention.key",
                "value": "encoder.layer.{}.attention.attention.value",
                "output": "encoder.layer.{}.attention.output.dense",
            },
        ),
        *plain("encoder.layer_{}.norm_0", "encoder.layer.{}.layernorm_before"),
        *plain("encoder.layer_{}.norm_1", "encoder.layer.{}.layernorm_after"),
        *linear("encoder.layer_{}.linear_0", "encoder.layer.{}.intermediate.dense"),
        *linear("encoder.layer_{}.linear_1", "encoder.layer.{}.output.dense"),
        *plain("encoder.norm", "layernorm"),
        *outside(linear("classifier")),
    )


class CLIP(Architecture):
    """CLIP: `image`, (images, channels, image, image), and `text`, tokens of (texts, length), to
    `scores`, (images, texts), and to `image_embedding` and `text_embedding` of length 1.

    A text is read up to its largest token, the first one if there are several; that is the end of
    the text in CLIP's vocabulary. Weights: `transformers.CLIPModel`.

    Source: A. Radford et al. Learning Transferable Visual Models From Natural Language Supervision.
    ICML 2021, arXiv:2103.00020.
    """

    _ignored = ("*.embeddings.position_ids",)

    def __init__(
        self,
        *,
        dimension: int = 512,
        image: int = 224,
        patch: int = 32,
        layers: int = 12,
        heads: int = 12,
        width: int = 768,
        text_layers: int = 12,
        text_heads: int = 8,
        text_width: int = 512,
        vocabulary: int = 49408,
        positions: int = 77,
        channels: int = 3,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        vision = Model(name="vision")
        _add_patches(vision, image, patch, width, use_bias=False)
        vision |= LayerNorm(name="norm_before")(input="embedded")
        vision += _clip_encoder(layers, heads, width, is_causal=False)(output="encoded")
        vision |= LayerNorm(name="norm")(input=vision.encoded[:, 0], output="output")
        text = _clip_text(text_layers, text_heads, text_width, vocabulary, positions)
        for side, tower in (("image", vision), ("text", text)):
            self |= tower(input=side, output=f"{side}_features")
            self |= Linear(dimension, use_bias=False, name=f"{side}_projection")(
                input=f"{side}_features"
            )
            self += Normalize(axis=-1)(output=f"{side}_embedding")
        # The scale starts as 1 / 0.07.
        self |= Ones([1])(output="one")
        scale = ElementWiseAffine(use_bias=False, init=math.log(1 / 0.07), name="logit_scale")
        self |= scale(input="one", output="log_scale")
        cosines = self.image_embedding @ self.text_embedding.transpose()
        self.scores = cosines * self.log_scale.exp()
        self.expose("image_embedding", "text_embedding")
        self.set_shapes(image=["images", channels, image, image], text=["texts", "length"])

    _rules = (
        Rule("logit_scale.w", ("logit_scale",), as_vector),
        Rule("vision.cls.b", ("vision_model.embeddings.class_embedding",), same),
        *table("vision.patches", "vision_model.embeddings.patch_embedding"),
        *table("vision.positions", "vision_model.embeddings.position_embedding"),
        *plain("vision.norm_before", "vision_model.pre_layrnorm"),
        *plain("vision.norm", "vision_model.post_layernorm"),
        *table("text.words", "text_model.embeddings.token_embedding"),
        *table("text.positions", "text_model.embeddings.position_embedding"),
        *plain("text.norm", "text_model.final_layer_norm"),
        *attention(
            "{}.encoder.layer_{}.attention",
            {
                "query": "{}_model.encoder.layers.{}.self_attn.q_proj",
                "key": "{}_model.encoder.layers.{}.self_attn.k_proj",
                "value": "{}_model.encoder.layers.{}.self_attn.v_proj",
                "output": "{}_model.encoder.layers.{}.self_attn.out_proj",
            },
        ),
        *plain("{}.encoder.layer_{}.norm_0", "{}_model.encoder.layers.{}.layer_norm1"),
        *plain("{}.encoder.layer_{}.norm_1", "{}_model.encoder.layers.{}.layer_norm2"),
        *linear("{}.encoder.layer_{}.linear_0", "{}_model.encoder.layers.{}.mlp.fc1"),
        *linear("{}.encoder.layer_{}.linear_1", "{}_model.encoder.layers.{}.mlp.fc2"),
        *linear("image_projection", "visual_projection"),
        *linear("text_projection"),
    )


def _clip_encoder(layers: int, heads: int, width: int, *, is_causal: bool) -> Block:
    layer = TransformerEncoderLayer(
        width,
        heads,
        4 * width,
        dropout=0.0,
        activation=QuickGelu(),
        norm_first=True,
        is_causal=is_causal,
    )
    return TransformerEncoder(layer, layers, name="encoder")


def _clip_text(layers: int, heads: int, width: int, vocabulary: int, positions: int) -> Model:
    """Tokens, (texts, length), to the state of each text's largest token, (texts, width)."""
    model = Model(name="text")
    tokens = model.add_input("input", shape=["texts", "length"])
    length = tokens.shape[1]
    model |= Embedding(vocabulary, width, name="words")(input="input", output="words_of")
    table_of = Embedding(positions, width, name="positions")
    add_positions(model, "words_of", length, table_of, "embedded")
    model |= _clip_encoder(layers, heads, width, is_causal=True)(input="embedded")
    model += LayerNorm(name="norm")(output="states")
    model |= ArgMax(axis=1)(input="input", output="end")
    model |= Arange(stop=length)(output="places")
    is_end = model.places == model.end[:, None]
    model |= Where()(is_end[:, :, None], "states", 0.0, output="kept")
    model.output = model.kept.sum(axis=1)
    return model
