"""`ml.compile`: compiles a model."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from . import _core
from .backends import BUILT_IN
from .errors import (
    BackendError,
    TerminalError,
    UsageError,
    as_bool,
    listed,
    mapping,
    shown,
    valid_unicode,
)
from .keywords import explain_unknown_keywords
from .placement import check_map
from .sources import path_text
from .units import bytes_of

if TYPE_CHECKING:
    from .backends.base import Backend
    from .compiled import CompiledModel
    from .pipeline import Pipeline

__all__ = ["compile"]

Shape = Sequence["int | str | None"]
Keys = Collection[str]


@explain_unknown_keywords()
def compile(
    model: _core.Block,
    backend: Backend | None = None,
    *,
    shapes: Mapping[str, Shape] | None = None,
    dtypes: Mapping[str, object] | None = None,
    jit: bool | None = None,
    file_path: str | os.PathLike[str] | None = None,
    inference: bool = False,
    trainable_keys: Keys = (),
    data_keys: Keys = (),
    constant_keys: Mapping[str, Any] | None = None,
    discard_keys: Keys = (),
    keep: Keys = (),
    differentiate: str | bool = False,
    cache: bool = False,
    verbose: bool = False,
    debug: bool = False,
    optimization_level: Literal["none", "basic", "full"] = "full",
    math: Literal["exact", "recognise", "reassociate", "fast"] = "recognise",
    memory_planning: Literal["greedy", "none"] | None = None,
    gradient_checkpointing: bool = False,
    use_checkpointing: bool = False,
    memory_budget: str | int | None = None,
    autodiff: Literal["framework", "mithril"] | None = None,
    random: Literal["framework", "exact"] = "framework",
    checks: bool | None = None,
    backend_map: Mapping[str, Backend] | None = None,
    devices: Mapping[str, str] | None = None,
    shardings: Mapping[str, Any] | None = None,
    stages: int | Pipeline | None = None,
) -> CompiledModel:
    """Compiles a model for a backend. The default backend is native code for this machine.

    `shapes` gives terminals their dims: numbers, names, or `None` for a dim that may vary. Without
    it, the shapes of params that depend on inputs are known at the first call. If the code needs
    the ranks of inputs, it is compiled at the first call, once for each set of ranks. `dtypes`
    gives inputs their dtypes, such as `{"tokens": ml.int32}`, by name or as dtypes of a framework.
    Other inputs have the backend's dtype. A mask has the dtype of the first call (bool or float).
    An input that blocks use as integers takes every integer dtype. `jit` asks the framework to
    compile the generated source further. `file_path` is the file to write the source to.
    `inference` compiles only the forward pass, without dropout and with running statistics in
    normalisations.

    `trainable_keys` names terminals that become params, `data_keys` terminals that become inputs,
    and `discard_keys` terminals that are left out of the outputs. `*` stands for any part of a name
    (`"hidden.*"`). `constant_keys` gives inputs constant values. Integer values for a float input
    are converted if the conversion is exact.

    `keep` names inner values that become outputs as well: terminals of the model, and blocks by
    their paths, such as `h.0.attn`.

    `differentiate` names a scalar output; `True` stands for `final_cost`. Its gradients with
    respect to the params become outputs `<param>_gradient`. Gradients of these outputs are products
    with second derivatives.

    `cache` reuses the code of an equal model that was compiled with the same options. `verbose`
    prints a report; for native code it also lists each kernel with its cost and compile time, and
    `report()` then includes the time of each kernel in a call. `debug` prints the shapes and dtypes
    of named inner values at each call.

    `optimization_level="none"` keeps every operation of the model, `"basic"` applies the rules that
    always help, and `"full"` chooses the cheapest of all equivalent forms by the backend's cost
    model. `math` says which forms count as equivalent. `"exact"`: forms with the same bits.
    `"recognise"`: also compositions such as a written-out softmax, which become the numerically
    stable operation. `"reassociate"`: also sums and products in another order. `"fast"`: also forms
    that differ for NaN, infinities or zeros, such as `x / x` and 1.
    `gradient_checkpointing` (or `use_checkpointing`) recomputes the inner values of repeated blocks
    for the gradients instead of keeping them. If no block repeats, the `n` operations of the model
    are divided into about sqrt(n) parts.
    `autodiff="mithril"` generates source that computes the gradients, even if the framework has
    automatic differentiation. Native code and C always compute their own gradients.
    `random` selects the source of random numbers in NumPy, PyTorch and MLX code, for `Dropout` and
    other random blocks: `"framework"`, the framework's generator, seeded by the key and the block's
    path; `"exact"`, the bits that JAX, tinygrad, native code and C always draw. It takes about 20
    times as long.
    `memory_budget`, such as `"2GB"`, limits the working memory of a call of native code. Inner
    values are recomputed for the gradients until the call fits.
    `memory_planning="none"` gives each inner value of native code its own memory; otherwise values
    with disjoint lifetimes share memory. Frameworks manage their memory themselves.

    `backend_map` gives blocks other backends, by their paths: `{"encoder": ml.JaxBackend()}`. A
    name that blocks give as `backend="torch"` stands for the backend that it maps to. Each part of
    the model is code of its own backend, for values and gradients. Arrays that cross are shared by
    DLPack where both lie in one memory. `verbose` lists the parts and what crosses between them.

    `devices` puts params on other devices of the backend, by name, where `*` stands for any part of
    a name: `{"embedding.weight": "cpu"}`. A call moves them to the device of the block that reads
    them, and their gradients lie where they do.

    `shardings` divides params and inputs over the backend's device mesh: a `tensor_split` by name,
    where `*` stands for any part of a name, or the result of `propose_shardings`. Params of
    `randomize_params` are divided so, and a call divides inputs that do not lie on the mesh.

    `stages` cuts the model into this number of stages of about equal cost, each of which runs on
    its own ranks of the mesh axis `stage`; `ml.Pipeline` has more options. `stages` of the result
    is the plan. Params of `randomize_params` lie on the ranks of their stages.

    A call checks the integer inputs that index an axis (tokens, labels, positions). One out of
    range raises an `IndexRangeError` with the input, the value, its position, the range and the
    block. `checks=False` skips this; `checks=True` also fetches arrays from a device to check them.
    Integers that the model computes are not checked: each operation defines its result for an index
    that is out of range.

    Errors: `ShapeError` for shapes, ranks or dtypes that do not fit; `TerminalError` for an unknown
    name; `BackendError` for something that the backend does not have; `UsageError` for an unknown
    keyword or value; `MithrilError` for any other fault of the model.
    """
    if not isinstance(model, _core.Block):
        raise UsageError(
            f"`model` is not a model\n  got: {type(model).__name__}\n  expected: a model or a block"
        )
    _check_values(
        optimization_level=optimization_level,
        math=math,
        memory_planning=memory_planning,
        autodiff=autodiff,
        random=random,
    )
    backend = _backend(backend)
    backend_map = check_map(backend, backend_map)
    from .compiled import CompiledModel  # noqa: PLC0415
    from .pipeline import Pipeline  # noqa: PLC0415
    from .sharding import layouts_of, residuals_of  # noqa: PLC0415

    options = {
        "shapes": mapping(shapes, "shapes", "shapes by name"),
        "dtypes": _dtypes(dtypes, backend),
        "inference": as_bool(inference, "inference"),
        "trainable_keys": _matching(trainable_keys, "trainable_keys", model.inputs),
        "data_keys": _matching(data_keys, "data_keys", model.inputs),
        "discard_keys": _matching(discard_keys, "discard_keys", model.outputs),
        "constant_keys": _constants(constant_keys),
        "level": optimization_level,
        "math": math,
        "cache": as_bool(cache, "cache"),
        "keep": _names(keep, "keep"),
        "differentiate": _differentiated_output(differentiate),
        "own_gradients": autodiff == "mithril",
        "random": random,
        "in_place": backend.in_place,
        "mixed_precision": backend.mixed_precision,
        "separate_buffers": memory_planning == "none",
        "checks": None if checks is None else as_bool(checks, "checks"),
        "memory_budget": _budget(memory_budget, backend),
        "checkpoint": as_bool(gradient_checkpointing, "gradient_checkpointing")
        or as_bool(use_checkpointing, "use_checkpointing")
        or backend.checkpoints,
        "layouts": (
            [] if stages else layouts_of(backend, shardings, model.inputs),
            residuals_of(shardings),
        ),
    }
    pipeline = Pipeline.of(stages)
    if pipeline is not None:
        from .staged import check_alone  # noqa: PLC0415

        pipeline.ranks(backend)
        check_alone(
            backend_map=backend_map,
            devices=devices,
            shardings=shardings,
            differentiate=differentiate,
            autodiff=autodiff if autodiff == "mithril" else None,
            file_path=file_path,
            jit=jit,
        )
    compiled = CompiledModel(
        _core.Snapshot(model),
        backend,
        options,
        jit=_jit(jit, backend),
        file_path=None if file_path is None else path_text(file_path, "file_path"),
        debug=as_bool(debug, "debug"),
        verbose=as_bool(verbose, "verbose"),
        backend_map=backend_map,
        devices=mapping(devices, "devices", "devices by name of a param"),
        shardings=shardings,
        pipeline=pipeline,
    )
    if verbose:
        print(compiled.report(), file=sys.stdout)
    return compiled


def _jit(jit: bool | None, backend: Backend) -> bool:
    """Whether the framework compiles the source further. Errors: it is asked for, and the class of
    another package has no `jit`."""
    if jit is None:
        return backend.jit_default
    if as_bool(jit, "jit") and backend.kind not in BUILT_IN:
        from .backends.custom import has_jit  # noqa: PLC0415

        if not has_jit(backend):
            raise UsageError(
                f"{type(backend).__name__} does not compile source further\n  got: jit=True"
                "\n  hint: leave `jit=` out, or define the method `jit` of the backend"
            )
    return bool(jit)


def _differentiated_output(output: str | bool) -> str | None:
    if not isinstance(output, (str, bool)) or output == "":
        raise UsageError(
            "`differentiate` must be the name of a scalar output, or `True` for `final_cost`"
            f"\n  got: {shown(output)}"
        )
    if isinstance(output, bool):
        return "final_cost" if output else None
    return valid_unicode(output, "differentiate")


def _budget(budget: str | int | None, backend: Backend) -> int | None:
    if budget is None:
        return None
    if backend.writes:
        raise UsageError(
            "`memory_budget` is for native code: frameworks manage their memory themselves"
            f"\n  got: {backend!r}\n  hint: `gradient_checkpointing=True` keeps less",
            code="E0503",
        )
    return bytes_of(budget, "memory_budget")


def _constants(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The constants by name. Arrays are copied once; all models compiled with them share the
    copy."""
    values = mapping(given, "constant_keys", "values by name")
    return {
        name: _core.Constant(value) if hasattr(value, "dtype") else value
        for name, value in values.items()
    }


