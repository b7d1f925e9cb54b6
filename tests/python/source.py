"""Runs source that `mithril-opt` generates."""

import subprocess
import sys
from pathlib import Path


def emitted(text, framework, passes=""):
    """The functions of the source generated from a module's text."""
    command = [Path(sys.executable).with_name("mithril-opt"), "-p", passes, "--emit", framework]
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    scope = {}
    exec(compile(run.stdout, f"{framework}.py", "exec"), scope)
    return scope
