"""Checks of models on meshes of JAX. `test_meshes.py` runs them in processes of their own, with 4
devices: `python mesh_checks.py NAME...`."""

import copy
import itertools
import math
import os
import pickle
import re
from pathlib import Path

import jax
import mesh_models
import numpy as np
import ring_models
from check_runs import EVERY, run_checks, wrong
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec
from jax_attentions import check_attentions, check_masks, same_place
from jax_start import join_processes
from mesh_models import (
    DIVIDED,
    MESHES,
    MODELS,
    ON_GRID,
    RING,
    Divisions,
    close,
    compare,
    compare_collectives,
    compare_files,
    compare_layouts,
    compare_library,
    compare_optax,
    compare_plans,
    compare_splits,
    mlp,
)

import mithril as ml
from mithril.models import BatchNorm2d, Dropout, Linear, Sequential, SquaredError


def check_model(name):
    # A sample has one mesh of each model.
    meshes = MESHES if EVERY else [MESHES[list(MODELS).index(name) % len(MESHES)]]
    compare_splits(ml.JaxBackend, name, meshes)


CREATIONS = {
    **mesh_models.CREATIONS,
    "array of floats": lambda b, **p: b.array(np.ones((8, 4)), "float16", **p),
    "ones_like": lambda b, **p: b.ones_like(b.ones(8, 4), "int32", **p),
    "shard of NumPy": lambda b, **p: (
        b.shard(np.eye(8, 4), **p) if b.mesh else b.array(np.eye(8, 4))
    ),
}
# The split, the spec that JAX is to have, and the shape of the part of a device.
PLACES = [
    ({}, (), (8, 4)),
    ({"device_mesh": (2, 2)}, ("axis_0", "axis_1"), (4, 2)),
    ({"device_mesh": (2, 1)}, ("axis_0",), (4, 4)),
    ({"device_mesh": (2,)}, ("axis_0",), (4, 4)),
    ({"device_mesh": (1, 2)}, (None, "axis_1"), (8, 2)),
    ({"device_mesh": (1, 1)}, (), (8, 4)),
    ({"tensor_split": (0, None)}, ("axis_0",), (4, 4)),
    ({"tensor_split": (None, 0)}, ("axis_1",), (4, 4)),
    ({"tensor_split": (1, 0)}, ("axis_1", "axis_0"), (4, 2)),
    ({"tensor_split": (0, 0)}, (("axis_0", "axis_1"),), (2, 4)),
    ({"tensor_split": (-1,)}, (None, "axis_0"), (8, 2)),
    ({"tensor_split": ()}, (), (8, 4)),
    ({"tensor_split": (0, None), "device_mesh": (2, 1)}, ("axis_0",), (4, 4)),
    ({"tensor_split": (None, 0), "device_mesh": (1, 2)}, ("axis_1",), (4, 4)),
    ({"tensor_split": {"axis_1": 0}}, ("axis_1",), (4, 4)),
    ({"device_mesh": {"axis_1": 2}}, (None, "axis_1"), (8, 2)),
]


