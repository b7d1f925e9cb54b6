"""Models, and how they are compared on device meshes with one device. The checks of JAX and PyTorch
share them."""

import itertools
import tempfile
from functools import partial
from pathlib import Path

import networks
import numpy as np
import pytest
from check_runs import EVERY, SEED

import mithril as ml
from mithril import _core
from mithril.models import Embedding, Linear, Relu, Sequential

MESHES = [(2,), (4,), (2, 2), (1, 4), (2, 1, 2)]
BATCH = 8
# Creation functions, with and without a mesh.
CREATIONS = {
    "array": lambda b, **p: b.array(np.arange(32).reshape(8, 4), **p),
    "zeros": lambda b, **p: b.zeros(8, 4, **p),
    "ones": lambda b, **p: b.ones([8, 4], dtype="int32", **p),
    "full": lambda b, **p: b.full((8, 4), 3, **p),
    "zeros_like": lambda b, **p: b.zeros_like(b.ones(8, 4), **p),
    "full_like": lambda b, **p: b.full_like(b.ones(8, 4), 2.5, **p),
    "eye": lambda b, **p: b.eye(8, 4, 1, **p),
    "rand": lambda b, **p: b.rand(8, 4, **p),
    "randn": lambda b, **p: b.randn([8, 4], **p),
    "randint": lambda b, **p: b.randint(-5, 9, (8, 4), **p),
    "shard": lambda b, **p: b.shard(b.ones(8, 4), **p) if b.mesh else b.ones(8, 4),
}


def mlp():
    return Sequential([Linear(16), Relu(), Linear(12), ml.Tanh(), Linear(4)])


def embeddings():
    """A table that is large beside the rest of the model."""
    return Sequential([Embedding(64, 8), ml.Mean(axis=1), Linear(4)])


def block(**options):
    """A transformer block of 4 heads. `options` are those of its attention."""
    attention = ml.MultiHeadAttention(4, **options)
    return networks.Sequential(
        [
            networks.Residual(Sequential([ml.LayerNorm(), attention])),
            networks.Residual(Sequential([ml.LayerNorm(), Linear(16), ml.Gelu(), Linear(8)])),
        ]
    )


# Models, and functions that draw their inputs.
MODELS = {
    "mlp": (mlp, lambda draw: draw.standard_normal((BATCH, 12))),
    "block": (block, lambda draw: draw.standard_normal((BATCH, 4, 8))),
    "gpt": (networks.gpt, lambda draw: draw.integers(0, 11, (BATCH, 5))),
    "resnet": (networks.resnet, lambda draw: draw.standard_normal((BATCH, 3, 8, 8))),
    "recurrent": (networks.recurrent, lambda draw: draw.standard_normal((BATCH, 7, 4))),
    "embeddings": (embeddings, lambda draw: draw.integers(0, 64, (BATCH, 6))),
    "t5": (networks.t5, lambda draw: draw.integers(0, 11, (BATCH, 5))),
}


# The softmax cancels the biases of keys: their gradients are 0, up to rounding.
ZERO = "b_key"


