"""The arrays of a backend: creation, conversion, random numbers, and places on a device mesh."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .._core import DType
from ..errors import MithrilError, UsageError, shown
from .dtypes import numpy_dtype
from .meshes import Mesh, Sizes, Split, TensorSplit, no_mesh, no_meshes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .parts_of_files import Place

__all__ = ["Arrays", "sizes"]

Array = Any


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


class Arrays(ABC):
    """Functions that create and convert arrays of a framework.

    On a backend with a device mesh, `tensor_split` says how an array that is created is divided:
    entry i is the axis of the array that mesh axis i divides, or None. `device_mesh` has the size
    of each mesh axis that takes part, and 1 for the others; by default all take part. Without
    `tensor_split`, mesh axis i divides axis i of the array. Both may be dicts by name of a mesh
    axis. Along mesh axes that divide nothing, an array is replicated. Without both keywords, it is
    replicated over the whole mesh.

    Errors of both: `UsageError` if they do not fit the mesh; `ShapeError` for an axis that the
    array does not have or that cannot be divided evenly; `BackendError` on a backend whose
    framework has no meshes.
    """

    kind: ClassVar[str]
    """The name of the target in Mithril."""
    has_meshes: ClassVar[bool] = False
    """Whether the backend takes `device_mesh=`."""

    dtype: DType
    framework: Any
    mesh: Mesh | None
    """The names and sizes of the axes of the device mesh, if the backend has one."""
    _seed: int | None
    _generator: np.random.Generator | None

    # Methods that differ between frameworks.

    def own_dtype(self, dtype: object) -> Any:
        """The framework's dtype for `dtype`."""
        return getattr(self.framework, DType(dtype).name)

    @abstractmethod
    def _function(self, name: str) -> Callable[..., Array]:
        """The framework's function that implements `name` of the backend's table of functions."""

    @abstractmethod
    def from_numpy(self, array: NDArray[Any]) -> Array:
        """Converts to an array of the framework with the same elements and dtype, on the backend's
        device."""

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """Converts an array of any framework to a NumPy array of the same dtype (bfloat16 is that
        of `ml_dtypes`)."""
        import numpy as np  # noqa: PLC0415

        return np.asarray(array) if self.is_array(array) else self._as_numpy(array)

    def from_call(self, array: NDArray[Any]) -> Array:
        """Converts a NumPy array that was given to a call, before the call is checked."""
        return self.from_numpy(array)

    @property
    def is_remote(self) -> bool:
        """Whether `from_call` leaves arrays in the host's memory, and `receive` moves them."""
        return False

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

    # The same in generated source: Python expressions of an array `x`. None if there is none.

    def host_source(self, x: str, dtype: str) -> str | None:
        """A NumPy array of an array of the framework; in single precision for bfloat16."""
        return None

    def from_host_source(self, x: str, dtype: str) -> str | None:
        """An array of the framework, of what `host_source` gives."""
        return None

    def receive_source(self, x: str, dtype: str, source: Arrays) -> str | None:
        """An array of the framework, of an array of another backend."""
        host = source.host_source(x, dtype)
        return None if host is None else self.from_host_source(host, dtype)

    def array(
        self,
        value: object,
        dtype: object = None,
        *,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
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
            return self._placed(taken.copy(), device_mesh, tensor_split)
        return self._placed(taken.astype(numpy_dtype(want)), device_mesh, tensor_split)

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

    def full(
        self,
        shape: int | Sequence[int],
        value: float,
        dtype: object = None,
        *,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
        """An array filled with one value."""
        filled = _filled(sizes((shape,)), value, self.dtype if dtype is None else DType(dtype))
        return self._placed(filled, device_mesh, tensor_split)

    def zeros(
        self,
        *shape: int | Sequence[int],
        dtype: object = None,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
        """An array of zeros, with its sizes given as `zeros(2, 3)` or `zeros([2, 3])`."""
        place: Any = {"device_mesh": device_mesh, "tensor_split": tensor_split}
        return self.full(sizes(shape), 0, dtype, **place)

    def ones(
        self,
        *shape: int | Sequence[int],
        dtype: object = None,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
        """An array of ones, with its sizes given as `ones(2, 3)` or `ones([2, 3])`."""
        place: Any = {"device_mesh": device_mesh, "tensor_split": tensor_split}
        return self.full(sizes(shape), 1, dtype, **place)

    def full_like(
        self,
        array: Array,
        value: float,
        dtype: object = None,
        *,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
        """An array filled with one value, with the shape and dtype of `array`, and divided over the
        mesh as `array` is."""
        filled = _filled(tuple(array.shape), value, DType(dtype or array.dtype))
        if device_mesh is None and tensor_split is None:
            return self._placed_like(filled, array)
        return self._placed(filled, device_mesh, tensor_split)

    def zeros_like(
        self,
        array: Array,
        dtype: object = None,
        *,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
        """Zeros with the shape, dtype and place of `array`."""
        place: Any = {"device_mesh": device_mesh, "tensor_split": tensor_split}
        return self.full_like(array, 0, dtype, **place)

    def ones_like(
        self,
        array: Array,
        dtype: object = None,
        *,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
        """Ones with the shape, dtype and place of `array`."""
        place: Any = {"device_mesh": device_mesh, "tensor_split": tensor_split}
        return self.full_like(array, 1, dtype, **place)

    def arange(
        self,
        start: float,
        stop: float | None = None,
        step: float = 1,
        dtype: object = None,
        *,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
        """Numbers from `start` up to but excluding `stop`; one argument is `stop`, from 0."""
        import numpy as np  # noqa: PLC0415

        if stop is None:
            start, stop = 0, start
        values = np.arange(start, stop, step)
        return self.array(values, dtype, device_mesh=device_mesh, tensor_split=tensor_split)

    def linspace(
        self,
        start: float,
        stop: float,
        num: int = 50,
        dtype: object = None,
        *,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
        """`num` evenly spaced numbers, including both ends."""
        import numpy as np  # noqa: PLC0415

        place: Any = {"device_mesh": device_mesh, "tensor_split": tensor_split}
        return self.array(np.linspace(start, stop, num), dtype or self.dtype, **place)

    def eye(
        self,
        n: int,
        m: int | None = None,
        k: int = 0,
        dtype: object = None,
        *,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
        """A matrix of `n` rows and `m` columns with ones on the diagonal `k`, zeros elsewhere."""
        import numpy as np  # noqa: PLC0415

        place: Any = {"device_mesh": device_mesh, "tensor_split": tensor_split}
        return self.array(np.eye(n, m, k), dtype or self.dtype, **place)

    # Places on a device mesh.

    def shard(
        self,
        array: Array,
        *,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
        pad: float | None = None,
    ) -> Array:
        """Divides an array of any framework over the device mesh, with its dtype. Without
        `device_mesh` and `tensor_split`, it is replicated.

        An axis that cannot be divided into equal parts is an error. `pad` is a number that fills
        up such axes at their ends, for example the last batch of an epoch.
        """
        if self.mesh is None:
            raise self._no_mesh(device_mesh, tensor_split)
        taken = array if self.is_array(array) else self._as_numpy(array)
        if device_mesh is None and tensor_split is None:
            tensor_split = ()
        if pad is not None:
            taken = self._filled_up(
                taken, self.mesh.padded(tuple(taken.shape), device_mesh, tensor_split), pad
            )
        return self._divided(taken, self._split(taken.shape, device_mesh, tensor_split))

    def _filled_up(self, array: Array, shape: Sequence[int], value: float) -> Array:
        """The array with elements of this value at the ends of axes, up to this shape."""
        import numpy as np  # noqa: PLC0415

        widths = [(0, want - size) for size, want in zip(array.shape, shape)]
        if not any(after for _, after in widths):
            return array
        pad = self._function("pad") if self.is_array(array) else np.pad
        return pad(array, widths, constant_values=value)

    def read(self, place: Place, tensor_split: TensorSplit) -> Array:
        """The param at this place of a file, divided over the device mesh."""
        return self.as_param(self._read(place, self._split(place.shape, None, tensor_split)))

    def read_on_stage(self, place: Place, axis: str, at: int) -> Array:
        """The param at this place of a file, on the devices at one place along a mesh axis."""
        raise NotImplementedError(f"{type(self).__name__} has no device meshes")

    def _read(self, place: Place, split: Split) -> Array:
        raise NotImplementedError(f"{type(self).__name__} has no device meshes")

    def _placed(
        self,
        array: NDArray[Any],
        device_mesh: Sizes | None,
        tensor_split: TensorSplit | None,
    ) -> Array:
        """Converts to an array of the framework, divided over the mesh if a keyword is given."""
        if device_mesh is None and tensor_split is None:
            return self.from_numpy(array)
        return self._divided(array, self._split(array.shape, device_mesh, tensor_split))

    def _split(
        self,
        shape: Sequence[int],
        device_mesh: Sizes | None,
        tensor_split: TensorSplit | None,
    ) -> Split:
        if self.mesh is None:
            raise self._no_mesh(device_mesh, tensor_split)
        return self.mesh.split(tuple(shape), device_mesh, tensor_split)

    def _no_mesh(self, device_mesh: object, tensor_split: object) -> MithrilError:
        if not self.has_meshes:
            return no_meshes(type(self).__name__, device_mesh, tensor_split)
        return no_mesh(self, device_mesh, tensor_split)

    def _divided(self, array: Array, split: Split) -> Array:
        """Divides an array of the framework, or of NumPy, over the mesh."""
        raise NotImplementedError(f"{type(self).__name__} has no device meshes")

    def _placed_like(self, array: NDArray[Any], like: Array) -> Array:
        """Converts to an array of the framework that is divided as `like` is."""
        return self.from_numpy(array)

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

    def rand(
        self,
        *shape: int | Sequence[int],
        dtype: object = None,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
        """Uniformly distributed numbers in [0, 1). They do not depend on the mesh."""
        place: Any = {"device_mesh": device_mesh, "tensor_split": tensor_split}
        return self.array(self.generator.random(sizes(shape)), dtype or self.dtype, **place)

    def randn(
        self,
        *shape: int | Sequence[int],
        dtype: object = None,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
        """Numbers from the standard normal distribution. They do not depend on the mesh."""
        place: Any = {"device_mesh": device_mesh, "tensor_split": tensor_split}
        drawn = self.generator.standard_normal(sizes(shape))
        return self.array(drawn, dtype or self.dtype, **place)

    def randint(
        self,
        low: int,
        high: int | None = None,
        size: int | Sequence[int] = (),
        dtype: object = "int64",
        *,
        device_mesh: Sizes | None = None,
        tensor_split: TensorSplit | None = None,
    ) -> Array:
        """Integers from `low` up to but excluding `high`; one argument is `high`, from 0. They do
        not depend on the mesh."""
        drawn = self.generator.integers(low, high, sizes((size,)))
        return self.array(drawn, dtype, device_mesh=device_mesh, tensor_split=tensor_split)

    def random_key(self) -> Array:
        """A random key for a model: two 32-bit words."""
        import numpy as np  # noqa: PLC0415

        return self.from_numpy(self.generator.integers(2**32, size=2, dtype=np.uint32))

    def initial(self, values: float | np.ndarray, shape: tuple[int, ...], dtype: DType) -> Array:
        """A new array, filled with one number or with the elements of a NumPy array."""
        import numpy as np  # noqa: PLC0415

        given = np.asarray(values)
        order: Any = "F" if given.flags.fnc else "C"
        array = _aligned(shape, np.dtype(numpy_dtype(dtype)), order)
        array[...] = given
        return self.from_numpy(array)


def _aligned(shape: tuple[int, ...], dtype: Any, order: Literal["C", "F"]) -> NDArray[Any]:
    """A new NumPy array that begins at a multiple of 64 bytes, as arrays of PyTorch and JAX do:
    kernels read it faster. NumPy's own begin at multiples of 16."""
    import numpy as np  # noqa: PLC0415

    space = np.empty(prod(shape) * dtype.itemsize + 64, np.uint8)
    array: NDArray[Any] = np.ndarray(shape, dtype, space, -space.ctypes.data % 64, order=order)
    return array


def _filled(shape: tuple[int, ...], value: float, dtype: DType) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415

    return np.full(shape, value, dtype=numpy_dtype(dtype))