def check_creation():
    one, backend = ml.JaxBackend(), ml.JaxBackend(device_mesh=(2, 2))
    for (name, create), (place, spec, part) in itertools.product(CREATIONS.items(), PLACES):
        one.set_seed(7), backend.set_seed(7)
        want, got = create(one), create(backend, **place)
        assert got.sharding == NamedSharding(backend.device_mesh, PartitionSpec(*spec)), name
        assert [shard.data.shape for shard in got.addressable_shards] == [part] * 4
        if name != "shard of NumPy":
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want), strict=True)
    for create in (
        lambda **p: backend.arange(3, 19, 2, **p),
        lambda **p: backend.linspace(0, 1, 8, **p),
    ):
        got = create(tensor_split=(0, 0))
        assert [shard.data.shape for shard in got.addressable_shards] == [(2,)] * 4
        np.testing.assert_array_equal(np.asarray(got), np.asarray(create()), strict=True)
    assert backend.zeros(0, 4, tensor_split=(0,)).shape == (0, 4)
    assert backend.ones(tensor_split=()).shape == ()
    x = np.arange(21, dtype=np.float32).reshape(7, 3)
    for array in (x, backend.array(x), backend.array(x, tensor_split=())):
        for split, shape in (((0, 1), (8, 4)), ((0, None), (8, 3)), ((1, 1), (7, 4)), ((), (7, 3))):
            filled = backend.shard(array, tensor_split=split, pad=-1)
            want = np.full(shape, -1, np.float32)
            want[:7, :3] = x
            np.testing.assert_array_equal(np.asarray(filled), want, strict=True)
            same_place(filled, backend.zeros(shape, tensor_split=split))
    # Arrays like others lie where these do.
    divided = backend.rand(8, 4, tensor_split=(1, 0))
    for own in (
        backend.zeros_like(divided),
        backend.ones_like(divided),
        backend.full_like(divided, 2),
    ):
        same_place(own, divided)
    same_place(backend.zeros_like(divided, tensor_split=()), backend.ones(8, 4))
    named = ml.JaxBackend(device_mesh={"data": 2, "model": 2})
    got = named.ones(8, 4, tensor_split={"model": 1})
    assert got.sharding == NamedSharding(named.device_mesh, PartitionSpec(None, "model"))
    assert named.device_mesh.axis_names == ("data", "model")


def check_identity():
    backend = ml.JaxBackend(device_mesh=(2, 2))
    assert repr(backend) == "JaxBackend(dtype=float32, device_mesh=(2, 2))"
    named = ml.JaxBackend(device_mesh={"data": 2, "model": 2})
    assert repr(named) == "JaxBackend(dtype=float32, device_mesh={'data': 2, 'model': 2})"
    assert backend == ml.JaxBackend(device_mesh=[2, np.int64(2)])
    assert len({backend, ml.JaxBackend(device_mesh=(2, 2)), named}) == 2
    for other in (ml.JaxBackend(), ml.JaxBackend(device_mesh=(4,)), named):
        assert backend != other
    for own in (backend, named):
        own.set_seed(3)
        own.rand(2)
        for again in (copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))):
            other = again(own)
            assert (other, hash(other), repr(other)) == (own, hash(own), repr(own))
            same_place(other.ones(4, tensor_split=(0,)), own.ones(4, tensor_split=(0,)))
        other = pickle.loads(pickle.dumps(own))
        np.testing.assert_array_equal(np.asarray(other.rand(4)), np.asarray(own.rand(4)))


