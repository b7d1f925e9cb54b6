"""Checks of the ranks that a PyTorch mesh starts: that they fail, end and start again as they
should. `test_torch_meshes.py` runs them in processes of their own, as `torch_mesh_checks.py`."""

import multiprocessing
import os
import signal
import socket
import time
from pathlib import Path

import numpy as np
import torch
from check_runs import EVERY, run_checks
from mesh_models import close, mlp, place
from rank_functions import interrupt, refuse, side_by_side, sums_of
from torch.distributed.tensor import DTensor
from torch_mesh_checks import wrong

import mithril as ml
from mithril.backends.torch_shared import SMALL


def ended(pids):
    """Waits until these processes are gone."""
    for _ in range(100):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.1)
    return False


def workers(backend):
    return [worker.pid for worker in backend.ranks._workers]


def check_faults():
    # A rank that is killed, before a call and within one.
    backend = ml.TorchBackend(device_mesh=(3,))
    x = backend.ones(6, tensor_split=(0,))
    pids, folder = workers(backend), Path(backend.ranks._folder.name)
    os.kill(pids[1], signal.SIGKILL)
    time.sleep(0.5)
    wrong(ml.BackendError, lambda: x.sum().item(), "rank 2: the process was killed by signal 9")
    wrong(ml.BackendError, lambda: x + 1, "the ranks of this device mesh have ended", "rank 2")
    assert ended(pids) and not folder.exists()
    backend = ml.TorchBackend(device_mesh=(2,))
    x = backend.ones(6, tensor_split=(0,))
    pids = workers(backend)
    os.kill(pids[0], signal.SIGSTOP)
    late = multiprocessing.get_context("fork").Process(target=kill_later, args=(pids[0],))
    late.start()
    wrong(ml.BackendError, lambda: x.sum().item(), "rank 1", "signal 9")
    late.join()
    assert ended(pids)
    # A rank that fails alone.
    backend = ml.TorchBackend(device_mesh=(2,))
    x = backend.ones(6, tensor_split=(0,))
    pids = workers(backend)
    backend.ranks.call(refuse, x)
    start = time.monotonic()
    wrong(
        ml.BackendError,
        lambda: x.sum().item(),
        "rank 1: ",
        "ValueError: this rank does not want to",
    )
    assert time.monotonic() - start < 60 and ended(pids)
    # A call that the user interrupts.
    backend = ml.TorchBackend(device_mesh=(2,))
    x = backend.ones(6, tensor_split=(0,))
    pids = workers(backend)
    wrong(KeyboardInterrupt, lambda: backend.ranks.call(interrupt, x))
    wrong(ml.BackendError, lambda: x + 1, "got: a call was interrupted", "hint: make a new backend")
    assert ended(pids)


def kill_later(pid):
    time.sleep(2)
    os.kill(pid, signal.SIGKILL)


def check_slow():
    """A rank that does not answer: the environment sets a timeout of 10 s."""
    backend = ml.TorchBackend(device_mesh=(2,))
    x = backend.ones(6, tensor_split=(0,))
    pids = workers(backend)
    os.kill(pids[0], signal.SIGSTOP)
    start = time.monotonic()
    wrong(ml.BackendError, lambda: x.sum().item(), "a rank of the device mesh failed")
    assert 5 < time.monotonic() - start < 40
    assert ended(pids)


def check_restarts():
    """20 starts and stops in one process, or 5 in a sample, each without remains."""
    descriptors, shared = len(os.listdir("/proc/self/fd")), os.listdir("/dev/shm")
    for _ in range(20 if EVERY else 5):
        backend = ml.TorchBackend(device_mesh=(2,))
        assert backend.ones(4, tensor_split=(0,)).sum().item() == 4
        pids, folder = workers(backend), Path(backend.ranks._folder.name)
        backend.close()
        assert ended(pids) and not folder.exists()
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 8
    own = [name for name in {*os.listdir("/dev/shm")} - {*shared} if "torch" in name]
    assert not own


def check_groups():
    """A mesh of the shape of one that has ended has groups of its own."""
    for earlier in ([(4,), (1, 4)], []):
        others = [ml.TorchBackend(device_mesh=mesh) for mesh in earlier]
        backend = ml.TorchBackend(device_mesh=(2, 2))
        x = backend.ones(4, 4, tensor_split=(0, 1))
        assert (x @ x.T).sum(0).max().item() == 16
        for own in (*others, backend):
            own.close()


