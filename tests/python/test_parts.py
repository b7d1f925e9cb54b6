"""Models whose blocks run on several backends: values, gradients, borders, errors."""

import importlib
import logging
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from conftest import INSTALLED, MAKERS
from crossings import crossing, watch
from networks import MODELS

import mithril as ml
from mithril.models import (
    BatchNorm1d,
    BatchNorm2d,
    Conv2d,
    Dropout,
    Flatten,
    Gelu,
    LayerNorm,
    Linear,
    Relu,
    Scan,
    Sequential,
    SquaredError,
)

# Blocks of the shared networks that run elsewhere, by network.
PLACES = {
    "gpt": ("sequential_0", "sequential_1.residual_1"),
    "resnet": ("conv2d", "residual.sequential.conv2d_1"),
    "recurrent": ("lstm",),
}
# Pairs of the model's backend and that of the placed blocks.
PAIRS = [(one, other) for one in INSTALLED for other in INSTALLED if one != other]


def made(kind, **options):
    return getattr(ml, MAKERS[kind])(**options)


def mlp():
    return Sequential(
        [Linear(8, name="a"), Relu(), Linear(6, name="b"), Gelu(), Linear(3, name="d")]
    )


@pytest.mark.parametrize(("default", "other"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_those_of_one_backend(name, default, other, monkeypatch):
    """Arrays cross without a copy where two frameworks can share memory."""
    build, draw = MODELS[name]
    model = build()
    numbers = np.random.default_rng(3)
    given = draw(numbers)
    given = given if given.dtype.kind == "i" else given.astype(np.float32)
    shapes = {"input": list(given.shape)}
    whole = ml.compile(model, ml.NumpyBackend(), shapes=shapes)
    params = whole.randomize_params(seed=1)
    expected = whole.evaluate(params, {"input": given})["output"]
    seed = numbers.standard_normal(expected.shape).astype(np.float32)
    gradients = whole.evaluate_gradients(params, {"input": given}, {"output": seed})

    backend, second = made(default), made(other)
    crossed = watch(monkeypatch, backend, second)
    places = dict.fromkeys(PLACES[name], second)
    compiled = ml.compile(model, backend, shapes=shapes, backend_map=places)
    assert repr(second) in compiled.code
    own = {key: backend.array(value) for key, value in params.items()}
    inputs = {"input": backend.array(given)}
    found, slopes = compiled.evaluate(own, inputs, output_gradients={"output": backend.array(seed)})
    for result in (found, compiled.evaluate(own, inputs)):
        close(backend.to_numpy(result["output"]), expected)
    assert slopes.keys() == gradients.keys()
    for key, slope in slopes.items():
        assert backend.is_array(slope)
        close(backend.to_numpy(slope), gradients[key])
    assert crossed
    assert [found for found in crossed if found.is_copied != found.must_be_copied] == []


def close(found, expected):
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * scale)


WRITE = [kind for kind in INSTALLED if ml._core.Target(kind).dialect == "python"]
MOVES = [(one, other, "float32") for one in WRITE for other in WRITE if one != other]
MOVES += [(one, other, "bfloat16") for one, other in zip(WRITE, [*WRITE[1:], WRITE[0]])]


@pytest.mark.parametrize(("default", "other", "dtype"), MOVES)
def test_files_of_parts_run_without_mithril(default, other, dtype, tmp_path, monkeypatch):
    """The module imports those of the parts, and moves arrays between their frameworks."""
    backend = made(default, dtype=dtype)
    stem = f"{default}_{other}_{dtype}"
    compiled = ml.compile(
        mlp(),
        backend,
        shapes={"input": [5, 4]},
        backend_map={"b": made(other, dtype=dtype)},
        file_path=tmp_path / f"{stem}.py",
        jit=False,
    )
    files = sorted(path.name for path in tmp_path.glob("*.py"))
    assert files == [f"{stem}.py", *(f"{stem}_{at}.py" for at in (1, 2, 3))]
    assert not any("import mithril" in (tmp_path / file).read_text() for file in files)
    assert (tmp_path / f"{stem}.py").read_text() in compiled.code
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(stem)
    params, x = compiled.randomize_params(seed=0), backend.randn(5, 4)
    expected = compiled.evaluate(params, {"input": x})["output"]
    found = module.forward(params, {"input": x})["output"]
    assert type(found) is type(expected)
    close(*(backend.to_numpy(value).astype(np.float32) for value in (found, expected)))


def test_files_of_parts_have_states_and_several_results(tmp_path, monkeypatch):
    layers = [Linear(6, name="a"), BatchNorm1d(name="norm"), Relu(name="r"), Linear(2, name="z")]
    compiled = ml.compile(
        Sequential(layers),
        ml.NumpyBackend(),
        shapes={"input": [8, 4]},
        backend_map={"norm": ml.TorchBackend()},
        keep=["a"],
        file_path=tmp_path / "stateful.py",
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("stateful")
    params = compiled.randomize_params(seed=0)
    inputs = {"input": np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)}
    found, following = module.forward(params, inputs, compiled.state)
    expected = compiled.evaluate(params, inputs)
    assert found.keys() == expected.keys() and following.keys() == compiled.state.keys()
    for name in found:
        close(found[name], expected[name])
    for name in following:
        close(following[name], compiled.state[name])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_frameworks_share_memory(dtype):
    """Every pair of frameworks, in both directions."""
    backends = [made(kind) for kind in INSTALLED]
    for giver in backends:
        for taker in backends:
            array = giver.cast(giver.ones(64, 32), dtype)
            found = crossing(array, taker.receive(array))
            assert found.is_copied == found.must_be_copied, (giver, taker, found)


def test_blocks_name_their_backends():
    model = ml.Model()
    model += Linear(4, name="a", backend="torch")(input="x")
    model += Sequential([Linear(5, backend="numpy"), Relu()], name="inner", backend="torch")
    model += Linear(2)(output="y")
    loaded = ml.Model.from_json(model.to_json())
    for own in (model, loaded):
        compiled = ml.compile(own, ml.JaxBackend(), shapes={"x": [3, 4]}, verbose=False)
        kinds = [line for line in compiled.code.splitlines() if line.startswith("# model_")]
        found = [line.split(": ")[1].split("(")[0] for line in kinds]
        assert found == ["TorchBackend", "NumpyBackend", "TorchBackend", "JaxBackend"]
    # The map says which backend a name stands for.
    own = ml.TorchBackend()
    compiled = ml.compile(model, ml.JaxBackend(), backend_map={"torch": own}, shapes={"x": [3, 4]})
    assert "from TorchBackend" in compiled.report()


def test_a_map_of_unused_names_changes_nothing():
    """The document's snippet: a model without blocks that name a backend."""
    backend, torch_backend = ml.JaxBackend(), ml.TorchBackend()
    compiled = ml.compile(
        model=Linear(4),
        backend=backend,
        backend_map={"torch": torch_backend},
        shapes={"input": [2, 3]},
    )
    assert "model_1" not in compiled.code


@pytest.mark.parametrize("shapes", [{"input": ["n", 4]}, None])
def test_verbose_lists_what_crosses(shapes, capsys):
    compiled = ml.compile(
        mlp(),
        ml.NumpyBackend(),
        shapes=shapes,
        backend_map={"b": ml.TorchBackend()},
        verbose=True,
    )
    if shapes is None:  # the parts are known once the first call tells the ranks
        assert "part 2" not in capsys.readouterr().out
        inputs = {"input": np.ones((5, 4), np.float32)}
        for _ in range(2):
            compiled.evaluate(compiled.randomize_params(0), inputs)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    torch = "TorchBackend(dtype=float32, device='cpu')"
    assert f"part 2: {torch}" in lines
    n = "n" if shapes else "input_0"
    assert (
        f"transfer of relu: float32[{n}, 8], from NumpyBackend(dtype=float32) to {torch}" in lines
    )
    assert f"transfer of b: float32[{n}, 6], from {torch} to NumpyBackend(dtype=float32)" in lines
    assert sum(line.startswith("part ") for line in lines) == 3


def test_state_keys_and_inference():
    """Running statistics, random keys and the inference twin, against one backend."""
    layers = [Conv2d(4, 3, name="conv"), BatchNorm2d(name="norm"), Relu(), Flatten(start=1)]
    layers += [Dropout(0.5, name="drop"), Linear(3, name="head")]
    model = Sequential(layers)
    numbers = np.random.default_rng(5)
    image = numbers.standard_normal((4, 2, 6, 6)).astype(np.float32)
    key = np.array([1, 2], np.uint32)
    shapes = {"input": [4, 2, 6, 6]}
    outputs = []
    for places in ({}, {"norm": ml.JaxBackend(), "drop": ml.CpuBackend()}):
        backend = ml.NumpyBackend()
        compiled = ml.compile(
            model, backend, shapes=shapes, backend_map=places, random="exact", checks=True
        )
        params = compiled.randomize_params(seed=2)
        key_name = next(name for name in compiled.inputs if name != "input")
        inputs = {"input": image, key_name: key}
        ones = {"output": np.ones((4, 3), np.float32)}
        first, gradients = compiled.evaluate(params, inputs, output_gradients=ones)
        second = compiled.evaluate(params, inputs)
        twin = compiled.for_inference().evaluate(params, {"input": image})
        assert compiled.states
        outputs.append([first, gradients, second, compiled.state, twin])
    for one, other in zip(*outputs):
        assert one.keys() == other.keys()
        for name in one:
            close(other[name], one[name])


def test_unknown_ranks_wait_for_the_first_call(caplog):
    model = Sequential([LayerNorm(name="norm"), Linear(3, name="head"), Relu()])
    backend = ml.NumpyBackend()
    compiled = ml.compile(model, backend, backend_map={"head": ml.TorchBackend()})
    params = compiled.randomize_params(seed=0)
    with caplog.at_level(logging.INFO, "mithril"):
        for shape in ((2, 4), (5, 2, 4)):
            given = backend.randn(*shape)
            found = compiled.evaluate(params, {"input": given})["output"]
            whole = ml.compile(model, backend, shapes={"input": list(shape)})
            close(found, whole.evaluate(params, {"input": given})["output"])
    assert len(caplog.records) == 2


def test_hooks_kept_values_and_bound_params():
    seen = []
    backend = ml.NumpyBackend()
    compiled = ml.compile(
        mlp(), backend, shapes={"input": [2, 4]}, keep=["a"], backend_map={"b": ml.TorchBackend()}
    )
    params = compiled.randomize_params(seed=0)
    compiled.register_hook("b", seen.append)
    given = {"input": backend.randn(2, 4)}
    outputs = compiled.evaluate(params, given)
    assert list(outputs) == ["output", "a"]
    assert seen[0].shape == (2, 6)
    bound = compiled.bind({"b.w": params["b.w"]})
    rest = {name: value for name, value in params.items() if name != "b.w"}
    close(bound.evaluate(rest, given)["output"], outputs["output"])


def test_gradients_that_are_outputs():
    """`differentiate=` takes gradients before the model is divided."""
    train = ml.TrainModel(mlp())
    train.add_loss(SquaredError())
    backend = ml.NumpyBackend()
    numbers = np.random.default_rng(1)
    given = {"input": numbers.standard_normal((2, 4)).astype(np.float32)}
    given["target"] = numbers.standard_normal((2, 3)).astype(np.float32)
    shapes = {"input": [2, 4]}
    found = []
    for places in ({}, {"b": ml.TorchBackend()}):
        compiled = ml.compile(train, backend, shapes=shapes, backend_map=places, differentiate=True)
        found.append(compiled.evaluate(compiled.randomize_params(seed=0), given))
        assert not places or "TorchBackend" in compiled.code
    for name in found[0]:
        close(found[1][name], found[0][name])


def test_training_lowers_the_loss():
    train = ml.TrainModel(mlp())
    train.add_loss(SquaredError())
    backend = ml.JaxBackend()
    backend.set_seed(0)
    inputs = {"input": backend.randn(16, 4), "target": backend.randn(16, 3)}
    costs = []
    for places in ({}, {"b": ml.TorchBackend()}):
        compiled = ml.compile(train, backend, backend_map=places)
        params = compiled.randomize_params(seed=0)
        costs.append([])
        for _ in range(30):
            outputs, gradients = compiled.evaluate(params, inputs, output_gradients=True)
            params = {name: value - 0.1 * gradients[name] for name, value in params.items()}
            costs[-1].append(float(outputs["final_cost"]))
    np.testing.assert_allclose(costs[1], costs[0], rtol=1e-4)
    assert costs[1][-1] < costs[1][0] - 0.02


def test_shared_params_add_their_gradients():
    """A param that blocks on two backends read."""
    layer = Linear(4, name="a")
    model = ml.Model()
    model += layer(input="x")
    model += Relu()
    model += layer
    model += Linear(2, name="z")(output="y")
    backend = ml.TorchBackend()
    whole = ml.compile(model, backend, shapes={"x": [3, 4]})
    blocks = {line.strip("# ").strip() for line in whole.code.splitlines()}
    second = next(name for name in ("a_1", "linear_1", "linear") if name in blocks)
    compiled = ml.compile(
        model, backend, shapes={"x": [3, 4]}, backend_map={second: ml.NumpyBackend()}
    )
    params = whole.randomize_params(seed=0)
    inputs, seed = {"x": backend.randn(3, 4)}, {"y": backend.ones(3, 2)}
    expected = whole.evaluate_gradients(params, inputs, seed)
    found = compiled.evaluate_gradients(params, inputs, seed)
    for name in expected:
        close(found[name].numpy(), expected[name].numpy())


def test_an_operation_that_only_one_backend_has():
    erf = ml.custom(name="erf", shape="(x: [*b]) -> (y: [*b])", torch="return torch.erf(x)")
    model = Sequential([Linear(4), erf, Linear(2)])
    with pytest.raises(ml.BackendError, match="does not support operation"):
        ml.compile(model, ml.NumpyBackend(), shapes={"input": [2, 3]}, inference=True)
    compiled = ml.compile(
        model,
        ml.NumpyBackend(),
        shapes={"input": [2, 3]},
        inference=True,
        backend_map={"erf": ml.TorchBackend()},
    )
    params = compiled.randomize_params(seed=0)
    assert compiled.evaluate(params, {"input": np.ones((2, 3), np.float32)})["output"].shape == (
        2,
        2,
    )


def test_many_parts():
    """The gradients of a long chain of parts do not exceed Python's stack."""
    names = [f"l{at}" for at in range(120)]
    model = Sequential([Linear(2, name=name) for name in names])
    backend = ml.NumpyBackend()
    places = dict.fromkeys(names[::2], ml.TorchBackend())
    compiled = ml.compile(model, backend, shapes={"input": [1, 2]}, backend_map=places)
    params = compiled.randomize_params(seed=0)
    ones = {"output": np.ones((1, 2), np.float32)}
    gradients = compiled.evaluate_gradients(params, {"input": np.ones((1, 2), np.float32)}, ones)
    assert len(gradients) == 240


def test_devices_of_blocks():
    """Blocks on other devices of one framework: params and their gradients lie there."""
    script = """
        import numpy as np, jax, mithril as ml
        from mithril.models import *
        one = jax.devices()[1]
        model = Sequential([Linear(4, name="a"), Relu(), Linear(3, name="b", device="cpu:1")])
        backend = ml.JaxBackend()
        compiled = ml.compile(model, backend, shapes={"input": [2, 5]})
        assert 'jax.device_put(relu, jax.devices("cpu")[1])' in compiled.code
        params = compiled.randomize_params(seed=0)
        assert params["b.w"].devices() == {one} and params["a.w"].devices() == {jax.devices()[0]}
        inputs = {"input": backend.randn(2, 5)}
        outputs, gradients = compiled.evaluate(
            params, inputs, output_gradients={"output": backend.ones(2, 3)}
        )
        assert gradients["b.w"].devices() == {one}
        assert gradients["a.w"].devices() == {jax.devices()[0]}
        whole = ml.compile(
            Sequential([Linear(4, name="a"), Relu(), Linear(3, name="b")]),
            backend, shapes={"input": [2, 5]},
        )
        home = {name: jax.device_put(p, jax.devices()[0]) for name, p in params.items()}
        wanted, slopes = whole.evaluate(
            home, inputs, output_gradients={"output": backend.ones(2, 3)}
        )
        np.testing.assert_allclose(outputs["output"], wanted["output"], atol=1e-6)
        for name in slopes:
            np.testing.assert_allclose(gradients[name], slopes[name], atol=1e-6)
        for model in (whole, compiled):
            compiled = ml.compile(
                model._model.block, backend, shapes={"input": [2, 5]}, devices={"a.*": "cpu:1"}
            )
            assert 'jax.device_put(params["a.w"], jax.devices()[0])' in compiled.code
            assert "transfer of a.w" in compiled.report()
            params = compiled.randomize_params(seed=0)
            assert params["a.w"].devices() == params["a.b"].devices() == {one}
            outputs, gradients = compiled.evaluate(
                params, inputs, output_gradients={"output": backend.ones(2, 3)}
            )
            assert gradients["a.w"].devices() == {one}
            np.testing.assert_allclose(outputs["output"], wanted["output"], atol=1e-6)
            for name in slopes:
                np.testing.assert_allclose(gradients[name], slopes[name], atol=1e-6)
            compiled.for_inference().evaluate(params, inputs)
    """
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("places", "options", "error", "text"),
    [
        ({"bb": ml.TorchBackend()}, {}, ml.TerminalError, "did you mean `b`"),
        ({"b.w": ml.TorchBackend()}, {}, ml.TerminalError, "has no block `b.w`"),
        ({"b": "torch"}, {}, ml.UsageError, "must map names to backends"),
        ({"b": ml.TorchBackend(dtype="float64")}, {}, ml.BackendError, "must have one dtype"),
        ({"b": ml.CBackend()}, {"file_path": "m.py"}, ml.BackendError, "Python source"),
        ({"b": ml.TorchBackend()}, {"file_path": "my-model.py"}, ml.UsageError, "of a module"),
        ({"b": ml.TorchBackend()}, {"file_path": "no/m.py"}, ml.UsageError, "existing"),
        (7, {}, ml.UsageError, "backend_map"),
        ({}, {"devices": {"aa.*": "cpu"}}, ml.TerminalError, "no param matches the pattern `aa"),
        ({}, {"devices": {"a.w": "cuda"}}, ml.BackendError, "only on the CPU"),
        ({}, {"devices": {"a.w": 1}}, ml.UsageError, "names of params to devices"),
    ],
)
def test_wrong_maps(places, options, error, text):
    with pytest.raises(error, match=text):
        ml.compile(
            mlp(), ml.NumpyBackend(), shapes={"input": [2, 4]}, backend_map=places, **options
        )


