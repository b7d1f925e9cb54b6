"""`ml.vmap`: every block gives for a batch what it gives for each index alone, forward and
gradient; and models by hand, against `torch.func`, on every backend."""

from typing import Any

import numpy as np
import pytest
import torch
from block_cases import array, build, close, variants
from loops import compare, numbers

import mithril as ml
from mithril import _core
from mithril.errors import MithrilError

BATCH = 3


def has_batch(name: str, case: Any) -> bool:
    """Whether a block has inputs for a batch axis, no random numbers and no states."""
    model, shapes = build(name, case)
    compiled = ml.compile(model, ml.NumpyBackend(), shapes=shapes)
    data = [n for n in compiled.inputs if n in shapes]
    return bool(data) and "key" not in compiled.inputs and not compiled.states


CASES = [
    pytest.param(name, case, id=f"{name}-{number}")
    for name in _core.block_names()
    for number, case in enumerate(variants(name))
    if has_batch(name, case)
]


def example(name: str, compiled: Any, shapes: Any, rng: Any, seed: int) -> dict[str, Any]:
    """Params and inputs, as NumPy arrays."""
    arguments = {a.name: a for a in compiled._program.arguments}
    given = {n: array(rng, name, arguments[n], shape) for n, shape in shapes.items()}
    return {**compiled.randomize_params(seed=seed), **given}


def call(compiled: Any, arrays: dict[str, Any], state: Any) -> Any:
    params = {n: a for n, a in arrays.items() if n in compiled.params}
    inputs = {n: a for n, a in arrays.items() if n in compiled.inputs}
    return compiled.evaluate(params, inputs, **state)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_blocks_compute_a_batch_as_they_compute_each_index(name, case):
    model, shapes = build(name, case)
    backend = ml.NumpyBackend()
    alone = ml.compile(model, backend, shapes=shapes)
    arguments = {a.name: a.dtype.name for a in alone._program.arguments}
    learned = [n for n in (*shapes, *alone.params) if arguments[n].startswith("float")]
    alone = ml.compile(model, backend, shapes=shapes, trainable_keys=learned)
    rng = np.random.default_rng(0)
    steps = [example(name, alone, shapes, rng, seed) for seed in range(BATCH)]
    batched = ml.vmap(model, params=True)
    wide = {n: (BATCH, *shape) for n, shape in shapes.items()}
    together = ml.compile(batched, backend, shapes=wide, trainable_keys=learned)
    stacked = {n: np.stack([step[n] for step in steps]) for n in steps[0]}
    each = [call(alone, step, {}) for step in steps]
    got = call(together, stacked, {})
    expected = {n: np.stack([one[n] for one in each]) for n in each[0]}
    close(got, expected, "outputs", 2e-6)
    ones = {n: np.ones_like(y) for n, y in expected.items() if y.dtype.kind == "f"}
    if not ones or not alone.params:
        return
    first = {n: np.ones_like(y[0]) for n, y in expected.items() if n in ones}
    want = [call(alone, step, {"output_gradients": first})[1] for step in steps]
    own = call(together, stacked, {"output_gradients": ones})[1]
    close(own, {n: np.stack([one[n] for one in want]) for n in own}, "gradients", 2e-5)


def classifier() -> ml.Model:
    """Two layers and a loss, for one example."""
    model = ml.Model()
    layers = ml.Sequential([ml.Linear(6), ml.Tanh(), ml.Linear(3)])
    model |= layers(input="x", output="y")
    model |= ml.CrossEntropy()(input="y", target="label", output="loss")
    return model


@pytest.mark.parametrize("shapes", [{"x": [4, 5], "label": [4]}, {"x": ["n", 5], "label": ["n"]}])
def test_gradients_of_each_example(backend, shapes):
    """Params are repeated, so each example has gradients of its own."""
    compiled = ml.compile(ml.vmap(classifier(), params=True), backend, shapes=shapes)
    own = ml.compile(classifier(), ml.NumpyBackend(), shapes={"x": [5], "label": []})
    params = {n: torch.tensor(p) for n, p in own.randomize_params(seed=1).items()}
    x, label = numbers(4, 5), np.array([0, 2, 1, 2])

    def loss(params: Any, x: Any, label: Any) -> Any:
        w, b, v, c = params.values()
        y = torch.tanh(x @ w + b) @ v + c
        return torch.nn.functional.cross_entropy(y, label)

    per_example = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    want = per_example(params, torch.tensor(x), torch.tensor(label))
    repeated = {n: np.broadcast_to(p.numpy(), (4, *p.shape)).copy() for n, p in params.items()}
    repeated = {n: backend.array(p) for n, p in repeated.items()}
    seeds = {"loss": backend.array(np.ones(4, np.float32))}
    inputs = {"x": backend.array(x), "label": backend.array(label)}
    gradients = compiled.evaluate(repeated, inputs, output_gradients=seeds)[1]
    assert set(gradients) == set(want)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(backend.to_numpy(gradient), want[name], 2e-5, 2e-6)