def _dtypes(given: Mapping[str, object] | None, backend: Backend) -> dict[str, _core.DType]:
    dtypes = mapping(given, "dtypes", "dtypes by name of an input")
    dtypes = {name: _core.DType(dtype) for name, dtype in dtypes.items()}
    for name, dtype in dtypes.items():
        # JAX turns its 64-bit types on once a program asks for them.
        if dtype.bits < 64 and dtype.name not in backend.samples:
            raise BackendError(
                f"{backend!r} does not have this dtype"
                f"\n  got: {dtype.name} for `{name}` in `dtypes`"
                f"\n  expected: one of {', '.join(backend.samples)}"
            )
    return dtypes


def _names(keys: Keys, keyword: str) -> list[str]:
    if isinstance(keys, str):
        raise UsageError(
            f'`{keyword}` must be a collection of names\n  got: the string "{keys}"'
            f'\n  hint: {keyword}=["{keys}"]'
        )
    names = list(keys) if isinstance(keys, Iterable) else [keys]
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f"`{keyword}` must be a collection of names\n  got: {shown(keys)}")
    return [valid_unicode(name, keyword) for name in names]


def _matching(keys: Keys, keyword: str, terminals: Sequence[str]) -> list[str]:
    """Replaces each pattern by the names of the terminals that match it; keeps other names.

    Errors: a pattern that matches no terminal.
    """
    fitting: dict[str, None] = {}
    for key in _names(keys, keyword):
        found = [name for name in terminals if fnmatchcase(name, key)] if "*" in key else [key]
        if not found:
            near = _core.did_you_mean(key, terminals)
            raise TerminalError(
                f"Terminal not found: no terminal matches `{key}` of `{keyword}`"
                f"\n  expected: names, with `*` for any part: {listed(terminals)}"
                + (f"\n  hint: {near}" if near else "")
            )
        fitting |= dict.fromkeys(found)
    return list(fitting)


