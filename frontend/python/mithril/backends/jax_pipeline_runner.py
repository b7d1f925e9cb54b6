"""Calls of a model in stages on a JAX mesh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from ..errors import BackendError
from .jax_layout import Params
from .jax_mesh import Places, Shardings, check_devices_exist
from .jax_pipeline import Pipeline
from .pipeline_runner import PipelineRunner

if TYPE_CHECKING:
    from ..stage_types import PipelineCode
    from .jax import JaxBackend
    from .jax_packs import Vectors

__all__ = ["JaxPipelineRunner"]

Arrays = dict[str, Any]


class JaxPipelineRunner(PipelineRunner):
    """Calls a pipeline under `jax.jit`.

    The params of a stage lie on the devices of its rank. A call joins those of all ranks to the
    arrays of `Params`, and copies only the ones that lie in vectors. In a function that JAX traces,
    and in several processes, params lie on the whole mesh.
    """

    def __init__(self, backend: JaxBackend, code: PipelineCode) -> None:
        super().__init__(backend, code)
        check_devices_exist(backend)
        self._pipeline = own = Pipeline(backend.device_mesh, code)
        self._places = Places(backend)
        self._devices = frozenset(own.mesh.devices.flat)
        self._homes = [backend.stage_sharding(own.axis, place) for place in range(own.ranks)]
        compiled = [
            (
                jax.jit(partial(self._vectors, rank), out_shardings=home),
                jax.jit(partial(self._named, rank), out_shardings=home),
            )
            for rank, home in enumerate(self._homes)
        ]
        self._packs, self._unpacks = zip(*compiled)
        self._gathered_outputs = jax.jit(own.outputs)
        self._gathered_gradients = jax.jit(own.gradients)
        self._whole_outputs = jax.jit(self._with_gradients())
        self._whole_gradients = jax.jit(self._gradients_on_mesh, static_argnums=3)

    def place(self, params: Arrays) -> Arrays:
        """Arrays of the whole mesh on the devices of their stages alone. In several processes, each
        is divided along the axis of the stages instead."""
        if jax.process_count() == 1:
            homes = {n: self._homes[self._code.owner(n, self._pipeline.ranks)] for n in params}
            return {name: jax.device_put(value, homes[name]) for name, value in params.items()}
        shard, along, axis = self._backend.shard, self._backend.along, self._pipeline.axis
        return {n: shard(v, tensor_split=along(axis, v.shape)) for n, v in params.items()}

    def _is_whole(self, *arrays: Arrays) -> bool:
        """Whether the params of a call with these arrays are to lie on the whole mesh."""
        given = (array for own in arrays for array in own.values())
        # `jax.jit` also traces the operations on arrays that its function does not take.
        is_traced = any(map(_is_traced, given)) or _is_traced(jnp.zeros(()))
        return is_traced or jax.process_count() > 1

    def _on_mesh(self, params: Arrays) -> Arrays:
        """The params on the whole mesh."""
        where = NamedSharding(self._pipeline.mesh, PartitionSpec())
        # A function that JAX traces may read params that lie on their stages.
        with jax.ensure_compile_time_eval():
            return {
                name: own if self._is_placed(own) else jax.device_put(own, where)
                for name, own in params.items()
            }

    def _outputs(self, params: Arrays, inputs: Arrays) -> Arrays:
        if self._is_whole(params, inputs):
            found: Arrays = self._whole_outputs(self._on_mesh(params), inputs)
        else:
            found = self._gathered_outputs(self._gathered(params), inputs)
        return found

    def _outputs_and_gradients(
        self, params: Arrays, inputs: Arrays, seeds: Arrays
    ) -> tuple[Arrays, Arrays]:
        if self._is_whole(params, inputs, seeds):
            params = self._on_mesh(params)
            own = self._places.shardings(params)
            found: tuple[Arrays, Arrays] = self._whole_gradients(params, inputs, seeds, own)
            return found
        outputs, gradients = self._gathered_gradients(self._gathered(params), inputs, seeds)
        return outputs, self._scattered(gradients, params)

    def _with_gradients(self) -> Callable[[Arrays, Arrays], Arrays]:
        """The outputs of params on the whole mesh, as a function that `jax.grad` differentiates by
        the params. It computes the outputs once more for the gradients."""

        def forward(params: Any, inputs: Any) -> tuple[Arrays, tuple[Arrays, Arrays]]:
            if any(own.perturbed for own in inputs.values()):
                raise BackendError(
                    "a model in stages has no gradients by its inputs"
                    f"\n  got: {self._backend!r}\n  hint: compile the model without `stages=`"
                )
            own = tuple({n: leaf.value for n, leaf in of.items()} for of in (params, inputs))
            return self._outputs_on_mesh(*own), own  # type: ignore[return-value]

        def backward(own: tuple[Arrays, Arrays], found: Arrays) -> tuple[Arrays, None]:
            zero = jax.custom_derivatives.SymbolicZero
            seeds = {name: seed for name, seed in found.items() if not isinstance(seed, zero)}
            return self._gradients_on_mesh(*own, seeds, ())[1], None

        outputs = jax.custom_vjp(self._outputs_on_mesh)
        outputs.defvjp(forward, backward, symbolic_zeros=True)
        return outputs

    def _outputs_on_mesh(self, params: Arrays, inputs: Arrays) -> Arrays:
        return self._pipeline.outputs(self._pipeline.gathered(params), inputs)

    def _gradients_on_mesh(
        self, params: Arrays, inputs: Arrays, seeds: Arrays, own: Shardings
    ) -> tuple[Arrays, Arrays]:
        """The outputs and gradients of params on the whole mesh, which have these shardings."""
        pipeline = self._pipeline
        outputs, gradients = pipeline.gradients(pipeline.gathered(params), inputs, seeds)
        return outputs, self._places.constrained(pipeline.named(gradients), own)

    # Params on the devices of their ranks. An array of all ranks shares its memory with theirs.

    def _vectors(self, rank: int, params: Arrays) -> Vectors:
        return self._pipeline.layout.vectors(rank, params)

    def _named(self, rank: int, vectors: Vectors) -> Arrays:
        return self._pipeline.layout.unpacked(rank, vectors)

    def _gathered(self, params: Arrays) -> Params:
        """The params of all ranks."""
        layout = self._pipeline.layout
        vectors = []
        for rank, (names, pack) in enumerate(zip(layout.rest, self._packs)):
            vectors.append(pack({name: self._at(params[name], rank) for name in names}))
        aligned = [
            self._together([self._at(params[name], rank) for rank, name in enumerate(row)])
            for row in layout.aligned
        ]
        dtypes = layout.sizes
        return Params(aligned, {d: self._together([own[d] for own in vectors]) for d in dtypes})

    def _scattered(self, gradients: Params, params: Arrays) -> Arrays:
        """The gradients by name, each where its param lies."""
        layout = self._pipeline.layout
        aligned = [self._apart(own) for own in gradients.aligned]
        vectors = {dtype: self._apart(own) for dtype, own in gradients.vectors.items()}
        found: Arrays = {}
        for rank, unpack in enumerate(self._unpacks):
            found.update((row[rank], of[rank]) for row, of in zip(layout.aligned, aligned))
            found.update(unpack({dtype: of[rank] for dtype, of in vectors.items()}))
        return {name: jax.device_put(found[name], own.sharding) for name, own in params.items()}

    def _at(self, array: Any, rank: int) -> Any:
        """An array on the devices of a rank."""
        home = self._homes[rank]
        is_there = array.sharding.is_equivalent_to(home, array.ndim)
        return array if is_there else jax.device_put(array, home)

    def _together(self, arrays: Sequence[Any]) -> Any:
        """An array of all ranks, of one of each."""
        first, *others = arrays[0].shape
        mesh, axis = self._pipeline.mesh, self._pipeline.axis
        return jax.make_array_from_single_device_arrays(
            (first * len(arrays), *others),
            NamedSharding(mesh, PartitionSpec(axis)),
            [shard.data for array in arrays for shard in array.addressable_shards],
        )

    def _apart(self, array: Any) -> list[Any]:
        """An array of each rank, of one of all."""
        shards = {shard.device: shard.data for shard in array.addressable_shards}
        first, *others = array.shape
        shape = (first // len(self._homes), *others)
        together = jax.make_array_from_single_device_arrays
        return [
            together(shape, home, [shards[device] for device in home.mesh.devices.flat])
            for home in self._homes
        ]

    def _is_placed(self, array: Any) -> bool:
        return _is_traced(array) or array.sharding.device_set == self._devices


def _is_traced(array: Any) -> bool:
    """Whether JAX traces the function that has this array, which decides where it lies."""
    return isinstance(array, jax.core.Tracer)
