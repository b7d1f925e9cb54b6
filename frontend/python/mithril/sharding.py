"""How compiled models are divided over device meshes: chosen, given and explained layouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from . import _core
from .backends.meshes import Mesh, Sizes, TensorSplit, no_mesh, no_meshes
from .deferred import Deferred
from .errors import UsageError, mapping, shown
from .patterns import first_matches
from .units import bytes_of

if TYPE_CHECKING:
    from .backends.base import Backend

__all__ = [
    "ShardedModel",
    "Splits",
    "check_splits",
    "layouts_of",
    "residuals_of",
    "splits_for",
    "splits_of",
]

Mapping.register(_core.Shardings)

Splits = dict[str, "dict[str, int]"]
"""By name of a param or input: mesh axes with the axes that they divide."""


def splits_of(
    given: Mapping[str, TensorSplit] | None, mesh: Mesh, names: Sequence[str], keyword: str
) -> Splits:
    """The splits by full names. Names may be patterns, of which the first that matches is used.

    Errors: `TerminalError` for a name that is not there; `UsageError` for what is not a split.
    """
    own = _splits_by_pattern(given, mesh, keyword)
    return first_matches(own, names, keyword, ("param or input", "params and inputs"))


def residuals_of(given: object) -> list[tuple[list[int], list[tuple[str, int]]]]:
    """The splits of residual values by their shape, which plans have."""
    if not isinstance(given, _core.Shardings):
        return []
    return [(shape, [*split.items()]) for shape, split in given.residuals if split]


def layouts_of(
    backend: Backend, shardings: Mapping[str, TensorSplit] | None, names: Sequence[str]
) -> list[tuple[str, list[tuple[str, int]]]]:
    """The splits by full names, for the source. What cannot be used is left to `splits_for`, which
    knows the params and inputs of the compiled model."""
    mesh = backend.mesh
    if mesh is None or not shardings:
        return []
    own = _splits_by_pattern(shardings, mesh, "shardings")
    found = ((n, next((s for p, s in own.items() if fnmatchcase(n, str(p))), {})) for n in names)
    return [(name, [*split.items()]) for name, split in found if split]


def _splits_by_pattern(given: Mapping[str, TensorSplit] | None, mesh: Mesh, keyword: str) -> Splits:
    splits = mapping(given, keyword, "splits by name")
    return {name: mesh.axes_of(split, f'{keyword}["{name}"]') for name, split in splits.items()}


def splits_for(
    backend: Backend, shardings: Mapping[str, TensorSplit], names: Sequence[str]
) -> Splits:
    """The splits that `shardings=` gives to a model of these params and inputs.

    Errors: those of `splits_of`; `BackendError` or `UsageError` if the backend has no mesh.
    """
    mesh = _checked_mesh(backend, dict(shardings))
    return splits_of(shardings, mesh, names, "shardings")


def check_splits(backend: Backend, splits: Splits, program: _core.Program) -> None:
    """Errors: `ShapeError` for a split that does not fit the shape of a param or input, as far as
    shapes are known."""
    for own in program.arguments if splits else ():
        if own.name in splits and own.shape is not None and backend.mesh is not None:
            backend.mesh.split(own.shape, None, splits[own.name], f"`{own.name}`")


def _checked_mesh(backend: Backend, shardings: object) -> Mesh:
    if backend.mesh is not None:
        return backend.mesh
    if not backend.has_meshes:
        raise no_meshes(type(backend).__name__, None, shardings, "shardings")
    raise no_mesh(backend, None, shardings, "shardings")


class ShardedModel(ABC):
    """The part of a compiled model that divides it over device meshes."""

    backend: Backend
    _splits: Splits
    """The layouts that `shardings=` gives."""
    _options: dict[str, Any]

    @property
    @abstractmethod
    def _program(self) -> _core.Program: ...

    @property
    @abstractmethod
    def params(self) -> tuple[str, ...]:
        """The names of the trainable params."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, including keys of random numbers."""

    def _divided(self, params: dict[str, Any]) -> dict[str, Any]:
        """The params, divided over the mesh as `shardings=` says, as far as they are known."""
        shard = self.backend.shard
        own = {n: s for n, s in self._splits.items() if not isinstance(params.get(n), Deferred)}
        divided = {n: shard(params[n], tensor_split=s) for n, s in own.items() if n in params}
        return {**params, **divided}

    def propose_shardings(
        self,
        mesh: Sizes | None = None,
        *,
        memory: str | int | None = None,
        given: Mapping[str, TensorSplit] | None = None,
        machine: str = "cpu-gloo",
        optimizer_states: int = 2,
        **dims: int,
    ) -> _core.Shardings:
        """Layouts of params, inputs and residual values on a mesh that make a step fast, with their
        cost by block.

        They are found by a search: each step divides a param or an input by an axis of the mesh,
        layouts of all other values follow, and the time and the memory of the whole are estimated.
        Params of equal layers are divided alike. `ml.compile(…, shardings=…)` takes the result.

        `mesh` has the sizes of the axes, or names with sizes; by default it is the backend's. No
        device is needed, so a model that is compiled for NumPy can be planned for thousands.
        `memory` limits the memory of a device, such as `"16GB"`; by default that of the machine.
        `given` has layouts that are kept: a `tensor_split` by name of a param or input, where `*`
        stands for any part of a name. `machine` is `cpu-gloo` (processes on one CPU, as
        `mithril bench --mesh --calibrate` measured them, if it did), `8xH100`, `2x8xH100` or
        `TPU-v5e-16`. `optimizer_states` is the number of arrays as large as the params that the
        optimizer keeps (Adam: 2). `dims` gives sizes to dims without numbers.

        A step is the forward pass, and the gradients unless the model is compiled for inference.
        Loops are counted as computed whole on every device.

        Errors: `UsageError` for a wrong mesh or an unknown machine; `TerminalError` for an unknown
        name; `ShapeError` for dims without numbers, or layouts that do not fit; `MithrilError` if
        no layout fits into the memory.
        """
        options = {
            "memory": memory,
            "machine": machine,
            "optimizer_states": optimizer_states,
            "residuals": residuals_of(given),
        }
        return self._sharding(mesh, given, dims, options, choose=True)

    def explain_sharding(
        self,
        mesh: Sizes | None = None,
        *,
        given: Mapping[str, TensorSplit] | None = None,
        machine: str = "cpu-gloo",
        optimizer_states: int = 2,
        **dims: int,
    ) -> _core.Shardings:
        """What a step costs on a mesh, by block: arithmetic and time of a device, collectives with
        their bytes, and the memory of a device. `given` has layouts of params and inputs, by
        default those of `ml.compile(…, shardings=…)`; others follow from them. The other keywords
        and the errors are those of `propose_shardings`.
        """
        options: dict[str, Any] = {
            "memory": None,
            "machine": machine,
            "optimizer_states": optimizer_states,
            "residuals": self._options["layouts"][1] if given is None else residuals_of(given),
        }
        if given is None:
            given = dict(self._splits)
        return self._sharding(mesh, given, dims, options, choose=False)

    def _sharding(
        self,
        mesh: Sizes | None,
        given: Mapping[str, TensorSplit] | None,
        dims: Mapping[str, int],
        options: Mapping[str, Any],
        *,
        choose: bool,
    ) -> _core.Shardings:
        own = self.backend.mesh if mesh is None else Mesh.of(mesh)
        if own is None:
            raise UsageError(
                "a mesh is needed to divide the model over\n  got: None, and a backend without one"
                '\n  expected: sizes such as `mesh=(2, 4)`, or `mesh={"data": 2, "model": 4}`'
            )
        memory, states = options["memory"], options["optimizer_states"]
        if not isinstance(states, int) or states < 0:
            raise UsageError(
                f"`optimizer_states` is not a number of arrays\n  got: {shown(states)}"
                "\n  expected: an integer of at least 0"
            )
        splits = splits_of(given, own, (*self.params, *self.inputs), "given")
        return _core.sharding(
            self._program,
            list(zip(own.names, own.sizes)),
            options["machine"],
            None if memory is None else float(bytes_of(memory, "memory")),
            float(states),
            [(name, list(split.items())) for name, split in splits.items()],
            options["residuals"],
            dict(dims),
            choose=choose,
        )
