"""Losses with layers or distances inside, and distances of all pairs of rows, against PyTorch:
results and gradients on every backend, with fixed and with open dims."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from comparing import near
from conftest import CLASSES

import mithril as ml
from mithril.errors import MithrilError

RNG = np.random.default_rng(4)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def compared(
    make: Any, block: Any, arrays: dict[str, Any], function: Any, learned: Any = (), **options: Any
) -> None:
    """Compares the first output with `function` of all arrays, and the gradients of floats."""
    backend = make()
    floats = [n for n, a in arrays.items() if a.dtype.kind == "f"]
    leaves = {n: torch.tensor(a, requires_grad=n in floats) for n, a in arrays.items()}
    want = function(*leaves.values())
    seed = numbers(*want.shape)
    want.backward(torch.tensor(seed))
    trainable = [n for n in floats if n not in learned]
    compiled = ml.compile(block, backend, trainable_keys=trainable, **options)
    params = {n: backend.array(arrays[n]) for n in floats}
    rest = {n: backend.array(a) for n, a in arrays.items() if n not in floats}
    seeds = {"output": backend.array(seed)}
    outputs, gradients = compiled.evaluate(params, rest, output_gradients=seeds)
    near(backend.to_numpy(outputs["output"]), want, 2e-5)
    for name in floats:
        near(backend.to_numpy(gradients[name]), leaves[name].grad, 1e-4)


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, np.inf])
def test_distances_of_pairs(make, p):
    block = ml.Pdist(p=p)
    for rows in (0, 1, 2, 3, 7):
        x = numbers(rows, 4)
        if rows == 7:
            x[2] = x[5]
        for dims in ([rows, 4], ["n", 4], ["n", "m"]):
            arrays = {"input": x}
            function = lambda x: torch.pdist(x, p)  # noqa: E731
            # PyTorch crashes in the gradient of no rows.
            if p == 0 or rows == 0:
                backend = make()
                compiled = ml.compile(block, backend, shapes={"input": dims})
                got = compiled.evaluate({}, {"input": backend.array(x)})["output"]
                near(backend.to_numpy(got), torch.pdist(torch.tensor(x), p), 0)
            else:
                compared(make, block, arrays, function, shapes={"input": dims})


def adaptive(theirs: Any) -> dict[str, Any]:
    """The weights of PyTorch's module by their names here."""
    own = {"w_head": theirs.head.weight}
    if theirs.head.bias is not None:
        own["b_head"] = theirs.head.bias
    for i, (first, second) in enumerate(theirs.tail):
        own |= {f"w_in_{i}": first.weight, f"w_out_{i}": second.weight}
    return {n: np.ascontiguousarray(w.detach().numpy().T) for n, w in own.items()}


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize(
    ("classes", "cutoffs", "settings"),
    [
        (10, [2, 6], {}),
        (7, [3], {"head_bias": True, "div_value": 2.0}),
        (9, [1, 2, 8], {"div_value": 1.5}),
    ],
)
def test_adaptive_softmax(make, classes, cutoffs, settings):
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(16, classes, cutoffs, **settings)
    x = numbers(6, 16)
    target = np.int64([0, classes - 1, cutoffs[0], cutoffs[0] - 1, cutoffs[-1], cutoffs[-1] - 1])
    weights = adaptive(theirs)
    leaf = torch.tensor(x, requires_grad=True)
    want = -theirs(leaf, torch.tensor(target)).output
    seed = numbers(*want.shape)
    want.backward(torch.tensor(seed))
    backend = make()
    block = ml.AdaptiveLogSoftmax(classes, cutoffs, **settings, return_log_probs=True)
    dims = [[6, 16], ["n", 16]] + [["n", "m"]] * (settings.get("div_value") != 1.5)
    for dim in dims:
        shapes = {"input": dim, "target": dim[:1]}
        compiled = ml.compile(block, backend, shapes=shapes, trainable_keys=["input"])
        assert set(compiled.params) == {"input", *weights}
        params = {n: backend.array(a) for n, a in ({"input": x} | weights).items()}
        rest = {"target": backend.array(target)}
        seeds = {"output": backend.array(seed)}
        outputs, gradients = compiled.evaluate(params, rest, output_gradients=seeds)
        near(backend.to_numpy(outputs["output"]), want, 2e-5)
        near(backend.to_numpy(outputs["log_probs"]), theirs.log_prob(torch.tensor(x)), 2e-5)
        near(backend.to_numpy(gradients["input"]), leaf.grad, 1e-4)
        own = {"w_head": theirs.head.weight.grad.T}
        for i, (first, second) in enumerate(theirs.tail):
            own |= {f"w_in_{i}": first.weight.grad.T, f"w_out_{i}": second.weight.grad.T}
        for name, gradient in own.items():
            near(backend.to_numpy(gradients[name]), gradient, 1e-4)


