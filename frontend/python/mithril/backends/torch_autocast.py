"""Mixed precision of PyTorch: autocast in generated source, and the scaling of gradients."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["LossScaler", "autocast", "under_autocast"]

Call = Callable[..., Any]


def autocast(source: str, device: str, dtype: str) -> str:
    """The source with its functions under `torch.autocast`."""
    line = f'@torch.autocast("{device}", dtype={dtype})\n'
    source = re.sub(r"^(?=def (forward|outputs_and_gradients)\()", line, source, flags=re.MULTILINE)
    if re.search(r"^import torch$", source, re.MULTILINE):
        return source
    first = re.search(r"^(import|from|@torch)", source, re.MULTILINE)
    assert first is not None
    after = "\n\n\n" if first[0] == "@torch" else "\n"
    return f"{source[: first.start()]}import torch{after}{source[first.start() :]}"


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
