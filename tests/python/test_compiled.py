"""Compiled models: calls, params, state, keys, files."""

import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import CLASSES

import mithril as ml
from mithril.models import Linear, Model, Relu, Sequential, Sigmoid


def mlp() -> Model:
    model = Model()
    model += Linear(8)(input="x")
    model += Relu()
    model += Linear(3)(output="y")
    return model


def linear(backend, **options):
    return ml.compile(Linear(2), backend, shapes={"input": ["batch", 3]}, **options)


def test_gradients_of_every_form_agree(backend):
    compiled = linear(backend)
    params = compiled.randomize_params(seed=0)
    inputs = {"input": backend.array(np.arange(12.0).reshape(4, 3))}
    ones = backend.ones(4, 2)
    forms = [
        ones,
        {"output": ones},
        np.ones((4, 2), np.float32),
        {"output": backend.ones_like},
        lambda outputs: {"output": backend.ones_like(outputs["output"])},
        lambda outputs: backend.ones_like(outputs["output"]),
    ]
    for form in forms:
        outputs, gradients = compiled.evaluate(params, inputs, output_gradients=form)
        alone = compiled.evaluate_gradients(params, inputs, form)
        assert list(outputs) == ["output"]
        for found in (gradients, alone):
            assert sorted(found) == ["b", "w"]
            assert backend.to_numpy(found["b"]).tolist() == [4.0, 4.0]
            assert backend.to_numpy(found["w"]).tolist() == [[18.0] * 2, [22.0] * 2, [26.0] * 2]


def test_numpy_runs_the_forward_pass_once(monkeypatch):
    """With gradients, outputs are computed once. The function of gradients alone agrees."""
    model = Model()
    model += Linear(4)(input="input")
    model += ml.Tanh()
    model += Linear(1)(output="output")
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"input": [5, 3]})
    params = compiled.randomize_params(seed=0)
    inputs = {"input": np.ones((5, 3), np.float32)}
    forwards, seeds, tanh = [], [], np.tanh
    monkeypatch.setattr(np, "tanh", lambda x: forwards.append(x) or tanh(x))
    outputs, gradients = compiled.evaluate(
        params, inputs, output_gradients=lambda own: seeds.append(own) or own["output"] - 1
    )
    assert len(forwards) == 1
    assert len(seeds) == 1
    assert np.array_equal(outputs["output"], compiled.evaluate(params, inputs)["output"])
    names: dict = {}
    exec(compiled.code, names)
    alone = names["gradients"](params, inputs, {"output": outputs["output"] - 1})
    assert list(alone) == list(gradients) == list(params)
    assert all(np.array_equal(alone[name], gradients[name]) for name in params)


def test_params_take_their_values_at_the_first_call(backend):
    compiled = ml.compile(mlp(), backend)
    params = compiled.randomize_params(seed=5)
    copy = dict(params)
    with pytest.raises(ml.MithrilError, match="shapes="):
        _ = params["linear_0.w"] + 1
    with pytest.raises(ml.MithrilError, match="shapes="):
        _ = params["linear_0.w"].shape
    compiled.evaluate(params, {"x": backend.ones(2, 5)})
    assert tuple(params["linear_0.w"].shape) == (5, 8)
    compiled.evaluate(copy, {"x": backend.ones(2, 5)})
    assert copy["linear_0.w"] is params["linear_0.w"]
    known = ml.compile(mlp(), backend, shapes={"x": [None, 5]}).randomize_params(seed=5)
    for name, value in known.items():
        assert backend.to_numpy(value).tolist() == backend.to_numpy(params[name]).tolist()


def test_seeds_give_the_same_params_on_every_backend():
    drawn = []
    for make in CLASSES:
        backend = make()
        backend.set_seed(7)
        params = linear(backend).randomize_params()
        found = params["w"], backend.randn(2)
        drawn.append([backend.to_numpy(array).tolist() for array in found])
    assert all(each == drawn[0] for each in drawn)


@pytest.mark.parametrize("jit", [True, False])
def test_jit_or_not(backend, jit):
    compiled = linear(backend, jit=jit)
    params = compiled.randomize_params(seed=0)
    if backend.kind == "c" and not jit:
        with pytest.raises(ml.BackendError, match="jit=False"):
            compiled.evaluate(params, {"input": backend.ones(4, 3)})
        return
    out, gradients = compiled.evaluate(
        params, {"input": backend.ones(4, 3)}, None, backend.ones(4, 2)
    )
    want = np.ones((4, 3)) @ backend.to_numpy(params["w"]) + backend.to_numpy(params["b"])
    np.testing.assert_allclose(backend.to_numpy(out["output"]), want, rtol=1e-5)
    assert backend.to_numpy(gradients["b"]).tolist() == [4, 4]


