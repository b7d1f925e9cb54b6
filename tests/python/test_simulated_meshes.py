"""Models on meshes of 4,096 devices that are not there. JAX describes them by an `AbstractMesh`;
PyTorch's process group `fake` calls no other rank."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from scale_models import gpt

import mithril as ml
from mithril.models import Linear, Relu, Sequential

CHECKS = Path(__file__).with_name("torch_simulated_checks.py")


@pytest.fixture
def backend():
    return ml.JaxBackend(device_mesh=AbstractMesh((512, 8), ("data", "model")))


def described(backend, split, shape, dtype=jnp.float32):
    """An array with this division, without elements."""
    axes = [tuple(name for name, own in split.items() if own == axis) for axis in range(len(shape))]
    sharding = NamedSharding(backend.device_mesh, PartitionSpec(*(own or None for own in axes)))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def test_a_mesh_of_jax_without_devices(backend):
    """A call is lowered for the mesh, with the layouts of the plan."""
    model, shapes = Sequential([Linear(4096), Relu(), Linear(512)]), {"input": [1024, 512]}
    given = {"linear_0.w": {"model": 1}, "linear_1.w": {"model": 0}, "input": {"data": 0}}
    plan = ml.compile(model, backend, shapes=shapes).explain_sharding(given=given)
    compiled = ml.compile(model, backend, shapes=shapes, shardings=plan)
    sizes = {"linear_0.w": (512, 4096), "linear_0.b": (4096,), "linear_1.w": (4096, 512)}
    sizes |= {"linear_1.b": (512,)}
    params = {name: described(backend, plan[name], size) for name, size in sizes.items()}
    inputs = {"input": described(backend, plan["input"], (1024, 512))}
    assert jax.eval_shape(compiled.evaluate, params, inputs)["output"].shape == (1024, 512)
    traced = jax.jit(compiled.evaluate).trace(params, inputs)
    lowered = traced.lower(lowering_platforms=("tpu",)).as_text()
    assert '"data"=512, "model"=8' in lowered
    assert '[{}, {"model"}]' in lowered
    assert '[{"model"}, {}]' in lowered


def test_gpt_3_on_4096_devices():
    """The model and mesh of `docs/scaling.md`."""
    mesh = AbstractMesh((512, 8), ("data", "model"))
    backend = ml.JaxBackend(dtype=ml.bfloat16, device_mesh=mesh)
    options = {"shapes": {"input": [2048, 2048]}, "gradient_checkpointing": True}
    model = gpt(96, 12288, 96, 51200)
    compiled = ml.compile(model, backend, **options)
    plan = compiled.propose_shardings(machine="2x8xH100", memory="80GB")
    assert 70e9 < plan.memory <= 80e9
    code = ml.compile(model, backend, **options, shardings=plan).code
    assert 'jax.make_mesh((512, 8), ("data", "model")' in code
    assert '.residual_0.sequential.multi_head_attention.w_query": PartitionSpec(' in code


def test_arrays_need_devices(backend):
    compiled = ml.compile(Linear(4), backend, shapes={"input": [8, 4]})
    params, x = compiled.randomize_params(), jnp.ones((8, 4))
    calls = (
        lambda: compiled.evaluate(params, {"input": x}),
        lambda: backend.ones(512, 4, tensor_split=(0, None)),
    )
    for call in calls:
        with pytest.raises(ml.BackendError) as caught:
            call()
        assert str(caught.value).startswith(
            "the mesh {'data': 512, 'model': 8} is abstract: no device of it can hold arrays"
            "\n  hint: describe arrays by `jax.ShapeDtypeStruct`, and trace a call by "
            "`jax.jit(compiled.evaluate).trace(params, inputs)`"
        )
    with pytest.raises(ml.BackendError, match="is abstract"):
        staged = ml.JaxBackend(device_mesh=AbstractMesh((8,), ("stage",)))
        model = Sequential([Linear(4) for _ in range(8)])
        ml.compile(model, staged, shapes={"input": [8, 4]}, stages=8)
    assert backend == ml.JaxBackend(device_mesh=AbstractMesh((512, 8), ("data", "model")))
    with pytest.raises(ml.BackendError, match="JAX has fewer devices than the mesh"):
        ml.JaxBackend(device_mesh={"data": 512, "model": 8})


def test_simulated_ranks_of_torch():
    command = [sys.executable, "-W", "error", str(CHECKS), "bytes", "tables", "transformer"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, "`shardings` must be a dict of splits by name\n  got: 5"),
        (
            {"input": {"data": 9}},
            "the mesh cannot divide an axis that the array does not have"
            "\n  got: axis 9 for the mesh axis `data`, and `input` of shape [512, 4]",
        ),
        (
            {"w": {"model": 1}},
            "the mesh cannot divide an axis evenly"
            "\n  got: axis 1 of `w` of shape [4, 12], for 8 parts",
        ),
        (
            {"input": {"rows": 0}},
            "`shardings[\"input\"]` names an axis that the mesh does not have\n  got: 'rows'",
        ),
    ],
)
def test_wrong_shardings_are_refused_when_compiled(backend, given, message):
    with pytest.raises(ml.MithrilError) as caught:
        ml.compile(Linear(12), backend, shapes={"input": [512, 4]}, shardings=given)
    assert str(caught.value).startswith(message)
