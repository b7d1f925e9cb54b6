"""Device meshes of PyTorch from one script: this process is rank 0, and starts the other ranks.

The arrays of rank 0 are DTensors. PyTorch's functions on them are sent to the other ranks, which
call them on their parts, so that all ranks do the same.
"""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from ..errors import BackendError, UsageError
from .torch_ranks import HERE, STAGE_CALLS, arrays_of, packed, run, torch_modes, whole
from .torch_shared import Sent
from .torch_worker import GRACE, told

__all__ = ["LaunchedRanks", "MeshTensor", "Ranks", "ranks_for"]

TIMEOUT = "MITHRIL_MESH_TIMEOUT"
"""The environment variable with the time in seconds that ranks wait for each other."""

START = "from mithril.backends.torch_worker import main; main()"


class Held:
    """The number of an array that every rank holds. The ranks drop the array with this object."""

    __slots__ = ("number", "ranks")

    def __init__(self, ranks: Ranks, number: int) -> None:
        self.ranks, self.number = ranks, number

    def __del__(self) -> None:
        self.ranks.drop("arrays", self.number)


class Ranks:
    """The other ranks, and the calls that are sent to them."""

    def __init__(self, world: int) -> None:
        self._timeout = _timeout()
        self.world = world
        self.users: WeakValueDictionary[int, Any] = WeakValueDictionary()
        """The backends with a mesh of these ranks."""
        self._dropped: deque[tuple[str, int]] = deque()
        self._broken: str | None = None
        self._lock = threading.RLock()
        self._is_calling = False
        self._calls = itertools.count()
        self._programs = itertools.count()
        self._next = 0
        self._process = os.getpid()
        self._folder = tempfile.TemporaryDirectory(prefix="mithril-ranks-")
        self._links: list[Connection] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)

    def _start(self) -> None:
        store = str(Path(self._folder.name) / "store")
        threads = max(1, torch.get_num_threads() // self.world)
        path = os.pathsep.join(own for own in sys.path if own)
        for rank in range(1, self.world):
            here, there = socket.socketpair()
            with there, open(Path(self._folder.name) / f"{rank}.txt", "wb") as log:
                numbers = [rank, self.world, there.fileno(), os.getpid(), threads]
                arguments = [*map(str, numbers), store, str(self._timeout)]
                worker = subprocess.Popen(
                    [sys.executable, "-c", START, *arguments],
                    env={**os.environ, "PYTHONPATH": path},
                    pass_fds=[there.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._workers.append(worker)
            self._links.append(Connection(here.detach()))
        for link in self._links:
            # The ranks say that they are ready before they wait for each other.
            if not link.poll(self._timeout) or not _is_ready(link):
                self._raise_broken(None)
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, self.world),  # type: ignore[attr-defined]
            rank=0,
            world_size=self.world,
            timeout=timedelta(seconds=self._timeout),
        )

    @property
    def is_running(self) -> bool:
        return bool(self._workers) and self._broken is None and os.getpid() == self._process

    def close(self) -> None:
        """Ends the other ranks."""
        if os.getpid() != self._process:
            return
        atexit.unregister(self.close)
        self._broken = self._broken or "they were closed"
        for link in self._links:
            link.close()
        for worker in self._workers:
            try:
                worker.wait(GRACE)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        HERE.close()
        if self._workers and dist.is_initialized():
            with suppress(RuntimeError):
                dist.destroy_process_group()
            _forget_groups()
        self._links, self._workers = [], []
        self._folder.cleanup()

    # Calls.

    def call(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Calls a function on every rank, and returns the result of rank 0.

        Errors: those of the function; `BackendError` for a rank that failed.
        """
        return self._call(function, [(args, keywords)] * self.world)

    def call_each(self, function: Callable[..., Any], args: Sequence[tuple[Any, ...]]) -> Any:
        """Calls a function on every rank with arguments of its own."""
        return self._call(function, [(own, {}) for own in args])

    def _call(self, function: Callable[..., Any], args: Sequence[tuple[Any, Any]]) -> Any:
        with self._lock:
            if self._is_calling:
                # PyTorch's functions call others, which every rank calls as well.
                return function(*args[0][0], **args[0][1])
            self._check()
            number, first = next(self._calls), self._next
            freed = [self._dropped.popleft() for _ in range(len(self._dropped))]
            try:
                self._send(number, first, freed, function, args)
                result = self._run(number, function, *args[0])
            except Exception:
                raise
            except BaseException:
                # The other ranks do what this one has left out.
                self._broken = "a call was interrupted"
                self._kill()
                raise
            for array in arrays_of(result):
                if type(array) is DTensor:
                    array.__class__ = MeshTensor
                    array._held = Held(self, self._next)  # type: ignore[attr-defined]
                else:  # the function returned an argument, which has a number
                    self.drop("arrays", self._next)
                self._next += 1
            return result

    def _run(self, number: int, function: Callable[..., Any], args: Any, keywords: Any) -> Any:
        """Calls a function on rank 0."""
        self._is_calling = True
        try:
            return run(function, *args, **keywords)
        except Exception as error:
            self._failed(number, function, error)
            raise
        finally:
            self._is_calling = False

    def _send(
        self,
        number: int,
        first: int,
        freed: list[tuple[str, int]],
        function: Callable[..., Any],
        args: Sequence[tuple[Any, Any]],
    ) -> None:
        data, sent = b"", Sent()
        try:
            for rank, link in enumerate(self._links, 1):
                if rank == 1 or args[rank] is not args[0]:
                    sent.close()
                    data = packed((function, *args[rank]), self._number, sent)
                link.send((number, first, freed, torch_modes(), data, len(sent)))
                sent.send(link)
        except OSError as error:
            self._raise_broken(error)
        except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
            # Nothing was sent: the first message could not be written.
            self._dropped.extend(freed)
            name = getattr(function, "__name__", function)
            raise BackendError(
                f"the arguments of `{name}` cannot be sent to the other ranks\n  got: {error}"
                "\n  hint: `backend.to_numpy(array)` makes an array of this process"
            ) from error
        finally:
            sent.close()

    def _number(self, array: DTensor) -> int:
        held = getattr(array, "_held", None)
        if held is None or held.ranks is not self:
            raise ValueError("an array of another mesh, or of one that was closed")
        return int(held.number)

    def _check(self) -> None:
        """Errors: a rank failed since the last call."""
        if os.getpid() != self._process:
            raise BackendError(
                "a forked process has no device mesh"
                "\n  hint: start the process by `spawn`, or convert arrays to NumPy's before"
            )
        if self._broken is not None:
            raise BackendError(
                f"the ranks of this device mesh have ended\n  got: {self._broken}"
                "\n  hint: make a new backend"
            )
        if wait(self._links, 0):
            self._raise_broken(None)

    def _failed(self, number: int, function: Callable[..., Any], error: Exception) -> None:
        """Tells the ranks that rank 0 failed, unless one of them is the cause, or they do something
        else in this call and wait for rank 0."""
        lost = _is_lost(told(error))
        if wait(self._links, GRACE if lost else 0) or lost:
            self._raise_broken(error)
        if function in STAGE_CALLS:
            self._raise_broken(error, told(error))
        try:
            for link in self._links:
                link.send((number, 0, (), None, None, 0))
        except OSError:
            self._raise_broken(error)

    def _raise_broken(self, cause: Exception | None, text: str = "") -> NoReturn:
        """Ends all ranks, and raises the error of the one that failed. `text` is that of rank 0, if
        it did."""
        links = [] if text else [own for own in enumerate(self._links, 1) if wait([own[1]], 0)]
        texts = {rank: self._reason(rank, link) for rank, link in links}
        texts.update({0: _last_lines(text)} if text else {})
        # Ranks that wait for the one that failed have lost it.
        causes = {rank: own for rank, own in texts.items() if not _is_lost(own)} or texts
        reason = "\n    ".join(f"rank {rank}: {own}" for rank, own in causes.items())
        hint = ""
        if not reason:
            reason = f"no answer within {self._timeout:g} s" + (f": {cause}" if cause else "")
            hint = f"\n  hint: the environment variable `{TIMEOUT}` has the seconds that ranks wait"
        self._broken = reason
        self._kill()
        raise BackendError(f"a rank of the device mesh failed\n  got: {reason}{hint}") from cause

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()
        self.close()

    def _reason(self, rank: int, link: Connection) -> str:
        with suppress(EOFError, OSError):
            text = link.recv()
            if text:
                return _last_lines(str(text))
        code = self._workers[rank - 1].wait()
        log = (Path(self._folder.name) / f"{rank}.txt").read_text(errors="replace").rstrip()
        ended = f"the process was killed by signal {-code}" if code < 0 else f"it ended with {code}"
        return "\n    ".join([ended, *log.splitlines()[-3:]])

    def program_number(self) -> int:
        return next(self._programs)

    def drop(self, kind: str, number: int) -> None:
        """Lets the ranks drop an object. They are told with the next call, as this may run at any
        time, even within one."""
        self._dropped.append((kind, number))

    def shared_seed(self) -> int | None:
        """The seed of random numbers if none is set. Only rank 0 draws them."""
        return None


class LaunchedRanks:
    """The ranks that `torchrun`, or the user's own script, started. Each runs the same script, so
    nothing is sent."""

    def __init__(self, world: int) -> None:
        if not dist.is_initialized():
            dist.init_process_group("gloo")
            atexit.register(_leave)
        self.world = dist.get_world_size()
        if self.world != world:
            raise BackendError(
                f"a device mesh must have as many devices as there are ranks\n  got: {world}"
                f"\n  expected: {self.world}, as many as were started"
            )
        self.users: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._programs = itertools.count()

    def call(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        return run(function, *args, **keywords)

    def call_each(self, function: Callable[..., Any], args: Sequence[tuple[Any, ...]]) -> Any:
        return run(function, *args[dist.get_rank()])

    def program_number(self) -> int:
        return next(self._programs)

    def drop(self, kind: str, number: int) -> None:
        HERE.forget([(kind, number)])

    def shared_seed(self) -> int:
        """A seed of random numbers that all ranks have."""
        seeds = [int.from_bytes(os.urandom(8), "little")]
        dist.broadcast_object_list(seeds, 0)
        return seeds[0]

    def close(self) -> None:
        """Does nothing: these ranks belong to the launcher."""


def _leave() -> None:
    HERE.close()
    if dist.is_initialized():
        dist.destroy_process_group()


def _is_lost(text: str) -> bool:
    """Whether an error is that of a connection to a rank that has failed or does not answer."""
    return "/gloo/" in text or "torch.distributed.Dist" in text


def _last_lines(text: str) -> str:
    """The end of a traceback, indented."""
    return "\n    ".join(text.rstrip().splitlines()[-6:])


def _forget_groups() -> None:
    """Clears what DTensor keeps of operations, with the groups of their mesh: a later mesh of the
    same shape counts as equal there, and has other groups."""
    propagate: Any = DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding
    # Some versions have a cache for each thread, others the cached function itself.
    getattr(propagate, "cache", propagate).cache_clear()
    clear = getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", None)
    if clear is not None:  # absent from older versions
        clear()


def _timeout() -> float:
    """The time that ranks wait for each other. Errors: the environment has no number for it."""
    given = os.environ.get(TIMEOUT) or "300"
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(
            f"the environment variable `{TIMEOUT}` is not a time\n  got: {given!r}"
            "\n  expected: a number of seconds above 0"
        )
    return seconds


def _is_ready(link: Connection) -> bool:
    try:
        return link.recv() is None
    except EOFError:
        return False


_running: Ranks | None = None


def ranks_for(devices: int) -> Ranks | LaunchedRanks:
    """The ranks of this process, which are started if there are none, and no launcher did it.

    Errors: `BackendError` if they cannot start, or if those that run are fewer or more.
    """
    global _running  # noqa: PLW0603
    ours = _running is not None and _running.is_running
    if not ours and (dist.is_initialized() or {"RANK", "WORLD_SIZE"} <= os.environ.keys()):
        return LaunchedRanks(devices)
    if _running is not None and _running.is_running and _running.world != devices:
        if len(_running.users):
            gc.collect()  # models refer to their backend in cycles
        if len(_running.users):
            raise BackendError(
                "PyTorch has one set of ranks in a process, and another mesh uses it"
                f"\n  got: a mesh of {devices} devices\n  expected: {_running.world}"
                "\n  hint: `backend.close()` of the other backend ends its ranks"
            )
        _running.close()
    if _running is None or not _running.is_running:
        _running = Ranks(devices)
    return _running


# Functions that only read what rank 0 has.
LOCAL = frozenset({
    "data_ptr", "dim", "element_size", "get_device", "is_complex", "is_contiguous",
    "is_floating_point", "is_signed", "ndimension", "nelement", "numel", "size", "storage_offset",
    "stride", "__hash__", "__len__", "__repr__",
})  # fmt: skip
# Functions that read the elements.
READS = frozenset({
    "item", "numpy", "tolist", "__array__", "__bool__", "__complex__", "__contains__",
    "__dlpack__", "__dlpack_device__", "__float__", "__format__", "__index__", "__int__",
})  # fmt: skip


class MeshTensor(DTensor):
    """An array of a device mesh. What is done to it in this process is done on every rank."""

    _held: Held

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in LOCAL:
            return _here(func, *args, **kwargs)
        if name in READS:
            return func(args[0].full_tensor().detach(), *args[1:], **kwargs)
        if name == "__get__":
            found = _here(func, *args, **kwargs)
            if type(found) is not DTensor:
                return found
            return _ranks(args).call(getattr, args[0], func.__self__.__name__)
        if name == "__set__":
            return _ranks(args).call(setattr, args[0], func.__self__.__name__, args[1])
        if name == "__setitem__":
            raise UsageError(
                "elements of an array of a device mesh cannot be assigned"
                "\n  hint: `torch.where` makes a new array"
            )
        if name == "__iter__":
            return iter(args[0].unbind(0))
        return _ranks((args, kwargs)).call(func, *args, **kwargs)

    def full_tensor(self, **options: Any) -> torch.Tensor:
        """The whole array as a tensor of this process."""
        found: torch.Tensor = _ranks(self).call(whole, self, **options)
        return found

    def redistribute(self, *args: Any, **options: Any) -> DTensor:
        """The array with other placements."""
        found: DTensor = _ranks(self).call(DTensor.redistribute, self, *args, **options)
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = self.detach().clone().requires_grad_(self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageError(
            "an array of a device mesh cannot be pickled: its parts are in several processes"
            "\n  hint: `ml.save_params`, or `backend.to_numpy(array)`"
        )


def _here(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return function(*args, **keywords)


def _ranks(args: Any) -> Ranks:
    """The ranks that hold the first array of these arguments."""
    found = next(array for array in arrays_of(args) if isinstance(array, MeshTensor))
    return found._held.ranks
