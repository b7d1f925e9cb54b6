"""Params in files, renamed, and in inference; changing models that are in use."""

import copy
import json
import os
import pickle
import stat
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from conftest import has

import mithril as ml
from mithril import drawing
from mithril.models import (
    L2,
    MLP,
    Accuracy,
    BatchNorm1d,
    CrossEntropy,
    Dropout,
    Linear,
    Mean,
    Model,
    Relu,
    Sequential,
    SquaredError,
    TrainModel,
)

DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "bool"),
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
)


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


def grown(*blocks):
    model = Model()
    for block in blocks:
        model += block
    return model


# Files.


def test_all_dtypes_and_shapes_come_back(tmp_path):
    rng = np.random.default_rng(0)
    params = {
        f"h.{i}.attn.{name}": (10 * rng.standard_normal((2, 3))).astype(dtype_of(name))
        for i, name in enumerate(DTYPES)
    }
    params |= {
        "scalar": np.float32(2.5),
        "empty": np.zeros((0, 4), np.float32),
        "turned": np.arange(6.0).reshape(2, 3).T,
        "backwards": np.arange(4)[::-1],
        "big endian": np.arange(3, dtype=">f4"),
        "Ω.w": np.ones(1, np.float32),
    }
    ml.save_params(tmp_path / "params.safetensors", params)
    found = ml.load_params(str(tmp_path / "params.safetensors"))
    assert found.keys() == params.keys()
    for name, value in params.items():
        own = np.asarray(value)
        assert found[name].dtype == own.dtype.newbyteorder("=")
        assert found[name].shape == own.shape
        np.testing.assert_array_equal(found[name], own)
        assert found[name].flags.writeable
    assert os.listdir(tmp_path) == ["params.safetensors"]


def test_params_of_every_backend_come_back(tmp_path, backend):
    model = MLP([Relu(), None], [4, 3])
    compiled = ml.compile(model, backend, shapes={"input": [2, 5]})
    params = compiled.randomize_params(seed=0)
    path = tmp_path / "params.safetensors"
    ml.save_params(path, params)
    inputs = {"input": backend.ones(2, 5)}
    want = backend.to_numpy(compiled.evaluate(params, inputs)["output"])
    again = ml.load_params(path, backend)
    assert all(type(again[name]) is type(value) for name, value in params.items())
    plain = ml.load_params(path, backend=None)
    assert all(type(value) is np.ndarray for value in plain.values())
    for each in (again, plain):
        found = compiled.evaluate(each, inputs)["output"]
        np.testing.assert_array_equal(backend.to_numpy(found), want)
    half = (
        {name: backend.cast(value, "bfloat16") for name, value in params.items()}
        if (backend.kind != "numpy")
        else params
    )
    ml.save_params(path, half)
    for name, value in ml.load_params(path, backend).items():
        assert ml.DType(value.dtype) == ml.DType(half[name].dtype)


