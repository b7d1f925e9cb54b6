"""Checks of models on meshes of PyTorch. `test_torch_meshes.py` runs them in processes of their
own, which start the other ranks: `python torch_mesh_checks.py NAME...`."""

import copy
import itertools
import multiprocessing
import pickle
import tempfile
from functools import partial
from pathlib import Path

import mesh_models
import numpy as np
import torch
from check_runs import EVERY, run_checks, wrong
from mesh_models import (
    DIVIDED,
    MESHES,
    MODELS,
    ON_GRID,
    RING,
    close,
    compare_collectives,
    compare_files,
    compare_layouts,
    compare_library,
    compare_plans,
    compare_splits,
    mlp,
    place,
)
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch_lookups import check_lookups

import mithril as ml
from mithril.backends import torch_ranks
from mithril.backends.torch_buckets import Buckets
from mithril.models import BatchNorm2d, Conv1d, Dropout, Embedding, Linear, Sequential, SquaredError

WHOLE = Replicate()


CREATIONS = {
    **mesh_models.CREATIONS,
    "array of floats": lambda b, **p: b.array(np.ones((8, 4)), "bfloat16", **p),
    "ones_like": lambda b, **p: b.ones_like(b.ones(8, 4), "bool", **p),
    "shard of a tensor": lambda b, **p: b.shard(torch.eye(8, 4), **p) if b.mesh else b.eye(8, 4),
}
# The split, the placements that PyTorch is to have, and the shape of the part of rank 0.
PLACES = [
    ({}, (WHOLE, WHOLE), (8, 4)),
    ({"device_mesh": (2, 2)}, (Shard(0), Shard(1)), (4, 2)),
    ({"device_mesh": (1, 2)}, (WHOLE, Shard(1)), (8, 2)),
    ({"tensor_split": (0, None)}, (Shard(0), WHOLE), (4, 4)),
    ({"tensor_split": (1, 0)}, (Shard(1), Shard(0)), (4, 2)),
    ({"tensor_split": (0, 0)}, (Shard(0), Shard(0)), (2, 4)),
    ({"tensor_split": (None, -1)}, (WHOLE, Shard(1)), (8, 2)),
    ({"tensor_split": (0, None), "device_mesh": (2, 1)}, (Shard(0), WHOLE), (4, 4)),
    ({"tensor_split": {"model": 0}}, (WHOLE, Shard(0)), (4, 4)),
]


def check_creation():
    one, backend = ml.TorchBackend(), ml.TorchBackend(device_mesh={"data": 2, "model": 2})
    for (name, create), (where, placements, part) in itertools.product(CREATIONS.items(), PLACES):
        one.set_seed(7), backend.set_seed(7)
        want, got = create(one), create(backend, **where)
        assert isinstance(got, DTensor)
        assert got.placements == placements, name
        assert tuple(got.to_local().shape) == part
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert torch.equal(got.full_tensor(), want), name
        np.testing.assert_array_equal(backend.to_numpy(got), one.to_numpy(want), strict=True)
    assert torch.equal(
        backend.arange(3, 19, 2, tensor_split=(0, 0)).full_tensor(), one.arange(3, 19, 2)
    )
    assert backend.zeros(0, 4, tensor_split=(0,)).full_tensor().shape == (0, 4)
    x = torch.arange(21.0).reshape(7, 3)
    for array in (x, x.numpy(), backend.array(x, tensor_split=())):
        filled = backend.shard(array, tensor_split=(0, 1), pad=-1)
        assert place(filled) == place(backend.zeros(8, 4, tensor_split=(0, 1)))
        want = torch.nn.functional.pad(x, (0, 1, 0, 1), value=-1)
        assert torch.equal(filled.full_tensor(), want)
    divided = backend.rand(8, 4, tensor_split=(1, 0))
    assert place(backend.zeros_like(divided)) == place(divided)
    assert place(backend.shard(divided)) == place(backend.ones(8, 4))
    assert torch.equal(
        backend.shard(divided, tensor_split=(0,)).full_tensor(), divided.full_tensor()
    )


def check_identity():
    backend = ml.TorchBackend(device_mesh=(2, 1))
    assert repr(backend) == "TorchBackend(dtype=float32, device='cpu', device_mesh=(2, 1))"
    assert backend == ml.TorchBackend(device_mesh=[2, 1]) != ml.TorchBackend(device_mesh=(1, 2))
    assert backend != ml.TorchBackend()
    backend.set_seed(3)
    backend.rand(2)
    for again in (copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))):
        other = again(backend)
        assert (other, hash(other), repr(other)) == (backend, hash(backend), repr(backend))
        assert place(other.ones(4, tensor_split=(0,))) == place(backend.ones(4, tensor_split=(0,)))
    other = pickle.loads(pickle.dumps(backend))
    assert torch.equal(other.rand(4).full_tensor(), backend.rand(4).full_tensor())


