"""C source beside native code: one thread, interleaved, the least of many runs.

python tests/benches/c_source.py [RUNS]
"""

import sys
import time

import numpy as np

import mithril as ml
from mithril.models import LayerNorm, Linear, Model, Softmax

CASES = {
    "tanh": (ml.Tanh, [1024, 1024]),
    "GELU": (ml.Gelu, [1024, 1024]),
    "sigmoid": (ml.Sigmoid, [1024, 1024]),
    "softmax": (Softmax, [1024, 1024]),
    "layer norm": (LayerNorm, [1024, 768]),
    "Linear": (lambda: Linear(512), [512, 512]),
    "attention": (lambda: ml.MultiHeadAttention(12), [1, 128, 768]),
}


def prepared(block, backend, shape):
    model = Model()
    model |= block(input="x", output="y")
    compiled = ml.compile(model, backend, shapes={"x": shape})
    params = compiled.randomize_params(seed=0)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    compiled.evaluate(params, {"x": x})
    return lambda: compiled.evaluate(params, {"x": x})


def main(runs):
    print("| what | native ms | C ms | C / native |\n|---|---|---|---|")
    for name, (make, shape) in CASES.items():
        calls = [prepared(make(), b, shape) for b in (ml.CpuBackend(threads=1), ml.CBackend())]
        best = [float("inf")] * 2
        for _ in range(runs):
            for at, call in enumerate(calls):
                start = time.perf_counter()
                call()
                best[at] = min(best[at], time.perf_counter() - start)
        native, c = (1e3 * seconds for seconds in best)
        size = "x".join(map(str, shape))
        print(f"| {name}, {size} | {native:.3g} | {c:.3g} | {c / native:.2f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
