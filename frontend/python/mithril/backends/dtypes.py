"""NumPy's dtypes by name, and a sample array of every dtype of a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import DType

if TYPE_CHECKING:
    import numpy as np

    from .base import Array, Backend

__all__ = ["numpy_dtype", "samples"]


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """NumPy's dtype for `dtype`; `ml_dtypes` provides those that NumPy lacks."""
    import numpy as np  # noqa: PLC0415

    try:
        return np.dtype(dtype.name)
    except TypeError:
        import ml_dtypes  # noqa: PLC0415

        made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype.name))
        return made


_samples: dict[str, dict[str, Array]] = {}


def samples(backend: Backend) -> dict[str, Array]:
    """A 2 x 3 array of zeros for every dtype that the framework has, by the dtype's name."""
    key = f"{backend.kind} {backend.wide}"
    if key not in _samples:
        import numpy as np  # noqa: PLC0415

        made = {}
        for name in DType.names():
            wide = name in ("int64", "uint64", "float64")
            stored = name.startswith(("int4", "uint4", "float8"))
            if (stored and backend.target.arrays != "numpy") or (wide and not backend.wide):
                continue
            if name in backend.lacks:
                continue
            made[name] = backend.from_numpy(np.zeros((2, 3), numpy_dtype(DType(name))))
        _samples[key] = made
    return _samples[key]
