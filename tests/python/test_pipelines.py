"""Pipelines: the plan of stages, their mistakes, and models in stages compared with one device.
`pipeline_checks.py` (PyTorch) and `jax_pipeline_checks.py` run in processes of their own, as each
has one set of ranks or devices."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import levels
import pytest

import mithril as ml
from mithril.cuts import cut_points
from mithril.models import Linear
from mithril.stage_plan import Stage, Stages, held_microbatches

CHECKS = Path(__file__).with_name("pipeline_checks.py")
JAX_CHECKS = Path(__file__).with_name("jax_pipeline_checks.py")
MODELS = ["mlp", "gpt", "tied", "t5"]
NAMES = ["training", "sums", "accumulation", "places", "values", "mistakes", "faults"]
JAX_NAMES = [*NAMES[:-1], "traces"]


def run(*arguments, launcher=(), **environment):
    pytest.importorskip("torch")
    command = [sys.executable, *launcher, str(CHECKS), *arguments]
    own = {**os.environ, **environment}
    return subprocess.run(
        command, env=own, capture_output=True, text=True, check=False, timeout=2400
    )


def test_pipelines_of_torch():
    ran = run(*NAMES)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.every
@pytest.mark.parametrize("devices", [2, 4])
def test_stages_are_equal_to_one_device(devices):
    ran = run(*(f"{name}@{devices}" for name in levels.half(MODELS, devices // 2)))
    assert ran.returncode == 0, ran.stderr


def test_torchrun_starts_the_ranks_of_stages(tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ran = run("launched", launcher=launcher, FOLDER=str(tmp_path))
    assert ran.returncode == 0, ran.stderr


def jax_process(*names, devices, **environment):
    pytest.importorskip("jax")
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", **environment}
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(JAX_CHECKS), *names],
        env={**os.environ, **flags},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.every
@pytest.mark.parametrize("names", [JAX_NAMES, levels.half(MODELS, 0)], ids=["calls", "models"])
def test_pipelines_of_jax(names):
    process = jax_process(*names, devices=4)
    errors = process.communicate(timeout=1800)[1]
    assert process.returncode == 0, errors


@pytest.mark.every
def test_processes_of_jax_have_stages(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    own = {"FOLDER": str(tmp_path)}
    started = [
        jax_process("processes", devices=2, PROCESS=f"{port} 2 {at}", **own) for at in range(2)
    ]
    errors = [process.communicate(timeout=2400)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors)


def test_every_check_is_run():
    pytest.importorskip("torch")
    import pipeline_checks  # noqa: PLC0415

    assert [*pipeline_checks.CHECKS] == [*NAMES, "launched"]
    assert [*pipeline_checks.DRAWN] == MODELS


def test_every_check_of_jax_is_run():
    pytest.importorskip("jax")
    import jax_pipeline_checks  # noqa: PLC0415

    assert [*jax_pipeline_checks.CHECKS] == [*JAX_NAMES, *MODELS, "processes"]


def test_cuts_balance_stages():
    assert cut_points([1, 1, 1, 1], 2) == [0, 2]
    assert cut_points([5, 1, 1, 1, 1], 2) == [0, 1]
    assert cut_points([1, 1, 1, 1, 5], 2) == [0, 4]
    # Of cuts with the same largest stage, the other stages are equal.
    assert cut_points([4, 1, 1, 1, 1], 3) == [0, 1, 3]
    assert cut_points([0, 0, 0], 3) == [0, 1, 2]


@pytest.mark.parametrize(
    ("schedule", "chunks", "microbatches", "held"),
    [
        ("gpipe", 1, 8, [8, 8, 8, 8]),
        ("1f1b", 1, 8, [4, 3, 2, 1]),
        ("1f1b", 1, 4, [4, 3, 2, 1]),
        ("zero-bubble", 1, 8, [4, 4, 4, 4]),
        ("interleaved", 1, 8, [7, 5, 3, 1]),
    ],
)
def test_microbatches_that_a_stage_keeps(schedule, chunks, microbatches, held):
    assert held_microbatches(schedule, 4, chunks, microbatches) == held


def test_the_order_of_pytorch_keeps_as_many_microbatches():
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    for name, chunks, count in (("Interleaved1F1B", 2, 8), ("InterleavedZeroBubble", 2, 4)):
        ranks = 2
        made = getattr(schedules, f"Schedule{name}").__new__(getattr(schedules, f"Schedule{name}"))
        made.pp_group_size, made.n_local_stages, made._n_microbatches = ranks, chunks, count
        made.microbatches_per_round = count // max(1, count // ranks)
        found = [0] * (ranks * chunks)
        zero = "Zero" in name
        for rank in range(ranks):
            now = [0] * (ranks * chunks)
            for action in made._calculate_single_rank_operations(rank):
                if action is None:
                    continue
                if action.computation_type.value == "F":
                    now[action.stage_index] += 1
                elif action.computation_type.value == ("W" if zero else "B"):
                    now[action.stage_index] -= 1
                found = [max(pair) for pair in zip(found, now)]
        own = "zero-bubble" if zero else "interleaved"
        assert held_microbatches(own, ranks, chunks, count) == found


def plan(schedule, count, *, ranks=4, microbatches=8, training=True):
    stage = Stage(0, ("h.0",), 100, 40, 0, 80, 0.5)
    stages = tuple(Stage(at % ranks, stage.blocks, 100, 40, 16, 80, 0.5) for at in range(count))
    own = ml.Pipeline(count, microbatches, schedule)
    return Stages(own, stages, ranks, microbatches, 1, training, 0.25, {})


def test_bubbles_and_times():
    assert plan("gpipe", 4).bubble == plan("1f1b", 4).bubble == 3 / 11
    assert plan("interleaved", 8).bubble == 3 / 19
    assert plan("zero-bubble", 4).bubble == 3 / 27
    assert plan("zero-bubble", 4, training=False).bubble == 3 / 11
    own = plan("1f1b", 4)
    assert own.busy == 4
    assert own.step == pytest.approx(4 * 11 / 8 + 0.25)
    assert str(own).splitlines()[:3] == [
        "4 stages on 4 ranks of `stage`, 8 microbatches, schedule `1f1b`",
        "27.3% bubble, 5.75 s a step of cpu-gloo (4 s compute, 250 ms transfer)",
        "stage  rank  blocks  arithmetic  params  sent  held    time",
    ]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"schedule": "gpip"}, ["there is no schedule `gpip`", "`1f1b`", "did you mean `gpipe`?"]),
        ({"reduction": "max"}, ["there is no reduction `max`", "expected: `mean`, `sum`"]),
        ({"stages": 0}, ["`stages` of a pipeline is not a number of stages", "got: 0"]),
        ({"microbatches": 1.5}, ["`microbatches` of a pipeline", "got: 1.5"]),
    ],
)
def test_wrong_pipelines(options, parts):
    with pytest.raises(ml.UsageError) as raised:
        ml.Pipeline(**{"stages": 2, **options})
    for part in parts:
        assert part in str(raised.value)


def test_backends_without_pipelines():
    with pytest.raises(ml.BackendError, match="NumpyBackend does not run pipelines") as raised:
        ml.compile(Linear(2), ml.NumpyBackend(), stages=2)
    for name in ("ml.TorchBackend(", "ml.JaxBackend("):
        assert f"{name}device_mesh={{'stage': 2}})" in str(raised.value)
    with pytest.raises(ml.UsageError, match="`stages` is not a pipeline\n  got: '2'"):
        ml.compile(Linear(2), ml.NumpyBackend(), stages="2")
    pytest.importorskip("torch")
    with pytest.raises(ml.UsageError, match=r"ml.TorchBackend\(device_mesh={'stage': 2}\)"):
        ml.compile(Linear(2), ml.TorchBackend(), stages=2)
    assert ml.compile(Linear(2), ml.TorchBackend()).stages is None


def test_jax_needs_a_mesh_for_stages():
    pytest.importorskip("jax")
    with pytest.raises(ml.UsageError, match=r"ml.JaxBackend\(device_mesh={'stage': 2}\)"):
        ml.compile(Linear(2), ml.JaxBackend(), stages=2)
