"""Training by gradients that Mithril writes, against those that the framework takes itself.

    python tests/benches/gradients.py [torch] [jax]

prints milliseconds of outputs and gradients of all params, one thread, and the ratio: above 1,
Mithril's are faster. The least of several calls, in turns.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import mithril as ml
from mithril.models import (
    MLP,
    Buffer,
    Gelu,
    LayerNorm,
    Linear,
    Model,
    MultiHeadAttention,
    Relu,
    Residual,
    Sequential,
    Sigmoid,
    Softmax,
)

ROUNDS = 15


def mlp() -> Any:
    return MLP(activations=[Relu(), Relu(), Buffer()], dimensions=[512, 512, 10])


def chain() -> Any:
    return Sequential([Linear(512), Gelu(), Sigmoid()])


def attention() -> Any:
    return MultiHeadAttention(12, is_causal=True)


def block() -> Any:
    feed = MLP(activations=[Gelu(), Buffer()], dimensions=[3072, 768])
    return Sequential(
        [
            Residual(Sequential([LayerNorm(), attention()])),
            Residual(Sequential([LayerNorm(), feed])),
        ]
    )


MODELS = {
    "MLP, 128 x 784": (mlp, [128, 784]),
    "layer norm, 4096 x 1024": (LayerNorm, [4096, 1024]),
    "linear and softmax, 1024 x 256": (lambda: Sequential([Linear(1024), Softmax()]), [1024, 256]),
    "linear, GELU, sigmoid, 4096 x 128": (chain, [4096, 128]),
    "attention, 4 x 256 x 768": (attention, [4, 256, 768]),
    "GPT-2 block, 4 x 128 x 768": (block, [4, 128, 768]),
}


def step(kind: str, make: Any, shape: list[int], autodiff: Any) -> Any:
    """A call that gives outputs and gradients, and waits for them."""
    model = Model()
    model |= make()(input="input", output="output")
    backend: Any = ml.TorchBackend() if kind == "torch" else ml.JaxBackend()
    compiled = ml.compile(model, backend, shapes={"input": shape}, autodiff=autodiff)
    params = compiled.randomize_params(seed=0)
    array = np.random.default_rng(0).standard_normal(shape).astype("float32")
    data = {"input": backend.array(array)}
    seeds = {"output": backend.ones(compiled.evaluate(params, data)["output"].shape)}

    def run() -> None:
        outputs, gradients = compiled.evaluate(params, data, output_gradients=seeds)
        for value in (*outputs.values(), *gradients.values()):
            if hasattr(value, "block_until_ready"):
                value.block_until_ready()

    return run


def main() -> None:
    kinds = sys.argv[1:] or ["torch", "jax"]
    if "torch" in kinds:
        import torch  # noqa: PLC0415

        torch.set_num_threads(1)
    for kind in kinds:
        for name, (make, shape) in MODELS.items():
            runs = [step(kind, make, shape, own) for own in ("framework", "mithril")]
            least = [float("inf")] * 2
            for _ in range(ROUNDS):
                for i, run in enumerate(runs):
                    start = time.perf_counter()
                    run()
                    least[i] = min(least[i], time.perf_counter() - start)
            own, ours = (seconds * 1e3 for seconds in least)
            print(f"{kind:6} {name:36} {own:8.2f} {ours:8.2f} {own / ours:6.2f}", flush=True)


if __name__ == "__main__":
    main()
