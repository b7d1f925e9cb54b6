"""Every operation of the table, as source for each framework, against the reference evaluator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import NATIVE

ROOT = Path(__file__).parents[2]
# The kinds of cases: see codegen/source/examples/differential/.
KINDS = ["forward", "corners", "gradients", "hard", "kinks", "models"]


@pytest.mark.parametrize("framework", ["jax", "torch", "numpy", "mlx", "tinygrad"])
@pytest.mark.parametrize("kind", KINDS)
def test_operations_agree_with_the_evaluator(framework, kind, tmp_path):
    # As `make test` builds it: for one package, crates would be built again with other features.
    command = ["cargo", "build", "--release", "--quiet", "--workspace", "--example", "differential"]
    command += [] if NATIVE.exists() else ["--exclude", "mithril-native"]
    subprocess.run(command, cwd=ROOT, check=True)
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    cases = tmp_path / "cases.json"
    with cases.open("w") as out:
        program = target / "release/examples/differential"
        subprocess.run([program, framework, kind], stdout=out, check=True)
    script = [sys.executable, Path(__file__).with_name("differential.py"), framework, kind, cases]
    # The records are of kernels that tinygrad optimized.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PARALLEL": "0", "NOOPT": "0"}
    run = subprocess.run(script, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stdout[-20000:] + run.stderr[-4000:]
