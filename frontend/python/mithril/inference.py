"""Derives the options of an inference model from those of a training model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import mapping

if TYPE_CHECKING:
    from . import _core
    from .backends.base import Backend

__all__ = ["inference_map", "inference_options"]

Options = dict[str, Any]


def inference_options(
    model: _core.Snapshot, options: Options, shapes: Mapping[str, Any] | None
) -> Options:
    """The options for the model without its losses. Names of terminals that only losses have are
    dropped. `shapes` overrides the shapes of inputs."""
    block = model.plain.block
    inputs, outputs = set(block.inputs), set(block.outputs)
    own: Options = {**options, "inference": True, "differentiate": None, "memory_budget": None}
    for keyword in ("shapes", "dtypes", "constant_keys"):
        own[keyword] = {name: value for name, value in options[keyword].items() if name in inputs}
    for keyword in ("trainable_keys", "data_keys"):
        own[keyword] = [name for name in options[keyword] if name in inputs]
    own["shapes"] |= mapping(shapes, "shapes", "shapes by name")
    discarded = [name for name in options["discard_keys"] if name in outputs]
    # Training may discard all outputs of the inference model; then discard none.
    own["discard_keys"] = [] if outputs.issubset(discarded) else discarded
    inside = set(model.plain.names)
    own["keep"] = [path for path in options["keep"] if path.partition(".")[0] in inside]
    return own


def inference_map(model: _core.Snapshot, backend_map: Mapping[str, Backend]) -> dict[str, Backend]:
    """The backends without those of blocks that only losses have."""
    inside = set(model.plain.names)
    gone = {path.partition(".")[0] for path in backend_map}.intersection(model.names) - inside
    return {path: own for path, own in backend_map.items() if path.partition(".")[0] not in gone}
