"""Models, and how they are compared on device meshes with one device. The checks of JAX and PyTorch
share them."""

import networks
import numpy as np

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


def block():
    """A transformer block of 4 heads."""
    return networks.Sequential(
        [
            networks.Residual(Sequential([ml.LayerNorm(), ml.MultiHeadAttention(4)])),
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


def compare(backend_of, name, exactness, splits, meshes=MESHES):
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
        for split in splits:
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


def compare_library(backend_of, devices, blocks=None, cases=None):
    """Compares every block, or these ones, with divided arrays and with arrays on one device."""
    import block_cases  # noqa: PLC0415
    from test_blocks import LOOSE, TOLERANCE, results  # noqa: PLC0415

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
    for name in [n for n in _core.block_names() if n not in block_cases.SIGNED][
        blocks or slice(None)
    ]:
        for case in block_cases.variants(name)[:cases]:
            want, got = (results(name, case, own) for own in (one, mesh))
            tolerance = LOOSE.get(name, TOLERANCE)
            block_cases.close(got[0], want[0], f"{name}, {case}: output", tolerance)
            block_cases.close(got[1], want[1], f"{name}, {case}: gradient of", tolerance)


def interrupt(*_):
    """Is interrupted on the first rank of PyTorch."""
    import torch  # noqa: PLC0415

    if not torch.distributed.get_rank():
        raise KeyboardInterrupt


def refuse(*_):
    """Fails on all ranks of PyTorch but the first."""
    import torch  # noqa: PLC0415

    if torch.distributed.get_rank():
        raise ValueError("this rank does not want to")
