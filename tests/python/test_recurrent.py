"""Recurrent cells and networks compared with PyTorch's, forward and gradients of inputs, params and
first states, on every backend, with fixed and open dims."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from conftest import WITHOUT_C

import mithril as ml
from mithril.errors import MithrilError

RNG = np.random.default_rng(5)
TORCH = {"RNN": torch.nn.RNN, "LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU}
TORCH_CELLS = {
    "RNNCell": torch.nn.RNNCell,
    "LSTMCell": torch.nn.LSTMCell,
    "GRUCell": torch.nn.GRUCell,
}


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def halves(weights: Any) -> tuple[Any, Any]:
    """The biases of PyTorch whose sum is the bias."""
    first = 0.25 * weights
    return first, weights - first


def theirs(kind: str, own: dict[str, Any], width: int, suffix: str) -> dict[str, Any]:
    """PyTorch's params for those of one cell or layer. A leaf has the name of our param."""
    params = {"weight_ih": own["w"].T, "weight_hh": own["u"].T}
    if "b" in own:
        first, second = halves(own["b"])
        if kind.startswith("GRU"):
            # The bias inside the reset product is PyTorch's second bias of the new gate.
            first = torch.cat([first[: 2 * width], own["b"][2 * width :]])
            second = torch.cat([second[: 2 * width], own["b_new"]])
        params |= {"bias_ih": first, "bias_hh": second}
    if "w_projection" in own:
        params["weight_hr"] = own["w_projection"].T
    return {name + suffix: value for name, value in params.items()}


def close(got: Any, want: Any, what: str) -> None:
    want = want.detach().numpy()
    assert got.shape == want.shape, what
    scale = max(1, np.abs(want).max(initial=0))
    np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-6 * scale, err_msg=what)


def compiled_of(block: ml.Block, arrays: dict[str, Any], backend: Any, named: bool, **more: Any):
    """The block, all of whose terminals are connected, with gradients of all floats."""
    model = ml.Model()
    model |= block(**{n: n for n in arrays}, **{n: n for n in block.outputs})
    sizes = {n: [f"n{s}" if named and s else s for s in a.shape] for n, a in arrays.items()}
    for shape in sizes.values():
        # The widths of params stay numbers.
        shape[-1:] = [int(str(size).removeprefix("n")) for size in shape[-1:]]
    floats = [n for n, a in arrays.items() if a.dtype.kind == "f"]
    dtypes = {n: a.dtype for n, a in arrays.items()}
    options = {"shapes": sizes, "dtypes": dtypes, "trainable_keys": floats} | more
    return ml.compile(model, backend, **options), floats


def compare(block: ml.Block, arrays: dict[str, Any], reference: Any, backend: Any, named: bool):
    """Compares outputs and gradients with those of `reference`, which takes tensors of inputs and
    of params by name, and returns the outputs by name."""
    if backend.kind == "jax":
        arrays = {n: a.astype(np.int32) if a.dtype.kind == "i" else a for n, a in arrays.items()}
    compiled, floats = compiled_of(block, arrays, backend, named)
    drawn = compiled.randomize_params()
    # Inputs are among the params, as all gradients are wanted.
    params = {n: arrays[n] if n in arrays else numbers(*drawn[n].shape) / 2 for n in drawn}
    learned = [n for n in params if n not in arrays]
    leaves = {n: torch.tensor(p, requires_grad=True) for n, p in params.items()}
    rest = {n: a for n, a in arrays.items() if n not in floats}
    own = {n.rsplit(".", 1)[0]: {} for n in learned}
    for n in learned:
        path, name = n.rsplit(".", 1)
        own[path][name] = leaves[n]
    inputs = {n: leaves[n] for n in floats} | {n: torch.tensor(a) for n, a in rest.items()}
    want = reference(inputs, {n.partition(".")[2]: p for n, p in own.items()})
    seeds = {n: numbers(*y.shape) for n, y in want.items()}
    torch.autograd.backward(list(want.values()), [torch.tensor(s) for s in seeds.values()])
    given = {n: backend.array(p) for n, p in params.items()}
    outputs, gradients = compiled.evaluate(
        given, rest, output_gradients={n: backend.array(s) for n, s in seeds.items()}
    )
    assert set(outputs) == set(want)
    for name, y in want.items():
        close(backend.to_numpy(outputs[name]), y, name)
    for name, leaf in leaves.items():
        grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        close(backend.to_numpy(gradients[name]), grad, f"gradient of {name}")
    inference, _ = compiled_of(block, arrays, backend, named, inference=True)
    again = inference.evaluate(given, rest)
    for name, y in want.items():
        close(backend.to_numpy(again[name]), y, f"{name} in inference")