def test_axes_by_input_and_shared_params(backend):
    model = ml.Model()
    model |= ml.Linear(4, name="layer")(input="x", output="hidden")
    model |= ml.Multiply()(left="hidden", right="scale", output="y")
    batched = ml.vmap(model, axis={"x": 1, "scale": None}, out_axis=-1)
    arrays = {"x": numbers(2, 3, 5), "scale": numbers(4), "layer.w": numbers(5, 4)}
    arrays["layer.b"] = numbers(4)

    def reference(x: Any, scale: Any, w: Any, b: Any) -> Any:
        return ((x @ w + b) * scale).permute(0, 2, 1)

    for shapes in ({"x": [2, 3, 5], "scale": [4]}, {"x": ["rows", "n", 5], "scale": [4]}):
        compare(batched, arrays, reference, ["y"], backend, shapes)


def test_a_batch_of_batches(backend):
    """Every row of one array against every row of another."""
    one = ml.Model()
    one |= ml.MatrixMultiply()(left="a", right="b", output="y")
    inner = ml.vmap(one, axis={"a": None, "b": 0})
    outer = ml.vmap(inner, axis={"a": 0, "b": None})
    arrays = {"a": numbers(3, 5), "b": numbers(4, 5)}
    shapes = {"a": [3, 5], "b": [4, 5]}
    compare(outer, arrays, lambda a, b: a @ b.T, ["y"], backend, shapes)
    compiled = ml.compile(outer, ml.NumpyBackend(), shapes=shapes, inference=True)
    assert "y = a @ b.T" in compiled.code


def test_loops_in_a_batch(backend):
    """The step of a recurrence gets the batch axis; the loop is still over the sequence alone."""
    step = ml.Model()
    step |= ml.Linear(3, name="own")(input="h", output="kept")
    step |= ml.Add()(left="kept", right="x", output="sum")
    step |= ml.Tanh()(input="sum", output="next")
    model = ml.Model()
    model |= ml.Scan(step, carry={"h": "next"})(h="first", x="xs", next="last")
    arrays = {"first": numbers(3), "xs": numbers(4, 6, 3)}
    arrays |= {"scan.own.w": numbers(3, 3), "scan.own.b": numbers(3)}

    def reference(first: Any, xs: Any, w: Any, b: Any) -> Any:
        h = first.expand(4, 3)
        for x in xs.unbind(1):
            h = torch.tanh(h @ w + b + x)
        return h

    shapes = {"first": [3], "xs": [4, 6, 3]}
    batched = ml.vmap(model, axis={"first": None, "xs": 0})
    names = ml.compile(batched, ml.NumpyBackend(), shapes=shapes).params
    arrays = dict(zip(["first", "xs", *sorted(names, reverse=True)], arrays.values(), strict=True))
    compare(batched, arrays, reference, ["last"], backend, shapes)


def test_a_condition_in_a_batch(backend):
    """A condition that differs within the batch chooses for each index; one that does not, once."""
    model = ml.Model()
    model |= ml.Cond(ml.Square(), ml.Negate())(condition="flag", input="x", output="y")
    flags = np.array([True, False, True])

    def reference(flag: Any, x: Any) -> Any:
        flag = flag[:, None] if flag.ndim else flag
        return torch.where(flag, x * x, -x)

    for axis, flag in ((0, flags), ({"flag": None}, np.bool_(True))):
        arrays = {"flag": flag, "x": numbers(3, 4)}
        shapes = {"flag": list(flag.shape), "x": [3, 4]}
        compare(ml.vmap(model, axis=axis), arrays, reference, ["y"], backend, shapes)


def test_random_numbers_differ_within_a_batch(backend):
    model = ml.Model()
    model |= ml.Dropout(0.5)(input="x", output="y")
    batched = ml.vmap(model)
    shapes = {"x": [4, 64]}
    x = np.ones((4, 64), np.float32)
    key = np.array([3, 4], np.uint32)
    rows = []
    for level in ("none", "full"):
        compiled = ml.compile(batched, backend, shapes=shapes, optimization_level=level)
        inputs = {"x": backend.array(x), "key": backend.array(key)}
        rows.append(backend.to_numpy(compiled.evaluate({}, inputs)["y"]))
    np.testing.assert_array_equal(rows[0], rows[1])
    assert len({row.tobytes() for row in rows[0]}) == 4


