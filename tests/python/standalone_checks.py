"""Generated source for a device mesh runs without Mithril. `python standalone_checks.py KIND DIR`
compiles a model for two devices, and writes its source, params and results to a folder. The test
then runs one of the scripts below there, as a user of the framework would."""

import sys
from pathlib import Path

import numpy as np

import mithril as ml
from mithril.models import Linear, Relu, Sequential

SPLITS = {"linear_0.w": (1,), "linear_0.b": (0,), "linear_1.w": (0,)}
TORCH = """
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard

import model

mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("model",))
arrays = np.load("arrays.npz")
placed = model.distribute({n: torch.from_numpy(arrays[n]) for n in arrays}, mesh)
assert placed["linear_0.w"].placements == (Shard(1),)
assert placed["linear_0.b"].placements == placed["linear_1.w"].placements == (Shard(0),)
assert placed["linear_1.b"].placements == placed["input"].placements == (Replicate(),)
params = {n: placed[n].requires_grad_() for n in arrays if n.startswith("linear")}
output = model.forward(params, {"input": placed["input"]})["output"]
np.testing.assert_allclose(output.full_tensor().detach(), arrays["output"], rtol=0, atol=1e-12)
output.sum().backward()
for name, param in params.items():
    assert param.grad.placements == param.placements
    found = param.grad.full_tensor()
    np.testing.assert_allclose(found, arrays["gradient." + name], rtol=0, atol=1e-12)
assert "mithril" not in sys.modules
dist.barrier()
os._exit(0)  # threads of PyTorch's groups that outlive the interpreter end it by a signal
"""
JAX = """
import sys

import jax
import numpy as np

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_x64", True)

import model

arrays = np.load("arrays.npz")
params = model.distribute({n: arrays[n] for n in arrays if n.startswith("linear")})
specs = {name: tuple(param.sharding.spec) for name, param in params.items()}
split = {"linear_0.w": (None, "model"), "linear_0.b": ("model",), "linear_1.w": ("model",)}
assert specs == {"linear_1.b": (), **split}
inputs = {"input": arrays["input"]}
output = jax.jit(model.forward)(params, inputs)["output"]
np.testing.assert_allclose(output, arrays["output"], rtol=0, atol=1e-12)
loss = lambda params: model.forward(params, inputs)["output"].sum()
for name, found in jax.jit(jax.grad(loss))(params).items():
    np.testing.assert_allclose(found, arrays["gradient." + name], rtol=0, atol=1e-12)
assert "mithril" not in sys.modules
"""
KINDS = {"torch": (ml.TorchBackend, TORCH), "jax": (ml.JaxBackend, JAX)}


def write(kind, folder):
    make, script = KINDS[kind]
    model = Sequential([Linear(16), Relu(), ml.Shard({"model": 1}), Linear(4)])
    one, mesh = make(precision=64), make(precision=64, device_mesh={"model": 2})
    shapes = {"input": (8, 6)}
    compiled = ml.compile(model, mesh, shapes=shapes, shardings=SPLITS)
    Path(folder, "model.py").write_text(compiled.code)
    Path(folder, "run.py").write_text(script)
    single = ml.compile(model, one, shapes=shapes)
    params = single.randomize_params(0)
    arrays = {name: one.to_numpy(value) for name, value in params.items()}
    arrays["input"] = np.random.default_rng(0).standard_normal((8, 6))
    outputs, gradients = single.evaluate(
        params, {"input": arrays["input"]}, output_gradients={"output": np.ones((8, 4))}
    )
    arrays["output"] = one.to_numpy(outputs["output"])
    arrays |= {f"gradient.{name}": one.to_numpy(value) for name, value in gradients.items()}
    np.savez(Path(folder, "arrays.npz"), **arrays)


if __name__ == "__main__":
    write(*sys.argv[1:])
