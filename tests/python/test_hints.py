"""What a message says would mend it, and what it says was got and expected."""

import numpy as np
import pytest

import mithril as ml
from mithril.models import (
    MLP,
    Add,
    BroadcastTo,
    Concat,
    Dropout,
    Einsum,
    ExpandDims,
    Eye,
    Flip,
    LayerNorm,
    Linear,
    MatrixMultiply,
    Model,
    Pad,
    PermuteTensor,
    Relu,
    Reshape,
    Residual,
    ScaledDotProduct,
    Sequential,
    Split,
    Stack,
    Sum,
    Where,
    Zeros,
)

NUMPY = ml.NumpyBackend()


def given(block, *shape, **shapes):
    return ml.compile(block, NUMPY, shapes=shapes or {"input": list(shape)})


def two(block, terminals, b=(2, 5), **shapes):
    """The block on a `Linear(3)` and a `Linear(4)`."""
    model = Model()
    model |= Linear(3)(input="a", output="x")
    model |= Linear(4)(input="b", output="z")
    model |= block(**terminals, output="y")
    return given(model, a=[2, 5], b=b, **shapes)


def through(*blocks):
    """The sum of a `Linear(3)` that goes through blocks and a `Linear(4)`."""
    model = Model()
    model |= Linear(3)(input="a", output="x")
    for i, block in enumerate(blocks):
        model |= block(input=f"x{i or ''}", output=f"x{i + 1}")
    model |= Linear(4)(input="b", output="z")
    model |= Add()(left="z", right=f"x{len(blocks)}", output="y")
    return given(model, a=[2, 5], b=[2, 5])


def nested():
    model = Model()
    model |= Relu()(input="input", output="h")
    model |= Dropout(0.5)(input="h", output="output")
    outer = Model()
    outer |= model(input="input", output="output")
    return outer


def one(block):
    """The block on a `Linear(3)`."""
    model = Model()
    model |= Linear(3)(input="a", output="x")
    model |= block(input="x", output="y")
    return given(model, a=[2, 5])


def part(index):
    model = Model()
    model |= Split(2)(input="x", output="y")
    return model.y[index]


def twice():
    model = Model()
    model |= Relu()(input="x", output="y")
    model |= Relu()(input="x", output="y")


def called(params, inputs):
    model = given(Linear(3), 2, 5)
    own = model.randomize_params(seed=0)
    model.evaluate(inputs(own), params(own))


def item(index, *shape):
    model = Model()
    model |= Relu()(input="input", output="y")
    model |= Relu()(input=model.y[index], output="z")
    return given(model, *shape)


def indexed(n):
    item(5, "n", 3).evaluate({}, {"input": np.ones((n, 3), "float32")})


