"""Models, and how they are compared in stages with one device. The checks of JAX and PyTorch share
them."""

import tempfile
from pathlib import Path

import networks
import numpy as np
from check_runs import EVERY
from mesh_models import MODELS, close, mlp, place

import mithril as ml
from mithril.models import (
    Buffer,
    Dropout,
    Embedding,
    Gelu,
    LayerNorm,
    Linear,
    Mean,
    Sequential,
    Sum,
)

BATCH = 16
MESHES = [
    ({"stage": 2}, "gpipe", 2, 3),
    ({"stage": 2}, "1f1b", 2, 4),
    ({"stage": 2}, "interleaved", 4, 4),
    ({"stage": 2}, "zero-bubble", 2, 4),
    ({"stage": 2}, "zero-bubble", 4, 2),
    ({"stage": 2, "data": 2}, "1f1b", 2, 4),
    ({"stage": 2, "data": 2}, "gpipe", 2, 2),
    ({"data": 2, "stage": 2}, "interleaved", 4, 2),
    ({"stage": 2, "data": 2}, "zero-bubble", 4, 4),
    ({"stage": 4}, "gpipe", 4, 2),
    ({"stage": 4}, "1f1b", 4, 4),
    ({"stage": 4}, "interleaved", 4, 8),
    ({"stage": 4}, "zero-bubble", 4, 4),
]


# Bits, and the largest difference.
PRECISIONS = [(64, 1e-12), (32, 1e-5)]


def meshes_of(devices):
    """The meshes of so many devices."""
    return [own for own in MESHES if np.prod(list(own[0].values())) == devices]


def tied():
    """A transformer-like model whose table of tokens is also its last weight."""
    model = ml.Model()
    model |= Embedding(11, 8)(input="input", w="table", output="x0")
    for at in range(4):
        layer = Sequential([LayerNorm(), Linear(16), Gelu(), Linear(8)])
        model |= networks.Residual(layer)(input=f"x{at}", output=f"x{at + 1}")
    model |= Buffer()(input=model.x4 @ model.table.transpose(), output="output")
    return model


def trained(reduction="mean"):
    """A model with a loss that is a mean or a sum over the batch."""
    training = ml.TrainModel(mlp())
    steps = [Mean() if reduction == "mean" else Sum()]
    training.add_loss(ml.SquaredError(), steps, input="output", target="target")
    return training


DRAWN = {
    "mlp": (mlp, lambda draw: draw.standard_normal((BATCH, 12))),
    "gpt": (networks.gpt, lambda draw: draw.integers(0, 11, (BATCH, 5))),
    "tied": (tied, lambda draw: draw.integers(0, 11, (BATCH, 5))),
    "t5": (MODELS["t5"][0], lambda draw: draw.integers(0, 11, (BATCH, 5))),
}


def numpy(backend, arrays):
    return {name: backend.to_numpy(value) for name, value in arrays.items()}


def agree(got, want, most):
    """Compares two dicts of arrays up to a part of the largest element of all."""
    assert got.keys() == want.keys()
    largest = max(np.abs(value).max() for value in want.values())
    for name, value in want.items():
        close(got[name], value, most, largest)


def compare(backend_of, name, meshes, precisions=PRECISIONS):
    """The model in stages is equal to the one on one device, on these meshes."""
    make, draw_inputs = DRAWN[name]
    for bits, most in precisions:
        draw = np.random.default_rng(0)
        one, x = backend_of(precision=bits), draw_inputs(draw)
        x = x if x.dtype.kind == "i" else x.astype(f"float{bits}")
        model, shapes = make(), {"input": x.shape}
        compiled = ml.compile(model, one, shapes=shapes)
        params = compiled.randomize_params(1)
        outputs = compiled.evaluate(params, {"input": x})
        seeds = {
            n: draw.standard_normal(v.shape).astype(f"float{bits}") for n, v in outputs.items()
        }
        double = lambda outputs: {n: v * 2 for n, v in outputs.items()}  # noqa: E731
        cases = [
            (own, compiled.evaluate(params, {"input": x}, None, own)) for own in (seeds, double)
        ]
        for mesh, schedule, stages, count in meshes:
            backend = backend_of(precision=bits, device_mesh=mesh)
            pipeline = ml.Pipeline(stages, count if name != "tied" else None, schedule)
            if BATCH % (pipeline.microbatches or 1):
                pipeline = ml.Pipeline(stages, stages, schedule)
            staged = ml.compile(model, backend, shapes=shapes, stages=pipeline)
            own = staged.randomize_params(1)
            agree(numpy(backend, own), numpy(one, params), 0)
            agree(numpy(backend, staged.evaluate(own, {"input": x})), numpy(one, outputs), most)
            for given, want in cases:
                got = staged.evaluate(own, {"input": x}, None, given)
                agree(numpy(backend, got[0]), numpy(one, want[0]), most)
                agree(numpy(backend, got[1]), numpy(one, want[1]), most)
                assert all(place(got[1][param]) == place(own[param]) for param in own)