def test_the_file_runs_without_mithril(backend, tmp_path):
    path = tmp_path / "model.py"
    if not backend.writes:
        # C has tests of its own for files: see test_c_backend.py.
        message = r"ends in `\.c`" if backend.target.dialect == "c" else "makes native code"
        with pytest.raises(ml.MithrilError, match=message):
            linear(backend, file_path=path)
        assert not path.exists()
        return
    constant = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    model = Model()
    model |= Linear(40)(input="x", w=constant, output="h")
    model |= Sigmoid()(input="h", output="y")
    compiled = ml.compile(model, backend, shapes={"x": [2, 3]}, file_path=path)
    assert path.read_text() == compiled.code
    assert (tmp_path / "model.npz").exists()
    params = compiled.randomize_params(seed=0)
    x = backend.array(np.arange(6.0).reshape(2, 3))
    want = backend.to_numpy(compiled.evaluate(params, {"x": x})["y"])
    np.savez(tmp_path / "data.npz", x=backend.to_numpy(x), b=backend.to_numpy(params["linear.b"]))
    made = {"numpy": "np.asarray", "torch": "torch.from_numpy", "jax": "jax.numpy.asarray"}
    made["mlx"], made["tinygrad"] = "mlx.core.array", "tinygrad.Tensor"
    script = f"""
import sys, numpy as np
sys.path.insert(0, {str(tmp_path)!r})
import {backend.module}
import model
data = np.load({str(tmp_path / "data.npz")!r})
make = {made[backend.kind]}
out = model.forward({{"linear.b": make(data["b"])}}, {{"x": make(data["x"])}})["y"]
assert "mithril" not in sys.modules
np.save({str(tmp_path / "out.npy")!r}, out.numpy() if hasattr(out, "numpy") else np.asarray(out))
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), want, rtol=1e-6)
    again = ml.compile(model, backend, shapes={"x": [2, 3]})
    np.testing.assert_allclose(
        backend.to_numpy(again.evaluate(params, {"x": x})["y"]), want, rtol=1e-6
    )


def test_training_agrees_on_all_backends():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((16, 4)), rng.standard_normal((16, 3))
    histories = []
    for make in CLASSES:
        backend = make(precision=64)
        compiled = ml.compile(mlp(), backend, shapes={"x": [16, 4]})
        params = compiled.randomize_params(seed=1)
        target = backend.array(y)
        losses = []
        for _ in range(20):
            outputs, gradients = compiled.evaluate(
                params,
                {"x": backend.array(x)},
                output_gradients=lambda o, t=target: (o["y"] - t) / 16,
            )
            losses.append(float(backend.to_numpy((outputs["y"] - target) ** 2).sum()))
            params = {name: params[name] - 0.1 * gradients[name] for name in params}
        histories.append(losses)
    assert histories[0][-1] < 0.9 * histories[0][0]
    for history in histories[1:]:
        np.testing.assert_allclose(history, histories[0], rtol=1e-10)


def test_train_model(backend):
    model = ml.TrainModel(mlp())
    model.add_loss(ml.SquaredError(), input="y", target="target")
    model.add_regularization(ml.L2(), coef=0.5, input="linear_0.w")
    compiled = ml.compile(model, backend, shapes={"x": [4, 5]})
    params = compiled.randomize_params(seed=2)
    inputs = {"x": backend.ones(4, 5), "target": backend.zeros(4, 3)}
    outputs, gradients = compiled.evaluate(params, inputs, output_gradients=True)
    y, w = backend.to_numpy(outputs["y"]), backend.to_numpy(params["linear_0.w"])
    np.testing.assert_allclose(
        float(backend.to_numpy(outputs["final_cost"])),
        (y**2).mean() + 0.25 * (w**2).sum(),
        rtol=1e-5,
    )
    assert sorted(gradients) == sorted(params)


def test_regularization_patterns_match_like_re_search():
    """Selects the params whose names contain a match of a compiled regular expression."""
    for pattern, chosen in [(r"\.w$", 2), ("^linear_0", 2), ("0", 2), ("b", 2), ("_1.w", 1)]:
        model = Model()
        model += Linear(2)(input="input")
        model += Linear(2)(output="output")
        training = ml.TrainModel(model)
        training.add_loss(ml.SquaredError())
        training.add_regularization(ml.L1(), coef=1.0, input=re.compile(pattern))
        compiled = ml.compile(training, ml.NumpyBackend(), shapes={"input": [1, 2]}, cache=False)
        assert compiled.code.split("def outputs_and")[0].count("np.abs(") == chosen, pattern


def test_roles_are_changed_by_keys(backend):
    compiled = ml.compile(
        Linear(2),
        backend,
        shapes={"input": [4, 3]},
        trainable_keys=["input"],
        data_keys={"w"},
        constant_keys={"b": np.ones(2, np.float32)},
    )
    assert compiled.params == ("input",)
    assert compiled.inputs == ("w",)
    params, inputs = {"input": backend.ones(4, 3)}, {"w": backend.ones(3, 2)}
    out, gradients = compiled.evaluate(params, inputs, output_gradients=backend.ones(4, 2))
    assert backend.to_numpy(out["output"]).tolist() == [[4.0, 4.0]] * 4
    assert backend.to_numpy(gradients["input"]).tolist() == [[2.0] * 3] * 4


def test_keys_are_patterns():
    model = Model()
    model |= ml.MLP([Relu(), Relu()], [4, 2])(input="x", output="h")
    model |= Linear(3, name="head")(input="h", output="y")
    options = {"shapes": {"x": [5, 4]}, "inference": False}
    whole = ml.compile(model, ml.NumpyBackend(), **options)
    tuned = ml.compile(model, ml.NumpyBackend(), data_keys=["mlp.*"], **options)
    assert set(tuned.params) == {"head.w", "head.b"}
    assert set(tuned.inputs) == {"x"} | {name for name in whole.params if name.startswith("mlp.")}
    params = whole.randomize_params(seed=0)
    x, ones = np.ones((5, 4), np.float32), np.ones((5, 3), np.float32)
    learned = {name: params.pop(name) for name in tuned.params}
    y, gradients = tuned.evaluate(learned, {"x": x} | params, output_gradients=ones)
    want, all_gradients = whole.evaluate(learned | params, {"x": x}, output_gradients=ones)
    np.testing.assert_array_equal(y["y"], want["y"])
    for name, gradient in gradients.items():
        np.testing.assert_array_equal(gradient, all_gradients[name])
    assert tuned.for_inference().inputs == tuned.inputs


def test_bound_params_are_copies(backend):
    compiled = linear(backend)
    params = compiled.randomize_params(seed=0)
    inputs = {"input": backend.ones(4, 3)}
    want = backend.to_numpy(compiled.evaluate(params, inputs)["output"]).tolist()
    bound = compiled.bind(params)
    assert bound.params == ()
    params["b"] = params["b"] + 1
    assert backend.to_numpy(bound.evaluate({}, inputs)["output"]).tolist() == want
    with pytest.raises(ml.TerminalError, match="did you mean"):
        compiled.bind({"ww": params["w"]})


def test_state_is_held_or_passed(backend):
    model = Model()
    model += ml.BatchNorm1d()(input="x", output="y")
    compiled = ml.compile(model, backend, shapes={"x": [8, 3]})
    assert compiled.states
    params = compiled.randomize_params()
    x = backend.array(np.random.default_rng(0).standard_normal((8, 3)) + 2)
    before = {n: backend.to_numpy(v).tolist() for n, v in compiled.state.items()}
    own = dict(compiled.state)
    outputs, following = compiled.evaluate(params, {"x": x}, state=own)
    assert {n: backend.to_numpy(v).tolist() for n, v in compiled.state.items()} == before
    held = compiled.evaluate(params, {"x": x})
    assert backend.to_numpy(held["y"]).tolist() == backend.to_numpy(outputs["y"]).tolist()
    for name, value in following.items():
        assert backend.to_numpy(compiled.state[name]).tolist() == backend.to_numpy(value).tolist()
    assert following.keys() == own.keys()
    changed = [n for n, v in following.items() if backend.to_numpy(v).tolist() != before[n]]
    assert changed
    *_, last = compiled.evaluate(params, {"x": x}, own, backend.ones(8, 3))
    assert last.keys() == own.keys()
    use = ml.compile(model, backend, shapes={"x": [8, 3]}, inference=True)
    result = use.evaluate(params, {"x": x}, state=following)
    assert len(result) == 2
    assert result[1].keys() == following.keys()


def test_keys_are_drawn_or_given(backend):
    model = Model()
    model += ml.Dropout(0.5)(input="x", output="y")
    compiled = ml.compile(model, backend, shapes={"x": [64, 64]})
    x = backend.ones(64, 64)
    one, two = (backend.to_numpy(compiled.evaluate({}, {"x": x})["y"]) for _ in range(2))
    assert (one != two).any()
    assert 0.3 < (one == 0).mean() < 0.7
    key = backend.random_key()
    name = next(n for n in compiled.inputs if n != "x")
    same = [backend.to_numpy(compiled.evaluate({}, {"x": x, name: key})["y"]) for _ in range(2)]
    assert (same[0] == same[1]).all()
    use = ml.compile(model, backend, shapes={"x": [64, 64]}, inference=True)
    assert (backend.to_numpy(use.evaluate({}, {"x": x})["y"]) == 1).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shape": {}}, ml.UsageError, "`compile` has no keyword `shape`"),
        ({"shapes": {"inputt": [2, 3]}}, ml.TerminalError, "Terminal not found: `Linear` has no"),
        (
            {"trainable_keys": "input"},
            ml.UsageError,
            "`trainable_keys` must be a collection of names",
        ),
        (
            {"data_keys": ["*.w"]},
            ml.TerminalError,
            "Terminal not found: no terminal matches `*.w` of",
        ),
        ({"optimization_level": 3}, ml.UsageError, "`optimization_level` has an invalid value"),
        ({"file_path": "model.txt"}, ml.MithrilError, "`file_path` must be the path of a Python"),
        ({"shapes": {"input": "abc"}}, ml.ShapeError, "Incompatible shapes during compilation"),
    ],
)
def test_keywords_are_checked(options, error, message):
    with pytest.raises(error) as caught:
        ml.compile(Linear(2), ml.NumpyBackend(), **options)
    assert str(caught.value).startswith(message)


def test_compile_accepts_its_other_keywords(backend, capsys):
    model = mlp()
    options = {"shapes": {"x": [2, 3]}, "cache": True}
    first = ml.compile(model, backend, verbose=True, **options)
    assert "params: linear_0.w" in capsys.readouterr().out
    assert ml.compile(model, backend, **options).code == first.code
    plain = ml.compile(
        model, backend, optimization_level="none", use_checkpointing=True, debug=True
    )
    params = first.randomize_params(seed=0)
    x = {"x": backend.ones(2, 3)}
    y, g = plain.evaluate(params, x, output_gradients=backend.ones(2, 3))
    assert "y: float32[2, 3]" in capsys.readouterr().out
    z, h = first.evaluate(params, x, output_gradients=backend.ones(2, 3))
    np.testing.assert_allclose(backend.to_numpy(y["y"]), backend.to_numpy(z["y"]), rtol=1e-6)
    np.testing.assert_allclose(
        backend.to_numpy(g["linear_0.w"]), backend.to_numpy(h["linear_0.w"]), rtol=1e-5
    )


def test_hooks_see_inner_values(backend):
    model = Model()
    model |= Linear(4)(input="x", output="hidden")
    model |= Relu()(input="hidden", output="y")
    compiled = ml.compile(model, backend, shapes={"x": [2, 3]})
    seen = []
    compiled.register_hook("hidden", lambda value: seen.append(tuple(value.shape)))
    out = compiled.evaluate(compiled.randomize_params(), {"x": backend.ones(2, 3)})
    assert list(out) == ["y"]
    assert seen == [(2, 4)]
    with pytest.raises(ml.TerminalError, match="Terminal not found"):
        compiled.register_hook("hiden", print)
    with pytest.raises(ml.UsageError, match="`hook` must be a function of one array"):
        compiled.register_hook("hidden", 3)


def test_reports_name_the_first_of_many_params():
    model = Sequential([Linear(2) for _ in range(20)])
    report = ml.compile(model, ml.NumpyBackend(), shapes={"input": [1, 2]}).report()
    (params,) = [line for line in report.splitlines() if "params" in line]
    assert params.startswith("  params: linear_0.w, linear_0.b,") and params.endswith("and 28 more")


def test_torch_keeps_the_graph_only_on_request():
    plain = ml.TorchBackend()
    compiled = linear(plain)
    params = compiled.randomize_params()
    x = {"input": plain.ones(4, 3)}
    assert not compiled.evaluate(params, x)["output"].requires_grad
    asked = ml.TorchBackend(requires_grad=True)
    params = linear(asked).randomize_params()
    out = compiled.evaluate(params, x)["output"]
    out.sum().backward()
    assert params["w"].grad is not None
    out, gradients = compiled.evaluate(params, x, output_gradients=plain.ones(4, 2))
    assert not out["output"].requires_grad and not gradients["w"].requires_grad


def test_learned_inputs_are_bound(backend):
    model = Model()
    model |= ml.MatrixMultiply()(left="x", right="w", output="y")
    x, w = np.ones((2, 3)), np.full((3, 4), 2.0)
    compiled = ml.compile(
        model, backend, shapes={"x": [2, 3], "w": [3, 4]}, trainable_keys=["w"], data_keys=["x"]
    )
    bound = compiled.bind({"w": backend.array(w)})
    outputs = bound.evaluate({}, {"x": backend.array(x)})
    np.testing.assert_allclose(backend.to_numpy(outputs["y"]), x @ w)


def test_no_more_dims_are_asked_for_than_are_needed():
    """Without `shapes=`, swapping axes after an op that adds a last axis needs one dim of the
    input, and each of two successive reductions needs one."""
    model = Model()
    model |= ml.OneHot(3)(input="i", output="h")
    model |= ml.SwapAxes(-1, -2)(input="h", output="y")
    compiled = ml.compile(model, ml.NumpyBackend(), inference=True)
    for shape in ((4,), (2, 4)):
        i = np.arange(np.prod(shape)).reshape(shape) % 3
        got = compiled.evaluate({}, {"i": i})["y"]
        np.testing.assert_array_equal(got, np.swapaxes(np.eye(3, dtype="f4")[i], -1, -2))
    folds = Model()
    folds |= ml.Sum(axis=-1)(input="x", output="once")
    folds |= ml.Max(axis=-1)(input="once", output="y")
    compiled = ml.compile(folds, ml.NumpyBackend(), inference=True)
    for shape in ((2, 3), (4, 2, 3)):
        x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
        got = compiled.evaluate({}, {"x": x})["y"]
        np.testing.assert_array_equal(got, x.sum(-1).max(-1))


def test_states_stay_states_in_training(backend):
    """A state has a next value, so it cannot be bound or trained."""
    model, shapes, ones = Model(), {"x": ["n", 4]}, np.ones(4, "float32")
    model |= ml.BatchNorm1d(name="bn")(input="x", output="y")
    name = "bn.running_mean"
    told = rf"the state `{name}` cannot be %s\n.*\n  expected: a state that is passed to calls"
    compiled = ml.compile(model, backend, shapes=shapes)
    with pytest.raises(ml.MithrilError, match=told % "a constant"):
        compiled.bind({name: backend.array(ones)})
    for keys, kind in [("trainable_keys", "trained"), ("data_keys", "data")]:
        with pytest.raises(ml.MithrilError, match=told % kind):
            ml.compile(model, backend, shapes=shapes, **{keys: [name]})
    inferring = ml.compile(model, backend, shapes=shapes, inference=True)
    bound = inferring.bind({name: backend.array(ones), "bn.b": backend.array(ones)})
    x = {"x": backend.array(np.ones((2, 4), "float32"))}
    got = bound.evaluate({"bn.w": backend.ones(4)}, x)["y"]
    np.testing.assert_allclose(backend.to_numpy(got), np.ones((2, 4)))


def test_constants_have_the_shapes_that_are_given(backend):
    x = np.arange(15, dtype="float32").reshape(3, 5)

    def bound(shape, value=x):
        return ml.compile(Relu(), backend, shapes={"input": shape}).bind({"input": value})

    for shape in [[3, 5], ["n", 5], [None, "m"], ["n", "m"]]:
        got = bound(shape, backend.array(x)).evaluate({}, {})["output"]
        np.testing.assert_array_equal(backend.to_numpy(got), x)
    told = "the constant of `input` has the wrong shape\n  got: [3 x 5]\n  expected: [%s]"
    for shape, text in [([2, 4], "2 x 4"), (["n", 4], "n x 4"), (["n", "n"], "n x n")]:
        with pytest.raises(ml.ShapeError, match=re.escape(told % text)):
            bound(shape, backend.array(x))
    with pytest.raises(ml.ShapeError, match=re.escape(told % "? x 3 x 5")):
        ml.compile(Relu(), backend, shapes={"input": [None, 3, 5]}, constant_keys={"input": x})
