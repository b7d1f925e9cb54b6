"""Indexing a connection means what it means in NumPy."""

import numpy as np
import pytest

import mithril as ml
from mithril.models import Buffer, Model

X = np.arange(24.0).reshape(2, 3, 4)


def indexed(index, backend, shape) -> np.ndarray:
    model = Model()
    model |= Buffer()(input="x", output="y")
    model |= Buffer()(input=model.y[index], output="z")
    assert model.inputs == ["x"]
    compiled = ml.compile(model, backend, shapes={"x": shape})
    return backend.to_numpy(compiled.evaluate({}, {"x": backend.array(X)})["z"])


INDICES = [
    [0, 1],
    [1],
    [-1, 0, 0],
    [],
    [[0, 1], [1, 1]],
    np.array([1, 0]),
    None,
    (None, [1, 0]),
    (slice(None), [2, 0]),
    (slice(None), [2, 0], slice(1, 3)),
    (0, [2, 0]),
    ([1, 0], 1),
    (..., [3, 3, 0]),
    (..., [0, 2], -1),
    (..., None, [[0], [2]], slice(None)),
    (slice(1), ..., [0]),
    slice(None, None, -2),
    (slice(None, None, -2), slice(None, None, -3)),
    (..., slice(3, 0, -1)),
    (..., slice(-1, -9, -2)),
    (..., slice(9, -3, -1)),
    (..., slice(-9, None, -1)),
    (..., slice(None, -1, -1)),
    (..., slice(None, -4, -1)),
    (0, slice(1, None, -1), slice(-2, 0, -2)),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("shape", [[2, 3, 4], ["a", "b", "c"]], ids=["fixed", "symbolic"])
def test_as_numpy(index, shape, backend):
    own = X[np.array([], int) if isinstance(index, list) and not index else index]
    got = indexed(index, backend, shape)
    assert got.shape == own.shape
    np.testing.assert_array_equal(got, own)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([0, 5], "the index is out of range"),
        ((0, slice(None), [1]), "an index has integers that are not next to its array"),
        (([0], [1]), "an index has at most one array"),
        (True, "`index` of `Indexer` has the wrong type"),
        ([True, False], "`index` of `Indexer` has the wrong type"),
        ([0.5], "`index` of `Indexer` has the wrong type"),
    ],
    ids=str,
)
def test_indices_with_other_meaning_in_numpy_are_errors(index, message):
    with pytest.raises(ml.MithrilError, match=message):
        indexed(index, ml.NumpyBackend(), [2, 3, 4])


def test_an_array_of_indices_has_a_gradient(backend):
    model = Model()
    model |= Buffer()(input="x", output="y")
    model |= Buffer()(input=model.y[:, [2, 0, 2]], output="z")
    compiled = ml.compile(model, backend, shapes={"x": [2, 3]}, trainable_keys=["x"])
    x, seed = np.ones((2, 3)), np.arange(6.0).reshape(2, 3)
    params = {"x": backend.array(x)}
    _, gradients = compiled.evaluate(params, {}, output_gradients={"z": backend.array(seed)})
    got = backend.to_numpy(gradients["x"]).tolist()
    assert got == [[1, 0, 2], [4, 0, 8]]


def test_slice_step_0_is_an_error(backend):
    with pytest.raises(ml.MithrilError, match="the step of a slice is 0"):
        indexed(slice(None, None, 0), backend, [2, 3, 4])


def test_slices_that_go_backward_have_gradients(backend):
    model = Model()
    model |= Buffer()(input="x", output="y")
    model |= Buffer()(input=model.y[:, 4:0:-2], output="z")
    compiled = ml.compile(model, backend, shapes={"x": ["n", 6]}, trainable_keys=["x"])
    g = np.arange(6.0).reshape(3, 2)
    x = backend.array(np.zeros((3, 6)))
    got = compiled.evaluate({"x": x}, {}, output_gradients={"z": backend.array(g)})[1]["x"]
    want = np.zeros((3, 6))
    want[:, 4:0:-2] = g
    np.testing.assert_array_equal(backend.to_numpy(got), want)
