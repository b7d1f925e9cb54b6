"""Mithril: write a model once, run it on any backend.

All blocks are in this module and in `mithril.models`, all backends here and in `mithril.backends`.
Importing this package loads only the extension module; everything else is imported on first use.
"""

from __future__ import annotations

from ._core import (
    Block,
    Connection,
    DType,
    IOKey,
    Model,
    TrainModel,
    __version__,
    block_names,
    custom,
    load_function,
    targets,
)
from .errors import (
    BackendError,
    BackendWarning,
    IndexRangeError,
    MithrilError,
    ShapeError,
    TerminalError,
    UsageError,
)

# Importing `typing` would take longer than importing everything else here. Type checkers know this
# name without it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing

    from . import backends as backends
    from . import models as models
    from . import zoo as zoo
    from .backends.base import Backend as Backend
    from .backends.c import CBackend as CBackend
    from .backends.cpu import CpuBackend as CpuBackend
    from .backends.jax import JaxBackend as JaxBackend
    from .backends.mlx import MlxBackend as MlxBackend
    from .backends.numpy import NumpyBackend as NumpyBackend
    from .backends.tinygrad import TinygradBackend as TinygradBackend
    from .backends.torch import TorchBackend as TorchBackend
    from .batching import vmap as vmap
    from .compilation import compile as compile
    from .compiled import CompiledModel as CompiledModel
    from .difference import diff as diff
    from .models import *  # noqa: F403
    from .params import load_params as load_params
    from .params import save_params as save_params
    from .pipeline import Pipeline as Pipeline

    bfloat16: DType
    bool: DType
    float16: DType
    float32: DType
    float64: DType
    int8: DType
    int16: DType
    int32: DType
    int64: DType
    uint8: DType
    uint16: DType
    uint32: DType
    uint64: DType

__all__ = [
    "BackendError",
    "BackendWarning",
    "Block",
    "Connection",
    "DType",
    "IOKey",
    "IndexRangeError",
    "MithrilError",
    "Model",
    "Pipeline",
    "ShapeError",
    "TerminalError",
    "TrainModel",
    "UsageError",
    "__version__",
    "compile",
    "custom",
    "diff",
    "load_function",
    "load_params",
    "save_params",
    "vmap",
]

_LAZY = {
    "Backend": ".backends.base",
    **{target.class_name: f".backends.{target.name}" for target in targets()},
    "CompiledModel": ".compiled",
    "diff": ".difference",
    "load_params": ".params",
    "save_params": ".params",
    "Pipeline": ".pipeline",
    "compile": ".compilation",
    "vmap": ".batching",
}
_MODULES = ("backends", "models", "zoo")
_DTYPES = frozenset(DType.names())


def __getattr__(name: str) -> typing.Any:
    from importlib import import_module  # noqa: PLC0415

    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name in _LAZY:
        found = getattr(import_module(_LAZY[name], __name__), name)
    elif name in _DTYPES:
        found = DType(name)
    elif name[:1].isupper():
        found = getattr(import_module(".models", __name__), name, None)
        if found is None:
            found = import_module(".backends", __name__).of_class(name)
    else:
        found = None
    if found is None:
        from .errors import missing_name  # noqa: PLC0415

        raise missing_name("mithril", name, __dir__())
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY, *_MODULES, *_DTYPES, *block_names()})
