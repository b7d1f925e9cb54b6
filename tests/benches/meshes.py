"""Steps on a mesh of two PyTorch processes, against DTensor by hand and against one process.

`OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 tests/benches/meshes.py [--check]`. A
step is the forward pass and the gradients of all params. The first lines have milliseconds of small
models, in which the time is that of calls, by Mithril and by hand, in turns. The last ones have
those of a large model, divided along its batch, on one process and on two, and how many times as
fast two are: by Mithril, and by `DistributedDataParallel`. `--check` fails if a small model is 5 %
slower than by hand, or two processes with 1,024 rows each are less than 1.6 times as fast as one.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor.placement_types import Partial

import mithril as ml
from mithril.models import Gelu, LayerNorm, Linear, Residual, Sequential

ROUNDS = 300
F = torch.nn.functional
Params = dict[str, Any]


def perceptron() -> Any:
    return Sequential([Linear(64), ml.Relu(), Linear(64), ml.Relu(), Linear(8)])


def perceptron_by_hand(p: Params, x: Any) -> Any:
    x = torch.relu(x @ p["linear_0.w"] + p["linear_0.b"])
    x = torch.relu(x @ p["linear_1.w"] + p["linear_1.b"])
    return x @ p["linear_2.w"] + p["linear_2.b"]


def feed_forward() -> Any:
    return Residual(Sequential([LayerNorm(), Linear(64), Gelu(), Linear(32)]))


def feed_forward_by_hand(p: Params, x: Any) -> Any:
    own = "sequential."
    y = F.layer_norm(x, (32,), p[f"{own}layer_norm.w"], p[f"{own}layer_norm.b"])
    y = F.gelu(y @ p[f"{own}linear_0.w"] + p[f"{own}linear_0.b"])
    return x + y @ p[f"{own}linear_1.w"] + p[f"{own}linear_1.b"]


PAIRS = {"*linear_0.w": (1,), "*linear_0.b": (0,), "*linear_1.w": (0,)}
DATA = {"input": (0,)}
# The model, the same by hand, the shape of its input, and what is divided.
CASES: list[tuple[str, Callable[[], Any], Callable[..., Any], tuple[int, ...], Any]] = [
    ("MLP, data", perceptron, perceptron_by_hand, (32, 32), DATA),
    ("MLP, columns and rows", perceptron, perceptron_by_hand, (32, 32), PAIRS),
    ("feed-forward, data", feed_forward, feed_forward_by_hand, (8, 16, 32), DATA),
    ("feed-forward, columns and rows", feed_forward, feed_forward_by_hand, (8, 16, 32), PAIRS),
]  # fmt: skip


def whole(value: Any) -> Any:
    """The array without sums that are still to be added up."""
    places = [Replicate() if isinstance(p, Partial) else p for p in value.placements]
    return value if places == list(value.placements) else value.redistribute(placements=places)


def by_hand(function: Callable[..., Any], params: Params, x: Any, seed: Any) -> Callable[[], Any]:
    def step() -> Any:
        leaves = {n: p.detach().requires_grad_() for n, p in params.items()}
        output = whole(function(leaves, x))
        gradients = torch.autograd.grad(output, list(leaves.values()), seed)
        return output.detach(), [
            g.redistribute(placements=p.placements) for g, p in zip(gradients, leaves.values())
        ]

    return step


def timed(step: Callable[[], Any]) -> float:
    dist.barrier()
    start = time.perf_counter()
    step()
    dist.barrier()
    return time.perf_counter() - start


def compared(steps: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The medians of steps that run in turns."""
    for step in steps:
        for _ in range(3):
            step()
    times: list[list[float]] = [[] for _ in steps]
    turns = list(zip(times, steps))
    for _ in range(rounds):
        for own, step in turns:
            own.append(timed(step))
        turns.reverse()
    return [statistics.median(own) for own in times]


