"""Means of losses and their gradients agree with PyTorch's, on every backend."""

import numpy as np
import pytest
import torch
from comparing import near, random

import mithril as ml
from mithril.models import (
    BinaryCrossEntropy,
    CrossEntropy,
    Flatten,
    LossMean,
    Mean,
    Model,
    Multiply,
    Subtract,
    Sum,
)

F = torch.nn.functional
rng = np.random.default_rng(0)
SCORES = rng.standard_normal((6, 4)).astype(np.float32)
LABELS = np.array([0, 3, 1, 2, 3, 1])
WEIGHTS = [0.5, 2.0, 0.1, 3.0]
PROBABILITIES = rng.dirichlet(np.ones(4), 6).astype(np.float32)
SEQUENCES = rng.standard_normal((3, 5, 4)).astype(np.float32)
# The last sequence has only ignored tokens.
TOKENS = np.array([[0, 3, 9, 2, 9], [1, 1, 2, 9, 3], [9, 9, 9, 9, 9]])

# Settings of the loss here and in PyTorch, scores and targets.
CASES = {
    "plain": ({}, SCORES, LABELS),
    "ignored": ({"ignore_index": 3}, SCORES, LABELS),
    "ignored, outside of the classes": (
        {"ignore_index": -100},
        SCORES,
        np.where(LABELS > 1, -100, 0),
    ),
    "weights": ({"weights": WEIGHTS}, SCORES, LABELS),
    "a weight of 0": ({"weights": [0.0, 1.0, 2.0, 0.0]}, SCORES, LABELS),
    "both": ({"weights": WEIGHTS, "ignore_index": 3}, SCORES, LABELS),
    "smoothed": ({"weights": WEIGHTS, "ignore_index": 1, "label_smoothing": 0.2}, SCORES, LABELS),
    "smoothed and ignored": ({"ignore_index": 1, "label_smoothing": 0.2}, SCORES, LABELS),
    "probabilities": ({"weights": WEIGHTS, "label_smoothing": 0.1}, SCORES, PROBABILITIES),
    "classes on axis 1": (
        {"axis": 1, "weights": WEIGHTS, "ignore_index": 9},
        SEQUENCES.transpose(0, 2, 1).copy(),
        TOKENS,
    ),
    "sequences": ({"ignore_index": 9}, SEQUENCES, TOKENS),
}


def trained(loss, steps=None, coef=1.0):
    """A model whose output is its trainable scores, with their loss."""
    model = Model()
    model |= Multiply()(left="scores", right=1.0, output="output")
    training = ml.TrainModel(model)
    keywords = {} if steps is None else {"reduce_steps": steps}
    training.add_loss(loss, coef=coef, input="output", target="target", **keywords)
    return training


def measured(backend, training, scores, target, shapes=True):
    """The cost, and its gradient with respect to the scores."""
    if target.dtype == np.int64 and backend.kind == "jax":
        target = target.astype(np.int32)
    dtypes = {"target": target.dtype}
    known = {"scores": list(scores.shape)} if shapes else {}
    if shapes or target.dtype == np.float32:
        known["target"] = list(target.shape)  # the default would be the shape of class indices
    compiled = ml.compile(training, backend, shapes=known, dtypes=dtypes, trainable_keys=["scores"])
    params = {"scores": backend.array(scores)}
    outputs, gradients = compiled.evaluate(params, {"target": target}, output_gradients=True)
    to = backend.to_numpy
    return float(to(outputs["final_cost"])), to(gradients["scores"])


def by_torch(settings, scores, target):
    settings = dict(settings)
    axis = settings.pop("axis", -1)
    if "weights" in settings:
        settings["weight"] = torch.tensor(settings.pop("weights"))
    x = torch.tensor(scores, requires_grad=True)
    y = torch.tensor(target)
    value = F.cross_entropy(x if axis == 1 else x.movedim(-1, 1), y, **settings)
    value.backward()
    return value.item(), x.grad.numpy()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shapes", [True, False])
def test_torch_has_the_same_mean(backend, name, shapes):
    settings, scores, target = CASES[name]
    value, gradient = measured(backend, trained(CrossEntropy(**settings)), scores, target, shapes)
    expected, by_scores = by_torch(settings, scores, target)
    assert value == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(gradient, by_scores, rtol=1e-4, atol=1e-6)


