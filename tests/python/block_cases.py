"""Builds, feeds and compares the blocks of `cases`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import torch
from cases import ROWS
from cases.row import M, Row

from mithril import _core, models

ALL_SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (), (0, 4), (2, 1, 5))


@dataclass
class Case:
    """The settings and inputs of a block, where they differ from the defaults."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # Dtypes of terminals (`*` for all) that differ from what the block declares.
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    row: Row = field(default=Row(), repr=False)


def variants(name: str) -> list[Case]:
    """The cases of a block, whose first one is that of its row."""
    return [case for row in (ROWS[name], *ROWS[name].also) for case in cases_of(name, row)]


def cases_of(name: str, row: Row) -> list[Case]:
    """The case of a row, or each shape that an elementwise block takes."""
    info = _core.block_info(name)
    terminals = [i for i in info.inputs if not i.endswith("=")]
    if row.shapes is not None:
        settings, shapes, dtypes = row.settings, row.shapes, row.dtypes
        if not info.inputs:
            terminals = getattr(models, name)(**settings).inputs
        else:
            present = list(getattr(models, name)(**settings).inputs)
            terminals = [t for t in terminals if t in present]
            terminals = [*terminals[: len(shapes) - len(row.optional)], *row.optional]
        if terminals == ["inputs"]:
            return [Case(settings, {"inputs": shapes}, dtypes, row)]
        return [Case(settings, dict(zip(terminals, shapes, strict=False)), dtypes, row)]
    shapes = ALL_SHAPES if info.group in ("Elementwise", "Binary") else (M,)
    cases = [Case({}, dict.fromkeys(terminals, shape), row=row) for shape in shapes]
    if info.group == "Binary":
        mixed = dict(zip(terminals, [(3, 1), (4,), (2, 3, 4)], strict=False))
        cases.append(Case({}, mixed, row=row))
    return cases


def build(name: str, case: Case) -> tuple[Any, dict[str, Any]]:
    """A model of the block with the block's terminals as inputs, and their shapes."""
    block = getattr(models, name)(**case.settings)
    shapes = dict(case.shapes)
    if "inputs" in shapes:
        given = {f"input_{i}": shape for i, shape in enumerate(shapes.pop("inputs"))}
        block = block(inputs=list(given))
        shapes = given
    if case.row.optional:
        block = block(**{n: n for n in case.row.optional})
    if ROWS[name].several:
        block = block(**{n: n for n in block.outputs})
    model = models.Model()
    model |= block
    if case.dtypes:
        given = {n: case.dtypes.get(n, case.dtypes.get("*")) for n in shapes}
        model.set_types({n: dtype for n, dtype in given.items() if dtype})
    return model, shapes


def array(rng: np.random.Generator, name: str, argument: Any, shape: Any, most: int = 3) -> Any:
    """Random numbers at which every function is smooth; labels below `most` for integers."""
    row, dtype = ROWS[name], argument.dtype.name
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        return np.array(rng.integers(0, row.labels or most, shape), dtype)
    numbers = rng.uniform(*row.range, shape)
    if row.is_symmetric(argument.name):
        numbers = (numbers + np.swapaxes(numbers, -1, -2)) / max(4 * shape[-1], 1)
        # Distinct eigenvalues, if these are the result.
        own = np.arange(1, shape[-1] + 1) if name.startswith("Eig") else np.ones(shape[-1])
        numbers += np.diag(own)
    return numbers.astype(getattr(ml_dtypes, dtype, dtype))


def close(got: Any, expected: Any, what: str, tolerance: float, step: float = 0) -> None:
    """Compares within `tolerance` of the largest value of all, or within `step`, a subnormal
    number. A gradient that cancels is only as exact as the values it is computed from."""
    assert set(got) == set(expected), what
    finite = {n: np.isfinite(v) if v.dtype.kind == "f" else None for n, v in expected.items()}
    sizes = (
        np.abs(v[finite[n]]).max(initial=0) for n, v in expected.items() if v.dtype.kind == "f"
    )
    scale = max(sizes, default=0)
    for name, want in expected.items():
        assert got[name].shape == want.shape, f"{what} {name}"
        known = finite[name]
        if known is None:
            np.testing.assert_array_equal(got[name], want, f"{what} {name}")
        elif want.size:
            np.testing.assert_array_equal(got[name][~known], want[~known], f"{what} {name}")
            error = np.abs(got[name][known] - want[known]).max(initial=0)
            assert error <= max(tolerance * scale, step), f"{what} {name}: {error} of {scale}"


def by_another(name: str, case: Case, outputs: Any, values: Any, weights: Any) -> Any:
    """Outputs and gradients of another library's function; gradients are torch's autograd."""
    learned = (n for i in _core.block_info(name).inputs for n in values if n.endswith(f".{i}"))
    # Params of nested blocks come last, in the order of their names.
    # Those of a block around another one have the names of that one.
    inside = (n for n in values if n.count(".") > 1 or not _core.block_info(name).inputs)
    order = list(dict.fromkeys([*build(name, case)[1], *learned, *inside]))
    floats = [n for n in order if values[n].dtype.kind == "f" and weights]
    leaves = {n: torch.tensor(values[n], requires_grad=n in floats) for n in order}
    assert case.row.function is not None, name
    own = case.row.function(*leaves.values())
    own = dict(zip(outputs, own if isinstance(own, tuple) else (own,), strict=True))
    smooth = [n for n in weights if own[n].requires_grad]
    if smooth:
        seeds = [torch.tensor(weights[n]) for n in smooth]
        torch.autograd.backward([own[n] for n in smooth], seeds)
    gradients = {n: leaves[n].grad for n in floats if leaves[n].grad is not None}
    plain = {n: y.detach().numpy() for n, y in own.items()}
    return plain, {n: g.numpy() for n, g in gradients.items()}