def compare_some(backend_of, name, meshes):
    """The same; a sample has each of the meshes for one model, in one precision."""
    at = [*DRAWN].index(name)
    own = meshes if EVERY else meshes[at :: len(DRAWN)]
    compare(backend_of, name, own, PRECISIONS if EVERY else PRECISIONS[at % 2 :: 2])


def batch():
    """Inputs and targets of `trained`."""
    draw = np.random.default_rng(0)
    return {name: draw.standard_normal((BATCH, n)) for name, n in (("input", 12), ("target", 4))}


def compare_sums(backend_of):
    """A loss that is a sum over the batch, with its gradients."""
    inputs = batch()
    shapes = {name: value.shape for name, value in inputs.items()}
    one = backend_of(precision=64)
    backend = backend_of(precision=64, device_mesh={"stage": 2, "data": 2})
    stages = ml.Pipeline(2, microbatches=2, reduction="sum")
    ran = []
    for own, options in ((one, {}), (backend, {"stages": stages})):
        compiled = ml.compile(trained("sum"), own, shapes=shapes, **options)
        params = compiled.randomize_params(0)
        found = compiled.evaluate(params, inputs, output_gradients=True)
        seeds = {"final_cost": own.full((), 3.0)}
        found += compiled.evaluate(params, inputs, output_gradients=seeds)
        ran.append([numpy(own, arrays) for arrays in found])
    for want, got in zip(*ran):
        agree(got, want, 1e-12)