def close(got, want, most, largest=None):
    """Compares two arrays up to a part of the largest element."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    largest = np.abs(want).max() if largest is None else largest
    wrong = np.abs(got - want).max() / largest
    assert wrong <= most, (wrong, most, largest)


def place(array):
    """Where an array lies, to be compared with the place of another array of this rank."""
    if hasattr(array, "placements"):
        return array.device_mesh, array.placements
    # JAX may write one sharding in several ways.
    return array.sharding.devices_indices_map(array.shape)


def split_of(mesh, shape, turn):
    """A split of an array in which every mesh axis divides the first axis it can, counted from
    `turn`."""
    parts = [1] * len(shape)
    split = []
    for size in mesh:
        axes = [(i + turn) % len(shape) for i in range(len(shape))]
        own = next((i for i in axes if shape[i] % (parts[i] * size) == 0), None)
        if own is not None:
            parts[own] *= size
        split.append(own)
    return tuple(split)


def compare_splits(backend_of, name, meshes):
    """Compares a model whose data, params, or both are divided; a sample has two of the cases."""
    at = [*MODELS].index(name)
    splits = ["data", "params", "both"]
    compare(backend_of, name, (32, 1e-5), splits if EVERY else splits[at % 3 :: 3], meshes)
    compare(backend_of, name, (64, 1e-12), ["both"], meshes)


def compare(backend_of, name, exactness, splits, meshes):
    """Compares outputs and gradients of a model on each mesh with those on one device. `splits`
    says what is divided: the data, the params, or both. `exactness` is the width of the floats, and
    the largest difference as a part of the largest element."""
    precision, most = exactness
    make, draw_inputs = MODELS[name]
    draw = np.random.default_rng(0)
    one = backend_of(precision=precision)
    x = draw_inputs(draw)
    x_dtype = f"float{precision}"
    x = x if x.dtype.kind == "i" else x.astype(x_dtype)
    model = make()
    compiled = ml.compile(model, one, shapes={"input": x.shape})
    params = compiled.randomize_params(1)
    outputs = compiled.evaluate(params, {"input": x})
    seeds = {n: draw.standard_normal(o.shape).astype(x_dtype) for n, o in outputs.items()}
    want = compiled.evaluate(params, {"input": x}, output_gradients=seeds)
    numpy = lambda arrays: {n: one.to_numpy(v) for n, v in arrays.items()}  # noqa: E731
    outputs, params = numpy(outputs), numpy(params)
    want = numpy(want[0]), numpy(want[1])
    steepest = max(np.abs(value).max() for value in want[1].values())
    for mesh in meshes:
        backend = backend_of(precision=precision, device_mesh=mesh)
        on_mesh = ml.compile(model, backend, shapes={"input": x.shape})
        whole = on_mesh.randomize_params(1)
        for param, value in whole.items():
            assert place(value) == place(backend.zeros(*value.shape))
            np.testing.assert_array_equal(backend.to_numpy(value), params[param])
        data = backend.shard(x, tensor_split=split_of(mesh, x.shape[:1], 0))
        divided = {
            param: backend.shard(value, tensor_split=split_of(mesh, value.shape, turn))
            for turn, (param, value) in enumerate(whole.items())
        }
        assert any(place(divided[param]) != place(whole[param]) for param in whole)
        cases = {"data": (whole, data), "params": (divided, x), "both": (divided, data)}
        # PyTorch's second call goes without the rules that the first one did not need.
        for split in [split for split in splits for _ in range(2)]:
            own, inputs = cases[split][0], {"input": cases[split][1]}
            got = on_mesh.evaluate(own, inputs, output_gradients=seeds)
            for output, value in want[0].items():
                close(backend.to_numpy(got[0][output]), value, most)
            for param, value in want[1].items():
                largest = steepest if param.endswith(ZERO) else None
                close(backend.to_numpy(got[1][param]), value, most, largest)
                assert place(got[1][param]) == place(own[param])
        forward = on_mesh.evaluate(divided, {"input": data})
        for output, value in outputs.items():
            close(backend.to_numpy(forward[output]), value, most)


def constrained():
    """A perceptron whose inner value is divided over both axes of a mesh of (2, 2)."""
    model = ml.Model()
    model |= Linear(16)(input="input", output=ml.IOKey("hidden"))
    inner = model.hidden.tanh().shard({"axis_0": 0, "axis_1": 1})
    model |= Linear(4)(input=inner, output=ml.IOKey("output"))
    model |= ml.Shard((None, 0))(input=inner, output=ml.IOKey("inner"))
    return model


def compare_plans(backend_of):
    """Compares models that are divided as a plan says with those on one device, and models with
    constraints inside."""
    one, backend = backend_of(precision=64), backend_of(precision=64, device_mesh=(2, 2))
    for name in ("mlp", "block", "gpt"):
        make, draw_inputs = MODELS[name]
        compare_divided((make(), draw_inputs), one, backend, given={"input": (0,)})
    # Less memory than the fastest layouts need: residual values are divided along the sequence.
    make, draw_inputs = MODELS["block"]
    few = make(), lambda draw: draw_inputs(draw)[:2]
    columns = {"input": (0,), "*.w_query": {"axis_1": 1}, "*.linear_0.w": {"axis_1": 1}}
    divided = compare_divided(few, one, backend, given=columns, memory=11_500)
    split = {"axis_0": 0, "axis_1": 1}
    assert divided.explain_sharding().residuals == [([2, 4, 8], split)]
    # Inputs of NumPy are divided by the layouts of their names.
    by_batch = {"shapes": {"input": [BATCH, 12]}, "shardings": {"input": (0,)}}
    divided = ml.compile(mlp(), backend, **by_batch)
    own, seeds = divided.randomize_params(0), {"output": np.ones((BATCH, 4))}
    for given in (None, seeds):
        outputs = divided.evaluate(own, {"input": np.ones((BATCH, 12))}, output_gradients=given)
        output = (outputs if given is None else outputs[0])["output"]
        assert place(output) == place(backend.ones(BATCH, 4, tensor_split=(0,)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.py"
        written = ml.compile(mlp(), backend, file_path=path, **by_batch)
        assert "def distribute(" in path.read_text() and path.read_text() == written.code
    opened = ml.compile(mlp(), backend, **{**by_batch, "shapes": {"input": ["batch", 12]}})
    with pytest.raises(ml.ShapeError, match=r"axis 0 of `input` of shape \[3, 12\], for 2 parts"):
        opened.evaluate(own, {"input": np.ones((3, 12))})
    make, draw_inputs = constrained, MODELS["mlp"][1]
    for autodiff in ("framework", "mithril"):
        options = {"autodiff": autodiff}
        divided = compare_divided((make(), draw_inputs), one, backend, given={}, **options)
        outputs = divided.evaluate(divided.randomize_params(1), {"input": np.ones((BATCH, 12))})
        assert place(outputs["inner"]) == place(backend.ones(BATCH, 16, tensor_split=(None, 0)))


def compare_divided(case, one, backend, *, given, memory=None, **options):
    """Compares a model that is divided by a plan with the same one on one device."""
    model, draw_inputs = case
    draw = np.random.default_rng(0)
    x = draw_inputs(draw)
    shapes = {"input": x.shape}
    compiled = ml.compile(model, one, shapes=shapes)
    planned = ml.compile(model, backend, shapes=shapes)
    plan = planned.propose_shardings(given=given, memory=memory)
    divided = ml.compile(model, backend, shapes=shapes, shardings=plan, **options)
    params, own = compiled.randomize_params(1), divided.randomize_params(1)
    for param, value in own.items():
        assert place(value) == place(backend.zeros(*value.shape, tensor_split=plan[param]))
    seeds = compiled.evaluate(params, {"input": x})
    seeds = {n: draw.standard_normal(one.to_numpy(o).shape) for n, o in seeds.items()}
    want = compiled.evaluate(params, {"input": x}, output_gradients=seeds)
    largest = max(np.abs(one.to_numpy(value)).max() for value in want[1].values())
    for _ in range(2):
        got = divided.evaluate(own, {"input": x}, output_gradients=seeds)
        for output, value in want[0].items():
            close(backend.to_numpy(got[0][output]), one.to_numpy(value), 1e-12)
        for param, value in want[1].items():
            close(backend.to_numpy(got[1][param]), one.to_numpy(value), 1e-12, largest)
            assert place(got[1][param]) == place(own[param])
    inference = divided.for_inference().evaluate(own, {"input": x})
    for output, value in want[0].items():
        close(backend.to_numpy(inference[output]), one.to_numpy(value), 1e-12)
    return divided


def layer():
    """One layer, whose layouts are few."""
    return Sequential([Linear(4), ml.Tanh()])


def all_splits(shape, mesh):
    """Every split of an array over a mesh."""
    fits = []
    for split in itertools.product((None, *range(len(shape))), repeat=len(mesh)):
        parts = [1] * len(shape)
        for axis, size in zip(split, mesh):
            if axis is not None:
                parts[axis] *= size
        if all(size % own == 0 for size, own in zip(shape, parts)):
            fits.append(split)
    return fits


class Divisions:
    """A model on a mesh of (2, 2) whose arrays are divided in many ways, and its results on one
    device."""

    MESH = (2, 2)

    def __init__(self, backend_of, make, draw_inputs):
        draw = np.random.default_rng(0)
        x = draw_inputs(draw)
        model, one = make(), backend_of(precision=64)
        self.backend = backend_of(precision=64, device_mesh=self.MESH)
        compiled = ml.compile(model, one, shapes={"input": x.shape})
        params = compiled.randomize_params(1)
        outputs = compiled.evaluate(params, {"input": x})
        seeds = {n: draw.standard_normal(one.to_numpy(v).shape) for n, v in outputs.items()}
        want = compiled.evaluate(params, {"input": x}, output_gradients=seeds)
        self.want = [{n: one.to_numpy(v) for n, v in own.items()} for own in want]
        self.on_mesh = ml.compile(model, self.backend, shapes={"input": x.shape})
        params = {name: one.to_numpy(value) for name, value in params.items()}
        self.arrays, self.seeds = {"input": x, **params}, seeds
        self.splits = {n: all_splits(a.shape, self.MESH) for n, a in self.arrays.items()}

    def compare(self, splits):
        """Compares outputs and gradients for these splits of the arrays."""
        shard = self.backend.shard
        arrays = {n: shard(a, tensor_split=splits[n]) for n, a in self.arrays.items()}
        inputs = {"input": arrays.pop("input")}
        for _ in range(2):
            found = self.on_mesh.evaluate(arrays, inputs, output_gradients=self.seeds)
            for got, want in zip(found, self.want):
                largest = max(np.abs(value).max() for value in want.values())
                for name, value in want.items():
                    close(self.backend.to_numpy(got[name]), value, 1e-12, largest)


def compare_layouts(backend_of, part, count):
    """Compares a layer in all ways to divide its arrays, or one in `part` of them, and larger
    models in `count` random ways."""
    draw = np.random.default_rng(5)
    few = Divisions(backend_of, layer, lambda draw: draw.standard_normal((4, 4)))
    every = list(itertools.product(*few.splits.values()))
    assert len(every) == 9 * 9 * 4
    for splits in every[int(draw.integers(part)) :: part]:
        few.compare(dict(zip(few.splits, splits)))
    names = ["mlp", "block", "gpt", "resnet", "recurrent", "embeddings", "t5"]
    models = {name: Divisions(backend_of, *MODELS[name]) for name in names[: max(count // 4, 1)]}
    for turn in range(count):
        model = models[list(models)[turn % len(models)]]
        model.compare({n: own[draw.integers(len(own))] for n, own in model.splits.items()})


def compare_files(backend_of, closed=lambda backend: None):
    """Saves arrays that are divided in many ways, and loads them on other meshes. `closed` ends a
    backend before another one is made."""
    draw = np.random.default_rng(0)
    arrays = {
        "rows": draw.standard_normal((8, 6)).astype("float32"),
        "columns": draw.standard_normal((3, 12)),
        "both": draw.integers(-9, 9, (4, 6)).astype("int32"),
        "grid": draw.standard_normal((8, 4)),
        "whole": draw.standard_normal(5).astype("float32"),
        "scalar": np.array(3.5),
        "empty": np.zeros((0, 4), "float32"),
    }
    splits = {"rows": (0,), "columns": (None, 1), "both": (0, 1), "grid": (0, 0)}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{name}.safetensors" for name in ("one", "many", "again")]
        ml.save_params(files[0], arrays)
        backend = backend_of(device_mesh=(2, 2), dtype=ml.float64)
        divided = {n: backend.shard(a, tensor_split=splits.get(n, ())) for n, a in arrays.items()}
        ml.save_params(files[1], {**divided, "whole": arrays["whole"]})
        assert files[1].read_bytes() == files[0].read_bytes()
        refused(folder, divided)
        closed(backend)
        for mesh, given in (((4,), {"rows": (0,), "columns": (1,)}), ((2,), {"*": ()})):
            backend = backend_of(device_mesh=mesh, dtype=ml.float64)
            loaded = ml.load_params(files[1], backend, shardings=given)
            for name, array in arrays.items():
                np.testing.assert_array_equal(backend.to_numpy(loaded[name]), array)
                like = backend.zeros(*array.shape, tensor_split=given.get(name, ()))
                assert place(loaded[name]) == place(like), name
            ml.save_params(files[2], loaded)
            assert files[2].read_bytes() == files[0].read_bytes()
            wrong = {"row": (0,)}, {"rows": (2,)}, {"rows": (0, 1)}
            for own in wrong:
                with pytest.raises(ml.MithrilError, match="row"):
                    ml.load_params(files[1], backend, shardings=own)
            plan = ml.compile(mlp(), backend, shapes={"input": (8, 12)}).propose_shardings()
            trained = ml.compile(mlp(), backend, shapes={"input": (8, 12)}, shardings=plan)
            params = trained.randomize_params(1)
            ml.save_params(files[2], params)
            for name, value in ml.load_params(files[2], backend, shardings=plan).items():
                assert place(value) == place(params[name])
            closed(backend)


def refused(folder, arrays):
    """On failure, the previous file is unchanged, and no other is left."""
    before = {path: path.read_bytes() for path in Path(folder).iterdir()}
    for path, more in (
        (Path(folder) / "none" / "x", {}),
        (Path(folder) / "many.safetensors", {"number": 3}),
        (Path(folder) / "many.safetensors", {"__metadata__": arrays["rows"]}),
        (Path(folder), {}),
    ):
        with pytest.raises(ml.MithrilError):
            ml.save_params(path, {**arrays, **more})
    assert {path: path.read_bytes() for path in Path(folder).iterdir()} == before


RING = ("block", {"input": (1,)})
"""A model whose sequence is divided."""
GROUPED = {
    "grouped": (partial(block, kv_heads=2), lambda draw: draw.standard_normal((BATCH, 4, 8))),
}
"""A model whose heads share keys."""
COLUMNS_AND_ROWS = {
    "*.w_query": (1,),
    "*.w_key": (1,),
    "*.w_value": (1,),
    "*.w_output": (0,),
    "*.linear_0.w": (1,),
    "*.linear_1.w": (0,),
}
# Models on a mesh of 2 devices, and what is divided.
DIVIDED = [
    ("mlp", {"input": (0,)}),
    ("mlp", {"linear_0.w": (1,)}),
    ("block", {"input": (0,)}),
    ("block", COLUMNS_AND_ROWS),
    ("gpt", COLUMNS_AND_ROWS),
]


COLUMNS_OF_GRID = {name: (None, *split) for name, split in COLUMNS_AND_ROWS.items()}
# Models on a mesh of 2 x 2 devices, whose batch is divided by its first axis.
ON_GRID = [
    ("mlp", {"input": (0,), "linear_0.w": (None, 1), "linear_1.w": (None, 0)}),
    # The rows of the first weight are divided like the batch: it is gathered for the product, and
    # its gradient is scattered.
    ("mlp", {"input": (0,), "linear_0.w": (0, 1), "linear_1.w": (None, 0)}),
    ("block", {"input": (0,), **COLUMNS_OF_GRID}),
]


def compare_collectives(backend_of, counted, models, kinds=None, *, mesh=(2,), differences=None):
    """Compares the bytes of collectives, or of some kinds, that a plan predicts with those that a
    framework sends in a step. `counted` calls a model, and returns the bytes that a device sends,
    by kind. `differences` has the bytes that are predicted and sent by kind, where they differ, by
    the place of the model."""
    backend = backend_of(device_mesh=mesh)
    for at, (name, given) in enumerate(models):
        make, draw_inputs = {**MODELS, **GROUPED}[name]
        x = draw_inputs(np.random.default_rng(0))
        x = backend.array(x, None if x.dtype.kind == "i" else backend.dtype)
        model, shapes = make(), {"input": x.shape}
        plan = ml.compile(model, backend, shapes=shapes).explain_sharding(given=given)
        compiled = ml.compile(model, backend, shapes=shapes, shardings=plan)
        params = compiled.randomize_params(1)
        inputs = {"input": backend.shard(x, tensor_split=plan["input"])}
        split = given.get("input", ())
        seeds = {
            output: backend.ones(*value.shape, tensor_split=split)
            for output, value in compiled.evaluate(params, inputs).items()
        }
        predicted = {}
        for kind, _, _, size in plan.blocks[0].collectives:
            predicted[kind] = predicted.get(kind, 0) + size
        found = counted(compiled, params, inputs, seeds)
        for kind in found.keys() - (kinds or found.keys()):
            del predicted[kind], found[kind]
        pairs = {k: (predicted.get(k, 0), found.get(k, 0)) for k in {*predicted, *found}}
        differ = {kind: pair for kind, pair in pairs.items() if pair[0] != pair[1]}
        assert differ == (differences or {}).get(at, {}), (name, given, found, predicted)


def compare_library(backend_of, devices, part, cases=None):
    """Compares every block, or one in `part`, with divided arrays and with arrays on one device."""
    import block_cases  # noqa: PLC0415
    from test_blocks import results, tolerance_of  # noqa: PLC0415

    class Divided(backend_of):
        """Divides each array along the first axis that is even."""

        def array(self, value, dtype=None, **place):
            shape = np.shape(value)
            even = (axis for axis, size in enumerate(shape) if size and size % devices == 0)
            axis = next(even, None)
            if axis is not None and self.mesh is not None:
                place = {"tensor_split": (axis,)}
            return super().array(value, dtype, **place)

    one, mesh = (Divided(dtype=ml.float64, device_mesh=own) for own in (None, (devices,)))
    unsigned = [n for n in _core.block_names() if not block_cases.ROWS[n].signed]
    for name in unsigned[SEED % part :: part]:
        for case in block_cases.variants(name)[:cases]:
            # PyTorch's second call has rules only for what needed them in the first one.
            want, got = results(name, case, one), results(name, case, mesh, calls=2)
            tolerance = tolerance_of(name)
            block_cases.close(got[0], want[0], f"{name}, {case}: output", tolerance)
            block_cases.close(got[1], want[1], f"{name}, {case}: gradient of", tolerance)


def compare_optax():
    """An optimizer of optax, with params that are divided over one axis of the mesh, and with
    params and rows that are divided over the same axis, as in ZeRO. Its states lie as they do."""
    import optax  # noqa: PLC0415

    draw = np.random.default_rng(0).standard_normal((8, 6)).astype("float32")
    found = []
    for split in (None, (None, -1), (0, None)):
        backend = ml.JaxBackend(**({} if split is None else {"device_mesh": (2, 2)}))
        compiled = ml.compile(mlp(), backend, shapes={"input": draw.shape})
        params, x = compiled.randomize_params(0), backend.array(draw)
        if split:
            params = {n: backend.shard(p, tensor_split=split) for n, p in params.items()}
        if split == (0, None):
            x = backend.shard(draw, tensor_split=split)
        optimizer = optax.adam(0.01)
        state = optimizer.init(params)
        seeds = {"output": lambda y: 2 * y / y.size}
        for _ in range(3):
            _, gradients = compiled.evaluate(params, {"input": x}, output_gradients=seeds)
            updates, state = optimizer.update(gradients, state, params)
            params = optax.apply_updates(params, updates)
        for name in params if split else ():
            for value in (state[0].mu[name], state[0].nu[name]):
                assert value.sharding.is_equivalent_to(params[name].sharding, value.ndim)
                assert not value.is_fully_replicated
        found.append({n: backend.to_numpy(p) for n, p in params.items()})
    for name, value in found[0].items():
        close(np.stack([own[name] for own in found[1:]]), np.stack([value] * 2), 1e-5)
