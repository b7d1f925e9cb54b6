"""Builds the wheel. Maturin makes the package; the command-line programs are added as binaries, and
the code generator if LLVM is installed."""

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import get_requires_for_build_editable, get_requires_for_build_wheel  # noqa: F401

LLVM = Path("/usr/lib/llvm-22/bin/llvm-config")
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", "target"), "dist")
# The directory that the `data` key of [tool.maturin] names.
DATA = Path("target/wheel")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _fill()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _fill()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def _fill():
    shutil.rmtree(DATA, ignore_errors=True)
    _build("--package", "mithril-tools", "--bins")
    suffix = ".exe" if os.name == "nt" else ""
    for command in ["mithril", "mithril-opt"]:
        _place(command + suffix, "scripts", command + suffix)
    if LLVM.exists():
        _build("--package", "mithril-native")
        # One copy in the package, and one where the commands search.
        _place("libmithril_native.so", "platlib/mithril", "_native.so")
        _place("libmithril_native.so", "data/lib", "libmithril_native.so")


def _build(*what):
    subprocess.run(["cargo", "build", "--profile", "dist", *what], check=True)


def _place(built, folder, name):
    (DATA / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy2(BUILT / built, DATA / folder / name)
