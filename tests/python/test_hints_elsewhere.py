"""The hints for users of other libraries, and the errors for what these take otherwise."""

import re

import pytest

import mithril as ml
from mithril.models import LayerNorm, Pad, Relu, Sequential

NUMPY = ml.NumpyBackend()


def given(block, *shape):
    return ml.compile(block, NUMPY, shapes={"input": list(shape)})


def looped(block, **settings):
    """The block around `Relu()`, compiled for a matrix."""
    return given(block(Relu(), **settings), 2, 3)


CASES = {
    "the width of a layer norm": (
        lambda: LayerNorm(64),
        [
            "`eps` of `LayerNorm` is out of range\n  got: the integer 64\n"
            "  expected: a number below 1, unless by name: eps=64\n"
            "  hint: the input's width is inferred: `LayerNorm()`"
        ],
    ),
    "the shape of a layer norm": (
        lambda: LayerNorm((8, 8)),
        [
            "`eps` of `LayerNorm` has the wrong type",
            "hint: the input's sizes are inferred: `LayerNorm(axis=(-2, -1))`",
        ],
    ),
    "the channels of a group norm": (
        lambda: ml.GroupNorm(8, 64),
        ["`eps` of `GroupNorm`", "hint: the input's width is inferred: `GroupNorm(8)`"],
    ),
    "the channels of a batch norm": (
        lambda: ml.BatchNorm2d(64),
        [
            "`momentum` of `BatchNorm2d` is out of range",
            "expected: a number from 0 to 1",
            "hint: the input's width is inferred: `BatchNorm2d()`",
        ],
    ),
    "one channel of a batch norm": (
        lambda: ml.BatchNorm2d(1),
        ["hint: the input's width is inferred: `BatchNorm2d()`"],
    ),
    "windows of padding alone": (
        lambda: ml.MaxPool2d(2, padding=2),
        [
            "`padding` is too large for the windows",
            "got: 2, for windows that span 2",
            "expected: at most 1, half of a window",
        ],
    ),
    "more padding than a mean takes": (
        lambda: ml.AvgPool1d(2, padding=[(0, 2)]),
        ["got: 0 and 2, for windows that span 2", "expected: at most 2 on both sides together"],
    ),
    "a pooling of the channels": (
        lambda: given(ml.AdaptiveAvgPool((2, 2, 2, 2)), 1, 1, 4, 4),
        ["`output_size` is for more axes than `input`", "got: a list of 4, for [1 x 1 x 4 x 4]"],
    ),
    "a norm of the channels": (
        lambda: given(ml.LpPool(2, (2, 2, 2)), 2, 4, 4),
        ["`kernel_size` is for more axes than `input`"],
    ),
    "a weight for each class": (
        lambda: ml.CrossEntropy(weight=[1.0, 2.0]),
        ["hint: did you mean `weights`?"],
    ),
    "a batch axis that is not there": (
        lambda: looped(ml.vmap, axis=3),
        ["`input` has no axis 3", "hint: `axis` may be a dict by input"],
    ),
    "an axis of slices that is not there": (
        lambda: looped(ml.Map, axis=3),
        ["`input` has no axis 3", "hint: `fixed` names the inputs that are the same in all calls"],
    ),
    "an axis of steps that is not there": (
        lambda: looped(ml.Scan, axis=3),
        ["`input` has no axis 3", "hint: `over` names the inputs"],
    ),
    "the axes of JAX": (
        lambda: looped(ml.vmap, in_axes=0),
        ["`vmap` has no keyword `in_axes`", "hint: it is called `axis` here", "E0402"],
    ),
    "a keyword of vmap misspelt": (
        lambda: looped(ml.vmap, outaxis=0),
        ["hint: did you mean `out_axis`?"],
    ),
    "the axes of JAX for a map": (
        lambda: looped(ml.Map, in_axes=0),
        ["`Map` has no parameter `in_axes`", "hint: it is called `axis` here"],
    ),
    "an approximation by its name": (
        lambda: ml.Gelu(approximate="tanh"),
        ["hint: `approximate=True` is the tanh approximation"],
    ),
    "a mode of padding": (
        lambda: Pad([(1, 1)], mode="reflect"),
        ["hint: `ReflectionPad`, `ReplicationPad` and `CircularPad` are the other modes"],
    ),
    "experts of a token": (lambda: ml.MoE(4, top_k=2), ["hint: it is called `k` here"]),
    "the limit of a loop": (
        lambda: ml.While(Relu(), Relu(), maxiter=3),
        ["hint: it is called `max_steps` here"],
    ),
    "a normalized shape": (
        lambda: LayerNorm(normalized_shape=64),
        ["hint: the input's sizes are inferred: `axis` names the axes"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_errors_have_a_hint(case):
    program, parts = CASES[case]
    with pytest.raises(ml.MithrilError) as caught:
        program()
    said = str(caught.value)
    assert all(part in said for part in parts), said


FUNCTIONS = {
    "BCELoss": '`BinaryCrossEntropy(input_type="probs")`',
    "binary_cross_entropy": '`BinaryCrossEntropy(input_type="probs")`',
    "BCEWithLogitsLoss": "`BinaryCrossEntropy` is the loss, of logits",
    "binary_cross_entropy_with_logits": "`BinaryCrossEntropy` is the loss, of logits",
    "SmoothL1Loss": "`Huber(delta=beta)` is `beta` times the loss",
    "upsample_nearest": "`Upsample` is that block",
    "max_pool2d_with_indices": "`MaxPool2d`",
    "erfc": "`1 - x.erf()` is that function",
    "zeta": "there is no block for it: `ml.custom`",
    "lstsq": "`TriangularSolve(lower=False)` solves `r @ x = q.T @ b`",
    "solve_triangular": "`TriangularSolve` is that block",
    "irfftn": "`InverseRealFFT`",
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_pytorch_get_a_hint(name):
    with pytest.raises(AttributeError, match=f"has no `{name}`: ") as caught:
        getattr(ml, name)
    assert FUNCTIONS[name] in str(caught.value)


def test_numbers_of_norms_that_are_no_widths_are_accepted():
    assert repr(LayerNorm(1e-5)) == "LayerNorm()"
    assert repr(LayerNorm(eps=1)) == "LayerNorm(eps=1.0)"
    assert repr(ml.GroupNorm(8)) == "GroupNorm(groups=8)"
    assert repr(ml.BatchNorm2d(momentum=1.0)) == "BatchNorm2d(momentum=1.0)"


def test_a_mixture_of_experts_is_called_moe():
    names = given(Sequential([ml.MoE(2, k=1)]), 2, 3, 4).randomize_params(seed=0)
    assert all(name.startswith("moe.") for name in names)


ZOO = [
    name
    for name in sorted({*ml.zoo.__all__} - {*ml._core.block_names()})
    if name not in ("Weights", "load")
]


@pytest.mark.parametrize("name", [*ZOO, "GPT", "Bert", "resnet50", "vit"])
def test_models_of_the_zoo_get_a_hint(name):
    with pytest.raises(AttributeError, match=r"`mithril\.zoo\.\w+\(.*\)` is") as caught:
        getattr(ml, name)
    model = re.search(r"zoo\.(\w+)", str(caught.value))
    assert hasattr(ml.zoo, model[1])