def _check_values(**given: object) -> None:
    allowed: dict[str, tuple[str | None, ...]] = {
        "optimization_level": ("none", "basic", "full"),
        "math": ("exact", "recognise", "reassociate", "fast"),
        "memory_planning": (None, "greedy", "none"),
        "autodiff": (None, "framework", "mithril"),
        "random": ("framework", "exact"),
    }
    for keyword, value in given.items():
        allowed_values = allowed[keyword]
        if value not in allowed_values:
            raise UsageError(
                f"`{keyword}` has an invalid value\n  got: {value!r}"
                f"\n  expected: {' or '.join(repr(k) for k in allowed_values)}"
            )


def _backend_hint(given: object) -> str:
    """The hint for a backend class, or the name of a backend, given in place of a backend."""
    from .backends import BUILT_IN  # noqa: PLC0415
    from .backends.base import Backend  # noqa: PLC0415
    from .backends.custom import names  # noqa: PLC0415

    if isinstance(given, str) and given.lower() not in BUILT_IN and given in names():
        return f"\n  hint: create one with `ml.backends.find({given!r})()`"
    if isinstance(given, str):
        name = BUILT_IN.get(given.lower())
    else:
        is_class = isinstance(given, type) and issubclass(given, Backend)
        name = given.__name__ if is_class else None  # type: ignore[attr-defined]
    return f"\n  hint: create one with `ml.{name}()`" if name else ""


def _backend(backend: Backend | None) -> Backend:
    from .backends.base import Backend  # noqa: PLC0415

    if backend is None:
        from .backends.cpu import CpuBackend  # noqa: PLC0415

        backend = CpuBackend()
    if not isinstance(backend, Backend):
        raise UsageError(
            f"`backend` is not a backend\n  got: {shown(backend)}"
            "\n  expected: a backend, such as `ml.NumpyBackend()`" + _backend_hint(backend)
        )
    return backend
