"""How long the first output of a model takes by the tier of native code, in milliseconds: from
arrays and a model that is composed, with nothing compiled before.

.venv/bin/python tests/benches/tiers.py [RUNS]

Each run is a process of its own with an empty cache; the tiers take turns. The median and the least
of the runs are shown, and of the time the part that passed before the kernels could run.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import compose
import numpy as np

import mithril as ml
from mithril.models import Gelu, Model

TIERS = ("llvm", "auto")


def elementwise() -> Model:
    """`gelu(x * a + b) * c`."""
    model = Model()
    x, a, b, c = (ml.Buffer()(input=name, output=f"{name}_in") for name in "xabc")
    for block in (x, a, b, c):
        model |= block
    sum_ = model.x_in * model.a_in + model.b_in
    model |= Gelu(approximate=True)(input=sum_, output="u")
    model |= ml.Multiply()(left="u", right=model.c_in, output="y")
    return model


def cases() -> dict[str, tuple[Model, dict[str, list[int]]]]:
    """Models, and the shapes of their inputs."""
    compose.TOKENS = 128
    shapes = {name: [128, 768] for name in "xabc"}
    return {
        "elementwise": (elementwise(), shapes),
        "layer": (compose.Layer(), {"input": [1, 128, 768]}),
        "gpt2": (compose.gpt2(12), {"input": [1, 128]}),
        "gpt2 bound": (compose.gpt2(12), {"input": [1, 128]}),
    }


def once(case: str, tier: str) -> None:
    """Prints the milliseconds until the first output, and until there was code for it."""
    model, shapes = cases()[case]
    start = time.perf_counter()
    compiled = ml.compile(model, ml.CpuBackend(tier=tier), shapes=shapes, inference=True)
    compiling = time.perf_counter() - start
    params = compiled.randomize_params(seed=0)
    dtype = np.int64 if case.startswith("gpt2") else np.float32
    inputs = {name: np.ones(shape, dtype) for name, shape in shapes.items()}
    start = time.perf_counter()
    if case.endswith("bound"):
        compiled, params = compiled.bind(params), {}
    compiled.evaluate(params, inputs)
    total = compiling + time.perf_counter() - start
    made = re.search(r"found, ([\d.]+) ms", compiled.report())
    print(total * 1e3, made[1] if made else "nan")


def measured(case: str, tier: str) -> tuple[float, float]:
    """What a process of its own prints."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MITHRIL_CACHE": folder}
        command = [sys.executable, __file__, case, tier]
        output = subprocess.run(command, env=environment, check=True, capture_output=True)
    total, made = output.stdout.split()
    return float(total), float(made)


def main(runs: int) -> None:
    for case in cases():
        found: dict[str, list[tuple[float, float]]] = {tier: [] for tier in TIERS}
        for _ in range(runs):
            for tier in TIERS:
                found[tier].append(measured(case, tier))
        for tier, times in found.items():
            totals, made = zip(*times, strict=True)
            middle, least = statistics.median(totals), min(totals)
            print(
                f"{case:12} {tier:5} first output {middle:8.2f} (least {least:8.2f}), "
                f"of it code {statistics.median(made):8.2f} (least {min(made):8.2f})"
            )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        once(sys.argv[1], sys.argv[2])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
