"""`Cond` and `While`: blocks that run on a condition, forward and gradient, compared with PyTorch's
own `if` and `while`, on every backend, with fixed and open dims."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SOURCES
from loops import compare, numbers, values

import mithril as ml
from mithril.errors import MithrilError


def perceptron(name: str, activation: ml.Block, layer: ml.Block) -> ml.Model:
    model = ml.Model(name=name)
    model |= layer(input="x", output="product")
    model |= activation(input="product", output="active")
    model |= ml.Multiply()(left="active", right=name, output="y")
    return model


def chosen() -> ml.Model:
    """One of two networks, which share a layer; each has a scale of its own."""
    shared = ml.Linear(3, name="shared")
    then = ml.Model()
    then |= perceptron("first", ml.Tanh(), shared)(x="x", first="first", y="hidden")
    then |= ml.Linear(3, name="own")(input="hidden", output="y")
    otherwise = perceptron("second", ml.Sigmoid(), shared)
    model = ml.Model()
    model |= ml.Cond(then, otherwise)(
        condition="condition", x="x", first="first", second="second", y="y"
    )
    return model


def choose(condition: Any, x: Any, first: Any, second: Any, *params: Any) -> Any:
    shared_w, shared_b, own_w, own_b = params
    product = x @ shared_w + shared_b
    if condition:
        return torch.tanh(product) * first @ own_w + own_b
    return torch.sigmoid(product) * second + 0 * (first.sum() + own_w.sum() + own_b.sum())


DIMS = {
    "fixed": {"condition": [], "x": [4, 5], "first": [3], "second": [3]},
    "named": {"condition": [], "x": ["batch", 5], "first": [3], "second": [3]},
}


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("dims", DIMS)
def test_the_condition_chooses_a_block(condition, dims, backend):
    """Params, shared ones too, and captures of either block have gradients; those of the block that
    is not chosen are zero."""
    block = chosen()
    compiled = ml.compile(block, ml.NumpyBackend(), shapes=DIMS[dims])
    shapes = {"w": (5, 3), "b": (3,)}
    names = sorted(compiled.params)
    assert len(names) == 4
    shared, own = [n for n in names if "shared" in n], [n for n in names if "own" in n]
    arrays = {
        "condition": np.bool_(condition),
        "x": numbers(4, 5),
        "first": numbers(3),
        "second": numbers(3),
    }
    weights = {n: numbers(*shapes[n[-1]]) for n in sorted(shared, reverse=True)}
    weights |= {n: numbers(*((3, 3) if n[-1] == "w" else (3,))) for n in sorted(own, reverse=True)}

    def reference(condition: Any, x: Any, first: Any, second: Any, *params: Any) -> Any:
        y = choose(condition, x, first, second, *params)
        return y + 0 * second.sum()

    compare(block, arrays | weights, reference, ["y"], backend, DIMS[dims])


def test_conditions_in_every_step_of_a_scan(backend):
    """A recurrence that takes the step of one of two blocks, by the sign of what it reads."""
    body = ml.Model()
    body |= ml.Sum()(input="x", output="total")
    body |= ml.Greater()(left="total", right=0.0, output="positive")
    then, otherwise = ml.Model(), ml.Model()
    then |= ml.Multiply()(left="h", right="x", output="y")
    otherwise |= ml.Subtract()(left="h", right="w", output="y")
    body |= ml.Cond(then, otherwise)(condition="positive", h="h", x="x", w="w", y="h_next")
    model = ml.Model()
    model |= ml.Scan(body, carry={"h": "h_next"}, over=["x"])(h="h", x="x", w="w", h_next="y")

    def reference(h: Any, x: Any, w: Any) -> Any:
        for row in x:
            h = h * row if row.sum() > 0 else h - w
        return h

    arrays = {"h": numbers(3), "x": numbers(8, 3), "w": numbers(3)}
    for shapes in ({"h": [3], "x": [8, 3], "w": [3]}, {"h": ["n"], "x": ["time", "n"], "w": ["n"]}):
        compare(model, arrays, reference, ["y"], backend, shapes)


def test_states_and_random_numbers_of_a_branch(backend):
    """Only the chosen block updates its running state and draws numbers."""
    then = ml.Model()
    then |= ml.BatchNorm1d()(input="x", output="normal")
    then |= ml.Dropout(0.5)(input="normal", output="y")
    otherwise = ml.Model()
    otherwise |= ml.Buffer()(input="x", output="y")
    x, key = numbers(40, 3), np.array([3, 4], np.uint32)
    compiled = ml.compile(ml.Cond(then, otherwise), backend, shapes={"x": [40, 3]})
    assert len(compiled.state) == 2
    first = {n: backend.to_numpy(s) for n, s in compiled.state.items()}
    params = compiled.randomize_params()
    inputs = {"x": backend.array(x), "key": key}
    given = inputs | {"condition": backend.array(np.bool_(False))}
    y = backend.to_numpy(compiled.evaluate(params, given)["y"])
    np.testing.assert_array_equal(y, x)
    for name, state in compiled.state.items():
        np.testing.assert_array_equal(backend.to_numpy(state), first[name])
    given = inputs | {"condition": backend.array(np.bool_(True))}
    y = backend.to_numpy(compiled.evaluate(params, given)["y"])
    normal = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    kept = y != 0
    assert 0.3 < kept.mean() < 0.7
    np.testing.assert_allclose(y[kept], 2 * normal[kept], rtol=1e-4, atol=1e-5)
    means = [n for n in first if "mean" in n]
    np.testing.assert_allclose(
        backend.to_numpy(compiled.state[means[0]]), 0.1 * x.mean(0), rtol=1e-4, atol=1e-6
    )


def newton() -> tuple[ml.Model, ml.Model]:
    """The condition and the step of Newton's iteration for the square root of `a`."""
    step = ml.Model()
    step |= ml.Divide()(numerator="a", denominator="x", output="quotient")
    step |= ml.Add()(left="x", right="quotient", output="sum")
    step |= ml.Multiply()(left="sum", right=0.5, output="x_next")
    condition = ml.Model()
    condition |= ml.Square()(input="x", output="square")
    condition |= ml.Subtract()(left="square", right="a", output="difference")
    condition |= ml.Absolute()(input="difference", output="error")
    condition |= ml.Max()(input="error", output="largest")
    condition |= ml.Greater()(left="largest", right="tolerance", output="running")
    return condition, step


