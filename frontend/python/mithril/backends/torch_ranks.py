"""What every rank of a PyTorch mesh does: it holds its parts of arrays, and calls functions on
them. Rank 0 sends the calls; see `torch_mesh.py`."""

from __future__ import annotations

import gc
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from math import prod
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import implicit_replication

from .._core import DType
from ..sources import namespace
from .meshes import Split
from .torch_buckets import Buckets
from .torch_rules import Functions, Handlers, Rules, reduced
from .torch_shared import Sent

__all__ = [
    "HERE",
    "LOCAL_CALLS",
    "STAGE_CALLS",
    "Numbered",
    "Program",
    "arrays_of",
    "differentiable",
    "forward",
    "from_part",
    "gradients",
    "joint",
    "load",
    "make_mesh",
    "packed",
    "pullback",
    "run",
    "stage_mesh",
    "torch_modes",
    "whole",
    "within",
]

Arrays = dict[str, Any]
Constants = list[tuple[str, str, list[int], bytes]]


class Numbered:
    """What every rank holds under the same number, and rank 0 sends as this number."""

    number: int

    def close(self) -> None:
        """Drops the process groups that it uses, before these end."""


@dataclass(eq=False)
class Program(Numbered):
    """Generated source on this rank, and the mesh of its arrays."""

    number: int
    mesh: DeviceMesh
    keys: tuple[str, ...]
    """The inputs that are random keys. The source reads their elements."""
    branches: bool
    """Whether elements of arrays decide which operations run."""
    names: dict[str, Any]
    has_sums: dict[Any, bool] = field(default_factory=dict)
    """Whether gradients are sums over ranks, by the placements of params and outputs."""


class Rank:
    """The objects of this rank. All ranks know them by the same numbers."""

    def __init__(self) -> None:
        self.arrays: dict[int, DTensor] = {}
        self.meshes: dict[tuple[Any, ...], DeviceMesh] = {}
        self.programs: dict[int, Numbered] = {}
        self.contexts: dict[Any, list[Any]] = {}
        """The contexts that a call needs, by what describes it."""

    def unpacked(self, data: bytes, memory: Sequence[Any]) -> Any:
        """What rank 0 packed, with this rank's objects in place of numbers, and large arrays in
        shared memory."""
        return _Reader(io.BytesIO(data), buffers=memory).load()

    def forget(self, numbers: Sequence[tuple[str, int]]) -> None:
        for kind, number in numbers:
            getattr(self, kind).pop(number, None)
            if kind == "programs":
                own = self.contexts.items()
                self.contexts = {call: kept for call, kept in own if call[1] != number}

    def close(self) -> None:
        """Drops all objects. Threads of a process group that outlives the interpreter would end the
        process by a signal."""
        for program in self.programs.values():
            program.close()
        self.programs.clear()
        self.meshes.clear()
        # Other ranks count their programs from the start again.
        self.contexts.clear()
        gc.collect()


HERE = Rank()
"""The rank of this process."""


class _Reader(pickle.Unpickler):
    def persistent_load(self, key: Any) -> Any:
        kind, number = key
        return getattr(HERE, kind)[number]


class _Writer(pickle.Pickler):
    held: Callable[[DTensor], int]

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, DTensor):
            return "arrays", self.held(value)
        if isinstance(value, DeviceMesh):
            return "meshes", mesh_key(value)
        if isinstance(value, Numbered):
            return "programs", value.number
        return None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (torch.memory_format, torch.layout, torch.qscheme)):
            return _named, (str(value).rpartition(".")[2],)
        if isinstance(value, torch.Tensor):
            whole = value.detach().cpu().contiguous()
            # PyTorch calls any strides contiguous where there is one element, and views bytes with
            # a stride of 1 alone.
            flat = whole.as_strided((whole.numel(),), (1,))
            return _tensor, (flat.view(torch.uint8).numpy(), value.dtype, tuple(value.shape))
        if isinstance(value, FunctionType) and value in _methods():
            return getattr, (torch.Tensor, _methods()[value])
        return NotImplemented


