"""A block object has one set of params, however often it is used."""

import copy
import pickle

import numpy as np
import pytest
from exported import export, near

import mithril as ml
from mithril.models import (
    MLP,
    Add,
    BatchNorm1d,
    Dropout,
    IOKey,
    Linear,
    Model,
    Multiply,
    Relu,
    Sequential,
    Sigmoid,
    Tanh,
    TrainModel,
)

SHAPES = {"left": [4, 3], "right": [4, 3]}


def siamese(tower):
    model = Model()
    model |= tower(input="left", output="a")
    model |= tower(input="right", output="b")
    model |= Multiply()(left="a", right="b", output="y")
    return model


def model_of(*blocks):
    model = Model()
    for block in blocks:
        model += block
    return model


def params_of(model):
    return set(ml.compile(model, ml.NumpyBackend()).params)


def data(seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype("float32") for name, shape in SHAPES.items()}


TOWERS = {
    "a block": (lambda: Linear(2), {"linear_0.w", "linear_0.b"}),
    "a named block": (lambda: Linear(2, name="enc"), {"enc.w", "enc.b"}),
    "a composite": (
        lambda: MLP([Tanh(), None], [5, 2]),
        {f"mlp_0.linear_{i}.{name}" for i in (0, 1) for name in "wb"},
    ),
    "a model": (
        lambda: model_of(Linear(5), Tanh(), Linear(2)),
        {f"model_0.linear_{i}.{name}" for i in (0, 1) for name in "wb"},
    ),
}


def of_torch(params, inputs):
    """The siamese model's output and gradients in torch."""
    torch = pytest.importorskip("torch")
    own = {n: torch.tensor(np.array(v), requires_grad=True) for n, v in params.items()}
    short = {n.split(".", 1)[1]: v for n, v in own.items()}

    def tower(x):
        if "w" in short:
            return x @ short["w"] + short["b"]
        hidden = torch.tanh(x @ short["linear_0.w"] + short["linear_0.b"])
        return hidden @ short["linear_1.w"] + short["linear_1.b"]

    y = tower(torch.tensor(inputs["left"])) * tower(torch.tensor(inputs["right"]))
    y.sum().backward()
    return y.detach().numpy(), {n: v.grad.numpy() for n, v in own.items()}


