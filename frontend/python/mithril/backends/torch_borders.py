"""Gradients by autograd through models whose parts run on several backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..seeds import ArraySeeds

if TYPE_CHECKING:
    from ..parts import PartsRunner

__all__ = ["recorded"]


def recorded(torch: Any, runner: PartsRunner) -> Callable[..., Any]:
    """The forward pass as one operation of autograd, whose backward pass is that of the parts.

    Errors: the call raises `UsageError` for a function transformation (`torch.func`), and for
    inputs that require gradients, as the parts compute those of params alone.
    """

    class Model(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, call: _Call, *params: Any) -> tuple[Any, ...]:
            ctx.call = call
            outputs, following = call.run(runner, params)
            results = (*outputs.values(), *following.values())
            fixed = [value for value in outputs.values() if not value.is_floating_point()]
            ctx.mark_non_differentiable(*fixed, *following.values())
            ctx.set_materialize_grads(False)
            return results

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, *given: Any) -> tuple[Any, ...]:
            found = ctx.call.gradients(runner, given)
            wanted = ctx.needs_input_grad[1:]
            return (None, *(g if want else None for g, want in zip(found, wanted)))

    def forward(params: Any, inputs: Any, state: Any = None) -> Any:
        arrays = (*params.values(), *inputs.values(), *(state or {}).values())
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, arrays)):
            raise UsageError(
                "`torch.func` cannot transform a model whose parts run on other backends"
                f"\n  got: {runner.others}\n  hint: give `output_gradients` for its gradients"
            )
        if torch.is_grad_enabled():
            _check_inputs(inputs, runner)
        if not torch.is_grad_enabled() or not any(p.requires_grad for p in params.values()):
            return runner.forward(params, inputs, state)
        call = _Call(list(params), inputs, state)
        results = list(Model.apply(call, *params.values()))
        outputs = dict(zip(call.outputs, results))
        return outputs if state is None else (outputs, dict(zip(state, results[len(outputs) :])))

    return forward


class _Call:
    """The arrays of one call, for its backward pass."""

    def __init__(self, names: list[str], inputs: Any, state: Any) -> None:
        self.names = names
        self.inputs = {name: value.detach() for name, value in inputs.items()}
        self.state = None if state is None else {n: v.detach() for n, v in state.items()}
        self.params: dict[str, Any] = {}
        self.outputs: list[str] = []

    def run(self, runner: PartsRunner, params: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The outputs, and the next state in the order of the state."""
        self.params = {name: own.detach() for name, own in zip(self.names, params)}
        result = runner.forward(self.params, self.inputs, self.state)
        outputs, following = (result, {}) if self.state is None else result
        self.outputs = list(outputs)
        return outputs, {name: following[name] for name in self.state or {}}

    def gradients(self, runner: PartsRunner, given: Any) -> list[Any]:
        """The gradients of the params."""
        seeds = {name: own for name, own in zip(self.outputs, given) if own is not None}
        _, found, _ = runner.gradients(self.params, self.inputs, self.state, ArraySeeds(seeds))
        return [found[name] for name in self.names]


def _check_inputs(inputs: Any, runner: PartsRunner) -> None:
    learned = next((name for name, value in inputs.items() if value.requires_grad), None)
    if learned is not None:
        raise UsageError(
            "gradients of inputs do not pass to parts on other backends"
            f"\n  got: `{learned}`, which requires gradients, and {runner.others}"
            f'\n  hint: compile the model with `trainable_keys=["{learned}"]`, or detach the input'
        )