def test_adaptive_softmax_of_sequences_and_initial_values():
    block = ml.AdaptiveLogSoftmax(10, [2, 6])
    shapes = {"input": [2, 3, 16], "target": [2, 3]}
    compiled = ml.compile(block, ml.NumpyBackend(), shapes=shapes)
    params = compiled.randomize_params()
    assert {n: p.shape for n, p in params.items()} == {
        "w_head": (16, 4),
        "w_in_0": (16, 4),
        "w_out_0": (4, 4),
        "w_in_1": (16, 1),
        "w_out_1": (1, 4),
    }
    for name, weight in params.items():
        assert np.abs(weight).max() <= len(weight) ** -0.5, name
    x, target = numbers(2, 3, 16), RNG.integers(0, 10, (2, 3))
    got = compiled.evaluate(params, {"input": x, "target": target})["output"]
    flat = {"input": x.reshape(6, 16), "target": target.reshape(6)}
    again = ml.compile(block, ml.NumpyBackend()).evaluate(params, flat)["output"]
    np.testing.assert_allclose(got.reshape(6), again, rtol=1e-6)
    with pytest.raises(MithrilError, match="target"):
        compiled.evaluate(params, {"input": x, "target": target + 10})


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("swap", [False, True])
def test_triplets_with_a_distance(make, swap):
    arrays = {n: numbers(6, 4) for n in ("anchor", "positive", "negative")}
    distances = [
        (None, None),
        (ml.CosineSimilarity(), F.cosine_similarity),
        (ml.PairwiseDistance(p=1.0), lambda x, y: F.pairwise_distance(x, y, 1.0)),
    ]
    for distance, theirs in distances:
        block = ml.TripletMarginWithDistance(distance, margin=0.7, swap=swap)
        options = {"margin": 0.7, "swap": swap, "reduction": "none"}
        function = lambda x, y, z, d=theirs, o=options: F.triplet_margin_with_distance_loss(  # noqa: E731
            x, y, z, distance_function=d, **o
        )
        compared(make, block, arrays, function)
        compared(make, block, arrays, function, shapes={n: ["n", 4] for n in arrays})