@pytest.mark.parametrize("kind", TOWERS)
def test_a_siamese_model_has_one_tower(backend, kind):
    make, names = TOWERS[kind]
    compiled = ml.compile(siamese(make()), backend, shapes=SHAPES)
    assert set(compiled.params) == names
    params, inputs = compiled.randomize_params(seed=3), data()
    given = {n: backend.from_numpy(v) for n, v in inputs.items()}
    outputs, gradients = compiled.evaluate(
        params, given, output_gradients={"y": backend.ones(4, 2)}
    )
    plain = {n: backend.to_numpy(v) for n, v in params.items()}
    want, slopes = of_torch(plain, inputs)
    np.testing.assert_allclose(backend.to_numpy(outputs["y"]), want, rtol=1e-4, atol=1e-5)
    assert gradients.keys() == slopes.keys()
    for name, slope in slopes.items():
        found = backend.to_numpy(gradients[name])
        np.testing.assert_allclose(found, slope, rtol=1e-4, atol=1e-4, err_msg=name)
    bound = compiled.bind(params)
    assert bound.params == ()
    np.testing.assert_allclose(
        backend.to_numpy(bound.evaluate({}, given)["y"]), want, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", TOWERS)
def test_sharing_survives_nesting_and_saving(kind):
    make, names = TOWERS[kind]
    inner = siamese(make())
    outer = Model()
    outer |= inner(left="p", right="q", y="u")
    outer |= inner(left="q", right="p", y="v")
    outer |= Add()(left="u", right="v", output="sum")
    assert params_of(outer) == {f"model_0.{name}" for name in names}
    shapes = {"p": [4, 3], "q": [4, 3]}
    values = []
    for text in (outer.to_json(), pickle.loads(pickle.dumps(outer)).to_json()):
        for again in (Model.from_json(text), ml.Block.from_json(text)):
            assert again.to_json() == outer.to_json()
            compiled = ml.compile(again, ml.NumpyBackend(), shapes=shapes)
            params = compiled.randomize_params(seed=0)
            assert params.keys() == {f"model_0.{name}" for name in names}
            given = dict(zip(shapes, data().values(), strict=True))
            values.append(compiled.evaluate(params, given)["sum"].tolist())
    assert all(value == values[0] for value in values)


def test_models_that_have_a_block_in_common_share_it():
    common = Linear(3)
    first, second = model_of(common, Relu()), model_of(Linear(3), common)
    outer = model_of(first, second, common)
    names = {"model_0.linear.w", "model_0.linear.b", "model_1.linear_0.w", "model_1.linear_0.b"}
    assert params_of(outer) == names
    again = Model.from_json(outer.to_json())
    assert params_of(again) == names
    assert again.to_json() == outer.to_json()


def test_a_list_that_repeats_a_block_shares_it():
    layer = Linear(3)
    stack = Sequential([layer, Relu(), layer, layer.copy(), Linear(3, name="last")])
    names = {f"{name}.{own}" for name in ("linear_0", "linear_2", "last") for own in "wb"}
    for block in (stack, ml.Block.from_json(stack.to_json()), pickle.loads(pickle.dumps(stack))):
        assert set(block.inputs) == {"input", *names}
        assert block.to_json() == stack.to_json()
    assert len(params_of(Sequential([Linear(3), Relu()] * 4))) == 2
    named = Sequential([Relu(name="act"), Linear(3, name="fc")] * 2)
    for block in (named, ml.Block.from_json(named.to_json())):
        assert params_of(block) == {"fc.w", "fc.b"}
        assert [line.split()[0] for line in block.summary().splitlines()[1:5]] == [
            "act",
            "fc",
            "act_1",
            "fc_1",
        ]


def test_a_copy_has_params_of_its_own():
    layer, tower = Linear(2), model_of(Linear(5), Tanh(), Linear(2))
    assert isinstance(layer.copy(), Linear)
    assert repr(Linear(2, name="fc").copy()) == 'Linear(dimension=2, name="fc")'
    for one in (layer, tower, MLP([None], [2])):
        both = Model()
        both |= one("x", output="a")
        both |= one.copy()("x", output="b")
        assert len(params_of(both)) == 2 * len(params_of(one))
    for copied in (copy.copy(layer), copy.deepcopy(layer)):
        assert len(params_of(model_of(layer, copied))) == 4
    # Blocks that are shared in a model are shared in its copy.
    pair = siamese(Linear(2)).copy()
    assert params_of(pair) == {"linear_0.w", "linear_0.b"}
    # A copy of a model in use can be changed.
    more = tower.copy()
    more += Relu()
    assert "output" in more.outputs
    connected = Linear(2)("x", output="y").copy()
    assert params_of(model_of(connected)) == {"linear.w", "linear.b"}
    with pytest.raises(ml.MithrilError, match=r"copied[\s\S]*TrainModel\(model.copy\(\)\)"):
        training().copy()


def test_a_name_is_the_param_of_the_block_that_it_is_connected_to():
    layer = Linear(3)
    model = Model()
    model |= layer("x", w="weight", output="a")
    model |= layer("x", output="b")
    assert params_of(model) == {"weight", "linear_0.b"}
    # Different names make different params.
    other = Model()
    other |= layer("x", w="one", output="a")
    other |= layer("x", w="two", output="b")
    assert params_of(other) == {"one", "two", "linear_0.b"}
    twice = Model()
    twice |= other("x", a="a")
    twice |= other("x", a="c")
    assert params_of(twice) == {"model_0.one", "model_0.two", "model_0.linear_0.b"}


def test_params_of_a_model_itself_are_shared():
    scaled = Model()
    scaled |= Multiply()(left="input", right=IOKey("scale", differentiable=True), output="output")
    model = model_of(scaled("x"), Relu(), scaled)
    assert params_of(model) == {"model_0.scale"}
    assert params_of(Model.from_json(model.to_json())) == {"model_0.scale"}
    assert len(params_of(model_of(scaled("x"), scaled.copy()))) == 2


def test_two_blocks_with_one_name_are_an_error():
    model = Model()
    model |= Linear(2, name="enc")("left", output="a")
    with pytest.raises(ml.MithrilError) as caught:
        model |= Linear(2, name="enc")("right", output="b")
    message = str(caught.value)
    assert "two blocks are called `enc`" in message
    assert "expected: one object for each name, which may be used several times" in message
    assert "leave names out" not in message


def test_each_use_has_its_own_path_in_errors():
    layer = Linear(2)
    model = Model()
    model |= layer("left", output="a")
    model |= layer("right", output="b")
    with pytest.raises(ml.ShapeError) as caught:
        ml.compile(model, shapes={"left": [4, 3], "right": [4, 5]})
    message = str(caught.value)
    assert "linear_1" in message
    assert "`linear_0.w`" in message
    assert "copy()" in message


def test_a_summary_says_what_is_shared_and_counts_it_once():
    model = siamese(MLP([Tanh(), None], [5, 2]))
    lines = model.summary(shapes=SHAPES, depth=2).splitlines()
    assert lines[0].split("  ")[-1].strip() == "shared with"
    rows = {line.split()[0]: line.split() for line in lines[1:]}
    assert rows["total"][-1] == "32"
    assert rows["mlp_0"][-1] == "32"
    assert rows["mlp_1"][-2:] == ["0", "mlp_0"]
    shared = [line.split()[-1] for line in lines if line.startswith("  linear_1")]
    assert shared == ["12", "mlp_0.linear_1"]
    assert "shared" not in model_of(Linear(2), Linear(2)).summary()


def test_costs_count_params_once_and_each_use():
    cost = {c.path: c for c in siamese(Linear(2)).cost(SHAPES).blocks}
    one = {c.path: c for c in model_of(Linear(2)("left")).cost({"left": [4, 3]}).blocks}
    assert (cost[""].params, cost["linear_0"].params, cost["linear_1"].params) == (8, 8, 0)
    assert cost["linear_1"].flops == cost["linear_0"].flops == one["linear"].flops


def test_running_state_is_updated_in_the_order_of_use(backend):
    torch = pytest.importorskip("torch")
    norm = BatchNorm1d()
    model = model_of(norm("x"), Tanh(), norm)
    compiled = ml.compile(model, backend, shapes={"x": [6, 3]})
    assert compiled.states == ("batch_norm1d_0.running_mean", "batch_norm1d_0.running_var")
    params = compiled.randomize_params(seed=0)
    theirs = torch.nn.BatchNorm1d(3)
    for seed in range(3):
        x = np.random.default_rng(seed).normal(1, 2, (6, 3)).astype("float32")
        given = {"x": backend.from_numpy(x)}
        outputs, _ = compiled.evaluate(params, given, output_gradients=backend.ones(6, 3))
        want = theirs(torch.tanh(theirs(torch.tensor(x))))
        found = backend.to_numpy(outputs["output"])
        np.testing.assert_allclose(found, want.detach().numpy(), rtol=1e-4, atol=1e-5)
        for name in ("running_mean", "running_var"):
            state = backend.to_numpy(compiled.state[f"batch_norm1d_0.{name}"])
            np.testing.assert_allclose(state, getattr(theirs, name).numpy(), rtol=1e-4, atol=1e-5)


def test_a_shared_state_inside_models_is_updated_by_each_use():
    torch = pytest.importorskip("torch")
    norm = BatchNorm1d()
    inner = model_of(norm, Relu())
    compiled = ml.compile(model_of(inner("x"), inner, norm), shapes={"x": [5, 2]})
    assert compiled.states == tuple(f"model_0.batch_norm1d.running_{of}" for of in ("mean", "var"))
    theirs = torch.nn.BatchNorm1d(2)
    x = np.random.default_rng(0).normal(1, 2, (5, 2)).astype("float32")
    compiled.evaluate(compiled.randomize_params(), {"x": x})
    hidden = torch.tensor(x)
    for _ in range(2):
        hidden = torch.relu(theirs(hidden))
    theirs(hidden)
    for name in ("running_mean", "running_var"):
        found = compiled.state[f"model_0.batch_norm1d.{name}"]
        np.testing.assert_allclose(found, getattr(theirs, name).numpy(), rtol=1e-4, atol=1e-5)


def test_each_use_draws_its_own_random_bits(backend):
    drop = Dropout(0.5)
    model = Model()
    model |= drop("x", output="a")
    model |= drop("x", output="b")
    compiled = ml.compile(model, backend, shapes={"x": [64, 64]})
    outputs = compiled.evaluate({}, {"x": backend.ones(64, 64)})
    a, b = (backend.to_numpy(outputs[name]) for name in "ab")
    assert 0.4 < (a != b).mean() < 0.6


def training():
    model = model_of(Linear(2), Relu())
    return TrainModel(model)


def test_a_shared_tower_is_trained_and_regularized_once(backend):
    tower = Linear(1)
    model = Model()
    model |= tower("left", output="a")
    model |= tower("right", output="b")
    train = TrainModel(model)
    train.add_loss(ml.SquaredError(), input="a", target="b")
    train.add_regularization(ml.L2(), coef=0.5, input="linear_0.w")
    with pytest.raises(ml.TerminalError):
        train.add_regularization(ml.L2(), coef=0.5, input="linear_1.w")
    compiled = ml.compile(train, backend, shapes=SHAPES)
    assert set(compiled.params) == {"linear_0.w", "linear_0.b"}
    params = compiled.randomize_params(seed=0)
    given = {n: backend.from_numpy(v) for n, v in data().items()}
    outputs, gradients = compiled.evaluate(params, given, output_gradients=True)
    w = backend.to_numpy(params["linear_0.w"])
    apart = (data()["left"] - data()["right"]) @ w
    want = (apart**2).mean() + 0.25 * (w**2).sum()
    np.testing.assert_allclose(backend.to_numpy(outputs["final_cost"]), want, rtol=1e-4)
    slope = 2 * (data()["left"] - data()["right"]).T @ apart / 4 + 0.5 * w
    np.testing.assert_allclose(backend.to_numpy(gradients["linear_0.w"]), slope, rtol=1e-3)


def test_explanations_hooks_and_libraries_know_each_use(tmp_path):
    compiled = ml.compile(siamese(model_of(Linear(2), Sigmoid())), ml.CpuBackend(), shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    want = compiled.evaluate(params, data())["y"]
    assert str(compiled.explain())
    seen = {}
    compiled.register_hook("model_0", lambda value: seen.setdefault("one", value))
    compiled.register_hook("model_1", lambda value: seen.setdefault("other", value))
    compiled.evaluate(params, data())
    np.testing.assert_allclose(seen["one"] * seen["other"], want, rtol=1e-5)
    library = export(compiled, tmp_path, name="siamese", params=params)
    status, results = library.call(data=data())
    assert status == 0
    near(results["output", "y"], want, 1e-5)
