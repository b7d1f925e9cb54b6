"""Likelihoods, margins and masks compared with PyTorch's losses, forward and gradients, on every
backend, with fixed and open dims."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases.losses import focal
from conftest import CLASSES

import mithril as ml

RNG = np.random.default_rng(3)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def counts(*shape: int) -> Any:
    return RNG.integers(0, 5, shape).astype(np.float32)


def signs(*shape: int) -> Any:
    return np.where(RNG.integers(0, 2, shape), 1, -1).astype(np.float32)


def positive(*shape: int) -> Any:
    return RNG.uniform(0.1, 2, shape).astype(np.float32)


def halves(*shape: int) -> Any:
    return RNG.integers(0, 2, shape).astype(np.float32)


def log_probs(*shape: int) -> Any:
    return torch.log_softmax(torch.tensor(numbers(*shape)), -1).numpy()


def losses(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    return lambda *arrays: function(*arrays, reduction="none", **settings)


def soft_margin(x: Any, y: Any) -> Any:
    """torch has no gradient by the target."""
    loss = F.softplus(-x * y)
    torch.testing.assert_close(loss, F.soft_margin_loss(x, y.detach(), reduction="none"))
    return loss


def nll(**settings: Any) -> Callable[..., Any]:
    if "weight" in settings:
        settings["weight"] = torch.tensor(settings["weight"])
    return lambda x, y: F.nll_loss(x.movedim(-1, 1), y, reduction="none", **settings)


def dice(smooth: float, axes: Any) -> Callable[..., Any]:
    def loss(x: Any, y: Any) -> Any:
        return 1 - (2 * (x * y).sum(axes) + smooth) / (x.sum(axes) + y.sum(axes) + smooth)

    return loss


LABELS = RNG.integers(0, 4, 5)
W = [0.5, 2.0, 0.0, 1.0]
# The block, its inputs and PyTorch's function.
CASES: list[tuple[Any, list[Any], Callable[..., Any]]] = [
    (ml.SoftMargin(), [numbers(3, 4), signs(3, 4)], soft_margin),
    (ml.SoftMargin(), [numbers(0, 4), signs(0, 4)], soft_margin),
    (ml.SoftMargin(), [numbers(1), signs(1)], soft_margin),
    (ml.PoissonNLL(), [numbers(3, 4), counts(3, 4)], losses(F.poisson_nll_loss)),
    (
        ml.PoissonNLL(full=True),
        [numbers(30), counts(30) + 2],
        losses(F.poisson_nll_loss, full=True),
    ),
    (
        ml.PoissonNLL(log_input=False, eps=1e-2),
        [positive(3, 4), counts(3, 4)],
        losses(F.poisson_nll_loss, log_input=False, eps=1e-2),
    ),
    (ml.PoissonNLL(), [numbers(0), counts(0)], losses(F.poisson_nll_loss)),
    (
        ml.GaussianNLL(),
        [numbers(3, 4), numbers(3, 4), positive(3, 4)],
        losses(F.gaussian_nll_loss),
    ),
    (
        ml.GaussianNLL(full=True, eps=0.5),
        [numbers(3, 4), numbers(3, 4), positive(3, 4)],
        losses(F.gaussian_nll_loss, full=True, eps=0.5),
    ),
    (ml.GaussianNLL(), [numbers(3, 4), numbers(3, 4), positive(3)], losses(F.gaussian_nll_loss)),
    (
        ml.GaussianNLL(),
        [numbers(3, 1), numbers(3, 1), positive(3, 1)],
        losses(F.gaussian_nll_loss),
    ),
    (
        ml.GaussianNLL(),
        [numbers(0, 2), numbers(0, 2), positive(0, 2)],
        losses(F.gaussian_nll_loss),
    ),
    (ml.NegativeLogLikelihood(), [log_probs(5, 4), LABELS], nll()),
    (ml.NegativeLogLikelihood(ignore_index=2), [log_probs(5, 4), LABELS], nll(ignore_index=2)),
    (
        ml.NegativeLogLikelihood(ignore_index=-100, weights=W),
        [log_probs(5, 4), np.where(LABELS > 2, -100, LABELS)],
        nll(weight=W),
    ),
    (ml.NegativeLogLikelihood(), [log_probs(3, 2, 4), LABELS[:3, None] * [1, 0]], nll()),
    (
        ml.NegativeLogLikelihood(axis=1, weights=W),
        [log_probs(3, 2, 4).transpose(0, 2, 1).copy(), LABELS[:3, None] * [1, 0]],
        lambda x, y: F.nll_loss(x, y, torch.tensor(W), reduction="none"),
    ),
    (ml.NegativeLogLikelihood(), [log_probs(0, 4), LABELS[:0]], nll()),
    (
        ml.MarginRanking(),
        [numbers(3, 4), numbers(3, 4), signs(3, 4)],
        losses(F.margin_ranking_loss),
    ),
    (
        ml.MarginRanking(margin=0.5),
        [numbers(9), numbers(9), signs(9)],
        losses(F.margin_ranking_loss, margin=0.5),
    ),
    # On the edge of the margin the gradient is 0.
    (ml.MarginRanking(), [np.float32([1, 2])] * 2 + [signs(2)], losses(F.margin_ranking_loss)),
    (ml.MarginRanking(), [numbers(0, 2)] * 2 + [signs(0, 2)], losses(F.margin_ranking_loss)),
    *[
        (
            ml.TripletMargin(**settings),
            [numbers(4, 5) for _ in range(3)],
            losses(F.triplet_margin_loss, **settings),
        )
        for settings in (
            {},
            {"margin": 3.0, "p": 1.0},
            {"margin": 3.0, "p": 3.0, "eps": 1e-3},
            {"margin": 3.0, "p": 0.5},
            {"margin": 3.0, "p": float("inf")},
            {"margin": 3.0, "swap": True},
        )
    ],
    (
        ml.TripletMargin(swap=True),
        [numbers(2, 3, 4) for _ in range(3)],
        losses(F.triplet_margin_loss, swap=True),
    ),
    # A distance of 0 has a gradient of 0.
    (
        ml.TripletMargin(eps=0.0),
        [np.float32([[1, 2]]), np.float32([[1, 2]]), np.float32([[1, 2.5]])],
        losses(F.triplet_margin_loss, eps=0.0),
    ),
    (ml.TripletMargin(), [numbers(0, 3)] * 3, losses(F.triplet_margin_loss)),
    (ml.TripletMargin(), [numbers(1, 1) for _ in range(3)], losses(F.triplet_margin_loss)),
    (ml.FocalLoss(), [3 * numbers(3, 4), halves(3, 4)], focal),
    (ml.FocalLoss(), [3 * numbers(3, 4), positive(3, 4) / 2], focal),
    (
        ml.FocalLoss(gamma=0.5, alpha=-1.0),
        [numbers(7), halves(7)],
        lambda x, y: focal(x, y, -1, 0.5),
    ),
    (ml.FocalLoss(gamma=0.0), [numbers(7), halves(7)], lambda x, y: focal(x, y, 0.25, 0)),
    (ml.FocalLoss(), [numbers(0, 3), halves(0, 3)], focal),
    (ml.Dice(), [positive(2, 3, 4) / 2, halves(2, 3, 4)], dice(1, (1, 2))),
    (
        ml.Dice(smooth=1e-3, axis=[-2, -1]),
        [positive(2, 3, 4, 5) / 2, halves(2, 3, 4, 5)],
        dice(1e-3, (2, 3)),
    ),
    (ml.Dice(axis=0), [positive(6) / 2, halves(6)], dice(1, 0)),
    (ml.Dice(), [positive(3, 0), halves(3, 0)], dice(1, 1)),
    (ml.Dice(), [positive(0, 3), halves(0, 3)], dice(1, 1)),
]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_losses_are_those_of_torch(case, named, backend):
    block, arrays, reference = CASES[case]
    names = list(block.inputs)
    leaves = [torch.tensor(a, requires_grad=a.dtype == np.float32) for a in arrays]
    want = reference(*leaves)
    seed = RNG.standard_normal(want.shape).astype(np.float32)
    want.backward(torch.tensor(seed))
    if backend.kind == "jax":
        arrays = [a.astype(np.int32) if a.dtype == np.int64 else a for a in arrays]
    floats = [n for n, a in zip(names, arrays, strict=True) if a.dtype == np.float32]
    model = ml.Model()
    model |= block(**{n: n for n in names}, output="output")
    # Dims of one size have one name.
    dims = [[f"n{size}" if named else size for size in a.shape] for a in arrays]
    shapes = dict(zip(names, dims, strict=True))
    compiled = ml.compile(
        model,
        backend,
        shapes=shapes,
        dtypes={n: a.dtype for n, a in zip(names, arrays, strict=True)},
        trainable_keys=floats,
    )
    given = {n: backend.array(a) if n in floats else a for n, a in zip(names, arrays, strict=True)}
    params = {n: given[n] for n in floats}
    rest = {n: given[n] for n in names if n not in floats}
    outputs, gradients = compiled.evaluate(
        params, rest, output_gradients={"output": backend.array(seed)}
    )
    to = backend.to_numpy
    np.testing.assert_allclose(to(outputs["output"]), want.detach(), rtol=2e-5, atol=2e-6)
    for name, leaf in zip(names, leaves, strict=True):
        if name in floats:
            np.testing.assert_allclose(
                to(gradients[name]), leaf.grad, rtol=2e-5, atol=2e-6, err_msg=name
            )


def values(block: ml.Block, backend: Any, *arrays: Any) -> Any:
    """The loss, and the gradients of its sum."""
    names = list(block.inputs)
    shapes = {n: list(a.shape) for n, a in zip(names, arrays, strict=True)}
    compiled = ml.compile(block, backend, shapes=shapes, trainable_keys=names)
    params = {n: backend.array(a) for n, a in zip(names, arrays, strict=True)}
    ones = {"output": backend.array(np.ones_like(arrays[0]))}
    outputs, gradients = compiled.evaluate(params, {}, output_gradients=ones)
    return backend.to_numpy(outputs["output"]), [backend.to_numpy(gradients[n]) for n in names]


def test_scores_that_would_overflow(backend):
    """torch's soft margin is infinite, and the gradient of torchvision's focal loss NaN."""
    x, y = np.float32([200, -200]), np.float32([-1, -1])
    loss, gradients = values(ml.SoftMargin(), backend, x, y)
    np.testing.assert_array_equal(loss, np.float32([200, 0]))
    np.testing.assert_array_equal(gradients[0], np.float32([1, 0]))
    sure = ml.FocalLoss(gamma=0.5)
    loss, gradients = values(sure, backend, np.float32([200, -200]), np.float32([1, 0]))
    np.testing.assert_array_equal(loss, np.float32([0, 0]))
    np.testing.assert_array_equal(gradients[0], np.float32([0, 0]))


def test_counts_of_0(backend):
    """The gradient by a target of 0 is finite; torch's is NaN."""
    x, y = np.float32([0.5, 0.5, 0.5]), np.float32([0, 1, 2])
    loss, gradients = values(ml.PoissonNLL(full=True), backend, x, y)
    want = F.poisson_nll_loss(torch.tensor(x), torch.tensor(y), full=True, reduction="none")
    np.testing.assert_allclose(loss, want, rtol=1e-5)
    slope = -0.5 + np.log(2) + 0.25
    np.testing.assert_allclose(gradients[1], [-0.5, -0.5, slope], rtol=1e-5)


