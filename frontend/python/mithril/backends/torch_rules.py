"""How operations are divided for which DTensor has no rule, or one that does not hold for all
operands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .torch_ring import (
    SEQUENCE,
    Kernel,
    past_attention,
    past_attention_gradient,
    ring_attention,
    ring_attention_gradient,
)

__all__ = ["Functions", "Handlers", "Rules", "reduced"]

Places = list[Any]
Call = tuple[Any, int]
"""An operation, and the number of the call, from 1."""


class Rules(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which convolutions and triangular systems are divided along the batch alone and
    attention along batch, heads and sequence, and an operation that DTensor cannot divide runs on
    whole operands.

    Partial results of ranks are reduced at once: DTensor hands them to operations that do not
    distribute over the reduction, such as a division by a sum.

    What is decided depends on shapes and placements, which are equal on all ranks, so all ranks
    take the same way.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.needed: dict[Any, int] = {}
        """How many calls of each operation, from the first on, must be done by rule: up to the
        last one that a rule changed, or whose sum another operation read."""
        self._calls: Counter[Any] = Counter()
        self._sums: dict[int, tuple[DTensor, set[Call]]] = {}
        """Arrays whose partial results were reduced, and views of them, with the calls that
        computed them."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise each operation would first switch the tracing of `torch.compile` off.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # This runs for each operation, also for those on parts.
        if DTensor not in types and not any(issubclass(own, DTensor) for own in types):
            return func(*args, **kwargs)
        self._calls[func] += 1
        call = func, self._calls[func]
        sources = self._sources((*args, *kwargs.values())) if self._sums else set()
        if sources and func in LAYOUTS:
            found = func(*args, **kwargs)
            self._sums[id(found)] = found, sources
            return found
        found, by_rule = _divided_call(func, args, kwargs)
        self._need({*sources, call} if by_rule else sources)

        def without_sums(value: Any) -> Any:
            whole = reduced(value)
            if whole is not value:
                self._sums[id(whole)] = whole, {call}
            return whole

        return _map(without_sums, found)

    def keep_sums(self) -> None:
        """Counts all sums as read."""
        for _, calls in self._sums.values():
            self._need(calls)

    def _need(self, calls: set[Call]) -> None:
        for func, number in calls:
            self.needed[func] = max(self.needed.get(func, 0), number)

    def _sources(self, values: Iterable[Any]) -> set[Call]:
        """The calls that computed those of the values that are reduced sums."""
        found: set[Call] = set()
        for value in values:
            if id(value) in self._sums:
                found |= self._sums[id(value)][1]
            elif isinstance(value, (tuple, list)):
                found |= self._sources(value)
        return found


class Handlers:
    """A context in which some operations are done as in `Rules`. Unlike that one, it costs other
    operations nothing: it uses the table in which DTensor looks operations up first."""

    def __init__(self, needed: Mapping[Any, int]) -> None:
        """`needed` has the number of calls of each operation that are done so; later ones are left
        to DTensor."""
        self._needed = needed
        self._left: dict[Any, int] = {}
        self._others: dict[Any, Any] = {}
        self._is_inside = False

    def __enter__(self) -> None:
        table = _handlers()
        self._left = dict(self._needed)
        self._others = {func: table[func] for func in self._needed if func in table}
        table.update(dict.fromkeys(self._needed, self._call))

    def __exit__(self, *_: object) -> None:
        for func, left in self._left.items():
            if left:
                self._restore(func)

    def _restore(self, func: Any) -> None:
        if func in self._others:
            _handlers()[func] = self._others[func]
        else:
            _handlers().pop(func, None)

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._restore(func)
        if self._is_inside:  # the operations of a rule are left to DTensor
            try:
                return func(*args, **kwargs)
            finally:
                _handlers()[func] = self._call
        self._left[func] -= 1
        self._is_inside = True
        try:
            return _map(reduced, _divided_call(func, args, kwargs)[0])
        finally:
            self._is_inside = False
            if self._left[func]:
                _handlers()[func] = self._call


def _handlers() -> dict[Any, Any]:
    """DTensor's table of functions that do operations in place of its own."""
    table: dict[Any, Any] = DTensor._op_dispatcher._custom_op_handlers
    return table


def _divided_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
    """The result of an operation on divided arrays, and whether it is another than DTensor's."""
    by_rule = False
    if func in SPECIAL:
        if func in RIGHT:
            func, by_rule = RIGHT[func], True
        if func in REDUCTIONS and len(args) > 1 and not args[1]:
            # No axes means all of them, which DTensor takes for none.
            args, by_rule = (args[0], list(range(args[0].ndim)), *args[2:]), True
        if func in RULES:
            mesh = next(_arrays((args, kwargs))).device_mesh
            return RULES[func](func, mesh, args, kwargs), True
    try:
        return func(*args, **kwargs), by_rule
    except (NotImplementedError, AssertionError, RuntimeError) as error:
        if func._schema.is_mutable or _is_failure(error):
            raise
    mesh = next(_arrays((args, kwargs))).device_mesh
    whole = [Replicate()] * mesh.ndim

    def local(value: Any) -> Any:
        if not isinstance(value, DTensor):
            return value
        return value.redistribute(mesh, whole).to_local().contiguous()

    def wrapped(value: Any) -> Any:
        return _wrapped(value, mesh, whole) if isinstance(value, torch.Tensor) else value

    return _map(wrapped, func(*_map(local, args), **_map(local, kwargs))), True


