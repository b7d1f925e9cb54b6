"""The base class of all backends: dtypes, devices, seeds, and the table of array functions."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .._core import DType, Target
from ..errors import BackendError, UsageError, shown
from ..memory import host_memory
from . import BUILT_IN
from .arrays import Arrays
from .dtypes import samples
from .functions import ALIASES, FUNCTIONS, topk_by_sort
from .meshes import Mesh, Sizes, no_meshes

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Self

    from .._core import Program
    from ..parts import PartsRunner

__all__ = ["Backend"]

Array = Any
Namespace = Callable[..., "dict[str, Any]"]


def _unpickled(of: type[Backend], args: tuple[Any, ...], options: dict[str, Any]) -> Backend:
    """Makes a backend when it is unpickled."""
    return of(*args, **options)


class Backend(Arrays):
    """A framework, a dtype and a device for compiled models.

    Besides the methods below, a backend has the array functions listed in
    `mithril.backends.functions.FUNCTIONS`. They take and return the framework's own arrays.

    `dtype` is the floating-point type of the models compiled for this backend and of the arrays
    that it makes: a name such as `ml.float32` or `"float32"`, or a dtype of a framework.
    `precision=16|32|64` selects the float of that width in bits.

    Two backends are equal if their classes, dtypes, devices, meshes and options are equal. Copies
    and pickles include the state of the random numbers.
    """

    module: ClassVar[str]
    """The name of the module to import. `package` is the name to install it by; by default, it is
    the first part of the module's."""
    package: ClassVar[str] = ""
    checkpoints: bool = False
    """Whether all models are compiled as with `gradient_checkpointing=True`."""
    in_place: str = "none"
    """Which operations of the source write their result into an operand that nothing else reads:
    `"none"`, `"one"` (those on a single array) or `"all"`."""
    mixed_precision: bool = False
    """Whether models run in mixed precision, in which the framework chooses dtypes."""
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
        device: Any = None,
        device_mesh: Sizes | None = None,
        **unknown: object,
    ) -> None:
        """Errors: `UsageError` for an unknown option, an invalid mesh, or a device of another type;
        `BackendError` for a framework that is not installed, or for a dtype, device or mesh that
        the framework does not have."""
        self._refuse_unknown(unknown)
        self.mesh = self._checked_mesh(device_mesh, device)
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
        self._check_device_type(device)
        self.device = self._device(device)
        self.device_mesh: Any = None if self.mesh is None else self._framework_mesh(self.mesh)
        self.set_seed(None)
        if self.kind not in BUILT_IN:
            from .custom import check_arrays  # noqa: PLC0415

            check_arrays(self)

    def _refuse_unknown(self, unknown: dict[str, object]) -> None:
        if not unknown:
            return
        from .._core import did_you_mean  # noqa: PLC0415

        name = next(iter(unknown))
        meshes = ["device_mesh"] if self.has_meshes else []
        known = ["dtype", "precision", "device", *meshes, *self._options()]
        near = did_you_mean(name, known)
        hint = f"\n  hint: {near}" if near else ""
        raise UsageError(
            f"{type(self).__name__} has no option `{name}`"
            f"\n  expected: {', '.join(f'`{k}`' for k in known)}{hint}"
        )

    def _options(self) -> tuple[str, ...]:
        """The constructor's options other than dtype, precision, device and device_mesh."""
        return ()

    def compile_options(self) -> dict[str, Any]:
        """Further options that the generated code depends on, as keywords of the compiler."""
        if self.mesh is None:
            return {}
        return {"mesh": list(zip(self.mesh.names, self.mesh.sizes))}

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

    def _checked_mesh(self, given: Sizes | None, device: object) -> Mesh | None:
        """The mesh for `device_mesh=`. Errors: the backend has none, or also has a device."""
        if given is None:
            return None
        if not self.has_meshes:
            raise no_meshes(type(self).__name__, given)
        mesh = Mesh.of(given)
        if device is not None:
            raise UsageError(
                "`device` and `device_mesh` cannot both be given"
                f"\n  got: device={str(device)!r} and device_mesh={mesh}\n  expected: one of them"
            )
        return mesh

    def without_history(self, array: Array) -> Array:
        """The array without what the framework recorded to compute gradients."""
        return array

    def written(self, source: str) -> str:
        """The source of a model, as it is shown and run."""
        return source

    def settled(self, array: Array, dtype: str) -> Array:
        """An array that a model computed, in the dtype that the model states."""
        return array

    def recorded(self, runner: PartsRunner) -> Callable[..., Any]:
        """The forward pass of a model whose parts run on several backends, whose gradients the
        framework's own functions can compute.

        Errors: the call raises `UsageError` if the framework cannot do this.
        """
        return runner.forward

    def _framework_mesh(self, mesh: Mesh) -> Any:
        """The framework's mesh. Errors: `BackendError` if there are not enough devices."""
        raise NotImplementedError(f"{type(self).__name__} has no device meshes")

    def _device_types(self) -> dict[str, type]:
        """The framework's own types of devices that `device=` takes, by name."""
        return {}

    def _check_device_type(self, device: object) -> None:
        """Errors: `UsageError` for a device that is neither text nor of a type of the framework."""
        own = self._device_types()
        takes = isinstance(device, (str, *own.values())) and not isinstance(device, bool)
        # A class of another package may take anything.
        is_own = type(self)._device.__module__.rpartition(".")[0] != __package__
        if device is None or takes or is_own:
            return
        *first, last = ["a string", *own]
        expected = f"{', '.join(first)} or {last}" if first else last
        raise UsageError(
            f"`device` of {type(self).__name__} has a wrong type\n  got: {shown(device)}"
            f"\n  expected: {expected}"
        )

    def _name_device(self, device: object, text: str) -> None:
        """Replaces a device of the framework by its name in the arguments that copies and pickles
        are made from: such devices have no pickles."""
        args, options = self._given
        self._given = (
            tuple(text if own is device else own for own in args),
            {name: text if own is device else own for name, own in options.items()},
        )

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
        mesh = "" if self.mesh is None else f", device_mesh={self.mesh}"
        return f"{type(self).__name__}(dtype={self.dtype.name}{where}{mesh})"

    # Equality, copies and pickles depend on the arguments of the constructor.

    def _identity(self) -> tuple[object, ...]:
        args, options = self._given
        bound = inspect.signature(type(self).__init__).bind(self, *args, **options)
        bound.apply_defaults()
        compared = ("self", "dtype", "precision", "device", "device_mesh", "unknown")
        rest = {name: value for name, value in bound.arguments.items() if name not in compared}
        return (type(self), self.dtype.name, str(self.device), self.mesh, rest)

    def __eq__(self, other: object) -> bool:
        """Whether `other` is a backend of the same class, dtype, device, mesh and options."""
        if not isinstance(other, Backend):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity()[:4])

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

    @property
    def home(self) -> Any:
        """The device to which `receive` moves arrays; None if the framework decides."""
        return self.device

    def at(self, device: str) -> Self:
        """The same backend on another device. Errors: `BackendError` for an unknown device."""
        args, options = self._given
        return type(self)(*args, **{**options, "device": device})  # type: ignore[arg-type]

    def key_words(self, key: Array) -> Array:
        """The two 32-bit words of a key of `jax.random.key`; other values unchanged."""
        jax: Any = sys.modules.get("jax")
        is_array = jax is not None and isinstance(key, jax.Array)
        if not is_array or not jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
            return key
        words = jax.random.key_data(key)
        return words if self.is_array(words) else self.array(words)

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
        raise BackendError(
            f"{type(self).__name__} has no `vjp` of its own"
            "\n  hint: `evaluate_gradients` of a compiled model computes gradients"
        )

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