def root(x: Any, a: Any, tolerance: Any, most: int = 1000) -> Any:
    for _ in range(most):
        if not (x * x - a).abs().max() > tolerance:
            break
        x = (x + a / x) * 0.5
    return x


@pytest.mark.parametrize("most", [3, 20, 1])
@pytest.mark.parametrize("dims", [{"x": [4], "a": [4]}, {"x": ["n"], "a": ["n"]}])
def test_a_loop_ends_by_its_condition_or_its_maximum(most, dims, backend):
    model = ml.Model()
    model |= ml.While(*newton(), carry={"x": "x_next"}, max_steps=most)(
        x="x", a="a", tolerance=1e-3, x_next="root"
    )
    a = np.abs(numbers(4)) + 0.5
    arrays = {"x": np.ones(4, np.float32), "a": a}
    reference = lambda x, a: root(x, a, 1e-3, most)  # noqa: E731
    compare(model, arrays, reference, ["root"], backend, dims)


def test_a_loop_without_a_maximum(backend):
    model = ml.Model()
    model |= ml.While(*newton(), carry={"x": "x_next"})(
        x="x", a="a", tolerance="tolerance", x_next="root"
    )
    a = np.abs(numbers(5)) + 0.5
    for shapes in (
        {"x": [5], "a": [5], "tolerance": []},
        {"x": ["n"], "a": ["n"], "tolerance": []},
    ):
        compiled = ml.compile(model, backend, shapes=shapes, inference=True)
        for tolerance in (1e-4, 0.3, 1e9):
            arrays = {"x": np.ones(5, np.float32), "a": a, "tolerance": np.float32(tolerance)}
            got = compiled.evaluate({}, {n: backend.array(x) for n, x in arrays.items()})["root"]
            want = root(*(torch.tensor(x) for x in arrays.values()))
            np.testing.assert_allclose(backend.to_numpy(got), want, rtol=1e-6)


