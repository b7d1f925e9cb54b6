"""The messages for invalid programs, one line of a program each."""

import pickle
import threading

import numpy as np
import pytest

import mithril as ml
from mithril.models import (
    F1,
    L2,
    MLP,
    Accuracy,
    BatchNorm1d,
    Buffer,
    Concat,
    CrossEntropy,
    Dropout,
    Linear,
    Max,
    Mean,
    Model,
    Relu,
    Reshape,
    Sequential,
    SquaredError,
)

NUMPY = ml.NumpyBackend()
X = np.ones((2, 3), "float32")


def compiled(block, shapes=None, **options):
    return ml.compile(block, NUMPY, shapes=shapes or {}, **options)


def with_constant(value, dtype, operator="+"):
    model = Model()
    model |= Buffer()(input=ml.IOKey("x", dtype=dtype), output="y")
    y = model.y
    model |= Buffer()(input=y + value if operator == "+" else y > value, output="z")
    return compiled(model, {"x": [2]})


def connected() -> Model:
    model = Model()
    model |= Relu()(input="x", output="y")
    return model


def joined() -> Model:
    model = Model()
    model |= Linear(3)(input="a", output="x")
    model |= Linear(2)(input="b", output="z")
    model |= Concat(axis=-1)(inputs=["x", "z"], output="y")
    return model


def differentiated(gradients):
    model = compiled(Linear(1), {"input": [2, 3]})
    params = model.randomize_params(seed=1)
    return model.evaluate(params, {"input": X}, output_gradients=gradients)


def trained(loss, **options):
    ml.TrainModel(connected()).add_loss(loss, **options)


def unreduced(**options) -> ml.TrainModel:
    model = ml.TrainModel(connected())
    model.add_loss(SquaredError(), reduce_steps=[], input="y", **options)
    return model


