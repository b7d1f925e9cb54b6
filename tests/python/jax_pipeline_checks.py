"""Checks of models in stages on meshes of JAX. `test_pipelines.py` runs them in processes of
their own, with 4 devices: `python jax_pipeline_checks.py NAME...`."""

import os
import tempfile
from functools import partial
from pathlib import Path

import jax
import numpy as np
from check_runs import EVERY, run_checks
from jax_start import join_processes
from mesh_models import close, mlp
from pipeline_models import (
    DRAWN,
    MESHES,
    PRECISIONS,
    agree,
    check_mistakes,
    compare,
    compare_accumulation,
    compare_files,
    compare_some,
    compare_sums,
    compare_training,
    compare_values,
    numpy,
    tied,
)

import mithril as ml


def check_places():
    """Params lie on the devices of their stages alone, and are read on all."""
    backend = ml.JaxBackend(device_mesh={"stage": 2, "data": 2})
    compiled = ml.compile(mlp(), backend, shapes={"input": [8, 12]}, stages=2)
    params = compiled.randomize_params(0)
    for name, value in params.items():
        rank = next(
            own.rank for own in compiled.stages.stages if name.partition(".")[0] in own.blocks
        )
        assert value.sharding.device_set == {*backend.device_mesh.devices[rank]}
        assert backend.to_numpy(value).shape == value.shape
    with tempfile.TemporaryDirectory() as folder:
        compare_files(backend, compiled, params, f"{folder}/params.safetensors")


def check_traces():
    """Calls in a function that JAX compiles: params lie on the whole mesh."""
    one = ml.JaxBackend(precision=64)
    backend = ml.JaxBackend(precision=64, device_mesh={"data": 2, "stage": 2})
    x = np.random.default_rng(0).integers(0, 11, (16, 5))
    alone, staged = (
        ml.compile(tied(), own, shapes={"input": x.shape}, **options)
        for own, options in ((one, {}), (backend, {"stages": 2}))
    )
    params = alone.randomize_params(0)
    outputs = alone.evaluate(params, {"input": x})
    seeds = {name: np.ones(value.shape) for name, value in outputs.items()}
    want = alone.evaluate(params, {"input": x}, None, seeds)
    own = {name: backend.shard(value) for name, value in params.items()}

    @jax.jit
    def step(params, x):
        return staged.evaluate(params, {"input": x}, None, seeds)

    for given in (x, backend.shard(x, tensor_split={"data": 0})):
        got = step(own, given)
        for first, second in zip(got, want):
            agree(numpy(backend, first), numpy(one, second), 1e-12)
    loss = jax.jit(lambda params: staged.evaluate(params, {"input": x})["output"].sum())
    close(loss(own), np.asarray(outputs["output"]).sum(), 1e-12)
    agree(numpy(backend, jax.jit(jax.grad(loss))(own)), numpy(one, want[1]), 1e-12)
    # Params of their stages, which the function does not take.
    placed = staged.randomize_params(0)
    function = jax.jit(lambda x: staged.evaluate(placed, {"input": x})["output"])
    close(function(x), outputs["output"], 1e-12)
    # The function takes neither params nor inputs.
    inputs = {"input": backend.shard(x)}
    by_seeds = jax.jit(lambda seeds: staged.evaluate(placed, inputs, None, seeds)[1])
    agree(numpy(backend, by_seeds(seeds)), numpy(one, want[1]), 1e-12)
    scaled = jax.jit(lambda scale: staged.evaluate(placed, inputs)["output"] * scale)
    close(scaled(1.0), outputs["output"], 1e-12)
    check_gradients_of_inputs()


def check_gradients_of_inputs():
    backend = ml.JaxBackend(precision=64, device_mesh={"stage": 2})
    staged = ml.compile(mlp(), backend, shapes={"input": [8, 12]}, stages=2)
    params = staged.randomize_params(0)
    try:
        jax.grad(lambda x: staged.evaluate(params, {"input": x})["output"].sum())(np.ones((8, 12)))
    except ml.BackendError as error:
        assert "a model in stages has no gradients by its inputs" in str(error)
    else:
        raise AssertionError("no error")


def check_processes():
    """Stages in several processes, each with some of the devices."""
    double, single = (PRECISIONS, PRECISIONS) if EVERY else (PRECISIONS[:1], PRECISIONS[1:])
    compare(ml.JaxBackend, "tied", [({"stage": 2, "data": 2}, "1f1b", 2, 4)], double)
    compare(ml.JaxBackend, "mlp", [({"stage": 4}, "zero-bubble", 4, 4)], single)
    backend = ml.JaxBackend(device_mesh={"stage": 2, "data": 2})
    compiled = ml.compile(mlp(), backend, shapes={"input": [8, 12]}, stages=2)
    path = Path(os.environ["FOLDER"], "params.safetensors")
    compare_files(backend, compiled, compiled.randomize_params(0), path)


def sums(compiled, params, inputs):
    """The sums over devices in a step, all of them outside of loops."""
    runner = compiled._runner
    arrays = {name: compiled.backend.array(value) for name, value in inputs.items()}
    given = runner._batches(arrays, runner._code.inputs)
    seeds = runner._batches({"final_cost": runner._one("final_cost")}, runner._code.outputs)
    step = runner._gathered_gradients.lower(runner._gathered(params), given, seeds)
    functions = [text.split() for text in step.compile().as_text().split("\n}\n")]
    words = "all-reduce(", "all-reduce-start("
    found = {own[0]: sum(w.startswith(words) for w in own) for own in functions if own}
    assert all(name == "ENTRY" for name, count in found.items() if count)
    return found["ENTRY"]


CHECKS = {
    "training": lambda: compare_training(ml.JaxBackend, []),
    "sums": lambda: compare_sums(ml.JaxBackend),
    "accumulation": lambda: compare_accumulation(ml.JaxBackend, sums),
    "places": check_places,
    "values": lambda: compare_values(ml.JaxBackend),
    "mistakes": lambda: check_mistakes(ml.JaxBackend),
    "traces": check_traces,
    **{name: partial(compare_some, ml.JaxBackend, name, MESHES) for name in DRAWN},
    "processes": check_processes,
}


if __name__ == "__main__":
    join_processes()
    run_checks(CHECKS)