def test_loops_have_params_counters_and_several_carries(backend):
    """A network is applied until its output is small, at most as often as an input says."""
    body = ml.Model()
    body |= ml.Linear(3, name="layer")(input="x", output="product")
    body |= ml.Tanh()(input="product", output="x_next")
    body |= ml.Add()(left="count", right=1, output="count_next")
    condition = ml.Model()
    condition |= ml.Linear(1, name="judge")(input="x", output="score")
    condition |= ml.Mean()(input="score", output="mean")
    condition |= ml.Less()(left="mean", right=10.0, output="small")
    condition |= ml.Less()(left="count", right="limit", output="early")
    condition |= ml.LogicalAnd()(left="small", right="early", output="running")
    loop = ml.While(condition, body, carry={"x": "x_next", "count": "count_next"}, max_steps=6)
    assert loop.inputs[:3] == ["x", "count", "limit"]
    assert loop.outputs == ["x_next", "count_next"]
    model = ml.Model()
    model |= loop(x="x", count="count", limit="limit", x_next="y", count_next="steps")
    model.set_types({"count": ml.int32, "limit": ml.int32})
    shapes = {"x": ["batch", 3], "count": [], "limit": []}
    compiled = ml.compile(model, backend, shapes=shapes, trainable_keys=["x"])
    names = sorted(n for n in compiled.params if n != "x")
    assert [n.split(".", 1)[1] for n in names] == [
        "body.layer.b",
        "body.layer.w",
        "condition.judge.b",
        "condition.judge.w",
    ]
    own = {"x": numbers(2, 3), names[0]: numbers(3), names[1]: numbers(3, 3)}
    own |= {names[2]: numbers(1), names[3]: numbers(3, 1) * 0.01}
    for limit in (0, 1, 4, 9):
        given = {"count": np.int32(0), "limit": np.int32(limit)}
        seed = numbers(2, 3)
        outputs, gradients = values(compiled, own | given, {"y": seed}, backend)
        assert outputs["steps"] == min(limit, 6)
        leaves = {n: torch.tensor(a, requires_grad=True) for n, a in own.items()}
        x = leaves["x"]
        for _ in range(min(limit, 6)):
            x = torch.tanh(x @ leaves[names[1]] + leaves[names[0]])
        x.backward(torch.tensor(seed))
        np.testing.assert_allclose(outputs["y"], x.detach(), rtol=2e-5, atol=2e-6)
        for name, leaf in leaves.items():
            want = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad
            np.testing.assert_allclose(gradients[name], want, rtol=3e-5, atol=5e-6, err_msg=name)


def test_loops_inside_conditions_and_scans_inside_loops(backend):
    """A `Cond` of a `While`, whose body is a `Scan`."""
    add = ml.Model()
    add |= ml.Multiply()(left="row", right=0.5, output="half")
    add |= ml.Add()(left="total", right="half", output="next_total")
    body = ml.Model()
    body |= ml.Scan(add, carry={"total": "next_total"}, over=["row"])(
        total="x", row="rows", next_total="x_next"
    )
    condition = ml.Model()
    condition |= ml.Sum()(input="x", output="sum")
    condition |= ml.Less()(left="sum", right=20.0, output="running")
    loop = ml.While(condition, body, carry={"x": "x_next"}, max_steps=50)
    then = ml.Model()
    then |= loop(x="x", rows="rows", x_next="y")
    otherwise = ml.Model()
    otherwise |= ml.Negate()(input="x", output="y")
    model = ml.Model()
    model |= ml.Cond(then, otherwise)(condition="condition", x="x", rows="rows", y="y")

    def reference(condition: Any, x: Any, rows: Any) -> Any:
        if not condition:
            return -x + 0 * rows.sum()
        while x.sum() < 20:
            for row in rows:
                x = x + row * 0.5
        return x

    own = {"x": numbers(3), "rows": np.abs(numbers(4, 3)) + 0.1}
    for choice in (True, False):
        for shapes in (
            {"condition": [], "x": [3], "rows": [4, 3]},
            {"condition": [], "x": ["n"], "rows": ["m", "n"]},
        ):
            given = {"condition": np.bool_(choice)} | own
            compare(model, given, reference, ["y"], backend, shapes)