@pytest.mark.parametrize("make", CLASSES)
def test_a_learned_distance_is_shared(make):
    """Both distances have the same params, whose gradients are added."""
    model = ml.Model()
    model |= ml.Bilinear(1, use_bias=False)(left="a", right="b", output="own")
    model |= ml.Squeeze(1)(input="own", output="output")
    block = ml.TripletMarginWithDistance(model, margin=0.5)
    arrays = {n: numbers(6, 4) for n in ("anchor", "positive", "negative")}
    arrays["bilinear.w"] = numbers(1, 4, 4)

    def function(x: Any, y: Any, z: Any, w: Any) -> Any:
        return F.triplet_margin_with_distance_loss(
            x,
            y,
            z,
            distance_function=lambda a, b: F.bilinear(a, b, w)[:, 0],
            margin=0.5,
            reduction="none",
        )

    probe = ml.compile(block, make(), shapes={n: list(arrays[n].shape) for n in list(arrays)[:3]})
    (name,) = probe.params
    arrays = {n if n != "bilinear.w" else name: a for n, a in arrays.items()}
    compared(make, block, arrays, function, learned=[name])


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("options", [False, True])
def test_linear_cross_entropy(make, options):
    target = np.int64([0, 2, 1, 2, 0])
    arrays = {"input": numbers(5, 4), "target": target, "linear.w": numbers(4, 3)}
    settings: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    if options:
        settings = {"use_bias": True, "label_smoothing": 0.2, "ignore_index": 1}
        settings["weights"] = [0.5, 1.0, 2.0]
        theirs = {"label_smoothing": 0.2, "ignore_index": 1, "weight": torch.tensor([0.5, 1, 2])}
        arrays["linear.b"] = numbers(3)
    block = ml.LinearCrossEntropy(3, **settings)

    def function(x: Any, y: Any, w: Any, b: Any = None) -> Any:
        return F.linear_cross_entropy(x, w.T, y, linear_bias=b, reduction="none", **theirs)

    learned = ["linear.w", "linear.b"]
    compared(make, block, arrays, function, learned, dtypes={"target": ml.int64})
    shapes = {"input": ["n", "m"], "target": ["n"]}
    compared(make, block, arrays, function, learned, shapes=shapes)
    if not options:
        return
    sizes = {"input": numbers(5, 4), "target": RNG.integers(0, 3, (5, 2, 3))}
    sizes |= {"linear.w": numbers(4, 18), "linear.b": numbers(18)}

    def several(x: Any, y: Any, w: Any, b: Any) -> Any:
        w, b = w.T.reshape(3, 2, 3, 4), b.reshape(3, 2, 3)
        return F.linear_cross_entropy(x, w, y, linear_bias=b, reduction="none", **theirs)

    block = ml.LinearCrossEntropy(3, sizes=(2, 3), **settings)
    compared(make, block, sizes, several, learned)
    parts = np.abs(numbers(5, 3))
    arrays = {"input": numbers(5, 4), "linear.w": numbers(4, 3), "target": parts}

    def shares(x: Any, w: Any, y: Any) -> Any:
        return F.linear_cross_entropy(x, w.T, y, reduction="none")

    block = ml.LinearCrossEntropy(3)
    shapes = {"input": ["n", 4], "target": ["n", 3]}
    dtypes = {"target": ml.float32}
    compared(make, block, arrays, shares, learned, shapes=shapes, dtypes=dtypes)


def message(build: Any, **shapes: Any) -> str:
    with pytest.raises(MithrilError) as caught:
        ml.compile(build(), ml.NumpyBackend(), shapes=shapes)
    return str(caught.value)


def test_mistakes_are_explained():
    text = message(ml.Pdist, input=[3])
    assert "`Pdist` takes rows of a matrix" in text
    for cutoffs in ([], [4, 2], [2, 2], [10], [3, 11]):
        text = message(lambda cutoffs=cutoffs: ml.AdaptiveLogSoftmax(10, cutoffs))
        assert "`cutoffs` of `AdaptiveLogSoftmax` are not in order" in text
        assert "from 1 to 9" in text
    build = lambda: ml.AdaptiveLogSoftmax(10, [2, 6])  # noqa: E731
    text = message(build, input=[3, 8], target=[3])
    assert "cluster 1 would have a width of 0" in text
    text = message(build, input=[3, 32], target=[4])
    assert "`target` does not match `input`" in text
    build = lambda: ml.AdaptiveLogSoftmax(10, [2, 6], div_value=1.5)  # noqa: E731
    text = message(build, input=["n", "m"], target=["n"])
    assert "the width of a cluster is not known" in text
    text = message(lambda: ml.TripletMarginWithDistance(ml.Relu()))
    assert "a distance is a block of two inputs" in text
    assert "`Relu`, which has 1" in text