CELLS = [
    (ml.RNNCell(4), {"input": (2, 3), "hidden": (2, 4)}),
    (ml.RNNCell(4, activation="relu"), {"input": (2, 3), "hidden": (2, 4)}),
    (ml.RNNCell(1, use_bias=False), {"input": (1, 1), "hidden": (1, 1)}),
    (ml.RNNCell(4), {"input": (3,), "hidden": (4,)}),
    (ml.LSTMCell(4), {"input": (2, 3), "hidden": (2, 4), "cell": (2, 4)}),
    (ml.LSTMCell(4, use_bias=False), {"input": (2, 3), "hidden": (2, 4), "cell": (2, 4)}),
    (ml.LSTMCell(4), {"input": (0, 3), "hidden": (0, 4), "cell": (0, 4)}),
    (ml.GRUCell(4), {"input": (2, 3), "hidden": (2, 4)}),
    (ml.GRUCell(4, use_bias=False), {"input": (2, 3), "hidden": (2, 4)}),
    (ml.RNNCell(4), {"input": (2, 3)}),
    (ml.LSTMCell(4), {"input": (2, 3)}),
    (ml.GRUCell(4), {"input": (2, 3)}),
]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("case", range(len(CELLS)))
def test_cells_are_those_of_torch(case, named, backend):
    block, shapes = CELLS[case]
    arrays = {n: numbers(*shape) for n, shape in shapes.items()}

    def reference(inputs: Any, params: Any) -> Any:
        (own,) = params.values()
        width = own["u"].shape[0]
        settings = {"bias": "b" in own}
        if "relu" in repr(block):
            settings["nonlinearity"] = "relu"
        cell = TORCH_CELLS[block.kind](own["w"].shape[0], width, **settings)
        state = [inputs[n] for n in ("hidden", "cell") if n in inputs]
        state = (tuple(state) if block.kind == "LSTMCell" else state[0]) if state else None
        own = theirs(block.kind, own, width, "")
        outputs = torch.func.functional_call(cell, own, (inputs["input"], state))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return dict(zip(block.outputs, outputs, strict=True))

    compare(block, arrays, reference, backend, named)


@dataclass
class Network:
    block: ml.Block
    batch: int = 3
    time: int = 5
    features: int = 2
    lengths: Any = None
    state: bool = False

    def setting(self, name: str, default: Any) -> Any:
        found = re.search(rf"\b{name}=(\w+)", repr(self.block))
        return default if found is None else eval(found[1])