def test_a_map_of_loops(backend):
    """Each row has a number of steps of its own."""
    condition, step = newton()
    model = ml.Model()
    model |= ml.Map(
        ml.While(condition, step, carry={"x": "x_next"}, max_steps=30), fixed=["tolerance"]
    )(x="x", a="a", tolerance=1e-2, x_next="roots")
    arrays = {"x": np.ones((5, 2), np.float32), "a": np.abs(numbers(5, 2)) * 9 + 0.5}

    def reference(x: Any, a: Any) -> Any:
        return torch.stack([root(*row, 1e-2, 30) for row in zip(x, a, strict=True)])

    compare(model, arrays, reference, ["roots"], backend, {"x": [5, 2], "a": [5, 2]})


def test_constant_conditions_and_carries(backend):
    model = ml.Model()
    model |= ml.Cond(ml.Square(), ml.Negate())(condition=True, input="x", output="square")
    body = ml.Model()
    body |= ml.Add()(left="n", right="x", output="n_next")
    model |= ml.While(ml.Less()(left="n", right=10.0, output="running"), body, {"n": "n_next"})(
        n=0.0, x="x", n_next="sum"
    )
    compiled = ml.compile(model, backend, shapes={"x": []}, inference=True)
    outputs = compiled.evaluate({}, {"x": backend.array(np.float32(3))})
    assert backend.to_numpy(outputs["square"]) == 9
    assert backend.to_numpy(outputs["sum"]) == 12


def test_blocks_with_connections_are_bodies(backend):
    """A block may be connected to names and numbers: its terminals have these names."""
    below = ml.Less()(left="x", right=50, output="running")
    double = ml.Multiply()(left="x", right=2, output="doubled")
    loop = ml.While(below, double, carry={"x": "doubled"})
    assert (loop.inputs, loop.outputs) == (["x"], ["doubled"])
    compiled = ml.compile(loop, backend, shapes={"x": []}, inference=True)
    got = compiled.evaluate({}, {"x": backend.array(np.float32(3))})["doubled"]
    assert backend.to_numpy(got) == 96


def test_generated_code_reads_as_a_user_writes_it():
    shapes = {"x": [4], "a": [4], "tolerance": []}
    make = lambda most: ml.While(*newton(), carry={"x": "x_next"}, max_steps=most)  # noqa: E731

    def compiled(block: ml.Block, backend: Any) -> str:
        return ml.compile(block, backend, shapes=shapes, inference=True).code

    for framework in SOURCES:
        if framework.kind == "jax":
            continue
        running = "running.item()" if framework.kind == "tinygrad" else "running"
        code = compiled(make(None), framework())
        assert f"    while {running}:\n        running, x_next = " in code
        code = compiled(make(7), framework())
        loop = f"    for _ in range(7):\n        if not {running}:\n            break\n"
        assert loop + "        running, x_next = " in code
    assert "jax.lax.while_loop(" in compiled(make(None), ml.JaxBackend())
    code = compiled(make(7), ml.JaxBackend())
    assert "jax.lax.scan(" in code
    assert "while_loop(" not in code.replace("`while_loop`", "")
    cond = ml.Cond(ml.Square(), ml.Negate())
    shapes = {"condition": [], "input": [3]}
    code = compiled(cond, ml.NumpyBackend())
    assert "    if condition:\n        output = then(x)\n    else:\n" in code
    code = compiled(cond, ml.JaxBackend())
    assert "jax.lax.cond(condition, lambda: then(x), lambda: otherwise(x))" in code
    code = compiled(cond, ml.CBackend())
    assert "if (*(const unsigned char *)condition) {" in code
    assert "if (!*(const unsigned char *)condition) {" in code