def test_loaded_torch_params_are_leaf_tensors(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "params.safetensors"
    weights = {"w": torch.ones(2, 3, requires_grad=True), "n": torch.arange(3)}
    ml.save_params(path, weights)
    found = ml.load_params(path, ml.TorchBackend(requires_grad=True))
    assert found["w"].requires_grad and found["w"].is_leaf and not found["n"].requires_grad
    assert not ml.load_params(path, ml.TorchBackend())["w"].requires_grad


def test_saved_params_follow_the_safetensors_format(tmp_path):
    """The format's definition: the header's length, a JSON header, then the elements."""
    path = tmp_path / "params.safetensors"
    ml.save_params(path, {"a.w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(1)})
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    assert (8 + length) % 8 == 0
    assert head["a.w"]["dtype"] == "F32" and head["a.w"]["shape"] == [2, 3]
    start, end = head["a.w"]["data_offsets"]
    own = np.frombuffer(data[8 + length :][start:end], "float32").reshape(2, 3)
    np.testing.assert_array_equal(own, np.arange(6).reshape(2, 3))


def test_saved_files_respect_the_umask(tmp_path):
    program = """
import os, sys
import numpy as np
import mithril as ml
os.umask(int(sys.argv[1], 8))
os.chdir(sys.argv[2])
ml.save_params("params.safetensors", {"w": np.ones(3)})
if sys.argv[3] == "True":
    compiled = ml.compile(ml.Linear(2), ml.CpuBackend(), shapes={"input": [1, 3]})
    compiled.export(".", name="net", params=compiled.randomize_params())
"""
    native = has("cpu") and has("c")
    for umask, mode in ((0o022, 0o644), (0o027, 0o640)):
        folder = tmp_path / oct(umask)
        folder.mkdir()
        arguments = [oct(umask)[2:], str(folder), str(native)]
        subprocess.run([sys.executable, "-c", program, *arguments], check=True)
        names = ["params.safetensors", *(["net.safetensors", "net.h"] if native else [])]
        for name in names:
            assert stat.S_IMODE((folder / name).stat().st_mode) == mode, name


def test_save_params_is_atomic(tmp_path):
    path = tmp_path / "params.safetensors"
    ml.save_params(path, {"w": np.ones(3)})
    before = path.read_bytes()
    for wrong in (
        {"w": "text"},
        {"w": [1.0]},
        {"w": np.array([None])},
        {"__metadata__": np.ones(1)},
    ):
        with pytest.raises(ml.MithrilError):
            ml.save_params(path, wrong)
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == [path.name]
    with pytest.raises(ml.MithrilError, match="cannot be written"):
        ml.save_params(tmp_path / "no" / "folder", {"w": np.ones(3)})
    for params in (None, 3, {3: np.ones(1)}, np.ones(3)):
        with pytest.raises(ml.MithrilError):
            ml.save_params(path, params)
    waiting = ml.compile(Linear(2), ml.NumpyBackend()).randomize_params()
    with pytest.raises(ml.MithrilError, match="give `shapes=` for every input"):
        ml.save_params(path, waiting)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "params.safetensors"
    ml.save_params(path, {"w": np.ones(64)})
    whole = path.read_bytes()
    cases = [b"", b"{}", whole[:-1], whole[:20], b"\xff" * 8 + whole[8:], whole[:8] + b"x" * 100]
    for data in cases:
        path.write_bytes(data)
        with pytest.raises(ml.MithrilError, match="the file of params is damaged"):
            ml.load_params(path)
    with pytest.raises(ml.MithrilError, match="cannot be read"):
        ml.load_params(tmp_path / "none")
    with pytest.raises(ml.UsageError, match="`backend` cannot create arrays"):
        ml.load_params(path, "numpy")
    ml.save_params(path, {})
    assert ml.load_params(path) == {}


def test_params_of_an_npz_file_work(tmp_path, backend):
    model = Linear(3)
    compiled = ml.compile(model, backend, shapes={"input": [2, 4]})
    params = {n: backend.to_numpy(v) for n, v in compiled.randomize_params(seed=0).items()}
    np.savez(tmp_path / "params.npz", **params)
    inputs = {"input": backend.ones(2, 4)}
    seeds = {"output": backend.ones(2, 3)}
    want, slopes = compiled.evaluate(params, inputs, output_gradients=seeds)
    with np.load(tmp_path / "params.npz") as file:
        found, gradients = compiled.evaluate(file, inputs, output_gradients=seeds)
        plain = compiled.evaluate(file, inputs)
        bound = compiled.bind(file).evaluate({}, inputs)
    for each in (found, plain, bound):
        value = backend.to_numpy(each["output"])
        np.testing.assert_allclose(value, backend.to_numpy(want["output"]), rtol=1e-6)
    assert gradients.keys() == slopes.keys()
    with pytest.raises(ml.MithrilError, match="`params` must be a dict of arrays by name"):
        compiled.evaluate([1], inputs)


# Names.


def test_params_whose_names_changed_are_told_and_renamed(backend):
    before = ml.compile(grown(Linear(3), Relu()), backend, shapes={"input": [2, 4]})
    after = ml.compile(grown(Linear(3), Relu(), Linear(2)), backend, shapes={"input": [2, 4]})
    params, inputs = before.randomize_params(seed=0), {"input": backend.ones(2, 4)}
    for call in (
        lambda: after.evaluate(params, inputs),
        lambda: after.evaluate(params, inputs, output_gradients=backend.ones(2, 2)),
        lambda: after.bind(params),
    ):
        with pytest.raises(ml.TerminalError) as caught:
            call()
        message = str(caught.value)
        assert "renamed: `linear.w` -> `linear_0.w`, `linear.b` -> `linear_0.b`" in message
        assert "compiled.rename_params(params)" in message
    renamed = after.rename_params(params)
    assert renamed.keys() == {"linear_0.w", "linear_0.b"}
    assert params.keys() == {"linear.w", "linear.b"}
    both = after.randomize_params(seed=1) | renamed
    after.evaluate(both, inputs)
    assert both["linear_0.w"] is params["linear.w"]
    # The other direction, with names that did not change.
    assert before.rename_params(renamed).keys() == params.keys()
    assert after.rename_params(both).keys() == both.keys()


def test_names_inside_blocks_are_renamed():
    inner = grown(MLP([Relu()], [3]), Relu())
    before = ml.compile(grown(inner.copy()), shapes={"input": [2, 4]})
    after = ml.compile(grown(inner.copy(), grown(MLP([None], [3]), MLP([None], [2]))))
    renamed = after.rename_params(before.randomize_params())
    assert renamed.keys() == {"model_0.mlp.linear.w", "model_0.mlp.linear.b"}
    with pytest.raises(ml.TerminalError) as caught:
        after.rename_params({"model_2.mlp.linear.w": 0})
    assert "no param `model_2.mlp.linear.w` and never had one" in str(caught.value)
    with pytest.raises(ml.UsageError):
        after.rename_params([1])


# Inference.


def classifier():
    return grown(Linear(8), BatchNorm1d(), Relu(), Dropout(0.5), Linear(3))


def trained(model):
    training = TrainModel(model)
    training.add_loss(CrossEntropy(), input="output", target="target")
    training.add_regularization(L2(), coef=1e-3, input="linear_0.w")
    training.add_metric(Accuracy(), input="output", target="target")
    return training


def batches(backend, count=3):
    rng = np.random.default_rng(0)
    for _ in range(count):
        x = rng.normal(1, 2, (8, 4)).astype("float32")
        target = rng.integers(0, 3, 8)
        yield {"input": backend.from_numpy(x), "target": backend.array(target)}


def test_inference_draws_the_initial_state_once(monkeypatch):
    backend, drawn, draw = ml.NumpyBackend(), [], drawing.state
    monkeypatch.setattr(drawing, "state", lambda *given: drawn.append(1) or draw(*given))
    training = ml.compile(BatchNorm1d(), backend, shapes={"input": [8, 4]})
    params, use = training.randomize_params(seed=0), training.for_inference()
    x = {"input": backend.randn(8, 4)}
    first, second = (use.evaluate(params, x)["output"] for _ in range(2))
    assert drawn == [1]
    np.testing.assert_array_equal(first, second)
    training.evaluate(params, {"input": x["input"] + 3})
    assert np.abs(use.evaluate(params, x)["output"] - first).max() > 0.1


def test_inference_reads_the_state_of_training(backend):
    model = classifier()
    shapes = {"input": [8, 4], "target": [8]}
    training = ml.compile(trained(model), backend, shapes=shapes)
    use = training.for_inference()
    assert use.inputs == ("input",)
    assert use.outputs == ("output",)
    assert use.params == training.params
    assert use.states == training.states
    params = training.randomize_params(seed=0)
    plain = ml.compile(model, backend, shapes={"input": [8, 4]}, inference=True)
    values = []
    for batch in batches(backend):
        _, gradients = training.evaluate(params, batch, output_gradients=True)
        params = {name: value - 0.1 * gradients[name] for name, value in params.items()}
        x = {"input": batch["input"]}
        found = use.evaluate(params, x)["output"]
        want = plain.evaluate(params, x, state=training.state)[0]["output"]
        np.testing.assert_array_equal(backend.to_numpy(found), backend.to_numpy(want))
        values.append(backend.to_numpy(found))
        for name, value in training.state.items():
            own = backend.to_numpy(use.state[name])
            np.testing.assert_array_equal(own, backend.to_numpy(value))
    other = plain.evaluate(params, x)["output"]
    assert not np.allclose(backend.to_numpy(other), values[-1])
    # A bound model keeps the state that it was bound with.
    bound = use.bind(params)
    held = backend.to_numpy(bound.evaluate({}, x)["output"])
    np.testing.assert_allclose(held, values[-1], rtol=1e-5, atol=1e-6)
    training.evaluate(params, next(batches(backend)))
    np.testing.assert_array_equal(backend.to_numpy(bound.evaluate({}, x)["output"]), held)
    with pytest.raises(ml.MithrilError, match="has no gradients"):
        use.evaluate(params, x, output_gradients=backend.ones(8, 3))
    with pytest.raises(ml.UsageError, match="for_inference"):
        use.state = training.state


def test_inference_of_other_sizes_and_without_shapes(backend):
    training = ml.compile(trained(classifier()), backend)
    use = training.for_inference()
    params = training.randomize_params(seed=0)
    batch = next(batches(backend))
    training.evaluate(params, batch, output_gradients=True)
    whole = backend.to_numpy(use.evaluate(params, {"input": batch["input"]})["output"])
    fixed = ml.compile(trained(classifier()), backend, shapes={"input": [8, 4], "target": [8]})
    fixed.state = training.state
    single = fixed.for_inference(shapes={"input": [None, 4]})
    for size in (1, 3):
        found = single.evaluate(params, {"input": batch["input"][:size]})["output"]
        np.testing.assert_allclose(backend.to_numpy(found), whole[:size], rtol=1e-4, atol=1e-5)


def test_inference_before_training_starts_from_the_first_state():
    training = ml.compile(classifier(), ml.NumpyBackend())
    use = training.for_inference()
    params = training.randomize_params(seed=0)
    x = next(batches(ml.NumpyBackend()))["input"]
    before = use.evaluate(params, {"input": x})["output"]
    plain = ml.compile(classifier(), ml.NumpyBackend(), inference=True)
    np.testing.assert_array_equal(before, plain.evaluate(params, {"input": x})["output"])
    training.evaluate(params, {"input": x})
    assert not np.allclose(use.evaluate(params, {"input": x})["output"], before)


def test_inference_omits_params_of_losses():
    judge = Model()
    judge |= Linear(3, name="head")("input", output="h")
    judge |= SquaredError()("h", "target", output="output")
    judge |= Mean()("output", output="loss")
    judge.discard("output")
    model = grown(Linear(3), Relu())
    training = TrainModel(model)
    training.add_loss(judge, reduce_steps=[], input="output", target="target")
    compiled = ml.compile(
        training,
        ml.NumpyBackend(),
        shapes={"input": ["batch", 4], "target": ["batch", 3]},
        dtypes={"target": ml.float32},
        discard_keys=["output"],
        keep=["linear", "model"],
        differentiate=True,
    )
    use = compiled.for_inference()
    assert set(compiled.params) - set(use.params) == {"model.head.w", "model.head.b"}
    params = compiled.randomize_params(seed=0)
    outputs = use.evaluate(params, {"input": np.ones((2, 4), "float32")})
    assert outputs.keys() == {"output", "linear"}
    want = np.ones((2, 4)) @ params["linear.w"] + params["linear.b"]
    np.testing.assert_allclose(outputs["linear"], want, rtol=1e-5)


# Models in use.


def test_models_in_use_cannot_be_changed():
    model = grown(Linear(3), Relu())
    training = TrainModel(model)
    with pytest.raises(ml.MithrilError, match="by `TrainModel`, and can no longer be changed"):
        model += Linear(2)
    training.add_loss(SquaredError())
    block = grown(Linear(3))
    grown(block, Relu())
    for change in (
        lambda: block.__iadd__(Relu()),
        lambda: block.__ior__(Relu()),
        lambda: block.expose("output"),
        lambda: block.rename("input", "x"),
    ):
        with pytest.raises(ml.MithrilError, match=r"can no longer be changed[\s\S]*copy\(\)"):
            change()


def test_training_models_in_use_cannot_be_changed():
    training = TrainModel(grown(Linear(3)))
    training.add_loss(SquaredError())
    outer = Model()
    outer |= training(final_cost="cost")
    for change in (
        lambda: training.add_loss(SquaredError()),
        lambda: training.add_metric(Accuracy()),
        lambda: training.add_regularization(L2(), 0.1, "linear.w"),
        lambda: training.set_loss_combiner(ml.Max()),
    ):
        with pytest.raises(ml.MithrilError, match="`TrainModel` has been used as a block"):
            change()


def test_compiling_takes_a_snapshot(backend):
    model = grown(Linear(3))
    training = TrainModel(Sequential([Linear(3)]))
    training.add_loss(SquaredError())
    compiled, cost = ml.compile(model, backend), ml.compile(training, backend)
    model += Linear(2)
    training.add_loss(ml.AbsoluteError(), target="other")
    params = compiled.randomize_params(seed=0)
    inputs = {"input": backend.ones(2, 4)}
    for each in (compiled, compiled.bind({}), compiled.for_inference()):
        outputs = each.evaluate(params, inputs)
        assert tuple(outputs["output"].shape) == (2, 3)
    seen = []
    compiled.register_hook("linear", seen.append)
    compiled.evaluate(params, inputs)
    assert tuple(seen[0].shape) == (2, 3)
    assert cost.for_inference().outputs == ("output",)
    assert "other" not in cost.inputs
    assert "linear_1.w" in ml.compile(model, backend).params


def test_late_params_are_copied_but_not_pickled():
    compiled = ml.compile(Linear(2), ml.NumpyBackend())
    params, x = compiled.randomize_params(seed=0), np.ones((1, 3), "f4")
    with pytest.raises(ml.MithrilError, match="`w` has no value before the first `eval") as error:
        pickle.dumps(params)
    assert "hint: give `shapes=`" in str(error.value)
    copies = [copy.copy(params), copy.deepcopy(params)]
    assert copy.copy(params["w"]) is params["w"] is not copies[1]["w"]
    expected = compiled.evaluate(params, {"input": x})["output"]
    for own in copies:
        np.testing.assert_array_equal(compiled.evaluate(own, {"input": x})["output"], expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(params))["w"], params["w"])