def compare_training(backend_of, optimizers):
    """A loss in the model, mapped params, inference, and files. `optimizers` has further functions
    from params to one that updates them with gradients."""
    inputs = batch()
    shapes = {name: value.shape for name, value in inputs.items()}
    one = backend_of(precision=64)
    backend = backend_of(precision=64, device_mesh={"stage": 2, "data": 2})
    for make in (lambda _: mapped, *optimizers):
        ran = []
        for own, options in ((one, {}), (backend, {"stages": 2})):
            compiled = ml.compile(trained(), own, shapes=shapes, **options)
            params = compiled.randomize_params(0)
            update = make(params)
            for _ in range(3):
                outputs, gradients = compiled.evaluate(params, inputs, output_gradients=True)
                params = update(params, gradients)
            twin = compiled.for_inference()
            inference = twin.evaluate(params, {"input": inputs["input"]})
            ran.append([numpy(own, found) for found in (outputs, gradients, params, inference)])
        for want, got in zip(*ran):
            agree(got, want, 1e-12)
    blocks = [[own.blocks for own in model.stages.stages] for model in (compiled, twin)]
    assert blocks[0][0] == blocks[1][0] and {*blocks[1][1]} < {*blocks[0][1]}
    # Params of files lie on the whole mesh, and so do their gradients.
    _, want = compiled.evaluate(params, inputs, output_gradients=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "params.safetensors"
        ml.save_params(path, params)
        for splits in ({"*": ()}, {"*.w": {"data": 0}, "*.b": {"stage": 0}}):
            loaded = ml.load_params(path, backend, shardings=splits)
            _, got = compiled.evaluate(loaded, inputs, output_gradients=True)
            agree(numpy(backend, got), numpy(backend, want), 1e-12)
            assert all(place(got[name]) == place(loaded[name]) for name in loaded)


def mapped(params, gradients):
    """A step of gradient descent."""
    return {name: value - 0.1 * gradients[name] for name, value in params.items()}


def compare_values(backend_of):
    """Inner outputs, hooks, gradients of some outputs, random keys and inputs for all."""
    draw = np.random.default_rng(0)
    one, backend = (backend_of(precision=64, device_mesh=own) for own in (None, {"stage": 2}))
    x = draw.integers(0, 11, (8, 5))
    options = {"shapes": {"input": x.shape}, "keep": ["sequential_0"]}
    alone, staged = (
        ml.compile(networks.gpt(), own, **options, **given)
        for own, given in ((one, {}), (backend, {"stages": 2}))
    )
    params, own = alone.randomize_params(0), staged.randomize_params(0)
    outputs = alone.evaluate(params, {"input": x})
    seeds = {name: draw.standard_normal(value.shape) for name, value in outputs.items()}
    for given in (seeds, {"sequential_0": seeds["sequential_0"]}):
        want = alone.evaluate(params, {"input": x}, None, given)
        got = staged.evaluate(own, {"input": x}, None, given)
        agree(numpy(backend, got[0]), numpy(one, want[0]), 1e-12)
        agree(numpy(backend, got[1]), numpy(one, want[1]), 1e-12)
    _, gradients = staged.evaluate(own, {"input": x}, None, {})
    assert all(not backend.to_numpy(value).any() for value in gradients.values())
    seen = {}
    for model, name in ((alone, "one"), (staged, "staged")):
        model.register_hook("sequential_1", lambda value, name=name: seen.update({name: value}))
    alone.evaluate(params, {"input": x}), staged.evaluate(own, {"input": x})
    close(backend.to_numpy(seen["staged"]), one.to_numpy(seen["one"]), 1e-12)
    # Each microbatch has a key of its own.
    model = Sequential([Linear(16), Dropout(0.5), Linear(12), Dropout(0.5)])
    staged = ml.compile(model, backend, shapes={"input": [8, 4]}, stages=2)
    own, inputs = staged.randomize_params(0), {"input": np.ones((8, 4))}
    inputs |= {"key": np.array([1, 2], "uint32")}
    found = [backend.to_numpy(staged.evaluate(own, inputs)["output"]) for _ in range(2)]
    np.testing.assert_array_equal(*found)
    assert len(np.unique(found[0], axis=0)) == 8
    # Stages without params give values without gradients to later ones.
    model, x = (
        Sequential([ml.Tanh(), ml.Softmax(), ml.Exponential(), Linear(2)]),
        draw.random((8, 6)),
    )
    given = {"input": x}, None, {"output": draw.standard_normal((8, 2))}
    alone = ml.compile(model, one, shapes={"input": x.shape})
    want = alone.evaluate(alone.randomize_params(0), *given)
    for schedule in ("gpipe", "zero-bubble"):
        pipeline = ml.Pipeline(2, 4, schedule)
        staged = ml.compile(model, backend, shapes={"input": x.shape}, stages=pipeline)
        assert not staged.stages.stages[0].param_bytes
        got = staged.evaluate(staged.randomize_params(0), *given)
        agree(numpy(backend, got[1]), numpy(one, want[1]), 1e-12)
    # Gradients of a recurrent layer.
    model, x = Sequential([Linear(6), ml.LSTM(5), Linear(4)]), draw.standard_normal((8, 5, 3))
    given = {"input": x}, None, {"output": draw.standard_normal((8, 5, 4))}
    alone = ml.compile(model, one, shapes={"input": x.shape})
    staged = ml.compile(model, backend, shapes={"input": x.shape}, stages=2)
    want = alone.evaluate(alone.randomize_params(0), *given)
    got = staged.evaluate(staged.randomize_params(0), *given)
    agree(numpy(backend, got[1]), numpy(one, want[1]), 1e-12)
    # With one microbatch, the shape of an output does not tell its batch axis.
    model = ml.Model()
    model |= Linear(8)(input="input", output="x")
    model |= Linear(3)(input=model.x, output="y")
    model |= Buffer()(input=model.y.argmax(1), output="choice")
    alone, staged = (
        ml.compile(model, own, shapes={"input": x.shape}, **stages)
        for own, stages in ((one, {}), (backend, {"stages": ml.Pipeline(2, 1, "gpipe")}))
    )
    want = alone.evaluate(alone.randomize_params(0), {"input": x})["choice"]
    got = staged.evaluate(staged.randomize_params(0), {"input": x})["choice"]
    np.testing.assert_array_equal(backend.to_numpy(got), one.to_numpy(want), strict=True)
    # A mask has no batch.
    model = ml.Model()
    model |= Linear(8)(input="input", output="x")
    model |= Linear(8)(input=model.x * ml.IOKey("mask"), output="output")
    mask, x = draw.standard_normal((8, 8)), draw.standard_normal((8, 8))
    options = {"shapes": {"input": [8, 8], "mask": [8]}, "data_keys": ["mask"]}
    given = {"input": x, "mask": mask[0]}
    alone, staged = (
        ml.compile(model, own, **options, **stages)
        for own, stages in (
            (one, {}),
            (backend, {"stages": ml.Pipeline(2, 4, batch_axes={"mask": None})}),
        )
    )
    want = alone.evaluate(alone.randomize_params(0), given)["output"]
    got = staged.evaluate(staged.randomize_params(0), given)["output"]
    close(backend.to_numpy(got), one.to_numpy(want), 1e-12)


def wrong(error, parts, make=mlp, shapes=None, **options):
    try:
        ml.compile(make(), shapes=shapes or {"input": [8, 12]}, **options)
    except error as raised:
        for part in parts:
            assert part in str(raised), (part, str(raised))
    else:
        raise AssertionError(f"no error: {parts}")


def compare_accumulation(backend_of, sums):
    """One stage accumulates the gradients of its microbatches, and adds up those of the replicas
    once. `sums` counts the sums over replicas in a step."""
    inputs = batch()
    shapes = {name: value.shape for name, value in inputs.items()}
    one = backend_of(precision=64)
    whole = ml.compile(trained(), one, shapes=shapes)
    params = whole.randomize_params(0)
    want = whole.evaluate(params, inputs, output_gradients=True)
    backend = backend_of(precision=64, device_mesh={"stage": 1, "data": 2})
    counts = set()
    for schedule in ("gpipe", "1f1b", "zero-bubble"):
        for count in (1, 4):
            stages = ml.Pipeline(1, count, schedule)
            staged = ml.compile(trained(), backend, shapes=shapes, stages=stages)
            own = staged.randomize_params(0)
            got = staged.evaluate(own, inputs, output_gradients=True)
            for found, wanted in zip(got, want):
                agree(numpy(backend, found), numpy(one, wanted), 1e-12)
            counts.add(sums(staged, own, inputs))
    (count,) = counts
    assert count > 0


def compare_files(backend, compiled, params, path):
    """Params of stages are saved, and read to the same ranks. What is no param lies on all."""
    more = {"other": backend.ones(3)}
    ml.save_params(path, {**params, **more})
    loaded = ml.load_params(path, backend, shardings=compiled.stages)
    assert loaded.keys() == {*params, *more}
    for name, value in {**params, **more}.items():
        own = loaded[name]
        np.testing.assert_array_equal(backend.to_numpy(own), backend.to_numpy(value))
        for where in ("device_mesh", "placements", "sharding"):
            assert getattr(own, where, None) == getattr(value, where, None), name
    assert compiled.stages.owners.keys() == {*compiled.params}
    wrong_backend = type(backend)(device_mesh=backend.mesh.sizes)
    try:
        ml.load_params(path, wrong_backend, shardings=compiled.stages)
    except ml.UsageError as error:
        assert "a mesh with 2 devices along `stage`" in str(error)
    else:
        raise AssertionError("no error")


def check_mistakes(backend_of):
    """What is refused."""
    backend = backend_of(device_mesh={"stage": 2})
    on = {"backend": backend}
    wrong(
        ml.UsageError,
        ["the mesh {'stage': 2}", "`stage`"],
        **on,
        stages=ml.Pipeline(2, axis="stages"),
    )
    wrong(ml.UsageError, ["3 stages for 2 ranks", "interleaved"], **on, stages=3)
    several = {"stages": 20, "schedule": "interleaved", "microbatches": 2}
    wrong(
        ml.UsageError,
        ["fewer blocks than stages", "at most 5"],
        **on,
        stages=ml.Pipeline(**several),
    )
    wrong(
        ml.ShapeError,
        ["a batch of 8, for 3 microbatches", "multiple of 3"],
        **on,
        stages=ml.Pipeline(2, 3),
    )
    wrong(ml.UsageError, ["1 microbatch for 2 stages"], **on, stages=ml.Pipeline(2, 1))
    rounds = ml.Pipeline(4, 8, "interleaved"), ml.Pipeline(4, 5, "interleaved")
    wrong(ml.UsageError, ["equal rounds"], **on, shapes={"input": [10, 12]}, stages=rounds[1])
    wrong(ml.ShapeError, ["sizes of all inputs"], **on, shapes={"input": ["n", 12]}, stages=2)
    wrong(ml.TerminalError, ["no input"], **on, stages=ml.Pipeline(2, batch_axes={"inputs": 0}))
    wrong(ml.UsageError, ["`shardings` is not for"], **on, stages=2, shardings={"input": (0,)})
    wrong(ml.UsageError, ["`autodiff` is not for"], **on, stages=2, autodiff="mithril")
    norm = lambda: Sequential([Linear(4), ml.BatchNorm1d(), Linear(4)])  # noqa: E731
    wrong(ml.UsageError, ["a model with states"], norm, **on, stages=2)
    wrong(ml.MithrilError, ["no machine `h100`"], **on, stages=ml.Pipeline(2, machine="h100"))
