"""The output of the demo when it is not written to a terminal."""

import os
import subprocess
import sys


def test_tables_are_not_truncated_in_files(checkout):
    command = [sys.executable, "tools/demo/digits.py", "--backends", "numpy", "--steps", "3"]
    # Too few steps to learn anything, which the exit status reports.
    done = subprocess.run(
        command,
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "60"},
    )
    heads = "backend ┃ compile ms ┃ first step ms ┃ step ms ┃ first loss ┃ last loss ┃ accuracy"
    assert heads in done.stdout, done.stdout + done.stderr
    title = "One classifier of digits, trained from the same params on the same batches"
    assert title in done.stdout
    assert "…" not in done.stdout


def test_demo_reports_missing_frameworks(checkout, tmp_path):
    for name in ("torch", "jax"):
        (tmp_path / f"{name}.py").write_text(f'raise ImportError("no {name}")\n')
    done = subprocess.run(
        [sys.executable, "tools/demo/digits.py", "--steps", "3"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "200"},
    )
    told = "torch is left out: hint: pip install torch, or make demo BACKENDS=torch"
    assert told in done.stdout, done.stdout + done.stderr