def test_variances_below_eps(backend):
    """Their gradient is that of `eps`, so they can grow."""
    arrays = [np.float32([1, 1, 1]), np.float32([0, 0, 0]), np.float32([0, 1e-3, 0.5])]
    loss, gradients = values(ml.GaussianNLL(eps=0.01), backend, *arrays)
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    want = F.gaussian_nll_loss(*leaves, eps=0.01, reduction="none")
    want.sum().backward()
    np.testing.assert_allclose(loss, want.detach(), rtol=1e-5)
    np.testing.assert_allclose(gradients[2], leaves[2].grad, rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 4), (3, 1), (3,), (1, 4)])
def test_variances_broadcast_without_shapes(shape, backend):
    arrays = {"input": numbers(3, 4), "target": numbers(3, 4), "variance": positive(*shape)}
    compiled = ml.compile(ml.GaussianNLL(), backend, trainable_keys=list(arrays))
    seed = numbers(3, 4)
    outputs, gradients = compiled.evaluate(
        {n: backend.array(a) for n, a in arrays.items()},
        {},
        output_gradients={"output": backend.array(seed)},
    )
    leaves = {n: torch.tensor(a, requires_grad=True) for n, a in arrays.items()}
    variance = leaves["variance"][:, None] if len(shape) == 1 else leaves["variance"]
    want = F.gaussian_nll_loss(leaves["input"], leaves["target"], variance, reduction="none")
    want.backward(torch.tensor(seed))
    np.testing.assert_allclose(backend.to_numpy(outputs["output"]), want.detach(), rtol=1e-5)
    for name, leaf in leaves.items():
        np.testing.assert_allclose(
            backend.to_numpy(gradients[name]), leaf.grad, rtol=1e-4, atol=1e-5
        )


