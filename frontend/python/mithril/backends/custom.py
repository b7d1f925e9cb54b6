"""Backends of other packages: their registration, their entry points, and calls of their source."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import metadata
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from .. import _core
from ..errors import BackendError, MithrilError, UsageError, shown
from . import BUILT_IN, built_in
from .joint import JointRunner

if TYPE_CHECKING:
    from .base import Backend

__all__ = ["VjpRunner", "find", "has_jit", "names", "register"]

GROUP = "mithril.backends"
"""The entry points by which packages provide backends."""

_classes: dict[str, type[Backend]] = {}


def register(cls: type[Backend]) -> None:
    """Registers a class of backends that has a `kind` of its own.

    Errors: `UsageError` for attributes of other types, a name that is taken, unknown operations,
    templates that cannot be read, and a prelude that is not Python.
    """
    given = definition(cls)
    other = _classes.get(cls.kind)
    if other is not None and _origin(other) != _origin(cls):
        raise UsageError(
            f"another backend `{cls.kind}` is registered\n  got: {_place(cls)}"
            f"\n  expected: the class that has this name: {_place(other)}"
            "\n  hint: give this class a `kind` of its own"
        )
    _core.register_target(given)
    _classes[cls.kind] = cls


def _place(cls: type[Backend]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _origin(cls: type[Backend]) -> tuple[str, str]:
    """Where a class is declared. A module that is read again, or under another name, and a cell of
    a notebook declare the same class again."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return (cls.__module__ if file is None else os.path.realpath(file), cls.__qualname__)


def definition(cls: type[Backend]) -> str:
    """What a class of backends says of its source, as JSON.

    Errors: `UsageError` for attributes that are missing or of other types.
    """
    for name in ("kind", "label", "prelude", "module", "package"):
        if not isinstance(getattr(cls, name, None), str):
            raise _wrong(cls, name, getattr(cls, name, None), "a string")
    imports = _words(cls, "imports")
    if not imports:
        name = cls.module.rpartition(".")[2]
        imports = {name: f"import {cls.module}{f' as {name}' if '.' in cls.module else ''}"}
    prelude = _prelude(cls)
    lacks = cls.lacks
    if isinstance(lacks, str) or not all(isinstance(name, str) for name in lacks):
        raise _wrong(cls, "lacks", lacks, "a tuple of names of dtypes")
    if cls.base is not None and not isinstance(cls.base, str):
        raise _wrong(cls, "base", cls.base, "the name of a built-in backend")
    whole = {
        "name": cls.kind,
        "label": cls.label or cls.kind,
        "base": _base(cls),
        "imports": list(imports.items()),
        "prelude": prelude,
        "spellings": list(_words(cls, "spellings").items()),
        "creation": list(_words(cls, "creation").items()),
        "lacks": list(lacks),
        "differentiates": _differentiates(cls),
    }
    functions = _core.array_functions(json.dumps(whole))
    return json.dumps({**whole, "missing": _missing(next(iter(imports.values())), functions)})


