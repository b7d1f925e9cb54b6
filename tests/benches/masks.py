"""Attention with a mask, 12 heads of 64, 512 tokens: the kernel, its parts, and PyTorch's.

    python tests/benches/masks.py [--rounds 30] [--backend cpu]

prints milliseconds of a call of one thread, outputs alone and with the gradients of query, key and
value: the least of several calls, in turns. The parts are written out and not optimized.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import mithril as ml
from mithril.models import Add, MatrixMultiply, Model, ScaledDotProduct, Softmax, Transpose, Where

HEADS = [1, 12, 512, 64]
PAIRS, KEYS = [1, 1, 512, 512], [1, 1, 1, 512]
CASES: dict[str, tuple[list[int], type]] = {
    "none": ([], float),
    "bool of pairs, [1, 1, 512, 512]": (PAIRS, bool),
    "bool of keys, [1, 1, 1, 512]": (KEYS, bool),
    "float of pairs, [1, 1, 512, 512]": (PAIRS, float),
    "float of each head, [1, 12, 512, 512]": ([1, 12, 512, 512], float),
}


def whole(shape: list[int], _kind: type) -> Model:
    model = Model()
    mask = {"mask": "m"} if shape else {}
    model |= ScaledDotProduct()(query="q", key="k", value="v", **mask, output="output")
    return model


def parts(shape: list[int], kind: type) -> Model:
    model = Model()
    model |= Transpose((0, 1, 3, 2))(input="k", output="turned")
    model |= MatrixMultiply()("q", model.turned, output="products")
    scores = model.products * 0.125
    if shape and kind is bool:
        model |= Where()("m", scores, -float("inf"), output="masked")
        scores = model.masked
    elif shape:
        model |= Add()(scores, "m", output="masked")
        scores = model.masked
    model |= Softmax()(scores, output="weights")
    model |= MatrixMultiply()(model.weights, "v", output="output")
    return model


def compiled(model: Model, backend: Any, shape: list[int], kind: type, level: str) -> Any:
    shapes = dict.fromkeys("qkv", HEADS) | ({"m": shape} if shape else {})
    if shape:
        model.set_types({"m": ml.bool if kind is bool else ml.float32})
    options: dict[str, Any] = {"optimization_level": level, "trainable_keys": list("qkv")}
    return ml.compile(model, backend, shapes=shapes, **options)


def calls(backend: Any, shape: list[int], kind: type) -> list[list[Callable[[], Any]]]:
    """Of the kernel, its parts and PyTorch: outputs alone, and with gradients."""
    random = np.random.default_rng(0)
    params = {name: random.standard_normal(HEADS, np.float32) for name in "qkv"}
    seed = random.standard_normal(HEADS, np.float32)
    mask = random.standard_normal(shape, np.float32)
    mask = mask > 0 if kind is bool else mask
    given = {"m": mask} if shape else {}
    heads = [torch.tensor(value, requires_grad=True) for value in params.values()]
    other = torch.tensor(mask) if shape else None
    upstream = torch.tensor(seed)

    def forward() -> Any:
        with torch.no_grad():
            return torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=other)

    def step() -> Any:
        output = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=other)
        return output, torch.autograd.grad(output, heads, upstream)

    found = []
    for make, level in ((whole, "full"), (parts, "none")):
        model = compiled(make(shape, kind), backend, shape, kind, level)
        got = model.evaluate(params, given)["output"]
        np.testing.assert_allclose(got, forward(), atol=1e-5)
        train = partial(model.evaluate, params, given, output_gradients={"output": seed})
        found.append([partial(model.evaluate, params, given), train])
    return [*found, [forward, step]]


def least(functions: list[Callable[[], Any]], rounds: int) -> list[float]:
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for at, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[at] = min(best[at], time.perf_counter() - start)
    return [1e3 * seconds for seconds in best]


def main() -> None:
    """Prints a row for each mask."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--backend", choices=["cpu", "c"], default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    backend = ml.CBackend() if arguments.backend == "c" else ml.CpuBackend(threads=1)
    print("| mask | kernel | parts | torch | with gradients: kernel | parts | torch |")
    print("|---|---|---|---|---|---|---|")
    for name, (shape, kind) in CASES.items():
        columns = list(zip(*calls(backend, shape, kind), strict=True))
        times = [ms for functions in columns for ms in least(list(functions), arguments.rounds)]
        print(f"| {name} | {' | '.join(f'{ms:.3g}' for ms in times)} |", flush=True)


if __name__ == "__main__":
    main()
