"""The stages of a pipeline on a JAX mesh, as each device sees them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from ..stage_types import PipelineCode
from .jax_layout import Layout
from .jax_stages import JaxStage

__all__ = ["StagedMesh"]


class StagedMesh:
    """A mesh whose axis `axis` has the ranks of a pipeline. The other axes are `data`."""

    def __init__(self, mesh: Any, code: PipelineCode) -> None:
        self.mesh, self.code = mesh, code
        self.axis = mesh.axis_names[code.axis]
        self.data = tuple(name for name in mesh.axis_names if name != self.axis)
        self.ranks = mesh.shape[self.axis]
        self.replicas = mesh.size // self.ranks
        self.stages = [JaxStage(own, code.types) for own in code.stages]
        self.layout = Layout(code, self.ranks)

    def place(self) -> Any:
        """The place of this device along the axis of the stages."""
        return lax.axis_index(self.axis)

    def of_rank(self, rank: int, array: Any) -> Any:
        """An array of one rank on all of them, in a function that runs on each device."""
        is_here = self.place() == rank
        if array.dtype == jnp.bool_:
            return lax.pmax(jnp.where(is_here, array, False), self.axis)
        return lax.psum(jnp.where(is_here, array, 0), self.axis)
