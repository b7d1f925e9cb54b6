"""The base class of all backends: dtypes, devices, seeds, and the table of array functions."""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar

from .._core import DType, Target
from ..errors import BackendError, MithrilError, UsageError, shown
from ..memory import host_memory
from . import BUILT_IN
from .dtypes import numpy_dtype, samples
from .functions import ALIASES, FUNCTIONS, topk_by_sort

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self

    from .._core import Program

__all__ = ["Backend", "sizes"]

Array = Any
Namespace = Callable[[], "dict[str, Any]"]


def sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    """The sizes of a shape, given as in `ones(3, 3)` or as in `ones([3, 3])`.

    Errors: `UsageError` if they are not integers of at least 0.
    """
    given = shape[0] if len(shape) == 1 and isinstance(shape[0], Iterable) else shape
    try:
        found = tuple(index(size) for size in given)
    except TypeError:
        found = (-1,)
    if any(size < 0 for size in found):
        got = ", ".join(map(repr, shape))
        raise UsageError(f"this is not a shape\n  got: {got}\n  expected: integers of at least 0")
    return found


def _unpickled(of: type[Backend], args: tuple[Any, ...], options: dict[str, Any]) -> Backend:
    """Makes a backend when it is unpickled."""
    return of(*args, **options)


class Backend(ABC):
    """A framework, a dtype and a device for compiled models.

    Besides the methods below, a backend has the array functions listed in
    `mithril.backends.functions.FUNCTIONS`. They take and return the framework's own arrays.

    `dtype` is the floating-point type of the models compiled for this backend and of the arrays
    that it makes: a name such as `ml.float32` or `"float32"`, or a dtype of a framework.
    `precision=16|32|64` selects the float of that width in bits.

    Two backends are equal if their classes, dtypes, devices and options are equal. Copies and
    pickles include the state of the random numbers.
    """

    kind: ClassVar[str]
    """The name of the target in Mithril."""
    module: ClassVar[str]
    """The name of the module to import. `package` is the name to install it by; by default, it is
    the first part of the module's."""
    package: ClassVar[str] = ""
    checkpoints: bool = False
    """Whether all models are compiled as with `gradient_checkpointing=True`."""
    dtypes: ClassVar[tuple[str, ...]] = ("float64", "float32", "float16", "bfloat16")

    # A class with a `kind` of its own is a new backend: see docs/guide/custom-backends.md.

    label: ClassVar[str] = ""
    """The framework's name in prose; `kind` by default."""
    base: ClassVar[str | None] = None
    """The built-in backend whose spellings it starts from. By default, that of the class that it is
    a subclass of, or else the spellings of the Python array API."""
    imports: ClassVar[Mapping[str, str]] = {}
    """The modules that generated source may name, with their import lines. In templates, `@` stands
    for the first one."""
    spellings: ClassVar[Mapping[str, str | None]] = {}
    """Templates by operation; None for an operation that the framework lacks."""
    creation: ClassVar[Mapping[str, str]] = {}
    """Templates that create arrays: `scalar`, `array`, `full`, `zeros`, `ones` and `load`."""
    prelude: ClassVar[str] = ""
    """Functions that templates call, as Python source. Their names begin with `_`."""
    lacks: ClassVar[tuple[str, ...]] = ()
    """The dtypes that the framework lacks."""

    _given: tuple[tuple[object, ...], dict[str, object]]
    _seed: int | None
    _generator: np.random.Generator | None

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        built_in = cls.__module__.rpartition(".")[0] == __package__
        if "kind" in cls.__dict__ and not built_in:
            from .custom import register  # noqa: PLC0415

            register(cls)

    def __new__(cls, *args: object, **options: object) -> Self:
        backend = super().__new__(cls)
        # A pickle stores these instead of the backend's modules and functions.
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
        """Errors: `UsageError` for an unknown option; `BackendError` for a framework that is not
        installed, or for a dtype or device that the framework does not have."""
        self._refuse_unknown(unknown)
        self.dtype = self._float(dtype, precision)
        try:
            self.framework = importlib.import_module(self.module)
        except ImportError as error:
            package = self.package or self.module.partition(".")[0]
            raise BackendError(
                f"{type(self).__name__} needs {package}, which cannot be imported"
                f"\n  got: {error}"
                f"\n  hint: pip install {package}"
            ) from error
        self.device = self._device(device)
        self.set_seed(None)
        if self.kind not in BUILT_IN:
            from .custom import check_arrays  # noqa: PLC0415

            check_arrays(self)

    def _refuse_unknown(self, unknown: dict[str, object]) -> None:
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
        """The constructor's options other than dtype, precision and device."""
        return ()

    def compile_options(self) -> dict[str, Any]:
        """Further options that the generated code depends on, as keywords of the compiler."""
        return {}

    def _float(self, dtype: object, precision: int | None) -> DType:
        if precision is not None and (
            not isinstance(precision, int) or precision not in (16, 32, 64)
        ):
            raise UsageError(
                "`precision` is not the width of a float\n  got: "
                f"{precision!r}\n  expected: 16, 32 or 64"
            )
        if dtype is None:
            return DType(f"float{precision or 32}")
        own = DType(dtype)
        floats = [name for name in self.dtypes if name not in self.lacks]
        if own.name not in floats:
            raise BackendError(
                f"{type(self).__name__} needs a float dtype\n  got: {own.name}"
                f"\n  expected: {', '.join(floats)}"
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
            f"{type(self).__name__} computes only on the CPU\n  got: {device!r}"
            "\n  hint: leave `device=` out"
        )

    @property
    def target(self) -> Target:
        """The target's entry in Mithril's registry."""
        return Target(self.kind)

    @property
    def writes(self) -> bool:
        """Whether the backend generates Python source."""
        return self.target.dialect == "python"

    @property
    def precision(self) -> int:
        """The width of the backend's float in bits."""
        return self.dtype.bits

    def __repr__(self) -> str:
        where = f", device={str(self.device)!r}" if self.device is not None else ""
        return f"{type(self).__name__}(dtype={self.dtype.name}{where})"

    # Equality, copies and pickles depend on the arguments of the constructor.

    def _identity(self) -> tuple[object, ...]:
        args, options = self._given
        bound = inspect.signature(type(self).__init__).bind(self, *args, **options)
        bound.apply_defaults()
        compared = ("self", "dtype", "precision", "device", "unknown")
        rest = {name: value for name, value in bound.arguments.items() if name not in compared}
        return (type(self), self.dtype.name, str(self.device), rest)

    def __eq__(self, other: object) -> bool:
        """Whether `other` is a backend of the same class, dtype, device and options."""
        if not isinstance(other, Backend):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity()[:3])

    def __reduce__(self) -> tuple[object, ...]:
        args, options = self._given
        return (_unpickled, (type(self), args, options), (self._seed, self._generator))

    def __setstate__(self, state: tuple[int | None, np.random.Generator | None]) -> None:
        self._seed, self._generator = state

    # The table of functions. A function is looked up once and then stored as an attribute.

    def _function(self, name: str) -> Callable[..., Array]:
        """The framework's function that implements `name` of the table."""
        if name == "topk":
            return partial(topk_by_sort, self.framework)
        function: Callable[..., Array] = getattr(self.framework, ALIASES.get(name, name))
        return function

    def __getattr__(self, name: str) -> Callable[..., Array]:
        if name not in FUNCTIONS:
            raise AttributeError(f"{type(self).__name__} has no function `{name}`")
        function = self._function(name)
        setattr(self, name, function)
        return function

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *FUNCTIONS})

    # Methods that differ between frameworks.

    def own_dtype(self, dtype: object) -> Any:
        """The framework's dtype for `dtype`."""
        return getattr(self.framework, DType(dtype).name)

    @abstractmethod
    def from_numpy(self, array: NDArray[Any]) -> Array:
        """Converts to an array of the framework with the same elements and dtype, on the backend's
        device."""

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """Converts an array of any framework to a NumPy array of the same dtype (bfloat16 is that
        of `ml_dtypes`)."""
        import numpy as np  # noqa: PLC0415

        return np.asarray(array) if self.is_array(array) else self._as_numpy(array)

    def is_readable(self, value: object) -> bool:
        """Whether this is an array whose elements are known now."""
        return hasattr(value, "shape")

    def is_array(self, value: object) -> bool:
        """Whether `value` is an array of the framework."""
        import numpy as np  # noqa: PLC0415

        return isinstance(value, type(self.from_numpy(np.zeros(1, np.float32))))

    def as_param(self, array: Array) -> Array:
        """Converts an array of the framework to a param, as `randomize_params` returns it."""
        return array

    def cast(self, array: Array, dtype: object) -> Array:
        """Casts the elements to another dtype."""
        return array.astype(self.own_dtype(dtype))

    # Creation.

    def adopt(self, value: object) -> Array | None:
        """Wraps another framework's array as one of this framework, over the same memory.

        Calls use the result in place of the argument.

        Returns None if this framework cannot wrap the array.
        """
        return None

    def receive(self, array: Array) -> Array:
        """Hands an array of any framework over to this one, on the backend's device. It is copied
        only if its memory cannot be shared."""
        return array if self.is_array(array) else self.from_numpy(self._as_numpy(array))

    def at(self, device: str) -> Self:
        """The same backend on another device. Errors: `BackendError` for an unknown device."""
        args, options = self._given
        return type(self)(*args, **{**options, "device": device})  # type: ignore[arg-type]

    def array(self, value: object, dtype: object = None) -> Array:
        """Copies `value` to an array of the framework.

        Floats are cast to the backend's dtype; integers and bools keep theirs. `dtype` overrides
        both. `value` is a number, nested lists, or an array of any framework.

        Errors: `UsageError` for values that are not numbers, such as strings and masked elements,
        and for tensors that are sparse, quantized or without memory.
        """
        import numpy as np  # noqa: PLC0415

        if isinstance(value, np.ma.MaskedArray):
            raise UsageError(
                f"masked elements have no value\n  got: {type(value).__name__}"
                "\n  expected: an array of numbers\n  hint: use `x.filled(value)` to replace them"
            )
        # Convert `np.matrix` to an array, as its operators have other meanings.
        taken = np.asarray(value) if isinstance(value, np.ndarray) else self._as_numpy(value)
        if taken.dtype.kind in "OUSM":
            raise UsageError(
                f"this is not an array of numbers\n  got: {type(value).__name__}"
                "\n  expected: a number, nested lists of numbers, or an array of any framework",
                code="E0302",
            )
        if dtype is not None:
            want = DType(dtype)
        elif DType(taken.dtype).is_float:
            want = self.dtype
        else:
            return self.from_numpy(taken.copy())
        return self.from_numpy(taken.astype(numpy_dtype(want)))

    def _as_numpy(self, value: object) -> NDArray[Any]:

        if self.is_array(value):
            return self.to_numpy(value)
        from .foreign import as_numpy  # noqa: PLC0415

        try:
            return as_numpy(value)
        except MithrilError:
            raise
        except ValueError as error:
            raise UsageError(
                f"this is not an array of numbers\n  got: {shown(value)}"
                "\n  expected: lists of equal lengths",
                code="E0302",
            ) from error

    def full(self, shape: int | Sequence[int], value: float, dtype: object = None) -> Array:
        """An array filled with one value."""
        import numpy as np  # noqa: PLC0415

        want = numpy_dtype(self.dtype if dtype is None else DType(dtype))
        return self.from_numpy(np.full(sizes((shape,)), value, dtype=want))

    def zeros(self, *shape: int | Sequence[int], dtype: object = None) -> Array:
        """An array of zeros, with its sizes given as `zeros(2, 3)` or `zeros([2, 3])`."""
        return self.full(sizes(shape), 0, dtype)

    def ones(self, *shape: int | Sequence[int], dtype: object = None) -> Array:
        """An array of ones, with its sizes given as `ones(2, 3)` or `ones([2, 3])`."""
        return self.full(sizes(shape), 1, dtype)

    def full_like(self, array: Array, value: float, dtype: object = None) -> Array:
        """An array filled with one value, with the shape and dtype of `array`."""
        return self.full(tuple(array.shape), value, dtype or DType(array.dtype))

    def zeros_like(self, array: Array, dtype: object = None) -> Array:
        """Zeros with the shape and dtype of `array`."""
        return self.full_like(array, 0, dtype)

    def ones_like(self, array: Array, dtype: object = None) -> Array:
        """Ones with the shape and dtype of `array`."""
        return self.full_like(array, 1, dtype)

    def arange(
        self, start: float, stop: float | None = None, step: float = 1, dtype: object = None
    ) -> Array:
        """Numbers from `start` up to but excluding `stop`; one argument is `stop`, from 0."""
        import numpy as np  # noqa: PLC0415

        if stop is None:
            start, stop = 0, start
        values = np.arange(start, stop, step)
        return self.array(values, dtype)

    def linspace(self, start: float, stop: float, num: int = 50, dtype: object = None) -> Array:
        """`num` evenly spaced numbers, including both ends."""
        import numpy as np  # noqa: PLC0415

        return self.array(np.linspace(start, stop, num), dtype or self.dtype)

    def eye(self, n: int, m: int | None = None, k: int = 0, dtype: object = None) -> Array:
        """A matrix of `n` rows and `m` columns with ones on the diagonal `k`, zeros elsewhere."""
        import numpy as np  # noqa: PLC0415

        return self.array(np.eye(n, m, k), dtype or self.dtype)

    # Random numbers. All backends use NumPy's generator, so a seed gives the same numbers on each.

    def set_seed(self, seed: int | None) -> None:
        """Restarts the random numbers; `None` takes a seed from the operating system.

        The same seed gives the same arrays and the same initial params on every backend.
        """
        self._seed = seed
        self._generator = None

    @property
    def generator(self) -> np.random.Generator:
        """The generator of random numbers."""
        if self._generator is None:
            import numpy as np  # noqa: PLC0415

            self._generator = np.random.default_rng(self._seed)
        return self._generator

    def rand(self, *shape: int | Sequence[int], dtype: object = None) -> Array:
        """Uniformly distributed numbers in [0, 1)."""
        return self.array(self.generator.random(sizes(shape)), dtype or self.dtype)

    def randn(self, *shape: int | Sequence[int], dtype: object = None) -> Array:
        """Numbers from the standard normal distribution."""
        return self.array(self.generator.standard_normal(sizes(shape)), dtype or self.dtype)

    def randint(
        self,
        low: int,
        high: int | None = None,
        size: int | Sequence[int] = (),
        dtype: object = "int64",
    ) -> Array:
        """Integers from `low` up to but excluding `high`; one argument is `high`, from 0."""
        return self.array(self.generator.integers(low, high, sizes((size,))), dtype)

    def random_key(self) -> Array:
        """A random key for a model: two 32-bit words."""
        import numpy as np  # noqa: PLC0415

        return self.from_numpy(self.generator.integers(2**32, size=2, dtype=np.uint32))

    def initial(self, values: float | np.ndarray, shape: tuple[int, ...], dtype: DType) -> Array:
        """A new array, filled with one number or with the elements of a NumPy array."""
        import numpy as np  # noqa: PLC0415

        if isinstance(values, float):
            return self.full(shape, values, dtype)
        return self.from_numpy(np.array(values, numpy_dtype(dtype)))

    # Running.

    @property
    def wide(self) -> bool:
        """Whether the framework has 64-bit types. JAX has them only if `jax_enable_x64` is set."""
        return True

    def widen(self) -> None:
        """Turns on 64-bit types for the whole process."""
        raise AssertionError(f"{self!r} always has 64-bit types")

    @property
    def samples(self) -> dict[str, Array]:
        """A 2 x 3 array of every dtype. The check of arguments learns the framework's array type
        and dtype objects from them."""
        return samples(self)

    def runner(self, program: Program, namespace: Namespace, *, jit: bool) -> Any:
        """The object that calls a program's functions. `namespace` runs the generated source and
        returns its names."""
        from .custom import runner  # noqa: PLC0415

        return runner(self, program, namespace(), jit=jit)

    def jit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, compiled by the framework, for `jit=True`. It takes and returns dicts of
        arrays."""
        return function

    def vjp(
        self, function: Callable[[dict[str, Array]], dict[str, Array]], params: dict[str, Array]
    ) -> tuple[dict[str, Array], Callable[[dict[str, Array]], dict[str, Array]]]:
        """The results of `function(params)`, and the pullback by the framework's own gradient: a
        function from gradients of all results to gradients of all params. Without this method, the
        generated source computes the gradients."""
        raise NotImplementedError(f"{type(self).__name__} has no `vjp`")

    def memory(self) -> int | None:
        """The device's memory in bytes; None if it is not known."""
        return host_memory()

    def lacks_memory(self, error: Exception) -> bool:
        """Whether `error` is the framework's error for too little memory."""
        return isinstance(error, MemoryError)

    def lacks_operation(self, error: Exception) -> bool:
        """Whether `error` says that the framework lacks an operation for these dtypes."""
        return False

    @property
    def jit_default(self) -> bool:
        """The default of `jit=`: whether the framework compiles the generated source further."""
        return False