def test_states_pass_from_index_to_index():
    """Running statistics take one update for each index, in order, as in `Map`."""
    model = ml.Model()
    model |= ml.BatchNorm1d()(input="x", output="y")
    x = numbers(3, 8, 2)
    states = []
    for block in (ml.vmap(model), ml.Map(model)):
        compiled = ml.compile(block, ml.NumpyBackend(), shapes={"x": [3, 8, 2]})
        compiled.evaluate(compiled.randomize_params(seed=0), {"x": x})
        states.append(list(compiled.state.values()))
    for own, other in zip(*states, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6)
    mean = torch.nn.BatchNorm1d(2)
    for rows in x:
        mean(torch.tensor(rows))
    np.testing.assert_allclose(states[0][0], mean.running_mean, rtol=1e-5, atol=1e-6)


def test_params_of_a_batch_start_as_those_of_one_model():
    """Each index draws its own params, with the deviation of a layer of its own size."""
    model = ml.vmap(ml.Linear(400, name="layer"), params=True)
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"input": [3, 2, 100]})
    params = compiled.randomize_params(seed=0)
    (w,) = [p for n, p in params.items() if n.endswith("w")]
    (b,) = [p for n, p in params.items() if n.endswith("b")]
    assert w.shape == (3, 100, 400) and b.shape == (3, 400)
    for row in (*w, *b):
        assert abs(row.std() - 0.1 / np.sqrt(3)) < 0.01
    assert len({row.tobytes() for row in w}) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"axis": {"z": 0}}, "has no input `z`"),
        ({"axis": {"x": None}}, "no input of `Vmap` has a batch axis"),
        ({"axis": "x"}, "an integer, or a dict from names to integers or None"),
        ({"axis": {"x": 1.5}}, "an integer, or a dict from names to integers or None"),
    ],
)
def test_wrong_axes_are_errors(settings, message):
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    with pytest.raises(MithrilError) as error:
        ml.vmap(model, **settings)
    assert message in str(error.value)


def test_an_axis_that_an_input_lacks_is_an_error():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    with pytest.raises(MithrilError, match="`x` has no axis 2"):
        ml.compile(ml.vmap(model, axis=2), ml.NumpyBackend(), shapes={"x": [3, 4]})


def test_batches_of_different_sizes_are_errors():
    model = ml.Model()
    model |= ml.Add()(left="a", right="b", output="y")
    with pytest.raises(MithrilError, match="differ in length"):
        ml.compile(ml.vmap(model), ml.NumpyBackend(), shapes={"a": [3, 4], "b": [2, 4]})


def test_states_of_an_ensemble():
    """With params of its own, each index has running statistics of its own."""
    model = ml.Model()
    model |= ml.Linear(2, name="layer")(input="x", output="hidden")
    model |= ml.BatchNorm1d(name="norm")(input="hidden", output="y")
    alone = ml.compile(model, ml.NumpyBackend(), shapes={"x": [8, 3]})
    together = ml.compile(ml.vmap(model, params=True), ml.NumpyBackend(), shapes={"x": [4, 8, 3]})
    params, x = together.randomize_params(seed=0), numbers(4, 8, 3)
    y = together.evaluate(params, {"x": x})["y"]
    for at in range(4):
        own = {n: params[next(m for m in params if m.endswith(n))][at] for n in alone.params}
        alone.state = alone.initial_state()
        np.testing.assert_allclose(alone.evaluate(own, {"x": x[at]})["y"], y[at], 1e-5, 1e-6)
        for name, value in alone.state.items():
            (state,) = [s for n, s in together.state.items() if n.endswith(name)]
            np.testing.assert_allclose(state[at], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", [ml.WeightNorm, ml.SpectralNorm])
def test_norms_of_an_ensemble_start_as_those_of_each_weight(norm):
    together = ml.vmap(norm(ml.Linear(3, name="layer")), params=True)
    compiled = ml.compile(together, ml.NumpyBackend(), shapes={"input": [4, 2, 5]})
    params = compiled.randomize_params(seed=0)
    (weight,) = [w for w in params.values() if w.ndim == 3 and w.shape[1] == 5]
    x = numbers(4, 2, 5)
    y = compiled.evaluate(params, {"input": x})["output"]
    (bias,) = [b for n, b in params.items() if n.endswith("b")]
    own = weight
    if norm is ml.SpectralNorm:
        own = weight / np.linalg.norm(weight, 2, axis=(1, 2), keepdims=True)
    # A few steps of the power iteration are near the norm.
    np.testing.assert_allclose(y, x @ own + bias[:, None], rtol=0.02, atol=0.02)