def test_losses_of_three_inputs_are_trained(backend):
    """The remaining input of such a loss is given in its call."""
    model = ml.Model()
    model |= ml.Linear(3)(input="input", output="output")
    training = ml.TrainModel(model)
    training.add_loss(ml.GaussianNLL()(variance="variance"), input="output", target="target")
    shapes = {"input": [2, 4], "target": [2, 3], "variance": [2, 3]}
    compiled = ml.compile(training, backend, shapes=shapes)
    params = compiled.randomize_params(seed=1)
    x, y, v = numbers(2, 4), numbers(2, 3), positive(2, 3)
    inputs = {"input": x, "target": y, "variance": v}
    outputs, gradients = compiled.evaluate(params, inputs, output_gradients=True)
    leaves = {n: torch.tensor(backend.to_numpy(p), requires_grad=True) for n, p in params.items()}
    w, b = (leaves[n] for n in sorted(leaves, key=lambda n: n.endswith("b")))
    cost = F.gaussian_nll_loss(torch.tensor(x) @ w + b, torch.tensor(y), torch.tensor(v))
    cost.backward()
    to = backend.to_numpy
    np.testing.assert_allclose(to(outputs["final_cost"]), cost.detach(), rtol=1e-5)
    for name, leaf in leaves.items():
        np.testing.assert_allclose(to(gradients[name]), leaf.grad, rtol=1e-4, atol=1e-6)