def test_wrong_places_of_blocks():
    backend = ml.NumpyBackend()
    with pytest.raises(ml.UsageError, match="no backend `torhc`"):
        ml.compile(Sequential([Linear(3, backend="torhc")]), backend)
    with pytest.raises(ml.UsageError, match="for blocks inside a model"):
        ml.compile(Linear(3, backend="torch"), backend)
    with pytest.raises(ml.MithrilError, match="must be a name"):
        Linear(3, backend=ml.TorchBackend())
    with pytest.raises(ml.MithrilError, match="must be a name"):
        Linear(3, device="")
    with pytest.raises(ml.BackendError, match="only on the CPU"):
        ml.compile(Sequential([Linear(3, device="cuda")]), backend)
    step = ml.Model()
    step |= Linear(3, backend="torch", name="inside")("x", output="y")
    loop = ml.Model()
    loop |= Scan(step, over=["x"], collect=["y"], name="loop")(x="x", y=ml.IOKey("y"))
    with pytest.raises(ml.UsageError, match="placed as a whole"):
        ml.compile(loop, backend, shapes={"x": [4, 2, 3]})
    with pytest.raises(ml.UsageError, match="memory_budget"):
        ml.compile(
            mlp(), ml.CpuBackend(), backend_map={"b": ml.TorchBackend()}, memory_budget="1GB"
        )
