"""Expressions, built from inputs, by methods and by functions of NumPy, and used as outputs."""

import numpy as np
import pytest

import mithril as ml
from mithril._core import block_info, block_names
from mithril.models import Add, Buffer, IOKey, Linear, Model, Relu, Where

NUMPY = ml.NumpyBackend()
X = np.linspace(-0.9, 0.9, 6, dtype="float32").reshape(2, 3)
Y = np.array([[1, 2, 0.5], [0.25, 3, 1.5]], "float32")


def evaluated(model: Model, **inputs: np.ndarray):
    shapes = {name: list(value.shape) for name, value in inputs.items()}
    return ml.compile(model, NUMPY, shapes=shapes).evaluate({}, inputs)


def rectified() -> Model:
    model = Model()
    model |= Relu()(input="x", output="y")
    return model


def test_an_input_starts_an_expression():
    model = Model()
    x = model.add_input("x", shape=["n", 3], dtype=ml.float32)
    y = model.add_input("y")
    model.z = (x * 2 - y).sigmoid() + 1
    compiled = ml.compile(model, NUMPY)
    assert compiled.inputs == ("x", "y")
    assert compiled.outputs == ("z",)
    expected = 1 / (1 + np.exp(-(X * 2 - Y))) + 1
    assert np.allclose(compiled.evaluate({}, {"x": X, "y": Y})["z"], expected)
    with pytest.raises(ml.ShapeError, match="`x` of inputs has the wrong shape"):
        compiled.evaluate({}, {"x": X[:, :2], "y": Y})


def test_an_input_that_is_read_already_is_that_input():
    model = Model()
    model |= Relu()(input="x", output="y")
    model.z = model.add_input("x") + model.y
    assert np.allclose(evaluated(model, x=X)["z"], X + np.maximum(X, 0))


def test_an_io_key_starts_an_expression():
    """The expression's blocks are added to the model that reads it."""
    model = Model()
    twice = IOKey("x", shape=[2, 3]) * 2
    model |= Add()(left=1 - twice, right=IOKey("y").exp(), output="z")
    assert np.allclose(evaluated(model, x=X, y=Y)["z"], 1 - 2 * X + np.exp(Y), rtol=1e-6)
    assert [b.path for b in model.cost({"x": [2, 3], "y": [2, 3]}).blocks if b.path] == [
        "multiply",
        "subtract",
        "exponential",
        "add",
    ]


def test_an_expression_that_is_read_twice_is_computed_once():
    model = Model()
    key = IOKey("x")
    twice = key * key
    model |= Add()(left=twice, right=twice + 1, output="y")
    assert len(model) == 3
    assert np.allclose(evaluated(model, x=X)["y"], 2 * X * X + 1)
    other = Model()
    other |= Relu()(input=twice, output="y")
    assert np.allclose(evaluated(other, x=X)["y"], X * X)


def test_io_keys_and_connections_combine():
    model = Model()
    model |= Relu()(input="x", output="h")
    model.y = IOKey("bias") + model.h * IOKey("scale")
    expected = Y + np.maximum(X, 0) * X
    assert np.allclose(evaluated(model, x=X, bias=Y, scale=X)["y"], expected)


def test_expressions_do_not_change_the_last_output():
    model = Model()
    model |= Relu()(input="x")
    model += Add()(right=IOKey("y") * 2, output="z")
    assert np.allclose(evaluated(model, x=X, y=Y)["z"], np.maximum(X, 0) + 2 * Y)


def test_an_error_leaves_the_model_as_it_was():
    model = Model()
    model |= Relu()(input="x", output="y")
    with pytest.raises(ml.MithrilError, match="two blocks write `y`"):
        model |= Relu()(input=IOKey("z") * 2, output="y")
    assert len(model) == 1
    assert evaluated(model, x=X).keys() == {"y"}


def test_expressions_in_lists_and_indices():
    model = Model()
    x = IOKey("x")
    model |= ml.Concat(axis=-1)(inputs=[x[:, 0:1], x.T.sum(axis=0, keepdim=True).T], output="y")
    expected = np.concatenate([X[:, :1], X.sum(axis=1, keepdims=True)], axis=-1)
    assert np.allclose(evaluated(model, x=X)["y"], expected)