X = np.ones((2, 5), "float32")
CONDITION = ml.IOKey("c", dtype=ml.bool)
LISTED = {"inputs": ["x", "z"]}
MADE = "`linear_{}` as Linear(dimension={}) would fit"
CASES = {
    "a product": (
        lambda: two(MatrixMultiply(), {"left": "x", "right": "z"}, b=(7, 5)),
        ["got: 3 and 7", "expected: equal sizes", "hint: " + MADE.format(0, 7)],
    ),
    "a choice": (
        lambda: two(Where(), {"cond": CONDITION, "input1": "x", "input2": "z"}, c=[2, 1]),
        ["hint: " + MADE.format(1, 3)],
    ),
    "attention": (
        lambda: two(ScaledDotProduct(), {"query": "x", "key": "z", "value": "z"}),
        ["got: 3 and 4", "expected: equal sizes", "hint: " + MADE.format(1, 3)],
    ),
    "parts": (
        lambda: two(Concat(axis=0), LISTED),
        ["got: 3 and 4", "expected: equal sizes", "hint: " + MADE.format(1, 3)],
    ),
    "a stack": (
        lambda: two(Stack(), LISTED),
        ["got: 3 and 4", "expected: equal sizes", "hint: " + MADE.format(1, 3)],
    ),
    "an equation": (
        lambda: two(Einsum("ij,jk->ik"), LISTED),
        ["got: 3 and 2", "expected: equal sizes", "hint: " + MADE.format(0, 2)],
    ),
    "a batch that differs": (
        lambda: two(Add(), {"left": "x", "right": "z"}, b=(3, 5)),
        ["expected: dims that are equal, or 1, from the back"],
    ),
    "another number of elements": (
        lambda: one(Reshape([5, 2])),
        ["got: 6 and 10", "expected: equal sizes", "hint: `linear` as Linear(dimension=5)"],
    ),
    "elements that do not divide": (
        lambda: one(Reshape([5, -1])),
        ["got: 6 elements", "expected: a multiple of 5", "hint: `linear` as Linear(dimension=5)"],
    ),
    "two open dims": (
        lambda: one(Reshape([-1, -1])),
        ["`shape` leaves more than one dim open", "got: [-1, -1]", "at most one -1 or None"],
    ),
    "a residual": (
        lambda: given(Residual(MLP([Relu(), Relu()], [4, 3])), 2, 5),
        ["hint: `mlp` as MLP(dimensions=[4, 5]) would fit"],
    ),
    "what goes through a block": (
        lambda: through(Relu(), LayerNorm()),
        ["right: tensor<2 x 3 x f32> from `layer_norm.output`", "hint: " + MADE.format(0, 4)],
    ),
    "what goes through models": (
        lambda: through(nested(), Dropout(0.1)),
        ["hint: `linear_0` as Linear(dimension=4) would fit"],
    ),
    "what is made in a model": (
        lambda: through(Sequential([Linear(3), Relu()])),
        ["hint: `sequential.linear` as Linear(dimension=4) would fit"],
    ),
    "what is turned": (lambda: through(PermuteTensor((1, 0))), ["got: [2 x 4] and [3 x 2]"]),
    "a scalar in a product": (
        lambda: ml.compile(MatrixMultiply(), NUMPY, shapes={"left": [], "right": [3]}),
        ["got: [] (0 dims)", "expected: 1 dim or more"],
    ),
    "given shapes": (
        lambda: given(MatrixMultiply(), left=[2, 5], right=[3, 4]),
        ["got: 5 and 3", "hint: `right` of [5 x 4] would fit"],
    ),
    "a broadcast": (
        lambda: given(BroadcastTo((2, 4)), 2, 3),
        ["got: [2 x 3]", "expected: dims that are 1 or those of [2 x 4], from the back"],
    ),
    "pads": (
        lambda: given(Pad([(1, 1)]), 2, 3),
        ["`pad_width` has another number", "got: 1 pairs for [2 x 3]", "a pair for each axis"],
    ),
    "a permutation": (
        lambda: given(PermuteTensor((0, 0)), 2, 3),
        ["got: [0, 0]", "expected: each of 2 axes once"],
    ),
    "an axis to be made": (
        lambda: given(ExpandDims(5), 2, 3),
        ["got: axis 5, inserted into [2 x 3]", "expected: an axis from -3 to 2"],
    ),
    "an axis named twice": (
        lambda: given(Sum(axis=(0, -2)), 2, 3),
        ["Incompatible shapes during compilation: axis -2 is named twice", "axes that differ"],
    ),
    "a flip": (lambda: given(Flip((0, 0)), 2, 3), ["Incompatible shapes", "axes that differ"]),
    "a negative size": (
        lambda: ml.compile(Eye(-2), NUMPY),
        ["got: [-2 x -2]", "expected: dims of at least 0"],
    ),
    "a negative dim": (
        lambda: Zeros([3, -2]),
        ["`shape[1]` of `Zeros` is out of range", "got: the integer -2"],
    ),
    "an index": (
        lambda: item(5, 2, 3),
        ["the index is out of range", "expected: an index from -2 to 1"],
    ),
    "an index at run time": (lambda: indexed(2), ["got: n = 2, axis 0", "expected: n >= 6"]),
    "a part": (lambda: part(3), ["where: `Split`", "got: 3", "expected: an index from -2 to 1"]),
    "a part by name": (lambda: part("a"), ["got: 'a'", "expected: an integer"]),
    "two writers": (twice, ["two blocks write `y`", "where: the model `Model`"]),
    "a beginning of a name": (lambda: Linear(dim=3), ["did you mean `dimension`?"]),
    "a word of a name": (lambda: Linear(3, bias=False), ["did you mean `use_bias`?"]),
    "a longer name": (lambda: LayerNorm(epsilon=1), ["did you mean `eps`?"]),
    "an item of a list": (
        lambda: Sequential([Relu(), 3]),
        ["`blocks[1]` of `Sequential` is of another kind", "the integer 3", "expected: a block"],
    ),
    "an activation": (
        lambda: MLP([None, "relu"], [3, 4]),
        ["`activations[1]` of `MLP` is of another kind", 'got: the string "relu"'],
    ),
    "params for inputs": (
        lambda: called(lambda own: own, lambda own: {"input": X}),
        ["the model has no `w` among its inputs", "hint: `w` is one of params"],
    ),
    "an array for a dict": (
        lambda: ml.compile(Dropout(), NUMPY, constant_keys=np.ones((20, 30))),
        ["got: ndarray of shape (20, 30)"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_would_mend_it(case):
    program, parts = CASES[case]
    with pytest.raises(ml.MithrilError) as caught:
        program()
    said = str(caught.value)
    assert all(part in said for part in parts), said


def test_no_hint_where_none_is_plain():
    for case in ("a batch that differs", "a broadcast", "pads", "an axis to be made"):
        with pytest.raises(ml.MithrilError) as caught:
            CASES[case][0]()
        assert "hint" not in str(caught.value)


def test_the_mended_model_compiles():
    model = Model()
    model |= Linear(7)(input="a", output="x")
    model |= Linear(4)(input="b", output="z")
    model |= MatrixMultiply()(left="x", right="z", output="y")
    given(model, a=[2, 5], b=[7, 5])
    given(Residual(MLP([Relu(), Relu()], [4, 5])), 2, 5)


def test_an_index_that_is_there_is_asserted_plainly():
    compiled = item(5, "n", 3)
    assert "assert n >= 6" in compiled.code
    assert compiled.code.count("assert") == 1
    x = np.arange(24, dtype="float32").reshape(8, 3)
    assert compiled.evaluate({}, {"input": x})["z"].tolist() == [15, 16, 17]
