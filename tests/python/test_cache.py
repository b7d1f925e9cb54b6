"""The cache of native code. Each test has its own folder and its own processes."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import has

pytestmark = pytest.mark.skipif(not has("cpu"), reason="built without native code")

PROGRAM = """
import numpy as np, mithril as ml
model = ml.Model()
model += ml.Linear(8)
model += ml.Relu()
compiled = ml.compile(model, ml.CpuBackend(), shapes={"input": [4, 4]}, inference=True)
params = {"linear.w": np.full((4, 8), 0.5, np.float32), "linear.b": np.ones(8, np.float32)}
found = compiled.evaluate(params, {"input": np.ones((4, 4), np.float32)})["output"]
assert (found == 3).all(), found
maps = open("/proc/self/maps").read()
line = next(line for line in compiled.report().splitlines() if "launches" in line)
print(line.split("(")[-1].split(",")[0], "libMLIR" in maps, *line[:-1].split("; ")[1:])
"""
ABSENT = "1 compiled True 1 not in the cache"


# Several kernels that all differ.
KERNELS = """
import numpy as np, mithril as ml
x = np.arange(28, dtype=np.float32).reshape(4, 7)
for number in range(1, 9):
    model = ml.Model()
    model |= ml.Buffer()(input="x", output="x_in")
    model |= ml.Buffer()(input=model.x_in * number - number, output="y")
    compiled = ml.compile(model, ml.CpuBackend(), shapes={"x": [4, 7]}, inference=True)
    assert (compiled.evaluate({}, {"x": x})["y"] == x * number - number).all(), number
    print(compiled.report())
"""


def start(folder, before="", program=PROGRAM, **environment):
    """Starts a program in a process. A variable that is `None` is removed from the environment."""
    environment = {**os.environ, "MITHRIL_CACHE": str(folder), **environment}
    environment = {name: value for name, value in environment.items() if value is not None}
    command = [sys.executable, "-c", before + program]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def result(process):
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return out.strip()


def test_a_warm_cache_needs_no_compiler(tmp_path):
    folder = tmp_path / "cache"
    assert result(start(folder)) == ABSENT
    assert folder.stat().st_mode & 0o777 == 0o700
    (entry,) = folder.iterdir()
    # The native library is not even searched for.
    assert result(start(folder, MITHRIL_NATIVE="/nowhere")) == "0 compiled False"
    assert [entry] == list(folder.iterdir())


def test_damaged_entries_are_compiled_again(tmp_path):
    result(start(tmp_path / "cache"))
    (entry,) = (tmp_path / "cache").iterdir()
    whole = entry.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (b"", whole[:10], whole[:-1], bytes(flipped), whole + b"."):
        entry.write_bytes(damaged)
        found = result(start(tmp_path / "cache"))
        assert found == "1 compiled True 1 damaged in the cache"
        assert entry.read_bytes() == whole


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "huge"])
def test_cache_ignores_entries_that_are_not_regular_files(tmp_path, kind):
    """Reading one would block forever, or use up all memory."""
    result(start(tmp_path / "cache"))
    (entry,) = (tmp_path / "cache").iterdir()
    whole = entry.read_bytes()
    entry.unlink()
    if kind == "fifo":
        os.mkfifo(entry)
    elif kind == "device":
        entry.symlink_to("/dev/zero")
    elif kind == "folder":
        entry.mkdir()
    else:
        with entry.open("wb") as file:
            file.truncate(1 << 40)
    assert result(start(tmp_path / "cache")) == "1 compiled True 1 damaged in the cache"
    if kind != "folder":
        assert entry.read_bytes() == whole


def test_processes_share_a_cache(tmp_path):
    running = [start(tmp_path / "cache") for _ in range(6)]
    assert {result(process) for process in running} <= {ABSENT, "0 compiled False"}
    (entry,) = (tmp_path / "cache").iterdir()
    assert entry.suffix == ".o"


def test_writers_may_be_killed_at_any_time(tmp_path):
    """Among 16 concurrent processes, 16 others are killed at ages of 0 to 1.5 seconds."""
    running = [start(tmp_path / "cache", program=KERNELS) for _ in range(16)]
    killed = []
    for age in range(16):
        killed.append(start(tmp_path / "cache", program=KERNELS))
        time.sleep(age / 10)
        killed[-1].kill()
    for process in running:
        result(process)
    for process in killed:
        process.communicate(timeout=120)
    assert any(process.returncode == -signal.SIGKILL for process in killed)
    found = result(start(tmp_path / "cache", program=KERNELS))
    assert re.findall(r"(\d+) compiled", found) == ["0"] * 8


def test_old_cache_entries_are_evicted(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    old = folder / "old.o"
    old.write_bytes(b"." * 100_000)
    os.utime(old, (1, 1))
    result(start(folder, MITHRIL_CACHE_LIMIT="50000"))
    assert not old.exists()
    assert len(list(folder.iterdir())) == 1


def test_limits_are_sizes(tmp_path):
    folder = tmp_path / "cache"
    assert result(start(folder, MITHRIL_CACHE_LIMIT="1.5 MiB")) == ABSENT
    why = "1 without a cache: MITHRIL_CACHE_LIMIT is not a size such as 2GB"
    for wrong in ["much", "-1", "2 GBit", "inf"]:
        assert result(start(folder, MITHRIL_CACHE_LIMIT=wrong)) == f"1 compiled True {why}"
    environment = {**os.environ, "MITHRIL_CACHE": str(folder)}
    for limit, said in [
        ("3 kb", "of 2.9 KiB"),
        ("2GB", "of 1907.3 MiB"),
        ("x", "nothing is cached"),
    ]:
        command = [Path(sys.executable).with_name("mithril"), "cache", "list"]
        environment["MITHRIL_CACHE_LIMIT"] = limit
        listed = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        assert said in listed.stdout


def test_folders_that_others_may_write_are_not_used(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    why = "1 without a cache: other users may write to its folder"
    assert result(start(folder)) == f"1 compiled True {why}"
    assert not list(folder.iterdir())
    assert result(start("")) == "1 compiled True 1 without a cache: MITHRIL_CACHE is empty"


# Root can read and write everything, so the process changes user after importing its modules.
ANOTHER = """
import inspect, linecache, logging, os, pathlib, tempfile
import mithril as ml
for backend in (ml.NumpyBackend(), ml.CpuBackend()):
    ml.compile(ml.Linear(2), backend, shapes={"input": [2, 2]})
