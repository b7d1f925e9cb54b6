"""Checks of a mesh of 4,096 ranks that are not there: PyTorch's process group `fake` calls no other
rank. `test_simulated_meshes.py` runs them in a process of their own."""

import torch.distributed as dist
from check_runs import run_checks
from scale_models import gpt
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

import mithril as ml
from mithril.models import Embedding, Linear, Relu, Sequential

MESH = {"data": 512, "model": 8}
# The part of its operand that each of n devices sends, in a ring.
SENT = {
    "allreduce_": lambda n: 2 * (n - 1) / n,
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather_into_tensor": lambda n: n - 1,
    "reduce_scatter_tensor": lambda n: (n - 1) / n,
}


class Collectives(TorchDispatchMode):
    """Counts the bytes that this rank sends."""

    def __init__(self):
        super().__init__()
        self.sent = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(own, DTensor) for own in types):
            return NotImplemented  # to see what DTensor calls for it
        kind = str(func).split(".")[1]
        if "c10d" in str(func) and kind in SENT:
            array = args[0][0] if isinstance(args[0], list) else args[0]
            self.sent += SENT[kind](ranks_of(args)) * array.numel() * array.element_size()
        return func(*args, **(kwargs or {}))


def ranks_of(args):
    """The number of ranks in the group of a collective, which is a name or an object."""
    if isinstance(args[-1], str):
        return dist.distributed_c10d._resolve_process_group(args[-1]).size()
    return dist.ProcessGroup.unbox(args[1]).size()


def step(model, shapes, plan, inputs_of):
    """The results of a model that is divided by a plan, its gradients, and the bytes that a rank
    sends in a step."""
    backend = ml.TorchBackend(device_mesh=MESH)
    compiled = ml.compile(model, backend, shapes=shapes, shardings=plan)
    params = compiled.randomize_params(0)
    inputs = {"input": inputs_of(backend, tensor_split=plan["input"])}
    (output,) = compiled.evaluate(params, inputs).values()
    split = [own.dim if own.is_shard() else None for own in output.placements]
    seeds = {"output": backend.ones(*output.shape, tensor_split=split)}
    # The first calls find out what DTensor needs.
    for _ in range(3):
        with Collectives() as collectives:
            _, gradients = compiled.evaluate(params, inputs, output_gradients=seeds)
    places = ({n: x.placements for n, x in own.items()} for own in (gradients, params))
    assert next(places) == next(places)
    return output, collectives.sent


def check_bytes():
    """A rank sends as many bytes as the plan predicts."""
    model, shapes = Sequential([Linear(4096), Relu(), Linear(512)]), {"input": [1024, 512]}
    parts = {"linear_0.w": {"model": 1}, "linear_1.w": {"model": 0}}
    for given in ({}, parts):
        plan = explained(model, shapes, {"input": {"data": 0}, **given})
        output, sent = step(model, shapes, plan, lambda b, **split: b.ones(1024, 512, **split))
        assert output.to_local().shape == (2, 512)
        assert_predicted(plan, sent)


def explained(model, shapes, given):
    return ml.compile(model, ml.NumpyBackend(), shapes=shapes).explain_sharding(MESH, given=given)


def assert_predicted(plan, sent):
    predicted = sum(size for *_, size in plan.blocks[0].collectives)
    assert abs(sent - predicted) <= 1e-9 * predicted, (sent, predicted)


def tokens(shape):
    return lambda backend, **split: backend.randint(0, 512, shape, **split)


def check_tables():
    """Neither a table nor the gradient of what is looked up in it is gathered, unless the same mesh
    axis divides the table and the lookups."""
    shapes = {"input": [1024, 16]}
    for rows, split in (
        (512, {}),
        (512, {"model": 0}),
        (512, {"model": 1}),
        (8192, {"data": 0}),
        (512, {"data": 0}),
    ):
        model = Sequential([Embedding(rows, 128), Linear(64)])
        plan = explained(model, shapes, {"input": {"data": 0}, "embedding.w": split})
        output, sent = step(model, shapes, plan, tokens((1024, 16)))
        assert tuple(output.to_local().shape) == (2, 16, 64)
        assert_predicted(plan, sent)


MEGATRON = {
    "input": {"data": 0},
    "*.w_query": {"model": 1},
    "*.w_key": {"model": 1},
    "*.w_value": {"model": 1},
    "*.w_output": {"model": 0},
    "*.linear_0.w": {"model": 1},
    "*.linear_1.w": {"model": 0},
    "embedding.w": {"model": 0},
    "linear.w": {"model": 1},
}


def check_transformer():
    """A transformer whose layouts are chosen, and one whose weights are divided as in Megatron."""
    shapes = {"input": [1024, 16]}
    model = gpt(2, 64, 8, 512)
    planned = ml.compile(model, ml.NumpyBackend(), shapes=shapes)
    plan = planned.propose_shardings(MESH, machine="2x8xH100")
    output, sent = step(model, shapes, plan, tokens((1024, 16)))
    assert tuple(output.shape) == (1024, 16, 512)
    assert output.to_local().numel() == output.numel() // 512
    assert_predicted(plan, sent)
    model = gpt(2, 512, 8, 512)
    plan = explained(model, shapes, MEGATRON)
    output, sent = step(model, shapes, plan, tokens((1024, 16)))
    assert output.to_local().numel() == output.numel() // 4096
    assert_predicted(plan, sent)


CHECKS = {"bytes": check_bytes, "tables": check_tables, "transformer": check_transformer}

if __name__ == "__main__":
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4096)
    run_checks(CHECKS)