NETWORKS = [
    Network(ml.RNN(4)),
    Network(ml.RNN(4, activation="relu", layers=2), state=True),
    Network(ml.RNN(3, bidirectional=True, use_bias=False), lengths=[5, 2, 1], state=True),
    Network(ml.LSTM(4)),
    Network(ml.LSTM(4), state=True),
    Network(ml.LSTM(4, use_bias=False), batch=1, time=1, state=True),
    Network(ml.LSTM(4), lengths=[2, 5, 4]),
    Network(ml.LSTM(3, bidirectional=True, layers=2), lengths=[1, 5, 3], state=True),
    Network(ml.LSTM(3, layers=3), time=1, batch=1),
    Network(ml.LSTM(4, reverse=True), lengths=[5, 2, 3], state=True),
    Network(ml.LSTM(4, return_sequence=False), lengths=[5, 2, 3]),
    Network(ml.LSTM(4, return_sequence=False, bidirectional=True, layers=2)),
    Network(ml.LSTM(4, projection=2), state=True),
    Network(ml.LSTM(3, projection=2, bidirectional=True, layers=2), lengths=[1, 5, 3], state=True),
    Network(ml.LSTM(4, projection=3, reverse=True, use_bias=False), lengths=[5, 2, 3]),
    Network(ml.LSTM(3, projection=1, layers=2, return_sequence=False), batch=1, time=1),
    Network(ml.GRU(4)),
    Network(ml.GRU(4, use_bias=False), state=True),
    Network(ml.GRU(3, bidirectional=True, layers=2), lengths=[4, 4, 1], state=True),
    Network(ml.GRU(1), batch=1, features=1),
    Network(ml.GRU(4, reverse=True)),
]


def torch_network(network: Network, inputs: Any, params: Any) -> Any:
    """The outputs of PyTorch's network for our params, by layer and direction."""
    block = network.block
    reverse = network.setting("reverse", False)
    layers, both = network.setting("layers", 1), network.setting("bidirectional", False)
    own: dict[str, Any] = {}
    first = next(iter(params.values()))
    width = first.get("w_projection", first["u"]).shape[0]
    for path, values in params.items():
        layer = int(re.search(r"layer_(\d+)", path)[1])
        suffix = f"_l{layer}" + ("_reverse" if path.endswith("backward") else "")
        own |= theirs(block.kind, values, width, suffix)
    settings = {"nonlinearity": "relu"} if "relu" in repr(block) else {}
    if "w_projection" in first:
        settings["proj_size"] = first["w_projection"].shape[1]
    bias = network.setting("use_bias", True)
    x, lengths = inputs["input"], inputs.get("lengths")
    if lengths is None:
        lengths = torch.full((x.shape[0],), x.shape[1])
    if reverse:
        x = flipped(x, lengths)
    module = TORCH[block.kind](
        x.shape[2], width, layers, bias=bias, batch_first=True, bidirectional=both, **settings
    )
    state = [inputs[n] for n in ("hidden", "cell") if n in inputs]
    state = (tuple(state) if block.kind == "LSTM" else state[0]) if state else None
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        x, lengths.to(torch.int64), batch_first=True, enforce_sorted=False
    )
    output, last = torch.func.functional_call(module, own, (packed, state))
    output, _ = torch.nn.utils.rnn.pad_packed_sequence(
        output, batch_first=True, total_length=x.shape[1]
    )
    if reverse:
        output = flipped(output, lengths)
    last = last if isinstance(last, tuple) else (last,)
    if not network.setting("return_sequence", True):
        ends = last[0][-2:] if both else last[0][-1:]
        output = torch.cat(list(ends), -1)
    return dict(zip(block.outputs, (output, *last), strict=True))


def flipped(x: Any, lengths: Any) -> Any:
    """Each sequence in reverse order within its own length."""
    rows = [torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(x, lengths, strict=True)]
    return torch.stack(rows)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("case", range(len(NETWORKS)))
def test_networks_are_those_of_torch(case, named, backend):
    network = NETWORKS[case]
    block = network.block
    arrays = {"input": numbers(network.batch, network.time, network.features)}
    if network.lengths:
        arrays["lengths"] = np.array(network.lengths, np.int64)
    if network.state:
        width = int(re.search(r"dimension=(\d+)", repr(block))[1])
        count = network.setting("layers", 1) * (1 + network.setting("bidirectional", False))
        names = ("hidden", "cell") if block.kind == "LSTM" else ("hidden",)
        arrays |= {n: numbers(count, network.batch, width) for n in names}
        if projected := network.setting("projection", None):
            arrays["hidden"] = numbers(count, network.batch, projected)
    compare(block, arrays, lambda x, p: torch_network(network, x, p), backend, named)