def _prelude(cls: type[Backend]) -> str:
    """The prelude without its indentation. Errors: `UsageError` if it is not Python."""
    prelude = inspect.cleandoc(cls.prelude)
    try:
        compile(prelude, f"<prelude of {cls.__name__}>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        where = text = ""
        if isinstance(error, SyntaxError):
            where = f"\n  where: line {error.lineno}"
            text = f"\n  text: {(error.text or '').strip()}" if error.text else ""
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise UsageError(
            f"`prelude` of {cls.__name__} is not valid Python{where}{text}\n  got: {reason}"
        ) from error
    return prelude


def _missing(line: str, functions: list[str]) -> list[str]:
    """Those of the functions that the array module lacks. `line` imports the module. If it cannot
    be imported here, no function counts as missing."""
    names: dict[str, Any] = {}
    try:
        exec(line, names)
    except ImportError:
        return []
    names.pop("__builtins__", None)
    # `import a.b` without `as` is not taken, so that there is one name.
    (module,) = names.values()
    return [name for name in functions if not _has(module, name)]


def _has(module: Any, path: str) -> bool:
    try:
        attrgetter(path)(module)
    except AttributeError:
        return False
    return True


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
    points = _entry_points().get(name)
    if points is None:
        known = names()
        near = _core.did_you_mean(name, known)
        raise UsageError(
            f"there is no backend `{name}`\n  expected: one of {', '.join(known)}"
            + (f"\n  hint: {near}" if near else "")
        )
    return _loaded(points)


def of_class(name: str) -> type[Backend] | None:
    """The registered or installed class of this name; None if there is none."""
    for cls in _classes.values():
        if cls.__name__ == name:
            return cls
    for points in _entry_points().values():
        if any(point.value.rpartition(":")[2] == name for point in points):
            return _loaded(points)
    return None


def _entry_points() -> dict[str, list[metadata.EntryPoint]]:
    """The entry points of installed packages by name. Several of one name differ in what they
    load."""
    found: Any = metadata.entry_points()
    # Python 3.9 returns a dict.
    points = found.select(group=GROUP) if hasattr(found, "select") else found.get(GROUP, ())
    by_name: dict[str, list[metadata.EntryPoint]] = {}
    for point in points:
        same = by_name.setdefault(point.name, [])
        if all(point.value != other.value for other in same):
            same.append(point)
    return by_name


def _loaded(points: list[metadata.EntryPoint]) -> type[Backend]:
    """The class that the entry points of one name load.

    Errors: `BackendError` with the name of the package, or if there are several entry points.
    """
    from .base import Backend  # noqa: PLC0415

    point = points[0]
    if len(points) > 1:
        each = ", ".join(f"{own.name} = {own.value} of {_package(own)}" for own in points)
        raise BackendError(
            f"several packages provide a backend `{point.name}`\n  got: {each}"
            "\n  expected: one\n  hint: uninstall the others, or import the class that you want"
        )
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


def _package(point: metadata.EntryPoint) -> str:
    dist = getattr(point, "dist", None)
    return "an installed package" if dist is None else f"the package `{dist.metadata['Name']}`"


def _broken(point: metadata.EntryPoint, got: str) -> BackendError:
    got = got.replace("\n", "\n    ")
    return BackendError(
        f"the backend `{point.name}` of {_package(point)} cannot be loaded"
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
        names: dict[str, None] = {}

        def results(params: Arrays) -> Arrays:
            """All results in one dict: outputs, and states after a space."""
            found = self._raw(params, inputs, *own)
            outputs, following = (found, {}) if state is None else found
            whole = {**outputs, **{f" {name}": value for name, value in following.items()}}
            names.update(dict.fromkeys(whole))
            return whole

        backend = self._backend
        answer = backend.vjp(results, params)
        if not (isinstance(answer, tuple) and len(answer) == 2 and callable(answer[1])):
            raise self._wrong(answer, "a pair of the results and the pullback")
        found, pullback = answer
        if not isinstance(found, Mapping) or (names and found.keys() != names.keys()):
            got = [*found] if isinstance(found, Mapping) else found
            raise self._wrong(got, f"the results of the function: {', '.join(names)}")
        outputs = {name: value for name, value in found.items() if not name.startswith(" ")}
        following = {name[1:]: value for name, value in found.items() if name.startswith(" ")}
        given = seeds.of(outputs)
        zeros = backend.zeros_like
        full = {n: given[n] if n in given else zeros(value) for n, value in found.items()}
        gradients = pullback(full)
        if not isinstance(gradients, Mapping) or gradients.keys() != params.keys():
            got = list(gradients) if isinstance(gradients, Mapping) else gradients
            raise self._wrong(got, f"a pullback to a dict of gradients of {', '.join(params)}")
        own_dtypes = {name: self._gradient(name, gradients[name], params[name]) for name in params}
        return outputs, own_dtypes, None if state is None else following

    def _gradient(self, name: str, gradient: Any, param: Any) -> Any:
        """The gradient of a param in the param's dtype. Errors: `BackendError` if it is no array of
        floats of the param's shape."""
        shape = [*param.shape]
        try:
            own, dtype = [*gradient.shape], _core.DType(gradient.dtype)
        except (AttributeError, TypeError, ValueError) as error:
            expected = f"an array of shape {shape} for the gradient of `{name}`"
            raise self._wrong(gradient, expected) from error
        wanted = _core.DType(param.dtype)
        if own != shape or ("float" not in dtype.name and dtype.name != wanted.name):
            got = f"{dtype.name}{own} for the gradient of `{name}`"
            raise self._wrong(got, f"{wanted.name}{shape}")
        return gradient if dtype.name == wanted.name else self._backend.cast(gradient, wanted)

    def _wrong(self, got: object, expected: str) -> BackendError:
        name = type(self._backend).__name__
        got = got if isinstance(got, str) else shown(got)
        return BackendError(
            f"`vjp` of {name} does not return gradients\n  got: {got}\n  expected: {expected}"
        )


def check_arrays(backend: Backend) -> None:
    """Checks that a backend makes and reads arrays.

    Errors: `BackendError` if an array that it makes has no shape or dtype, or is not one of its own
    arrays, or if it reads other elements than it was given.
    """
    import numpy as np  # noqa: PLC0415

    from .dtypes import numpy_dtype  # noqa: PLC0415

    given = np.arange(6).reshape(2, 3).astype(numpy_dtype(backend.dtype))
    name = type(backend).__name__
    made = backend.from_numpy(given.copy())
    try:
        kind = (tuple(made.shape), _core.DType(made.dtype).name)
    except Exception as error:
        raise BackendError(
            f"`from_numpy` of {name} makes no array\n  got: {shown(made)}: {error}"
            "\n  expected: an array with `shape` and `dtype`"
        ) from error
    if kind != (given.shape, backend.dtype.name):
        raise BackendError(
            f"`from_numpy` of {name} makes another array\n  got: {kind[1]}{list(kind[0])}"
            f"\n  expected: {backend.dtype.name}{list(given.shape)}"
        )
    if not backend.is_array(made):
        raise BackendError(
            f"`is_array` of {name} is false for an array of `from_numpy`\n  got: {shown(made)}"
        )
    read = backend.to_numpy(made)
    if not (isinstance(read, np.ndarray) and np.array_equal(read, given)):
        raise BackendError(
            f"`to_numpy` of {name} does not return the array that `from_numpy` was given"
            f"\n  got: {shown(read)}\n  expected: {given.tolist()}"
        )


def runner(
    backend: Backend, program: _core.Program, namespace: dict[str, Any], *, jit: bool
) -> VjpRunner | JointRunner:
    """The object that calls a program's functions."""
    compiled = partial(_compiled, backend) if jit and has_jit(backend) else None
    if program.own_gradients or not backend.target.differentiates:
        return JointRunner(backend, namespace, compiled=compiled)
    return VjpRunner(backend, namespace, compiled)


def has_jit(backend: Backend) -> bool:
    """Whether a backend compiles generated source further. Built-in ones decide it themselves."""
    base = _base_class()
    cls = type(backend)
    return cls.jit is not base.jit or cls.runner is not base.runner


def _compiled(backend: Backend, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled by the backend's `jit`. Errors: `BackendError` if that returns no
    function."""
    found = backend.jit(function)
    if not callable(found):
        raise BackendError(
            f"`jit` of {type(backend).__name__} does not return a function\n  got: {shown(found)}"
            "\n  expected: the function, compiled: it takes and returns dicts of arrays"
        )
    return found


def _base_class() -> type[Backend]:
    from .base import Backend  # noqa: PLC0415

    return Backend
