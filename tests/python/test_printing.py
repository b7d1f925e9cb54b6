"""Commands whose standard output cannot be written, and inputs with two shapes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mithril.models import Divide, Linear, Model

FOLDER = Path(sys.executable).parent
# How to call each command on the file of a model, and its exit status if the disk is full.
COMMANDS = {
    "cache": ("mithril cache list", 1),
    "summary": ("mithril summary {model}", 1),
    "cost": ("mithril cost {model} --shape x=n,4", 1),
    "explain": ("mithril explain {model} --shape x=n,4", 1),
    "compile": ("mithril compile {model} --shape x=n,4 -o -", 1),
    "diff": ("mithril diff {model} --shape x=n,4 --backends numpy,cpu", 2),
    "passes": ("mithril-opt --list-passes", 1),
}


@pytest.fixture
def file(tmp_path):
    model = Model()
    model |= Linear(3)(input="x", output="y")
    model.save(tmp_path / "model.json")
    return tmp_path / "model.json"


def run(command, file, out):
    program, *arguments = command.format(model=file).split()
    return subprocess.run(
        [FOLDER / program, *arguments], stdout=out, stderr=subprocess.PIPE, text=True, check=False
    )


def unread(command, file):
    """Runs the command with a pipe as standard output that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return run(command, file, writing)
    finally:
        os.close(writing)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_exit_silently_on_a_closed_pipe(name, file):
    done = unread(COMMANDS[name][0], file)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is full")
def test_commands_report_a_full_disk(name, file):
    command, status = COMMANDS[name]
    with open("/dev/full", "w") as full:
        done = run(command, file, full)
    assert done.returncode == status
    assert "No space left on device" in done.stderr
    assert "panicked" not in done.stderr and "Traceback" not in done.stderr


def test_exit_status_reports_differences_on_a_closed_pipe(tmp_path):
    """The exit status says so, as it does when the output is read."""
    model = Model()
    model |= Divide()(numerator="x", denominator="x", output="y")
    model.save(tmp_path / "model.json")
    np.savez(tmp_path / "zeros.npz", x=np.zeros(4))
    options = f"--shape x=4 --backends cpu --math fast --inputs {tmp_path}/zeros.npz"
    done = unread(f"mithril diff {{model}} {options}", tmp_path / "model.json")
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("name", ["summary", "cost", "explain", "compile", "diff"])
def test_an_input_has_one_shape(name, file):
    output = " -o -" if name == "compile" else ""
    done = run(f"mithril {name} {{model}} --shape x=n,4 --shape x=5,?{output}", file, None)
    assert done.returncode == COMMANDS[name][1]
    told = (
        "error: `--shape` names `x` twice\n  got: x=n,4 and x=5,?\n  expected: one shape for each"
    )
    assert told in done.stderr