def test_documented_weighted_mean_is_correct():
    """Half of the targets are ignored, so the mean is over the other half."""
    training = trained(CrossEntropy(ignore_index=-100))
    target = np.array([1, -100, 2, -100])
    scores = np.array([[1, 2, 3], [4, 5, 6], [3, 1, 2], [0, 1, 0]], np.float32)
    value, _ = measured(ml.NumpyBackend(), training, scores, target)
    counted = F.cross_entropy(torch.tensor(scores[[0, 2]]), torch.tensor([1, 2])).item()
    assert value == pytest.approx(counted, rel=1e-6)


def test_mean_is_zero_if_all_targets_are_ignored(backend):
    """PyTorch's mean would be NaN; here a training step leaves the params unchanged."""
    target = np.full(6, 3)
    for settings in ({"ignore_index": 3}, {"weights": [1.0, 1.0, 1.0, 0.0]}):
        value, gradient = measured(backend, trained(CrossEntropy(**settings)), SCORES, target)
        assert value == 0
        np.testing.assert_array_equal(gradient, np.zeros_like(SCORES))


def test_means_of_means(backend):
    """The mean of each sequence, then of the sequences with at least one counted token."""
    training = trained(CrossEntropy(ignore_index=9), [Mean(axis=1), Mean()])
    value, gradient = measured(backend, training, SEQUENCES, TOKENS)
    x = torch.tensor(SEQUENCES, requires_grad=True)
    each = [F.cross_entropy(x[i], torch.tensor(TOKENS[i]), ignore_index=9) for i in range(2)]
    expected = sum(each) / 2
    expected.backward()
    assert value == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_steps_before_the_mean():
    """Steps that only move elements keep the weights; after a sum, the mean is unweighted."""
    loss = CrossEntropy(ignore_index=9)
    numpy = ml.NumpyBackend()
    whole, _ = measured(numpy, trained(loss, [Mean()]), SEQUENCES, TOKENS)
    flat, _ = measured(numpy, trained(loss, [Flatten(), Mean()]), SEQUENCES, TOKENS)
    assert flat == pytest.approx(whole, rel=1e-6)
    scores = torch.tensor(SEQUENCES).movedim(-1, 1)
    each = F.cross_entropy(scores, torch.tensor(TOKENS), ignore_index=9, reduction="none")
    summed, _ = measured(numpy, trained(loss, [Sum(axis=1), Mean()]), SEQUENCES, TOKENS)
    assert summed == pytest.approx(each.sum(1).mean().item(), rel=1e-5)
    kept, _ = measured(numpy, trained(loss, [Mean(axis=1, keepdim=True), Sum()]), SEQUENCES, TOKENS)
    means = each.sum(1)[:2] / torch.tensor((TOKENS != 9).sum(1))[:2]
    assert kept == pytest.approx(means.sum().item(), rel=1e-5)


def test_coefficients_and_sums_of_losses(backend):
    training = trained(CrossEntropy(weights=WEIGHTS), coef=0.5)
    training.add_loss(CrossEntropy(ignore_index=3), input="output", target="target")
    value, gradient = measured(backend, training, SCORES, LABELS)
    first = by_torch({"weights": WEIGHTS}, SCORES, LABELS)
    second = by_torch({"ignore_index": 3}, SCORES, LABELS)
    assert value == pytest.approx(0.5 * first[0] + second[0], rel=1e-5)
    np.testing.assert_allclose(gradient, 0.5 * first[1] + second[1], rtol=1e-4, atol=1e-6)


def test_metrics_take_the_same_mean():
    training = trained(CrossEntropy())
    training.add_metric(
        CrossEntropy(ignore_index=3), [Mean()], input="output", target="target", name="counted"
    )
    compiled = ml.compile(training, ml.NumpyBackend(), inference=True)
    outputs = compiled.evaluate({}, {"scores": SCORES, "target": LABELS})
    expected = by_torch({"ignore_index": 3}, SCORES, LABELS)[0]
    assert float(outputs["counted"]) == pytest.approx(expected, rel=1e-5)


