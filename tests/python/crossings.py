"""Watches the arrays that backends hand over to each other, and says which of them are copied."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mithril.backends.foreign import as_numpy

# MLX takes over no memory of the processor, and tinygrad no memory at all. tinygrad's is copied on
# the way out as well: tinygrad may use it again while another framework still reads it.
COPY_TAKEN = ("mlx", "tinygrad")
COPY_GIVEN = ("tinygrad",)


class Crossing(NamedTuple):
    """An array that a backend received. Native code and C have NumPy's arrays."""

    giver: str
    taker: str
    before: int
    """The address of its elements."""
    after: int

    @property
    def is_copied(self) -> bool:
        return self.before != self.after

    @property
    def must_be_copied(self) -> bool:
        """Whether the two frameworks cannot share the array's memory."""
        if self.giver == self.taker:
            return False
        # JAX shares only memory that begins at a multiple of 64 bytes.
        unaligned = self.taker == "jax" and self.before % 64 != 0
        return unaligned or self.giver in COPY_GIVEN or self.taker in COPY_TAKEN


def crossing(array: Any, received: Any) -> Crossing:
    return Crossing(framework(array), framework(received), pointer(array), pointer(received))


def framework(array: Any) -> str:
    """The name of the framework that an array is of."""
    return type(array).__module__.partition(".")[0].removesuffix("lib")


def pointer(array: Any) -> int:
    """The address of an array's elements."""
    if hasattr(array, "data_ptr"):
        return array.data_ptr()
    if hasattr(array, "unsafe_buffer_pointer"):
        return array.unsafe_buffer_pointer()
    if framework(array) == "tinygrad":
        memory = array._buffer().as_memoryview(force_zero_copy=True)
        return np.frombuffer(memory, np.uint8).ctypes.data
    return as_numpy(array).ctypes.data


def watch(monkeypatch: Any, *backends: Any) -> list[Crossing]:
    """A list that gets a crossing for each array that one of the backends receives."""
    crossed: list[Crossing] = []
    for own in backends:
        receive = own.receive

        def watched(array: Any, receive: Any = receive) -> Any:
            received = receive(array)
            crossed.append(crossing(array, received))
            return received

        monkeypatch.setattr(own, "receive", watched, raising=False)
    return crossed