def in_child(backend, queue):
    try:
        backend.ones(2)
    except ml.BackendError as error:
        queue.put(str(error))


def check_mistakes():
    make = ml.TorchBackend
    for given in ((2, 0), (), "22", {"a": 1.5}):
        wrong(
            ml.UsageError, lambda given=given: make(device_mesh=given), "is not a mesh", repr(given)
        )
    wrong(ml.UsageError, lambda: make(device="cpu", device_mesh=(2,)), "cannot both be given")
    for option in ({"use_amp": True}, {"jit_compile": True}, {"memory_limit": "1GB"}):
        name = next(iter(option))
        wrong(
            ml.UsageError,
            lambda o=option: make(device_mesh=(2,), **o),
            f"`{name}` is for models on",
        )
    wrong(
        ml.UsageError,
        lambda: make().ones(4, tensor_split=(0,)),
        "ml.TorchBackend(device_mesh=(2,))",
    )
    backend = make(device_mesh=(2,))
    wrong(
        ml.ShapeError, lambda: backend.ones(3, tensor_split=(0,)), "a multiple of 2, such as 2 or 4"
    )
    wrong(
        ml.BackendError, lambda: make(device_mesh=(3,)), "got: a mesh of 3 devices\n  expected: 2"
    )
    compiled = ml.compile(Linear(2), backend)
    params = compiled.randomize_params(0)
    wrong(
        ml.UsageError,
        lambda: ml.compile(Linear(2), backend, jit=True, shapes={"input": [2, 3]}),
        "jit=True",
    )
    wrong(ml.ShapeError, lambda: compiled.evaluate(params, {"input": backend.ones(2, 3).double()}))
    x = backend.ones(4, 3, tensor_split=(0,))
    wrong(ml.UsageError, lambda: pickle.dumps(x), "cannot be pickled")
    wrong(ml.BackendError, lambda: torch.Tensor.apply_(x, lambda v: v), "cannot be sent")
    # Errors that all ranks have are PyTorch's own, and the ranks go on.
    wrong(RuntimeError, lambda: x @ x)
    wrong(RuntimeError, lambda: x.reshape(5))
    compiled.evaluate(params, {"input": x})
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(backend, queue))
    child.start()
    assert "a forked process has no device mesh" in queue.get(timeout=60)
    child.join()
    assert x.sum().item() == 12
    backend.close()
    wrong(ml.BackendError, lambda: x + 1, "the ranks of this device mesh have ended")
    other = make(device_mesh=(2,))
    wrong(ml.BackendError, lambda: other.ones(4, 3) + x, "an array of another mesh")
    assert (other.ones(4, 3) + 1).sum().item() == 24


def check_calls():
    one, backend = ml.TorchBackend(), ml.TorchBackend(device_mesh=(2, 2))
    x = np.random.default_rng(0).standard_normal((8, 6)).astype("float32")
    seeds = lambda outputs: {"output": outputs["output"] * 2}  # noqa: E731
    for options in ({}, {"autodiff": "mithril"}):
        want_of, got_of = (ml.compile(mlp(), b, **options) for b in (one, backend))
        params = want_of.randomize_params(2)
        want = want_of.evaluate(params, {"input": x}, output_gradients=seeds)
        own = got_of.randomize_params(2)
        for inputs in (x, one.array(x), backend.shard(x, tensor_split=(0,))):
            got = got_of.evaluate(own, {"input": inputs}, output_gradients=seeds)
            close(backend.to_numpy(got[0]["output"]), want[0]["output"].numpy(), 1e-5)
            for name, value in want[1].items():
                close(backend.to_numpy(got[1][name]), value.numpy(), 1e-5)
                assert place(got[1][name]) == place(own[name])
            own = {n: backend.shard(v, tensor_split=(v.ndim - 1,)) for n, v in own.items()}
        twin = got_of.for_inference().evaluate(own, {"input": x})
        bound = got_of.bind(own).evaluate({}, {"input": x})
        for found in (twin, bound):
            close(backend.to_numpy(found["output"]), want[0]["output"].numpy(), 1e-5)
    for given in (backend.from_torch(torch.ones(2)), backend.to_torch(np.ones(2))):
        assert place(given) == place(backend.ones(2))
    # Tokens that are out of range.
    table = ml.compile(Embedding(4, 2), backend)
    tokens = {"input": np.array([[1, 9], [0, 2]])}
    wrong(ml.IndexRangeError, lambda: table.evaluate(table.randomize_params(0), tokens), "got: 9")
    # Files do not depend on the mesh.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "params.safetensors"
        ml.save_params(path, own)
        for name, value in ml.load_params(path, backend).items():
            np.testing.assert_array_equal(backend.to_numpy(value), backend.to_numpy(own[name]))
            assert place(value) == place(backend.zeros(*value.shape))


