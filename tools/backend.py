"""Builds the wheel: maturin makes the package, and the commands go in as the programs they are."""

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import get_requires_for_build_editable, get_requires_for_build_wheel  # noqa: F401


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _commands()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _commands()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def _commands():
    """Builds the commands into the directory that `data` of [tool.maturin] names."""
    subprocess.run(
        ["cargo", "build", "--profile", "dist", "--package", "mithril-tools", "--bins"], check=True
    )
    scripts = Path("target/wheel/scripts")
    shutil.rmtree(scripts, ignore_errors=True)
    scripts.mkdir(parents=True)
    suffix = ".exe" if os.name == "nt" else ""
    for command in ["mithril", "mithril-opt"]:
        built = Path(os.environ.get("CARGO_TARGET_DIR", "target"), "dist", command + suffix)
        shutil.copy2(built, scripts)