def _named(name: str) -> Any:
    return getattr(torch, name)


def _tensor(data: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of the bytes of its elements."""
    if not data.flags.writeable:
        data = data.copy()
    return torch.from_numpy(data).view(dtype).reshape(shape)


@cache
def _methods() -> dict[Any, str]:
    """Methods of tensors by their names. Some are functions that bear the name of another one."""
    named = {name: getattr(torch.Tensor, name, None) for name in dir(torch.Tensor)}
    return {own: name for name, own in named.items() if isinstance(own, FunctionType)}


def packed(value: Any, held: Callable[[DTensor], int], sent: Sent) -> bytes:
    """Pickles a value with numbers in place of the objects that every rank has. `held` returns the
    number of an array. Large arrays go to shared memory."""
    data = io.BytesIO()
    writer = _Writer(data, 5, buffer_callback=sent.take)
    writer.held = held
    writer.dump(value)
    return data.getvalue()


def arrays_of(result: Any) -> Iterator[DTensor]:
    """The divided arrays of a result, in an order that is the same on all ranks."""
    if isinstance(result, DTensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from arrays_of(value)
    elif isinstance(result, dict):
        yield from arrays_of(list(result.values()))


def torch_modes() -> tuple[bool, bool, torch.dtype | None]:
    """PyTorch's modes on this thread: whether gradients are recorded, whether it is in inference,
    and the dtype of autocast or None."""
    cast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), cast


@contextmanager
def within(modes: tuple[bool, bool, torch.dtype | None]) -> Iterator[None]:
    """A context with the modes of rank 0."""
    graph, inference, cast = modes
    with (
        torch.inference_mode(inference),
        torch.set_grad_enabled(graph),
        torch.autocast("cpu", cast, enabled=cast is not None),
    ):
        yield


def run(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Calls a function on this rank's parts. Tensors count as replicated, and operations that
    cannot be divided run on whole arrays.

    The modes cost up to a third of what DTensor itself costs. Later calls of a program with the
    same shapes and placements have rules only for the operations that needed them in the first.
    """
    with torch._C.DisableTorchFunctionSubclass(), implicit_replication(), ExitStack() as stack:
        if function in LOCAL_CALLS:
            return function(*args, **keywords)
        call = _described(function, args) if function in CALLS else None
        known = HERE.contexts.get(call)
        if known is not None:
            for context in known:
                stack.enter_context(context)
            return function(*args, **keywords)
        with Functions() as functions, Rules() as rules:
            result = function(*args, **keywords)
    if call is not None and not args[0].branches:
        if function is differentiable or (function is forward and torch.is_grad_enabled()):
            # The backward pass, which is another call, may read them.
            rules.keep_sums()
        HERE.contexts[call] = [functions] if functions.needed else []
        if rules.needed:
            HERE.contexts[call].append(Handlers(rules.needed))
    return result


def _described(function: Callable[..., Any], args: Any) -> Any:
    """What decides which operations a call of a program runs, and how they are divided."""
    program, *groups = args
    arrays = [
        (name, value.requires_grad, value.is_inference(), _layout(value))
        for group in groups
        if group is not None
        for name, value in group.items()
    ]
    return function, program.number, torch_modes(), tuple(arrays)


def _layout(value: Any) -> Any:
    """The mesh, the placements, the shape, the strides and the dtype of an array."""
    if isinstance(value, DTensor):
        return value._spec
    return value.shape, value.stride(), value.dtype


# The functions below are called on every rank.


def mesh_key(mesh: DeviceMesh) -> tuple[Any, ...]:
    return tuple(mesh.mesh.flatten().tolist()), tuple(mesh.shape), tuple(mesh.mesh_dim_names or ())


def make_mesh(sizes: tuple[int, ...], names: tuple[str, ...]) -> DeviceMesh:
    """PyTorch's mesh over the first ranks."""
    return _mesh_of(torch.arange(prod(sizes)).reshape(sizes), names)


def stage_mesh(mesh: DeviceMesh, axis: int, place: int) -> DeviceMesh:
    """The mesh of the ranks at one place along an axis of a mesh."""
    grid = mesh.mesh.narrow(axis, place, 1)
    return _mesh_of(grid, tuple(mesh.mesh_dim_names or ()))


def _mesh_of(grid: torch.Tensor, names: tuple[str, ...]) -> DeviceMesh:
    """PyTorch's mesh over these ranks. There is one of each shape: ranks know it by this."""
    key = tuple(grid.flatten().tolist()), tuple(grid.shape), names
    known = HERE.meshes.get(key)
    if known is not None:
        return known
    mesh = DeviceMesh("cpu", grid, mesh_dim_names=names)
    # Groups of some of the ranks wait as long as the group of all, not for PyTorch's half an hour.
    # PyTorch's simulated group, `fake`, never waits.
    world: Any = dist.group.WORLD
    options = world._get_backend(torch.device("cpu")).options
    is_member = options is not None and mesh.get_coordinate() is not None
    for group in mesh.get_all_groups() if is_member else ():
        dist.set_timeout(options._timeout, group)
    HERE.meshes[key] = mesh
    return mesh


def whole(array: DTensor, **options: Any) -> torch.Tensor:
    """The whole array as a tensor of this rank, also if other ranks hold all of its elements."""
    mesh = array.device_mesh
    value = DTensor.full_tensor(array, **options)
    if mesh.size() == dist.get_world_size():
        return value
    if mesh.get_coordinate() is None:
        value = torch.empty(array.shape, dtype=array.dtype)
    own = value.detach().contiguous()
    dist.broadcast(own, int(mesh.mesh.flatten()[0]))
    return own


def from_part(mesh: DeviceMesh, split: Split, shape: tuple[int, ...], part: Any) -> DTensor:
    """An array, made of the part of each rank."""
    places = [Replicate() if axis is None else Shard(axis) for axis in split]
    strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return DTensor.from_local(
        part, mesh, places, run_check=False, shape=torch.Size(shape), stride=strides
    )


def load(
    fields: tuple[int, DeviceMesh, tuple[str, ...], bool],
    name: str,
    source: str,
    constants: Constants,
) -> Program:
    """Runs generated source. `fields` are the number, the mesh, the keys and `branches` of the
    `Program`."""
    own = [(key, DType(dtype), shape, data) for key, dtype, shape, data in constants]
    text: Any = SimpleNamespace(name=name, source=source, constants=own)
    HERE.programs[fields[0]] = program = Program(*fields, namespace(text, None))
    return program


def moved(arrays: Arrays, places: Arrays) -> Arrays:
    """The arrays, divided as the arrays of the same names in `places` are."""

    def own(name: str, value: DTensor) -> DTensor:
        if name not in places or value.placements == places[name].placements:
            return value
        return value.redistribute(value.device_mesh, places[name].placements)

    return {name: own(name, value) for name, value in arrays.items()}


def _reduced(program: Program, arrays: Arrays) -> Arrays:
    """The arrays on the mesh, without sums that are still to be added up over ranks."""

    def own(value: Any) -> Any:
        if isinstance(value, DTensor):
            return reduced(value)
        whole = [Replicate()] * program.mesh.ndim
        return DTensor.from_local(value, program.mesh, whole, run_check=False)

    return {name: own(value) for name, value in arrays.items()}


def _inputs(program: Program, inputs: Arrays) -> Arrays:
    return {n: v.full_tensor() if n in program.keys else v for n, v in inputs.items()}


def forward(program: Program, params: Arrays, inputs: Arrays, state: Arrays | None) -> Any:
    """The outputs, and the next state or None. Autograd's gradients of params, which `backward()`
    computes, are divided as the params are."""
    if torch.is_grad_enabled():
        params = {n: _with_its_gradient(x) if x.requires_grad else x for n, x in params.items()}
    return _outputs(program, params, inputs, state)


def _with_its_gradient(param: DTensor) -> DTensor:
    places = param.placements
    if not any(isinstance(place, Shard) for place in places):
        return param
    own: DTensor = torch.ops.aten.alias.default(param)
    own.register_hook(lambda gradient: gradient.redistribute(gradient.device_mesh, places))  # type: ignore[no-untyped-call]
    return own


def _outputs(program: Program, params: Arrays, inputs: Arrays, state: Arrays | None) -> Any:
    inputs = _inputs(program, inputs)
    if state is None:
        return _reduced(program, program.names["forward"](params, inputs)), None
    outputs, following = program.names["forward"](params, inputs, state)
    return _reduced(program, outputs), moved(_reduced(program, following), state)


def differentiable(program: Program, params: Arrays, inputs: Arrays, state: Arrays | None) -> Any:
    """The leaves of autograd, the outputs with and without their graph, and the next state."""
    with torch.enable_grad():
        leaves = {name: param.detach().requires_grad_() for name, param in params.items()}
        plain = {n: v.detach() if v.requires_grad else v for n, v in inputs.items()}
        outputs, following = _outputs(program, leaves, plain, state)
    if following is not None:
        following = {name: value.detach() for name, value in following.items()}
    return leaves, outputs, {n: value.detach() for n, value in outputs.items()}, following


def pullback(
    program: Program, leaves: Arrays, outputs: Arrays, seeds: Arrays, *_: Arrays | None
) -> Arrays:
    """The gradients of the leaves, divided as these are. `outputs` are those of the program. The
    inputs and the state follow: the graph depends on them."""
    buckets = Buckets(leaves)
    layout = tuple(own.placements for own in (*leaves.values(), *outputs.values()))
    # Hooks cost more than the rest of a small call.
    if program.has_sums.get(layout, True):
        for name, leaf in leaves.items():
            leaf.register_hook(partial(buckets.add, name))
    roots = [name for name in seeds if outputs[name].requires_grad]
    found: Sequence[Any] = [None] * len(leaves)
    if roots:
        found = torch.autograd.grad(
            [outputs[name] for name in roots],
            list(leaves.values()),
            [seeds[name] for name in roots],
            allow_unused=True,
        )
    named = {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), found)
    }
    sums = buckets.finish()
    program.has_sums[layout] = bool(sums) or any(_is_sum(gradient) for gradient in named.values())
    return moved({**named, **sums}, leaves)