def test_what_lies_beyond_the_lengths_is_not_read(backend):
    model = ml.Model()
    model |= ml.LSTM(4, bidirectional=True)(input="input", lengths="lengths", output="output")
    compiled = ml.compile(model, backend, shapes={"input": [2, 4, 3], "lengths": [2]})
    params = compiled.randomize_params(seed=1)
    x, lengths = numbers(2, 4, 3), np.array([4, 2], np.int32)
    first = backend.to_numpy(compiled.evaluate(params, {"input": x, "lengths": lengths})["output"])
    other = x.copy()
    other[1, 2:] = 1e6
    again = compiled.evaluate(params, {"input": other, "lengths": lengths})["output"]
    np.testing.assert_array_equal(backend.to_numpy(again), first)
    assert not first[1, 2:].any()


def test_a_sequence_of_no_steps_keeps_its_state(backend):
    """PyTorch takes no empty sequences."""
    model = ml.Model()
    model |= ml.GRU(3)(input="input", hidden="hidden", output="output", last_hidden="last")
    shapes = {"input": [2, "time", 4], "hidden": [1, 2, 3]}
    compiled = ml.compile(model, backend, shapes=shapes)
    params = compiled.randomize_params(seed=1)
    hidden = numbers(1, 2, 3)
    outputs = compiled.evaluate(
        params, {"input": backend.array(numbers(2, 0, 4)), "hidden": backend.array(hidden)}
    )
    assert backend.to_numpy(outputs["output"]).shape == (2, 0, 3)
    np.testing.assert_array_equal(backend.to_numpy(outputs["last"]), hidden)


def test_dropout_between_layers_is_of_training_only(backend):
    shapes = {"input": [4, 6, 3]}
    block = ml.LSTM(8, layers=2, dropout=0.5)
    training = ml.compile(block, backend, shapes=shapes)
    plain = ml.compile(ml.LSTM(8, layers=2), backend, shapes=shapes)
    inference = ml.compile(block, backend, shapes=shapes, inference=True)
    params = training.randomize_params(seed=3)
    x = backend.array(numbers(4, 6, 3))
    key = np.array([1, 2], np.uint32)
    to = lambda y: backend.to_numpy(y["output"])  # noqa: E731
    want = to(plain.evaluate(params, {"input": x}))
    np.testing.assert_allclose(to(inference.evaluate(params, {"input": x})), want, rtol=1e-6)
    dropped = to(training.evaluate(params, {"input": x, "key": key}))
    assert np.abs(dropped - want).max() > 1e-3