def check_memory():
    """Large arrays reach the ranks through memory that has no names. Each rank has its own."""
    backend = ml.TorchBackend(device_mesh=(2,))
    x = torch.arange(6 * SMALL, dtype=torch.float32).reshape(6, -1)
    backend.shard(x)
    descriptors = len(os.listdir("/proc/self/fd"))
    for split in ((), (0,), (1,)):
        y = backend.shard(x, tensor_split=split)
        assert torch.equal(y.full_tensor(), x)
    y = backend.shard(x)
    with torch.no_grad():
        y.add_(1)
    both = backend.ranks.call(side_by_side, y).full_tensor()
    assert torch.equal(both, torch.cat([x + 1, x + 1]))
    assert torch.equal(x[0, :3], torch.arange(3.0))
    # Many arrays in one call, and an input of NumPy.
    arrays = [torch.full((SMALL // 4,), float(at)) for at in range(300)]
    (sums,) = backend.ranks.call(sums_of, arrays)
    assert sums.full_tensor().tolist() == [own.sum().item() for own in arrays]
    model = ml.compile(mlp(), backend, shapes={"input": [SMALL, 6]})
    params, given = model.randomize_params(0), np.ones((SMALL, 6), np.float32)
    output = model.evaluate(params, {"input": given})["output"]
    assert torch.allclose(output.full_tensor(), output.full_tensor()[:1])
    assert len(os.listdir("/proc/self/fd")) == descriptors


def check_ports():
    """Ports in use do not matter, those of PyTorch's defaults neither."""
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(taken.getsockname()[1]))
        backend = ml.TorchBackend(device_mesh=(2,))
        assert backend.ones(4, tensor_split=(0,)).sum().item() == 4
        backend.close()


def check_leaving():
    """Prints the processes and ends as the environment says; the test looks for remains."""
    backend = ml.TorchBackend(device_mesh=(2,))
    print(*workers(backend), backend.ranks._folder.name, flush=True)
    how = os.environ["LEAVE"]
    if how == "raise":
        raise SystemExit("ended by an error")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def check_launched():
    """The same script as one rank of many: `torchrun` starts it."""
    backend = ml.TorchBackend(device_mesh=(2,))
    assert type(backend.ones(2)) is DTensor
    x = backend.randn(8, 6, tensor_split=(0,))
    compiled = ml.compile(mlp(), backend, shapes={"input": [8, 6]})
    params = compiled.randomize_params()
    seeds = lambda outputs: {"output": outputs["output"] * 2}  # noqa: E731
    got = compiled.evaluate(params, {"input": x}, output_gradients=seeds)
    one = ml.TorchBackend()
    single = ml.compile(mlp(), one, shapes={"input": [8, 6]})
    whole = {n: p.full_tensor() for n, p in params.items()}
    want = single.evaluate(whole, {"input": x.full_tensor()}, output_gradients=seeds)
    close(backend.to_numpy(got[0]["output"]), want[0]["output"].numpy(), 1e-5)
    for name, value in want[1].items():
        close(backend.to_numpy(got[1][name]), value.numpy(), 1e-5)
        assert place(got[1][name]) == place(params[name])
    wrong(ml.BackendError, lambda: ml.TorchBackend(device_mesh=(3,)), "got: 3\n  expected: 2")
    folder = Path(os.environ["FOLDER"])
    path = folder / "params.safetensors"
    divided = {n: backend.shard(p, tensor_split=(0,)) for n, p in params.items()}
    ml.save_params(path, divided)
    for name, value in ml.load_params(path, backend, shardings={"*": (0,)}).items():
        assert torch.equal(value.to_local(), divided[name].to_local())
        assert torch.equal(value.full_tensor(), whole[name])
    wrong(ml.MithrilError, lambda: ml.save_params(path / "x", divided), "cannot be written")
    # Not printed: what several processes print to one pipe may be mixed.
    (folder / f"{os.environ['RANK']}.right").touch()


CHECKS = {
    "faults": check_faults,
    "restarts": check_restarts,
    "groups": check_groups,
    "ports": check_ports,
    "memory": check_memory,
    "slow": check_slow,
    "leaving": check_leaving,
    "launched": check_launched,
}

if __name__ == "__main__":
    run_checks(CHECKS)
