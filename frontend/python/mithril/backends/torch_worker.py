"""The process of a rank other than 0: it does what rank 0 sends, and ends with it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any

from .torch_shared import received

__all__ = ["GRACE", "main", "told"]

GRACE = 5.0
"""How long a rank that failed waits for rank 0 to have failed in the same call, in seconds."""


def told(error: BaseException) -> str:
    """The error that caused this one, and where it was raised."""
    while error.__cause__ is not None:
        error = error.__cause__
    return "".join(traceback.format_exception(error, chain=False))


def _read(link: Connection, queue: SimpleQueue[Any], parent: int, folder: str) -> None:
    """Puts messages into a queue, and ends the process once rank 0 has ended, even if it waits for
    other ranks meanwhile."""
    try:
        while True:
            # A child that the parent forked may keep the pipe open.
            while not link.poll(1.0):
                if os.getppid() != parent:
                    raise EOFError
            *message, count = link.recv()
            queue.put((*message, received(link, count)))
    except (EOFError, OSError):
        # Rank 0 may have been killed before it could remove the folder.
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


def _serve(link: Connection, queue: SimpleQueue[Any]) -> None:
    """Does what rank 0 sends until an error that rank 0 did not have as well."""
    from .torch_ranks import HERE, STAGE_CALLS, arrays_of, run, within  # noqa: PLC0415

    failed, text = None, ""
    while True:
        try:
            call = queue.get(timeout=None if failed is None else GRACE)
        except Empty:
            break
        number, first, freed, modes, data, memory = call
        if data is None:  # rank 0 failed in this call
            if failed != number:
                text = f"only rank 0 failed in call {number}"
                break
            failed = None
            continue
        if failed is not None:
            break
        HERE.forget(freed)
        is_alone = False
        try:
            function, args, keywords = HERE.unpacked(data, memory)
            is_alone = function in STAGE_CALLS
            with within(modes):
                result = run(function, *args, **keywords)
            for place, array in enumerate(arrays_of(result), first):
                HERE.arrays[place] = array
            del call, memory, function, args, keywords, result
        except Exception as error:
            failed, text = number, told(error)
            if is_alone:
                break
    link.send(text)


def main() -> None:
    """Arguments: the rank, the number of ranks, the file descriptor of the link to rank 0, the
    parent's process id, the number of threads, the file of the store, a timeout in seconds."""
    own, world, descriptor, parent, threads = map(int, sys.argv[1:6])
    store, timeout = sys.argv[6], timedelta(seconds=float(sys.argv[7]))
    link = Connection(descriptor)
    queue: SimpleQueue[Any] = SimpleQueue()
    reading = (link, queue, parent, os.path.dirname(store))
    threading.Thread(target=_read, args=reading, daemon=True).start()
    try:
        import torch.distributed as dist  # noqa: PLC0415
        from torch import set_num_threads  # noqa: PLC0415

        from . import torch_ranks as _  # noqa: PLC0415, F401

        set_num_threads(threads)
        link.send(None)  # ready
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, world),  # type: ignore[attr-defined]
            rank=own,
            world_size=world,
            timeout=timeout,
        )
        _serve(link, queue)
    except Exception as error:
        link.send(told(error))
    os._exit(1)