def test_means_of_weighted_likelihoods_are_those_of_torch(backend):
    x, y = log_probs(5, 4), LABELS.astype(np.int32)
    training = ml.TrainModel(ml.Buffer())
    loss = ml.NegativeLogLikelihood(weights=[0.5, 2.0, 3.0, 1.0], ignore_index=2)
    training.add_loss(loss, input="output", target="target")
    shapes, dtypes = {"input": [5, 4], "target": [5]}, {"target": ml.int32}
    compiled = ml.compile(training, backend, shapes=shapes, dtypes=dtypes, inference=True)
    got = compiled.evaluate({}, {"input": backend.array(x), "target": y})["final_cost"]
    weights = torch.tensor([0.5, 2.0, 3.0, 1.0])
    want = F.nll_loss(torch.tensor(x), torch.tensor(LABELS), weights, ignore_index=2)
    np.testing.assert_allclose(backend.to_numpy(got), want, rtol=1e-5)


def test_halves():
    """Sums over a mask are in single precision: 4000 is beyond the integers of float16."""
    x = np.ones((1, 4000), np.float16)
    for make in CLASSES:
        compiled = ml.compile(ml.Dice(), make(dtype=ml.float16), shapes={"input": [1, 4000]})
        backend = make(dtype=ml.float16)
        inputs = {"input": backend.array(x), "target": backend.array(x)}
        got = backend.to_numpy(compiled.evaluate({}, inputs)["output"])
        np.testing.assert_array_equal(got, np.zeros(1, np.float16))


def test_the_target_of_a_loss_is_its_input_of_this_name():
    """The second input of a ranking loss is another score."""
    model = ml.Model()
    model |= ml.Linear(1, name="score")(input="x", output="score")
    training = ml.TrainModel(model)
    training.add_loss(ml.MarginRanking(margin=0.5), input="score", target="order")
    compiled = ml.compile(training, ml.NumpyBackend(), shapes={"x": [4, 3]})
    assert set(compiled.inputs) == {"x", "right", "order"}
    params = compiled.randomize_params(seed=0)
    x, right = (
        np.random.default_rng(0).standard_normal((4, 3)),
        np.random.default_rng(0).standard_normal((4, 1)),
    )
    order = np.array([[1], [-1], [1], [-1]])
    inputs = {n: v.astype(np.float32) for n, v in {"x": x, "right": right, "order": order}.items()}
    outputs = compiled.evaluate(params, inputs)
    want = torch.nn.functional.margin_ranking_loss(
        *(torch.tensor(v) for v in (outputs["score"], inputs["right"], inputs["order"])), margin=0.5
    )
    np.testing.assert_allclose(outputs["final_cost"], want, rtol=1e-6)
