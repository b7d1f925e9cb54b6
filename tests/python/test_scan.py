"""`Scan` and `Map`: bodies that are called for each slice, forward and gradient, compared with
loops in PyTorch, on every backend, with fixed and open dims."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SOURCES
from loops import compare, numbers, values

import mithril as ml
from mithril.errors import MithrilError


def step() -> ml.Model:
    """`h_next = tanh(x @ w + b + h * scale)`, and its square as `y`."""
    body = ml.Model()
    body |= ml.Linear(3, name="own")(input="x", output="product")
    body |= ml.Multiply()(left="h", right="scale", output="scaled")
    body |= ml.Add()(left="product", right="scaled", output="sum")
    body |= ml.Tanh()(input="sum", output="h_next")
    body |= ml.Square()(input="h_next", output="y")
    body.expose("h_next")
    return body


def looped(order: Callable[[Any], Any] = list, axis: int = 0) -> Callable[..., Any]:
    """The loop in PyTorch: the last state, and the stacked states and squares."""

    def reference(h: Any, x: Any, scale: Any, w: Any, b: Any) -> Any:
        states = {}
        slices = x.unbind(axis)
        for at in order(range(len(slices))):
            h = states[at] = torch.tanh(slices[at] @ w + b + h * scale)
        states = [states[at] for at in sorted(states)]
        if not states:
            return h, x.new_zeros(0, *h.shape), x.new_zeros(0, *h.shape)
        stacked = torch.stack(states, axis)
        return h, stacked, stacked**2

    return reference


def arrays(time: int = 4, axis: int = 0) -> dict[str, Any]:
    x = (time, 2, 5) if axis == 0 else (2, time, 5)
    own = {"h": numbers(2, 3), "x": numbers(*x), "scale": numbers(3)}
    return own | {"scan.own.w": numbers(5, 3), "scan.own.b": numbers(3)}


OUTPUTS = ("h_next", "h_next_sequence", "y")
DIMS = {
    "fixed": {"h": [2, 3], "x": [4, 2, 5], "scale": [3]},
    "named": {"h": ["batch", 3], "x": ["time", "batch", 5], "scale": [3]},
    # The batches of `h` and `x` are two symbols, which a guard equates.
    "open": {"h": [None, 3], "x": [None, None, 5], "scale": [3]},
}


def scanned(**settings: Any) -> ml.Model:
    model = ml.Model()
    block = ml.Scan(step(), carry={"h": "h_next"}, over=["x"], collect=["h_next", "y"], **settings)
    assert block.inputs == ["x", "h", "scale", "own.w", "own.b"]
    assert block.outputs == list(OUTPUTS)
    model |= block(x="x", h="h", scale="scale", **{n: n for n in OUTPUTS})
    return model


@pytest.mark.parametrize("dims", DIMS)
def test_carries_sequences_captures_and_params(dims, backend):
    compare(scanned(), arrays(), looped(), OUTPUTS, backend, DIMS[dims])


@pytest.mark.parametrize("dims", DIMS)
def test_reverse(dims, backend):
    compare(scanned(reverse=True), arrays(), looped(reversed), OUTPUTS, backend, DIMS[dims])


@pytest.mark.parametrize("time", [1, 0])
def test_one_step_and_none(time, backend):
    shapes = {"h": [2, 3], "x": ["time", 2, 5], "scale": [3]}
    own = arrays(time)
    if time:
        return compare(scanned(), own, looped(), OUTPUTS, backend, shapes)
    compiled = ml.compile(scanned(), backend, shapes=shapes, trainable_keys=list(shapes))
    seeds = {"h_next": numbers(2, 3), "h_next_sequence": numbers(0, 2, 3), "y": numbers(0, 2, 3)}
    outputs, gradients = values(compiled, own, seeds, backend)
    np.testing.assert_array_equal(outputs["h_next"], own["h"])
    assert outputs["y"].shape == (0, 2, 3)
    np.testing.assert_array_equal(gradients["h"], seeds["h_next"])
    assert not gradients["scan.own.w"].any()
    return None


@pytest.mark.parametrize("axis", [1, -2])
def test_another_axis(axis, backend):
    own = arrays(axis=1)
    shapes = {"h": [2, 3], "x": [2, 4, 5], "scale": [3]}
    compare(scanned(axis=axis), own, looped(axis=1), OUTPUTS, backend, shapes)


def test_generated_code_has_one_loop_of_one_step():
    shapes = {"h": [2, 3], "x": [100, 2, 5], "scale": [3]}
    options = {"shapes": shapes, "inference": True}
    code = ml.compile(scanned(), ml.JaxBackend(), **options).code
    assert code.count("jax.lax.scan(") == 1
    for make in SOURCES:
        # JAX has a function for it, and tinygrad's code says what `tanh` is.
        if make.kind in ("jax", "tinygrad"):
            continue
        code = ml.compile(scanned(), make(), **options).code
        assert len(re.findall(r"^    for .* in ", code, re.MULTILINE)) == 1
        assert code.count(".tanh(") == 1
    long = ml.compile(scanned(), ml.NumpyBackend(), **options | {"shapes": shapes}).code
    short = {"h": [2, 3], "x": [2, 2, 5], "scale": [3]}
    assert ml.compile(scanned(), ml.NumpyBackend(), **options | {"shapes": short}).code == long


def test_a_cell_as_a_body_starts_at_zero(backend):
    """Carries that the body may leave out start at zero, or at what is connected to them."""
    block = ml.Scan(
        ml.LSTMCell(4), {"hidden": "output", "cell": "next_cell"}, ["input"], ["output"], axis=1
    )
    assert block.outputs == ["output", "next_cell", "output_sequence"]
    x = numbers(2, 5, 3)
    for shape in ([2, 5, 3], ["batch", "time", 3]):
        compiled = ml.compile(block, backend, shapes={"input": shape})
        layer = ml.compile(ml.LSTM(4), backend, shapes={"input": shape})
        params = compiled.randomize_params(seed=1)
        theirs = {f"layer_0.{n}": p for n, p in params.items()}
        got = compiled.evaluate(params, {"input": backend.array(x)})
        want = layer.evaluate(theirs, {"input": backend.array(x)})
        to = backend.to_numpy
        np.testing.assert_allclose(to(got["output_sequence"]), to(want["output"]), atol=1e-6)
        np.testing.assert_allclose(to(got["next_cell"]), to(want["last_cell"])[0], atol=1e-6)
    model = ml.Model()
    model |= block(input="input", hidden="hidden", output="output")
    shapes = {"input": [2, 0, 3], "hidden": [2, 4]}
    compiled = ml.compile(model, backend, shapes=shapes)
    hidden = numbers(2, 4)
    inputs = {"input": backend.array(x[:, :0]), "hidden": backend.array(hidden)}
    outputs = compiled.evaluate(compiled.randomize_params(), inputs)
    np.testing.assert_array_equal(backend.to_numpy(outputs["output"]), hidden)


def test_constants_as_carries_and_captures(backend):
    body = ml.Model()
    body |= ml.Add()(left="total", right="x", output="sum")
    body |= ml.Multiply()(left="sum", right="factor", output="total_next")
    model = ml.Model()
    model |= ml.Scan(body, carry={"total": "total_next"}, over=["x"])(
        x="x", total=1.0, factor=0.5, total_next="total"
    )
    x = numbers(6)

    def reference(x: Any) -> Any:
        total = torch.tensor(1.0)
        for value in x:
            total = (total + value) * 0.5
        return total

    compare(model, {"x": x}, reference, ["total"], backend, {"x": [6]})
    compare(model, {"x": x}, reference, ["total"], backend, {"x": ["n"]})


def test_scans_of_scans(backend):
    """Sums of running products along both axes of a matrix, with weights."""
    inner = ml.Model()
    inner |= ml.Multiply()(left="product", right="x", output="next_product")
    rows = ml.Scan(inner, carry={"product": "next_product"}, over=["x"])
    outer = ml.Model()
    outer |= rows(product="start", x="row", next_product="product")
    outer |= ml.Add()(left="total", right="product", output="next_total")
    model = ml.Model()
    model |= ml.Scan(outer, carry={"total": "next_total"}, over=["row"])(
        total="total", start="start", row="x", next_total="output"
    )
    own = {"total": numbers(2), "start": numbers(2), "x": numbers(3, 4, 2)}

    def reference(total: Any, start: Any, x: Any) -> Any:
        for row in x:
            product = start
            for value in row:
                product = product * value
            total = total + product
        return total

    for shapes in (
        {"total": [2], "start": [2], "x": [3, 4, 2]},
        {"total": ["n"], "start": ["n"], "x": ["rows", "columns", "n"]},
    ):
        compare(model, own, reference, ["output"], backend, shapes)


def test_map_calls_the_body_on_each_slice(backend):
    body = ml.Model()
    body |= ml.MatrixMultiply()(left="a", right="b", output="product")
    body |= ml.Softmax()(input="product", output="output")
    block = ml.Map(body, fixed=["b"])
    assert (block.inputs, block.outputs) == (["a", "b"], ["output"])
    own = {"a": numbers(3, 2, 4), "b": numbers(4, 5)}
    reference = lambda a, b: torch.softmax(a @ b, -1)  # noqa: E731
    for shapes in ({"a": [3, 2, 4], "b": [4, 5]}, {"a": ["n", "m", 4], "b": [4, 5]}):
        compare(block, own, reference, ["output"], backend, shapes)
    both = ml.Map(body, axis=1)
    own = {"a": numbers(2, 3, 4), "b": numbers(4, 3, 5)}
    reference = lambda a, b: torch.softmax(torch.einsum("mnk,knj->mnj", a, b), -1)  # noqa: E731
    shapes = {"a": [2, 3, 4], "b": [4, 3, 5]}
    compare(both, own, reference, ["output"], backend, shapes)


def test_state_is_updated_in_each_step(backend):
    """Running statistics of a body are carried from step to step."""
    body = ml.Model()
    body |= ml.BatchNorm1d()(input="x", output="y")
    x = numbers(3, 4, 2)
    scan = ml.compile(ml.Map(body), backend, shapes={"x": [3, 4, 2]})
    norm = ml.compile(ml.BatchNorm1d(), backend, shapes={"input": [4, 2]})
    params = scan.randomize_params(seed=1)
    own = norm.randomize_params(seed=1)
    got = backend.to_numpy(scan.evaluate(params, {"x": backend.array(x)})["y"])
    want = [
        backend.to_numpy(norm.evaluate(own, {"input": backend.array(part)})["output"]) for part in x
    ]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert len(scan.state) == len(norm.state) == 2
    for (_, one), (_, other) in zip(
        sorted(scan.state.items()), sorted(norm.state.items()), strict=True
    ):
        np.testing.assert_allclose(backend.to_numpy(one), backend.to_numpy(other), rtol=1e-5)


def test_each_step_draws_its_own_numbers(backend):
    body = ml.Model()
    body |= ml.Dropout(0.5)(input="x", output="y")
    shapes = {"x": [4, 50]}
    compiled = ml.compile(ml.Map(body), backend, shapes=shapes)
    x, key = np.ones((4, 50), np.float32), np.array([3, 4], np.uint32)
    draw = lambda: backend.to_numpy(  # noqa: E731
        compiled.evaluate({}, {"x": backend.array(x), "key": key})["y"]
    )
    first = draw()
    np.testing.assert_array_equal(first, draw())
    assert len({tuple(row) for row in first}) == 4
    assert set(np.unique(first)) == {0, 2}


def test_bodies_are_shared_saved_and_recomputed(backend):
    """One block object has one set of params, in scans as elsewhere."""
    layer = ml.Linear(3, name="own")
    model = ml.Model()
    body = ml.Model()
    body |= layer(input="x", output="product")
    body |= ml.Add()(left="product", right="h", output="h_next")
    recomputed = ml.Model(checkpoint=True)
    recomputed |= body(x="x", h="h", h_next="h_next")
    scan = ml.Scan(recomputed, carry={"h": "h_next"}, over=["x"])
    model |= scan(x="x", h="h", h_next="last")
    model |= layer(input="last", output="output")
    assert ml.Model.from_json(model.to_json()).to_json() == model.to_json()
    again = ml.Model.from_json(model.to_json())

    def reference(h: Any, x: Any, w: Any, b: Any) -> Any:
        for part in x:
            h = h + part @ w + b
        return h @ w + b

    names = ["scan.model.own.w", "scan.model.own.b"]
    own = {"h": numbers(2, 3), "x": numbers(4, 2, 3)}
    own |= {names[0]: numbers(3, 3), names[1]: numbers(3)}
    shapes = {"h": [2, 3], "x": [4, 2, 3]}
    for each in (model, again):
        compare(each, own, reference, ["output"], backend, shapes)


def test_summaries_and_types():
    block = ml.Scan(step(), carry={"h": "h_next"}, over=["x"])
    assert repr(block) == 'Scan(body=Model(), carry=[["h", "h_next"]], over=["x"])'
    again = ml.Scan(step(), carry=[["h", "h_next"]], over=["x"])
    assert again.outputs == block.outputs == ["h_next", "y"]
    table = block.summary({"h": [2, 3], "x": [4, 2, 5], "scale": [3]})
    assert "4 x 2 x 3" in table


def message(build: Callable[[], ml.Block], **options: Any) -> str:
    with pytest.raises(MithrilError) as caught:
        ml.compile(build(), ml.NumpyBackend(), **options)
    return str(caught.value)


def test_mistakes_are_explained():
    text = message(lambda: ml.Scan(step(), carry={"state": "h_next"}, over=["x"]))
    assert "the body `Model` of `Scan` has no input `state`" in text
    assert "`state` in `carry`" in text
    assert "`x`, `h`, `scale`" in text
    text = message(lambda: ml.Scan(step(), carry={"h": "h_nex"}, over=["x"]))
    assert "has no output `h_nex`" in text
    assert "did you mean `h_next`?" in text
    text = message(lambda: ml.Scan(step(), carry={"h": "h_next"}, over=["xs"]))
    assert "has no input `xs`" in text
    text = message(lambda: ml.Scan(step(), carry={"h": "h_next"}, over=["x"], collect=["z"]))
    assert "has no output `z`" in text
    text = message(lambda: ml.Scan(step(), carry={"h": "h_next"}, over=["h"]))
    assert "`h` of the body of `Scan` is named twice" in text
    text = message(lambda: ml.Scan(step(), carry={"h": "h_next"}, over=[]))
    assert "`Scan` has no sequence to go over" in text
    text = message(lambda: ml.Scan(step(), carry="h", over=["x"]))
    assert "`carry` of `Scan` has the wrong type" in text
    assert "a dict of strings" in text
    text = message(lambda: ml.Map(step(), fixed=["scales"]))
    assert "did you mean `scale`?" in text
    scan = lambda: ml.Scan(step(), carry={"h": "h_next"}, over=["x"])  # noqa: E731
    text = message(scan, shapes={"h": [3], "x": [4, 2, 5], "scale": [3]})
    assert "the carry `h` changes its type from step to step" in text
    assert "`h_next`: tensor<2 x 3 x f32>" in text
    assert "tensor<3 x f32>, the type of the first `h`" in text
    assert "block `scan` (Scan)" in text
    text = message(scan, shapes={"h": [2, 3], "x": [], "scale": [3]})
    assert "`x` has no axis 0" in text
    text = message(scan, shapes={"h": [2, 7], "x": [4, 2, 5], "scale": [3]})
    assert "block `scan.multiply` (Multiply)" in text
    body = ml.Model()
    body |= ml.Add()(left="a", right="b", output="y")
    text = message(lambda: ml.Map(body), shapes={"a": [3, 2], "b": [4, 2]})
    assert "the sequences of `Map` differ in length" in text
    assert "3 and 4" in text


def masked_steps(x: Any, hidden: Any, lengths: Any, reverse: bool) -> Any:
    """The last state, all states and all products of steps inside the sequences, time first."""
    states, products = [], []
    steps = range(len(x))
    for at in reversed(steps) if reverse else steps:
        new = torch.tanh(x[at] + 0.5 * hidden)
        inside = (at < lengths)[:, None]
        hidden = torch.where(inside, new, hidden)
        states.append(hidden)
        products.append(torch.where(inside, new * x[at], torch.zeros_like(new)))
    if reverse:
        states, products = states[::-1], products[::-1]
    return hidden, torch.stack(states), torch.stack(products)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("named", [False, True])
def test_lengths(named, axis, reverse, backend):
    """Steps beyond the end of a sequence keep the carry, and stack zeros."""
    body = ml.Model()
    body |= ml.Multiply()(left="h", right=0.5, output="half")
    body |= ml.Add()(left="x", right="half", output="sum")
    body |= ml.Tanh()(input="sum", output="next_h")
    body |= ml.Multiply()(left="next_h", right="x", output="product")
    body.expose("next_h")
    scan = ml.Scan(
        body,
        carry={"h": "next_h"},
        over=["x"] if reverse else None,
        collect=["next_h", "product"],
        axis=axis,
        reverse=reverse,
        use_lengths=True,
    )
    rng = np.random.default_rng(3)
    x, h = rng.standard_normal((5, 3, 2)), rng.standard_normal((3, 2))
    x, h, lengths = x.astype(np.float32), h.astype(np.float32), np.array([5, 2, 0], np.int32)
    leaves = {"x": torch.tensor(x, requires_grad=True), "h": torch.tensor(h, requires_grad=True)}
    want = masked_steps(leaves["x"], leaves["h"], torch.tensor(lengths), reverse)
    want = dict(zip(("next_h", "next_h_sequence", "product"), want, strict=True))
    seeds = {n: rng.standard_normal(y.shape).astype(np.float32) for n, y in want.items()}
    torch.autograd.backward(list(want.values()), [torch.tensor(s) for s in seeds.values()])
    turned = lambda y: np.swapaxes(y, 0, axis) if y.ndim == 3 else y  # noqa: E731
    arrays = {"x": turned(x), "h": h}
    dims = {"x": ["b", "t", 2] if axis else ["t", "b", 2], "h": ["b", 2], "lengths": ["b"]}
    fixed = {n: list(a.shape) for n, a in (arrays | {"lengths": lengths}).items()}
    compiled = ml.compile(scan, backend, shapes=dims if named else fixed, trainable_keys=["x", "h"])
    outputs, gradients = compiled.evaluate(
        {n: backend.array(a) for n, a in arrays.items()},
        {"lengths": lengths},
        output_gradients={n: backend.array(turned(s)) for n, s in seeds.items()},
    )
    assert set(outputs) == set(want)
    for name, y in want.items():
        got = turned(backend.to_numpy(outputs[name]))
        np.testing.assert_allclose(got, y.detach(), rtol=1e-5, atol=1e-6, err_msg=name)
    for name, leaf in leaves.items():
        got = turned(backend.to_numpy(gradients[name]))
        np.testing.assert_allclose(got, leaf.grad, rtol=1e-5, atol=1e-6, err_msg=name)


def test_lengths_of_cells_that_learn(backend):
    """A cell as the body: the states after each sequence's own end; the first state is 0."""
    scan = ml.Scan(ml.GRUCell(4), carry={"hidden": "output"}, axis=1, use_lengths=True)
    shapes = {"input": [3, 5, 2], "lengths": [3]}
    compiled = ml.compile(scan, backend, shapes=shapes)
    params = compiled.randomize_params(seed=1)
    x = np.random.default_rng(3).standard_normal((3, 5, 2)).astype(np.float32)
    inputs = {"input": backend.array(x), "lengths": np.array([5, 2, 0], np.int32)}
    got = backend.to_numpy(compiled.evaluate(params, inputs)["output"])
    whole = ml.ManyToOne(ml.GRUCell(4), use_lengths=True)
    own = ml.compile(whole, backend, shapes=shapes)
    renamed = dict(zip(own.params, params.values(), strict=True))
    want = backend.to_numpy(own.evaluate(renamed, inputs)["output"])
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
    assert not got[2].any()


def test_mistakes_with_lengths():
    body = ml.Model()
    body |= ml.Add()(left="h", right="x", output="next_h")
    carry = {"h": "next_h"}
    with pytest.raises(ml.MithrilError, match="`use_lengths` of `Scan` needs a sequence"):
        ml.Scan(body, carry=carry, over=[], use_lengths=True)
    other = ml.Model()
    other |= ml.Add()(left="h", right="lengths", output="next_h")
    with pytest.raises(ml.MithrilError, match="the body of `Scan` has an input `lengths`"):
        ml.Scan(other, carry=carry, use_lengths=True)
    scan = ml.Scan(body, carry=carry, use_lengths=True)
    shapes = {"x": [5, 3], "h": [3], "lengths": [4]}
    with pytest.raises(ml.MithrilError) as caught:
        ml.compile(scan, ml.NumpyBackend(), shapes=shapes)
    assert "lengths" in str(caught.value)