def gradients(
    program: Program, params: Arrays, inputs: Arrays, state: Arrays | None, seeds: Arrays
) -> Any:
    """Outputs, gradients and the next state, for output gradients that do not depend on outputs."""
    leaves, rooted, outputs, following = differentiable(program, params, inputs, state)
    return outputs, pullback(program, leaves, rooted, seeds), following


def _is_sum(array: Any) -> bool:
    return any(place.is_partial() for place in array.placements)


def joint(
    program: Program, params: Arrays, inputs: Arrays, state: Arrays | None, seeds: Arrays
) -> Any:
    """Outputs, gradients and the next state of source that computes the gradients itself."""
    own = () if state is None else (state,)

    def full(outputs: Arrays) -> Arrays:
        return {n: seeds[n] if n in seeds else torch.zeros_like(v) for n, v in outputs.items()}

    with torch.no_grad():
        outputs, gradients, *following = program.names["outputs_and_gradients"](
            params, _inputs(program, inputs), *own, full
        )
        gradients = moved(_reduced(program, gradients), params)
        after = None if state is None else moved(_reduced(program, following[0]), state)
        return _reduced(program, outputs), gradients, after


CALLS = (forward, differentiable, pullback, gradients, joint)
"""Calls of programs."""

LOCAL_CALLS: set[Callable[..., Any]] = set()
"""Calls that compute on the parts of arrays themselves, without rules."""

STAGE_CALLS: set[Callable[..., Any]] = set()
"""Those in which ranks do different things. One that fails leaves the others waiting for it, so an
error ends all of them."""
