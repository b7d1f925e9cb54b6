"""A GPT that writes: greedy tokens of native code beside torch's, from the same weights.

`python tests/benches/generate.py [layers width heads vocabulary tokens]`, by default GPT-2 small
and 100 tokens. The whole text is read again for each token; its length is a dim without a size: one
compile serves all. Prints the largest difference of the logits of the last text, whether all tokens
are the same, the times, and by how much the memory of the process grew.
"""

import os
import resource
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

import mithril as ml
from mithril.models import Add, Arange, Embedding, Gelu, LayerNorm, Linear, MultiHeadAttention

LAYERS, WIDTH, HEADS, VOCABULARY, TOKENS = (
    map(int, sys.argv[1:]) if len(sys.argv) > 1 else (12, 768, 12, 50257, 100)
)
THREADS = int(os.environ.get("THREADS", "2"))


def layer(name):
    model = ml.Model(name=name)
    model |= LayerNorm(name="ln_1")(input="input", output="normed")
    model |= MultiHeadAttention(HEADS, is_causal=True, name="attn")(
        input="normed", output="attended"
    )
    model |= Add()(left="input", right="attended", output="middle")
    model |= LayerNorm(name="ln_2")(input="middle")
    model += Linear(4 * WIDTH, name="fc")
    model += Gelu(approximate=True)
    model += Linear(WIDTH, name="proj")(output="fed")
    model |= Add()(left="middle", right="fed", output="output")
    return model


def gpt():
    model = ml.Model()
    model |= Embedding(VOCABULARY, WIDTH, name="wte")(input="input", output="words")
    model |= Arange(stop=model.input.shape[-1])(output="places")
    model |= Embedding(1024, WIDTH, name="wpe")(input="places", output="positions")
    model |= Add()(left="words", right="positions", output="h_0")
    for i in range(LAYERS):
        model |= layer(f"h_{i}")(input=f"h_{i}", output=f"h_{i + 1}")
    model |= LayerNorm(name="ln_f")(input=f"h_{LAYERS}")
    model += Linear(VOCABULARY, use_bias=False, name="head")(output="logits")
    return model


def reference(p, tokens):
    """The same in torch."""
    x = p["wte.w"][tokens] + p["wpe.w"][: tokens.shape[-1]]
    for i in range(LAYERS):
        own = {n.removeprefix(f"h_{i}."): w for n, w in p.items() if n.startswith(f"h_{i}.")}
        h = F.layer_norm(x, (WIDTH,), own["ln_1.w"], own["ln_1.b"])
        q, k, v = (
            (h @ own[f"attn.w_{side}"] + own[f"attn.b_{side}"])
            .unflatten(-1, (HEADS, -1))
            .transpose(-2, -3)
            for side in ("query", "key", "value")
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        merged = heads.transpose(-2, -3).flatten(-2)
        x = x + merged @ own["attn.w_output"] + own["attn.b_output"]
        h = F.layer_norm(x, (WIDTH,), own["ln_2.w"], own["ln_2.b"])
        h = F.gelu(h @ own["fc.w"] + own["fc.b"], approximate="tanh")
        x = x + h @ own["proj.w"] + own["proj.b"]
    return F.layer_norm(x, (WIDTH,), p["ln_f.w"], p["ln_f.b"]) @ p["head.w"]


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def write(logits_of):
    tokens = np.arange(4, dtype=np.int64)[None]
    start = time.perf_counter()
    for _ in range(TOKENS):
        logits = np.asarray(logits_of(tokens))
        tokens = np.append(tokens, logits[:, -1:].argmax(-1), 1)
    return tokens, logits, time.perf_counter() - start


def main():
    torch.set_num_threads(THREADS)
    compiled = ml.compile(gpt(), ml.CpuBackend(threads=THREADS), shapes={"input": [1, "length"]})
    params = compiled.randomize_params(seed=0)
    before = resident()
    first = time.perf_counter()
    compiled.evaluate(params, {"input": np.zeros((1, 4), np.int64)})
    print(f"first call {time.perf_counter() - first:.2f} s")
    tokens, logits, seconds = write(lambda t: compiled.evaluate(params, {"input": t})["logits"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"memory grew by {(resident() - before) / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB")
    own = {n: torch.from_numpy(w) for n, w in params.items()}
    with torch.no_grad():
        want, wanted, peer = write(lambda t: reference(own, torch.from_numpy(t)))
    print(f"logits differ by {np.abs(logits - wanted).max():.1e}")
    print(f"{TOKENS} tokens {'the same' if (tokens == want).all() else 'DIFFERENT'}")
    print(f"{seconds:.2f} s, torch {peer:.2f} s")


if __name__ == "__main__":
    main()
