"""Chooses the backend of each block of a model, from `backend_map` and from the blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import BackendError, TerminalError, UsageError, listed, mapping, shown
from .patterns import first_matches

if TYPE_CHECKING:
    from .backends.base import Backend

__all__ = ["Placement", "check_map"]


def check_map(backend: Backend, backend_map: Mapping[str, Backend] | None) -> dict[str, Backend]:
    """The map as a dict. Errors: `UsageError` for a value that is not a backend; `BackendError` for
    a backend of another dtype."""
    from .backends.base import Backend  # noqa: PLC0415

    own = mapping(backend_map, "backend_map", "backends by name")
    for name, other in own.items():
        if not isinstance(other, Backend):
            raise UsageError(
                f"`backend_map` must map names to backends\n  got: {shown(other)} for `{name}`"
                "\n  expected: a backend, such as `ml.NumpyBackend()`"
            )
        if other.dtype.name != backend.dtype.name:
            raise BackendError(
                "the backends of one model must have one dtype"
                f"\n  got: {other!r} for `{name}`, and {backend!r} for the rest"
                f"\n  hint: give both `dtype=ml.{backend.dtype.name}`"
            )
    return own


class Placement:
    """The backends of a model's blocks.

    `backend_map` has backends by the paths of blocks, and by the names that blocks give as
    `backend=`. A name that a block gives is never a path, and neither is a kind of backend, unless
    there is a block of this name.

    Errors: `UsageError` for a backend that a block names and nobody has; `TerminalError` for a path
    that is not in the model.
    """

    def __init__(
        self,
        model: _core.Snapshot,
        backend: Backend,
        backend_map: Mapping[str, Backend],
        devices: Mapping[str, str] | None = None,
    ) -> None:
        self.backends: list[Backend] = [backend]
        """The backend of the model, and then those of `others`."""
        self.blocks: list[list[str]] = [[]]
        """The paths of the blocks that each of the backends runs."""
        self._place_blocks(model, backend, backend_map)
        self._devices = {name: self._place(own) for name, own in self._other(devices or {})}
        # Those that the model's author stated.
        self._stated = {name: self._place(own) for name, own in self._other(model.devices)}

    def _place_blocks(
        self, model: _core.Snapshot, backend: Backend, backend_map: Mapping[str, Backend]
    ) -> None:
        places = model.places
        if not (backend_map or places):
            return
        named = {name for _, name, _ in places if name is not None}
        if any(not path for path, *_ in places):
            raise UsageError(
                "`backend=` and `device=` of a block are for blocks inside a model"
                f"\n  got: a model that has them itself, compiled for {backend!r}"
                "\n  hint: give `ml.compile` the backend"
            )
        # Importing this and looking for backends of packages takes a while.
        from .backends.custom import names  # noqa: PLC0415

        self._kinds = names()
        aliases = named.union(set(self._kinds).difference(model.names))
        chosen = {path: own for path, own in backend_map.items() if path not in aliases}
        self._check_paths(model, list(chosen))
        stated = dict(chosen)
        for path, name, device in places:
            if path in stated:
                continue
            own = _outer(path, chosen) or backend
            if name is not None:
                own = self._of_name(path, name, backend_map)
            chosen[path] = own if device is None else _at(own, device, f"block `{path}`")
        for path in sorted(chosen):
            if chosen[path] != (_outer(path, chosen) or backend):
                self.blocks[self._place(chosen[path])].append(path)

    @property
    def is_single(self) -> bool:
        """Whether one backend runs all blocks."""
        return len(self.backends) == 1

    @property
    def names(self) -> list[str]:
        """The backends as text."""
        return [repr(backend) for backend in self.backends]

    def check_options(self, file_path: str | None, memory_budget: int | None) -> None:
        """Errors: options for one backend, in a model on several."""
        if self.is_single:
            return
        where = " and ".join(self.names)
        if file_path is not None:
            self._check_file(file_path)
        if memory_budget is not None:
            raise UsageError(
                f"`memory_budget` is for a model on one backend\n  got: a model on {where}",
                code="E0503",
            )

    def _check_file(self, file_path: str) -> None:
        """Errors: a backend whose source no module can call; a file name that is no module's."""
        for backend in self.backends:
            if not backend.writes or backend.host_source("x", backend.dtype.name) is None:
                raise BackendError(
                    "`file_path` of a model on several backends needs built-in backends that write "
                    f"Python source\n  got: {backend!r}"
                    "\n  hint: `code` of the compiled model has the source of all parts",
                    code="E0402",
                )
        stem = Path(file_path).stem
        if not stem.isidentifier():
            raise UsageError(
                "the modules of the parts import each other, so `file_path` needs the name of a "
                f"module\n  got: {file_path!r}\n  expected: such as 'model.py'",
                code="E0601",
            )

    def compile_options(self) -> dict[str, Any]:
        """Keywords of the compiler."""
        others = []
        for backend, blocks in zip(self.backends[1:], self.blocks[1:]):
            own = backend.compile_options()
            native = own.get("tier"), own.get("cpu")
            others.append((backend.kind, blocks, *native, backend.mixed_precision))
        return {"others": others}

    def homes(self, program: _core.Program, *, strict: bool) -> dict[str, int]:
        """The places of params that `devices` or the model put elsewhere.

        Errors: `TerminalError` for a name of `devices` that no param has, if `strict`;
        `UsageError` for an input that has a device and is no param.
        """
        roles = {a.name: a.role for a in program.arguments}
        params = [name for name, role in roles.items() if role == "param"]
        for name in self._stated:
            if roles.get(name, "param") != "param":
                raise UsageError(
                    f"`device` of an IOKey is for params\n  got: the {roles[name]} input `{name}`"
                    "\n  hint: `differentiable=True` makes it a param, and so does `trainable_keys`"
                )
        given = self._devices
        if not strict:
            given = {n: own for n, own in given.items() if any(fnmatchcase(p, n) for p in params)}
        chosen = first_matches(given, params, "devices", ("param", "params"))
        stated = {name: own for name, own in self._stated.items() if name in params}
        return {**stated, **chosen}

    def _other(self, devices: Mapping[str, str]) -> Iterator[tuple[str, Backend]]:
        """The backends on these devices. Errors: `UsageError` for a device that is no name."""
        for name, device in devices.items():
            if not isinstance(device, str):
                raise UsageError(
                    f"`devices` must map names of params to devices\n  got: {shown(device)} for "
                    f'`{name}`\n  expected: such as {{"embedding.weight": "cpu"}}'
                )
            yield name, _at(self.backends[0], device, f"`{name}`")

    def _place(self, backend: Backend) -> int:
        """The place of this backend."""
        if backend not in self.backends:
            self.backends.append(backend)
            self.blocks.append([])
        return self.backends.index(backend)

    def _of_name(self, path: str, name: str, backend_map: Mapping[str, Backend]) -> Backend:
        """The backend that a block names: that of the map, or else one of this kind."""
        from .backends.custom import find  # noqa: PLC0415

        default = self.backends[0]
        if name in backend_map:
            return backend_map[name]
        if name == default.kind:
            return default
        if name in self._kinds:
            found: Backend = find(name)(dtype=default.dtype)
            return found
        known = [*backend_map, *self._kinds]
        near = _core.did_you_mean(name, known)
        raise UsageError(
            f"`backend_map` has no backend `{name}`\n  where: block `{path}`"
            f"\n  expected: {listed(known)}"
            + (f"\n  hint: {near}" if near else f'\n  hint: backend_map={{"{name}": …}}')
        )

    def _check_paths(self, model: _core.Snapshot, paths: list[str]) -> None:
        for path in paths:
            front = path.partition(".")[0]
            if front not in model.names:
                near = _core.did_you_mean(front, model.names)
                raise TerminalError(
                    f"Terminal not found: `backend_map` names `{path}`, which is neither a block "
                    "nor a backend that a block names"
                    f"\n  expected: paths of blocks, or {listed(self._kinds)}"
                    + (f"\n  hint: {near}" if near else "")
                )


def _at(backend: Backend, device: str, owner: str) -> Backend:
    """The backend on a device of its own for a param or a block. Errors: `UsageError` for a backend
    with a device mesh."""
    if backend.mesh is not None:
        raise UsageError(
            "a model on a device mesh has no params or blocks on other devices"
            f"\n  got: device={device!r} for {owner}, and {backend!r}"
            "\n  expected: no `device`, or a backend without a mesh"
            "\n  hint: `shardings=` of `ml.compile` divides params over the devices of the mesh"
        )
    return backend.at(device)


def _outer(path: str, chosen: Mapping[str, Backend]) -> Backend | None:
    """The backend of the innermost block around this one that has a backend of its own."""
    outer = path.rpartition(".")[0]
    while outer and outer not in chosen:
        outer = outer.rpartition(".")[0]
    return chosen.get(outer)
