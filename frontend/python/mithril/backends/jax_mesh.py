"""Device meshes of JAX, and calls of generated source on arrays that are divided over a mesh."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import BackendError
from .jax_processes import check_devices
from .jax_runner import JaxRunner
from .joint import JointRunner
from .meshes import Mesh, Split

if TYPE_CHECKING:
    from .jax import JaxBackend

__all__ = [
    "MeshJointRunner",
    "MeshRunner",
    "check_devices_exist",
    "framework_mesh",
    "give_threads",
    "sharding",
]

Arrays = dict[str, Any]
Shardings = tuple[tuple[str, Any], ...]
"""Names of arrays with their shardings. It can be hashed, so it can be a static argument."""


def give_threads(jax: Any) -> None:
    """Lets XLA start four threads for each device that it simulates on the CPU. It reads this
    before it makes the devices.

    A device may run several independent collectives at a time. With a thread for each device, which
    is what XLA starts on a small machine, all of them may wait for different collectives, and XLA
    ends the process after 40 s.
    """
    flag = r"--xla_force_host_platform_device_count=(\d+)"
    found = [1, *map(int, re.findall(flag, os.environ.get("XLA_FLAGS", "")))]
    devices = max(found[-1], getattr(jax.config, "jax_num_cpu_devices", 1))
    if devices > 1 and "NPROC" not in os.environ:
        threads = max(os.cpu_count() or 1, 4 * devices)
        os.environ.setdefault("PJRT_NPROC", str(threads))


def framework_mesh(jax: Any, mesh: Mesh) -> Any:
    """JAX's mesh over its first devices. Errors: `BackendError` if there are not enough."""
    import numpy as np  # noqa: PLC0415

    devices = jax.devices()
    if len(devices) < mesh.devices:
        hint = ""
        if devices[0].platform == "cpu":
            flag = f"XLA_FLAGS=--xla_force_host_platform_device_count={mesh.devices}"
            hint = f"\n  hint: set `{flag}` in the environment before JAX starts"
        raise BackendError(
            f"JAX has fewer devices than the mesh {mesh}\n  got: {len(devices)} "
            f"({devices[0].platform})\n  expected: at least {mesh.devices}{hint}"
        )
    check_devices(jax, mesh, devices[: mesh.devices])
    grid = np.array(devices[: mesh.devices], object).reshape(mesh.sizes)
    return jax.sharding.Mesh(grid, mesh.names)


def check_devices_exist(backend: JaxBackend) -> None:
    """Errors: `BackendError` if the backend's mesh is abstract."""
    if backend.is_abstract:
        raise BackendError(
            f"the mesh {backend.mesh} is abstract: no device of it can hold arrays"
            "\n  hint: describe arrays by `jax.ShapeDtypeStruct`, and trace a call by "
            "`jax.jit(compiled.evaluate).trace(params, inputs)`"
        )


def sharding(jax: Any, device_mesh: Any, mesh: Mesh, split: Split) -> Any:
    """The sharding of an array that is divided in this way."""
    divided = [axis for axis in split if axis is not None]
    axes = [tuple(mesh.divisors(split, axis)) for axis in range(max(divided, default=-1) + 1)]
    # JAX writes one name without a tuple, and compares specs as they are written.
    entries = [None if not names else names[0] if len(names) == 1 else names for names in axes]
    return jax.sharding.NamedSharding(device_mesh, jax.sharding.PartitionSpec(*entries))


class Places:
    """Moves arrays of a call to the mesh, and gives results the shardings of arguments."""

    def __init__(self, backend: JaxBackend) -> None:
        self._jax = backend.framework
        self._backend = backend
        there = () if backend.is_abstract else backend.device_mesh.devices.flat
        self._devices = frozenset(there)
        self.splits: Mapping[str, Any] = {}
        self.has_images = False
        """Whether the program has convolutions."""

    def images(self, arrays: Arrays) -> Arrays:
        """The inputs on the mesh, without a division of the axes of images: XLA (JAX 0.10) computes
        wrong convolutions if height or width is divided and a mesh axis is left over."""
        arrays = self.moved(arrays)
        if not self.has_images:
            return arrays
        return {name: self._with_whole_images(array) for name, array in arrays.items()}

    def _with_whole_images(self, array: Any) -> Any:
        if isinstance(array, self._jax.core.Tracer) or array.ndim < 3:
            return array
        spec = getattr(array.sharding, "spec", ())
        if not any(spec[2:]):
            return array
        own = self._jax.sharding
        whole = own.NamedSharding(self._backend.device_mesh, own.PartitionSpec(*spec[:2]))
        return self._jax.device_put(array, whole)

    def moved(self, arrays: Arrays) -> Arrays:
        """The arrays, with those of a single device divided over the mesh by their splits.

        Errors: `BackendError` for an array that is divided over other devices.
        """
        away = {name: a for name, a in arrays.items() if not self._is_on_mesh(a)}
        return {**arrays, **{name: self._divided(name, a) for name, a in away.items()}}

    def _is_on_mesh(self, array: Any) -> bool:
        if isinstance(array, self._jax.core.Tracer):
            return True  # the function that is being traced decides
        return bool(array.sharding.device_set == self._devices)

    def _divided(self, name: str, array: Any) -> Any:
        held = array.sharding.device_set
        if len(held) > 1:
            raise BackendError(
                f"`{name}` lies on other devices than the mesh of {self._backend!r}"
                f"\n  got: {_listed(held)}\n  expected: {_listed(self._devices)}"
                "\n  hint: `backend.shard(array)` moves it"
            )
        split, mesh = self.splits.get(name), self._backend.mesh
        if split and mesh is not None:
            mesh.split(array.shape, None, split, f"`{name}`")
        return self._backend.shard(array, tensor_split=split)

    def shardings(self, arrays: Arrays | None) -> Shardings:
        """The shardings of the arrays whose elements are known now."""
        known = {} if arrays is None else arrays
        tracer = self._jax.core.Tracer
        return tuple((n, a.sharding) for n, a in known.items() if not isinstance(a, tracer))

    def constrained(self, arrays: Any, shardings: Shardings) -> Any:
        """The arrays, with the shardings that are given for their names."""
        if not arrays:
            return arrays
        constraint = self._jax.lax.with_sharding_constraint
        given = {name: own for name, own in shardings if name in arrays}
        return {**arrays, **{name: constraint(arrays[name], own) for name, own in given.items()}}


