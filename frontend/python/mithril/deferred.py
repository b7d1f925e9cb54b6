"""Params whose shapes are not known before the first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NoReturn

from .errors import MithrilError

__all__ = ["Deferred"]


class Deferred:
    """A placeholder in a dict of params, which the first `evaluate` replaces by an array.

    Any other use than copying it raises a `MithrilError` that suggests `shapes=`.
    """

    __slots__ = ("_draw", "_fan_of", "_name", "_value")

    def __init__(
        self,
        name: str,
        draw: Callable[[tuple[int, ...], tuple[int, ...] | None], Any],
        fan_of: str | None = None,
    ) -> None:
        """`draw(shape, fan_shape)` makes the array. `fan_shape` is the shape of the param `fan_of`,
        which determines the fan."""
        self._name = name
        self._draw = draw
        self._fan_of = fan_of
        self._value: Any = None

    def drawn(self, shapes: Mapping[str, Sequence[int]]) -> Any:
        """Draws the array with its shape from `shapes`. Copies of the dict of params share it."""
        shape = tuple(shapes[self._name])
        if self._value is None or tuple(self._value.shape) != shape:
            fan_of = None if self._fan_of is None else shapes.get(self._fan_of)
            self._value = self._draw(shape, None if fan_of is None else tuple(fan_of))
        return self._value

    def __copy__(self) -> Deferred:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Deferred:
        copied = Deferred(self._name, self._draw, self._fan_of)
        copied._value = deepcopy(self._value, memo)
        return copied

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        _refuse(self)

    def __repr__(self) -> str:
        return f"<`{self._name}` is drawn at the first `evaluate`>"

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        _refuse(self)


def _refuse(self: Deferred, *_: object) -> NoReturn:
    raise MithrilError(
        f"the param `{self._name}` has no value before the first `evaluate`: its shape depends on "
        "the inputs\n  hint: give `shapes=` for every input to draw params before the first call"
    )


_USES = (
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "floordiv",
    "rfloordiv",
    "mod",
    "rmod",
    "pow",
    "rpow",
    "matmul",
    "rmatmul",
    "neg",
    "pos",
    "abs",
    "lt",
    "le",
    "gt",
    "ge",
    "getitem",
    "setitem",
    "len",
    "iter",
    "float",
    "int",
    "bool",
    "array",
    "jax_array",
)
for _name in _USES:
    setattr(Deferred, f"__{_name}__", _refuse)