def check_functions():
    """Functions of PyTorch on arrays of a mesh do the same on all ranks."""
    backend = ml.TorchBackend(device_mesh=(2, 2))
    x = torch.arange(32.0).reshape(8, 4) / 7
    y = backend.shard(x, tensor_split=(0, 1))
    cases = {
        "operators": lambda a: (a * 2 - 1) / (a + 3) ** 2,
        "with a tensor": lambda a: a + torch.ones(4),
        "reductions": lambda a: a.mean(0) + a.amax() + torch.sum(a, dim=0),
        "products": lambda a: torch.einsum("ij,kj->ik", a, a) @ a,
        "views": lambda a: a.T.reshape(2, -1)[:, ::2].contiguous(),
        "lists": lambda a: torch.cat([a, a * 2], dim=1).split(2, dim=1)[1],
        "iteration": lambda a: sum(row.sum() for row in a),
        "sorting": lambda a: torch.sort(-a, dim=1).values + a.argmax(1, keepdim=True),
        "conditions": lambda a: torch.where(a > 1, a, -a).clip(-2, 3),
        "in place": lambda a: a.clone().add_(1).mul_(3),
        "attributes": lambda a: a.T.mT + a.detach().requires_grad_().data,
        "functions of the backend": lambda a: backend.mean(backend.square(a)),
        "linear algebra": lambda a: torch.linalg.inv(a.T @ a + torch.eye(4)),
        "deepcopy": copy.deepcopy,
    }
    for name, function in cases.items():
        want, got = function(x), function(y)
        assert isinstance(got, DTensor), name
        torch.testing.assert_close(got.full_tensor(), want, msg=name)
        torch.testing.assert_close(torch.tensor(np.asarray(got.detach())), want, msg=name)
    total = y.sum()
    assert float(total) == total.item() == float(x.sum()) and bool(total > 1) and int(total) == 70
    assert f"{total:.1f}" == f"{x.sum():.1f}" and y.tolist() == x.tolist() and len(y) == 8
    wrong(ml.UsageError, lambda: y.__setitem__(0, 5), "hint: `torch.where`")
    # The ranks drop arrays with this process.
    ranks = backend.ranks
    for _ in range(50):
        y = y + 1
    assert len(ranks._dropped) < 50


def check_branches():
    """A call that takes another branch than the first one has the rules that this branch needs."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((8, 4, 6)).astype("float32")
    seeds = {"output": np.ones((8, 4, 6), "float32")}
    block = ml.Cond(ml.Tanh(), Sequential([Conv1d(4, 3, padding=1), ml.Softmax(axis=0)]))
    backend = ml.TorchBackend(device_mesh=(2,))
    compiled, one = (
        ml.compile(block, own, shapes={"input": x.shape, "condition": []}, trainable_keys=["input"])
        for own in (backend, ml.TorchBackend())
    )
    params = {**one.randomize_params(0), "input": x}
    own = {n: backend.shard(p, tensor_split=(0,)) for n, p in params.items()}
    for condition in (True, True, False, False, True):
        inputs = {"condition": np.array(condition)}
        got = compiled.evaluate(own, inputs, output_gradients=seeds)
        want = one.evaluate(params, inputs, output_gradients=seeds)
        close(backend.to_numpy(got[0]["output"]), want[0]["output"].numpy(), 1e-5)
        for name, value in want[1].items():
            close(backend.to_numpy(got[1][name]), value.numpy(), 1e-5, 1)


def check_modes():
    """PyTorch's modes hold on all ranks, and a call has the rules that its own modes need."""
    model = Sequential([Linear(6), ml.Tanh(), Linear(4), ml.Tanh(), Linear(4), ml.Softmax(axis=0)])
    x = np.random.default_rng(0).standard_normal((8, 6)).astype("float32")
    one, backend = ml.TorchBackend(), ml.TorchBackend(device_mesh=(2,))
    want_of, got_of = (ml.compile(model, b, shapes={"input": x.shape}) for b in (one, backend))
    params = want_of.randomize_params(0)
    own = {n: backend.shard(p, tensor_split=(0,) if p.ndim == 2 else ()) for n, p in params.items()}
    modes = torch.inference_mode, torch.no_grad, partial(torch.autocast, "cpu"), torch.enable_grad
    for mode in [*modes, *modes]:
        with mode():
            want = want_of.evaluate(params, {"input": x})["output"]
            got = got_of.evaluate(own, {"input": x})["output"]
            assert got.dtype == want.dtype
            most = 1e-5 if want.dtype == torch.float32 else 2e-2
            close(backend.to_numpy(got.float()), want.float().detach().numpy(), most)


