"""Every operation of the table, as source on each framework, against the reference evaluator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES_PER_OPERATION = "8"


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_operations_agree_with_the_evaluator(framework, tmp_path):
    command = ["cargo", "run", "--release", "--quiet", "--package", "mithril-source"]
    command += ["--example", "differential", "--", framework, CASES_PER_OPERATION]
    cases = tmp_path / "cases.json"
    with cases.open("w") as out:
        subprocess.run(command, cwd=ROOT, stdout=out, check=True)
    script = [sys.executable, Path(__file__).with_name("differential.py"), framework, cases]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(script, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stdout[-20000:] + run.stderr[-4000:]
