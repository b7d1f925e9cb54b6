"""Backends: where compiled models run. Constructing a backend imports its framework."""

from __future__ import annotations

from .._core import targets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Backend as Backend
    from .c import CBackend as CBackend
    from .cpu import CpuBackend as CpuBackend
    from .jax import JaxBackend as JaxBackend
    from .mlx import MlxBackend as MlxBackend
    from .numpy import NumpyBackend as NumpyBackend
    from .tinygrad import TinygradBackend as TinygradBackend
    from .torch import TorchBackend as TorchBackend

__all__ = [
    "Backend",
    "CBackend",
    "CpuBackend",
    "JaxBackend",
    "MlxBackend",
    "NumpyBackend",
    "TinygradBackend",
    "TorchBackend",
]

_MODULES = {"Backend": "base", **{target.class_name: target.name for target in targets()}}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        from ..errors import missing_name  # noqa: PLC0415

        raise missing_name("mithril.backends", name, __all__)
    from importlib import import_module  # noqa: PLC0415

    found = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = found
    return found
