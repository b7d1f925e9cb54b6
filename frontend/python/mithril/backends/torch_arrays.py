"""Arrays of PyTorch: conversions, and the parts of arrays on a device mesh."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UsageError, shown
from .base import Backend
from .foreign import shared
from .meshes import Mesh, Split

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from .._core import Program
    from .arrays import Arrays
    from .parts_of_files import Place
    from .torch_mesh import LaunchedRanks, Ranks
    from .torch_mesh_runner import MeshRunner

__all__ = ["TorchArrays", "as_numpy"]


class TorchArrays(Backend):
    """A backend whose arrays are `torch.Tensor`; on a device mesh, `DTensor`."""

    has_meshes: ClassVar[bool] = True
    ranks: Ranks | LaunchedRanks
    """The processes of the device mesh."""

    def from_numpy(self, array: NDArray[Any]) -> torch.Tensor:
        tensor = self.from_call(array)
        return tensor.to(self.device) if self.mesh is None else self.shard(tensor)

    @property
    def is_remote(self) -> bool:
        return bool(self.device.type != "cpu")

    def from_call(self, array: NDArray[Any]) -> torch.Tensor:
        """A tensor of this process, in the host's memory: indices are checked before the array is
        moved to a device, or replicated over a mesh."""
        torch = self.framework
        if not array.flags.writeable or min(array.strides, default=0) < 0:
            # PyTorch cannot share memory that is read-only or has negative strides.
            array = array.copy()
        # NumPy takes 2 µs to compute the name of a dtype, so test the kind first.
        if array.dtype.kind == "V" and array.dtype.name == "bfloat16":
            own = torch.from_numpy(array.view("int16")).view(torch.bfloat16)
        else:
            own = torch.from_numpy(array)
        return own  # type: ignore[no-any-return]

    def to_numpy(self, array: Any) -> NDArray[Any]:
        return as_numpy(array) if self.is_array(array) else self._as_numpy(array)

    def is_array(self, value: object) -> bool:
        return isinstance(value, self.framework.Tensor)

    def is_readable(self, value: object) -> bool:
        # The tensors of `torch.func` end with the function that it transforms.
        functorch = self.framework._C._functorch
        is_wrapped = self.is_array(value) and functorch.is_functorch_wrapped_tensor(value)
        return super().is_readable(value) and not is_wrapped

    def without_history(self, array: torch.Tensor) -> torch.Tensor:
        return array.detach()

    @property
    def samples(self) -> dict[str, Any]:
        # Calls also take tensors of this process, so the samples are such.
        return super().samples if self.mesh is None else type(self)(self.dtype).samples

    def cast(self, array: torch.Tensor, dtype: object) -> torch.Tensor:
        return array.to(self.own_dtype(dtype))

    def to_torch(self, array: Any) -> torch.Tensor:
        """Returns a torch tensor unchanged; converts other arrays, on the backend's device."""
        return array if self.is_array(array) else self.from_numpy(self._as_numpy(array))

    def from_torch(self, tensor: torch.Tensor) -> torch.Tensor:
        """Moves the tensor to the backend's device.

        Errors: `UsageError` if it is no torch tensor.
        """
        if not self.is_array(tensor):
            raise UsageError(
                f"`from_torch` takes a tensor of PyTorch\n  got: {shown(tensor)}"
                "\n  expected: a `torch.Tensor`\n  hint: `backend.array(x)` takes other arrays"
            )
        return tensor.to(self.device) if self.mesh is None else self.on_mesh(tensor)

    def receive(self, array: Any) -> torch.Tensor:
        if self.is_array(array):
            return array.to(self.device)  # type: ignore[no-any-return]
        own = shared(self.framework.from_dlpack, array)
        return self.to_torch(array) if own is None else own.to(self.device)

    def host_source(self, x: str, dtype: str) -> str:
        near = x if self.device.type == "cpu" else f"{x}.cpu()"
        return f"{near}.float().numpy()" if dtype == "bfloat16" else f"{near}.numpy()"

    def from_host_source(self, x: str, dtype: str) -> str:
        own = f"torch.from_numpy({x})"
        if dtype == "bfloat16":
            own += ".bfloat16()"
        return own if self.device.type == "cpu" else f'{own}.to("{self.device}")'

    def receive_source(self, x: str, dtype: str, source: Arrays) -> str | None:
        if source.kind == self.kind:
            return f'{x}.to("{self.device}")'
        # NumPy arrays of JAX are read-only, of which PyTorch warns.
        if source.kind == "jax" and self.device.type == "cpu":
            return f"torch.from_dlpack({x})"
        return super().receive_source(x, dtype, source)

    # Device meshes.

    def _framework_mesh(self, mesh: Mesh) -> Any:
        from . import torch_ranks  # noqa: PLC0415
        from .torch_mesh import ranks_for  # noqa: PLC0415

        self.ranks = ranks_for(mesh.devices)
        self.ranks.users[id(self)] = self
        return self.ranks.call(torch_ranks.make_mesh, mesh.sizes, mesh.names)

    def close(self) -> None:
        """Ends the processes that the backend started for its device mesh. Its arrays and models
        can no longer be used."""
        if self.mesh is not None:
            self.ranks.close()

    def set_seed(self, seed: int | None) -> None:
        if seed is None and self.mesh is not None:
            seed = self.ranks.shared_seed()
        super().set_seed(seed)

    def on_mesh(
        self, array: torch.Tensor, tensor_split: Mapping[str, int] | None = None
    ) -> torch.Tensor:
        """The array if it lies on the mesh; a tensor of this process, divided in this way."""
        if hasattr(array, "placements"):
            return array
        placed: torch.Tensor = self.shard(array, tensor_split=tensor_split)
        return placed

    def _divided(self, array: Any, split: Split) -> torch.Tensor:
        from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: PLC0415

        from .torch_ranks import from_part  # noqa: PLC0415

        assert self.mesh is not None
        if isinstance(array, DTensor):
            if array.device_mesh == self.device_mesh:
                places = [Replicate() if axis is None else Shard(axis) for axis in split]
                return array.redistribute(self.device_mesh, places)
            array = as_numpy(array)
        own = array.detach() if self.is_array(array) else self.from_call(array)
        parts = _parts(own, self.mesh, split)
        described = self.device_mesh, split, tuple(own.shape)
        if all(axis is None for axis in split):
            return self.ranks.call(from_part, *described, next(parts))  # type: ignore[no-any-return]
        each = [(*described, part) for part in parts]
        return self.ranks.call_each(from_part, each)  # type: ignore[no-any-return]

    def _read(self, place: Place, split: Split) -> torch.Tensor:
        from .torch_files import read_part  # noqa: PLC0415

        return self.ranks.call(read_part, self.device_mesh, split, place)  # type: ignore[no-any-return]

    def read_on_stage(self, place: Place, axis: str, at: int) -> torch.Tensor:
        from .torch_files import read_on_stage  # noqa: PLC0415

        assert self.mesh is not None
        number = self.mesh.names.index(axis)
        made = self.ranks.call(read_on_stage, self.device_mesh, number, at, place)
        param: torch.Tensor = self.as_param(made)
        return param

    def _placed_like(self, array: NDArray[Any], like: Any) -> torch.Tensor:
        made = self.from_numpy(array)
        if self.mesh is None or getattr(like, "device_mesh", None) != self.device_mesh:
            return made
        return made.redistribute(self.device_mesh, like.placements)  # type: ignore[attr-defined, no-any-return]

    def mesh_runner(self, program: Program, *, jit: bool) -> MeshRunner:
        """The object that calls a program on the mesh."""
        from .torch_mesh_runner import MeshRunner  # noqa: PLC0415

        if jit:
            raise UsageError(
                f"`torch.compile` is for models on one device\n  got: jit=True for {self!r}"
                "\n  hint: leave `jit=` out"
            )
        return MeshRunner(self, program)


