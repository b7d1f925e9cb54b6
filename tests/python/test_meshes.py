"""Device meshes: creation of divided arrays, mistakes, and models compared with one device. JAX has
one device in this process, so `mesh_checks.py` runs in processes with 4."""

import inspect
import os
import socket
import subprocess
import sys
from pathlib import Path

import levels
import pytest
from conftest import MAKERS, has

import mithril as ml
from mithril import backends
from mithril.backends import arrays, meshes

CHECKS = Path(__file__).with_name("mesh_checks.py")
CALLS = ["creation", "identity", "mistakes", "calls", "state", "optimizer", "collectives", "rings"]
ATTENTIONS = ["attentions", "masks", "images", "files", "layouts", "plans", "library"]
MODELS = ["mlp", "block", "gpt", "resnet", "recurrent", "embeddings", "t5"]
WITHOUT = [kind for kind in MAKERS if has(kind) and MAKERS[kind] not in meshes.BACKENDS]


@pytest.mark.every
@pytest.mark.parametrize(
    "names", [CALLS, ATTENTIONS, MODELS], ids=["calls", "attentions", "models"]
)
def test_meshes_of_jax(names):
    pytest.importorskip("jax")
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-W", "error", str(CHECKS), *names]
    ran = subprocess.run(
        command, env={**os.environ, **flags}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_every_check_is_run():
    pytest.importorskip("jax")
    import mesh_checks  # noqa: PLC0415

    assert [*mesh_checks.CHECKS] == [*CALLS, *ATTENTIONS, *MODELS, "processes"]


@pytest.mark.every
@pytest.mark.parametrize("count", [2, 4] if levels.ALL else [2])
def test_processes_of_jax(count, tmp_path):
    pytest.importorskip("jax")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={4 // count}"}
    started = [
        subprocess.Popen(
            [sys.executable, str(CHECKS), "processes"],
            env={**os.environ, **flags, "PROCESS": f"{port} {count} {own}", "FOLDER": tmp_path},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for own in range(count)
    ]
    errors = [process.communicate(timeout=600)[1] for process in started]
    assert [process.returncode for process in started] == [0] * count, "\n".join(errors)


def test_every_function_that_creates_arrays_takes_a_place():
    created = "array full zeros ones full_like zeros_like ones_like arange linspace eye"
    for name in f"{created} rand randn randint shard".split():
        keywords = inspect.signature(getattr(arrays.Arrays, name)).parameters
        for keyword in ("device_mesh", "tensor_split"):
            assert keywords[keyword].kind is inspect.Parameter.KEYWORD_ONLY
            assert keywords[keyword].default is None


def test_backends_with_meshes_are_named():
    classes = [getattr(backends, name) for name in MAKERS.values()]
    assert tuple(own.__name__ for own in classes if own.has_meshes) == meshes.BACKENDS


@pytest.mark.parametrize("kind", WITHOUT)
def test_backends_without_meshes_say_which_have_them(kind):
    make = getattr(ml, MAKERS[kind])
    backend = make()
    hint = " and ".join(f"`ml.{name}`" for name in meshes.BACKENDS)
    for call, got in (
        (lambda: make(device_mesh=(2, 1)), "device_mesh=(2, 1)"),
        (lambda: backend.ones(4, device_mesh=(2,)), "device_mesh=(2,)"),
        (lambda: backend.randn(4, tensor_split=(0,)), "tensor_split=(0,)"),
        (lambda: backend.shard(backend.ones(4)), "`shard`"),
    ):
        with pytest.raises(ml.BackendError) as error:
            call()
        assert str(error.value).splitlines()[:3] == [
            f"{MAKERS[kind]} computes on one device",
            f"  got: {got}",
            f"  hint: device meshes are for {hint}",
        ]
    assert backend.mesh is backend.device_mesh is None


def test_more_devices_than_jax_has():
    jax = pytest.importorskip("jax")
    count = len(jax.devices()) + 1
    with pytest.raises(ml.BackendError, match="JAX has fewer devices than the mesh") as error:
        ml.JaxBackend(device_mesh={"data": count})
    assert f"device_count={count}`" in str(error.value)
