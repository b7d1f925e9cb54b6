"""Second derivatives of every block, as products of the Hessian with a vector, against PyTorch."""

from typing import Any

import numpy as np
import pytest
import torch
from block_cases import array, build, close, variants
from torch.nn.attention import SDPBackend, sdpa_kernel

import mithril as ml
from mithril import _core


def described(name: str, case: Any) -> Any:
    """The block, its shapes, its float arguments and results, and whether it has other inputs."""
    model, shapes = build(name, case)
    compiled = ml.compile(model, ml.NumpyBackend(dtype=ml.float64), shapes=shapes)
    arguments = compiled._program.arguments
    floats = [a.name for a in arguments if a.dtype.name.startswith("float") and a.role != "state"]
    results = [r.name for r in compiled._program.results if r.dtype.name.startswith("float")]
    return model, shapes, floats, [n for n in results if n in compiled.outputs]


def has_gradients(name: str, case: Any) -> bool:
    row = case.row
    return bool(row.function) and row.twice and all(described(name, case)[2:])


CASES = [
    pytest.param(name, case, id=f"{name}-{number}")
    for name in _core.block_names()
    for number, case in enumerate(variants(name))
    if has_gradients(name, case)
]


def order(name: str, shapes: Any, values: Any) -> list[str]:
    """The arguments of the reference: inputs, params by the table, params of nested blocks."""
    learned = (n for i in _core.block_info(name).inputs for n in values if n.endswith(f".{i}"))
    inside = (n for n in values if n.count(".") > 1 or not _core.block_info(name).inputs)
    return list(dict.fromkeys([*shapes, *learned, *inside]))


@pytest.mark.parametrize(("name", "case"), CASES)
def test_second_derivatives_are_those_of_torch(name, case):
    model, shapes, floats, outputs = described(name, case)
    whole = ml.Model()
    whole |= model(**{n: n for n in (*shapes, *model.outputs)})
    total = sum((getattr(whole, n) ** 3).sum() for n in outputs)
    whole |= ml.Buffer()(input=total, output="cost")
    # Params of the block are inside.
    within = {n: n if n in shapes else f"model.{n}" for n in floats}
    compiled = ml.compile(
        whole,
        ml.NumpyBackend(dtype=ml.float64),
        shapes=shapes,
        differentiate="cost",
        trainable_keys=list(within.values()),
    )
    rng = np.random.default_rng(0)
    alone = ml.compile(model, ml.NumpyBackend(dtype=ml.float64), shapes=shapes)
    arguments = {a.name: a for a in alone._program.arguments}
    values = {}
    for n in sorted(n for n in arguments if arguments[n].role in ("param", "data")):
        dims = tuple(int(d) for d in arguments[n].dims)
        values[n] = array(rng, name, arguments[n], dims)
    names = order(name, shapes, values)
    leaves = {n: torch.tensor(values[n], requires_grad=n in floats) for n in names}
    with sdpa_kernel(SDPBackend.MATH):
        own = case.row.function(*leaves.values())
    own = dict(zip(model.outputs, own if isinstance(own, tuple) else (own,), strict=False))
    tracked = {n: leaves[n] for n in names if n in floats}
    # Some results do not depend on all arguments.
    nothing = sum(0 * x.sum() for x in tracked.values())
    cost = sum((own[n] ** 3).sum() for n in outputs if own[n].requires_grad) + nothing
    first = torch.autograd.grad(cost, tracked.values(), create_graph=True, materialize_grads=True)
    vectors = {n: rng.standard_normal(x.shape) for n, x in tracked.items()}
    along = sum((g * torch.tensor(v)).sum() for g, v in zip(first, vectors.values(), strict=True))
    along = along + nothing
    second = torch.autograd.grad(along, tracked.values(), materialize_grads=True)
    given = {within.get(n, n): a for n, a in values.items()}
    params = {n: a for n, a in given.items() if n in compiled.params}
    inputs = {n: a for n, a in given.items() if n in compiled.inputs}
    seeds = {f"{within[n]}_gradient": v for n, v in vectors.items()}
    got, products = compiled.evaluate(params, inputs, output_gradients=seeds)[:2]
    want = {n: g.detach().numpy() for n, g in zip(tracked, first, strict=True)}
    close({n: got[f"{within[n]}_gradient"] for n in want}, want, "gradients", 1e-9)
    want = {n: g.numpy() for n, g in zip(tracked, second, strict=True)}
    close({n: products[within[n]] for n in want}, want, "second derivatives", 1e-8)