CASES = {
    "an integer constant out of range": (
        lambda: with_constant(1000, ml.int8),
        "the value 1000 of `right` does not fit i8\n  where: block `add` (Add)\n"
        "  left: tensor<2 x i8> from `buffer_0.output`\n"
        "  right: 1000 from a constant\n  got: an integer out of range\n"
        "  expected: -128 to 127: integers do not wrap silently\n"
        "  hint: cast the other operands to a wider dtype with `Cast`",
    ),
    "a negative constant": (
        lambda: with_constant(-1, ml.uint8),
        "the value -1 of `right` does not fit u8",
    ),
    "a comparison": (
        lambda: with_constant(-1, ml.uint8, ">"),
        "the value -1 of `right` does not fit u8",
    ),
    "a long constant": (lambda: with_constant(2**40, ml.int32), "the value 1099511627776 of"),
    "a constant of 64 bits": (
        lambda: with_constant(2**63, ml.int64),
        "the value 9223372036854775808",
    ),
    "a constant of more": (lambda: with_constant(2**70, ml.int64), "the value"),
    "an expression as a dim": (
        lambda: compiled(Linear(2), {"input": ["2*b", 3]}),
        'Incompatible shapes during compilation: this is not a name of a dim\n  got: "2*b"\n'
        '  expected: ASCII letters, digits and underscores, such as "batch"; a size; None\n'
        "  hint: name only the dims of inputs: dims that follow from others are inferred",
    ),
    "a dim with a NUL": (
        lambda: compiled(Linear(2), {"input": ["a\0b", 3]}),
        'Incompatible shapes during compilation: this is not a name of a dim\n  got: "a\\0b"\n',
    ),
    "a constraint as a dim": (
        lambda: compiled(Linear(2), {"input": ["batch <= 4", 3]}),
        "Incompatible shapes during compilation: this is not a name of a dim",
    ),
    "scores of one axis": (
        lambda: compiled(F1(), {"input": [6]}),
        "Incompatible shapes during compilation: the scores have only one axis\n"
        "  where: block `f1`",
    ),
    "scores of one axis, for accuracy": (
        lambda: compiled(Accuracy(), {"input": [6]}),
        "Incompatible shapes during compilation: the scores have only one axis",
    ),
    "a batch of one": (
        lambda: compiled(BatchNorm1d(), {"input": [1, 3]}),
        "Incompatible shapes during compilation: `BatchNorm1d` needs at least two numbers",
    ),
    "no parts": (
        lambda: compiled(Concat()(inputs=[], output="y")),
        "`inputs` of `Concat` takes a list of connections, but nothing was given",
    ),
    "classes in a list": (
        lambda: MLP([Relu], [3]),
        "`activations[0]` has the wrong type\n  got: the class Relu\n"
        "  expected: a block or None\n  hint: call the class: `Relu(…)`",
    ),
    "classes in sequence": (
        lambda: Sequential([Relu]),
        "`blocks[0]` has the wrong type\n  got: the class Relu\n  expected: a block\n"
        "  hint: call the class: `Relu(…)`",
    ),
    "a class as a loss": (
        lambda: trained(CrossEntropy),
        "`loss` must be a block\n  got: the class CrossEntropy\n  expected: a block or a model\n"
        "  hint: call the class: `CrossEntropy(…)`",
    ),
    "nothing to train": (
        lambda: ml.TrainModel(None),
        "`TrainModel` trains a model\n  got: NoneType\n  expected: a block or a model",
    ),
    "the truth of a connection": (
        lambda: bool(connected().y > 0),
        "a connection has no truth value before a call",
    ),
    "inputs that are none": (
        lambda: compiled(Dropout(0.5)).evaluate({}, None),
        "`inputs` must be a dict of arrays by name\n  got: NoneType",
    ),
    "a keyword of a loss": (
        lambda: trained(SquaredError(), reduce_step=[Mean()]),
        "Unexpected argument: `add_loss` has no keyword `reduce_step`\n  expected: `loss`, "
        "`reduce_steps`, `coef`, `input`, `target`\n  hint: did you mean `reduce_steps`?",
    ),
    "a terminal of a loss": (
        lambda: trained(ml.GaussianNLL(), variance="v"),
        "Unexpected argument: `add_loss` has no keyword `variance`\n  expected: `loss`, "
        "`reduce_steps`, `coef`, `input`, `target`\n"
        "  hint: `variance` is a terminal of the block: GaussianNLL(…)(variance=…)",
    ),
    "a misspelt terminal of a loss": (
        lambda: trained(ml.GaussianNLL(), varianse="v"),
        "Unexpected argument: `add_loss` has no keyword `varianse`\n  expected: `loss`, "
        "`reduce_steps`, `coef`, `input`, `target`\n  hint: did you mean the terminal `variance`: "
        "GaussianNLL(…)(variance=…)",
    ),
    "no terminal of a loss": (
        lambda: trained(ml.GaussianNLL(), labels="v"),
        "Unexpected argument: `add_loss` has no keyword `labels`\n  expected: `loss`, "
        "`reduce_steps`, `coef`, `input`, `target`\n  hint: the terminals of `GaussianNLL` are "
        "`input`, `target`, `variance`: "
        "GaussianNLL(…)(variance=…)",
    ),
    "a keyword of a regularizer": (
        lambda: ml.TrainModel(Linear(1)).add_regularization(L2(), coeff=0.1, input="w"),
        "Unexpected argument: `add_regularization` has no keyword `coeff`\n  expected: "
        "`regularizer`, `coef`, `input`\n  hint: did you mean `coef`?",
    ),
    "a regularizer of nothing": (
        lambda: ml.TrainModel(Linear(1)).add_regularization(L2(), coef=0.1),
        "Unexpected argument: `add_regularization` needs `input`\n  got: nothing",
    ),
    "a keyword of a metric": (
        lambda: ml.TrainModel(Linear(1)).add_metric(Accuracy(), nam="a"),
        "Unexpected argument: `add_metric` has no keyword `nam`",
    ),
    "a keyword of the combiner": (
        lambda: ml.TrainModel(Linear(1)).set_loss_combiner(combine=Mean()),
        "Unexpected argument: `set_loss_combiner` has no keyword `combine`\n"
        "  expected: `combiner`\n  hint: did you mean `combiner`?",
    ),
    "a loss of many numbers": (
        lambda: compiled(unreduced(coef=0.5), {"x": [2]}),
        "Incompatible shapes during compilation: a value has a different shape than stated\n"
        "  got: [2] from `squared_error.output`\n  expected: []\n"
        "  hint: reduce the loss to one number: `reduce_steps=[Mean()]`",
    ),
    "params that are none": (
        lambda: compiled(Relu()).evaluate(None, {}),
        "`params` must be a dict of arrays by name\n  got: NoneType",
    ),
    "shapes in a list": (
        lambda: ml.compile(Relu(), NUMPY, shapes=[2, 3]),
        "`shapes` must be a dict of shapes by name\n  got: [2, 3]",
    ),
    "constants in a list": (
        lambda: ml.compile(Relu(), NUMPY, constant_keys=["b"]),
        "`constant_keys` must be a dict of values by name\n  got: ['b']",
    ),
    "a name that is a number": (
        lambda: Relu(name=5),
        "`name` must be the name of the block\n  got: int\n  expected: a string",
    ),
    "an integer of 65 bits": (
        lambda: Linear(2**64),
        "`dimension` does not fit into 64 bits\n  got: 18446744073709551616",
    ),
    "no blocks in sequence": (
        lambda: Sequential([]),
        "`Sequential` needs at least one block\n  got: an empty list",
    ),
    "an array of nothing": (
        lambda: NUMPY.array(None),
        "this is not an array of numbers\n  got: NoneType\n  expected: a number, nested lists",
    ),
    "gradients of nothing": (
        lambda: differentiated({"output": None}),
        "this is not an array of numbers\n  got: NoneType",
    ),
    "gradients of text": (
        lambda: differentiated("output"),
        "this is not an array of numbers\n  got: str",
    ),
    "a function of gradients that gives nothing": (
        lambda: differentiated(lambda outputs: None),
        "this is not an array of numbers\n  got: NoneType",
    ),
    "a dtype that is none": (
        lambda: ml.DType("foo"),
        'this is not a dtype\n  got: foo\n  expected: a name such as `ml.float32` or "float32", or '
        "a framework's dtype",
    ),
    "params that are bound": (
        lambda: compiled(Relu()).bind(None),
        "`bind` takes a dict of params by name\n  got: NoneType",
    ),
    "a negative seed": (
        lambda: compiled(Relu()).randomize_params(-1),
        "`seed` must be an integer of at least 0\n  got: -1",
    ),
    "a negative depth": (
        lambda: connected().summary(depth=-1),
        "`depth` must be a number of levels of blocks\n  got: -1\n  expected: 0 or more",
    ),
    "a constant that is trained": (
        lambda: compiled(Relu(), trainable_keys=["input"], constant_keys={"input": X}),
        "`input` is both in trainable_keys and constant_keys",
    ),
    "parts of other sizes": (
        lambda: compiled(joined(), {"a": [4, 5], "b": [3, 5]}),
        "Incompatible shapes during compilation: dims of inputs 0 and 1 in axis 0 differ: "
        "4 against 3\n  where: block `concat` (Concat)\n  inputs[0]: tensor<4 x 3 x f32> from "
        "`linear_0.output`\n  inputs[1]: tensor<3 x 2 x f32> from `linear_1.output`",
    ),
    "elements that do not divide": (
        lambda: compiled(Reshape([2, -1]), {"input": ["n"]}).evaluate({}, {"input": X[0]}),
        "Incompatible shapes: the dims of inputs do not fit together\n"
        "  where: block `reshape`\n  got: n = 3, axis 0 of `input`\n  expected: n%2 == 0",
    ),
    "no text of a model": (
        lambda: Model.from_json(None),
        "`from_json` takes the text that `to_json` wrote\n  got: NoneType\n  expected: a string",
    ),
    "a function of NumPy": (
        lambda: np.sum(connected().y),
        "Unexpected argument: `np.sum` takes numbers, but a connection has no value before a call\n"
        "  got: a connection\n"
        "  hint: use the method `.sum()` of the connection",
    ),
    "an array that is added to": (
        lambda: np.add(X, connected().y, out=X),
        "Unexpected argument: `np.add` takes numbers, but a connection has no value before a call",
    ),
    "a function of NumPy on a list": (
        lambda: np.concatenate([connected().y, X]),
        "Unexpected argument: `np.concatenate` takes numbers, but a connection has no value",
    ),
    "an array of a connection": (
        lambda: np.array(connected().y),
        "Unexpected argument: an array of NumPy takes numbers, but a connection has no value",
    ),
    "a connection, rounded": (
        lambda: round(connected().y, 2),
        "Unexpected argument: `round` takes numbers, but a connection has no value before a call\n"
        "  got: a connection\n"
        "  hint: use the method `.round()` of the connection",
    ),
    "a connection as a number": (
        lambda: float(connected().y),
        "Unexpected argument: `float` takes numbers, but a connection has no value before a call\n"
        "  got: a connection\n"
        "  hint: use the blocks of `mithril.models`",
    ),
    "a compiled model in a pickle": (
        lambda: pickle.dumps(compiled(Relu())),
        "a compiled model cannot be pickled or copied: its code belongs to this process\n"
        "  hint: pickle the model and the params, and compile the model where it is used",
    ),
    "the greatest of none": (
        lambda: compiled(Max(axis=1), {"input": [2, 0]}),
        "Incompatible shapes during compilation: the maximum or minimum of no elements\n"
        "  where: block `max` (Max)\n  input: tensor<2 x 0 x f32> from the input `input`\n"
        "  expected: at least one element along the axes",
    ),
    "a folder that is not there": (
        lambda: compiled(Relu(), file_path="/nowhere/model.py"),
        "`file_path` cannot be written\n  where: /nowhere/model.py\n"
        "  got: No such file or directory\n  expected: a file in an existing folder",
    ),
    "a connection as the name of one": (
        lambda: ml.TrainModel(connected()).add_loss(SquaredError(), input=connected().y),
        "Unexpected argument: it has the wrong type\n  got: Connection\n  expected: a string\n"
        '  hint: the connection\'s name is "y"',
    ),
    "a step without a list": (
        lambda: ml.TrainModel(connected()).add_loss(SquaredError(), reduce_steps=Mean()),
        "Unexpected argument: it has the wrong type\n  got: Mean\n  expected: a list\n"
        "  hint: [Mean()]",
    ),
    "a coefficient in words": (
        lambda: ml.TrainModel(connected()).add_loss(SquaredError(), coef="half"),
        "Unexpected argument: it has the wrong type\n  got: str\n  expected: a number",
    ),
    "shapes that are no dict": (
        lambda: connected().set_shapes([2, 3]),
        "Unexpected argument: it has the wrong type\n  got: list\n  expected: a dict",
    ),
    "rows of other lengths": (
        lambda: NUMPY.array([[1, 2], [3]]),
        "this is not an array of numbers\n  got: [[1, 2], [3]]\n  expected: lists of equal lengths",
    ),
    "a truth as a size": (
        lambda: connected().set_shapes({"x": [True, 8]}),
        "Incompatible shapes during compilation: this is not a shape\n  got: [True, 8]",
    ),
    "a dim that there is not": (
        lambda: ml.compile(
            connected(), ml.CpuBackend(), shapes={"x": ["batch", 8]}, inference=True
        ).memory(bach=3),
        "the model has no dim `bach`\n  hint: did you mean `batch`?",
    ),
    "sizes in words": (
        lambda: NUMPY.ones("ab", 3),
        "this is not a shape\n  got: 'ab', 3\n  expected: integers of at least 0",
    ),
    "a size below 0": (
        lambda: NUMPY.randn(-1),
        "this is not a shape\n  got: -1\n  expected: integers of at least 0",
    ),
    "no path of a file": (
        lambda: Model.load(None),
        "Unexpected argument: `load` takes the path of a file\n  got: NoneType\n"
        "  expected: a string or a `pathlib.Path`",
    ),
    "no path to save to": (
        lambda: connected().save(3),
        "Unexpected argument: `save` takes the path of a file\n  got: int",
    ),
    "no path of source": (
        lambda: compiled(Relu(), file_path=3),
        "`file_path` must be a path\n  got: 3\n  expected: a string or a `pathlib.Path`",
    ),
    "no names": (
        lambda: compiled(Relu(), data_keys=3),
        "`data_keys` must be a collection of names\n  got: 3",
    ),
    "no text of a block": (
        lambda: ml.Block.from_json(None),
        "`from_json` takes the text that `to_json` wrote\n  got: NoneType\n  expected: a string",
    ),
    "an expose of another kind": (
        lambda: ml.IOKey("x", expose=3),
        "Unexpected argument: it has the wrong type\n  got: int\n  expected: True or False",
    ),
    "a keyword of a key": (
        lambda: ml.IOKey("x", expos=True),
        "Unexpected argument: `IOKey` has no keyword `expos`\n"
        "  expected: `name`, `value`, `shape`, `dtype`, `differentiable`, `device`, `expose`, "
        "`connections`\n"
        "  hint: did you mean `expose`?",
    ),
    "a model's name by its place": (
        lambda: Model("m"),
        "Unexpected argument: `Model` takes its settings by keyword\n  got: 'm'\n"
        "  expected: `name`, `backend`, `device`, `dtype`, `precision`, `acc`, `checkpoint`, "
        "`gradient`\n"
        '  hint: use `Model(name="m")` for the name',
    ),
    "a keyword of a model": (
        lambda: Model(nmae="m"),
        "Unexpected argument: `Model` has no keyword `nmae`\n"
        "  expected: `name`, `backend`, `device`, `dtype`, `precision`, `acc`, `checkpoint`, "
        "`gradient`\n  hint: did you mean `name`?",
    ),
    "a number exposed": (
        lambda: connected().expose(3),
        "Unexpected argument: `expose` takes names of terminals\n  got: int\n  expected: strings",
    ),
    "a connection discarded": (
        lambda: connected().discard(connected().y),
        "Unexpected argument: `discard` takes names of terminals\n  got: Connection\n"
        '  expected: strings\n  hint: the connection\'s name is "y"',
    ),
    "a state of a model without one": (
        lambda: compiled(Relu()).evaluate({}, {"input": X}, state={"mean": X}),
        "Terminal not found: the model has no state `mean`\n"
        "  expected: {} or None, as the model has no state",
    ),
    "a truth in words": (
        lambda: compiled(Relu(), inference="no"),
        "`inference` must be True or False\n  got: 'no'",
    ),
    "a depth in words": (
        lambda: connected().summary(depth="a"),
        "Unexpected argument: it has the wrong type\n  got: str\n  expected: an integer",
    ),
    "a file that is not there": (
        lambda: Model.load("/nope.json"),
        "the file cannot be read\n  where: /nope.json",
    ),
}


