"""`ManyToOne`, `OneToMany` and `EncoderDecoder` compared with loops over PyTorch's cells, forward
and gradient, on every backend, with fixed and open dims."""

import re
from typing import Any

import numpy as np
import pytest
import torch

import mithril as ml
from mithril.errors import MithrilError

RNG = np.random.default_rng(17)
CELLS = {"RNN": ml.RNNCell, "LSTM": ml.LSTMCell, "GRU": ml.GRUCell}
TORCH = {"RNN": torch.nn.RNNCell, "LSTM": torch.nn.LSTMCell, "GRU": torch.nn.GRUCell}


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def stepper(kind: str, params: dict[str, Any]) -> Any:
    """One step of PyTorch's cell with our params: from input and state to the next state."""
    w, u, b = params["w"], params["u"], params["b"]
    width = u.shape[0]
    second = torch.zeros_like(b)
    if kind == "GRU":
        second = torch.cat([second[: 2 * width], params["b_new"]])
    cell = TORCH[kind](w.shape[0], width)
    own = {"weight_ih": w.T, "weight_hh": u.T, "bias_ih": b, "bias_hh": second}

    def step(x: Any, state: Any) -> Any:
        state = None if state is None else state if kind == "LSTM" else state[0]
        after = torch.func.functional_call(cell, own, (x, state))
        return after if isinstance(after, tuple) else (after,)

    return step


def inside(params: dict[str, Any], path: str) -> dict[str, Any]:
    """The params of one block, by their own names."""
    of = (n for n in params if f"{path}." in n)
    return {n.rsplit(".", 1)[1]: params[n] for n in of}


def read(kind: str, params: Any, x: Any, state: Any = None, lengths: Any = None) -> Any:
    """The states after the last step, or after as many steps as each sequence is long."""
    step = stepper(kind, params)
    for at, part in enumerate(x.unbind(1)):
        after = step(part, state)
        if lengths is not None:
            state = state or [torch.zeros_like(part) for part in after]
            inside = (at < lengths)[:, None]
            pairs = zip(after, state, strict=True)
            after = tuple(torch.where(inside, new, old) for new, old in pairs)
        state = after
    return state


def write(kind: str, params: Any, first: Any, state: Any, **more: Any) -> Any:
    head, target, steps = more["head"], more["target"], more["steps"]
    step = stepper(kind, params)
    outputs, x = [], first
    for at in range(steps):
        state = step(x, state)
        output = state[0] @ head["w"] + head["b"] if head else state[0]
        outputs.append(output)
        x = output if target is None else target[:, at]
    return torch.stack(outputs, 1)


def compare(block: ml.Block, arrays: dict[str, Any], reference: Any, *rest: Any) -> None:
    """Compares outputs and gradients of all arrays with torch's."""
    backend, named = rest
    model = ml.Model()
    model |= block(**{n: n for n in arrays}, **{n: n for n in block.outputs})
    dims = {"input": ["batch", "time"], "target": ["batch", "length"]}
    shapes = {}
    for name, array in arrays.items():
        shape = list(array.shape)
        shapes[name] = [*dims.get(name, ["batch"]), shape[-1]][-array.ndim :] if named else shape
    if named and arrays["input"].ndim == 2:
        shapes["input"] = ["batch", arrays["input"].shape[1]]
    if "lengths" in arrays:
        shapes["lengths"] = ["batch"] if named else [2]
    floats = [n for n in arrays if n != "lengths"]
    compiled = ml.compile(model, backend, shapes=shapes, trainable_keys=floats)
    drawn = compiled.randomize_params()
    params = {n: arrays[n] if n in arrays else numbers(*drawn[n].shape) / 2 for n in drawn}
    leaves = {n: torch.tensor(p, requires_grad=True) for n, p in params.items()}
    want = dict(zip(block.outputs, reference(leaves), strict=True))
    seeds = {n: numbers(*y.shape) for n, y in want.items()}
    torch.autograd.backward(list(want.values()), [torch.tensor(s) for s in seeds.values()])
    given = {n: backend.array(p) for n, p in params.items()}
    outputs, gradients = compiled.evaluate(
        given,
        {n: a for n, a in arrays.items() if n not in floats},
        output_gradients={n: backend.array(s) for n, s in seeds.items()},
    )
    to = backend.to_numpy
    for name, y in want.items():
        np.testing.assert_allclose(to(outputs[name]), y.detach(), rtol=3e-5, atol=3e-6)
    for name, leaf in leaves.items():
        grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        scale = max(1.0, float(grad.abs().max()))
        np.testing.assert_allclose(
            to(gradients[name]), grad, rtol=5e-5, atol=5e-6 * scale, err_msg=name
        )


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_many_to_one(kind, named, backend):
    block = ml.ManyToOne(CELLS[kind](4), head=ml.Linear(2) if kind == "LSTM" else None)
    arrays = {"input": numbers(2, 5, 3)}
    if kind != "GRU":
        arrays["hidden"] = numbers(2, 4)
    if kind == "LSTM":
        arrays["cell"] = numbers(2, 4)

    def reference(leaves: Any) -> Any:
        state = tuple(leaves[n] for n in ("hidden", "cell") if n in arrays) or None
        last = read(kind, inside(leaves, "scan.cell"), leaves["input"], state)
        head = inside(leaves, "head")
        return (*last, last[0] @ head["w"] + head["b"] if head else last[0])

    compare(block, arrays, reference, backend, named)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("lengths", [[5, 2], [0, 1]])