def check_mistakes():
    make = ml.JaxBackend
    wrong(
        ml.BackendError,
        lambda: make(device_mesh=(5, 1)),
        "JAX has fewer devices than the mesh (5, 1)\n  got: 4 (cpu)\n  expected: at least 5",
        "hint: set `XLA_FLAGS=--xla_force_host_platform_device_count=5`",
    )
    wrong(ml.UsageError, lambda: make(device_mesh=2), "got: 2\n", "hint: `device_mesh=(2,)`")
    for given in ((2, 0), (2, -1), (), (2.0,), (True,), "22", {1: 2}, {"": 2}, {"a": 1.5}, {}, 2.5):
        wrong(
            ml.UsageError, lambda given=given: make(device_mesh=given), "is not a mesh", repr(given)
        )
    both = {"device": "cpu", "device_mesh": (2,)}
    wrong(ml.UsageError, lambda: make(**both), "`device` and `device_mesh` cannot both be given")
    wrong(ml.UsageError, lambda: make(device_mash=(2,)), "`device_mash`", "`device_mesh`?")
    wrong(ml.UsageError, lambda: make().ones(4, tensor_split=(0,)), "has no device mesh", "(0,)")
    wrong(ml.UsageError, lambda: make().shard(make().ones(4)), "ml.JaxBackend(device_mesh=(2,))")

    backend = make(device_mesh=(2, 2))
    cases = [
        (
            ml.UsageError,
            {"device_mesh": (3,)},
            "for each mesh axis its size or 1, in the mesh (2, 2)",
        ),
        (ml.UsageError, {"device_mesh": (2, 2, 1)}, "has more entries than the mesh has axes"),
        (ml.UsageError, {"device_mesh": 2}, "hint: `device_mesh=(2,)`"),
        (ml.UsageError, {"tensor_split": (0, 1, 0)}, "expected: at most 2, for the mesh (2, 2)"),
        (ml.UsageError, {"tensor_split": 0}, "hint: `tensor_split=(0,)`"),
        (ml.UsageError, {"tensor_split": (1.5,)}, "got: 1.5 for the mesh axis `axis_0`"),
        (ml.UsageError, {"tensor_split": (True,)}, "got: True for the mesh axis `axis_0`"),
        (ml.UsageError, {"tensor_split": {"axis": 0}}, "did you mean `axis_0` or `axis_1`?"),
        (ml.UsageError, {"device_mesh": {"data": 2}}, "expected: `axis_0`, `axis_1`"),
        (
            ml.UsageError,
            {"device_mesh": (2, 1), "tensor_split": (0, 1)},
            "over the mesh axis `axis_1`, which takes no part",
        ),
        (ml.ShapeError, {"tensor_split": (2,)}, "axis 2 for the mesh axis `axis_0`"),
        (ml.ShapeError, {"tensor_split": (None, -3)}, "expected: -2 to 1"),
        (ml.ShapeError, {"tensor_split": (1,)}, "axis 1 of an array of shape [6, 3], for 2 parts"),
        (ml.ShapeError, {"tensor_split": (0, 0)}, "a multiple of 4, such as 4 or 8"),
    ]
    for error, place, part in cases:
        wrong(error, lambda place=place: backend.ones(6, 3, **place), part, "\n  got: ")
        wrong(error, lambda place=place: backend.shard(backend.ones(6, 3), **place), part)
    wrong(ml.ShapeError, lambda: backend.ones(tensor_split=(0,)), "None, as it has no axis")
    wrong(ml.ShapeError, lambda: backend.ones(1, tensor_split=(0,)), "such as 2\n")
    wrong(ml.ShapeError, lambda: backend.ones(4, device_mesh=(2, 2)), "axis 1 for the mesh axis")
    # An array of another mesh.
    compiled = ml.compile(Linear(4), backend)
    other = make(device_mesh=(2,))
    wrong(
        ml.BackendError,
        lambda: compiled.evaluate(compiled.randomize_params(0), {"input": other.ones(2, 3)}),
        "`input` lies on other devices",
        "hint: `backend.shard(array)` moves it",
    )


def check_calls():
    one, backend = ml.JaxBackend(), ml.JaxBackend(device_mesh=(2, 2))
    x = np.random.default_rng(0).standard_normal((8, 6)).astype("float32")
    seeds = lambda outputs: {"output": outputs["output"] * 2}  # noqa: E731
    for options in (
        {},
        {"jit": False},
        {"autodiff": "mithril"},
        {"autodiff": "mithril", "jit": False},
    ):
        want_of, got_of = (ml.compile(mlp(), b, **options) for b in (one, backend))
        params = want_of.randomize_params(2)
        want = want_of.evaluate(params, {"input": x}, output_gradients=seeds)
        # Shapes are open, so the first call draws the params.
        own = got_of.randomize_params(2)
        for inputs in (x, one.array(x), backend.shard(x, tensor_split=(0,))):
            got = got_of.evaluate(own, {"input": inputs}, output_gradients=seeds)
            close(got[0]["output"], want[0]["output"], 1e-5)
            for name, value in want[1].items():
                close(got[1][name], value, 1e-5)
                same_place(got[1][name], own[name])
            own = {n: backend.shard(v, tensor_split=(v.ndim - 1,)) for n, v in own.items()}
        close(got_of.for_inference().evaluate(own, {"input": x})["output"], want[0]["output"], 1e-5)
        close(got_of.bind(own).evaluate({}, {"input": x})["output"], want[0]["output"], 1e-5)
    # A call inside of a function that JAX compiles.
    loss = jax.jit(lambda params: got_of.evaluate(params, {"input": inputs})["output"].sum())
    close(loss(own), want[0]["output"].sum(), 1e-5)


