"""Runs generated source, and writes it and its constants to files."""

from __future__ import annotations

import ast
import itertools
import linecache
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import BackendError, UsageError, shown, valid_unicode

if TYPE_CHECKING:
    from .backends.base import Backend

__all__ = [
    "executed",
    "explained_namespace",
    "namespace",
    "path_text",
    "write_constants",
    "write_source",
]

_numbers = itertools.count()


def path_text(path: str | os.PathLike[str], keyword: str) -> str:
    """The path given for `keyword`, as a string.

    Errors: `UsageError` if it is not a path.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(text, str):
        raise UsageError(
            f"`{keyword}` must be a path\n  got: {shown(path)}"
            "\n  expected: a string or a `pathlib.Path`"
        )
    return valid_unicode(text, keyword)


def executed(
    source: str, name: str, file: str | None = None, given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Runs the source and returns its names. Tracebacks show `name`, and `__file__` is `file`.
    `given` has names with the values that they get in place of those that the source assigns."""
    given = given or {}
    namespace: dict[str, Any] = {"__name__": "mithril_generated", "__file__": file or name, **given}
    exec(compile(_without(source, given) if given else source, name, "exec"), namespace)
    if "_constants" in namespace:
        # The arrays have been read, so the file can be closed.
        namespace.pop("_constants").close()
    return namespace


def _without(source: str, names: Mapping[str, Any]) -> ast.Module:
    """The source without assignments to these names."""

    def assigns(node: ast.stmt) -> bool:
        targets = node.targets if isinstance(node, ast.Assign) else []
        return any(isinstance(own, ast.Name) and own.id in names for own in targets)

    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not assigns(node)]
    return tree


def namespace(
    program: _core.Program,
    file_path: str | None,
    given: Mapping[str, Any] | None = None,
    written: Callable[[str], str] = str,
) -> dict[str, Any]:
    """Runs a program's source and returns its names. The source is run from `file_path` if there
    is one, otherwise from memory. `given` is as for `executed`; `written` changes the source as the
    backend's options ask for."""
    source, constants = written(program.source), program.constants
    if file_path is not None:
        path = write_source(file_path, source)
        if constants:
            write_constants(path.with_suffix(".npz"), constants)
        return executed(source, str(path.absolute()), given=given)
    name = f"<mithril {program.name} {next(_numbers)}>"
    # Lets tracebacks show the lines of the source.
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    if not constants:
        return executed(source, name, given=given)
    with tempfile.TemporaryDirectory(prefix="mithril-") as folder:
        write_constants(Path(folder) / "model.npz", constants)
        return executed(source, name, str(Path(folder) / "model.py"), given)


def explained_namespace(
    backend: Backend,
    program: _core.Program,
    file_path: str | None,
    given: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The names of a program's source, as `namespace` returns them.

    Errors: `BackendError` for a module that the source imports and that cannot be imported.
    """
    try:
        return namespace(program, file_path, given, backend.written)
    except ImportError as error:
        raise _failed_import(backend, error) from error


def _failed_import(backend: Backend, error: ImportError) -> BackendError:
    name = type(backend).__name__
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return BackendError(f"an import of the source for {name} fails\n  got: {error}")
    hint = "" if "." in error.name else f"\n  hint: pip install {error.name}"
    return BackendError(
        f"{name} needs {error.name}, which cannot be imported\n  got: {error}{hint}"
    )


def write_source(file_path: str, source: str) -> Path:
    """Writes generated source to a file.

    Errors: `UsageError` if the file cannot be written.
    """
    path = Path(file_path)
    try:
        _publish(path, lambda own: own.write_text(source, encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"`file_path` cannot be written\n  where: {file_path}\n  got: {error.strerror}"
            "\n  expected: a file in an existing folder",
            code="E0601",
        ) from error
    return path


def write_constants(path: Path, constants: list[tuple[str, _core.DType, list[int], bytes]]) -> None:
    """Writes the arrays that the source next to `path` reads."""
    import numpy as np  # noqa: PLC0415

    from .backends.dtypes import numpy_dtype  # noqa: PLC0415

    arrays = {
        name: np.frombuffer(data, dtype=numpy_dtype(dtype)).reshape(shape)
        for name, dtype, shape, data in constants
    }
    _publish(path, lambda own: np.savez(own, **arrays))  # type: ignore[arg-type]


def _publish(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a temporary file in the same folder, then renames it: other processes that write the
    file, as under `torchrun`, and its readers see a whole one. A link to a file stays one. What is
    not a file, such as a pipe, is written to."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        write(path)
        return
    temporary = path.with_name(f".{os.getpid()}.{next(_numbers)}.{path.name}")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
