"""Backends of other packages: their registration, their entry points, and calls of their source."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

from .. import _core
from ..errors import BackendError, MithrilError, UsageError, shown
from . import BUILT_IN, built_in
from .joint import JointRunner

if TYPE_CHECKING:
    from .base import Backend

__all__ = ["VjpRunner", "find", "names", "register"]

GROUP = "mithril.backends"
"""The entry points by which packages provide backends."""

_classes: dict[str, type[Backend]] = {}


def register(cls: type[Backend]) -> None:
    """Registers a class of backends that has a `kind` of its own.

    Errors: `UsageError` for attributes of other types, a name that is taken, unknown operations,
    and templates that cannot be read.
    """
    _core.register_target(definition(cls))
    _classes[cls.kind] = cls


def definition(cls: type[Backend]) -> str:
    """What a class of backends says of its source, as JSON.

    Errors: `UsageError` for attributes of other types.
    """
    imports = _words(cls, "imports")
    if not imports and hasattr(cls, "module"):
        name = cls.module.rpartition(".")[2]
        imports = {
            name: f"import {cls.module} as {name}" if "." in cls.module else f"import {name}"
        }
    lacks = cls.lacks
    if isinstance(lacks, str) or not all(isinstance(name, str) for name in lacks):
        raise _wrong(cls, "lacks", lacks, "a tuple of names of dtypes")
    for name in ("kind", "label", "prelude"):
        if not isinstance(getattr(cls, name), str):
            raise _wrong(cls, name, getattr(cls, name), "a string")
    return json.dumps(
        {
            "name": cls.kind,
            "label": cls.label or cls.kind,
            "base": _base(cls),
            "imports": list(imports.items()),
            "prelude": inspect.cleandoc(cls.prelude),
            "spellings": list(_words(cls, "spellings").items()),
            "creation": list(_words(cls, "creation").items()),
            "lacks": list(lacks),
            "differentiates": _differentiates(cls),
        }
    )


def _wrong(cls: type[Backend], name: str, got: object, expected: str) -> UsageError:
    return UsageError(
        f"`{name}` of {cls.__name__} has a wrong type\n  got: {shown(got)}\n  expected: {expected}"
    )


def _words(cls: type[Backend], name: str) -> dict[str, str]:
    """A dict of strings. None stands for an empty one."""
    given = getattr(cls, name)
    what = "a dict of strings by name"
    if not isinstance(given, Mapping):
        raise _wrong(cls, name, given, what)
    words = {key: "" if value is None else value for key, value in given.items()}
    for key, value in words.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise _wrong(cls, name, {key: value}, what)
    return words


def _base(cls: type[Backend]) -> str | None:
    """The built-in backend whose spellings the class starts from: the one that it names, or else
    the one that it is a subclass of."""
    if cls.base is not None:
        return cls.base
    kinds = (getattr(parent, "kind", None) for parent in cls.__mro__[1:])
    return next((kind for kind in kinds if kind in BUILT_IN), None)


def _differentiates(cls: type[Backend]) -> bool | None:
    """Whether the framework computes gradients; None if that is as in the base."""
    from .base import Backend  # noqa: PLC0415

    if cls.runner is not Backend.runner:
        return None
    return cls.vjp is not Backend.vjp


# Names.


def names() -> list[str]:
    """The names of all backends: built-in ones, registered ones, and those of installed packages,
    which are not imported for this."""
    known = [target.name for target in _core.targets()]
    return [*known, *(name for name in _entry_points() if name not in known)]


def find(name: str) -> type[Backend]:
    """The class of the backend with this name. A package that provides it is imported.

    Errors: `UsageError` for an unknown name; `BackendError` for a package whose backend cannot be
    loaded.
    """
    if name in _classes:
        return _classes[name]
    if name in BUILT_IN:
        cls: type[Backend] = built_in(BUILT_IN[name])
        return cls
    point = _entry_points().get(name)
    if point is None:
        known = names()
        near = _core.did_you_mean(name, known)
        raise UsageError(
            f"there is no backend `{name}`\n  expected: one of {', '.join(known)}"
            + (f"\n  hint: {near}" if near else "")
        )
    return _loaded(point)


def of_class(name: str) -> type[Backend] | None:
    """The registered or installed class of this name; None if there is none."""
    for cls in _classes.values():
        if cls.__name__ == name:
            return cls
    points = _entry_points().values()
    point = next((point for point in points if point.value.rpartition(":")[2] == name), None)
    return None if point is None else _loaded(point)


def _entry_points() -> dict[str, metadata.EntryPoint]:
    """The entry points of installed packages by name."""
    found: Any = metadata.entry_points()
    # Python 3.9 returns a dict.
    points = found.select(group=GROUP) if hasattr(found, "select") else found.get(GROUP, ())
    return {point.name: point for point in points}


def _loaded(point: metadata.EntryPoint) -> type[Backend]:
    """The class that an entry point names.

    Errors: `BackendError` with the name of the package.
    """
    from .base import Backend  # noqa: PLC0415

    try:
        cls = point.load()
    except Exception as error:
        what = error.args[0] if isinstance(error, MithrilError) and error.args else error
        raise _broken(point, f"{type(error).__name__}: {what}") from error
    if not (isinstance(cls, type) and issubclass(cls, Backend)):
        raise _broken(point, f"{shown(cls)}, which is not a subclass of `ml.Backend`")
    if getattr(cls, "kind", None) != point.name:
        raise _broken(point, f"a class whose `kind` is {getattr(cls, 'kind', None)!r}")
    return cls


def _broken(point: metadata.EntryPoint, got: str) -> BackendError:
    dist = getattr(point, "dist", None)
    package = "an installed package" if dist is None else f"the package `{dist.metadata['Name']}`"
    got = got.replace("\n", "\n    ")
    return BackendError(
        f"the backend `{point.name}` of {package} cannot be loaded"
        f"\n  where: the entry point {point.name} = {point.value}\n  got: {got}"
        "\n  hint: the package is at fault; update or uninstall it"
    )


# Calls.

Arrays = dict[str, Any]


class VjpRunner:
    """Calls generated source, and computes gradients by the backend's `vjp`."""

    def __init__(
        self,
        backend: Backend,
        namespace: dict[str, Any],
        compiled: Callable[[Callable[..., Any]], Callable[..., Any]] | None,
    ) -> None:
        self._backend = backend
        self._raw = namespace["forward"]
        self.forward = compiled(self._raw) if compiled else self._raw

    def gradients(
        self, params: Arrays, inputs: Arrays, state: Arrays | None, seeds: Any
    ) -> tuple[Arrays, Arrays, Arrays | None]:
        """Returns outputs, gradients by param, and the next state."""
        own = () if state is None else (state,)

        def results(params: Arrays) -> Arrays:
            """All results in one dict: outputs, and states after a space."""
            found = self._raw(params, inputs, *own)
            outputs, following = (found, {}) if state is None else found
            return {**outputs, **{f" {name}": value for name, value in following.items()}}

        backend = self._backend
        found, pullback = backend.vjp(results, params)
        outputs = {name: value for name, value in found.items() if not name.startswith(" ")}
        following = {name[1:]: value for name, value in found.items() if name.startswith(" ")}
        given = seeds.of(outputs)
        zeros = backend.zeros_like
        full = {n: given[n] if n in given else zeros(value) for n, value in found.items()}
        gradients = pullback(full)
        for name, value in gradients.items():
            if value.dtype != params[name].dtype:
                gradients[name] = backend.cast(value, _core.DType(params[name].dtype))
        return outputs, gradients, None if state is None else following


def runner(
    backend: Backend, program: _core.Program, namespace: dict[str, Any], *, jit: bool
) -> VjpRunner | JointRunner:
    """The object that calls a program's functions."""
    compiled = backend.jit if jit and type(backend).jit is not _base_class().jit else None
    if program.own_gradients or not backend.target.differentiates:
        return JointRunner(backend, namespace, compiled=compiled)
    return VjpRunner(backend, namespace, compiled)


def _base_class() -> type[Backend]:
    from .base import Backend  # noqa: PLC0415

    return Backend
