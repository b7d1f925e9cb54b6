"""How long models take to compose and to compile, in milliseconds: the least of several runs.

.venv/bin/python tests/benches/compose.py
"""

import subprocess
import sys
import time
from collections.abc import Callable

import mithril as ml
from mithril.models import (
    Add,
    Arange,
    Embedding,
    Gelu,
    LayerNorm,
    Linear,
    Model,
    MultiHeadAttention,
    Relu,
)

WIDTH, HEADS, VOCABULARY, TOKENS = 768, 12, 50257, 64


class Layer(Model):
    """One pre-norm transformer layer, as in GPT-2."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self |= LayerNorm(name="ln_1")(input="input", output="normed")
        self |= MultiHeadAttention(heads=HEADS, is_causal=True, name="attn")(
            input="normed", output="attended"
        )
        self |= Add(name="residual_1")(left="input", right="attended", output="middle")
        self |= LayerNorm(name="ln_2")(input="middle")
        self += Linear(dimension=4 * WIDTH, name="c_fc")
        self += Gelu(approximate=True, name="act")
        self += Linear(dimension=WIDTH, name="c_proj")(output="fed")
        self |= Add(name="residual_2")(left="middle", right="fed", output="output")


def gpt2(layers: int) -> Model:
    """A GPT-2 of this many layers: token ids in, logits out."""
    model = Model()
    model |= Embedding(VOCABULARY, WIDTH, name="wte")(input="input", output="tokens")
    model |= Arange(TOKENS, name="positions")(output="places")
    model |= Embedding(1024, WIDTH, name="wpe")(input="places", output="positions")
    model |= Add(name="embed")(left="tokens", right="positions", output="h_0")
    for i in range(layers):
        model |= Layer(name=f"h_{i}")(input=f"h_{i}", output=f"h_{i + 1}")
    model |= LayerNorm(name="ln_f")(input=f"h_{layers}")
    model += Linear(dimension=VOCABULARY, use_bias=False, name="lm_head")(output="logits")
    return model


def chain(length: int) -> Model:
    """Linear and Relu, so many times."""
    model = Model()
    for _ in range(length):
        model += Linear(dimension=64)
        model += Relu()
    return model


def least(run: Callable[[], object], times: int = 5) -> float:
    """The least milliseconds of several runs."""
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def import_cost() -> float:
    """Milliseconds of `import mithril` above a bare interpreter."""
    run = lambda code: least(lambda: subprocess.run([sys.executable, "-c", code], check=True))  # noqa: E731
    return run("import mithril") - run("pass")


def main() -> None:
    """Prints a row per measurement, with the bound it has to keep."""
    backend = ml.JaxBackend()
    shapes = {"input": [1, TOKENS]}

    def compile_time(model: Model) -> float:
        return least(lambda: ml.compile(model, backend, shapes=shapes, cache=False))

    compile_gpt = {layers: compile_time(gpt2(layers)) for layers in (12, 24)}
    long = chain(1000)
    rows = [
        ("import mithril, above a bare interpreter", import_cost(), 60.0),
        ("GPT-2, 12 layers: compose", least(lambda: gpt2(12)), 50.0),
        ("GPT-2, 12 layers: compile to JAX", compile_gpt[12], 150.0),
        ("GPT-2, 24 layers: compile to JAX", compile_gpt[24], 2.2 * compile_gpt[12]),
        (
            "1000 Linear and Relu: compose and compile",
            least(lambda: chain(1000))
            + least(lambda: ml.compile(long, backend, shapes={"input": [1, 64]}, cache=False), 2),
            500.0,
        ),
    ]
    for name, got, bound in rows:
        print(f"{name:45} {got:9.1f} ms   at most {bound:7.1f}")


if __name__ == "__main__":
    main()
