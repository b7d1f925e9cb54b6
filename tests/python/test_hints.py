"""The hints in messages, and what they say was got and expected."""

import numpy as np
import pytest

import mithril as ml
from mithril.models import (
    MLP,
    Add,
    Arange,
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
    Randn,
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
    """The block applied to the outputs of a `Linear(3)` and a `Linear(4)`."""
    model = Model()
    model |= Linear(3)(input="a", output="x")
    model |= Linear(4)(input="b", output="z")
    model |= block(**terminals, output="y")
    return given(model, a=[2, 5], b=b, **shapes)


def through(*blocks):
    """The sum of a `Linear(3)`, followed by blocks, and a `Linear(4)`."""
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
    """The block applied to the output of a `Linear(3)`."""
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
        ["expected: dims that are equal or 1, aligned at the last axis"],
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
        ["`shape` has more than one unknown dim", "got: [-1, -1]", "at most one -1 or None"],
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
        ["got: [] (0 dims)", "expected: at least 1 dim"],
    ),
    "given shapes": (
        lambda: given(MatrixMultiply(), left=[2, 5], right=[3, 4]),
        ["got: 5 and 3", "hint: `right` of [5 x 4] would fit"],
    ),
    "a broadcast": (
        lambda: given(BroadcastTo((2, 4)), 2, 3),
        [
            "got: [2 x 3]",
            "expected: dims that are 1 or equal those of [2 x 4], aligned at the last axis",
        ],
    ),
    "pads": (
        lambda: given(Pad([(1, 1)]), 2, 3),
        ["`pad_width` has the wrong number", "got: 1 pairs for [2 x 3]", "a pair for each axis"],
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
        ["`blocks[1]` of `Sequential` has the wrong type", "the integer 3", "expected: a block"],
    ),
    "an activation": (
        lambda: MLP([None, "relu"], [3, 4]),
        ["`activations[1]` of `MLP` has the wrong type", 'got: the string "relu"'],
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


def trained(**options):
    model = Model()
    model |= Linear(3)(input="x", output="y")
    ml.TrainModel(model).add_loss(ml.SquaredError(), input="y", **options)


def named_twice():
    model = Model(name="net")
    model |= Linear(3, name="fc")(input="x", output="h")
    model |= Linear(2, name="fc")(input="h", output="y")


def misnamed():
    model = Model()
    model |= Linear(4)(input="x", output="g")
    model |= Relu()(input="g", output="h")
    model |= Linear(2)(input="hh", output="y")
    compiled = ml.compile(model, NUMPY)
    compiled.evaluate(compiled.randomize_params(), {"x": X})


def called_on(params, block=None):
    given(block or Linear(3, name="fc"), 2, 5).evaluate(params, {"input": X})


WEIGHTS = {"fc.weight": np.ones((3, 5), "float32"), "fc.bias": np.ones(3, "float32")}
TWO_LAYERS = MLP([Relu(), Relu()], [4, 3])
OTHERS = {
    "0.weight": np.ones((4, 5), "float32"),
    "0.bias": np.ones(4, "float32"),
    "2.weight": np.ones((3, 4), "float32"),
    "2.bias": np.ones(3, "float32"),
}
CASES |= {
    "both widths": (
        lambda: Linear(8, 3),
        ["`use_bias` of `Linear`", "hint: the input's width is inferred: `Linear(3)`"],
    ),
    "a width of PyTorch": (
        lambda: Linear(in_features=8, out_features=3),
        ["hint: the input's width is inferred; the output's is `dimension`"],
    ),
    "a class for a backend": (
        lambda: ml.compile(Relu(), ml.NumpyBackend),
        [
            "got: <class 'mithril.backends.numpy.NumpyBackend'>",
            "hint: create one with `ml.NumpyBackend()`",
        ],
    ),
    "a string for a backend": (
        lambda: ml.compile(Relu(), "numpy"),
        ["got: 'numpy'", "hint: create one with `ml.NumpyBackend()`"],
    ),
    "two blocks of one name": (
        named_twice,
        [
            "two blocks are called `fc`\n  where: the model `net`",
            'got: Linear(dimension=3, name="fc") and Linear(dimension=2, name="fc")',
            "hint: give one of them another name",
        ],
    ),
    "params of another model": (
        lambda: called_on({"embed.table": X}, Linear(3)),
        [
            "the model has no `embed.table` among its params\n  got: `embed.table`",
            "expected: `w`, `b`",
            "hint: these are params of another model: `randomize_params()` draws those of this one",
        ],
    ),
    "params of PyTorch": (
        lambda: called_on(WEIGHTS, named_alone()),
        [
            "hint: PyTorch's names, and its weights are (out, in): "
            '{"fc.w": params["fc.weight"].T, "fc.b": params["fc.bias"]}'
        ],
    ),
    "params of PyTorch under other names": (
        lambda: called_on(OTHERS, TWO_LAYERS),
        [
            '{"linear_0.w": params["0.weight"].T, "linear_0.b": params["0.bias"], '
            '"linear_1.w": params["2.weight"].T, "linear_1.b": params["2.bias"]}'
        ],
    ),
    "a word for a step": (
        lambda: trained(reduce_steps="sum"),
        ["got: str\n  expected: a list\n  hint: [Sum()]"],
    ),
    "a word in the steps": (
        lambda: trained(reduce_steps=["sum"]),
        ["a reduce step must be a block", "hint: `Sum()` is that block"],
    ),
    "an activation by its name": (
        lambda: MLP(["relu"], [3]),
        ["`activations[0]` of `MLP` has the wrong type", "hint: `Relu()` is that block"],
    ),
    "blocks one by one": (
        lambda: Sequential(Linear(4), Relu()),
        ["hint: `Sequential([Linear(dimension=4), Relu()])`"],
    ),
    "axes of a variance": (lambda: ml.Variance(axes=1), ["hint: did you mean `axis`?"]),
    "an unknown reference": (
        lambda: ml.diff(Relu(), ["numpy"], shapes={"input": [2]}, against="float46"),
        [
            "expected: numpy, torch, jax, mlx, tinygrad, cpu, c, float64\n"
            "  hint: did you mean `float64`?"
        ],
    ),
    "a block that is called with arrays": (
        lambda: Linear(3)(X),
        [
            "`Linear` cannot compute with arrays before it is compiled",
            'hint: use `ml.compile(block).evaluate(params, {"input": …})` to compute',
        ],
    ),
    "an input of another name": (
        misnamed,
        [
            "`hh` is missing from inputs\n  got: `x`\n  expected: `x`, `hh`",
            "hint: `hh` is read by block `linear_1`; did you mean `h`, an output of `relu`?",
        ],
    ),
}


def named_alone():
    model = Model()
    model |= Linear(3, name="fc")(input="input", output="y")
    return model


@pytest.mark.parametrize("block", ["Convolution2D", "Adam", "DataLoader", "no_grad", "BatchNorm"])
def test_names_of_other_libraries_get_a_hint(block):
    for module in (ml, ml.models):
        with pytest.raises(AttributeError, match=rf"has no `{block}`: .*\w") as caught:
            getattr(module, block)
        assert "did you mean" not in str(caught.value)
        with pytest.raises(ImportError, match=rf"has no `{block}`: .*\w"):
            exec(f"from {module.__name__} import {block}")
        assert not hasattr(module, block)


def test_suggestions_ignore_case():
    with pytest.raises(AttributeError, match=r"has no `sequential`: did you mean `Sequential`\?"):
        _ = ml.models.sequential


@pytest.mark.parametrize("block", ["Variance", "LogSumExp", "Sum", "Prod"])
def test_help_names_the_setting_axis(block):
    assert "`axis`" in getattr(ml, block).__doc__
    assert "`axes`" not in getattr(ml, block).__doc__


@pytest.mark.parametrize("against", ["float64", "fp64"])
def test_spellings_of_float64_are_equivalent(against):
    found = ml.diff(Relu(), ["numpy"], shapes={"input": [2]}, against=against)
    assert found.reference == "the model as it is written, in float64"


def test_models_show_their_terminals():
    model = Model(name="net")
    assert repr(model) == 'Model(name="net")'
    model |= Linear(3)(input="x", output="y")
    assert repr(model) == 'Model(name="net", x -> y, not compiled)'
    compiled = ml.compile(model, NUMPY)
    assert repr(compiled) == "CompiledModel(net, NumpyBackend(dtype=float32), x -> y)"


def test_constants_are_accepted_as_block_inputs():
    model = Model()
    model |= Relu()(input=X, output="y")
    model |= Add()(X, "y", "z")
    assert np.array_equal(ml.compile(model, NUMPY).evaluate({}, {})["z"], 2 * X)


@pytest.mark.parametrize("case", CASES)
def test_shape_errors_suggest_a_fix(case):
    program, parts = CASES[case]
    with pytest.raises(ml.MithrilError) as caught:
        program()
    said = str(caught.value)
    assert all(part in said for part in parts), said


def test_ambiguous_shape_errors_have_no_hint():
    for case in ("a batch that differs", "a broadcast", "pads", "an axis to be made"):
        with pytest.raises(ml.MithrilError) as caught:
            CASES[case][0]()
        assert "hint" not in str(caught.value)


def test_the_suggested_fix_compiles():
    model = Model()
    model |= Linear(7)(input="a", output="x")
    model |= Linear(4)(input="b", output="z")
    model |= MatrixMultiply()(left="x", right="z", output="y")
    given(model, a=[2, 5], b=[7, 5])
    given(Residual(MLP([Relu(), Relu()], [4, 5])), 2, 5)


def test_constant_index_is_asserted_once():
    compiled = item(5, "n", 3)
    assert "assert n >= 6" in compiled.code
    assert compiled.code.count("assert") == 1
    x = np.arange(24, dtype="float32").reshape(8, 3)
    assert compiled.evaluate({}, {"input": x})["z"].tolist() == [15, 16, 17]


CHAINED = {
    "a ramp": (Arange(3), "`Arange` reads nothing", "`model |= …` adds it"),
    "zeros": (Zeros([3]), "`Zeros` reads nothing", "`model |= …` adds it"),
    "numbers drawn": (Randn([3]), "`Randn` reads nothing", "`model |= …` adds it"),
}


@pytest.mark.parametrize(("block", "what", "hint"), CHAINED.values(), ids=CHAINED)
def test_blocks_without_a_standard_input_cannot_be_appended(block, what, hint):
    model = Model()
    model += Linear(3)
    with pytest.raises(ml.MithrilError) as caught:
        model += block
    assert what in str(caught.value)
    assert f"hint: {hint}" in str(caught.value)
    model |= block
    first = Model()
    first += block
    first += Relu()


def pair_of_sums():
    """A model without a standard input, so `+=` has nothing to connect."""
    inner = Model()
    inner |= Zeros([3])(output="zeros")
    inner |= Add()(left="a", right="b", output="c")
    return inner


def test_a_model_without_standard_input_is_not_chained():
    model = Model()
    model += Linear(3)(input="x", output="y")
    with pytest.raises(ml.MithrilError) as caught:
        model += pair_of_sums()
    message = str(caught.value)
    assert "has no standard input" in message
    assert "expected: connections of `a`, `b`" in message
    # A call that names the inputs makes `+=` behave like `|=`.
    model += pair_of_sums()(a="y", b="x")
    chosen = pair_of_sums()
    chosen.set_standard(input="a")
    model += chosen
    # A list of inputs has no standard input, so it must be given.
    model += Concat()(inputs=["x", "y"])
