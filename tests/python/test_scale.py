"""Long, wide and deep models: compile time grows with their size, and a small stack suffices."""

import random
import threading
import time

import numpy as np
import pytest

import mithril as ml
from mithril.models import (
    Add,
    Buffer,
    Concat,
    Cosine,
    Gelu,
    Linear,
    Maximum,
    Mean,
    Multiply,
    Relu,
    Sigmoid,
    Sine,
    Softmax,
    Stack,
    Subtract,
    Tanh,
    Transpose,
)

BLOCKS = 20_000


def chain(count: int, block: type = Tanh) -> ml.Model:
    model = ml.Model()
    for _ in range(count):
        model += block()
    return model


def wide(count: int) -> ml.Model:
    """One value that many blocks read, and the concatenation of their outputs."""
    model = ml.Model()
    model |= Buffer()(input="input", output="x")
    names = [f"y{i}" for i in range(count)]
    for name in names:
        model |= Tanh()(input="x", output=name)
    model |= Concat(axis=0)(inputs=names, output="output")
    return model


def many_inputs(count: int) -> ml.Model:
    model = ml.Model()
    names = [f"x{i}" for i in range(count)]
    model |= Concat(axis=0)(inputs=names, output="output")
    return model


def nested(depth: int) -> ml.Model:
    model = ml.Model()
    model += Tanh()
    for _ in range(depth):
        outer = ml.Model()
        outer += model
        outer += Tanh()
        model = outer
    return model


def drawn(count: int, unary: tuple = (Tanh, Sigmoid, Relu)) -> ml.Model:
    """Operations on recent values and on values that nothing has read yet."""
    draw = random.Random(count)
    model, recent, unread = ml.Model(), ["input"], ["input"]

    def operand() -> str:
        if unread and draw.random() < 0.7:
            return unread.pop(draw.randrange(len(unread)))
        return draw.choice(recent[-20:])

    for i in range(count):
        kind, name = draw.random(), f"v{i}"
        if kind < 0.4:
            model |= draw.choice(unary)()(input=operand(), output=name)
        elif kind < 0.9:
            block = draw.choice([Add, Multiply, Subtract, Maximum])()
            model |= block(left=operand(), right=operand(), output=name)
        else:
            block = Softmax(axis=-1) if kind < 0.95 else Transpose()
            model |= block(input=operand(), output=name)
        recent.append(name)
        unread.append(name)
    model |= Stack()(inputs=unread, output="all")
    model |= Mean(axis=0)(input="all", output="output")
    return model


def on_small_stack(work):
    """Runs `work` in a thread with a stack of 1 MB, and returns its result."""
    results = []
    before = threading.stack_size(1 << 20)
    try:
        thread = threading.Thread(target=lambda: results.append(work()))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    return results[0]


def test_long_chain():
    def work():
        start = time.thread_time()
        compiled = ml.compile(chain(BLOCKS), ml.NumpyBackend(), shapes={"input": [2, 3]})
        taken = time.thread_time() - start
        x = np.full((2, 3), 0.5, np.float32)
        return taken, compiled.evaluate({}, {"input": x})["output"]

    taken, output = on_small_stack(work)
    expected = np.full((2, 3), 0.5, np.float32)
    for _ in range(BLOCKS):
        expected = np.tanh(expected)
    np.testing.assert_array_equal(output, expected)
    assert taken < 30


def test_many_blocks_on_one_value():
    def work():
        start = time.thread_time()
        compiled = ml.compile(wide(BLOCKS), ml.NumpyBackend(), shapes={"input": [2, 3]})
        taken = time.thread_time() - start
        x = np.full((2, 3), 0.5, np.float32)
        return taken, compiled.evaluate({}, {"input": x})["output"]

    taken, output = on_small_stack(work)
    assert output.shape == (2 * BLOCKS, 3)
    np.testing.assert_array_equal(output, np.tanh(np.full_like(output, 0.5)))
    assert taken < 30


def test_many_inputs():
    names = [f"x{i}" for i in range(BLOCKS)]

    def work():
        start = time.thread_time()
        shapes = {name: [1, 2] for name in names}
        compiled = ml.compile(many_inputs(BLOCKS), ml.NumpyBackend(), shapes=shapes)
        return compiled, time.thread_time() - start

    compiled, taken = on_small_stack(work)
    inputs = {name: np.full((1, 2), i, np.float32) for i, name in enumerate(names)}
    output = compiled.evaluate({}, inputs)["output"]
    np.testing.assert_array_equal(output[:, 0], np.arange(BLOCKS, dtype=np.float32))
    assert taken < 30


def test_deeply_nested_models():
    depth = 5000

    def work():
        model = nested(depth)
        compiled = ml.compile(
            ml.Model.from_json(model.to_json()), ml.NumpyBackend(), shapes={"input": [2]}
        )
        x = np.full(2, 0.5, np.float32)
        return compiled.evaluate({}, {"input": x})["output"]

    expected = np.full(2, 0.5, np.float32)
    for _ in range(depth + 1):
        expected = np.tanh(expected)
    np.testing.assert_array_equal(on_small_stack(work), expected)


