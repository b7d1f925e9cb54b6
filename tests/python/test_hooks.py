"""The values that hooks get, the effects they must not have, and what `bind` keeps."""

import numpy as np
import pytest
from conftest import has

import mithril as ml
from mithril.models import MLP, BatchNorm1d, Linear, Model, Relu, Sqrt, Sum, Tanh, TopK


def perceptron(backend, **options):
    model = MLP(activations=[Relu(), Tanh()], dimensions=[3, 2])
    return ml.compile(model, backend, shapes={"input": ["n", 4]}, **options)


def test_hooks_do_not_change_gradients(backend):
    """A gradient of 0 for the hooked value would be multiplied by an infinite derivative."""
    model = Model()
    model |= Sqrt()(input="x", output="s")
    model |= Sum()(input="x", output="y")
    compiled = ml.compile(
        model, backend, shapes={"x": [2]}, trainable_keys=["x"], discard_keys=["s"]
    )
    seen = []
    compiled.register_hook("s", lambda value: seen.append(backend.to_numpy(value).tolist()))
    params = {"x": backend.array([0.0, 4.0])}
    _, gradients = compiled.evaluate(params, {}, output_gradients={"y": backend.ones()})
    assert backend.to_numpy(gradients["x"]).tolist() == [1.0, 1.0]
    assert seen == [[0.0, 2.0]]


def test_hooks_do_not_change_the_written_file(tmp_path):
    path = tmp_path / "model.py"
    compiled = perceptron(ml.NumpyBackend(), file_path=path)
    before = path.read_text()
    compiled.register_hook("relu", print)
    assert path.read_text() == before


@pytest.mark.skipif(not has("cpu"), reason="built without native code")
def test_hooks_do_not_change_exported_outputs(tmp_path):
    compiled = perceptron(ml.CpuBackend())
    before = compiled.export(tmp_path, name="net")["header"].read_text()
    compiled.register_hook("relu", print)
    assert compiled.export(tmp_path, name="net")["header"].read_text() == before


def test_failed_register_hook_changes_nothing(backend):
    compiled = perceptron(backend)
    with pytest.raises(ml.UsageError, match="`name` must be the name of an output"):
        compiled.register_hook(5, print)
    with pytest.raises(ml.TerminalError, match="did you mean `relu`"):
        compiled.register_hook("relo", print)
    compiled.register_hook("relu", print)


def test_kept_values_of_a_block_are_numbered(backend):
    model = Model()
    model |= Linear(4, name="l")(input="x", output="h")
    model |= TopK(2, name="top")(input="h", values="v", indices="i")
    model |= Sum()(input="v", output="y")
    compiled = ml.compile(model, backend, shapes={"x": [2, 4]})
    with pytest.raises(ml.TerminalError, match=r"it has the values `top\.0`, `top\.1`"):
        compiled.register_hook("top", print)
    seen = []
    compiled.register_hook("top.0", lambda value: seen.append(tuple(value.shape)))
    outputs = compiled.evaluate(compiled.randomize_params(seed=0), {"x": backend.ones(2, 4)})
    assert seen == [(2, 2)]
    assert tuple(outputs) == compiled.outputs
    with pytest.raises(ml.TerminalError, match=r"`l\.7`"):
        compiled.register_hook("l.7", print)


def test_bound_models_start_from_the_current_state(backend):
    """A bound model also has the hooks. Its calls do not change the original's state."""
    model = Model()
    model |= Linear(3)(input="x", output="h")
    model |= BatchNorm1d()(input="h", output="y")
    training, using = (
        ml.compile(model, backend, shapes={"x": ["n", 4]}, inference=inference)
        for inference in (False, True)
    )
    params = training.randomize_params(seed=0)
    x = backend.array(np.random.default_rng(0).standard_normal((16, 4)))
    for _ in range(3):
        training.evaluate(params, {"x": x})
    using.state = training.state
    seen = []
    using.register_hook("h", seen.append)
    want = backend.to_numpy(using.evaluate(params, {"x": x})["y"])
    assert backend.to_numpy(using.evaluate(params, {"x": x})["y"]).tolist() == want.tolist()
    got = backend.to_numpy(using.bind(params).evaluate({}, {"x": x})["y"])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert len(seen) == 3
    before = {name: backend.to_numpy(value).copy() for name, value in training.state.items()}
    training.bind(params).evaluate({}, {"x": x})
    for name, value in training.state.items():
        np.testing.assert_array_equal(backend.to_numpy(value), before[name])
