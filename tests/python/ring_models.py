"""Models whose sequence is divided over a mesh, and how they are compared with one device. The
checks of JAX and PyTorch share them."""

from functools import partial

import networks
import numpy as np
from check_runs import EVERY
from mesh_models import ZERO, block, close, place

import mithril as ml

BATCH, LENGTH, WIDTH = 2, 8, 8
MODELS = {
    "block": (block, lambda draw: draw.standard_normal((BATCH, LENGTH, WIDTH))),
    "grouped": (
        partial(block, kv_heads=2, is_causal=True),
        lambda draw: draw.standard_normal((BATCH, LENGTH, WIDTH)),
    ),
    "gpt": (networks.gpt, lambda draw: draw.integers(0, 11, (BATCH, LENGTH))),
    "window": (
        partial(block, is_causal=True, window=2),
        lambda draw: draw.standard_normal((BATCH, LENGTH, WIDTH)),
    ),
    "alibi": (
        partial(block, alibi=True),
        lambda draw: draw.standard_normal((BATCH, LENGTH, WIDTH)),
    ),
}
MASKED = ("window", "alibi")
# Attentions of each model.
LAYERS = {"block": 1, "grouped": 1, "gpt": 2, "window": 1, "alibi": 1}
# Meshes, and how they divide inputs, which are (batch, sequence, ...).
MESHES = [
    ({"sequence": 2}, {"sequence": 1}),
    ({"sequence": 4}, {"sequence": 1}),
    ({"data": 2, "sequence": 2}, {"data": 0, "sequence": 1}),
]


def compare(backend_of, name, look, *more, closed=lambda backend: None):
    """Compares outputs and gradients with those of one device. `look` is called with each compiled
    model and the arguments of its call, and `more` has further options of compiling."""
    make, draw_inputs = MODELS[name]
    # A sample has one mesh of each model.
    at = [*MODELS].index(name)
    for mesh, split in MESHES if EVERY else [MESHES[at % len(MESHES)]]:
        for precision, most in ((32, 1e-5), (64, 1e-12)):
            one, many = (backend_of(precision=precision, device_mesh=m) for m in (None, mesh))
            x = draw_inputs(np.random.default_rng(0))
            x = x if x.dtype.kind == "i" else x.astype(f"float{precision}")
            for options in ({}, *more)[: precision // 32]:
                single, divided = (
                    ml.compile(make(), b, shapes={"input": x.shape}, **options) for b in (one, many)
                )
                params, own = single.randomize_params(1), divided.randomize_params(1)
                seed = one.randn(*single.evaluate(params, {"input": x})["output"].shape)
                want = single.evaluate(params, {"input": x}, output_gradients={"output": seed})
                inputs = {"input": many.shard(x, tensor_split=split)}
                seeds = {"output": many.shard(seed, tensor_split=split)}
                got = divided.evaluate(own, inputs, output_gradients=seeds)
                compare_results(one, many, want, got, most)
                assert place(got[0]["output"]) == place(seeds["output"])
                look(divided, own, inputs, seeds)
        closed(many)


def compare_results(one, many, want, got, most):
    largest = max(np.abs(one.to_numpy(value)).max() for value in want[1].values())
    for found, wanted in zip(got, want):
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            least = largest if name.endswith(ZERO) else None
            close(many.to_numpy(found[name]), one.to_numpy(value), most, least)