@pytest.mark.parametrize("size", [2**63, 2**64 - 1])
def test_sizes_beyond_64_bits(size):
    with pytest.raises(ml.MithrilError, match="a size is too large"):
        ml.compile(Tanh(), ml.NumpyBackend(), shapes={"input": [size]})


def test_more_elements_than_64_bits_count():
    with pytest.raises(ml.MithrilError, match="more elements than any memory holds"):
        ml.compile(Tanh(), ml.NumpyBackend(), shapes={"input": [2**62, 4]})
    with pytest.raises(ml.MithrilError, match="more elements than any memory holds"):
        ml.compile(Linear(2**62), ml.NumpyBackend(), shapes={"input": [2, 4]})


@pytest.mark.parametrize(
    "model",
    [
        chain(10_000),
        # Each of its blocks has two reductions of a row.
        chain(1_000, Softmax),
        # All of its blocks share their constants.
        chain(10_000, Gelu),
        drawn(10_000),
        drawn(10_000, (Sine, Cosine, Tanh)),
        wide(2_000),
    ],
    ids=["chain", "softmaxes", "gelus", "drawn", "waves", "wide"],
)
def test_native_code_and_gradients_of_many_operations(model):
    x = np.random.default_rng(0).uniform(-1, 1, (8, 8)).astype(np.float32)
    options = {"shapes": {"input": [8, 8]}, "trainable_keys": ["input"]}
    start = time.process_time()
    native = ml.compile(model, cache=False, **options)
    given = {"output": np.ones_like}
    outputs, gradients = native.evaluate({"input": x}, {}, output_gradients=given)
    # CPU time of all threads: 4 to 9 s; quadratic growth would take minutes.
    assert time.process_time() - start < 40
    source = ml.compile(model, ml.NumpyBackend(), **options)
    expected = source.evaluate({"input": x}, {}, output_gradients=given)
    np.testing.assert_allclose(outputs["output"], expected[0]["output"], rtol=1e-4, atol=1e-5)
    worst = np.abs(expected[1]["input"]).max()
    np.testing.assert_allclose(gradients["input"], expected[1]["input"], atol=1e-4 * worst)


@pytest.mark.parametrize(("backend", "name"), [(ml.NumpyBackend, "m.py"), (ml.CBackend, "m.c")])
def test_time_to_source_with_gradients_grows_linearly(tmp_path, backend, name):
    def taken(count):
        path = tmp_path / name
        options = {"shapes": {"input": [4]}, "trainable_keys": ["input"], "file_path": path}
        model = chain(count)
        start = time.process_time()
        ml.compile(model, backend(), **options)
        return time.process_time() - start

    taken(100)
    # Four times the blocks take 4 to 5 times as long; quadratic growth would be 16.
    assert taken(40_000) < 9 * min(taken(10_000) for _ in range(2))


def test_first_values_of_many_params():
    model = ml.Model()
    for _ in range(2_000):
        model += Linear(8)
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"input": [2, 8]})
    start = time.thread_time()
    params = compiled.randomize_params(seed=0)
    # It takes 0.3 s; with quadratic growth it took 30 s.
    assert time.thread_time() - start < 5
    assert len(params) == 4_000


def test_native_code_and_gradients_of_many_inputs():
    names = [f"x{i}" for i in range(2_000)]
    draw = np.random.default_rng(0)
    params = {name: draw.uniform(-1, 1, (1, 8)).astype(np.float32) for name in names}
    shapes = {name: [1, 8] for name in names}
    start = time.process_time()
    native = ml.compile(many_inputs(2_000), cache=False, shapes=shapes, trainable_keys=names)
    rows = draw.uniform(-1, 1, (2_000, 8)).astype(np.float32)
    outputs, gradients = native.evaluate(params, {}, output_gradients={"output": rows})
    # CPU time of all threads: 0.3 s; a kernel for each input would take 16 s.
    assert time.process_time() - start < 8
    np.testing.assert_array_equal(outputs["output"], np.concatenate(list(params.values())))
    np.testing.assert_array_equal(np.concatenate([gradients[name] for name in names]), rows)


def test_messages_show_only_the_first_of_many_names():
    model = ml.Model()
    for i in range(100):
        model |= Tanh()(input="input", output=f"y{i}")
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"input": [2]}, trainable_keys=["input"])
    x = np.zeros(2, np.float32)
    with pytest.raises(ml.UsageError, match=r"`y0`, `y1`, .* and 88 more\n  expected: a dict"):
        compiled.evaluate({"input": x}, {}, output_gradients=x)


def test_explain_says_what_is_too_large_to_be_rewritten():
    compiled = ml.compile(chain(17_000), ml.NumpyBackend(), shapes={"input": [2]})
    told = str(compiled.explain())
    assert "17000 operations are in functions that are too large to be rewritten" in told
