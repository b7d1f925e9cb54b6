"""The function form of the block `Vmap`."""

from __future__ import annotations

import typing

from .keywords import explain_unknown_keywords

if typing.TYPE_CHECKING:
    from collections.abc import Mapping

    from ._core import Block
    from .models import Vmap


@explain_unknown_keywords(in_axes="axis", in_dims="axis", out_axes="out_axis", out_dims="out_axis")
def vmap(
    model: Block,
    axis: int | Mapping[str, int | None] = 0,
    *,
    out_axis: int = 0,
    params: bool = False,
) -> Vmap:
    """Return a block that computes `model` for all indices of a batch axis at once.

    `axis` is the axis of the batch in the inputs; a dict gives it by input, and None for an input
    that is the same for the whole batch. Outputs have it at `out_axis`. With `params`, each index
    has its own params: they have one more axis in front, and so do their gradients.

    Raises `MithrilError` if `axis` names an input that the model does not have, or gives an axis to
    none, and `UsageError` for an unknown keyword.
    """
    from .models import Vmap  # noqa: PLC0415

    return Vmap(model, axis=axis, out_axis=out_axis, params=params)
