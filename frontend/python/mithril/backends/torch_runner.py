"""Calls of generated PyTorch source, with gradients by autograd."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import BackendWarning

if TYPE_CHECKING:
    from .torch import TorchBackend

__all__ = ["TorchRunner", "compiled", "set_apart", "within"]

Call = Callable[..., Any]


def within(context: Callable[[], Any], call: Call) -> Call:
    """The call inside a context that is entered anew each time."""

    def inside(*args: Any) -> Any:
        with context():
            return call(*args)

    return inside


def compiled(torch: Any, forward: Call, how: bool | str) -> Call:
    """The function compiled by PyTorch: by `torch.compile`, or with `"script"` by TorchScript,
    which traces it once for each set of shapes."""
    if how != "script":
        compiled_forward: Call = torch.compile(forward)
        return compiled_forward
    traced: dict[tuple[Any, ...], Call] = {}

    def call(*args: Mapping[str, Any]) -> Any:
        tensors = [tensor for arrays in args for tensor in arrays.values()]
        if not tensors:
            return forward(*args)
        names = tuple(tuple(arrays) for arrays in args)
        shapes = tuple((tensor.shape, tensor.dtype, tensor.requires_grad) for tensor in tensors)
        if (names, shapes) not in traced:
            traced[names, shapes] = _traced(torch, forward, names, tensors)
        return traced[names, shapes](*tensors)

    return call


def _traced(torch: Any, forward: Call, names: Sequence[Sequence[str]], tensors: list[Any]) -> Call:
    """The function as TorchScript, of the tensors of its dicts.

    A trace keeps what the function read of these tensors: the branch of a condition, the number of
    steps, the seed of a generator. Such a function is not compiled, and a `BackendWarning` says so.
    """
    import warnings  # noqa: PLC0415

    def flat(*tensors: Any) -> Any:
        own = iter(tensors)
        return forward(*({name: next(own) for name in part} for part in names))

    with warnings.catch_warnings(record=True) as told:
        # PyTorch also tells everybody to use `torch.compile`; the user chose this.
        warnings.simplefilter("always")
        script: Call = torch.jit.trace(flat, tuple(tensors), strict=False, check_trace=False)
    reads = [one.message for one in told if issubclass(one.category, torch.jit.TracerWarning)]
    if not reads:
        return script
    warnings.warn(
        "TorchScript cannot compile a model whose code depends on the elements of arrays, such as "
        f"conditions and random keys: it runs without\n  got: {str(reads[0]).partition('. ')[0]}"
        "\n  hint: `jit_compile=True` compiles it with `torch.compile`",
        BackendWarning,
        stacklevel=5,
    )
    return flat


def set_apart(torch: Any, namespace: dict[str, Any]) -> None:
    """Leaves functions that call `torch.lstm` to PyTorch itself: `torch.compile` makes wrong code
    of it, and leaves the layers of `torch.nn` out as well."""
    for name, function in list(namespace.items()):
        code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
        if code is not None and "lstm" in code.co_names:
            namespace[name] = torch.compiler.disable(function)


class TorchRunner:
    """Calls generated PyTorch source, and computes gradients by autograd."""

    def __init__(self, backend: TorchBackend, namespace: dict[str, Any], *, jit: bool) -> None:
        self._torch = torch = backend.framework
        forward = namespace["forward"]
        if jit:
            forward = compiled(torch, forward, backend.jit_compile)
        # Autocast covers the forward pass alone: autograd takes the dtypes of the forward pass.
        self._raw = forward
        self._scaler = backend.scaler()
        self.forward = backend.around(self._raw, jit=jit)
        self.gradients = backend.around(self._gradients, jit=jit)

    def _gradients(self, params: Any, inputs: Any, state: Any, seeds: Any) -> tuple[Any, Any, Any]:
        """Returns outputs, gradients by param, and the next state, all of them detached."""
        torch = self._torch
        own = () if state is None else ({n: v.detach() for n, v in state.items()},)
        with torch.enable_grad():
            leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
            result = self._raw(leaves, {n: v.detach() for n, v in inputs.items()}, *own)
            outputs, following = (result, None) if state is None else result
        detached = {name: value.detach() for name, value in outputs.items()}
        if following is not None:
            following = {name: value.detach() for name, value in following.items()}
        given = seeds.of(detached)
        roots = [name for name in given if outputs[name].requires_grad]
        if not roots:
            return detached, {n: torch.zeros_like(p) for n, p in params.items()}, following
        wanted = [outputs[name] for name in roots]
        # Batch norm has wrong gradients for some strides of axes of size 1 (PyTorch 2.15).
        seeded = [given[name].contiguous() for name in roots]
        if self._scaler is None:
            # `torch.autograd.grad` would first search the whole graph for the leaves. These belong
            # to this call alone, and nothing else in the graph requires gradients, unless a body of
            # `ml.custom` imports it.
            torch.autograd.backward(wanted, seeded)
            gradients = [leaf.grad for leaf in leaves.values()]
        else:
            gradients = self._scaler.gradients(wanted, list(leaves.values()), seeded)
        named = {
            name: torch.zeros_like(leaf) if gradient is None else gradient
            for (name, leaf), gradient in zip(leaves.items(), gradients)
        }
        return detached, named, following