def divided(case: Any, backend: Any) -> list[Callable[[], Any]]:
    """A step by Mithril and by hand. They give the same numbers."""
    _, make, function, shape, splits = case
    model = make()
    compiled = ml.compile(model, backend, shapes={"input": shape}, shardings=splits)
    params = compiled.randomize_params(0)
    torch.manual_seed(0)
    x = backend.shard(torch.randn(shape), tensor_split=splits.get("input", ()))
    output = compiled.evaluate(params, {"input": x})["output"]
    seed = distribute_tensor(torch.randn(output.shape), backend.device_mesh, output.placements)
    seeds = {"output": seed}
    ours = lambda: compiled.evaluate(params, {"input": x}, output_gradients=seeds)  # noqa: E731
    hand = by_hand(function, params, x, seed)
    found, wanted = ours(), hand()
    torch.testing.assert_close(found[0]["output"].full_tensor(), wanted[0].full_tensor())
    for gradient, other in zip(found[1].values(), wanted[1]):
        torch.testing.assert_close(gradient.full_tensor(), other.full_tensor())
    return [ours, hand]


WIDTH = 1024


def large(backend: Any, batch: int) -> list[float]:
    """Seconds of a step of a large model: by Mithril on one process and on two, and by PyTorch."""
    model = Sequential([block for _ in range(4) for block in (Linear(WIDTH), ml.Relu())])
    shapes = {"input": (batch, WIDTH)}
    one = ml.compile(model, ml.TorchBackend(), shapes=shapes)
    two = ml.compile(model, backend, shapes=shapes, shardings=DATA)
    x = torch.randn(batch, WIDTH)
    steps = []
    for compiled, own in ((one, x), (two, backend.shard(x, tensor_split=(0,)))):
        params = compiled.randomize_params(0)
        seed = torch.ones_like(compiled.evaluate(params, {"input": own})["output"])
        steps.append(
            lambda c=compiled, p=params, i=own, s=seed: c.evaluate(
                p, {"input": i}, output_gradients={"output": s}
            )
        )
    by_torch = data_parallel(x)
    alone = [own if dist.get_rank() == 0 else lambda: None for own in (steps[0], by_torch[0])]
    return compared([alone[0], steps[1], alone[1], by_torch[1]], 8)


def data_parallel(x: torch.Tensor) -> list[Callable[[], Any]]:
    """A step of the same model by PyTorch on one process and on two."""

    def made() -> torch.nn.Module:
        layers = [(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(4)]
        return torch.nn.Sequential(*[layer for pair in layers for layer in pair])

    def step(model: torch.nn.Module, own: torch.Tensor) -> Callable[[], Any]:
        seed = torch.ones(own.shape)

        def run() -> None:
            model.zero_grad()
            model(own).backward(seed)

        return run

    half = x.chunk(2)[dist.get_rank()].clone()
    return [step(made(), x), step(torch.nn.parallel.DistributedDataParallel(made()), half)]


def report(name: str, first: float, second: float, ratio: float, more: str = "") -> None:
    print(f"{name:32} {1e3 * first:8.2f} {1e3 * second:8.2f}   {ratio:.2f}{more}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    backend = ml.TorchBackend(device_mesh=(2,))
    assert isinstance(backend.ones(2), DTensor), "start it by torchrun, in two processes"
    slow = False
    for case in CASES:
        ours, hand = compared(divided(case, backend), ROUNDS)
        slow |= ours > 1.05 * hand
        if dist.get_rank() == 0:
            report(case[0], ours, hand, hand / ours)
    for rows in (512, 1024, 2048):
        one, two, *others = large(backend, 2 * rows)
        slow |= rows == 1024 and one < 1.6 * two
        if dist.get_rank() == 0:
            by_torch = f"   by PyTorch {others[0] / others[1]:.2f}"
            report(f"large MLP, {rows} rows a process", one, two, one / two, by_torch)
    if slow and dist.get_rank() == 0 and "--check" in sys.argv:
        sys.exit("slower than the bounds")


if __name__ == "__main__":
    main()