def _listed(devices: Any) -> str:
    names = sorted(str(device) for device in devices)
    return ", ".join(names[:8]) + (f", … ({len(names)})" if len(names) > 8 else "")


class MeshRunner(JaxRunner):
    """Calls generated source on a mesh. XLA's partitioner decides where inner values and outputs
    lie; gradients lie as their params do, and next states as the states before them."""

    def __init__(self, backend: JaxBackend, namespace: dict[str, Any], *, jit: bool) -> None:
        super().__init__(backend, namespace, jit=jit)
        self._places = Places(backend)
        jax = backend.framework

        def compiled(function: Callable[..., Any], static: int) -> Callable[..., Any]:
            return partial(jax.jit, static_argnums=static)(function) if jit else function

        self._whole = self.forward
        self._next = compiled(self._forward_with_state, 3)
        self._joint_on_mesh = compiled(self._constrained_joint, 4)
        self._pullback_on_mesh = compiled(self._constrained_pullback, 2)
        self.forward = self._forward

    def divide(self, splits: Mapping[str, Any]) -> None:
        """Sets how arrays that do not lie on the mesh are divided, by name."""
        self._places.splits = splits

    def keep_images_whole(self) -> None:
        """Sets that the program has convolutions."""
        self._places.has_images = True

    def _forward(self, params: Arrays, inputs: Arrays, state: Arrays | None = None) -> Any:
        params, inputs = self._places.moved(params), self._places.images(inputs)
        if state is None:
            return self._whole(params, inputs)
        state = self._places.moved(state)
        return self._next(params, inputs, state, self._places.shardings(state))

    def _forward_with_state(self, params: Any, inputs: Any, state: Any, own: Shardings) -> Any:
        outputs, following = self._raw(params, inputs, state)
        return outputs, self._places.constrained(following, own)

    def _constrained_joint(
        self, params: Any, inputs: Any, state: Any, seeds: Any, own: tuple[Shardings, Shardings]
    ) -> tuple[Any, Any, Any]:
        outputs, gradients, following = self._joint(params, inputs, state, seeds)
        gradients = self._places.constrained(gradients, own[0])
        return outputs, gradients, self._places.constrained(following, own[1])

    def _constrained_pullback(self, pullback: Any, seeds: Any, own: Shardings) -> Any:
        return self._places.constrained(pullback(seeds)[0], own)

    def gradients(self, params: Any, inputs: Any, state: Any, seeds: Any) -> tuple[Any, Any, Any]:
        """Returns outputs, gradients by param, and the next state."""
        places = self._places
        params, inputs = places.moved(params), places.images(inputs)
        state = None if state is None else places.moved(state)
        own = places.shardings(params), places.shardings(state)
        arrays = seeds.arrays
        if arrays is not None:
            arrays = places.moved(arrays)
            result: tuple[Any, Any, Any] = self._joint_on_mesh(params, inputs, state, arrays, own)
            return result
        pullback, outputs, following = self._forward_with_pullback(params, inputs, state)
        given = places.moved(self._full(seeds.of(outputs), outputs))
        gradients = self._pullback_on_mesh(pullback, given, own[0])
        return outputs, gradients, places.constrained(following, own[1])


class MeshJointRunner(JointRunner):
    """Calls generated source that computes the gradients, on a mesh. Gradients are moved to where
    their params lie."""

    def __init__(self, backend: JaxBackend, namespace: dict[str, Any], *, jit: bool) -> None:
        super().__init__(backend, namespace, compiled=backend.framework.jit if jit else None)
        self._places = Places(backend)
        self._whole = self.forward
        self.forward = self._forward

    def divide(self, splits: Mapping[str, Any]) -> None:
        """Sets how arrays that do not lie on the mesh are divided, by name."""
        self._places.splits = splits

    def keep_images_whole(self) -> None:
        """Sets that the program has convolutions."""
        self._places.has_images = True

    def _forward(self, params: Arrays, inputs: Arrays, *state: Arrays) -> Any:
        places = self._places
        following = (places.moved(own) for own in state)
        return self._whole(places.moved(params), places.images(inputs), *following)

    def gradients(self, params: Any, inputs: Any, state: Any, seeds: Any) -> tuple[Any, Any, Any]:
        """Returns outputs, gradients by param, and the next state."""
        places = self._places
        params, inputs = places.moved(params), places.images(inputs)
        state = None if state is None else places.moved(state)
        outputs, gradients, following = super().gradients(params, inputs, state, seeds)
        gradients = places.constrained(gradients, places.shardings(params))
        return outputs, gradients, places.constrained(following, places.shardings(state))