def test_gradients_keep_only_what_they_read():
    """The gradient of doubling needs no values of the steps, and zeros are named as their param."""
    small = ml.Model()
    small |= ml.Sum()(input="x", output="sum")
    small |= ml.Less()(left="sum", right=100.0, output="output")
    double = ml.Model()
    double |= ml.Multiply()(left="x", right=2.0, output="output")
    options = {"shapes": {"x": [3]}, "trainable_keys": ["x"], "autodiff": "mithril"}
    compiled = ml.compile(ml.While(small, double, max_steps=8), ml.NumpyBackend(), **options)
    assert [line for line in compiled.code.splitlines() if "_rows = []" in line] == [
        "    running_1_rows = []"
    ]
    params, seeds = {"x": np.float32([1, 2, 3])}, {"output": np.float32([1, 2, 4])}
    outputs, gradients = compiled.evaluate(params, {}, output_gradients=seeds)
    np.testing.assert_array_equal(outputs["output"], [32, 64, 96])
    np.testing.assert_array_equal(gradients["x"], [32, 64, 128])
    options = {"shapes": {"input": [2, 3], "condition": []}, "autodiff": "mithril"}
    both = ml.compile(ml.Cond(ml.Linear(3), ml.Linear(3)), ml.NumpyBackend(), **options)
    assert "def then_pullback(x, w_1, b_1, d_output):" in both.code


def test_saved_models_and_costs():
    model = chosen()
    assert ml.Model.from_json(model.to_json()).to_json() == model.to_json()
    loop = ml.While(*newton(), carry={"x": "x_next"}, max_steps=8)
    table = loop.summary({"x": [4], "a": [4], "tolerance": []})
    assert "x_next" in table
    shapes = {"x": [4], "a": [4], "tolerance": []}
    compiled = ml.compile(loop, ml.NumpyBackend(), shapes=shapes, inference=True)
    assert "while" in str(compiled.cost())


def message(build: Callable[[], ml.Block], **options: Any) -> str:
    with pytest.raises(MithrilError) as caught:
        ml.compile(build(), ml.NumpyBackend(), **options)
    return str(caught.value)


def test_mistakes_are_explained():
    condition, step = newton()
    text = message(lambda: ml.While(condition, step, carry={"y": "x_next"}))
    assert "the body `Model` of `While` has no input `y`" in text
    text = message(lambda: ml.While(condition, step, carry={"x": "x_nex"}))
    assert "did you mean `x_next`?" in text
    two = ml.Model()
    two |= ml.Square()(input="x", output="a")
    two |= ml.Negate()(input="x", output="b")
    text = message(lambda: ml.While(condition, two))
    assert "`While` does not know what the body carries" in text
    text = message(lambda: ml.While(two, step, carry={"x": "x_next"}))
    assert "the condition of `While` must have one output" in text
    random = ml.Model()
    random |= ml.Dropout(0.5)(input="x", output="y")
    text = message(lambda: ml.While(random, step, carry={"x": "x_next"}))
    assert "random numbers inside" in text
    text = message(lambda: ml.Cond(ml.Square(), two))
    assert "the blocks of `Cond` must have the same outputs" in text
    assert "`output` in `then`, `a`, `b` in `otherwise`" in text
    cond = lambda: ml.Cond(ml.Square(), ml.Sum())  # noqa: E731
    text = message(cond, shapes={"condition": [], "input": [3]})
    assert "the blocks give `output` other types" in text
    assert "tensor<f32> in `otherwise`" in text
    assert "tensor<3 x f32>, as in `then`" in text
    assert "block `Cond`" in text or "(Cond)" in text or "`Cond`" in text
    cond = lambda: ml.Cond(ml.Square(), ml.Negate())  # noqa: E731
    text = message(cond, shapes={"condition": [3], "input": [3]})
    assert "the condition of `Cond`" in text
    assert "one bool, of rank 0" in text
    wide = ml.Model()
    wide |= ml.Greater()(left="x", right=0.0, output="running")
    loop = lambda: ml.While(wide, step, carry={"x": "x_next"})  # noqa: E731
    text = message(loop, shapes={"x": [3], "a": [3]})
    assert "the condition of `While`" in text
    grows = ml.Model()
    grows |= ml.Concat()(inputs=["x", "x"], output="x_next")
    small = ml.Model()
    small |= ml.Sum()(input="x", output="sum")
    small |= ml.Less()(left="sum", right=9.0, output="running")
    text = message(lambda: ml.While(small, grows, carry={"x": "x_next"}), shapes={"x": [3]})
    assert "the carry `x` changes its type from step to step" in text
    text = message(
        lambda: ml.While(small, ml.Square()(input="x", output="y"), carry={"x": "y"}),
        shapes={"x": [3]},
        trainable_keys=["x"],
    )
    assert "a loop without a maximum number of steps has no gradient" in text
    assert "max_steps" in text