def check_seeds():
    """Output gradients that depend on outputs, for data that is divided in another way each time:
    the graph has other operations."""
    draw = np.random.default_rng(0)
    arrays = {"p": draw.standard_normal((1, 5, 6)), "x": draw.standard_normal((6, 5))}
    model = ml.Model()
    model |= Conv1d(5, 3, padding=1)(input="p", output="q")
    model |= ml.Reshape((6, 5))(input="q", output="r")
    model |= ml.Multiply()(left="r", right="x", output="y")
    model |= ml.Square()(input="y", output="z")
    model |= ml.Sum()(input="z", output=ml.IOKey("output"))
    options = {"shapes": {n: a.shape for n, a in arrays.items()}, "trainable_keys": ["p"]}
    one, backend = ml.TorchBackend(ml.float64), ml.TorchBackend(ml.float64, device_mesh=(2,))
    want_of, got_of = (ml.compile(model, own, **options) for own in (one, backend))
    params = {**want_of.randomize_params(0), "p": arrays["p"]}
    seeds = {"output": lambda output: output * 0 + 2}
    _, want = want_of.evaluate(params, {"x": arrays["x"]}, output_gradients=seeds)
    for split in ((), (), (0,), (0,), ()):
        x = backend.shard(arrays["x"], tensor_split=split)
        _, got = got_of.evaluate(params, {"x": x}, output_gradients=seeds)
        for name, value in want.items():
            close(backend.to_numpy(got[name]), value.numpy(), 1e-12)


