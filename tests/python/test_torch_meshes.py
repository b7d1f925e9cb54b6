"""Device meshes of PyTorch. The checks (`torch_mesh_checks.py`, `torch_rank_checks.py`,
`torch_ring_checks.py`) run in processes of their own, as each has one set of ranks."""

import itertools
import math
import os
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
# The checks by the number of ranks that they start, or start last.
NAMES = {
    2: [
        "identity",
        "mistakes",
        "branches",
        "modes",
        "seeds",
        "optimizer",
        "overlap",
        "plans",
        "library",
    ],
    4: ["creation", "calls", "functions", "state", "collectives", "lookups", "files", "layouts"],
}
RINGS = ["block", "grouped", "gpt", "window", "alibi", "calls", "masks", "dtypes", "context"]
FAULTS = ["faults", "restarts", "groups", "ports", "memory"]


def run(*arguments, checks=CHECKS, launcher=(), **environment):
    """Runs checks, and returns what they print and their exit code."""
    return subprocess.run(
        [sys.executable, *launcher, str(checks), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=2400,
    )


def left(pids):
    """The processes that are still there after a while."""
    for _ in range(100):
        found = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if not found:
            break
        time.sleep(0.1)
    return found


def on_meshes(ranks):
    """Checks of models on meshes of so many ranks. A sample has one mesh of each model."""
    from torch_mesh_checks import MESHES, MODELS, ON_MESHES  # noqa: PLC0415

    cases = zip(ON_MESHES, itertools.product(range(len(MODELS)), range(len(MESHES))))
    sample = {at: at % len(MESHES) for at in range(len(MODELS))}
    return [
        name
        for name, (model, mesh) in cases
        if math.prod(MESHES[mesh]) == ranks and (levels.ALL or sample[model] == mesh)
    ]


@pytest.mark.every
@pytest.mark.parametrize("ranks", NAMES)
def test_meshes_of_torch(ranks):
    ran = run(*NAMES[ranks])
    assert ran.returncode == 0, ran.stderr


@pytest.mark.every
@pytest.mark.parametrize("name", FAULTS)
def test_ranks_fail_and_start_again(name):
    ran = run(name, checks=RANK_CHECKS)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.every
@pytest.mark.parametrize("ranks", [2, 4])
def test_models_are_equal_to_those_of_one_device(ranks):
    names = on_meshes(ranks)
    assert names
    ran = run(*names)
    assert ran.returncode == 0, ran.stderr


def test_attention_goes_round_a_ring():
    ran = run(*levels.half(RINGS, 0), checks=RING_CHECKS)
    assert ran.returncode == 0, ran.stderr


def test_every_check_is_run():
    import torch_mesh_checks  # noqa: PLC0415
    import torch_rank_checks  # noqa: PLC0415
    import torch_ring_checks  # noqa: PLC0415

    assert {*torch_mesh_checks.CHECKS} == {*NAMES[2], *NAMES[4]}
    assert [*torch_rank_checks.CHECKS] == [*FAULTS, "slow", "leaving", "launched"]
    assert [*torch_ring_checks.MODELS, *torch_ring_checks.CHECKS] == RINGS
    drawn = [*on_meshes(2), *on_meshes(4)]
    assert {name.split("@")[0] for name in drawn} == {*torch_mesh_checks.MODELS}
    if levels.ALL:
        assert {*drawn} == {*torch_mesh_checks.ON_MESHES}


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
    assert sorted(path.name for path in tmp_path.glob("*.right")) == ["0.right", "1.right"]