@pytest.mark.every
@pytest.mark.parametrize("case", CASES)
def test_message(case):
    program, message = CASES[case]
    with pytest.raises(ml.MithrilError) as caught:
        program()
    assert str(caught.value).startswith(message), str(caught.value)
    if case == "parts of other sizes":
        assert "would fit" not in str(caught.value)


def test_unsigned_constants_have_64_bits():
    z = with_constant(2**63, ml.uint64).evaluate({}, {"x": np.array([1, 2], "uint64")})["z"]
    assert z.tolist() == [2**63 + 1, 2**63 + 2]


def test_sizes_are_integers_of_any_kind():
    assert NUMPY.ones(np.int64(2), 3).shape == NUMPY.ones((np.int64(2), 3)).shape == (2, 3)
    assert NUMPY.full(np.int64(2), 1.0).shape == (2,)


def test_an_argument_of_another_kind_is_named():
    with pytest.raises(ml.UsageError) as caught:
        ml.TrainModel(connected()).add_loss(SquaredError(), coef="half")
    # Python prints the note below the message.
    assert caught.value.__notes__ == ["while processing 'coef'"]


def test_a_block_of_a_name_like_another_is_suggested():
    with pytest.raises(AttributeError, match="did you mean `Linear`"):
        _ = ml.models.Linaer


@pytest.mark.parametrize(("depth", "stack"), [(2000, 0), (200, 512 << 10)])
def test_models_may_nest_deeply(depth, stack):
    def nested():
        model = Relu()
        for _ in range(depth):
            outer = Model()
            outer += model
            model = outer
        text = model.to_json()
        assert Model.from_json(text).to_json() == text
        assert "relu" in model.summary(depth=depth)
        made.append(compiled(model, {"input": [2]}).code)

    made: list[str] = []
    before = threading.stack_size(stack)
    thread = threading.Thread(target=nested)
    thread.start()
    threading.stack_size(before)
    thread.join()
    assert "np.maximum" in made[0]
