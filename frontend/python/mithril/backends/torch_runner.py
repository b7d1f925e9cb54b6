"""Calls of generated PyTorch source, with gradients by autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .torch import TorchBackend

__all__ = ["LossScaler", "TorchRunner", "compiled", "set_apart", "under_autocast", "within"]

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
        key = tuple((tensor.shape, tensor.dtype, tensor.requires_grad) for tensor in tensors)
        if key not in traced:
            import warnings  # noqa: PLC0415

            with warnings.catch_warnings():
                # PyTorch tells everybody to use `torch.compile`; the user chose this.
                warnings.simplefilter("ignore")
                traced[key] = torch.jit.trace(forward, args, strict=False, check_trace=False)
        return traced[key](*args)

    return call


def set_apart(torch: Any, namespace: dict[str, Any]) -> None:
    """Leaves functions that call `torch.lstm` to PyTorch itself: `torch.compile` makes wrong code
    of it, and leaves the layers of `torch.nn` out as well."""
    for name, function in list(namespace.items()):
        code = getattr(function, "__code__", None)
        if code is not None and "lstm" in code.co_names:
            namespace[name] = torch.compiler.disable(function)


class LossScaler:
    """Scales output gradients up so that gradients in float16 do not become 0, and the gradients
    down again.

    The factor is halved until all gradients are finite, and doubled after 2000 steps in a row
    without that, as `torch.amp.GradScaler` does between steps. So no step has to be left out.
    """

    start = 2.0**16
    interval = 2000

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.factor, self._steps = self.start, 0

    def gradients(self, roots: list[Any], leaves: list[Any], seeds: list[Any]) -> list[Any]:
        """The gradients of the leaves; None for those that no root depends on."""

        def compute(factor: float) -> Any:
            scaled = [(seed * factor).to(root.dtype) for root, seed in zip(roots, seeds)]
            return self._torch.autograd.grad(
                roots, leaves, scaled, allow_unused=True, retain_graph=factor > 1.0
            )

        return self.unscaled(compute)

    def unscaled(self, compute: Callable[[float], Any]) -> list[Any]:
        """The gradients that `compute` returns for output gradients times its argument."""
        while True:
            found = [None if g is None else g / self.factor for g in compute(self.factor)]
            if self.factor <= 1.0 or all(g is None or bool(g.isfinite().all()) for g in found):
                break
            self.factor, self._steps = max(self.factor / 2, 1.0), 0
        self._steps += 1
        if self._steps >= self.interval:
            self.factor, self._steps = self.factor * 2, 0
        return found


class _Scaled:
    """Output gradients times a factor."""

    def __init__(self, seeds: Any, factor: float) -> None:
        self._seeds, self._factor = seeds, factor
        self.arrays = None if seeds.arrays is None else self._times(seeds.arrays)

    def of(self, outputs: Any) -> dict[str, Any]:
        return self._times(self._seeds.of(outputs)) if self.arrays is None else self.arrays

    def _times(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {name: array * self._factor for name, array in arrays.items()}


def under_autocast(call: Call, scaler: LossScaler | None) -> Call:
    """The call of source that computes the gradients itself, under autocast: gradients have the
    dtypes of their params, and with a scaler none of them becomes 0."""

    def gradients(params: Any, inputs: Any, state: Any, seeds: Any) -> tuple[Any, Any, Any]:
        result: Any = None

        def compute(factor: float) -> list[Any]:
            nonlocal result
            result = call(params, inputs, state, _Scaled(seeds, factor))
            return [own.to(params[name].dtype) for name, own in result[1].items()]

        found = compute(1.0) if scaler is None else scaler.unscaled(compute)
        outputs, named, following = result
        return outputs, dict(zip(named, found)), following

    return gradients


class TorchRunner:
    """Calls generated PyTorch source, and computes gradients by autograd."""

    def __init__(self, backend: TorchBackend, namespace: dict[str, Any], *, jit: bool) -> None:
        self._torch = torch = backend.framework
        forward = namespace["forward"]
        if jit:
            forward = compiled(torch, forward, backend.jit_compile)
        autocast = backend.autocast
        # The backward pass is outside of the context: autograd takes the dtypes of the forward one.
        self._raw = within(autocast, forward) if autocast else forward
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
