"""Maps the weights of public implementations to params. Each architecture declares its mapping as
rules; `load` applies them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..backends.numpy import NumpyBackend
from ..compilation import compile
from ..errors import MithrilError, UsageError, mapping, shown
from ..models import Model

__all__ = ["Architecture", "Rule", "Weights", "load"]

Array = Any
Layout = Callable[[Sequence[Array]], Array]


class Weights(NamedTuple):
    """NumPy arrays by the keys of a compiled model."""

    params: dict[str, Array]
    """The values for `evaluate(params, …)`."""
    states: dict[str, Array]
    """The values for `compiled.state`, such as running statistics; empty for most models."""


@dataclass(frozen=True)
class Rule:
    """The origin of the params, or states, whose names fit a pattern. A `{}` stands for letters,
    digits and underscores, the same ones in `ours` and `theirs`.

    If several rules fit one param, the public weights are tied: one of them is enough, and those
    that are given must be equal.
    """

    ours: str
    theirs: tuple[str, ...]
    layout: Layout
    inside: bool = True
    """Whether `theirs` are inside the part of a larger model that has a prefix."""


class Architecture(Model):
    """A model that knows the names of a public implementation."""

    _rules: Sequence[Rule] = ()
    """The origin of each param and state."""
    _ignored: Sequence[str] = ()
    """Patterns of names that `load` ignores, such as counters and caches. `*` is any text."""
    _prefixes: Sequence[str] = ()
    """Prefixes that names have if the public model is part of a larger one."""


# Layouts.


def same(arrays: Sequence[Array]) -> Array:
    """The array as it is."""
    return arrays[0]


def transposed(arrays: Sequence[Array]) -> Array:
    """(in, out) of PyTorch's (out, in)."""
    return arrays[0].T


def flat(arrays: Sequence[Array]) -> Array:
    """The array without its leading axes of size 1."""
    array = arrays[0]
    while array.ndim > 1 and array.shape[0] == 1:
        array = array[0]
    return array


def as_vector(arrays: Sequence[Array]) -> Array:
    """A number as an array of one element."""
    return arrays[0][None] if arrays[0].ndim == 0 else arrays[0]


def summed(arrays: Sequence[Array]) -> Array:
    """The sum of PyTorch's two biases of a recurrent layer."""
    if arrays[0].shape != arrays[1].shape:
        raise ValueError("the biases have different shapes")
    return arrays[0] + arrays[1]


def part(index: int, parts: int, layout: Layout = same) -> Layout:
    """One of several equal parts of the last axis, after `layout`."""

    def take(arrays: Sequence[Array]) -> Array:
        array = layout(arrays)
        if array.ndim == 0 or array.shape[-1] % parts:
            raise ValueError("the last axis cannot be divided")
        size = array.shape[-1] // parts
        return array[..., index * size : (index + 1) * size]

    return take


# Rules of the kinds of layers. `theirs` defaults to `ours`.


def table(ours: str, theirs: str) -> list[Rule]:
    """An embedding, or a norm without a bias."""
    return [Rule(f"{ours}.w", (f"{theirs}.weight",), same)]


def plain(ours: str, theirs: str | None = None) -> list[Rule]:
    """A convolution or a norm: `weight` and `bias` have the same layout."""
    theirs = theirs or ours
    return [*table(ours, theirs), Rule(f"{ours}.b", (f"{theirs}.bias",), same)]


def old_norm(ours: str, theirs: str) -> list[Rule]:
    """A norm whose `weight` and `bias` are called `gamma` and `beta` in older files."""
    old = [
        Rule(f"{ours}.w", (f"{theirs}.gamma",), same),
        Rule(f"{ours}.b", (f"{theirs}.beta",), same),
    ]
    return plain(ours, theirs) + old


def batch_norm(ours: str, theirs: str | None = None) -> list[Rule]:
    """A batch norm, with its running statistics."""
    running = [
        Rule(f"{ours}.{name}", (f"{theirs or ours}.{name}",), same)
        for name in ("running_mean", "running_var")
    ]
    return plain(ours, theirs) + running


def linear(ours: str, theirs: str | None = None) -> list[Rule]:
    """A linear layer, whose `weight` is (out, in)."""
    theirs = theirs or ours
    return [
        Rule(f"{ours}.w", (f"{theirs}.weight",), transposed),
        Rule(f"{ours}.b", (f"{theirs}.bias",), same),
    ]


def attention(ours: str, theirs: Mapping[str, str]) -> list[Rule]:
    """An attention with one linear layer for each of `query`, `key`, `value` and `output`."""
    return [
        Rule(f"{ours}.{param}_{role}", (f"{name}.{suffix}",), layout)
        for role, name in theirs.items()
        for param, suffix, layout in (("w", "weight", transposed), ("b", "bias", same))
    ]


def joint_attention(ours: str, theirs: str) -> list[Rule]:
    """`torch.nn.MultiheadAttention`, whose `in_proj_weight` has the rows of three projections."""
    rules = [
        Rule(f"{ours}.{param}_{role}", (f"{theirs}.in_proj_{suffix}",), part(index, 3, layout))
        for index, role in enumerate(("query", "key", "value"))
        for param, suffix, layout in (("w", "weight", transposed), ("b", "bias", same))
    ]
    return rules + attention(ours, {"output": f"{theirs}.out_proj"})


