"""Device meshes of PyTorch. The checks (`torch_mesh_checks.py`, `torch_rank_checks.py`,
`torch_ring_checks.py`) run in processes of their own, as each has one set of ranks."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import levels
import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")

CHECKS = Path(__file__).with_name("torch_mesh_checks.py")
RANK_CHECKS = CHECKS.with_name("torch_rank_checks.py")
RING_CHECKS = CHECKS.with_name("torch_ring_checks.py")
NAMES = [
    "creation",
    "identity",
    "mistakes",
    "calls",
    "functions",
    "branches",
    "modes",
    "seeds",
    "optimizer",
    "state",
    "overlap",
    "collectives",
    "files",
    "layouts",
    "plans",
    "library",
]
RINGS = ["block", "grouped", "gpt", "calls", "dtypes", "context"]
FAULTS = ["faults", "restarts", "ports", "memory"]
MODELS = ["mlp", "block", "gpt", "resnet", "recurrent", "embeddings", "t5"]
MESHES = ["2", "4", "2x2", "1x4", "2x1x2"]


def run(*arguments, checks=CHECKS, launcher=(), **environment):
    """Runs checks, and returns what they print and their exit code."""
    return subprocess.run(
        [sys.executable, *launcher, str(checks), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def left(pids):
    """The processes that are still there after a while."""
    for _ in range(100):
        found = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if not found:
            break
        time.sleep(0.1)
    return found


@pytest.mark.every
@pytest.mark.parametrize("name", NAMES)
def test_meshes_of_torch(name):
    ran = run(name)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.every
@pytest.mark.parametrize("name", FAULTS)
def test_ranks_fail_and_start_again(name):
    ran = run(name, checks=RANK_CHECKS)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.every
@pytest.mark.parametrize("name", MODELS)
def test_models_are_equal_to_those_of_one_device(name):
    # A sample has one mesh of each model, and three after each other of the first one.
    at = (MODELS.index(name) + 2) % len(MESHES)
    some = MESHES if levels.ALL else MESHES[:3] if name == MODELS[0] else [MESHES[at]]
    ran = run(name, *some)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.every
@pytest.mark.parametrize("name", RINGS)
def test_attention_goes_round_a_ring(name):
    ran = run(name, checks=RING_CHECKS)
    assert ran.returncode == 0, ran.stderr


def test_every_check_is_run():
    import mesh_models  # noqa: PLC0415
    import torch_mesh_checks  # noqa: PLC0415
    import torch_rank_checks  # noqa: PLC0415
    import torch_ring_checks  # noqa: PLC0415

    assert [*mesh_models.MODELS] == MODELS
    assert [*torch_mesh_checks.CHECKS] == NAMES
    assert [*torch_rank_checks.CHECKS] == [*FAULTS, "slow", "leaving", "launched"]
    assert [*torch_ring_checks.MODELS, *torch_ring_checks.CHECKS] == RINGS
    sizes = [tuple(map(int, mesh.split("x"))) for mesh in MESHES]
    assert sizes == mesh_models.MESHES


def test_buckets_end_once_they_are_full(monkeypatch):
    import torch  # noqa: PLC0415

    from mithril.backends import torch_buckets  # noqa: PLC0415

    class Gradient:
        dtype = torch.float32

        def __init__(self, size):
            self.part = torch.empty(size)

        def to_local(self):
            return self.part

    found = []
    monkeypatch.setattr(torch_buckets, "_summed", lambda *given: (0,))
    monkeypatch.setattr(torch_buckets, "_Sum", lambda bucket, axes: found.append([*bucket]))
    large = torch_buckets.BYTES // 4 * 3 // 5
    sizes = {"a": large, "b": large, "c": 8, "d": 2, "e": large, "f": large, "g": 3}
    buckets = torch_buckets.Buckets(dict.fromkeys(sizes))
    for name, size in sizes.items():
        buckets.add(name, Gradient(size))
    assert found == [["a", "b"], ["c", "d", "e", "f"]]
    assert [list(own) for own in buckets._open.values()] == [["g"]]


def test_slow_ranks_are_an_error_after_the_timeout():
    ran = run("slow", checks=RANK_CHECKS, MITHRIL_MESH_TIMEOUT="10")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(("how", "code"), [("end", 0), ("raise", 1), ("kill", -9)])
def test_ranks_end_with_the_first(how, code):
    ran = run("leaving", checks=RANK_CHECKS, LEAVE=how)
    assert ran.returncode == code, ran.stderr
    *pids, folder = ran.stdout.split()
    assert len(pids) == 1
    assert left(pids) == []
    assert not Path(folder).exists()


def test_torchrun_starts_the_ranks(tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ran = run(
        "launched", checks=RANK_CHECKS, launcher=launcher, OMP_NUM_THREADS="1", FOLDER=str(tmp_path)
    )
    assert ran.returncode == 0, ran.stderr
    assert sorted(re.findall("rank (.) is right", ran.stdout)) == ["0", "1"]
