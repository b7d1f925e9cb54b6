"""Blocks that move, choose or create elements."""

from __future__ import annotations

from typing import Any

import torch

from .row import M, V, row

F = torch.nn.functional


def least(x: Any) -> Any:
    """The five smallest distinct elements, padded with the smallest one."""
    values, places = torch.sort(x.flatten(), stable=True)
    first = torch.ones_like(values, dtype=torch.bool)
    first[1:] = values[1:] != values[:-1]
    own = x.flatten()[places[first]][:5]
    return torch.cat([own, own[:1].expand(5 - len(own))])


ROWS = {
    "Reshape": row(lambda x: torch.reshape(x, (2, -1)), M, shape=(2, -1)).but(kept=4),
    "Flatten": row(torch.flatten),
    "Transpose": row(torch.t),
    "SwapAxes": row(lambda x: torch.swapaxes(x, 0, -1), (2, 3, 4), first=0, second=-1),
    "PermuteTensor": row(lambda x: torch.permute(x, (2, 0, 1)), (2, 3, 4), permutation=(2, 0, 1)),
    "Squeeze": row(lambda x: torch.squeeze(x, 1), (3, 1, 4), axis=1).but(axes=(1,)),
    "ExpandDims": row(lambda x: torch.unsqueeze(x, 1), M, axis=1).but(axes=(1, (0, 2))),
    "BroadcastTo": row(lambda x: torch.broadcast_to(x, (3, 4)), V, shape=(3, 4)).but(kept=4),
    "Concat": row(lambda *xs: torch.cat(xs, -1), M, M),
    "Stack": row(lambda *xs: torch.stack(xs), M, M),
    "Split": row(lambda x: torch.chunk(x, 2, -1), M, n=2, axis=-1).but(kept=4, axes=(1,)),
    "Pad": row(lambda x: F.pad(x, (0, 1, 1, 2)), M, pad_width=((1, 2), (0, 1))),
    "Tile": row(lambda x: torch.tile(x, (2, 3)), M, reps=(2, 3)),
    "Repeat": row(lambda x: torch.repeat_interleave(x, 2, 1), M, repeats=2, axis=1),
    "Flip": row(lambda x: torch.flip(x, (1,)), M, axis=1),
    "Roll": row(lambda x: torch.roll(x, 1, -1), M, shift=1, axis=-1),
    "Slice": row(lambda x: x[1:], M, start=1),
    "Indexer": row(lambda x: torch.select(x, 0, 1), M, index=1),
    "Gather": row(lambda x, i: torch.index_select(x, 0, i), M, (5,)).but(axes=(0, 1)),
    "Scatter": row(lambda x, i, y: torch.index_add(x, 0, i, y), M, (3,), (3, 4)).but(axes=(0,)),
    "Sort": row(lambda x: torch.sort(x, stable=True).values),
    "ArgSort": row(lambda x: torch.argsort(x, stable=True)),
    "TopK": row(
        lambda x: torch.sort(x, descending=True, stable=True).values.narrow(-1, 0, 2), M, k=2
    ),
    "Unique": row(least, M, size=5),
    "OneHot": row(lambda x: F.one_hot(x, 4).double(), V, classes=4),
    "Tril": row(torch.tril),
    "Triu": row(torch.triu),
    "Diagonal": row(torch.diagonal),
    "Shape": row(lambda x: torch.tensor(x.shape)),
    "Size": row(lambda x: torch.tensor(x.numel())).but(axes=(0,)),
    "Length": row(lambda x: torch.tensor(len(x))),
    "TakeAlongAxis": row(lambda x, i: torch.take_along_dim(x, i, 0), M, (2, 4)).but(axes=(0,)),
    "ScatterReduce": row(
        lambda x, i, y: torch.scatter_reduce(x, 0, i, y, "sum"), M, (2, 4), (2, 4)
    ).but(axes=(0,)),
    "Arange": row(lambda: torch.arange(5), stop=5),
    "Linspace": row(
        lambda: torch.linspace(0, 1, 5, dtype=torch.float64), start=0.0, stop=1.0, num=5
    ),
    "Eye": row(lambda: torch.eye(3, dtype=torch.float64), n=3),
    "Ones": row(lambda: torch.ones(2, 3, dtype=torch.float64), shape=(2, 3)),
    "Zeros": row(lambda: torch.zeros(2, 3, dtype=torch.float64), shape=(2, 3)),
    "Full": row(lambda: torch.full((2, 3), 1.5, dtype=torch.float64), shape=(2, 3), value=1.5),
    "ZerosLike": row(torch.zeros_like),
    "OnesLike": row(torch.ones_like),
}
