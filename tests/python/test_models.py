"""Building models from Python: only the syntax. Tests in Rust cover the rules."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import mithril as ml
from mithril.models import MLP, Add, Concat, Layer, Linear, Model, Relu, Sequential


def two_layers() -> Model:
    model = Model()
    model += Linear(4)(input="x")
    model += Relu()
    model += Linear(2)(output="y")
    return model


def test_names_are_paths_of_blocks():
    model = two_layers()
    assert model.inputs == ["x", "linear_0.w", "linear_0.b", "linear_1.w", "linear_1.b"]
    assert model.outputs == ["y"]


def test_a_model_is_a_block_of_another():
    inner = two_layers()
    outer = Model()
    outer |= inner(x="a", y="b")
    outer |= inner.copy()(x="a", y="c")
    outer |= Add()(left="b", right="c", output="d")
    assert [name for name in outer.inputs if name.endswith("linear_0.w")] == [
        "model_0.linear_0.w",
        "model_1.linear_0.w",
    ]
    assert outer.outputs == ["d"]


def test_a_used_model_can_no_longer_be_changed():
    inner = two_layers()
    outer = Model()
    outer += inner
    with pytest.raises(ml.MithrilError, match="can no longer be changed"):
        inner += Relu()


def test_a_subclass_names_its_kind():
    class MyLayer(Model):
        def __init__(self, width):
            super().__init__()
            self |= Linear(width)(input="input", output="hidden")
            self += Relu()(output="output")

    model = Model()
    model += MyLayer(3)
    model += MyLayer(4)
    assert model.inputs[1] == "my_layer_0.linear.w"
    assert MyLayer(3).kind == "MyLayer"


def test_connections_compute(backend):
    model = Model()
    model |= Linear(3)(input="x", output="y")
    z = (2 * model.y - 1) / (model.y * model.y + 1.0)
    model |= ml.Buffer()(input=z.sum(axis=-1), output="out")
    compiled = ml.compile(model, backend, shapes={"x": [2, 5]})
    params = compiled.randomize_params(seed=3)
    x = backend.array(np.linspace(-1, 1, 10).reshape(2, 5))
    out = backend.to_numpy(compiled.evaluate(params, {"x": x})["out"])
    w, b = (backend.to_numpy(params[f"linear.{name}"]) for name in "wb")
    y = backend.to_numpy(x) @ w + b
    np.testing.assert_allclose(out, ((2 * y - 1) / (y * y + 1)).sum(-1), rtol=1e-5)


def test_lists_and_constants_connect(backend):
    model = Model()
    model |= Concat(axis=-1)(inputs=["a", "b", [[1.0], [2.0]]], output="out")
    compiled = ml.compile(model, backend, shapes={"a": [2, 1], "b": [2, 2]})
    out = compiled.evaluate({}, {"a": backend.ones(2, 1), "b": backend.zeros(2, 2)})["out"]
    assert backend.to_numpy(out).tolist() == [[1, 0, 0, 1], [1, 0, 0, 2]]


def test_signatures_are_those_of_the_table():
    signature = inspect.signature(Linear)
    assert str(signature) == (
        "(dimension: 'int', use_bias: 'bool' = True, init: 'str | float | Callable[[typing.Any, "
        "tuple[int, ...]], typing.Any] | None' = None, *, name: 'str | None' = None, "
        "backend: 'str | None' = None, device: 'str | None' = None, dtype: 'object' = None, "
        "precision: 'int | None' = None, acc: 'object' = None)"
    )
    assert str(inspect.signature(Relu)).endswith("gradient: 'Block | None' = None)")
    assert "checkpoint: 'bool' = False" in str(inspect.signature(MLP))
    assert ml.Linear is Linear
    assert "- param `w`: (last dim of `input`, dimension)" in (Linear.__doc__ or "")


def test_every_block_has_a_class():
    for name in ml.models.__all__:
        made = getattr(ml, name)
        assert isinstance(made, type), name
        if name not in {"Block", "Connection", "IOKey", "Model", "TrainModel"}:
            assert issubclass(made, ml.Block)
            assert inspect.signature(made).parameters["name"].default is None
            assert made.__doc__


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: Linear(dimensions=3),
            ml.MithrilError,
            "`Linear` has no parameter `dimensions`\n  expected: `dimension`, `use_bias`, `init`\n"
            "  hint: did you mean `dimension`?",
        ),
        (
            lambda: Linear(3)(inputt="x"),
            ml.TerminalError,
            "Terminal not found: `Linear` has no terminal `inputt`\n"
            "  expected: `input`, `w`, `b`, `output`\n  hint: did you mean `input`?",
        ),
        (
            lambda: two_layers().z,
            ml.TerminalError,
            "Terminal not found: `Model` has no terminal `z`",
        ),
        (
            lambda: two_layers().evaluate,
            ml.TerminalError,
            "Terminal not found: `Model` has no terminal `evaluate`\n  expected: one of `x`, `y`\n"
            "  hint: compile it first: `ml.compile(model, backend).evaluate`",
        ),
        (
            lambda: Relu().bind,
            ml.TerminalError,
            "Terminal not found: `Relu` has no `bind`\n"
            "  hint: compile it first: `ml.compile(model, backend).bind`",
        ),
        (
            lambda: two_layers().__iadd__(Relu),
            ml.UsageError,
            "Unexpected argument: `model +=` adds a block\n  got: the class Relu\n"
            "  expected: a block or a model",
        ),
    ],
)
def test_errors(make, error, message):
    with pytest.raises(error) as caught:
        made = make()
        assert made is not NotImplemented
    assert str(caught.value).startswith(message)


def test_unknown_attributes_raise_attribute_error():
    assert not hasattr(two_layers(), "nothing")
    assert hasattr(two_layers(), "y")
    with pytest.raises(AttributeError, match="did you mean `Linear`"):
        _ = ml.Lineer


def test_models_are_saved_and_loaded(tmp_path, backend):
    model = two_layers()
    model.save(tmp_path / "model.json")
    loaded = Model.load(tmp_path / "model.json")
    assert loaded.to_json() == model.to_json()
    values = []
    for each in (model, loaded):
        compiled = ml.compile(each, backend, shapes={"x": [1, 3]})
        params = compiled.randomize_params(seed=1)
        values.append(compiled.evaluate(params, {"x": backend.ones(1, 3)})["y"])
    assert backend.to_numpy(values[0]).tolist() == backend.to_numpy(values[1]).tolist()
    loaded += Relu()
    assert "output" in loaded.outputs


def test_loaded_models_keep_their_settings():
    model = Model(name="net", checkpoint=True)
    model |= Linear(4)(input="x", output="y")
    loaded = Model.from_json(model.to_json())
    assert loaded.name == "net"
    assert loaded.to_json() == model.to_json()


def test_summary():
    text = two_layers().summary(shapes={"x": [None, 3]})
    assert "linear_0" in text and "16" in text
    html = two_layers()._repr_html_()
    assert html.startswith("<table>\n<tr><th>block</th>") and "<td>linear_0</td>" in html


def test_a_summary_knows_shapes_that_the_model_states():
    model = two_layers()
    model.set_shapes(x=["batch", 3])
    assert "x: [batch x 3]" in model.summary()
    model.set_shapes(x=["a b", 3])
    assert "total" in model.summary()


def test_repr_shows_settings():
    assert repr(Linear(3)) == "Linear(dimension=3)"
    assert repr(Linear(3, use_bias=False, name="fc")) == (
        'Linear(dimension=3, use_bias=False, name="fc")'
    )
    assert repr(ml.Residual(Linear(3))) == "Residual(block=Linear(dimension=3))"
    assert repr(Model()) == "Model()"


def test_blocks_are_copied_and_pickled():
    for made in (Linear(3, name="fc"), two_layers()):
        for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert copied.to_json() == made.to_json()
            assert copied.name == made.name
    model = copy.deepcopy(two_layers())
    model += Relu()
    assert "output" in model.outputs
    with pytest.raises(ml.MithrilError, match="cannot be copied"):
        copy.copy(Linear(3)(input="x"))


def test_a_computed_shape_is_a_shape():
    model = Model()
    model |= Linear(6)(input="x", output="y")
    model |= Linear(6)(input="z", output="w")
    model |= ml.Buffer()(input=model.w.reshape(model.y.shape), output="out")
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"x": [4, 3], "z": [2, 2, 5]})
    params = compiled.randomize_params(seed=1)
    inputs = {"x": np.ones((4, 3), "float32"), "z": np.ones((2, 2, 5), "float32")}
    assert compiled.evaluate(params, inputs)["out"].shape == (4, 6)


@pytest.mark.parametrize(
    "reshaped",
    [
        lambda x: x.reshape(3, 2),
        lambda x: x.reshape((3, 2)),
        lambda x: x.reshape([3, 2]),
        lambda x: x.reshape(shape=(3, 2)),
        lambda x: x.reshape(x.shape[1], -1),
        lambda x: x.reshape((x.shape[1], x.shape[0])),
        lambda x: x.reshape(6)[:1].reshape(()) + x.reshape(3, 2),
    ],
)
def test_a_shape_may_be_written_as_in_numpy(reshaped):
    model = Model()
    model |= ml.Buffer()(input=reshaped(ml.IOKey("x")), output="y")
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"x": [2, 3]})
    assert compiled.evaluate({}, {"x": np.ones((2, 3), "float32")})["y"].shape == (3, 2)


def test_a_layer_shares_what_it_learns(backend):
    model = Model()
    model |= Layer(Relu(), 4)(input="x", w="shared", output="a")
    model |= Layer(Relu(), 4)(input="a", w="shared", b="own", output="b")
    model |= Sequential([Linear(4, use_bias=False), Relu()])("b", w="shared", output="y")
    compiled = ml.compile(model, backend, shapes={"x": [2, 4]})
    assert set(compiled.params) == {"shared", "own", "layer_0.linear.b"}
    params = compiled.randomize_params(seed=0)
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
    outputs = compiled.evaluate(params, {"x": backend.array(x)})
    w, own, first = (
        backend.to_numpy(params[name]) for name in ("shared", "own", "layer_0.linear.b")
    )
    want = np.maximum(x @ w + first, 0)
    want = np.maximum(np.maximum(want @ w + own, 0) @ w, 0)
    np.testing.assert_allclose(backend.to_numpy(outputs["y"]), want, rtol=1e-4, atol=1e-5)


def test_params_of_inner_models_are_connectable_by_short_name():
    inner = Model()
    inner |= Linear(4, name="fc")(input="x", output="y")
    outer = Model()
    outer |= inner(x="x", w="shared", y="y")
    assert set(ml.compile(outer, ml.NumpyBackend()).params) == {"shared", "fc.b"} or set(
        ml.compile(outer, ml.NumpyBackend()).params
    ) == {"shared", "model.fc.b"}


def test_ambiguous_param_names_list_the_candidates():
    mlp = MLP([Relu(), None], [4, 3])
    with pytest.raises(ml.TerminalError) as caught:
        mlp(w="shared")
    message = str(caught.value)
    assert "expected: one of `linear_0.w`, `linear_1.w`, which blocks inside have" in message
    assert 'hint: {"linear_0.w": …} as keywords' in message
    model = Model()
    model |= mlp("x", **{"linear_0.w": "shared"})
    assert "shared" in ml.compile(model, ml.NumpyBackend()).params
    with pytest.raises(ml.TerminalError, match="has no terminal `v`"):
        mlp(v="shared")
