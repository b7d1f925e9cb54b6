"""Cells, and layers that read a sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mithril import models

from .row import UNSATURATED, M, row


def cell(module: Any) -> Callable[..., Any]:
    """A cell of torch for a state of 0."""

    def function(x: Any, w: Any, u: Any, b: Any, *b_new: Any) -> Any:
        width = u.shape[0]
        zeros = torch.zeros_like(b)
        second = torch.cat([zeros[: 2 * width], *b_new]) if b_new else zeros
        own = {"weight_ih": w.T, "weight_hh": u.T, "bias_ih": b, "bias_hh": second}
        made = module(x.shape[-1], width, dtype=x.dtype)
        output = torch.func.functional_call(made, own, (x,))
        return output[0] if isinstance(output, tuple) else output

    return function


def network(module: Any) -> Callable[..., Any]:
    """A network of torch with one layer, whose params are in the order of their names."""

    def function(x: Any, b: Any, *rest: Any) -> Any:
        *b_new, u, w = rest
        width = u.shape[0]
        zeros = torch.zeros_like(b)
        second = torch.cat([zeros[: 2 * width], *b_new]) if b_new else zeros
        own = {"weight_ih": w.T, "weight_hh": u.T, "bias_ih": b, "bias_hh": second}
        made = module(x.shape[-1], width, batch_first=True, dtype=x.dtype)
        own = {f"{name}_l0": value for name, value in own.items()}
        return torch.func.functional_call(made, own, (x,))[0]

    return function


def reads(x: Any, b: Any, u: Any, w: Any) -> Any:
    """The last state of a plain cell that reads a sequence."""
    h = x.new_zeros(x.shape[0], u.shape[0])
    for part in x.unbind(1):
        h = torch.tanh(part @ w + b + h @ u)
    return h


def writes(x: Any, b: Any, u: Any, w: Any, h: Any = None) -> Any:
    """Three states of a plain cell, each of which reads the one before."""
    states = []
    for _ in range(3):
        x = h = torch.tanh(x @ w + b + (0 if h is None else h @ u))
        states.append(h)
    return torch.stack(states, 1)


ROWS = {
    "RNNCell": row(cell(torch.nn.RNNCell), M, dimension=5).but(range=UNSATURATED),
    "LSTMCell": row(cell(torch.nn.LSTMCell), M, dimension=5).but(range=UNSATURATED),
    "GRUCell": row(cell(torch.nn.GRUCell), M, dimension=5).but(range=UNSATURATED),
    "RNN": row(network(torch.nn.RNN), (2, 3, 4), dimension=5).but(range=UNSATURATED),
    "LSTM": row(network(torch.nn.LSTM), (2, 3, 4), dimension=5).but(range=UNSATURATED),
    "GRU": row(network(torch.nn.GRU), (2, 3, 4), dimension=5).but(range=UNSATURATED),
    "ManyToOne": row(reads, (2, 3, 4), cell=models.RNNCell(5)).but(range=UNSATURATED),
    "OneToMany": row(writes, (2, 4), cell=models.RNNCell(4), steps=3).but(
        kept=4, range=UNSATURATED
    ),
    # torch gives no gradient of params that no step reads.
    "EncoderDecoder": row(
        lambda x, start, *p: writes(start, *p[:3], h=reads(x, *p[3:])),
        (2, 3, 4),
        (2, 4),
        encoder=models.RNNCell(4),
        decoder=models.RNNCell(4),
        steps=3,
    ).but(kept=4, least=1, range=UNSATURATED),
}
