"""Reductions with a root, where it is not smooth, and over empty axes, compared with torch."""

import numpy as np
import pytest

import mithril as ml
from mithril.models import LogSoftmax, Norm, Roll, Softmax, Std

torch = pytest.importorskip("torch")

BLOCKS = {
    "std": (lambda: Std(correction=1.0), lambda x: x.std()),
    "norm": (Norm, torch.linalg.vector_norm),
    "norm of 3": (lambda: Norm(p=3.0), lambda x: torch.linalg.vector_norm(x, 3)),
    "norm of 0": (lambda: Norm(p=0.0), lambda x: torch.linalg.vector_norm(x, 0)),
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [2.0, 2.0, 2.0], [0.0, -1.0, 3.0]], ids=str)
def test_values_and_gradients_are_those_of_torch(name, values, backend):
    block, reference = BLOCKS[name]
    compiled = ml.compile(block(), backend, shapes={"input": [3]}, trainable_keys=["input"])
    params = {"input": backend.array(np.array(values))}
    outputs, gradients = compiled.evaluate(params, {}, output_gradients=backend.array(1.0))
    x = torch.tensor(values, requires_grad=True)
    y = reference(x)
    if y.requires_grad:
        y.backward()
    own = torch.zeros(3) if x.grad is None else x.grad
    got = backend.to_numpy(outputs["output"]), backend.to_numpy(gradients["input"])
    np.testing.assert_allclose(got[0], y.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(got[1], own.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("block", "shape"), [(Softmax(), [3, 0]), (LogSoftmax(), [3, 0]), (Roll(1, axis=0), [0, 2])]
)
def test_empty_inputs_give_empty_outputs(block, shape, backend):
    compiled = ml.compile(block, backend, shapes={"input": shape})
    output = compiled.evaluate({}, {"input": backend.zeros(shape)})["output"]
    assert list(output.shape) == shape
