"""The linkers and C compilers that make libraries: which are chosen, and how to interrupt them."""

import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from comparing import chain, random
from conftest import has
from exported import export, near

import mithril as ml
from mithril.models import Linear, Relu

pytestmark = pytest.mark.skipif(not has("cpu"), reason="built without native code")
# The installed linkers. One of them suffices.
LINKERS = [name for name in ("cc", "ld", "ld.lld", "ld.lld-22") if shutil.which(name)]
PROGRAM = Path(__file__).parents[1] / "rust" / "layer.rs"


def alone(folder, command):
    """A folder with one command, for use as the search path."""
    folder.mkdir()
    (folder / command).symlink_to(shutil.which(command))
    return str(folder)


@pytest.mark.parametrize("linker", LINKERS)
def test_export_works_with_each_linker(linker, tmp_path, monkeypatch):
    compiled = ml.compile(chain(Linear(5), Relu()), shapes={"input": [3, 4]}, inference=True)
    params, x = compiled.randomize_params(seed=0), random(3, 4)
    path = alone(tmp_path / "bin", linker)
    if linker == "cc":
        # A compiler searches the path for its linker.
        path += os.pathsep + os.environ["PATH"]
    with monkeypatch.context() as patched:
        patched.setenv("PATH", path)
        library = export(compiled, tmp_path, name="net")
    status, results = library.call(data={"input": x}, param=params)
    assert status == 0
    want = np.maximum(x @ params["linear.w"] + params["linear.b"], 0)
    near(results["output", "output"], want)


def test_without_a_linker_the_command_is_told(tmp_path, monkeypatch):
    """The message has the command quoted for a shell, even if folders' names have spaces."""
    compiled = ml.compile(chain(Linear(5)), shapes={"input": [3, 4]}, inference=True)
    folder = tmp_path / "it's a folder"
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path))
        with pytest.raises(ml.MithrilError, match="there is no linker") as raised:
            compiled.export(folder, name="net")
    assert [path.name for path in folder.iterdir()] == ["libnet.so.objects"]
    command = str(raised.value).split("`")[1]
    assert command.startswith("cc ")
    subprocess.run(command, shell=True, check=True)
    assert (folder / "libnet.so").exists()


@pytest.mark.skipif(shutil.which("rustc") is None, reason="there is no Rust")
def test_a_program_of_rust(tmp_path):
    model = chain(Linear(3), Relu())
    compiled = ml.compile(model, shapes={"input": [1, 2]}, inference=True)
    library = export(compiled, tmp_path, name="layer").paths["library"]
    program, folder = tmp_path / "main", library.parent
    command = ["rustc", "--edition", "2024", "-O", PROGRAM, "-o", program, f"-L{folder}"]
    subprocess.run([*command, f"-Clink-arg=-Wl,-rpath,{folder}"], check=True)
    ran = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60)
    got = [eval(line) for line in ran.stdout.splitlines()]
    w, b = np.float32([[1, -2, 3], [-4, 5, -6]]), np.float32([0.5, 0.25, 0.125])
    x = np.float32([[row, 1] for row in range(4)])
    np.testing.assert_array_equal(np.float32(got), np.maximum(x @ w + b, 0))


def slow_compiler(folder):
    """A compiler that prints its version at once, but never finishes compiling."""
    folder.mkdir()
    compiler = folder / "cc"
    lines = [
        "#!/bin/sh",
        '[ "$1" = --version ] && exit',
        'touch "$TMPDIR/part"',
        f"touch {folder}/begun",
        "sleep 60",
    ]
    compiler.write_text("\n".join(lines))
    compiler.chmod(0o755)
    return folder


def interrupted(begun, work):
    """Interrupts `work` when the file exists, and returns how long it continues, in seconds."""
    at = []

    def interrupt():
        while not begun.exists():
            time.sleep(0.01)
        at.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        work()
    end = time.perf_counter()
    thread.join()
    return end - at[0]


def test_an_interrupt_ends_an_export(tmp_path, monkeypatch):
    compiled = ml.compile(chain(Linear(2)), shapes={"input": [1, 2]}, inference=True)
    compiled.export(tmp_path / "out", name="net")
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    compiler = slow_compiler(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{compiler}{os.pathsep}{os.environ['PATH']}")
    params = {"linear.w": random(2, 2), "linear.b": random(2)}
    took = interrupted(
        compiler / "begun", lambda: compiled.export(tmp_path / "out", name="net", params=params)
    )
    assert took < 5
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_an_interrupt_ends_a_compiler_of_c(tmp_path, monkeypatch):
    compiler = slow_compiler(tmp_path / "bin")
    (tmp_path / "tmp").mkdir()
    for name, value in {
        "CC": compiler / "cc",
        "TMPDIR": tmp_path / "tmp",
        "MITHRIL_CACHE": "",
    }.items():
        monkeypatch.setenv(name, str(value))
    compiled = ml.compile(chain(Linear(2)), ml.CBackend(), shapes={"input": [1, 2]}, inference=True)
    params, inputs = compiled.randomize_params(seed=0), {"input": random(1, 2)}
    took = interrupted(compiler / "begun", lambda: compiled.evaluate(params, inputs))
    assert took < 5
    assert not list((tmp_path / "tmp").iterdir())
    monkeypatch.delenv("CC")
    want = inputs["input"] @ params["linear.w"] + params["linear.b"]
    near(compiled.evaluate(params, inputs)["output"], want)
