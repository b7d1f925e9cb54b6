"""Checks of models in stages on meshes of PyTorch. `test_pipelines.py` runs them in processes of
their own, which start the other ranks: `python pipeline_checks.py NAME...`."""

import itertools
import os
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from check_runs import run_checks
from mesh_models import mlp
from pipeline_models import (
    DRAWN,
    check_mistakes,
    compare,
    compare_accumulation,
    compare_files,
    compare_some,
    compare_sums,
    compare_training,
    compare_values,
    meshes_of,
)
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_mesh_checks import wrong
from torch_rank_checks import ended, workers

import mithril as ml


def stepping(optimizer):
    """Updates params with an optimizer of PyTorch, in place."""

    def update(params, gradients):
        for name, param in params.items():
            param.grad = gradients[name]
        optimizer.step()
        return params

    return update


# The ranks, the schedule, the place of the rank that fails, and the output gradients.
FAULTS = [
    (2, "1f1b", 1, None),
    (2, "gpipe", 0, True),
    (3, "zero-bubble", 1, True),
    (3, "1f1b", 2, True),
]
OPTIMIZERS = [
    lambda params: stepping(torch.optim.SGD(params.values(), lr=0.1, momentum=0.9)),
    lambda params: stepping(torch.optim.Adam(params.values(), lr=0.01)),
]


def check_places():
    """Params lie on the ranks of their stages alone, and are read on all."""
    backend = ml.TorchBackend(device_mesh={"stage": 2})
    compiled = ml.compile(mlp(), backend, shapes={"input": [8, 12]}, stages=2)
    params = compiled.randomize_params(0)
    # This is the first rank: it has the elements of the first stage.
    here = {name for name, value in params.items() if value.to_local().numel()}
    blocks = compiled.stages.stages[0].blocks
    assert here == {name for name in params if name.partition(".")[0] in blocks}
    assert {*params} - here
    for value in params.values():
        assert value.device_mesh.shape == (1,)
        np.testing.assert_allclose(value.sum().item(), backend.to_numpy(value).sum(), rtol=1e-5)
    with tempfile.TemporaryDirectory() as folder:
        compare_files(backend, compiled, params, f"{folder}/params.safetensors")


def check_launched():
    """The same as one rank of two: `torchrun` starts it."""
    compare(ml.TorchBackend, "mlp", meshes_of(2))
    check_places_of_launched()


def check_places_of_launched():
    backend = ml.TorchBackend(device_mesh={"stage": 2})
    compiled = ml.compile(mlp(), backend, shapes={"input": [8, 12]}, stages=2)
    params = compiled.randomize_params(0)
    for value in params.values():
        assert backend.to_numpy(value).shape == tuple(value.shape)
    compare_files(backend, compiled, params, Path(os.environ["FOLDER"], "params.safetensors"))


def sums(compiled, params, inputs):
    """The sums over ranks in a step."""
    with Collectives() as seen:
        compiled.evaluate(params, inputs, output_gradients=True)
    return seen.names.count("c10d.allreduce_.default")


class Collectives(TorchDispatchMode):
    """What the first rank calls of the library of collectives."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(own, DTensor) for own in types):
            return NotImplemented  # to see what DTensor calls for it
        self.names += [str(func)] if str(func).startswith("c10d.") else []
        return func(*args, **(kwargs or {}))


def careful(number):
    """A block that fails for large elements, on PyTorch."""
    text = f"""mithril 1

func @careful_{number}(%x: tensor<*b x float>) -> (y: tensor<*b x float>) {{
  %y = tanh(%x)
  return %y
}}
"""
    body = f"""
        if (x > 1e6).any():
            raise ValueError("{number} has a large element")
        return torch.tanh(x)
    """
    return ml.custom(name=f"careful_{number}", mir=text, torch=body)


def check_faults():
    """An error of one rank ends all of them within seconds, and has its rank and its message."""
    x, target = np.ones((12, 4), np.float32), np.zeros((12, 4), np.float32)
    inputs = {"input": x, "target": target}
    for ranks, schedule, place, seeds in FAULTS:
        backend = ml.TorchBackend(device_mesh={"stage": ranks})
        blocks = [ml.Sequential([ml.Linear(4), careful(at)]) for at in range(3 * ranks)]
        model = ml.TrainModel(ml.Sequential(blocks))
        model.add_loss(ml.SquaredError(), input="output", target="target")
        pipeline = ml.Pipeline(ranks, schedule=schedule, microbatches=ranks)
        shapes = {name: [12, 4] for name in inputs}
        compiled = ml.compile(model, backend, shapes=shapes, stages=pipeline)
        params = compiled.randomize_params(0)
        block = compiled.stages.stages[place].blocks[0]
        params[f"{block}.linear.b"] = params[f"{block}.linear.b"] + 1e9
        evaluate = partial(compiled.evaluate, params, inputs, output_gradients=seeds)
        pids, start = workers(backend), time.monotonic()
        message = f"ValueError: {block.rpartition('_')[2]} has a large element"
        wrong(ml.BackendError, evaluate, f"got: rank {place}: ", message)
        assert time.monotonic() - start < 5
        assert ended(pids)


CHECKS = {
    "training": lambda: compare_training(ml.TorchBackend, OPTIMIZERS),
    "sums": lambda: compare_sums(ml.TorchBackend),
    "accumulation": lambda: compare_accumulation(ml.TorchBackend, sums),
    "places": check_places,
    "values": lambda: compare_values(ml.TorchBackend),
    "mistakes": lambda: check_mistakes(ml.TorchBackend),
    "faults": check_faults,
    "launched": check_launched,
}
# Each model on meshes of 2 and of 4 devices.
ON_MESHES = {
    f"{name}@{count}": partial(compare_some, ml.TorchBackend, name, meshes_of(count))
    for name, count in itertools.product(DRAWN, (2, 4))
}

if __name__ == "__main__":
    run_checks({**CHECKS, **ON_MESHES})
