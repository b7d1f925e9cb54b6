"""What all backends share: dtypes, devices, seeds, and the table of array functions."""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar

from .._core import DType
from ..errors import BackendError, UsageError, shown
from ..room import host_memory
from .dtypes import numpy_dtype, samples

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self

    from .._core import Program

__all__ = ["FUNCTIONS", "Backend", "sizes"]

Array = Any
Namespace = Callable[[], "dict[str, Any]"]

FUNCTIONS = (
    "abs",
    "add",
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "broadcast_to",
    "ceil",
    "clip",
    "concat",
    "cos",
    "cosh",
    "cumsum",
    "divide",
    "equal",
    "exp",
    "expand_dims",
    "expm1",
    "flip",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "logical_and",
    "logical_not",
    "logical_or",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "outer",
    "pad",
    "power",
    "prod",
    "remainder",
    "repeat",
    "reshape",
    "round",
    "sign",
    "sin",
    "sinh",
    "sort",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "tan",
    "tanh",
    "tile",
    "topk",
    "transpose",
    "tril",
    "triu",
    "var",
    "where",
)
"""The array functions of every backend, under NumPy's names and with NumPy's meanings. `topk(x, k,
axis=-1)` gives the greatest `k` elements, greatest first, and their indices."""


def sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    """The sizes in `ones(3, 3)` and in `ones([3, 3])` alike.

    Errors: `UsageError` where they are none.
    """
    given = shape[0] if len(shape) == 1 and isinstance(shape[0], Iterable) else shape
    try:
        found = tuple(index(size) for size in given)
    except TypeError:
        found = (-1,)
    if any(size < 0 for size in found):
        got = ", ".join(map(repr, shape))
        raise UsageError(f"this is no shape\n  got: {got}\n  expected: integers of at least 0")
    return found


def _constructed(of: type[Backend], args: tuple[Any, ...], options: dict[str, Any]) -> Backend:
    """A backend from a pickle."""
    return of(*args, **options)