def test_inputs_may_be_trainable():
    model = Model()
    x, w = model.add_input("x"), model.add_input("w", shape=[3], differentiable=True)
    model.y = x * w
    compiled = ml.compile(model, NUMPY, shapes={"x": [2, 3]})
    assert compiled.params == ("w",)


def test_an_io_key_without_a_name_starts_none():
    with pytest.raises(ml.MithrilError, match="without a name") as caught:
        IOKey() * 2
    assert 'hint: `IOKey("x")` is the input `x`' in str(caught.value)


@pytest.mark.parametrize("name", [n for n in block_names() if block_info(n).group == "Elementwise"])
def test_every_elementwise_block_is_a_method(name):
    method = {"Exponential": "exp", "Sine": "sin", "Cosine": "cos"}.get(name, snake(name))
    settings = {
        "Cast": ["float32"],
        "Clamp": [-0.5, 0.5],
        "Threshold": [0.5, 1.0],
        "Shard": [[0]],
    }.get(name, [])
    info = block_info(name)
    kind = "int32" if name == "BitwiseNot" else "bool" if name == "LogicalNot" else "float32"
    x = (X > 0) if kind == "bool" else (Y * 4).astype(kind)
    x = X if name in ("Asin", "Acos") else x
    x = 0.4 * X + 0.5 if name in ("Erfinv", "Logit") else x
    by_method, by_block = Model(), Model()
    by_method.y = getattr(by_method.add_input("x", dtype=kind), method)(*settings)
    by_block |= getattr(ml, name)(*settings)(IOKey("x", dtype=kind), output="y")
    options = {"shapes": {"x": [2, 3]}, "inference": True}
    found = ml.compile(by_method, NUMPY, **options).evaluate({}, {"x": x})["y"]
    expected = ml.compile(by_block, NUMPY, **options).evaluate({}, {"x": x})["y"]
    assert np.array_equal(found, expected), info


def snake(name: str) -> str:
    model = Model()
    needed = {
        "Cast": {"dtype": "float32"},
        "Threshold": {"threshold": 0.5, "value": 1.0},
        "Shard": {"tensor_split": [0]},
    }
    model |= getattr(ml, name)(**needed.get(name, {}))
    return model.summary().split("\n")[1].split()[0]


def test_methods_of_several_inputs():
    model = Model()
    x, y = model.add_input("x"), model.add_input("y")
    model.larger = x.maximum(y)
    model.chosen = (x > 0).where(x, y)
    model.power = y.power(2.0)
    found = evaluated(model, x=X, y=Y)
    assert np.allclose(found["larger"], np.maximum(X, Y))
    assert np.allclose(found["chosen"], np.where(X > 0, X, Y))
    assert np.allclose(found["power"], Y**2)


