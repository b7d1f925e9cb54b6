# The class of a block is created at its first use, from the extension module's table of blocks.

from __future__ import annotations

from ._core import (
    Block,
    Connection,
    IOKey,
    Model,
    TrainModel,
    block_info,
    block_listing,
    block_names,
)
from .errors import missing_name

__doc__ = block_listing()

TYPE_CHECKING = False
if TYPE_CHECKING:
    import inspect
    import typing


class _Names(list):
    """The names for `import *`. `help` describes in full the names for which `in __all__` is true.
    This list says no for every name, as the module's docstring lists the blocks."""

    def __contains__(self, name: object) -> bool:
        return False


__all__ = ["Block", "Connection", "IOKey", "Model", "TrainModel"]
__all__.extend(block_names())
__all__ = _Names(__all__)  # noqa: PLE0605


class _BlockClass(type):
    """The metaclass of block classes. Its `dir`, and so `help`, omits the members of every
    block."""

    def __dir__(cls) -> list[str]:
        own = cls.__mro__[: cls.__mro__.index(Block)]
        return sorted({name for base in own for name in vars(base) if name not in _PLUMBING})


_PLUMBING = {"__dict__", "__doc__", "__module__", "__qualname__", "__signature__", "_entry"}


class _Signature:
    """The signature of a block's class, for `inspect.signature`."""

    def __get__(self, instance: object, owner: typing.Any) -> inspect.Signature:
        import inspect  # noqa: PLC0415

        info = block_info(owner._entry)
        if info is None:
            raise AttributeError("__signature__")
        parameters = [
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=_value(default) if default else inspect.Parameter.empty,
                annotation=annotation,
            )
            for name, annotation, default in info.parameters
        ]
        parameters += [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_value(default),
                annotation=annotation,
            )
            for name, annotation, default in info.keywords
        ]
        return inspect.Signature(parameters)


def _value(text: str) -> typing.Any:
    from ast import literal_eval  # noqa: PLC0415

    return literal_eval(text)


def __getattr__(name: str) -> typing.Any:
    info = block_info(name)
    if info is None:
        raise missing_name("mithril.models", name, __all__)
    body = {
        "__doc__": info.help,
        "__module__": __name__,
        "__qualname__": name,
        "__signature__": _Signature(),
        "_entry": name,
    }
    made = globals()[name] = _BlockClass(name, (Block,), body)
    return made


def __dir__() -> list[str]:
    return sorted(__all__)