class Backend(ABC):
    """Where a compiled model runs: a framework, a dtype and a device.

    Beside the methods below, a backend has the array functions listed in
    `mithril.backends.base.FUNCTIONS`. They take and return the framework's own arrays.

    `dtype` is the floating type of the models compiled for it and of the arrays it makes: a name
    such as `ml.float32` or `"float32"`, or the dtype of a framework. `precision=16|32|64` means the
    float of that width.

    Backends are equal if their classes, dtypes, devices and options are. They are copied and
    pickled with their random numbers.
    """

    kind: ClassVar[str]
    """The name of the target in Mithril."""
    module: ClassVar[str]
    """What is imported; installed as `package`."""
    package: ClassVar[str]
    writes: ClassVar[bool] = True
    """Whether models become Python source."""
    extension: ClassVar[str | None] = ".py"
    """What files of generated source end in; None: there are none."""
    dtypes: ClassVar[tuple[str, ...]] = ("float64", "float32", "float16", "bfloat16")

    _given: tuple[tuple[object, ...], dict[str, object]]
    _seed: int | None
    _generator: np.random.Generator | None

    def __new__(cls, *args: object, **options: object) -> Self:
        backend = super().__new__(cls)
        # A pickle has these, not the modules and functions that the backend holds.
        backend._given = (args, options)
        return backend

    def __init__(
        self,
        dtype: object = None,
        *,
        precision: int | None = None,
        device: str | None = None,
        **unknown: object,
    ) -> None:
        """Errors: `UsageError` for an option there is not; `BackendError` for a framework that is
        not installed, a dtype or a device that it does not have."""
        self._refuse(unknown)
        self.dtype = self._float(dtype, precision)
        try:
            self.framework = importlib.import_module(self.module)
        except ImportError as error:
            raise BackendError(
                f"{type(self).__name__} needs {self.package}, which cannot be imported"
                f"\n  got: {error}"
                f"\n  hint: pip install {self.package}"
            ) from error
        self.device = self._device(device)
        self.set_seed(None)

    def _refuse(self, unknown: dict[str, object]) -> None:
        if not unknown:
            return
        from .._core import did_you_mean  # noqa: PLC0415

        name = next(iter(unknown))
        known = ["dtype", "precision", "device", *self._options()]
        near = did_you_mean(name, known)
        hint = f"\n  hint: {near}" if near else ""
        if name == "device_mesh":
            hint = "\n  hint: this version runs a model on one device; leave it out"
        raise UsageError(
            f"{type(self).__name__} has no option `{name}`"
            f"\n  expected: {', '.join(f'`{k}`' for k in known)}{hint}"
        )

    def _options(self) -> tuple[str, ...]:
        """The options of the constructor beside dtype, precision and device."""
        return ()

    def compile_options(self) -> dict[str, Any]:
        """What else the target's code depends on, as keywords of the compiler."""
        return {}

    def _float(self, dtype: object, precision: int | None) -> DType:
        if precision is not None and (
            not isinstance(precision, int) or precision not in (16, 32, 64)
        ):
            raise UsageError(
                "`precision` is the width of a float\n  got: "
                f"{precision!r}\n  expected: 16, 32 or 64"
            )
        if dtype is None:
            return DType(f"float{precision or 32}")
        own = DType(dtype)
        if own.name not in self.dtypes:
            raise BackendError(
                f"{type(self).__name__} computes in floats\n  got: {own.name}"
                f"\n  expected: {', '.join(self.dtypes)}"
            )
        if precision is not None and own.bits != precision:
            raise UsageError(
                f"`dtype` and `precision` disagree\n  got: {own.name} and {precision}"
                "\n  hint: give one of them"
            )
        return own

    def _device(self, device: str | None) -> Any:
        if device in (None, "cpu"):
            return None
        raise BackendError(
            f"{type(self).__name__} computes on the CPU alone\n  got: {device!r}"
            "\n  hint: leave `device=` out"
        )

    @property
    def precision(self) -> int:
        """The width of the backend's float in bits."""
        return self.dtype.bits

    def __repr__(self) -> str:
        where = f", device={str(self.device)!r}" if self.device is not None else ""
        return f"{type(self).__name__}(dtype={self.dtype.name}{where})"

    # Equality, copies and pickles: by what the constructor was given.

    def _identity(self) -> tuple[object, ...]:
        args, options = self._given
        bound = inspect.signature(type(self).__init__).bind(self, *args, **options)
        bound.apply_defaults()
        said = ("self", "dtype", "precision", "device", "unknown")
        rest = {name: value for name, value in bound.arguments.items() if name not in said}
        return (type(self), self.dtype.name, str(self.device), rest)

    def __eq__(self, other: object) -> bool:
        """Whether it is a backend of the same class, dtype, device and options."""
        if not isinstance(other, Backend):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity()[:3])

    def __reduce__(self) -> tuple[object, ...]:
        args, options = self._given
        return (_constructed, (type(self), args, options), (self._seed, self._generator))

    def __setstate__(self, state: tuple[int | None, np.random.Generator | None]) -> None:
        self._seed, self._generator = state

    # The table of functions: looked up once, then an attribute of the object.

    @abstractmethod
    def _function(self, name: str) -> Callable[..., Array]:
        """What the framework calls the function `name` of the table."""

    def __getattr__(self, name: str) -> Callable[..., Array]:
        if name not in FUNCTIONS:
            raise AttributeError(f"{type(self).__name__} has no function `{name}`")
        function = self._function(name)
        setattr(self, name, function)
        return function

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *FUNCTIONS})

    # What the frameworks do differently.

    def own_dtype(self, dtype: object) -> Any:
        """The framework's dtype of this name."""
        return getattr(self.framework, DType(dtype).name)

    @abstractmethod
    def from_numpy(self, array: NDArray[Any]) -> Array:
        """The framework's array of the same elements and dtype, on the backend's device."""

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """The elements of an array of any framework as a NumPy array of the same dtype (bfloat16
        by `ml_dtypes`)."""
        import numpy as np  # noqa: PLC0415

        return np.asarray(array) if self.is_array(array) else self._as_numpy(array)

    @abstractmethod
    def is_array(self, value: object) -> bool:
        """Whether it is an array of the framework's own."""

    def as_param(self, array: Array) -> Array:
        """An array of the framework as `randomize_params` gives params."""
        return array

    def cast(self, array: Array, dtype: object) -> Array:
        """The elements in another dtype."""
        return array.astype(self.own_dtype(dtype))

    # Creation.

    def adopt(self, value: object) -> Array | None:
        """What a call takes in the place of another framework's array: one over the same memory.

        None where this framework has no such arrays, or not of this one.
        """
        return None

    def array(self, value: object, dtype: object = None) -> Array:
        """A copy as an array of the framework.

        Floats take the backend's dtype, integers and bools keep theirs, unless `dtype` says
        otherwise. `value` is a number, nested lists, or an array of any framework.

        Errors: `UsageError` for what has no numbers, as strings and masked elements, and for
        tensors that are sparse, quantized or without memory.
        """
        import numpy as np  # noqa: PLC0415

        if isinstance(value, np.ma.MaskedArray):
            raise UsageError(
                f"what is masked has no number\n  got: {type(value).__name__}"
                "\n  expected: an array of numbers\n  hint: `x.filled(value)` gives them one"
            )
        # A matrix becomes an array, as its operators mean other things.
        taken = np.asarray(value) if isinstance(value, np.ndarray) else self._as_numpy(value)
        if taken.dtype.kind in "OUSM":
            raise UsageError(
                f"this is no array of numbers\n  got: {type(value).__name__}"
                "\n  expected: a number, nested lists of numbers, or an array of any framework"
            )
        if dtype is not None:
            want = DType(dtype)
        elif DType(taken.dtype).is_float:
            want = self.dtype
        else:
            return self.from_numpy(taken.copy())
        return self.from_numpy(taken.astype(numpy_dtype(want)))

    def _as_numpy(self, value: object) -> NDArray[Any]:
        import numpy as np  # noqa: PLC0415

        if self.is_array(value):
            return self.to_numpy(value)
        if hasattr(value, "detach"):
            from .torch import as_numpy  # noqa: PLC0415

            return as_numpy(value)
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        try:
            return np.asarray(value)
        except ValueError as error:
            raise UsageError(
                f"this is no array of numbers\n  got: {shown(value)}"
                "\n  expected: lists of equal lengths"
            ) from error

    def full(self, shape: int | Sequence[int], value: float, dtype: object = None) -> Array:
        """An array of one value."""
        import numpy as np  # noqa: PLC0415

        want = numpy_dtype(self.dtype if dtype is None else DType(dtype))
        return self.from_numpy(np.full(sizes((shape,)), value, dtype=want))

    def zeros(self, *shape: int | Sequence[int], dtype: object = None) -> Array:
        """Zeros; sizes as `zeros(2, 3)` or `zeros([2, 3])`."""
        return self.full(sizes(shape), 0, dtype)

    def ones(self, *shape: int | Sequence[int], dtype: object = None) -> Array:
        """Ones; sizes as `ones(2, 3)` or `ones([2, 3])`."""
        return self.full(sizes(shape), 1, dtype)

    def full_like(self, array: Array, value: float, dtype: object = None) -> Array:
        """An array of one value, with the shape and the dtype of another."""
        return self.full(tuple(array.shape), value, dtype or DType(array.dtype))

    def zeros_like(self, array: Array, dtype: object = None) -> Array:
        """Zeros, with the shape and the dtype of another array."""
        return self.full_like(array, 0, dtype)

    def ones_like(self, array: Array, dtype: object = None) -> Array:
        """Ones, with the shape and the dtype of another array."""
        return self.full_like(array, 1, dtype)

    def arange(
        self, start: float, stop: float | None = None, step: float = 1, dtype: object = None
    ) -> Array:
        """Numbers from `start` (0 where one is given) up to `stop`, which is left out."""
        import numpy as np  # noqa: PLC0415

        if stop is None:
            start, stop = 0, start
        values = np.arange(start, stop, step)
        return self.array(values, dtype)

    def linspace(self, start: float, stop: float, num: int = 50, dtype: object = None) -> Array:
        """`num` numbers at equal distances, both ends included."""
        import numpy as np  # noqa: PLC0415

        return self.array(np.linspace(start, stop, num), dtype or self.dtype)

    def eye(self, n: int, m: int | None = None, k: int = 0, dtype: object = None) -> Array:
        """Ones on the diagonal `k` of `n` rows and `m` columns."""
        import numpy as np  # noqa: PLC0415

        return self.array(np.eye(n, m, k), dtype or self.dtype)

    # Random numbers: one generator for all backends, so that a seed means the same on each.

    def set_seed(self, seed: int | None) -> None:
        """Starts the random numbers anew; `None` takes the seed from the system.

        The same seed gives the same arrays and the same initial params on every backend.
        """
        self._seed = seed
        self._generator = None

    @property
    def generator(self) -> np.random.Generator:
        """Where random numbers come from."""
        if self._generator is None:
            import numpy as np  # noqa: PLC0415

            self._generator = np.random.default_rng(self._seed)
        return self._generator

    def rand(self, *shape: int | Sequence[int], dtype: object = None) -> Array:
        """Uniform numbers from [0, 1)."""
        return self.array(self.generator.random(sizes(shape)), dtype or self.dtype)

    def randn(self, *shape: int | Sequence[int], dtype: object = None) -> Array:
        """Numbers of the standard normal distribution."""
        return self.array(self.generator.standard_normal(sizes(shape)), dtype or self.dtype)

    def randint(
        self,
        low: int,
        high: int | None = None,
        size: int | Sequence[int] = (),
        dtype: object = "int64",
    ) -> Array:
        """Integers from `low` (0 where one is given) up to `high`, which is left out."""
        return self.array(self.generator.integers(low, high, sizes((size,))), dtype)

    def random_key(self) -> Array:
        """A key for the random numbers of a model: two 32-bit words."""
        import numpy as np  # noqa: PLC0415

        return self.from_numpy(self.generator.integers(2**32, size=2, dtype=np.uint32))

    def initial(self, values: float | np.ndarray, shape: tuple[int, ...], dtype: DType) -> Array:
        """A new array of one number, or of those of an array of NumPy."""
        import numpy as np  # noqa: PLC0415

        if isinstance(values, float):
            return self.full(shape, values, dtype)
        return self.from_numpy(np.array(values, numpy_dtype(dtype)))

    # Running.

    @property
    def wide(self) -> bool:
        """Whether 64-bit integers are what they say."""
        return True

    def widen(self) -> None:
        """Makes them be that, for the whole process."""
        raise AssertionError(f"{self!r} has them")

    @property
    def samples(self) -> dict[str, Array]:
        """A 2 x 3 array of every dtype: the check of calls learns from them."""
        return samples(self)

    @abstractmethod
    def runner(self, program: Program, namespace: Namespace, *, jit: bool) -> Any:
        """How the functions of a program are called; `namespace` runs the generated source."""

    def memory(self) -> int | None:
        """The bytes of memory that the device has; None where that is not known."""
        return host_memory()

    def lacks_memory(self, error: Exception) -> bool:
        """Whether it is how the framework says that there is not enough memory."""
        return isinstance(error, MemoryError)

    def lacks_operation(self, error: Exception) -> bool:
        """Whether it is how the framework says that it has no such operation of these dtypes."""
        return False

    @property
    def jit_default(self) -> bool:
        """Whether models are compiled further by the framework where `jit=` is not given."""
        return False


def topk_by_sort(framework: Any, array: Array, k: int, axis: int = -1) -> tuple[Array, Array]:
    """The greatest `k` elements and their indices, in NumPy's own functions."""
    order = framework.flip(framework.argsort(array, axis=axis), axis=axis)
    indices = framework.take(order, framework.arange(k), axis=axis)
    return framework.take_along_axis(array, indices, axis=axis), indices
