"""The library of blocks, and what models are built with. Classes are made from the block table of
the extension module when they are first asked for."""

from __future__ import annotations

from ._core import (
    Block,
    Connection,
    IOKey,
    Model,
    TrainModel,
    block_info,
    block_names,
    did_you_mean,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import inspect
    import typing

__all__ = ["Block", "Connection", "IOKey", "Model", "TrainModel"]
__all__.extend(block_names())


class _Signature:
    """What `inspect.signature` finds of a block's class."""

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
        near = did_you_mean(name, __all__)
        hint = f": {near}" if near else ""
        raise AttributeError(f"module `mithril.models` has no `{name}`{hint}")
    terminals = f"{', '.join(info.inputs)} -> {', '.join(info.outputs)}"
    body = {
        "__doc__": f"{info.doc}\n\nTerminals: {terminals}.",
        "__module__": __name__,
        "__qualname__": name,
        "__signature__": _Signature(),
        "_entry": name,
    }
    made = globals()[name] = type(name, (Block,), body)
    return made


def __dir__() -> list[str]:
    return sorted(__all__)
