"""Conditions and loops with params that are themselves the bodies of loops and conditions."""

import numpy as np
import pytest

import mithril as ml


def drawn(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def condition():
    return ml.Cond(ml.Linear(3), ml.Tanh())


def loop():
    running = ml.Less()(left="n", right=3.0, output="running")
    step = ml.Model()
    step |= ml.Add()(left="n", right=1.0, output="n_next")
    step |= ml.Linear(3, name="layer")(input="x", output="x_next")
    return ml.While(running, step, carry={"n": "n_next", "x": "x_next"}, max_steps=4)


def cells():
    return ml.Scan(
        ml.GRUCell(3), carry={"hidden": "output"}, over=["input"], axis=1, use_lengths=True
    )


def by_row(params, inputs):
    """`condition` for each row."""
    w, b = params["cond.then.w"], params["cond.then.b"]
    rows = zip(inputs["condition"], inputs["input"])
    return np.stack([x @ w + b if chosen else np.tanh(x) for chosen, x in rows])


def test_each_row_has_a_condition_of_its_own(backend):
    inputs = {"condition": np.array([True, False, True, False]), "input": drawn(4, 3)}
    for body in (ml.Map(condition()), ml.vmap(condition())):
        compiled = ml.compile(body, backend, shapes={"condition": ["n"], "input": ["n", 3]})
        params = compiled.randomize_params(seed=0)
        (found,) = compiled.evaluate(params, inputs).values()
        own = {name: backend.to_numpy(value) for name, value in params.items()}
        np.testing.assert_allclose(backend.to_numpy(found), by_row(own, inputs), rtol=1e-5)


def negated():
    model = ml.Model()
    model |= ml.Negate()(input="n", output="n_next")
    model |= ml.Negate()(input="x", output="x_next")
    return model


# The block around the body, the body, its data inputs, and the shapes of the whole.
CASES = {
    "a map of loops": (
        lambda body: ml.Map(body, fixed=["n"]),
        loop,
        ["n", "x"],
        {"n": [], "x": [4, 3]},
    ),
    "a condition in a condition": (
        lambda body: ml.Cond(body, ml.Relu()),
        lambda: condition()(condition="inner"),
        ["inner", "input"],
        {"condition": [], "inner": [], "input": [4, 3]},
    ),
    "a loop in a condition": (
        lambda body: ml.Cond(body, negated()),
        loop,
        ["n", "x"],
        {"condition": [], "n": [], "x": [3]},
    ),
    "a scan of conditions": (
        lambda body: ml.Scan(body, carry={"input": "output"}, over=["condition"]),
        condition,
        ["condition", "input"],
        {"condition": [5], "input": [4, 3]},
    ),
    "a map of sequences with lengths": (
        ml.Map,
        cells,
        ["input", "hidden", "lengths"],
        {"input": [4, 2, 5, 3], "hidden": [4, 2, 3], "lengths": [4, 2]},
    ),
}


def enclosed(block, names):
    """A model that has the block and nothing else."""
    outputs = {name: name for name in block.outputs}
    model = ml.Model()
    model |= block(**{name: name for name in names if name in block.inputs}, **outputs)
    return model


def arrays(shapes):
    given = {name: drawn(*shape) for name, shape in shapes.items()}
    given |= {"n": np.float32(0), "inner": np.array(True), "lengths": np.array([[5, 2]] * 4)}
    given["condition"] = np.arange(5) % 2 == 0 if shapes.get("condition") else np.array(True)
    return {name: given[name] for name in shapes}


@pytest.mark.parametrize("case", CASES)
def test_a_block_is_a_body_as_a_model_around_it_is(case, backend):
    outer, make, names, shapes = CASES[case]
    answers = []
    for body, target in ((enclosed(make(), names), ml.NumpyBackend()), (make(), backend)):
        compiled = ml.compile(outer(body), target, shapes=shapes)
        params = ml.compile(outer(make()), ml.NumpyBackend(), shapes=shapes).randomize_params(
            seed=0
        )
        assert set(compiled.params) == set(params)
        params = {name: target.array(value) for name, value in params.items()}
        ones = {name: target.ones_like for name in compiled.outputs if name != "n_next"}
        outputs, gradients = compiled.evaluate(params, arrays(shapes), output_gradients=ones)
        answers.append({n: target.to_numpy(v) for n, v in {**outputs, **gradients}.items()})
    want, found = answers
    for name, value in want.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