def test_lengths_of_sequences(lengths, kind, named, backend):
    """Steps past the end of a sequence leave the states as they are, and are not read."""
    block = ml.ManyToOne(CELLS[kind](4), use_lengths=True)
    arrays = {"input": numbers(2, 5, 3), "lengths": np.array(lengths, np.int32)}
    if kind != "GRU":
        arrays["hidden"] = numbers(2, 4)
    if kind == "LSTM":
        arrays["cell"] = numbers(2, 4)
    counts = torch.tensor(lengths)

    def reference(leaves: Any) -> Any:
        state = tuple(leaves[n] for n in ("hidden", "cell") if n in arrays) or None
        last = read(kind, inside(leaves, "scan.cell"), leaves["input"], state, counts)
        return (*last, last[0])

    compare(block, arrays, reference, backend, named)
    more = {"steps": 3, "head": ml.Linear(2)}
    block = ml.EncoderDecoder(CELLS[kind](4), CELLS[kind](4), use_lengths=True, **more)
    arrays = {"input": numbers(2, 5, 3), "start": numbers(2, 2), "lengths": arrays["lengths"]}

    def both(leaves: Any) -> Any:
        own = inside(leaves, "encoder.scan.cell")
        state = read(kind, own, leaves["input"], None, counts)
        own, head = inside(leaves, "decoder.scan.cell"), inside(leaves, "head")
        return [write(kind, own, leaves["start"], state, head=head, target=None, steps=3)]

    compare(block, arrays, both, backend, named)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("forced", [False, True])
def test_one_to_many(forced, kind, named, backend):
    length = 1 if kind == "GRU" else 4
    more = {"teacher_forcing": True} if forced else {"steps": length}
    block = ml.OneToMany(CELLS[kind](4), head=ml.Linear(3), **more)
    arrays = {"input": numbers(2, 3)}
    if forced:
        arrays["target"] = numbers(2, length, 3)
    if kind != "RNN":
        arrays["hidden"] = numbers(2, 4)
    if kind == "LSTM":
        arrays["cell"] = numbers(2, 4)

    def reference(leaves: Any) -> Any:
        state = tuple(leaves[n] for n in ("hidden", "cell") if n in arrays) or None
        own, head = inside(leaves, "scan.cell"), inside(leaves, "head")
        target = leaves.get("target")
        return [write(kind, own, leaves["input"], state, head=head, target=target, steps=length)]

    compare(block, arrays, reference, backend, named)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_encoder_decoder(kind, forced, named, backend):
    more = {"teacher_forcing": True} if forced else {"steps": 4}
    block = ml.EncoderDecoder(CELLS[kind](4), CELLS[kind](4), head=ml.Linear(2), **more)
    arrays = {"input": numbers(2, 5, 3), "start": numbers(2, 2)}
    if forced:
        arrays["target"] = numbers(2, 4, 2)

    def reference(leaves: Any) -> Any:
        state = read(kind, inside(leaves, "encoder.scan.cell"), leaves["input"])
        own, head = inside(leaves, "decoder.scan.cell"), inside(leaves, "head")
        target = leaves.get("target")
        return [write(kind, own, leaves["start"], state, head=head, target=target, steps=4)]

    compare(block, arrays, reference, backend, named)


def test_training_and_inference_have_the_same_params(backend):
    """A copy task is learned by teacher forcing, and its params serve inference."""
    cells = {"encoder": ml.GRUCell(8), "decoder": ml.GRUCell(8), "head": ml.Linear(2)}
    training = ml.TrainModel(ml.EncoderDecoder(**cells, teacher_forcing=True))
    training.add_loss(ml.SquaredError(), input="output", target="target")
    shapes = {"input": [4, 3, 2], "start": [4, 2], "target": [4, 3, 2]}
    compiled = ml.compile(training, backend, shapes=shapes)
    params = compiled.randomize_params(seed=1)
    # Some texts take more steps to learn.
    x = np.random.default_rng(0).standard_normal((4, 3, 2)).astype(np.float32) / 2
    arrays = {"input": x, "start": np.zeros((4, 2), np.float32), "target": x}
    inputs = {n: backend.array(a) for n, a in arrays.items()}
    costs = []
    for _ in range(30):
        outputs, gradients = compiled.evaluate(params, inputs, output_gradients=True)
        costs.append(float(backend.to_numpy(outputs["final_cost"])))
        params = {n: p - 0.3 * gradients[n] for n, p in params.items()}
    assert costs[-1] < 0.7 * costs[0]
    model = ml.EncoderDecoder(**cells, steps=3)
    own = ml.compile(model, backend, shapes={n: shapes[n] for n in ("input", "start")})
    assert sorted(own.params) == sorted(params)
    del inputs["target"]
    assert backend.to_numpy(own.evaluate(params, inputs)["output"]).shape == (4, 3, 2)


