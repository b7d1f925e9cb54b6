"""The loss of connectionist temporal classification compared with PyTorch's, forward and gradient,
on every backend, with fixed and open dims."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import mithril as ml
from mithril.errors import MithrilError

RNG = np.random.default_rng(23)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


# Scores, labels, numbers of steps and of labels, and settings.
CASES: list[tuple[Any, Any, Any, Any, dict[str, Any]]] = [
    (numbers(3, 8, 5), [[1, 2, 3], [4, 4, 1], [2, 1, 2]], None, None, {}),
    (numbers(3, 8, 5), [[1, 2, 3], [4, 4, 1], [2, 2, 2]], [8, 5, 6], [3, 2, 3], {}),
    # Labels beyond the length are not read.
    (numbers(2, 6, 4), [[1, -7], [99, 3]], [6, 4], [1, 0], {}),
    (numbers(2, 6, 4), [[1, 0], [3, 3]], None, [2, 2], {"blank": 2}),
    (numbers(1, 1, 3), [[1]], None, None, {}),
    (numbers(2, 3, 3), [[], []], None, None, {}),
    (5 * numbers(2, 30, 6), RNG.integers(1, 6, (2, 9)).tolist(), [30, 25], [9, 7], {}),
    # No alignment is possible: two steps for three labels, three for two that are equal.
    (numbers(2, 3, 4), [[1, 2, 3], [1, 1, 1]], [2, 3], [3, 2], {"zero_infinity": True}),
    (np.log(np.float32([[[0.5, 0.25, 0.25]] * 4] * 2)), [[1, 2], [1, 1]], None, None, {}),
]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_losses_are_those_of_torch(case, named, backend):
    x, labels, steps, lengths, settings = CASES[case]
    index = np.int32 if backend.kind == "jax" else np.int64
    y = np.array(labels, index)
    arrays = {"input": x, "target": y}
    arrays |= {} if steps is None else {"input_lengths": np.array(steps, index)}
    arrays |= {} if lengths is None else {"target_lengths": np.array(lengths, index)}
    leaf = torch.tensor(x, requires_grad=True)
    every = torch.tensor(steps or [x.shape[1]] * len(x))
    counts = torch.tensor(lengths or [y.shape[1]] * len(x))
    parts = [torch.tensor(row[:n]) for row, n in zip(y.astype(np.int64), counts, strict=True)]
    scores = torch.log_softmax(leaf, -1).transpose(0, 1)
    want = F.ctc_loss(scores, torch.cat(parts), every, counts, reduction="none", **settings)
    seed = numbers(*want.shape)
    want.backward(torch.tensor(seed))
    model = ml.Model()
    model |= ml.CTC(**settings)(**{n: n for n in arrays}, output="output")
    names = {"input": ["n", "t", x.shape[2]], "target": ["n", "labels"]}
    names |= {"input_lengths": ["n"], "target_lengths": ["n"]}
    shapes = {n: names[n] if named else list(a.shape) for n, a in arrays.items()}
    dtypes = {n: a.dtype for n, a in arrays.items()}
    options = {"shapes": shapes, "dtypes": dtypes, "trainable_keys": ["input"]}
    compiled = ml.compile(model, backend, **options)
    rest = {n: a for n, a in arrays.items() if n != "input"}
    outputs, gradients = compiled.evaluate(
        {"input": backend.array(x)}, rest, output_gradients={"output": backend.array(seed)}
    )
    to = backend.to_numpy
    np.testing.assert_allclose(to(outputs["output"]), want.detach(), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(to(gradients["input"]), leaf.grad, rtol=2e-4, atol=1e-5)


def test_impossible_labels_are_infinite_with_a_gradient_of_0(backend):
    """PyTorch's gradient is NaN."""
    x, y = numbers(1, 2, 3), np.array([[1, 1]], np.int32)
    shapes = {"input": [1, 2, 3], "target": [1, 2]}
    compiled = ml.compile(ml.CTC(), backend, shapes=shapes, trainable_keys=["input"])
    ones = {"output": backend.array(np.ones(1, np.float32))}
    outputs, gradients = compiled.evaluate(
        {"input": backend.array(x)}, {"target": y}, output_gradients=ones
    )
    assert np.isposinf(backend.to_numpy(outputs["output"])).all()
    assert not backend.to_numpy(gradients["input"]).any()


def test_all_alignments_are_summed():
    """Against the sum over every path through the classes."""
    x = numbers(1, 5, 3).astype(np.float64)
    probs = np.exp(x[0]) / np.exp(x[0]).sum(-1, keepdims=True)
    backend = ml.NumpyBackend(dtype=ml.float64)
    for labels in ([], [1], [2, 2], [1, 2, 1]):
        total = 0.0
        for path in itertools.product(range(3), repeat=5):
            read = [c for c, before in zip(path, (0, *path), strict=False) if c and c != before]
            total += np.prod(probs[range(5), path]) if read == labels else 0.0
        shapes = {"input": [1, 5, 3], "target": [1, len(labels)]}
        compiled = ml.compile(ml.CTC(), backend, shapes=shapes, inference=True)
        got = compiled.evaluate({}, {"input": x, "target": np.array([labels], np.int64)})
        np.testing.assert_allclose(got["output"], [-np.log(total)], rtol=1e-12)
        scores = np.log(probs)[None]
        compiled = ml.compile(ml.CTC(input_type="log_probs"), backend, shapes=shapes)
        got = compiled.evaluate({}, {"input": scores, "target": np.array([labels], np.int64)})
        np.testing.assert_allclose(got["output"], [-np.log(total)], rtol=1e-12)


def test_there_is_one_loop():
    shapes = {"input": [2, 100, 5], "target": [2, 9]}
    code = ml.compile(ml.CTC(), ml.JaxBackend(), shapes=shapes, inference=True).code
    assert code.count("jax.lax.scan(") == 1


def message(block: ml.Block, shapes: Any, **names: str) -> str:
    model = ml.Model()
    model |= block(**names)
    with pytest.raises(MithrilError) as caught:
        ml.compile(model, ml.NumpyBackend(), shapes=shapes)
    return str(caught.value)


def test_mistakes_are_explained():
    own = {"input": "input", "target": "target", "output": "output"}
    text = message(ml.CTC(), {"input": [5, 4], "target": [5, 2]}, **own)
    assert "`CTC` takes scores of each step" in text
    text = message(ml.CTC(), {"input": [3, 5, 4], "target": [2, 2]}, **own)
    assert "`target` has the wrong shape" in text
    assert "(3, length)" in text
    text = message(ml.CTC(blank=4), {"input": [3, 5, 4], "target": [3, 2]}, **own)
    assert "`blank` of `CTC` is no class" in text
    shapes = {"input": [3, 5, 4], "target": [3, 2], "target_lengths": [2]}
    text = message(ml.CTC(), shapes, target_lengths="target_lengths", **own)
    assert "`target_lengths` has the wrong shape" in text
