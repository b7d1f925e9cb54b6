"""Checks of attention over a divided sequence on meshes of PyTorch. `test_torch_meshes.py` runs
them in a process of their own, which starts the other ranks:
`python torch_ring_checks.py NAME...`."""

from functools import partial

import torch
import torch.nn.functional as F
from check_runs import run_checks
from ring_models import BATCH, LAYERS, LENGTH, MASKED, MODELS, WIDTH, compare, compare_results
from torch.distributed.tensor import DTensor, Shard
from torch.utils._python_dispatch import TorchDispatchMode

import mithril as ml


class Watch(TorchDispatchMode):
    """What this rank sends, and the lengths of the keys that its kernels read."""

    def __init__(self):
        super().__init__()
        self.sent = 0
        """The bytes that go to another rank alone."""
        self.gathered = []
        """The shapes of what is gathered from all ranks."""
        self.lengths = set()
        self.kernels = 0
        """The number of kernels."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(own, DTensor) for own in types):
            return NotImplemented  # to see what DTensor calls for it
        name = str(func)
        if name.startswith("c10d.send"):
            self.sent += args[0][0].nbytes
        if "all_gather" in name or "allgather" in name:
            self.gathered.append(tuple(args[0].shape))
        if "flash_attention" in name:
            self.kernels += 1
            self.lengths.add(args[2 if "backward" in name else 1].shape[2])
        return func(*args, **(kwargs or {}))


def check_model(name):
    """Results are those of one device, and no rank holds all keys."""

    def look(compiled, params, inputs, seeds):
        with Watch() as watch:
            compiled.evaluate(params, inputs, output_gradients=seeds)
        mesh = compiled.backend.mesh
        ranks = mesh.sizes[-1]
        assert watch.lengths == {LENGTH // ranks}
        # Whole heads are (batch, heads, sequence, features).
        assert not [shape for shape in watch.gathered if len(shape) == 4]
        part = BATCH * LENGTH * WIDTH * seeds["output"].element_size() // mesh.devices
        # Keys and values go round forward and backward, and their gradients once. Where Mithril
        # computes the gradients, it may compute the log-sum-exp again.
        turns = watch.sent / (LAYERS[name] * (ranks - 1) * part)
        # Where two heads share a key, autograd sends it once.
        is_shared = name == "grouped" and not compiled._options["own_gradients"]
        assert turns in ((3,) if is_shared else (6, 8)), turns

    # Gradients of masked attention that Mithril computes gather the keys.
    more = () if name in MASKED else ({"autodiff": "mithril"},)
    compare(ml.TorchBackend, name, look, *more, closed=ml.TorchBackend.close)


# Shapes of queries and keys (batch, heads, length, width), how a mesh of 2 x 2 divides them, the
# options of the call, and the lengths of the keys that a kernel reads.
WHOLE, ROWS, HEADS, SEQUENCE = None, 0, 1, 2
CALLS = {
    "a sequence": ((8, 8), ((WHOLE, SEQUENCE),) * 3, {}, 4),
    "causal": ((8, 8), ((WHOLE, SEQUENCE),) * 3, {"is_causal": True}, 4),
    "batch and sequence": ((8, 8), ((ROWS, SEQUENCE),) * 3, {"is_causal": True}, 4),
    "sequence and heads": ((8, 8), ((SEQUENCE, HEADS),) * 3, {"is_causal": True, "scale": 0.3}, 4),
    "other keys": ((8, 12), ((ROWS, SEQUENCE),) * 3, {}, 6),
    "whole values": ((8, 8), ((WHOLE, SEQUENCE), (WHOLE, SEQUENCE), ()), {}, 4),
    "keys divided otherwise": ((8, 8), ((ROWS, SEQUENCE), (SEQUENCE, WHOLE), ()), {}, 4),
    "whole keys": ((8, 12), ((ROWS, SEQUENCE), (), ()), {}, 12),
    "whole keys, causal": ((8, 8), ((ROWS, SEQUENCE), (), ()), {"is_causal": True}, 4),
    # The mesh axis that comes first keeps its parts.
    "two axes": ((8, 8), ((SEQUENCE, SEQUENCE),) * 3, {"is_causal": True}, 4),
    # All keys are gathered.
    "whole queries": ((8, 8), ((), (WHOLE, SEQUENCE), (WHOLE, SEQUENCE)), {}, 8),
    "causal, other keys": ((8, 12), ((WHOLE, SEQUENCE),) * 3, {"is_causal": True}, 12),
    "uneven keys": ((8, 7), ((WHOLE, SEQUENCE), (), ()), {}, 7),
    # The rows of a mask follow the queries, and its columns the keys.
    "a mask": ((8, 8), ((WHOLE, SEQUENCE),) * 3, {"attn_mask": "bool"}, 4),
    "a mask of other keys": ((8, 12), ((ROWS, SEQUENCE),) * 3, {"attn_mask": "bool"}, 6),
    "a mask, whole keys": ((8, 12), ((ROWS, SEQUENCE), (), ()), {"attn_mask": "bool"}, 12),
    "a mask, uneven keys": ((8, 7), ((WHOLE, SEQUENCE), (), ()), {"attn_mask": "bool"}, 7),
    "a mask of each batch and head": (
        (8, 8),
        ((ROWS, SEQUENCE),) * 3,
        {"attn_mask": "scores", "scale": 0.3},
        4,
    ),
    "a mask of heads": ((8, 8), ((SEQUENCE, HEADS),) * 3, {"attn_mask": "linear biases"}, 4),
    "a mask of keys": ((8, 8), ((ROWS, SEQUENCE),) * 3, {"attn_mask": "padding"}, 4),
    "a window": ((8, 8), ((WHOLE, SEQUENCE),) * 3, {"attn_mask": "window"}, 4),
    "hidden queries": ((8, 8), ((WHOLE, SEQUENCE),) * 3, {"attn_mask": "hidden"}, 4),
}


def mask_of(kind, lengths, draw):
    """A mask of 2 batches and 4 heads, which may lack these axes."""
    rows, columns = (torch.arange(own) for own in lengths)
    after = columns - rows[:, None]
    if kind == "bool":
        return torch.rand(lengths, generator=draw) > 0.2
    if kind == "scores":
        return torch.randn((2, 4, *lengths), generator=draw, dtype=torch.float64)
    if kind == "linear biases":  # ALiBi (Press, Smith, Lewis 2022), causal
        slopes = 0.5 ** torch.arange(1, 5, dtype=torch.float64).reshape(1, 4, 1, 1)
        return torch.where(after > 0, -torch.inf, slopes * after)
    if kind == "padding":
        return (columns < torch.tensor([lengths[1], 3])[:, None])[:, None, None]
    if kind == "window":
        return (after <= 0) & (after > -3)
    # Some queries see no key, and others none of their own block.
    return (after > 4) | (rows == 5)[:, None] & (columns == 1)


def check_calls():
    """`F.scaled_dot_product_attention` and its gradients, divided in many ways."""
    many = ml.TorchBackend(precision=64, device_mesh=(2, 2))
    draw = torch.Generator().manual_seed(0)
    for name, (lengths, splits, given, length) in CALLS.items():
        shapes = [(2, 4, own, 6) for own in (lengths[0], lengths[1], lengths[1])]
        whole = [torch.randn(own, generator=draw, dtype=torch.float64) for own in shapes]
        seed = torch.randn(shapes[0], generator=draw, dtype=torch.float64)
        mask = given.get("attn_mask")
        options = {**given, "attn_mask": mask_of(mask, lengths, draw)} if mask else given
        parts = [many.shard(x, tensor_split=split) for x, split in zip(whole, splits)]
        want, *_ = differentiated(whole, seed, options)
        got, output, watch = differentiated(
            parts, many.shard(seed, tensor_split=splits[0]), options
        )
        for one, other in zip(want, got):
            torch.testing.assert_close(other.full_tensor(), one, rtol=0, atol=1e-12, msg=name)
        assert watch.lengths == {length}, (name, watch.lengths)
        assert not (name.startswith("whole keys") and watch.sent), name
        if length < lengths[1]:
            assert Shard(2) in output.placements, name


def differentiated(arrays, seed, options):
    """The output and the gradients, the output, and what was sent."""
    arrays = [x.detach().requires_grad_() for x in arrays]
    with Watch() as watch:
        output = F.scaled_dot_product_attention(*arrays, **options)
        output.backward(seed)
    return [output.detach(), *(x.grad for x in arrays)], output, watch


def check_dtypes():
    """Terms of f16 and bf16 are added up in f32: the error is about that of one device."""
    many = ml.TorchBackend(device_mesh=(4,))
    draw = torch.Generator().manual_seed(0)
    whole = [torch.randn((1, 2, 64, 8), generator=draw) for _ in range(4)]
    exact, *_ = differentiated(whole[:3], whole[3], {"is_causal": True})
    for dtype in (torch.float16, torch.bfloat16):
        halves = [x.to(dtype) for x in whole]
        one, *_ = differentiated(halves[:3], halves[3], {"is_causal": True})
        parts = [many.shard(x, tensor_split=(2,)) for x in halves]
        got, *_ = differentiated(parts[:3], parts[3], {"is_causal": True})
        for want, single, divided in zip(exact, one, got):
            ring = divided.full_tensor()
            assert ring.dtype == dtype
            errors = [(x.float() - want).abs().max() for x in (ring, single)]
            assert errors[0] <= 3 * errors[1], (dtype, errors)


def check_context():
    """Attention of a divided sequence to another one, which is divided or not."""
    one, many = (ml.TorchBackend(precision=64, device_mesh=mesh) for mesh in (None, (2,)))
    model = ml.Model()
    model |= ml.MultiHeadAttention(4)(input="input", context="context", output=ml.IOKey("output"))
    shapes = {"input": [2, 8, 8], "context": [2, 12, 8]}
    single, divided = (ml.compile(model, b, shapes=shapes) for b in (one, many))
    params, own = single.randomize_params(1), divided.randomize_params(1)
    whole = {name: one.randn(*shape) for name, shape in shapes.items()}
    seeds = {"output": one.randn(*shapes["input"])}
    want = single.evaluate(params, whole, output_gradients=seeds)
    for split in ((1,), ()):
        parts = {
            "input": many.shard(whole["input"], tensor_split=(1,)),
            "context": many.shard(whole["context"], tensor_split=split),
        }
        got = divided.evaluate(own, parts, output_gradients=seeds)
        compare_results(one, many, want, got, 1e-12)


def check_masks():
    """Masks that are divided, and blocks of keys that a mask hides: they are passed on, but not
    computed with."""
    many = ml.TorchBackend(precision=64, device_mesh=(4,))
    draw = torch.Generator().manual_seed(0)
    *whole, seed = (torch.randn((2, 4, 16, 6), generator=draw, dtype=torch.float64) for _ in "qkvg")
    parts, seeds = ([many.shard(x, tensor_split=(2,)) for x in own] for own in (whole, [seed]))
    for kind in ("bool", "scores", "linear biases", "padding", "window", "hidden"):
        mask = mask_of(kind, (16, 16), draw)
        want, *_ = differentiated(whole, seed, {"attn_mask": mask})
        splits = [(), *((axis,) for axis in range(mask.ndim) if mask.shape[axis] % 4 == 0)]
        for split in splits:
            options = {"attn_mask": many.shard(mask, tensor_split=split)}
            got, _, watch = differentiated(parts, *seeds, options)
            for one, other in zip(want, got):
                torch.testing.assert_close(other.full_tensor(), one, rtol=0, atol=1e-12)
            assert watch.lengths == {4}
            # Of a window, this rank sees its own block alone. Its keys are the first ones.
            steps = {"window": 1, "linear biases": 1, "hidden": 4}.get(kind, 4)
            assert watch.kernels == 2 * steps, (kind, watch.kernels)


CHECKS = {
    "calls": check_calls,
    "masks": check_masks,
    "dtypes": check_dtypes,
    "context": check_context,
}

if __name__ == "__main__":
    run_checks({**CHECKS, **{name: partial(check_model, name) for name in MODELS}})