def test_there_is_one_loop_for_each_cell():
    block = ml.EncoderDecoder(ml.LSTMCell(4), ml.LSTMCell(4), steps=50, head=ml.Linear(3))
    shapes = {"input": [2, 20, 3], "start": [2, 3]}
    code = ml.compile(block, ml.JaxBackend(), shapes=shapes, inference=True).code
    assert code.count("jax.lax.scan(") == 2
    code = ml.compile(block, ml.NumpyBackend(), shapes=shapes, inference=True).code
    assert len(re.findall(r"^    for .* in ", code, re.MULTILINE)) == 2


def test_cells_of_your_own(backend):
    """A decaying sum, whose state is called `sum`."""
    cell = ml.Model()
    cell |= ml.Multiply()(left="sum", right=0.5, output="half")
    cell |= ml.Add()(left="half", right="input", output="total")
    block = ml.ManyToOne(cell, carry={"sum": "total"})
    assert block.inputs == ["input", "sum"]
    compiled = ml.compile(block, backend, shapes={"input": [1, 3, 2], "sum": [1, 2]})
    x = np.float32([[[1, 2], [3, 4], [5, 6]]])
    inputs = {"input": backend.array(x), "sum": backend.array(np.float32([[8, 8]]))}
    got = backend.to_numpy(compiled.evaluate({}, inputs)["output"])
    np.testing.assert_array_equal(got, [[1 + 0.25 + 1.5 + 5, 1 + 0.5 + 2 + 6]])


def test_steps_of_a_scan(backend):
    """Powers of two: a loop without a sequence."""
    body = ml.Model()
    body |= ml.Multiply()(left="x", right=2.0, output="double")
    block = ml.Scan(body, carry={"x": "double"}, steps=4, collect=["double"])
    assert (block.inputs, block.outputs) == (["x"], ["double", "double_sequence"])
    compiled = ml.compile(block, backend, shapes={"x": [2]}, trainable_keys=["x"])
    seeds = {"double": np.ones(2, np.float32), "double_sequence": np.ones((4, 2), np.float32)}
    outputs, gradients = compiled.evaluate(
        {"x": backend.array(np.float32([1, 3]))},
        {},
        output_gradients={n: backend.array(s) for n, s in seeds.items()},
    )
    np.testing.assert_array_equal(backend.to_numpy(outputs["double"]), [16, 48])
    np.testing.assert_array_equal(
        backend.to_numpy(outputs["double_sequence"]), [[2, 6], [4, 12], [8, 24], [16, 48]]
    )
    np.testing.assert_array_equal(backend.to_numpy(gradients["x"]), [46, 46])


def message(build: Any, **options: Any) -> str:
    with pytest.raises(MithrilError) as caught:
        ml.compile(build(), ml.NumpyBackend(), **options)
    return str(caught.value)


def test_mistakes_are_explained():
    text = message(lambda: ml.OneToMany(ml.GRUCell(4)))
    assert "the number of steps is not known" in text
    assert "`teacher_forcing=True`" in text
    text = message(lambda: ml.OneToMany(ml.GRUCell(4), steps=3, teacher_forcing=True))
    assert "`steps` has no meaning with `teacher_forcing`" in text
    text = message(lambda: ml.ManyToOne(ml.Linear(4)))
    assert "the cell has no known state" in text
    assert "Linear(dimension=4)" in text
    text = message(lambda: ml.ManyToOne("GRUCell"))
    assert "`GRUCell()` is that block" in text
    text = message(lambda: ml.OneToMany(ml.GRUCell(4), steps=3), shapes={"input": [2, 3]})
    assert "the carry `input` changes its type from step to step" in text
    assert "`prediction`: tensor<2 x 4 x f32>" in text
    block = lambda: ml.EncoderDecoder(ml.GRUCell(4), ml.GRUCell(5), steps=3)  # noqa: E731
    text = message(block, shapes={"input": [2, 3, 3], "start": [2, 5]})
    assert "`hidden` has the wrong width" in text
    assert "block `decoder.scan.cell` (GRUCell)" in text
    body = lambda: ml.Scan(ml.Multiply(), carry={"left": "output"}, over=["right"], steps=3)  # noqa: E731
    assert "`Scan` takes either `steps` or `over`" in message(body)
