"""Attention over a sequence that is divided among ranks: ring attention (Liu, Zaharia, Abbeel 2023,
"Ring Attention with Blockwise Transformers for Near-Infinite Context").

Each rank keeps its block of queries. Blocks of keys and values go round the ring of ranks, so no
rank holds all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["ring_attention", "ring_attention_gradient"]

Kernel = Callable[..., Any]
"""PyTorch's attention, or its gradient, on the arrays of this rank. `causal=` says whether a
query sees only the keys up to its own position."""


def ring_attention(
    kernel: Kernel, group: dist.ProcessGroup, query: Any, key: Any, value: Any, *, causal: bool
) -> tuple[Any, Any]:
    """The attention of the queries of this rank to the keys of all ranks of the group, and the
    log-sum-exp of each query's scores. The arrays are equal blocks of the sequence, in the order of
    the ranks.

    The kernel computes the softmax over one block of keys. With its log-sum-exp, this is
    the softmax over all keys up to a factor (Milakov, Gimelshein 2018).
    """
    output: Any = None
    total: Any = None
    for step, (keys, values) in _blocks(group, (key, value)):
        if _is_hidden(group, step, causal):
            continue
        part, scores = kernel(query, keys, values, causal=causal and step == 0)
        part = part.to(scores.dtype)  # f32 for f16 and bf16
        if output is None:
            output, total = part, scores
            continue
        both = torch.logaddexp(total, scores)
        output = output * _weights(total, both) + part * _weights(scores, both)
        total = both
    return output.to(query.dtype), total


def ring_attention_gradient(
    kernel: Kernel, group: dist.ProcessGroup, key: Any, value: Any, *, causal: bool
) -> tuple[Any, Any, Any]:
    """The gradients with respect to the queries, keys and values of this rank. The kernel takes
    blocks of keys and values.

    With the output and the log-sum-exp over all keys, the kernel returns the terms of the gradients
    for one block. Those of keys and values follow their block from rank to rank, which add their
    terms, until its own rank adds the last one.
    """
    wide = torch.promote_types(key.dtype, torch.float32)
    of_query: Any = None
    own: list[Any] = []
    turn: _Turn | None = None
    for step, (keys, values) in _blocks(group, (key, value)):
        terms: list[Any] = []
        if not _is_hidden(group, step, causal):
            first, *terms = (x.to(wide) for x in kernel(keys, values, causal=causal and step == 0))
            of_query = first if of_query is None else of_query + first
        if step == 0:
            own = terms
            continue
        sums = turn.wait() if turn is not None else [x.new_zeros(x.shape) for x in own]
        for total, term in zip(sums, terms):
            total.add_(term)
        turn = _Turn(group, sums, first_tag=2)
    sums = turn.wait() if turn is not None else own
    of_key, of_value = (total + term for total, term in zip(sums, own))
    return of_query.to(key.dtype), of_key.to(key.dtype), of_value.to(value.dtype)


def _weights(part: Any, total: Any) -> Any:
    """The weight of each query's part in a softmax, from log-sum-exps."""
    return torch.exp(part - total).unsqueeze(-1)


def _is_hidden(group: dist.ProcessGroup, step: int, causal: bool) -> bool:
    """Whether the block that this rank holds at this step has later keys alone. It is of the rank
    `step` places before this one, counted round the ring."""
    return causal and step > group.rank()


def _blocks(group: dist.ProcessGroup, arrays: Sequence[Any]) -> Iterator[tuple[int, Sequence[Any]]]:
    """The arrays of this rank, and then those of each other rank, with the number of the step. They
    move on while the caller computes. All ranks take all steps, as each waits for the one before
    it."""
    for step in range(group.size()):
        turn = _Turn(group, arrays) if step + 1 < group.size() else None
        yield step, arrays
        if turn is not None:
            arrays = turn.wait()


class _Turn:
    """Arrays on their way to the next rank, and those that the previous rank sends."""

    def __init__(
        self, group: dist.ProcessGroup, arrays: Sequence[Any], *, first_tag: int = 0
    ) -> None:
        size, rank = group.size(), group.rank()
        # Both are kept until they have arrived.
        self._sent = [array.contiguous() for array in arrays]
        self._received = [torch.empty_like(array) for array in self._sent]
        to, source = (rank + 1) % size, (rank - 1) % size
        self._works: list[Any] = []
        for tag, (sent, received) in enumerate(zip(self._sent, self._received), first_tag):
            self._works += [
                dist.isend(sent, group=group, group_dst=to, tag=tag),
                dist.irecv(received, group=group, group_src=source, tag=tag),
            ]

    def wait(self) -> list[Any]:
        """The arrays of the previous rank."""
        for work in self._works:
            work.wait()
        return self._received
