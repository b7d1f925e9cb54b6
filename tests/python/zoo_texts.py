"""Recurrent networks and transformers of `mithril.zoo` with their public implementations."""

from __future__ import annotations

from typing import Any

import numpy as np
import transformers
import zoo_modules
from zoo_cases import RNG, Arrays, Case, called, floats, images, indices

from mithril import zoo

SMALL = {"layers": 2, "heads": 4, "width": 32, "feedforward": 48}
THEIRS = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_size": 32,
    "intermediate_size": 48,
}
# The tokens of the defaults do not fit a small vocabulary.
TOKENS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


def bert_inputs(batch: int, length: int) -> Arrays:
    mask = np.arange(length) < RNG.integers(1, length + 1, batch)[:, None]
    return {
        "input": indices(37, batch, length),
        "token_types": indices(2, batch, length),
        "mask": mask,
    }


def bert(model: Any, inputs: Arrays) -> Arrays:
    result = model(
        inputs["input"],
        token_type_ids=inputs["token_types"],
        attention_mask=inputs["mask"].long(),
    )
    return {"output": result.last_hidden_state, "pooled": result.pooler_output}


def translation(batch: int, length: int, steps: int) -> Arrays:
    return {
        "input": indices(37, batch, length),
        "target": indices(29, batch, steps),
        "mask": np.arange(length) < RNG.integers(1, length + 1, batch)[:, None],
    }


def t5(gated: bool, tied: bool, head_width: int) -> Case:
    config = transformers.T5Config(
        num_layers=2,
        num_heads=4,
        d_model=32,
        d_kv=head_width,
        d_ff=48,
        vocab_size=37,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=12,
        feed_forward_proj="gated-gelu" if gated else "relu",
        tie_word_embeddings=tied,
        decoder_start_token_id=0,
    )
    return Case(
        lambda: zoo.T5(
            **SMALL,
            head_width=head_width,
            vocabulary=37,
            buckets=8,
            max_distance=12,
            gated=gated,
            tied=tied,
            dropout=0.0 if tied else 0.1,
            use_mask=gated,
        ),
        lambda: transformers.T5ForConditionalGeneration(config),
        [t5_inputs(2, 7, 5, gated), t5_inputs(1, 20, 17, gated)],
        lambda model, inputs: {
            "output": model(
                inputs["input"],
                decoder_input_ids=inputs["target"],
                attention_mask=inputs["mask"].long() if gated else None,
            ).logits
        },
    )


def t5_inputs(batch: int, length: int, steps: int, masked: bool) -> Arrays:
    mask = np.arange(length) < RNG.integers(1, length + 1, batch)[:, None]
    texts = {"input": indices(37, batch, length), "target": indices(37, batch, steps)}
    return texts | ({"mask": mask} if masked else {})


def clip_config() -> Any:
    text = {"hidden_size": 24, "intermediate_size": 96, "num_attention_heads": 2}
    text |= {"vocab_size": 37, "max_position_embeddings": 9, "num_hidden_layers": 1}
    vision = {**THEIRS, "intermediate_size": 128, "image_size": 16, "patch_size": 8}
    own = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    return transformers.CLIPConfig(
        text_config={**text, **own, "projection_dim": 12},
        vision_config={**vision, "projection_dim": 12},
        projection_dim=12,
    )


def clip_inputs(count: int, texts: int, length: int) -> Arrays:
    """Texts that end at different places with the largest token."""
    tokens = indices(36, texts, length)
    tokens[np.arange(texts), RNG.integers(1, length, texts)] = 36
    return {"image": floats(count, 3, 16, 16), "text": tokens}


def clip(model: Any, inputs: Arrays) -> Arrays:
    result = model(input_ids=inputs["text"], pixel_values=inputs["image"])
    return {
        "scores": result.logits_per_image,
        "image_embedding": result.image_embeds,
        "text_embedding": result.text_embeds,
    }


def whisper_config() -> Any:
    return transformers.WhisperConfig(
        encoder_layers=2,
        decoder_layers=1,
        d_model=32,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        vocab_size=37,
        num_mel_bins=6,
        max_source_positions=10,
        decoder_start_token_id=0,
        **TOKENS,
    )


