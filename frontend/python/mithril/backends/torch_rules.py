"""How operations are divided for which DTensor has no rule, or one that does not hold for all
operands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .torch_attention import attention
from .torch_lookups import is_lookup, looked_up
from .torch_parts import as_dtensor, kept_parts, local_part, whole_array

__all__ = ["Functions", "Handlers", "Rules", "reduced"]

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
    lists = (own for own in args if isinstance(own, (list, tuple)))
    if any(_is_single(own) for own in chain(args, *lists)):
        mesh = next(_arrays((args, kwargs))).device_mesh
        whole = [Replicate()] * mesh.ndim
        args = _map(lambda own: as_dtensor(own, mesh, whole) if _is_single(own) else own, args)
        by_rule = True
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
        return as_dtensor(value, mesh, whole) if isinstance(value, torch.Tensor) else value

    return _map(wrapped, func(*_map(local, args), **_map(local, kwargs))), True


class Functions(TorchFunctionMode):
    """A context in which recurrent layers are divided along the batch alone, a vector is
    multiplied by a matrix as a matrix of one row, rows of a table are looked up where they lie, and
    the mask of an attention has an axis for the batch.

    PyTorch implements the first two by operations in place that change shapes, which DTensor gets
    wrong. Its kernels take no mask of three axes.
    """

    needed = False
    """Whether there was such a function."""

    def __init__(self) -> None:
        super().__init__()
        self._sums: dict[int, tuple[DTensor, list[DTensor]]] = {}
        """Sums of what was looked up. They are reduced when a function reads them, as a
        redistribution, which is none, may need a part alone."""

    def __exit__(self, *error: Any) -> None:
        self._sums.clear()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def _without_sums(self, value: Any) -> Any:
        if id(value) not in self._sums:
            return value
        found, whole = self._sums[id(value)]
        if not whole:
            whole.append(reduced(found))
        return whole[0]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._sums and func.__name__ != "__get__":  # of a property, such as the shape
            args, kwargs = (_map(self._without_sums, own) for own in (args, kwargs))
        if not kwargs and is_lookup(func, args):
            self.needed = True
            found = looked_up(*args)
            self._sums[id(found)] = found, []
            return found
        if func in RECURRENT and isinstance(args[0], DTensor):
            self.needed = True
            return _recurrent(func, args, kwargs)
        if func is scaled_dot_product_attention and isinstance(args[0], DTensor):
            mask = kwargs.get("attn_mask")
            if args[0].ndim == 4 and mask is not None and mask.ndim == 3:
                self.needed = True
                kwargs = {**kwargs, "attn_mask": mask.unsqueeze(0)}
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
    batch = kept_parts(mesh, x, (axis,), [])
    whole = [Replicate()] * mesh.ndim
    # Hidden states are (layers, batch, features).
    states = [Shard(1) if isinstance(place, Shard) else place for place in batch]
    sums = [Partial() if isinstance(place, Shard) else place for place in batch]
    several = isinstance(hidden, tuple)
    own = [local_part(value, mesh, states) for value in (hidden if several else (hidden,))]
    local = [w.redistribute(mesh, whole).to_local(grad_placements=sums) for w in weights]
    first, *rest = func(
        local_part(x, mesh, batch), tuple(own) if several else own[0], local, **kwargs
    )
    return as_dtensor(first, mesh, batch), *(as_dtensor(value, mesh, states) for value in rest)


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
    batch = kept_parts(mesh, x, (0,), [])
    out = func(
        local_part(x, mesh, batch),
        whole_array(weight, mesh),
        whole_array(bias, mesh),
        *rest,
        **kwargs,
    )
    return as_dtensor(out, mesh, batch)


def _convolution_backward(
    func: Any, mesh: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    gradient, x, weight, *rest = args
    batch = kept_parts(mesh, x, (0,), [])
    own = local_part(gradient, mesh, batch), local_part(x, mesh, batch), whole_array(weight, mesh)
    # The gradients of weights are sums over the batch, and so over its parts.
    sums = [Partial() if isinstance(place, Shard) else place for place in batch]
    found = zip(func(*own, *rest, **kwargs), (batch, sums, sums))
    return tuple(None if value is None else as_dtensor(value, mesh, own) for value, own in found)


def _batch_norm(func: Any, mesh: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The norm of whole arrays. It writes the running statistics, though its schema does not say
    so."""
    whole = [Replicate()] * mesh.ndim
    local = [local_part(v, mesh, whole) if isinstance(v, torch.Tensor) else v for v in args]
    found = func(*local, **kwargs)
    training = args[5]
    for given, written in zip(args[3:5], local[3:5]):
        if training and given is not None:
            given.copy_(as_dtensor(written, mesh, whole))
    return tuple(as_dtensor(value, mesh, whole) for value in found)


def _triangular(func: Any, mesh: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The solution of triangular systems. DTensor may divide the right sides alone along the batch,
    and leave all matrices to each part."""
    matrices, sides = args
    batch = range(sides.ndim - 2) if matrices.ndim == sides.ndim else ()
    divided = kept_parts(mesh, sides, tuple(batch), [matrices])
    local = func(*(local_part(value, mesh, divided) for value in args), **kwargs)
    return as_dtensor(local, mesh, divided)


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
    getattr(aten, ATTENTION).default: attention,
    getattr(aten, f"{ATTENTION}_backward").default: attention,
}

SPECIAL = frozenset({*RIGHT, *REDUCTIONS, *RULES})


def _is_single(value: Any) -> bool:
    """Whether this is an array of one element, with axes, that every rank has alike. DTensor takes
    it for replicated as well, with a warning. The gradient of a product has such arrays."""
    return type(value) is torch.Tensor and value.ndim > 0 and value.numel() == 1


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
