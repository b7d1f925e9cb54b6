"""Invalid settings of blocks: each is refused where it is written."""

import numpy as np
import pytest

import mithril as ml
from mithril.models import (
    Arange,
    BatchNorm1d,
    BinaryCrossEntropy,
    Clamp,
    CrossEntropy,
    Dropout,
    Elu,
    Huber,
    LayerNorm,
    LeakyRelu,
    Linear,
    Linspace,
    Model,
    Norm,
    PositionalEncoding,
    RandUniform,
    Relu,
    RMSNorm,
    RotaryEmbedding,
    Softplus,
    SquaredError,
    Variance,
)

NAN, INF = float("nan"), float("inf")
CASES = {
    LayerNorm: [{"eps": -1e-5}, {"eps": NAN}],
    RMSNorm: [{"eps": -1.0}],
    BatchNorm1d: [{"eps": -1.0}, {"momentum": 3}, {"momentum": -0.1}],
    Clamp: [{"min": NAN}, {"max": NAN}, {"max": 1, "min": 3}],
    Softplus: [{"beta": 0}, {"beta": -1.0}, {"beta": INF}],
    Huber: [{"delta": 0}, {"delta": -1.0}],
    BinaryCrossEntropy: [{"pos_weight": -1.0}, {"pos_weight": NAN}],
    CrossEntropy: [{"weights": [1.0, NAN]}, {"label_smoothing": 2}],
    LeakyRelu: [{"slope": NAN}, {"slope": INF}],
    Elu: [{"alpha": NAN}],
    Norm: [{"p": NAN}],
    RotaryEmbedding: [{"base": 0}, {"base": -1.0}],
    PositionalEncoding: [{"base": -1.0}, {"base": INF}],
    RandUniform: [{"high": -1, "shape": [2]}, {"low": NAN, "shape": [2]}],
    Variance: [{"correction": NAN}],
    Linspace: [{"start": NAN, "stop": 1, "num": 3}],
    Dropout: [{"rate": 1.5}],
}


@pytest.mark.parametrize(
    ("block", "settings"), [(block, each) for block, all_ in CASES.items() for each in all_]
)
def test_numbers_out_of_range(block, settings):
    name = next(iter(settings))
    item = r"\[1\]" if name == "weights" else ""
    with pytest.raises(
        ml.MithrilError, match=rf"^`{name}{item}` of `{block.__name__}` is out of range\n  got"
    ):
        block(**settings)


def test_arange_requires_stop():
    with pytest.raises(ml.MithrilError) as caught:
        Arange()
    assert caught.value.args[0] == (
        "`Arange` needs `stop`\n  expected: an integer or a connection"
        "\n  hint: Arange(5) counts from 0 to 4, Arange(2, 5) from 2 to 4"
    )
    for block, want in [(Arange(3), [0, 1, 2]), (Arange(0), []), (Arange(stop=2), [0, 1])]:
        out = ml.compile(block, ml.NumpyBackend()).evaluate({}, {})["output"]
        np.testing.assert_array_equal(out, want)


def test_a_layer_beyond_memory(backend):
    for shapes in (None, {"input": [2, 3]}):
        with pytest.raises(ml.MithrilError, match="more elements than any memory holds"):
            ml.compile(Linear(2**62), backend, shapes=shapes)
    block = Linear(2**40, use_bias=False)
    with pytest.raises(ml.MithrilError, match=r"where: (the param|block) `?\w*"):
        ml.compile(block, backend, shapes={"input": [1, 8]}).randomize_params()
    # The size is known only at the first call.
    compiled = ml.compile(Linear(2**41, use_bias=False), backend)
    with pytest.raises(ml.MithrilError, match="more elements than any memory holds"):
        compiled.evaluate(compiled.randomize_params(), {"input": backend.ones(1, 7)})


def test_messages_say_the_range():
    with pytest.raises(ml.MithrilError) as caught:
        LayerNorm(eps=-1)
    assert caught.value.args[0] == (
        "`eps` of `LayerNorm` is out of range\n  got: the integer -1\n"
        "  expected: a finite number of at least 0"
    )
    with pytest.raises(ml.MithrilError) as caught:
        Clamp(3, 1)
    assert caught.value.args[0] == (
        "`max` of `Clamp` is out of range\n  got: 1.0, and 3.0 as `min`\n"
        "  expected: a number of at least `min`"
    )
    with pytest.raises(ml.MithrilError) as caught:
        Linear(0)
    assert caught.value.args[0] == (
        "`dimension` of `Linear` is out of range\n  got: the integer 0\n"
        "  expected: an integer of at least 1"
    )


@pytest.mark.parametrize("coef", [NAN, INF])
def test_coefficients_are_finite(coef):
    model = Model()
    model |= Relu()(input="x", output="y")
    train = ml.TrainModel(model)
    with pytest.raises(ml.MithrilError, match=r"^`coef` is out of range\n  got"):
        train.add_loss(SquaredError(), coef=coef, input="y")


def test_settings_at_the_ends_of_ranges_are_valid():
    x = np.array([[-2.0, 0.5, 3.0]], "float32")
    cases = [
        (Clamp(1, 1), np.ones_like(x)),
        (Clamp(max=INF, min=0), np.maximum(x, 0)),
        (Norm(p=INF, axis=1), [3]),
        (Norm(p=-INF, axis=1), [0.5]),
        (RMSNorm(eps=0), x / np.sqrt(np.mean(x * x))),
    ]
    for block, want in cases:
        compiled = ml.compile(block, ml.NumpyBackend(), shapes={"input": [1, 3]})
        got = compiled.evaluate(compiled.randomize_params(seed=1), {"input": x})["output"]
        np.testing.assert_allclose(got, want, rtol=1e-6)
