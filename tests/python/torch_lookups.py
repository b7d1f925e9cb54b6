"""Checks of lookups in tables on meshes of PyTorch."""

import pytest
import torch
from mesh_models import close

import mithril as ml
from mithril.models import Embedding

# How a mesh of 2 x 2 divides a table of 8 rows and the numbers of rows that are looked up.
LOOKUPS = [
    ((0, None), ()),
    ((None, 0), (0, 1)),
    ((0, 0), (None, 0)),
    ((0, 1), (0, None)),
    ((1, None), (0, 1)),
    ((1, 0), ()),
    ((), (0, 0)),
    ((0, None), (0, None)),
]


def check_lookups():
    """`table[rows]` and its gradients, divided in many ways, with rows counted from the end."""
    many = ml.TorchBackend(precision=64, device_mesh=(2, 2))
    draw = torch.Generator().manual_seed(0)
    table = torch.randn((8, 6), generator=draw, dtype=torch.float64)
    for shape in ((4, 4), (4, 2, 256)):  # in the second case, the table is gathered
        rows = torch.randint(-8, 8, shape, generator=draw)
        seed = torch.randn((*shape, 6), generator=draw, dtype=torch.float64)
        want = differentiated_lookup(table, rows, seed)
        for of_table, of_rows in LOOKUPS:
            parts = (
                many.shard(x, tensor_split=split)
                for x, split in ((table, of_table), (rows, of_rows), (seed, of_rows))
            )
            got = differentiated_lookup(*parts)
            for one, other in zip(want, got):
                torch.testing.assert_close(other.full_tensor(), one, rtol=0, atol=1e-12)
            assert got[1].placements == many.shard(table, tensor_split=of_table).placements
    params = {"embedding.w": many.shard(table, tensor_split=(0,))}
    # Two readers of what is looked up, the second of which needs the sum.
    both = ml.Model()
    both |= Embedding(8, 6)(input="input", output=ml.IOKey("rows"))
    both |= ml.Relu()(input=both.rows, output=ml.IOKey("positive"))
    one = ml.TorchBackend(precision=64)
    rows = torch.randint(0, 8, (4, 4), generator=draw)
    results = [
        ml.compile(both, b, shapes={"input": [4, 4]}).evaluate({"embedding.w": w}, {"input": x})
        for b, w, x in ((one, table, rows), (many, params["embedding.w"], many.shard(rows)))
    ]
    for name, value in results[0].items():
        close(many.to_numpy(results[1][name]), one.to_numpy(value), 1e-12)
    # An error of all ranks, and one of some ranks alone.
    wrong = many.shard(torch.tensor([[0, 1], [8, 2]]), tensor_split=(0,))
    model = ml.compile(Embedding(8, 6), many, shapes={"input": [2, 2]})
    for split, kind in (((0,), IndexError), ((None, 0), ml.BackendError)):
        with pytest.raises(kind, match="index 8 is out of bounds for dimension 0 with size 8"):
            params = {"w": many.shard(table, tensor_split=split)}
            many.to_numpy(model.evaluate(params, {"input": wrong})["output"])


def differentiated_lookup(table, rows, seed):
    """What is looked up, and the gradient of the table."""
    leaf = table.detach().requires_grad_()
    result = leaf[rows]
    result.backward(seed)
    return result.detach(), leaf.grad