def check_state():
    """Running statistics, random keys and losses of a training model."""
    one, backend = ml.JaxBackend(), ml.JaxBackend(device_mesh=(2, 2))
    draw = np.random.default_rng(0)
    x = draw.standard_normal((8, 4, 6, 6)).astype("float32")
    target = draw.standard_normal((8, 4)).astype("float32")
    model = Sequential([BatchNorm2d(), ml.Flatten(start=1), Dropout(0.5), Linear(4)])
    training = ml.TrainModel(model)
    training.add_loss(SquaredError(), input="output", target="target")
    ran = []
    for own in (one, backend):
        own.set_seed(5)
        compiled = ml.compile(training, own, shapes={"input": x.shape})
        params = compiled.randomize_params()
        place = {"tensor_split": (0,)} if own.mesh else {}
        inputs = {"input": own.array(x, **place), "target": own.array(target, **place)}
        for _ in range(3):
            outputs, gradients = compiled.evaluate(params, inputs, output_gradients=True)
            params = {n: p - 0.1 * gradients[n] for n, p in params.items()}
        compiled.evaluate(params, inputs)
        ran.append((outputs, gradients, params, compiled.state))
    for want, got in zip(*ran):
        assert want.keys() == got.keys() != set()
        for name, value in want.items():
            close(backend.to_numpy(got[name]), one.to_numpy(value), 1e-5)
    for value in (*ran[1][2].values(), *ran[1][3].values()):
        assert value.is_fully_replicated


def check_library():
    """A part of the blocks, as JAX compiles each operation; another seed takes other blocks."""
    compare_library(ml.JaxBackend, 2, 8 if EVERY else 32, 1)


BYTES = {"f32": 4, "s32": 4, "pred": 1}
# The part of its result that each of 2 devices sends.
SENT = {
    "all-reduce": 1.0,
    "all-gather": 0.5,
    "reduce-scatter": 1.0,
    "all-to-all": 0.5,
    "collective-permute": 1.0,
}


def counted(compiled, params, inputs, seeds):
    """The bytes that a device sends in a step, read from what XLA compiled."""
    runner = compiled._runner
    places = runner._places.shardings(params), ()
    step = runner._joint_on_mesh.lower(params, inputs, None, seeds, places).compile().as_text()
    found = {}
    for types, kind in re.findall(rf"= (.*?) ({'|'.join(SENT)})(?:-start)?\(", step):
        for name, dims in re.findall(rf"({'|'.join(BYTES)})\[([\d,]*)\]", types):
            size = BYTES[name] * math.prod(int(dim) for dim in dims.split(",") if dim)
            found[kind] = found.get(kind, 0) + SENT[kind] * size
    return found


def check_collectives():
    tables = [("embeddings", {"input": (0,)}), ("embeddings", {"embedding.w": (0,)})]
    models = [*DIVIDED, RING, ("grouped", RING[1]), *tables]
    compare_collectives(ml.JaxBackend, counted, models)
    # XLA reduces the whole gradient of a divided weight, and takes a part.
    differences = {1: {"reduce-scatter": (192, 0), "all-reduce": (864, 1248)}}
    grid = {"mesh": (2, 2), "differences": differences}
    compare_collectives(ml.JaxBackend, counted, ON_GRID, **grid)
    # A plan computes loops whole.
    others = [(name, {"input": (0,)}) for name in ("resnet", "t5", "recurrent")]
    differences = {2: {"all-gather": (2688, 0), "all-reduce": (480, 1140)}}
    compare_collectives(ml.JaxBackend, counted, others, differences=differences)


def check_rings():
    """Keys and values of a divided sequence go from device to device, and are not gathered."""

    def look(compiled, params, inputs, seeds):
        runner = compiled._runner
        places = runner._places.shardings(params), ()
        step = runner._joint_on_mesh.lower(params, inputs, None, seeds, places).compile().as_text()
        assert "collective-permute" in step
        # Positions may be gathered, which have one axis.
        gathered = re.findall(r"\[([\d,]*)\]\S* all-gather", step)
        assert not [shape for shape in gathered if "," in shape]

    for name in ring_models.MODELS:
        ring_models.compare(ml.JaxBackend, name, look)


