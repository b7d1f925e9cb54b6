"""The JAX backend: runs generated source under `jax.jit`, on one device or a mesh of devices."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from .._core import DType
from ..errors import BackendError, UsageError
from .base import Backend
from .dtypes import numpy_dtype
from .foreign import shared
from .jax_mesh import (
    MeshJointRunner,
    MeshRunner,
    check_devices_exist,
    framework_mesh,
    give_threads,
    sharding,
)
from .jax_processes import shared_seed, whole
from .jax_runner import JaxRunner
from .joint import JointRunner
from .meshes import Mesh, Split

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._core import Program
    from ..parts import PartsRunner
    from .arrays import Arrays
    from .base import Namespace
    from .parts_of_files import Place

__all__ = ["JaxBackend"]


class JaxBackend(Backend):
    """Runs models as JAX source. Arrays are `jax.Array`.

    `device` is a platform, with an index if it has several devices: `"cpu"`, `"gpu:1"`; or a
    `jax.Device` of this process. A backend with 64-bit floats turns on JAX's 64-bit types for the
    whole process.

    `device_mesh` arranges JAX's first devices in a grid, by sizes or by names with sizes:
    `(2, 2)`, `{"data": 2, "model": 2}`. Arrays are replicated over it unless they are created with
    `tensor_split=` or `device_mesh=`, and `jax.jit` divides the work. The attribute `device_mesh`
    is the `jax.sharding.Mesh`. In several processes (`jax.distributed.initialize`) each runs the
    same script, and a mesh has devices of all of them. A `jax.sharding.AbstractMesh` describes
    devices that are not there: models are compiled for it, and `jax.jit` can trace their calls.
    """

    kind: ClassVar[str] = "jax"
    module: ClassVar[str] = "jax"
    package: ClassVar[str] = "jax"
    has_meshes: ClassVar[bool] = True

    def _device_types(self) -> dict[str, type]:
        return {"a `jax.Device`": self.framework.Device}

    def _device(self, device: Any) -> Any:
        give_threads(self.framework)
        if self.dtype.bits == 64:
            self.widen()
        self.jnp = self.framework.numpy
        if device is None:
            return None
        if not isinstance(device, str):
            return self._own_device(device)
        platform, _, index = device.partition(":")
        try:
            return self.framework.local_devices(backend=platform)[int(index or 0)]
        except (RuntimeError, IndexError, ValueError) as error:
            have = ", ".join(str(d) for d in self.framework.devices())
            raise BackendError(
                f"JAX has no device `{device}`\n  expected: one of {have}"
            ) from error

    def _own_device(self, device: Any) -> Any:
        """The device, a `jax.Device`. Errors: `BackendError` for one of another process."""
        local = self.framework.local_devices(backend=device.platform)
        if device not in local:
            have = ", ".join(str(own) for own in local)
            raise BackendError(
                f"the device `{device}` is one of another process\n  expected: one of {have}"
            )
        self._name_device(device, f"{device.platform}:{local.index(device)}")
        return device

    @property
    def jit_default(self) -> bool:
        return True

    def own_dtype(self, dtype: object) -> Any:
        return numpy_dtype(DType(dtype))

    def _function(self, name: str) -> Callable[..., Any]:
        if name == "topk":
            return partial(_topk, self.framework.lax, self.jnp)
        function: Callable[..., Any] = getattr(
            self.jnp, "concatenate" if name == "concat" else name
        )
        return function

    def from_numpy(self, array: NDArray[Any]) -> Any:
        return self._put(array, self._home)

    def from_call(self, array: NDArray[Any]) -> Any:
        """An array of one device, also with a mesh: the layout is that of the argument's name."""
        return self._put(array, self.device)

    def _put(self, array: NDArray[Any], home: Any) -> Any:
        """An array on a device, or with a sharding, of which each process puts its own parts."""
        own = narrow(self.framework, array)
        if home is None or self.mesh is None or self.framework.process_count() == 1:
            return self.framework.device_put(own, home)
        return self.framework.make_array_from_callback(own.shape, home, own.__getitem__)

    @cached_property
    def _home(self) -> Any:
        """Where arrays lie for which nothing else is said."""
        is_there = self.mesh is not None and not self.is_abstract
        return self._sharding(()) if is_there else self.device

    def _checked_mesh(self, given: Any, device: object) -> Mesh | None:
        # Whoever has such a mesh has imported JAX.
        sharding = getattr(sys.modules.get("jax"), "sharding", None)
        self.is_abstract = isinstance(given, getattr(sharding, "AbstractMesh", ()))
        if self.is_abstract:
            given = dict(zip(given.axis_names, given.axis_sizes))
        return super()._checked_mesh(given, device)

    def _framework_mesh(self, mesh: Mesh) -> Any:
        if self.is_abstract:
            return self.framework.sharding.AbstractMesh(mesh.sizes, mesh.names)
        return framework_mesh(self.framework, mesh)

    def _identity(self) -> tuple[object, ...]:
        return (*super()._identity(), self.is_abstract)

    def _sharding(self, split: Split) -> Any:
        assert self.mesh is not None
        return sharding(self.framework, self.device_mesh, self.mesh, split)

    def _divided(self, array: Any, split: Split) -> Any:
        check_devices_exist(self)
        if not self.is_array(array):
            return self._put(array, self._sharding(split))
        if self.framework.process_count() > 1 and array.is_fully_addressable:
            return self._put(self.to_numpy(array), self._sharding(split))
        return self.framework.device_put(array, self._sharding(split))

    def _read(self, place: Place, split: Split) -> Any:
        check_devices_exist(self)
        return self._read_to(place, self._sharding(split))

    def read_on_stage(self, place: Place, axis: str, at: int) -> Any:
        if self.framework.process_count() > 1:
            return self.read(place, self.along(axis, place.shape))
        return self._read_to(place, self.stage_sharding(axis, at))

    def stage_sharding(self, axis: str, at: int) -> Any:
        """The devices at one place along a mesh axis, which each have the whole array."""
        mesh, sharding = self.device_mesh, self.framework.sharding
        devices = mesh.devices.take([at], mesh.axis_names.index(axis))
        own = sharding.Mesh(devices, mesh.axis_names)
        return sharding.NamedSharding(own, sharding.PartitionSpec())

    def along(self, axis: str, shape: tuple[int, ...]) -> dict[str, int]:
        """How a param is divided along the axis of the stages in several processes, if it can be: a
        process cannot have arrays that lie on devices of others alone."""
        ranks = self.device_mesh.shape[axis]
        even = [own for own, size in enumerate(shape) if size and size % ranks == 0]
        return {axis: even[0]} if even else {}

    def _read_to(self, place: Place, sharding: Any) -> Any:
        mapped, jax = place.mapped(), self.framework
        return jax.make_array_from_callback(
            place.shape, sharding, lambda index: narrow(jax, mapped[index])
        )

    def _placed_like(self, array: NDArray[Any], like: Any) -> Any:
        if self.mesh is None or not self.is_array(like) or not self.is_readable(like):
            return self.from_numpy(array)
        return self._put(array, like.sharding)

    def recorded(self, runner: PartsRunner) -> Callable[..., Any]:
        if runner.kinds == {self.kind}:
            return runner.forward

        def forward(params: Any, inputs: Any, state: Any = None) -> Any:
            arrays = (*params.values(), *inputs.values(), *(state or {}).values())
            if not all(map(self.is_readable, arrays)):
                raise UsageError(
                    "JAX cannot transform a model whose parts run on other backends"
                    f"\n  got: {runner.others}\n  hint: give `output_gradients` for its gradients"
                )
            return runner.forward(params, inputs, state)

        return forward

    def receive(self, array: Any) -> Any:
        jax = self.framework
        if isinstance(array, jax.core.Tracer):
            return jax.device_put(array, self.home)
        if not self.is_array(array):
            own = shared(self.jnp.from_dlpack, array)
            array = self.from_numpy(self._as_numpy(array)) if own is None else own
        is_here = len(array.devices()) > 1 or array.devices() == {self.home}
        return array if is_here else jax.device_put(array, self.home)

    @property
    def home(self) -> Any:
        return self.device or self.framework.local_devices()[0]

    def host_source(self, x: str, dtype: str) -> str:
        return f"np.asarray({x}, np.float32)" if dtype == "bfloat16" else f"np.asarray({x})"

    def from_host_source(self, x: str, dtype: str) -> str:
        own = f"jnp.asarray({x}, jnp.bfloat16)" if dtype == "bfloat16" else f"jnp.asarray({x})"
        return own if self.device is None else self._moved_source(own)

    def receive_source(self, x: str, dtype: str, source: Arrays) -> str | None:
        if source.kind == self.kind:
            return self._moved_source(x)
        return super().receive_source(x, dtype, source)

    def _moved_source(self, x: str) -> str:
        if self.device is None:
            return f"jax.device_put({x}, jax.devices()[0])"
        platform = self.device.platform
        index = self.framework.local_devices(backend=platform).index(self.device)
        return f'jax.device_put({x}, jax.devices("{platform}")[{index}])'

    def is_readable(self, value: object) -> bool:
        return super().is_readable(value) and not isinstance(value, self.framework.core.Tracer)

    def is_array(self, value: object) -> bool:
        return isinstance(value, self.framework.Array)

    def to_numpy(self, array: Any) -> NDArray[Any]:
        if self.is_array(array) and array.size == 0:
            import numpy as np  # noqa: PLC0415

            # JAX cannot put the parts of a divided array without elements together.
            return np.empty(array.shape, array.dtype)
        return super().to_numpy(whole(array) if self.is_array(array) else array)

    def set_seed(self, seed: int | None) -> None:
        if seed is None and self.mesh is not None and self.framework.process_count() > 1:
            seed = shared_seed()
        super().set_seed(seed)

    def memory(self) -> int | None:
        return super().memory() if self.home.platform == "cpu" else None

    def lacks_memory(self, error: Exception) -> bool:
        return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)

    @property
    def wide(self) -> bool:
        return bool(self.framework.config.jax_enable_x64)

    def widen(self) -> None:
        self.framework.config.update("jax_enable_x64", True)

    def runner(
        self, program: Program, namespace: Namespace, *, jit: bool
    ) -> JaxRunner | JointRunner:
        # The source alone takes JAX's first devices.
        own = namespace(given={} if self.mesh is None else {"mesh": self.device_mesh})
        if self.mesh is not None:
            kind = MeshJointRunner if program.own_gradients else MeshRunner
            on_mesh = kind(self, own, jit=jit)
            if "conv_general_dilated" in program.source:
                on_mesh.keep_images_whole()
            return on_mesh
        if program.own_gradients:
            return JointRunner(self, own, compiled=self.framework.jit if jit else None)
        return JaxRunner(self, own, jit=jit)


def narrow(jax: Any, array: NDArray[Any]) -> NDArray[Any]:
    """Casts 64-bit integers to 32 bits if JAX's 64-bit types are off; JAX would warn about it."""
    if jax.config.jax_enable_x64 or array.dtype.itemsize != 8 or array.dtype.kind not in "iu":
        return array
    return array.astype(f"{array.dtype.kind}4")


def _topk(lax: Any, jnp: Any, array: Any, k: int, axis: int = -1) -> tuple[Any, Any]:
    values, indices = lax.top_k(jnp.moveaxis(array, axis, -1), k)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(indices, -1, axis)
