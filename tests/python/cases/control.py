"""Blocks around other blocks."""

from __future__ import annotations

from typing import Any

import torch

from mithril import models

from .row import M, row


def grown(x: Any) -> Any:
    steps = 0
    while x < 3.0 and steps < 12:
        x, steps = x * 1.5, steps + 1
    return x


ROWS = {
    "Sequential": row(
        lambda x: torch.sigmoid(torch.relu(x)), M, blocks=[models.Relu(), models.Sigmoid()]
    ),
    "Residual": row(lambda x: x + torch.tanh(x), M, block=models.Tanh()),
    "Scan": row(
        lambda first, x: first * x.prod(0),
        (3, 4),
        (2, 3, 4),
        body=models.Multiply(),
        carry={"left": "output"},
    ).but(axes=(1,), front={"left": (3, 4), "right": (3, 2, 4)}),
    "Map": row(lambda x, y: x * y[:, None], (2, 3, 4), (2, 4), body=models.Multiply()).but(
        axes=(1,), front={"left": (3, 2, 4), "right": (3, 2, 4)}
    ),
    "Vmap": row(
        lambda x, y: x.transpose(0, 1) * y.T[:, None],
        (3, 2, 4),
        (4, 2),
        body=models.Multiply(),
        axis={"left": 1, "right": 1},
    ).but(axes=(0, 1), front={"left": (3, 2, 4), "right": (3, 2, 4)}),
    "While": row(
        grown,
        (),
        condition=models.Less()(left="x", right=3.0, output="running"),
        body=models.Multiply()(left="x", right=1.5, output="next_x"),
        carry={"x": "next_x"},
        max_steps=12,
    ),
    "Cond": row(
        lambda condition, x: torch.where(condition, x * x, -x),
        (),
        M,
        then=models.Square(),
        otherwise=models.Negate(),
    ),
}
