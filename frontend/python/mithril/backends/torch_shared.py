"""Memory that the ranks of a PyTorch mesh share. Rank 0 puts large arrays into it, and sends the
other ranks only its file descriptors."""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pickle import PickleBuffer

__all__ = ["Sent", "received"]

SMALL = 2**16
"""Arrays of fewer bytes are sent as they are, which takes less time."""
AT_ONCE = 200
"""How many file descriptors one message has at most. Linux allows 253."""


class Sent:
    """The large arrays of a message, each in a file in memory that has no name."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def __len__(self) -> int:
        return len(self._files)

    def take(self, buffer: PickleBuffer) -> bool:
        """Takes the elements of a large array. Whether pickle is to write them itself."""
        raw = buffer.raw()
        if raw.nbytes < SMALL:
            return True
        file = _file()
        self._files.append(file)
        os.ftruncate(file, raw.nbytes)
        with mmap.mmap(file, raw.nbytes) as memory:
            memory[:] = raw
        return False

    def send(self, link: Connection) -> None:
        with socket.socket(fileno=os.dup(link.fileno())) as own:
            for first in range(0, len(self._files), AT_ONCE):
                socket.send_fds(own, [b"f"], self._files[first : first + AT_ONCE])

    def close(self) -> None:
        _close(self._files)
        self._files.clear()


def received(link: Connection, count: int) -> list[mmap.mmap]:
    """The memory of so many arrays. What this rank writes to it, no other rank sees."""
    files: list[int] = []
    try:
        with socket.socket(fileno=os.dup(link.fileno())) as own:
            while len(files) < count:
                data, found, *_ = socket.recv_fds(own, 1, AT_ONCE)
                if not data:
                    raise EOFError
                files += found
        return [mmap.mmap(file, 0, mmap.MAP_PRIVATE) for file in files]
    finally:
        _close(files)


def _file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mithril")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)
