"""Backends: where compiled models run. Constructing a backend imports its framework."""

from __future__ import annotations

from .._core import targets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .base import Backend as Backend
    from .c import CBackend as CBackend
    from .cpu import CpuBackend as CpuBackend
    from .custom import find as find
    from .custom import names as names
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
    "find",
    "names",
]

BUILT_IN = {target.name: target.class_name for target in targets()}
"""The classes of the built-in backends by their names. No other one can be registered yet."""

_MODULES = {
    "Backend": "base",
    **{class_name: name for name, class_name in BUILT_IN.items()},
    "find": "custom",
    "names": "custom",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        other = of_class(name)
        if other is not None:
            return other
        from ..errors import missing_name  # noqa: PLC0415

        raise missing_name("mithril.backends", name, __all__)
    return built_in(name)


def built_in(name: str) -> Any:
    """A name of this module or of one of its modules, which is imported."""
    from importlib import import_module  # noqa: PLC0415

    found = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = found
    return found


def of_class(name: str) -> Any:
    """The class of this name that another package provides; None if there is none."""
    if not name.endswith("Backend"):
        return None
    from .custom import of_class  # noqa: PLC0415

    return of_class(name)