if not os.geteuid():
    os.setgroups([])
    os.setegid(65534)
    os.seteuid(65534)
"""
NO_FOLDER = "1 compiled True 1 without a cache: its folder cannot be created"


@pytest.fixture
def another():
    """A folder that the other user can reach and write to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        own = Path(folder) / "own"
        own.mkdir(mode=0o700)
        if not os.geteuid():
            os.chown(own, 65534, 65534)
        yield own


def test_read_only_cache_folders_are_used(another):
    def run():
        return result(start(another, before=ANOTHER))

    another.chmod(0o500)
    assert run() == ABSENT
    assert not list(another.iterdir())
    another.chmod(0o700)
    assert run() == ABSENT
    another.chmod(0o500)
    (entry,) = another.iterdir()
    assert run() == "0 compiled False"
    entry.write_bytes(entry.read_bytes()[:-1])
    assert run() == "1 compiled True 1 damaged in the cache"


@pytest.mark.skipif(os.geteuid(), reason="a home of another user's is made by root")
def test_homes_of_other_users_are_not_written(another):
    """Measurements of the machine and compiled code must not be stored there."""
    environment = {"MITHRIL_CACHE": None, "MITHRIL_PROFILE": None, "XDG_CONFIG_HOME": None}
    home = another.parent / "closed"
    home.mkdir(mode=0o700)
    for named in (home, home / "within", another.parent):
        process = start(None, before=ANOTHER, HOME=str(named), **environment)
        assert result(process) == NO_FOLDER


def test_missing_native_library_is_reported(tmp_path):
    process = start(tmp_path, MITHRIL_NATIVE=str(Path(tmp_path) / "missing.so"))
    _, error = process.communicate(timeout=120)
    assert "BackendError: Native code cannot be generated" in error
    assert "LLVM 22" in error


INTERRUPTED = """
import os, pathlib, signal, threading, time
import numpy as np, mithril as ml
folder = pathlib.Path(os.environ["MITHRIL_CACHE"])
model = ml.Model()
for i in range(4 * os.cpu_count() + 8):
    model += ml.Linear(16 + i)
    model += ml.Gelu()
options = {"shapes": {"input": [4, 4]}, "inference": True}
compiled, numpy = (ml.compile(model, b(), **options) for b in (ml.CpuBackend, ml.NumpyBackend))
params, inputs = compiled.randomize_params(seed=0), {"input": np.ones((4, 4), np.float32)}
params = {name: 0.1 * param for name, param in params.items()}

def interrupt():
    while not folder.exists() or not list(folder.glob("*.o")):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    compiled.evaluate(params, inputs)
except KeyboardInterrupt:
    print("interrupted")
made = len(list(folder.glob("*.o")))
got = compiled.evaluate(params, inputs)["output"]
np.testing.assert_allclose(got, numpy.evaluate(params, inputs)["output"], rtol=1e-4, atol=1e-5)
line = next(line for line in compiled.report().splitlines() if "launches" in line)
print(made, line)
"""


def test_an_interrupt_ends_a_compilation(tmp_path):
    """Kernels compiled before the interrupt are kept, and the next call continues from there."""
    environment = {**os.environ, "MITHRIL_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    interrupted, line = done.stdout.splitlines()
    assert interrupted == "interrupted"
    made, compiled, found = map(
        int, re.search(r"^(\d+) .*\((\d+) compiled, (\d+) found", line).groups()
    )
    assert made == found > 0
    assert compiled > 0
