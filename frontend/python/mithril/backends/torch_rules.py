"""How operations are divided for which DTensor has no rule, or one that does not hold for all
operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Rules"]

Places = list[Any]


class Rules(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which convolutions are divided along the batch alone and attention along batch
    and heads, and an operation that DTensor cannot divide runs on whole operands.

    What is decided depends on shapes and placements, which are equal on all ranks, so all ranks
    take the same way.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        arrays = list(_arrays((args, kwargs)))
        if not arrays:
            return func(*args, **kwargs)
        if func in RULES:
            return RULES[func](func, arrays[0].device_mesh, args, kwargs)
        try:
            return func(*args, **kwargs)
        except (NotImplementedError, AssertionError, RuntimeError) as error:
            if func._schema.is_mutable or _is_failure(error):
                raise
        mesh = arrays[0].device_mesh
        whole = [Replicate()] * mesh.ndim

        def local(value: Any) -> Any:
            if not isinstance(value, DTensor):
                return value
            return value.redistribute(mesh, whole).to_local().contiguous()

        def wrapped(value: Any) -> Any:
            return _wrapped(value, mesh, whole) if isinstance(value, torch.Tensor) else value

        return _map(wrapped, func(*_map(local, args), **_map(local, kwargs)))


def _is_failure(error: Exception) -> bool:
    """Whether the error may be that of one rank alone: of its elements, its memory or the
    connection."""
    failures = (torch.linalg.LinAlgError, torch.OutOfMemoryError)  # type: ignore[attr-defined]
    text = str(error)
    return isinstance(error, failures) or "gloo" in text or "can't allocate memory" in text


def _convolution(func: Any, mesh: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, weight, bias, *rest = args
    batch = _divided(mesh, x, (0,), [])
    out = func(_local(x, mesh, batch), _whole(weight, mesh), _whole(bias, mesh), *rest, **kwargs)
    return _wrapped(out, mesh, batch)


def _convolution_backward(
    func: Any, mesh: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    gradient, x, weight, *rest = args
    batch = _divided(mesh, x, (0,), [])
    own = _local(gradient, mesh, batch), _local(x, mesh, batch), _whole(weight, mesh)
    # The gradients of weights are sums over the batch, and so over its parts.
    sums = [Partial() if isinstance(place, Shard) else place for place in batch]
    found = zip(func(*own, *rest, **kwargs), (batch, sums, sums))
    return tuple(None if value is None else _wrapped(value, mesh, own) for value, own in found)


def _attention(func: Any, mesh: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Attention and its gradient, whose arrays are (batch, heads, ...)."""
    arrays = [value for value in args if isinstance(value, torch.Tensor)]
    divided = _divided(mesh, next(a for a in arrays if isinstance(a, DTensor)), (0, 1), arrays)
    local = [_local(v, mesh, divided) if isinstance(v, torch.Tensor) else v for v in args]
    mask = kwargs.get("attn_mask")
    if mask is not None:
        # A mask may broadcast along batch and heads, and may lack these axes.
        missing = arrays[0].ndim - mask.ndim
        own = [_of_mask(place, mask, missing) for place in divided]
        kwargs = {**kwargs, "attn_mask": _local(mask, mesh, own)}
    return tuple(_wrapped(value, mesh, divided) for value in func(*local, **kwargs))


def _of_mask(place: Any, mask: Any, missing: int) -> Any:
    if not isinstance(place, Shard):
        return place
    axis = place.dim - missing
    return Shard(axis) if axis >= 0 and mask.shape[axis] > 1 else Replicate()


def _batch_norm(func: Any, mesh: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The norm of whole arrays. It writes the running statistics, though its schema does not say
    so."""
    whole = [Replicate()] * mesh.ndim
    local = [_local(v, mesh, whole) if isinstance(v, torch.Tensor) else v for v in args]
    found = func(*local, **kwargs)
    training = args[5]
    for given, written in zip(args[3:5], local[3:5]):
        if training and given is not None:
            given.copy_(_wrapped(written, mesh, whole))
    return tuple(_wrapped(value, mesh, whole) for value in found)


ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
RULES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.convolution.default: _convolution,
    torch.ops.aten.convolution_backward.default: _convolution_backward,
    torch.ops.aten.native_batch_norm.default: _batch_norm,
    getattr(torch.ops.aten, ATTENTION).default: _attention,
    getattr(torch.ops.aten, f"{ATTENTION}_backward").default: _attention,
}


def _divided(mesh: Any, array: Any, axes: tuple[int, ...], others: list[Any]) -> Places:
    """The placements of an array of which only these axes stay divided, if the other arrays have
    them as well, with the same sizes."""
    if not isinstance(array, DTensor):
        return [Replicate()] * mesh.ndim

    def is_even(axis: int) -> bool:
        sizes = zip(mesh.shape, array.placements)
        parts = prod(size for size, place in sizes if place == Shard(axis))
        equal = all(other.shape[axis] == array.shape[axis] for other in others)
        return bool(equal and array.shape[axis] % parts == 0)

    kept = [Shard(axis) for axis in axes if is_even(axis)]
    return [place if place in kept else Replicate() for place in array.placements]


def _local(value: Any, mesh: Any, places: Places) -> Any:
    if not isinstance(value, DTensor):  # a tensor that counts as replicated
        value = _wrapped(value, mesh, [Replicate()] * mesh.ndim)
    return value.redistribute(mesh, places).to_local()


def _whole(value: Any, mesh: Any) -> Any:
    return None if value is None else _local(value, mesh, [Replicate()] * mesh.ndim)


def _wrapped(value: torch.Tensor, mesh: Any, places: Places) -> DTensor:
    return DTensor.from_local(value, mesh, places, run_check=False)


def _arrays(value: Any) -> Iterator[DTensor]:
    if isinstance(value, DTensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for own in value:
            yield from _arrays(own)
    elif isinstance(value, dict):
        yield from _arrays(list(value.values()))


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_map(function, own) for own in value)
    if isinstance(value, dict):
        return {name: _map(function, own) for name, own in value.items()}
    return function(value)
