"""The installed package: its version and types."""

import re
import subprocess
import sys
from pathlib import Path

import mithril


def run(checkout: Path, *module: str) -> None:
    command = [sys.executable, "-m", *module]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_version(checkout):
    manifest = (checkout / "Cargo.toml").read_text()
    assert f'version = "{mithril.__version__}"' in manifest
    assert re.fullmatch(r"\d+\.\d+\.\d+", mithril.__version__)


def test_commands_print_the_same_version(checkout):
    for command in ["mithril", "mithril-opt"]:
        said = subprocess.check_output([checkout / ".venv/bin" / command, "--version"], text=True)
        assert said.splitlines()[0] == f"{command} {mithril.__version__}"


def test_source_is_printed(checkout, tmp_path):
    model = mithril.Model()
    model += mithril.Linear(3)(input="x", output="y")
    path = tmp_path / "model.json"
    model.save(path)
    for target, line in [("torch", "def forward(params, inputs):"), ("c", "#include <stdint.h>")]:
        command = [checkout / ".venv/bin/mithril", "compile", path, "--shape", "x=2,4"]
        printed = subprocess.check_output([*command, "-t", target, "-o", "-"], text=True)
        assert line in printed.splitlines()


def test_stubs_describe_the_extension(checkout):
    options = ["--mypy-config-file", "pyproject.toml", "--allowlist", "tests/python/stubtest.txt"]
    run(checkout, "mypy.stubtest", *options, "mithril._core")


def test_types_are_as_annotated(checkout):
    run(checkout, "mypy")
