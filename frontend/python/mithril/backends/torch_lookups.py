"""Lookups of rows in tables of a PyTorch mesh, such as embeddings."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from .torch_parts import Places, as_dtensor

__all__ = ["is_lookup", "looked_up"]

INTEGERS = frozenset({torch.int64, torch.int32})


def is_lookup(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether this call reads rows of a table by numbers, and one of both is divided."""
    if func is not torch.Tensor.__getitem__ or len(args) != 2:
        return False
    table, rows = args
    if not isinstance(table, DTensor) or not isinstance(rows, torch.Tensor):
        return False
    if rows.dtype not in INTEGERS or table.ndim == 0:
        return False
    of_rows = rows.placements if isinstance(rows, DTensor) else ()
    return any(isinstance(place, Shard) for place in (*table.placements, *of_rows))


def looked_up(table: DTensor, rows: Any) -> DTensor:
    """`table[rows]`. DTensor gathers the table, or the gradient of the result, where less has to be
    sent.

    Along a mesh axis that divides the rows of the table, each rank looks up those that it has, and
    the result is a sum that is still to be reduced. Where the mesh axis divides `rows` as well, the
    smaller of both is gathered, as plans count it.
    """
    mesh = table.device_mesh
    if not isinstance(rows, DTensor):
        rows = as_dtensor(rows, mesh, [Replicate()] * mesh.ndim)
    of_table, of_rows, of_result, of_gradient = _division(table, rows)
    # Without a redistribution, the gradient is reduced in a bucket.
    if of_table != list(table.placements):
        table = table.redistribute(mesh, of_table)
    local = table.to_local(grad_placements=of_gradient)
    numbers = _checked(rows.redistribute(mesh, of_rows).to_local(), table.shape[0])
    parts = [(axis, mesh.size(axis)) for axis, own in enumerate(of_table) if own == Shard(0)]
    if parts:
        first = 0
        for axis, size in parts:
            first = first * size + mesh.get_local_rank(axis)
        count = local.shape[0]
        numbers = numbers - first * count
        is_here = (numbers >= 0) & (numbers < count)
        found = local[torch.where(is_here, numbers, 0)]
        is_here = is_here.reshape(*is_here.shape, *(1,) * (found.ndim - is_here.ndim))
        found = torch.where(is_here, found, 0)
    else:
        found = local[numbers]
    result = as_dtensor(found, mesh, of_result)
    # Sums over ranks that divide `rows` become parts of the result, which is divided as they are.
    ends = [
        Shard(place.dim) if isinstance(own, Partial) and isinstance(place, Shard) else own
        for own, place in zip(of_result, rows.placements)
    ]
    return result if ends == of_result else result.redistribute(mesh, ends)


def _division(table: DTensor, rows: DTensor) -> tuple[Places, Places, Places, Places]:
    """How the lookup divides the table and the numbers of rows, and then the result and the
    gradient of the table."""
    mesh = table.device_mesh
    of_table, of_rows = _even(table), _even(rows)
    for axis, (own, place) in enumerate(zip(of_table, of_rows)):
        if isinstance(own, Shard) and isinstance(place, Shard):
            # Either one is gathered along this axis.
            numbers, row = rows.numel(), table.numel() // max(table.shape[0], 1)
            result = numbers * row * table.element_size()
            whole = table.numel() * table.element_size()
            for other, size in enumerate(mesh.shape):
                if other != axis:
                    whole //= size if isinstance(of_table[other], Shard) else 1
                    is_part = isinstance(of_rows[other], Shard)
                    result //= size if is_part else 1
                    numbers //= size if is_part else 1
            if own.dim > 0 or whole <= result + numbers * rows.element_size():
                of_table[axis] = Replicate()
            else:
                of_rows[axis] = Replicate()
    of_result: Places = []
    of_gradient: Places = []
    for own, place in zip(of_table, of_rows):
        if isinstance(own, Shard):
            of_result.append(Partial() if own.dim == 0 else Shard(rows.ndim + own.dim - 1))
            of_gradient.append(own)
        else:
            of_result.append(place)
            of_gradient.append(Partial() if isinstance(place, Shard) else own)
    return of_table, of_rows, of_result, of_gradient


def _even(array: DTensor) -> Places:
    """The placements of an array, without those that divide an axis into unequal parts."""
    parts: dict[int, int] = {}
    for size, place in zip(array.device_mesh.shape, array.placements):
        if isinstance(place, Shard):
            parts[place.dim] = parts.get(place.dim, 1) * size
    uneven = {axis for axis, size in parts.items() if array.shape[axis] % size}
    return [
        place if type(place) is Shard and place.dim not in uneven else Replicate()
        for place in array.placements
    ]


def _checked(numbers: torch.Tensor, count: int) -> torch.Tensor:
    """The numbers of rows, counted from the first one. Errors: a table without one of them."""
    numbers = torch.where(numbers < 0, numbers + count, numbers)
    is_wrong = (numbers < 0) | (numbers >= count)
    if bool(is_wrong.any()):
        first = int(numbers[is_wrong].flatten()[0])
        raise IndexError(f"index {first} is out of bounds for dimension 0 with size {count}")
    return numbers