def _parts(tensor: torch.Tensor, mesh: Mesh, split: Split) -> Any:
    """The part of each rank, in the order of ranks."""
    for place in itertools.product(*map(range, mesh.sizes)):
        part = tensor
        for axis, size, at in zip(split, mesh.sizes, place):
            if axis is not None:
                length = part.shape[axis] // size
                part = part.narrow(axis, at * length, length)
        # A copy, as a view is sent with all that it is a view of.
        yield part.contiguous().clone()


def as_numpy(tensor: Any) -> NDArray[Any]:
    """Converts a torch tensor to a NumPy array, without a copy where that is possible.

    Errors: `UsageError` for a sparse, quantized or meta tensor.
    """
    import torch  # noqa: PLC0415

    if hasattr(tensor, "placements"):
        tensor = _whole(tensor)
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
        kind = str(tensor.dtype if tensor.is_quantized else tensor.layout)
        made = "dequantize" if tensor.is_quantized else "to_dense"
        hint = "" if tensor.is_meta else f"\n  hint: convert it with `x.{made}()`"
        raise UsageError(
            "this tensor is not a dense array in memory"
            f"\n  got: {kind}, on the device {tensor.device}"
            f"\n  expected: a dense (strided) tensor{hint}",
            code="E0302",
        )
    tensor = tensor.detach().cpu().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes  # noqa: PLC0415

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)  # type: ignore[no-any-return]
    return tensor.numpy()  # type: ignore[no-any-return]


def _whole(tensor: Any) -> torch.Tensor:
    """A whole array of a mesh as a tensor of this process."""
    from torch.distributed.tensor import DTensor  # noqa: PLC0415

    from .torch_ranks import whole  # noqa: PLC0415

    # Arrays of the ranks that this process started send the call to them.
    found: torch.Tensor = whole(tensor) if type(tensor) is DTensor else tensor.full_tensor()
    return found