TEXTS = {
    "LSTM": Case(
        lambda: zoo.LSTMClassifier(11, width=6, hidden=5, layers=2, classes=3, use_lengths=True),
        lambda: zoo_modules.Classifier(11, 6, 5, 2, both=True),
        [
            {"input": indices(11, 3, 7), "lengths": np.array([4, 7, 1])},
            {"input": indices(11, 2, 5), "lengths": np.array([5, 2])},
        ],
        called,
    ),
    "LSTM-forward": Case(
        lambda: zoo.LSTMClassifier(11, width=6, hidden=5, classes=3, bidirectional=False),
        lambda: zoo_modules.Classifier(11, 6, 5, 1, both=False),
        [{"input": indices(11, 3, 7)}, {"input": indices(11, 1, 9)}],
        called,
    ),
    "seq2seq": Case(
        lambda: zoo.Seq2Seq(11, 13, width=6, hidden=5),
        lambda: zoo_modules.Seq2Seq(11, 13, 6, 5),
        [
            {"input": indices(11, 3, 7), "target": indices(13, 3, 4)},
            {"input": indices(11, 2, 5), "target": indices(13, 2, 6)},
        ],
        called,
    ),
    "GPT-2": Case(
        lambda: zoo.GPT2(layers=2, heads=4, width=32, vocabulary=37, positions=16, dropout=0.0),
        lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                n_layer=2, n_head=4, n_embd=32, vocab_size=37, n_positions=16, **TOKENS
            )
        ),
        [{"input": indices(37, 2, 7)}, {"input": indices(37, 3, 16)}],
        lambda model, inputs: {"output": model(inputs["input"]).logits},
    ),
    "BERT": Case(
        lambda: zoo.BERT(**SMALL, vocabulary=37, positions=16, use_mask=True),
        lambda: transformers.BertModel(
            transformers.BertConfig(**THEIRS, vocab_size=37, max_position_embeddings=16)
        ),
        [bert_inputs(2, 7), bert_inputs(5, 5)],
        bert,
    ),
    "Llama": Case(
        lambda: zoo.Llama(**SMALL, kv_heads=2, vocabulary=37),
        lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**THEIRS, num_key_value_heads=2, vocab_size=37, **TOKENS)
        ),
        [{"input": indices(37, 2, 7)}, {"input": indices(37, 3, 11)}],
        lambda model, inputs: {"output": model(inputs["input"]).logits},
    ),
    "Llama-tied": Case(
        lambda: zoo.Llama(**SMALL, head_width=16, vocabulary=37, rotary_base=5e5, tied=True),
        lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                **THEIRS,
                head_dim=16,
                vocab_size=37,
                rope_parameters={"rope_type": "default", "rope_theta": 5e5},
                tie_word_embeddings=True,
                **TOKENS,
            )
        ),
        [{"input": indices(37, 2, 7)}],
        lambda model, inputs: {"output": model(inputs["input"]).logits},
    ),
    "Transformer": Case(
        lambda: zoo.Transformer(37, 29, **SMALL, use_mask=True),
        lambda: zoo_modules.Translator(37, 29, 32, first=False),
        [translation(3, 7, 5), translation(2, 4, 6)],
        called,
    ),
    "Transformer-norm-first": Case(
        lambda: zoo.Transformer(37, 29, **SMALL, norm_first=True),
        lambda: zoo_modules.Translator(37, 29, 32, first=True),
        [{"input": indices(37, 2, 7), "target": indices(29, 2, 5)}],
        called,
    ),
    "T5": t5(gated=False, tied=True, head_width=8),
    "T5-1.1": t5(gated=True, tied=False, head_width=6),
    "ViT": Case(
        lambda: zoo.ViT(**SMALL, classes=5, image=16, patch=8),
        lambda: transformers.ViTForImageClassification(
            transformers.ViTConfig(**THEIRS, image_size=16, patch_size=8, num_labels=5)
        ),
        images((2, 3, 16, 16), (1, 3, 16, 16)),
        lambda model, inputs: {"output": model(inputs["input"]).logits},
    ),
    "CLIP": Case(
        lambda: zoo.CLIP(
            dimension=12,
            image=16,
            patch=8,
            layers=2,
            heads=4,
            width=32,
            text_layers=1,
            text_heads=2,
            text_width=24,
            vocabulary=37,
            positions=9,
        ),
        lambda: transformers.CLIPModel(clip_config()),
        [clip_inputs(2, 3, 7), clip_inputs(3, 1, 9)],
        clip,
    ),
    "Whisper": Case(
        lambda: zoo.WhisperEncoder(**SMALL, mels=6, positions=10),
        lambda: transformers.WhisperModel(whisper_config()).encoder,
        images((2, 6, 20), (1, 6, 20)),
        lambda model, inputs: {"output": model(inputs["input"]).last_hidden_state},
    ),
}