UNARY = ["exp", "log", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh"]
UNARY += ["floor", "ceil", "rint", "sign", "square", "absolute", "negative", "reciprocal"]
UNARY += ["isnan", "isinf", "arcsin", "arccos", "arctan"]
BINARY = ["add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "arctan2"]
BINARY += ["less", "greater_equal", "equal", "remainder", "floor_divide"]


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_numpy(name):
    model = Model()
    x = Y / 4 if name.startswith("arc") else Y
    model.y = getattr(np, name)(model.add_input("x"))
    assert np.allclose(evaluated(model, x=x)["y"], getattr(np, name)(x), rtol=1e-6)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_numpy_of_two(name):
    function = getattr(np, name)
    model = Model()
    x, y = model.add_input("x"), IOKey("y")
    model.both = function(x, y)
    model.one = function(x, 2.0)
    model.other = function(Y, x)
    found = evaluated(model, x=Y, y=Y.T.reshape(2, 3).copy())
    assert np.allclose(found["both"], function(Y, Y.T.reshape(2, 3)), rtol=1e-6)
    assert np.allclose(found["one"], function(Y, np.float32(2)), rtol=1e-6)
    assert np.allclose(found["other"], function(Y, Y), rtol=1e-6)


def test_functions_of_numpy_that_no_block_computes():
    x = Model().add_input("x")
    calls = [lambda: np.exp(x, out=X), lambda: np.add.reduce(x), lambda: np.gcd(x, x)]
    for call in calls:
        with pytest.raises(ml.UsageError, match="takes numbers, but a connection has no value"):
            call()


def test_a_connection_tells_its_dtype():
    model = Model()
    x, n = model.add_input("x"), model.add_input("n", dtype=ml.int32)
    assert x.dtype is None  # the backend's dtype
    assert n.dtype == (n + 1).dtype == (n * n).dtype == ml.int32
    assert (x > 0).dtype == ml.bool
    assert x.cast("float16").sigmoid().dtype == ml.float16
    assert IOKey("z", dtype="int8").dtype == ml.int8


class Affine(Model):
    def __init__(self):
        super().__init__()
        self.width = 3
        self._inner = self.add_input("x") * 2
        self.y = self._inner + 1


def test_attributes_of_subclasses_stay_attributes():
    model = Affine()
    assert model.width == 3
    assert model._inner.name is None
    del model.width
    assert not hasattr(model, "width")
    assert evaluated(model, x=X).keys() == {"y"}


def test_outputs_by_assignment():
    model = Model()
    h = model.add_input("x").relu()
    model.h = h
    model.same = h
    model.given = model.add_input("x")
    model.y = model.h + 1
    found = evaluated(model, x=X)
    assert list(found) == ["h", "same", "given", "y"]
    assert np.allclose(found["same"], np.maximum(X, 0))
    assert np.allclose(found["given"], X)
    model.h = h  # repeating an assignment has no effect
    with pytest.raises(ml.MithrilError, match="two blocks write `y`"):
        model.y = h * 2
    with pytest.raises(ml.MithrilError, match="`name` is already an attribute of models") as caught:
        model.name = h
    assert 'hint: use `Buffer()(input=…, output="name")` to give an output this name' in str(
        caught.value
    )
    with pytest.raises(ml.MithrilError, match="used in another"):
        Model().y = h


def test_a_name_that_is_read_before_it_is_written():
    model = Model()
    model |= Relu()(input="h", output="y")
    model.h = model.add_input("x") - 1
    assert np.allclose(evaluated(model, x=Y)["y"], np.maximum(Y - 1, 0))


def test_input_with_the_name_of_an_output_is_an_error():
    model = Model()
    model |= Buffer()(input="x", output="y")
    with pytest.raises(ml.MithrilError, match="has a terminal `y` already"):
        model.add_input("y")


def test_where_and_layers_on_expressions():
    model = Model()
    x = model.add_input("x")
    model |= Linear(2)(input=x / 2, output="h")
    model |= Where()(cond=model.h > 0, input1=model.h, input2=0.0, output="y")
    compiled = ml.compile(model, NUMPY, shapes={"x": [2, 3]})
    params = compiled.randomize_params(seed=1)
    expected = np.maximum(X / 2 @ params["linear.w"] + params["linear.b"], 0)
    assert np.allclose(compiled.evaluate(params, {"x": X})["y"], expected, atol=1e-6)


def test_arrays_of_numpy_leave_operators_to_connections():
    model = rectified()
    model |= Buffer()(input=np.array([1.0, 2.0], "float32") * model.y, output="z")
    assert evaluated(model, x=np.array([3.0, 4.0], "float32"))["z"].tolist() == [3, 8]


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "//", "%", "**", "@", "<", "=="])
def test_arrays_of_torch_leave_operators_to_connections(symbol):
    torch = pytest.importorskip("torch")
    model = rectified()
    value = eval(f"z {symbol} y", {"z": torch.tensor([1.0, 2.0]), "y": model.y})
    model |= Buffer()(input=value, output="z")
    x = np.array([2.0, 4.0], "float32")
    expected = eval(f"z {symbol} x", {"z": np.array([1.0, 2.0], "float32"), "x": x})
    assert np.allclose(evaluated(model, x=x)["z"], expected)


def test_functions_of_torch_take_no_connections():
    torch = pytest.importorskip("torch")
    with pytest.raises(ml.UsageError, match=r"`torch.exp` takes numbers(.|\n)*`\.exp\(\)`"):
        torch.exp(rectified().y)
    with pytest.raises(ml.UsageError, match=r"`torch.cat` takes numbers"):
        torch.cat([torch.ones(2), rectified().y])
