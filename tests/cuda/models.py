"""A small model, its inputs, and how the tests compare numbers."""

import numpy as np
import torch

from mithril.models import MLP, Buffer, Relu

torch.backends.cudnn.allow_tf32 = False
CUDA = "cuda:0"
SHAPES = {"input": ["batch", 32]}


def mlp(width=64):
    return MLP(activations=[Relu(), Relu(), Buffer()], dimensions=[width, width, 10])


def by_hand(params, x):
    w = [params[f"linear_{i}.{name}"] for i in range(3) for name in ("w", "b")]
    x = torch.relu(x @ w[0] + w[1])
    x = torch.relu(x @ w[2] + w[3])
    return x @ w[4] + w[5]


def near(got, want, tolerance, least=1e-30):
    """Within a part of the largest element, or of 1 for gradients that are sums of larger terms."""
    got, want = (np.asarray(x.detach().float().cpu()) for x in (got, want))
    assert np.abs(got - want).max() <= tolerance * max(least, np.abs(want).max())


def step(compiled, x, seed=0):
    """Outputs and gradients of a model, with params that do not depend on the device."""
    params = compiled.randomize_params(seed=seed)
    return compiled.evaluate(params, {"input": x}, output_gradients={"output": torch.ones_like})
