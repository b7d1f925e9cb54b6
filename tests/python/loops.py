"""Compares models with control flow with loops in PyTorch, forward and gradient."""

from typing import Any

import numpy as np
import torch

import mithril as ml

RNG = np.random.default_rng(9)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def values(compiled: Any, arrays: dict[str, Any], seeds: dict[str, Any], backend: Any) -> Any:
    params = {n: backend.array(a) for n, a in arrays.items() if n in compiled.params}
    inputs = {n: a for n, a in arrays.items() if n not in params}
    seeds = {n: backend.array(s) for n, s in seeds.items()}
    outputs, gradients = compiled.evaluate(params, inputs, output_gradients=seeds)
    to = backend.to_numpy
    return {n: to(y) for n, y in outputs.items()}, {n: to(g) for n, g in gradients.items()}


def compare(model: ml.Block, arrays: Any, reference: Any, *rest: Any, **options: Any) -> None:
    """Compares the outputs by name, and the gradients of all arrays, with those of torch."""
    outputs, backend, shapes = rest
    leaves = {n: torch.tensor(a, requires_grad=a.dtype.kind == "f") for n, a in arrays.items()}
    want = reference(*leaves.values())
    want = want if isinstance(want, tuple) else (want,)
    seeds = {n: numbers(*y.shape) for n, y in zip(outputs, want, strict=True)}
    torch.autograd.backward(list(want), [torch.tensor(s) for s in seeds.values()])
    floats = [n for n in shapes if arrays[n].dtype.kind == "f"]
    compiled = ml.compile(model, backend, shapes=shapes, trainable_keys=floats, **options)
    assert set(compiled.params) == {n for n, a in arrays.items() if a.dtype.kind == "f"}
    own, gradients = values(compiled, arrays, seeds, backend)
    assert set(own) == set(outputs)
    for name, y in zip(outputs, want, strict=True):
        np.testing.assert_allclose(own[name], y.detach(), rtol=2e-5, atol=2e-6, err_msg=name)
    for name in gradients:
        slope = leaves[name].grad.numpy()
        # Sums of many terms are as exact as the largest of them.
        step = 3e-5 * float(np.abs(slope).max(initial=0)) + 1e-6
        np.testing.assert_allclose(gradients[name], slope, rtol=3e-5, atol=step, err_msg=name)