def test_there_is_one_loop_for_each_layer_and_direction():
    block = ml.LSTM(4, layers=2, bidirectional=True)
    shapes = {"input": [2, 50, 3]}
    code = ml.compile(block, ml.JaxBackend(), shapes=shapes, inference=True).code
    assert code.count("jax.lax.scan(") == 4
    code = ml.compile(block, ml.NumpyBackend(), shapes=shapes, inference=True).code
    assert len(re.findall(r"^    for .* in ", code, re.MULTILINE)) == 4, code
    code = ml.compile(block, ml.TorchBackend(), shapes=shapes, inference=True).code
    assert not re.findall(r"^ *for .* in ", code, re.MULTILINE), code
    assert len(re.findall(r"= lstm_\w+\(", code)) == 4, code


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("given", [False, True])
def test_torch_computes_whole_layers(kind, given):
    """Layers are calls of PyTorch's functions, also for batches and sequences that are empty."""
    block = {
        "lstm": lambda: ml.LSTM(4, bidirectional=True),
        "gru": lambda: ml.GRU(4, bidirectional=True),
        "rnn_tanh": lambda: ml.RNN(4, bidirectional=True),
        "rnn_relu": lambda: ml.RNN(4, activation="relu", bidirectional=True),
    }[kind]()
    shapes = {"input": ["batch", "time", 3]}
    states = ["hidden", "cell"][: 1 + (kind == "lstm")] if given else []
    shapes |= {name: [2, "batch", 4] for name in states}
    runs = [ml.compile(block, make(), shapes=shapes) for make in (ml.NumpyBackend, ml.TorchBackend)]
    assert f"torch.{kind}(" in runs[1].code
    params = runs[0].randomize_params(seed=1)
    for batch, time in [(2, 5), (1, 1), (0, 3), (3, 0)]:
        inputs = {"input": numbers(batch, time, 3)}
        inputs |= {name: numbers(2, batch, 4) for name in states}
        got = []
        for run in runs:
            own = {name: run.backend.array(value) for name, value in params.items()}
            arrays = {name: run.backend.array(value) for name, value in inputs.items()}
            seeds = {"output": lambda y: y * 0 + 1}
            outputs, gradients = run.evaluate(own, arrays, output_gradients=seeds)
            values = [*outputs.values(), *(gradients[name] for name in sorted(gradients))]
            got.append([run.backend.to_numpy(value) for value in values])
        for want, value in zip(*got, strict=True):
            np.testing.assert_allclose(value, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("make", [ml.LSTM, ml.GRU])
def test_torch_does_not_copy_weights(make):
    """PyTorch takes transposed weights: they and their gradients lie so in memory."""
    compiled = ml.compile(make(5, layers=2), ml.TorchBackend(), shapes={"input": [2, 3, 4]})
    params = compiled.randomize_params(seed=0)
    want = ml.compile(make(5, layers=2), ml.NumpyBackend(), shapes={"input": [2, 3, 4]})
    for name, value in want.randomize_params(seed=0).items():
        np.testing.assert_array_equal(compiled.backend.to_numpy(params[name]), value)
    x = compiled.backend.array(numbers(2, 3, 4))
    _, gradients = compiled.evaluate(params, {"input": x}, output_gradients={"output": lambda y: y})
    weights = [name for name in params if name.endswith((".w", ".u"))]
    assert len(weights) == 4
    for name in weights:
        assert params[name].T.is_contiguous() and gradients[name].T.is_contiguous(), name


def test_first_values_are_those_of_torch():
    """Uniform within 1 / sqrt(dimension), for the params of each layer."""
    compiled = ml.compile(
        ml.GRU(64, bidirectional=True, layers=2), ml.NumpyBackend(), shapes={"input": [1, 2, 500]}
    )
    params = compiled.randomize_params(seed=2)
    assert len(params) == 16
    for name, value in params.items():
        assert 0.9 / 8 < np.abs(value).max() <= 1 / 8, name
        assert abs(value.mean()) < 0.02, name
    projected = ml.LSTM(64, projection=4, bidirectional=True)
    compiled = ml.compile(projected, ml.NumpyBackend(), shapes={"input": [1, 2, 500]})
    params = compiled.randomize_params(seed=2)
    assert len(params) == 8
    for name, value in params.items():
        assert 0.9 / 8 < np.abs(value).max() <= 1 / 8, name
    eye = ml.compile(ml.LSTMCell(4, init="orthogonal"), ml.NumpyBackend(), shapes={"input": [1, 3]})
    u = eye.randomize_params()["u"]
    np.testing.assert_allclose(u @ u.T, np.eye(4), atol=1e-6)


def test_networks_are_saved_and_trained(backend):
    model = ml.Model()
    model |= ml.LSTM(5, layers=2, bidirectional=True)(input="input", output="states")
    model |= ml.Linear(1)(input="states", output="output")
    text = model.to_json()
    assert ml.Model.from_json(text).to_json() == text
    training = ml.TrainModel(ml.GRU(3, return_sequence=False))
    training.add_loss(ml.SquaredError(), input="output", target="target")
    shapes = {"input": [4, 6, 2], "target": [4, 3]}
    compiled = ml.compile(training, backend, shapes=shapes)
    params = compiled.randomize_params(seed=1)
    inputs = {"input": backend.array(numbers(4, 6, 2)), "target": backend.array(numbers(4, 3) / 3)}
    costs = []
    for _ in range(8):
        outputs, gradients = compiled.evaluate(params, inputs, output_gradients=True)
        costs.append(float(backend.to_numpy(outputs["final_cost"])))
        params = {n: p - 0.5 * gradients[n] for n, p in params.items()}
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.9 * costs[0]


def test_half_precision():
    """States in half precision are close to those in single precision."""
    x = numbers(2, 7, 3)
    shapes = {"input": [2, 7, 3]}
    single = ml.compile(ml.LSTM(4), ml.NumpyBackend(), shapes=shapes)
    params = single.randomize_params(seed=1)
    want = single.evaluate(params, {"input": x})["output"]
    for make in WITHOUT_C:
        backend = make(dtype=ml.float16)
        compiled = ml.compile(ml.LSTM(4), backend, shapes=shapes)
        halved = {n: backend.array(p) for n, p in params.items()}
        got = backend.to_numpy(compiled.evaluate(halved, {"input": backend.array(x)})["output"])
        assert got.dtype == np.float16
        np.testing.assert_allclose(got, want, atol=5e-3)


def message(build: Any, *, shapes: Any = None, **names: str) -> str:
    """The error of a model of one block."""
    with pytest.raises(MithrilError) as caught:
        model = ml.Model()
        model |= build()(**names)
        ml.compile(model, ml.NumpyBackend(), shapes=shapes)
    return str(caught.value)


def test_mistakes_are_explained():
    text = message(lambda: ml.LSTM(4, bidirectional=True, reverse=True))
    assert "`reverse` has no meaning" in text
    text = message(lambda: ml.LSTM(10, 20))
    assert "`bidirectional` of `LSTM` has the wrong type" in text
    assert "the input's width is inferred: `LSTM(20)`" in text
    assert "it is called `dimension` here" in message(lambda: ml.GRU(hidden_size=4))
    assert "did you mean `layers`?" in message(lambda: ml.GRU(4, num_layers=2))
    own = {"input": "input", "output": "output"}
    text = message(lambda: ml.LSTM(4), shapes={"input": [2, 3]}, **own)
    assert "recurrent layers take a batch of sequences" in text
    assert "(batch, time, features)" in text
    assert "block `lstm.layer_0`" in text
    shapes = {"input": [2, 5, 3], "hidden": [2, 2, 4]}
    text = message(lambda: ml.GRU(4), shapes=shapes, hidden="hidden", **own)
    assert "`hidden` has the wrong shape" in text
    assert "[1 x 2 x 4]" in text
    shapes = {"input": [2, 5, 3], "lengths": [3]}
    text = message(lambda: ml.GRU(4), shapes=shapes, lengths="lengths", **own)
    assert "`lengths` has the wrong shape" in text
    shapes = {"input": [2, 3], "hidden": [2, 1]}
    text = message(lambda: ml.GRUCell(4), shapes=shapes, hidden="hidden", **own)
    assert "`hidden` has the wrong width" in text
    assert "a last dim of 4" in text


def test_costs_count_every_step():
    """Products of 7 steps, of the inputs and of the states; four gates with seven functions."""
    total = ml.GRU(4).cost({"input": [2, 7, 3]}).total
    products = 2 * 7 * 2 * (3 * 12 + 4 * 12)
    assert products < total.flops < 2 * products
    longer = ml.GRU(4).cost({"input": [2, 70, 3]}).total
    assert longer.flops == 10 * total.flops
    cell = ml.Scan(ml.GRUCell(4), {"hidden": "output"}, ["input"], axis=1)
    assert products < cell.cost({"input": [2, 7, 3]}).total.flops < 2 * products
    open_dims = cell.cost({"input": ["batch", "time", 3]}).total
    assert "time" in str(open_dims.flops)