def test_pos_weight_divides_by_all_targets(backend):
    target = (PROBABILITIES > 0.3).astype(np.float32)
    training = trained(BinaryCrossEntropy(pos_weight=3.0))
    value, gradient = measured(backend, training, SCORES, target)
    x = torch.tensor(SCORES, requires_grad=True)
    expected = F.binary_cross_entropy_with_logits(
        x, torch.tensor(target), pos_weight=torch.tensor(3.0)
    )
    expected.backward()
    assert value == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_weights_are_an_output():
    model = Model()
    model |= CrossEntropy(weights=WEIGHTS, ignore_index=3)(
        input="scores", target="target", output="loss", weight="weight"
    )
    model |= LossMean()(input="loss", weights="weight", output="mean")
    model.expose("loss")
    model.expose("weight")
    compiled = ml.compile(model, ml.NumpyBackend(), inference=True)
    outputs = compiled.evaluate({}, {"scores": SCORES, "target": LABELS})
    np.testing.assert_allclose(
        outputs["weight"], np.where(LABELS == 3, 0, np.array(WEIGHTS)[LABELS]), rtol=1e-6
    )
    each = F.cross_entropy(
        torch.tensor(SCORES),
        torch.tensor(LABELS),
        torch.tensor(WEIGHTS),
        ignore_index=3,
        reduction="none",
    )
    np.testing.assert_allclose(outputs["loss"], each, rtol=1e-5)
    expected = by_torch({"weights": WEIGHTS, "ignore_index": 3}, SCORES, LABELS)[0]
    assert float(outputs["mean"]) == pytest.approx(expected, rel=1e-5)


def test_only_weighted_losses_have_an_output_weight():
    with pytest.raises(ml.TerminalError, match="has no terminal `weight`"):
        CrossEntropy()(weight="weight")


def test_losses_of_your_own():
    """A model with an output `weight` next to its standard output is a weighted loss."""
    loss = Model()
    loss |= Subtract()(left="input", right="target", output="difference")
    loss |= Multiply()(left="target", right=2.0, output="weight")
    loss |= Multiply()(left="difference", right="weight", output="value")
    loss.expose("weight")
    target = np.abs(SCORES[::-1]).copy()
    value, _ = measured(ml.NumpyBackend(), trained(loss), SCORES, target)
    weight = 2.0 * target
    expected = ((SCORES - target) * weight).sum() / weight.sum()
    assert value == pytest.approx(expected, rel=1e-5)


def test_halves_do_not_overflow(backend):
    """The sum of the losses overflows float16; their mean does not."""
    backend = type(backend)(dtype=ml.float16)
    scores = np.zeros((40000, 8), np.float16)
    scores[:, 0] = 20
    target = np.full(40000, 5)
    value, _ = measured(backend, trained(CrossEntropy(ignore_index=1)), scores, target)
    assert value == pytest.approx(20, rel=1e-2)


@pytest.mark.parametrize("axis", [-1, 1])
def test_probabilities_of_classes_need_no_shapes(axis, backend):
    """A target of a float dtype has a number for each class."""
    model = Model()
    model |= CrossEntropy(axis=axis)(input="input", target="target", output="loss")
    model.set_types({"target": ml.float32})
    scores, target = random(4, 3, 5), np.abs(random(4, 3, 5, seed=1))
    target /= target.sum(axis, keepdims=True)
    loss = ml.compile(model, backend).evaluate({}, {"input": scores, "target": target})["loss"]
    own = [torch.tensor(np.moveaxis(x, axis, 1)) for x in (scores, target)]
    near(backend.to_numpy(loss), torch.nn.functional.cross_entropy(*own, reduction="none"))


def test_shapes_that_differ():
    model = Model()
    model |= LossMean()(input="loss", weights="weight", output="mean")
    with pytest.raises(
        ml.ShapeError, match="the shapes of `weights` and `input` of `LossMean` differ"
    ):
        ml.compile(model, ml.NumpyBackend(), shapes={"loss": [3], "weight": [3, 1]})
    compiled = ml.compile(
        model, ml.NumpyBackend(), shapes={"loss": ["n"], "weight": ["m"]}, inference=True
    )
    with pytest.raises(ml.ShapeError):
        compiled.evaluate({}, {"loss": np.ones(3, np.float32), "weight": np.ones(2, np.float32)})