def recurrent(ours: str, theirs: str, suffix: str) -> list[Rule]:
    """A layer and direction of `torch.nn.LSTM` or `torch.nn.RNN`, such as `l0` or `l0_reverse`."""
    return [
        Rule(f"{ours}.w", (f"{theirs}.weight_ih_{suffix}",), transposed),
        Rule(f"{ours}.u", (f"{theirs}.weight_hh_{suffix}",), transposed),
        Rule(f"{ours}.b", (f"{theirs}.bias_ih_{suffix}", f"{theirs}.bias_hh_{suffix}"), summed),
    ]


def outside(rules: Sequence[Rule]) -> list[Rule]:
    """Rules of layers after the part that has a prefix, such as the last layer of GPT-2."""
    return [replace(rule, inside=False) for rule in rules]


# The engine.


def load(model: Model, state_dict: Mapping[str, Array]) -> Weights:
    """The params and states of an architecture of this package from weights under the names of its
    public implementation: tensors of PyTorch, arrays of NumPy, or what safetensors reads.

    Layouts change, values do not. The one exception is a recurrent layer, whose two biases are
    added.

    Errors: `UsageError` for a model of another kind, and for weights that are missing, left over,
    of a wrong shape, or tied and different. It lists all of them by name.
    """
    if not isinstance(model, Architecture):
        raise UsageError(
            f"`load` needs an architecture of `mithril.zoo`\n  got: {shown(model)}"
            "\n  expected: a model such as `zoo.ResNet(18)`, before it is copied or compiled"
        )
    given = mapping(state_dict, "state_dict", "arrays by name")
    arrays = {name: _as_numpy(value) for name, value in given.items()}
    search = _Search(model._rules, _prefix_of(model, given), arrays)
    compiled = compile(model, NumpyBackend(), inference=True)
    found: dict[str, dict[str, Array]] = {"param": {}, "state": {}}
    for argument in compiled._own.arguments:
        if argument.role in found:
            if argument.shape is None:
                raise MithrilError(f"the shape of `{argument.name}` is not known")
            value = search.find(argument.name, argument.shape)
            if value is not None:
                found[argument.role][argument.name] = value
    ignored = {name for name in given if any(fnmatchcase(name, p) for p in model._ignored)}
    left_over = [name for name in given if name not in search.used | ignored]
    _refuse(model, [*search.missing], left_over, search.wrong)
    return Weights(found["param"], found["state"])


class _Search:
    """Finds the values of params. Collects the names that were used, and what is wrong."""

    def __init__(self, rules: Sequence[Rule], prefix: str, arrays: Mapping[str, Array]) -> None:
        self.rules = rules
        self.prefix = prefix
        self.arrays = arrays
        self.used: set[str] = set()
        self.missing: dict[str, None] = {}
        self.wrong: list[str] = []

    def find(self, name: str, shape: Sequence[int]) -> Array | None:
        """The value of a param, or None if it is missing or wrong."""
        first = None
        origins = list(self.origins(name))
        if not origins:
            raise MithrilError(f"no rule of the architecture has an origin for `{name}`")
        for sources, layout in origins:
            present = [source for source in sources if source in self.arrays]
            self.used.update(present)
            if len(present) < len(sources):
                continue
            value = self.arranged(name, sources, layout, shape)
            if value is None:
                return None
            if first is not None and not np.array_equal(first, value, equal_nan=True):
                self.wrong.append(f"`{sources[0]}` is tied to `{origins[0][0][0]}`, but differs")
            first = value if first is None else first
        if first is None:
            sources = origins[0][0]
            self.missing.update(dict.fromkeys(s for s in sources if s not in self.arrays))
        return first

    def origins(self, name: str) -> Iterator[tuple[tuple[str, ...], Layout]]:
        """The names in the public implementation, with their layouts."""
        for rule in self.rules:
            match = _pattern(rule.ours).fullmatch(name)
            if match:
                prefix = self.prefix if rule.inside else ""
                names = tuple(prefix + name.format(*match.groups()) for name in rule.theirs)
                yield names, rule.layout

    def arranged(
        self, name: str, sources: Sequence[str], layout: Layout, shape: Sequence[int]
    ) -> Array | None:
        """A new array of these sources, or None if it does not have the shape of the param."""
        arrays = [self.arrays[source] for source in sources]
        try:
            value = layout(arrays)
            got = f"{tuple(value.shape)}"
        except ValueError as error:
            value, got = None, f"{error}: {', '.join(str(tuple(a.shape)) for a in arrays)}"
        if value is None or tuple(value.shape) != tuple(shape):
            names = " + ".join(f"`{source}`" for source in sources)
            self.wrong.append(f"{names} as `{name}`: got {got}, expected {tuple(shape)}")
            return None
        return np.array(value, order="C")


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(r"(\w+)".join(re.escape(piece) for piece in text.split("{}")))


def _prefix_of(model: Architecture, given: Mapping[str, Array]) -> str:
    """The prefix in this `state_dict`, or the empty string."""
    return next((p for p in model._prefixes if any(name.startswith(p) for name in given)), "")


def _as_numpy(value: Array) -> Array:
    """The value as a NumPy array with the same dtype."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        import ml_dtypes  # noqa: PLC0415
        import torch  # noqa: PLC0415

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _refuse(
    model: Model, missing: Sequence[str], left_over: Sequence[str], wrong: Sequence[str]
) -> None:
    """Errors: `UsageError` if one of the lists has an element."""
    lines = [f"\n  missing: `{name}`" for name in missing]
    lines += [f"\n  left over: `{name}`" for name in left_over]
    lines += [f"\n  wrong: {text}" for text in wrong]
    if lines:
        raise UsageError(f"the weights do not fit this {model.kind}{''.join(lines)}")