def check_optimizer():
    """Autograd and an optimizer of PyTorch, with params that are divided over one axis of the mesh,
    and with params and rows that are divided over the same axis, as in ZeRO."""
    draw = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
    found = []
    for split in (None, (None, -1), (0, None)):
        options = {} if split is None else {"device_mesh": (2, 2)}
        backend = ml.TorchBackend(requires_grad=True, **options)
        compiled = ml.compile(mlp(), backend, shapes={"input": [8, 6]})
        params, x = compiled.randomize_params(0), draw
        if split:
            params = {
                n: backend.shard(p, tensor_split=split).detach().requires_grad_()
                for n, p in params.items()
            }
        if split == (0, None):
            x = backend.shard(draw, tensor_split=split)
        optimizer = torch.optim.Adam(params.values(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            loss = compiled.evaluate(params, {"input": x})["output"].square().mean()
            loss.backward()
            optimizer.step()
        if split:
            states = [optimizer.state[p]["exp_avg"] for p in params.values()]
            for own in (states, [p.grad for p in params.values()]):
                assert [place(x) for x in own] == [place(p) for p in params.values()]
        found.append({n: backend.to_numpy(p.detach()) for n, p in params.items()})
        found[-1]["loss"] = backend.to_numpy(loss.detach())
    for name, value in found[0].items():
        close(found[1][name], value, 1e-5)
        close(found[2][name], value, 1e-5)


def check_state():
    """Running statistics, random keys and losses of a training model."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((8, 4, 6, 6)).astype("float32")
    target = draw.standard_normal((8, 4)).astype("float32")
    model = Sequential([BatchNorm2d(), ml.Flatten(start=1), Dropout(0.5), Linear(4)])
    training = ml.TrainModel(model)
    training.add_loss(SquaredError(), input="output", target="target")
    ran = []
    for own in (ml.TorchBackend(), ml.TorchBackend(device_mesh=(2, 2))):
        own.set_seed(5)
        compiled = ml.compile(training, own, shapes={"input": x.shape})
        params = compiled.randomize_params()
        where = {"tensor_split": (0,)} if own.mesh else {}
        inputs = {"input": own.array(x, **where), "target": own.array(target, **where)}
        for _ in range(3):
            outputs, gradients = compiled.evaluate(params, inputs, output_gradients=True)
            params = {n: p - 0.1 * gradients[n] for n, p in params.items()}
        compiled.evaluate(params, inputs)
        groups = (outputs, gradients, params, compiled.state)
        ran.append([{n: own.to_numpy(v) for n, v in group.items()} for group in groups])
    for want, got in zip(*ran):
        assert want.keys() == got.keys() != set()
        for name, value in want.items():
            close(got[name], value, 1e-5)


# The part of its operand that each of 2 devices sends.
SENT = {"all_reduce": 1.0, "all_gather_into_tensor": 1.0, "reduce_scatter_tensor": 0.5, "send": 1.0}


class Collectives(TorchDispatchMode):
    """Counts the bytes that this rank sends."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(own, DTensor) for own in types):
            return NotImplemented  # to see what DTensor calls for it
        # Buckets of gradients are reduced in place.
        kind = str(func).split(".")[1].replace("allreduce_", "all_reduce")
        if "c10d" in str(func) and kind in SENT:
            array = args[0][0] if isinstance(args[0], list) else args[0]
            sent = SENT[kind] * array.numel() * array.element_size()
            name = kind.removesuffix("_into_tensor").removesuffix("_tensor").replace("_", "-")
            name = name.replace("send", "collective-permute")
            self.found[name] = self.found.get(name, 0) + sent
        return func(*args, **(kwargs or {}))


def counted(compiled, params, inputs, seeds):
    """The bytes that a device sends in a step, by what PyTorch calls."""
    compiled.evaluate(params, inputs, output_gradients=seeds)
    with Collectives() as collectives, CommDebugMode() as counts:
        compiled.evaluate(params, inputs, output_gradients=seeds)
    plan = compiled.explain_sharding()
    # Gradients are reduced in buckets.
    assert 0 < counts.get_total_counts() <= sum(n for _, _, n, _ in plan.blocks[0].collectives)
    return collectives.found


def check_overlap():
    """Full buckets of gradients are reduced while autograd computes the other gradients. Each of
    three matrices fills one."""
    given = np.random.default_rng(0).standard_normal((4, 2600), np.float32)
    started = []

    class Watched(Buckets):
        def add(self, name, gradient):
            super().add(name, gradient)
            started.append((name, len(self._sums)))

    found = []
    torch_ranks.Buckets = Watched
    for options in ({}, {"device_mesh": (2,)}):
        backend = ml.TorchBackend(**options)
        model = Sequential([Linear(2600), Linear(2600), Linear(2600)])
        compiled = ml.compile(model, backend, shapes={"input": [4, 2600]})
        params = compiled.randomize_params(seed=0)
        split = {"tensor_split": (0,)} if options else {}
        x, seeds = backend.array(given, **split), {"output": backend.ones(4, 2600, **split)}
        # The first call finds out that DTensor needs no rules of ours, the second that some
        # gradients are sums.
        for _ in range(3):
            _, gradients = compiled.evaluate(params, {"input": x}, output_gradients=seeds)
        found.append({name: backend.to_numpy(value) for name, value in gradients.items()})
    for name, want in found[0].items():
        close(found[1][name], want, 1e-5)
    at = dict(started)
    assert at["linear_2.w"] == 1 and at["linear_1.w"] == 2 and at["linear_0.w"] == 3, started


def check_collectives():
    compare_collectives(ml.TorchBackend, counted, [*DIVIDED, RING, ("grouped", RING[1])])
    # The gradients of keys and values go round in f32.
    narrow = partial(ml.TorchBackend, dtype="bfloat16")
    compare_collectives(narrow, counted, [RING], {"collective-permute"})
    compare_collectives(ml.TorchBackend, counted, [("resnet", {"input": (0,)})])
    narrow(device_mesh=(2,)).close()
    compare_collectives(ml.TorchBackend, counted, ON_GRID, mesh=(2, 2))


CHECKS = {
    "creation": check_creation,
    "identity": check_identity,
    "mistakes": check_mistakes,
    "calls": check_calls,
    "functions": check_functions,
    "branches": check_branches,
    "modes": check_modes,
    "seeds": check_seeds,
    "optimizer": check_optimizer,
    "state": check_state,
    "overlap": check_overlap,
    "collectives": check_collectives,
    "lookups": check_lookups,
    "files": lambda: compare_files(ml.TorchBackend, ml.TorchBackend.close),
    "layouts": lambda: compare_layouts(ml.TorchBackend, *(EVERY or (32, 8))),
    "plans": lambda: compare_plans(ml.TorchBackend),
    "library": lambda: compare_library(ml.TorchBackend, 2, 1 if EVERY else 4),
}
# Each model on each mesh.
ON_MESHES = {
    f"{name}@{'x'.join(map(str, mesh))}": partial(compare_splits, ml.TorchBackend, name, [mesh])
    for name, mesh in itertools.product(MODELS, MESHES)
}

if __name__ == "__main__":
    run_checks({**CHECKS, **ON_MESHES})
