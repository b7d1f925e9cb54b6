"""Installs a wheel into a temporary folder and runs a model from it.

    python tools/smoke.py dist/mithril-….whl

The model runs as NumPy source and, if LLVM is installed, as native code. A wheel that lacks native
code then fails.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

LLVM = Path("/usr/lib/llvm-22/bin/llvm-config")
PROGRAM = """
import sys

import numpy as np

import mithril as ml

assert ml.__file__.startswith(sys.argv[1]), ml.__file__
model = ml.Model()
model += ml.Linear(3)(input="x")
model += ml.Relu()(output="y")
model = ml.Model.from_json(model.to_json())
x = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
ones = np.ones((2, 3), "float32")
kinds = [ml.NumpyBackend, *([ml.CpuBackend] if sys.argv[2] == "native" else [])]
results = []
for kind in kinds:
    compiled = ml.compile(model, kind(), shapes={"x": ["n", 4]})
    params = compiled.randomize_params(seed=1)
    outputs, gradients = compiled.evaluate(params, {"x": x}, output_gradients=ones)
    results.append([outputs["y"], *gradients.values()])
    print(f"{kind.__name__}: runs")
for got, expected in zip(results[-1], results[0]):
    np.testing.assert_allclose(got, expected, rtol=1e-6)
"""


def main(wheel: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        subprocess.run([*install, folder, wheel], check=True)
        version = subprocess.check_output([f"{folder}/bin/mithril", "--version"], text=True)
        print(version, end="")
        # The environment has the package's dependencies; the installed wheel has precedence.
        environment = {**os.environ, "PYTHONPATH": folder, "MITHRIL_CACHE": f"{folder}/cache"}
        command = [sys.executable, "-c", PROGRAM, folder, "native" if LLVM.exists() else "source"]
        subprocess.run(command, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