class Functions(TorchFunctionMode):
    """A context in which recurrent layers are divided along the batch alone, and a vector is
    multiplied by a matrix as a matrix of one row.

    PyTorch implements these functions by operations in place that change shapes, which DTensor
    gets wrong.
    """

    needed = False
    """Whether there was such a function."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in RECURRENT and isinstance(args[0], DTensor):
            self.needed = True
            return _recurrent(func, args, kwargs)
        if func in PRODUCTS and len(args) == 2 and not kwargs:
            left, right = args[::-1] if func is torch.Tensor.__rmatmul__ else args
            if isinstance(left, DTensor) and left.ndim == 1 and right.ndim > 1:
                self.needed = True
                return torch.matmul(left.unsqueeze(0), right).squeeze(-2)
        return func(*args, **kwargs)


RECURRENT = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})
PRODUCTS = frozenset({
    torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__,
})  # fmt: skip


def _recurrent(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, hidden, weights = args
    mesh, axis = x.device_mesh, 0 if kwargs["batch_first"] else 1
    batch = _divided(mesh, x, (axis,), [])
    whole = [Replicate()] * mesh.ndim
    # Hidden states are (layers, batch, features).
    states = [Shard(1) if isinstance(place, Shard) else place for place in batch]
    sums = [Partial() if isinstance(place, Shard) else place for place in batch]
    several = isinstance(hidden, tuple)
    own = [_local(value, mesh, states) for value in (hidden if several else (hidden,))]
    local = [w.redistribute(mesh, whole).to_local(grad_placements=sums) for w in weights]
    first, *rest = func(_local(x, mesh, batch), tuple(own) if several else own[0], local, **kwargs)
    return _wrapped(first, mesh, batch), *(_wrapped(value, mesh, states) for value in rest)


def reduced(value: Any) -> Any:
    """The array without partial results of ranks that are still to be reduced."""
    if not isinstance(value, DTensor):
        return value
    # A loop, as a generator takes longer, and this runs for each operation.
    for place in value.placements:
        if isinstance(place, Partial):
            break
    else:
        return value
    places = [Replicate() if isinstance(place, Partial) else place for place in value.placements]
    return value.redistribute(value.device_mesh, places)


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
    """Attention and its gradient, whose arrays are (batch, heads, sequence, ...)."""
    axis = _sequence_axis(mesh, args, kwargs)
    if axis is not None:
        return _along_sequence(func, mesh, args, kwargs, axis)
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
    if options.get("attn_mask") is not None or not isinstance(query, DTensor):
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
    own = _divided(mesh, operands[0], (0, 1), arrays)
    own[axis] = Shard(SEQUENCE)
    if all(_has_whole_sequence(value) for value in operands[1:]):
        return _to_whole_keys(func, mesh, args, kwargs, (own, axis))
    local = [_local(value, mesh, own) for value in arrays]
    ring, causal = mesh.get_group(axis), options.pop("is_causal")
    attend = _kernel(func, local, options)
    found: tuple[Any, ...]
    if len(arrays) == len(operands):
        found = ring_attention(attend, ring, *local, causal=causal)
    else:
        found = ring_attention_gradient(attend, ring, *local[2:4], causal=causal)
    return tuple(_wrapped(part, mesh, own) for part in found)


def _kernel(func: Any, local: list[Any], options: dict[str, Any]) -> Kernel:
    """Attention of blocks of queries, keys and values, or its gradient for blocks of keys and
    values."""
    if len(local) == 3:
        return lambda *blocks, causal: func(*blocks, is_causal=causal, **options)
    before, after = local[:2], local[4:]
    return lambda *blocks, causal: func(*before, *blocks, *after, is_causal=causal, **options)


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
    whole = [*own[:axis], Replicate(), *own[axis + 1 :]]
    # The gradients of keys and values are sums over the queries, and so over their parts.
    sums = [*own[:axis], Partial(), *own[axis + 1 :]]
    is_key = [any(value is x for x in operands[1:]) for value in arrays]
    local = [_local(x, mesh, whole if key else own) for x, key in zip(arrays, is_key)]
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
    return tuple(_wrapped(part.contiguous(), mesh, own) for part, own in zip(found, places))


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


def _triangular(func: Any, mesh: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The solution of triangular systems. DTensor may divide the right sides alone along the batch,
    and leave all matrices to each part."""
    matrices, sides = args
    batch = range(sides.ndim - 2) if matrices.ndim == sides.ndim else ()
    divided = _divided(mesh, sides, tuple(batch), [matrices])
    local = func(*(_local(value, mesh, divided) for value in args), **kwargs)
    return _wrapped(local, mesh, divided)


aten = torch.ops.aten
# Operations for which DTensor's rule is wrong, and others that do the same.
RIGHT = {
    aten.__lshift__.Tensor: aten.bitwise_left_shift.Tensor,
    aten.__lshift__.Scalar: aten.bitwise_left_shift.Tensor_Scalar,
    aten.__rshift__.Tensor: aten.bitwise_right_shift.Tensor,
    aten.__rshift__.Scalar: aten.bitwise_right_shift.Tensor_Scalar,
}
REDUCTIONS = (aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default)
# These keep partial results as they are.
LAYOUTS = frozenset({
    aten.view.default, aten._unsafe_view.default, aten.t.default, aten.transpose.int,
    aten.permute.default, aten.unsqueeze.default, aten.squeeze.dim, aten.detach.default,
})  # fmt: skip
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
RULES: dict[Any, Callable[..., Any]] = {
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten.native_batch_norm.default: _batch_norm,
    aten.linalg_solve_triangular.default: _triangular,
    getattr(aten, ATTENTION).default: _attention,
    getattr(aten, f"{ATTENTION}_backward").default: _attention,
}

SPECIAL = frozenset({*RIGHT, *REDUCTIONS, *RULES})


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
