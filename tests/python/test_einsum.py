"""`Einsum` with `...`, and `Concat` of flattened inputs, against NumPy and torch."""

from typing import NamedTuple

import numpy as np
import pytest

import mithril as ml
from mithril.models import Concat, Einsum, Model

EQUATIONS = [
    ("...ij,...jk->...ik", [(5, 2, 3), (5, 3, 4)]),
    ("...ij,...jk->...ik", [(2, 3), (3, 4)]),
    ("...ij,jk->...ik", [(2, 5, 2, 3), (3, 4)]),
    ("ij,...jk->...ik", [(2, 3), (6, 3, 4)]),
    ("...i,...i->...", [(4, 3), (4, 3)]),
    ("...i,...i", [(4, 3), (3,)]),
    ("...ij,...jk", [(5, 1, 2, 3), (4, 3, 2)]),
    ("i...,i...->...", [(3, 4, 2), (3, 1, 2)]),
    ("i...j,j...k->ik...", [(2, 5, 3), (3, 1, 4)]),
    ("...,...->...", [(2, 3), (4, 1, 3)]),
    ("...,...->...", [(1, 3), (1, 1)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("...ij->...ji", [(2, 4, 3)]),
    ("...ij->...", [(2, 4, 3)]),
    ("...ij->j...", [(2, 4, 3)]),
    ("b...,...->b", [(2, 4, 3), (4, 3)]),
    ("...a,...b,...->...ab", [(2, 3), (1, 4), (2,)]),
    ("...ij", [(2, 4, 3)]),
]


class Want(NamedTuple):
    """The expected output, and the gradients of the inputs for the output gradient `seed`."""

    output: np.ndarray
    seed: np.ndarray
    gradients: list


def reference(equation, arrays):
    """Computed by torch, as NumPy refuses a result without `...`."""
    torch = pytest.importorskip("torch")
    tensors = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
    out = torch.einsum(equation, *tensors)
    seed = np.linspace(0.5, 1.5, out.numel()).reshape(out.shape)
    out.backward(torch.tensor(seed))
    return Want(out.detach().numpy(), seed, [t.grad.numpy() for t in tensors])


def compare(backend, block, arrays, want, **options):
    names = [f"x{i}" for i in range(len(arrays))]
    model = Model()
    model |= block(inputs=names, output="out")
    compiled = ml.compile(model, backend, trainable_keys=names, **options)
    given = {n: backend.array(a) for n, a in zip(names, arrays, strict=True)}
    out, own = compiled.evaluate(given, {}, output_gradients={"out": backend.array(want.seed)})
    assert tuple(out["out"].shape) == want.output.shape
    np.testing.assert_allclose(backend.to_numpy(out["out"]), want.output, rtol=1e-5, atol=1e-5)
    for name, gradient in zip(names, want.gradients, strict=True):
        np.testing.assert_allclose(backend.to_numpy(own[name]), gradient, rtol=1e-5, atol=1e-5)


def drawn(shapes):
    random = np.random.default_rng(0)
    return [random.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum_ellipsis_broadcasts(backend, equation, shapes):
    arrays = drawn(shapes)
    given = {f"x{i}": list(shape) for i, shape in enumerate(shapes)}
    compare(backend, Einsum(equation), arrays, reference(equation, arrays), shapes=given)
    # All dims vary, except those of size 1, which broadcast.
    named = {n: [1 if d == 1 else f"d{d}" for d in dims] for n, dims in given.items()}
    if backend.writes:
        compare(backend, Einsum(equation), arrays, reference(equation, arrays), shapes=named)


MATRICES = [
    ("...ij,...jk->...ik", [(5, 2, 3), (5, 3, 4)]),
    ("...ij,...kj->...ik", [(5, 2, 3), (5, 4, 3)]),
    ("...ji,...jk->...ik", [(5, 3, 2), (5, 3, 4)]),
    ("...j,jk->...k", [(5, 2, 3), (3, 4)]),
    ("...ij,j->...i", [(5, 2, 3), (3,)]),
    ("...ij->...ji", [(5, 2, 3)]),
    ("...ij->...j", [(5, 2, 3)]),
]


@pytest.mark.parametrize(("equation", "shapes"), MATRICES)
def test_ranks_that_are_not_known(backend, equation, shapes):
    arrays = drawn(shapes)
    # An operand without `...` has one axis for each label.
    labels = equation.partition("->")[0].split(",")
    known = {f"x{i}": list(s) for i, s in enumerate(shapes) if "..." not in labels[i]}
    compare(backend, Einsum(equation), arrays, reference(equation, arrays), shapes=known)


WRONG = [
    ("...ij,jk->ik...,", "names 2 operands|not letters"),
    ("..ij,jk->ik", "labels that are not letters"),
    ("…ij,jk->ik", "labels that are not letters"),
    ("...i...j,jk->ik", "two `...` in one operand"),
    ("...ij,jk->...i...k", "repeats a label in its result"),
]


@pytest.mark.parametrize(("equation", "says"), WRONG)
def test_wrong_equations(equation, says):
    model = Model()
    model |= Einsum(equation)(inputs=["x", "y"], output="out")
    with pytest.raises(ml.MithrilError, match=says):
        ml.compile(model, ml.NumpyBackend(), shapes={"x": [2, 3], "y": [3, 4]})


def test_more_labels_than_axes():
    model = Model()
    model |= Einsum("...ijk->...")(inputs=["x"], output="out")
    with pytest.raises(ml.MithrilError, match=r"expected: 2 labels at most, besides `\.\.\.`"):
        ml.compile(model, ml.NumpyBackend(), shapes={"x": [2, 3]})


FLAT = [[(2, 3), (4,)], [(2, 3), ()], [(2, 1, 2), (3, 3)], [(0, 3), (2,)]]


@pytest.mark.parametrize("shapes", FLAT, ids=str)
def test_concat_of_flattened_inputs(backend, shapes):
    arrays = drawn(shapes)
    joined = np.concatenate(arrays, axis=None)
    seed = np.linspace(0.5, 1.5, joined.size)
    ends = np.cumsum([a.size for a in arrays])[:-1]
    parts = [g.reshape(a.shape) for g, a in zip(np.split(seed, ends), arrays, strict=True)]
    want = Want(joined, seed, parts)
    given = {f"x{i}": list(shape) for i, shape in enumerate(shapes)}
    compare(backend, Concat(axis=None), arrays, want, shapes=given)
    if backend.writes:
        named = {name: [f"{name}_{i}" for i in range(len(s))] for name, s in given.items()}
        compare(backend, Concat(axis=None), arrays, want, shapes=named)


def test_concat_says_what_its_axis_is():
    with pytest.raises(ml.MithrilError, match="expected: an integer or None"):
        Concat(axis="rows")


def test_saved_without_an_axis(tmp_path):
    model = Model()
    model |= Concat(axis=None)(inputs=["x", "y"], output="out")
    model.save(tmp_path / "model.json")
    again = Model.load(tmp_path / "model.json")
    compiled = ml.compile(again, ml.NumpyBackend(), shapes={"x": [2, 2], "y": [2, 2]})
    x = np.ones((2, 2), np.float32)
    assert compiled.evaluate({}, {"x": x, "y": x})["out"].shape == (8,)
