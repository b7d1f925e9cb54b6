"""Attention of queries that are divided among ranks: ring attention (Liu, Zaharia, Abbeel 2023,
"Ring Attention with Blockwise Transformers for Near-Infinite Context"), and causal attention to
keys that each rank has.

Each rank keeps its block of queries. In a ring, blocks of keys and values go from rank to rank, so
no rank holds all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

__all__ = [
    "past_attention",
    "past_attention_gradient",
    "ring_attention",
    "ring_attention_gradient",
]

SEQUENCE = 2
"""The axis of the sequence in the operands of attention."""
Kernel = Callable[..., Any]
"""PyTorch's attention, or its gradient, on the arrays of this rank. `causal=` says whether a
query sees only the keys up to its own position, and `mask=` is what is added to its scores."""
Block = tuple[Any, Any, dict[str, Any]]
"""Keys, values, and the options of a kernel for them."""


def ring_attention(
    kernel: Kernel,
    group: dist.ProcessGroup,
    query: Any,
    key: Any,
    value: Any,
    *,
    causal: bool,
    mask: Any = None,
) -> tuple[Any, Any]:
    """The attention of the queries of this rank to the keys of all ranks of the group, and the
    log-sum-exp of each query's scores. The arrays are equal blocks of the sequence, in the order of
    the ranks. `mask` has the rows of these queries and the columns of all keys. The log-sum-exp of
    a query that sees no key is 0, as that of PyTorch's kernel."""
    blocks = (
        (keys, values, options)
        for step, (keys, values) in _blocks(group, (key, value))
        if (options := _options(group, step, causal, mask)) is not None
    )
    output, total = _over_blocks(kernel, query, blocks)
    return output, total if mask is None else torch.where(total == -torch.inf, 0.0, total)


def _options(group: dist.ProcessGroup, step: int, causal: bool, mask: Any) -> dict[str, Any] | None:
    """The options of a kernel for the block of keys that this rank holds at a step, or `None` if
    its queries see none of them. The first block is always computed."""
    if causal and step > group.rank():  # later keys alone
        return None
    if mask is None:
        return {"causal": causal and step == 0}
    if mask.shape[-1] > 1:
        # Its block is of the rank `step` places before this one, counted round the ring.
        width = mask.shape[-1] // group.size()
        mask = mask.narrow(-1, (group.rank() - step) % group.size() * width, width)
    # All ranks take part in all turns, so this may depend on elements.
    if step > 0 and bool((mask == -torch.inf).all()):
        return None
    return {"causal": False, "mask": mask}


def past_attention(kernel: Kernel, start: int, query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    """Causal attention of queries to all keys, which this rank has, and the log-sum-exp of each
    query's scores. The first query is at the position `start` of the keys."""
    stop = start + query.shape[SEQUENCE]
    own = (_part(key, start, stop), _part(value, start, stop), {"causal": True})
    past = (_part(key, 0, start), _part(value, 0, start), {"causal": False})
    return _over_blocks(kernel, query, (own, past) if start else (own,))


def past_attention_gradient(
    kernel: Kernel, start: int, length: int, key: Any, value: Any
) -> tuple[Any, Any, Any]:
    """The gradients with respect to `length` queries, and their terms of those of all keys and
    values. The kernel takes blocks of keys and values."""
    stop = start + length
    of_query, *found = kernel(_part(key, start, stop), _part(value, start, stop), causal=True)
    results = [torch.zeros_like(x) for x in (key, value)]
    for result, part in zip(results, found):
        _part(result, start, stop).copy_(part)
    if start:
        more, *found = kernel(_part(key, 0, start), _part(value, 0, start), causal=False)
        wide = torch.promote_types(of_query.dtype, torch.float32)
        of_query = (of_query.to(wide) + more).to(of_query.dtype)
        for result, part in zip(results, found):
            _part(result, 0, start).copy_(part)
    return of_query, results[0], results[1]


def _part(array: Any, start: int, stop: int) -> Any:
    return array.narrow(SEQUENCE, start, stop - start)


def _over_blocks(kernel: Kernel, query: Any, blocks: Iterable[Block]) -> tuple[Any, Any]:
    """The attention of queries to blocks of keys and values.

    The kernel computes the softmax over one block of keys. With its log-sum-exp, this is
    the softmax over all keys up to a factor (Milakov, Gimelshein 2018).
    """
    output: Any = None
    total: Any = None
    for keys, values, options in blocks:
        part, scores = kernel(query, keys, values, **options)
        part = part.to(scores.dtype)  # f32 for f16 and bf16
        if "mask" in options:
            # PyTorch's log-sum-exp of no key is 0.
            hidden = (options["mask"] == -torch.inf).all(-1)
            scores = torch.where(hidden, -torch.inf, scores)
        if output is None:
            output, total = part, scores
            continue
        both = torch.logaddexp(total, scores)
        output = output * _weights(total, both) + part * _weights(scores, both)
        total = both
    return output.to(query.dtype), total


def ring_attention_gradient(
    kernel: Kernel,
    group: dist.ProcessGroup,
    key: Any,
    value: Any,
    *,
    causal: bool,
    mask: Any = None,
) -> tuple[Any, Any, Any]:
    """The gradients with respect to the queries, keys and values of this rank. The kernel takes
    blocks of keys and values. `mask` is that of `ring_attention`.

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
        options = _options(group, step, causal, mask)
        if options is not None:
            first, *terms = (x.to(wide) for x in kernel(keys, values, **options))
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
    """The weight of each query's part in a softmax, from log-sum-exps. It is 0 where neither the
    part nor the whole has a key."""
    return torch.exp(part - torch.where(total == -torch.inf, 0.0, total)).unsqueeze(-1)


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
