"""Functions that checks of meshes run on every rank of PyTorch, which import this file."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Shard


def side_by_side(array):
    """The copies of all ranks. Runs on every rank of PyTorch."""
    return DTensor.from_local(array.to_local(), array.device_mesh, [Shard(0)])


def sums_of(arrays):
    """The mean over the ranks of the sum of each array. Runs on every rank of PyTorch."""
    own = torch.stack([array.sum() / 2 for array in arrays])
    return (DTensor.from_local(own, init_device_mesh("cpu", (2,)), [Partial()]),)


def interrupt(*_):
    """Is interrupted on the first rank of PyTorch."""
    if not torch.distributed.get_rank():
        raise KeyboardInterrupt


def refuse(*_):
    """Fails on all ranks of PyTorch but the first."""
    if torch.distributed.get_rank():
        raise ValueError("this rank does not want to")
