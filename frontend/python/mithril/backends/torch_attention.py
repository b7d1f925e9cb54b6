"""How attention is divided over a mesh: along batch, heads and sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from .torch_parts import Places, as_dtensor, kept_parts, local_part
from .torch_ring import (
    SEQUENCE,
    Kernel,
    past_attention,
    past_attention_gradient,
    ring_attention,
    ring_attention_gradient,
)

__all__ = ["attention"]


def attention(func: Any, mesh: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Attention and its gradient, whose arrays are (batch, heads, sequence, ...)."""
    axis = _sequence_axis(mesh, args, kwargs)
    if axis is not None:
        return _along_sequence(func, mesh, args, kwargs, axis)
    arrays = [value for value in args if isinstance(value, torch.Tensor)]
    divided = kept_parts(mesh, next(a for a in arrays if isinstance(a, DTensor)), (0, 1), arrays)
    local = [local_part(v, mesh, divided) if isinstance(v, torch.Tensor) else v for v in args]
    kwargs = _with_local_mask(kwargs, mesh, divided)
    return tuple(as_dtensor(value, mesh, divided) for value in func(*local, **kwargs))


def _arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any], Places]:
    """The arrays of an attention or its gradient, its options, and query, key and value of the
    arrays. In a gradient, these follow the gradient of the output."""
    arrays = [value for value in args if isinstance(value, torch.Tensor)]
    options = dict(zip(("dropout_p", "is_causal"), args[len(arrays) :]))
    operands = arrays[:3] if len(arrays) == 3 else arrays[1:4]
    return arrays, {"is_causal": False, **options, **kwargs}, operands


def _sequence_axis(mesh: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """The mesh axis over whose ranks the sequence of an attention stays divided, if there is one.
    The parts must be equal. In a causal call, each query must have a key at its position."""
    _, options, (query, key, _) = _arguments(args, kwargs)
    if not isinstance(query, DTensor):
        return None
    lengths = query.shape[SEQUENCE], key.shape[SEQUENCE]
    if options["is_causal"] and lengths[0] != lengths[1]:
        return None
    for axis, (size, place) in enumerate(zip(mesh.shape, query.placements)):
        even = all(length % size == 0 for length in lengths)
        if place == Shard(SEQUENCE) and size > 1 and even:
            return axis
    return None


def _along_sequence(
    func: Any, mesh: Any, args: tuple[Any, ...], kwargs: dict[str, Any], axis: int
) -> Any:
    """Attention and its gradient with the sequence divided over a mesh axis, and batch and heads
    over the others."""
    arrays, options, operands = _arguments(args, kwargs)
    own = kept_parts(mesh, operands[0], (0, 1), arrays)
    own[axis] = Shard(SEQUENCE)
    if all(_has_whole_sequence(value) for value in operands[1:]):
        return _to_whole_keys(func, mesh, args, kwargs, (own, axis))
    local = [local_part(value, mesh, own) for value in arrays]
    options = _with_local_mask(options, mesh, own)
    given = {"causal": options.pop("is_causal"), "mask": options.pop("attn_mask", None)}
    ring, attend = mesh.get_group(axis), _kernel(func, local, options)
    found: tuple[Any, ...]
    if len(arrays) == len(operands):
        found = ring_attention(attend, ring, *local, **given)
    else:
        found = ring_attention_gradient(attend, ring, *local[2:4], **given)
    return tuple(as_dtensor(part, mesh, own) for part in found)


def _kernel(func: Any, local: list[Any], options: dict[str, Any]) -> Kernel:
    """Attention of blocks of queries, keys and values, or its gradient for blocks of keys and
    values."""
    before, after = ([], []) if len(local) == 3 else (local[:2], local[4:])

    def attend(*blocks: Any, causal: bool, mask: Any = None) -> Any:
        own = options if mask is None else {**options, "attn_mask": mask}
        return func(*before, *blocks, *after, is_causal=causal, **own)

    return attend


def _has_whole_sequence(value: Any) -> bool:
    return not isinstance(value, DTensor) or Shard(SEQUENCE) not in value.placements


def _to_whole_keys(
    func: Any,
    mesh: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    divided: tuple[Places, int],
) -> Any:
    """The same for queries that are divided and keys that each rank has anyway: nothing is
    sent."""
    own, axis = divided
    arrays, options, operands = _arguments(args, kwargs)
    options = _with_local_mask(options, mesh, own)
    whole = [*own[:axis], Replicate(), *own[axis + 1 :]]
    # The gradients of keys and values are sums over the queries, and so over their parts.
    sums = [*own[:axis], Partial(), *own[axis + 1 :]]
    is_key = [any(value is x for x in operands[1:]) for value in arrays]
    local = [local_part(x, mesh, whole if key else own) for x, key in zip(arrays, is_key)]
    found: tuple[Any, ...]
    if options.pop("is_causal"):
        attend, length = _kernel(func, local, options), local[0].shape[SEQUENCE]
        start = mesh.get_local_rank(axis) * length
        if len(arrays) == len(operands):
            found = past_attention(attend, start, *local)
        else:
            found = past_attention_gradient(attend, start, length, *local[2:4])
    else:
        found = func(*local, is_causal=False, **options)
    places = [own, own] if len(arrays) == len(operands) else [own, sums, sums]
    # Sums over ranks are contiguous, and DTensor takes them to have the strides of the parts.
    return tuple(as_dtensor(part.contiguous(), mesh, own) for part, own in zip(found, places))


def _with_local_mask(options: dict[str, Any], mesh: Any, divided: Places) -> dict[str, Any]:
    """The options with the part of the mask for operands that are divided so. All columns stay."""
    mask = options.get("attn_mask")
    if mask is None:
        return options
    # A mask may broadcast along batch, heads and queries, and may lack the first two.
    own = [_of_mask(place, mask, SEQUENCE + 2 - mask.ndim) for place in divided]
    return {**options, "attn_mask": local_part(mask, mesh, own)}


def _of_mask(place: Any, mask: Any, missing: int) -> Any:
    if not isinstance(place, Shard):
        return place
    axis = place.dim - missing
    return Shard(axis) if axis >= 0 and mask.shape[axis] > 1 else Replicate()
