"""Generated source for a device mesh runs without Mithril, on two ranks of `torchrun` and on two
devices of JAX."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).with_name("standalone_checks.py")
LAUNCHERS = {
    "torch": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    "jax": [],
}


@pytest.mark.parametrize("kind", LAUNCHERS)
def test_source_for_a_mesh_runs_without_mithril(kind, tmp_path):
    pytest.importorskip(kind)
    # One device for the comparison, and one more for the mesh.
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, str(CHECKS), kind, str(tmp_path)]
    subprocess.run(command, env={**os.environ, **flags}, check=True, timeout=300)
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, *LAUNCHERS[kind], "run.py"]
    subprocess.run(command, env=others, cwd=tmp_path, check=True, timeout=300)