def check_images():
    """Images that are divided along height, width or both, by code of JAX's own gradients."""
    model = Divisions(ml.JaxBackend, *MODELS["resnet"])
    kernel = {"conv2d.w": (0, 0), "residual.sequential.conv2d_1.w": (None, 1)}
    for split in ((2, None), (None, 3), (2, 3)):
        for others in ({}, kernel):
            whole = dict.fromkeys(model.splits, (None, None))
            model.compare({**whole, "input": split, **others})


def check_processes():
    """The mesh in several processes, each with some of the devices (`test_meshes.py`)."""
    count = jax.process_count()
    folder, first = Path(os.environ["FOLDER"]), jax.process_index() == 0
    backend = ml.JaxBackend(device_mesh=(2, 2), dtype=ml.float64)
    x = np.random.default_rng(0).standard_normal((8, 4))
    divided = backend.shard(x, tensor_split=(0, 1))
    assert not divided.is_fully_addressable
    np.testing.assert_array_equal(backend.to_numpy(divided), x)
    np.testing.assert_array_equal(backend.to_numpy(backend.shard(jax.numpy.array(x))), x)
    # Random numbers without a seed are equal on all processes.
    drawn = backend.rand(8, 4, tensor_split=(1, 0))
    parts = multihost_utils.process_allgather(np.array(backend.to_numpy(drawn)))
    assert parts.shape == (count, 8, 4)
    assert (parts == parts[0]).all()
    # Each process writes and reads its own parts. Errors are those of all.
    arrays = {"x": x, "scalar": np.array(3.5), "empty": np.zeros((0, 4)), "key": np.arange(4)}
    if first:
        ml.save_params(folder / "whole", arrays)
    own = {n: backend.shard(a, tensor_split=(0,) if a.ndim == 1 else ()) for n, a in arrays.items()}
    ml.save_params(folder / "parts", {**own, "x": divided, "scalar": arrays["scalar"]})
    assert (folder / "parts").read_bytes() == (folder / "whole").read_bytes()
    row = ml.JaxBackend(device_mesh=(4,), dtype=ml.float64)
    loaded = ml.load_params(folder / "parts", row, shardings={"x": (1,)})
    np.testing.assert_array_equal(row.to_numpy(loaded["x"]), x)
    same_place(loaded["x"], row.zeros(8, 4, tensor_split=(1,)))
    wrong(ml.MithrilError, lambda: ml.save_params(folder / "no" / "x", own), "cannot be written")
    wrong(ml.MithrilError, lambda: ml.save_params(folder, own), "cannot be written")
    assert sorted(path.name for path in folder.iterdir()) == ["parts", "whole"]
    fewer = lambda: ml.JaxBackend(device_mesh=(4 // count,))  # noqa: E731
    wrong(ml.BackendError, fewer, "no device of some processes", "all 4 devices")
    # A backend without a mesh has a device of its process.
    assert ml.JaxBackend().ones(2).devices() <= set(jax.local_devices())
    assert ml.JaxBackend(device="cpu:0").ones(2).devices() == {jax.local_devices()[0]}
    meshes = [mesh for mesh in MESHES if math.prod(mesh) == 4]
    for at, name in enumerate(MODELS if EVERY else ["mlp", "gpt"]):
        own_meshes = meshes if EVERY else meshes[at : at + 1]
        compare(ml.JaxBackend, name, (64, 1e-12), ["both"], own_meshes)
    check_state()


CHECKS = {
    "creation": check_creation,
    "identity": check_identity,
    "mistakes": check_mistakes,
    "calls": check_calls,
    "state": check_state,
    "optimizer": compare_optax,
    "collectives": check_collectives,
    "rings": check_rings,
    "attentions": check_attentions,
    "masks": check_masks,
    "images": check_images,
    "files": lambda: compare_files(ml.JaxBackend),
    "layouts": lambda: compare_layouts(ml.JaxBackend, *(EVERY or (16, 8))),
    "plans": lambda: compare_plans(ml.JaxBackend),
    "library": check_library,
    **{name: (lambda name=name: check_model(name)) for name in MODELS},
    "processes": check_processes,
}

if __name__ == "__main__":
    join_processes()
    assert len(jax.devices()) == 4
    run_checks(CHECKS)
