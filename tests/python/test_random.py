"""Random blocks in source: the framework's generator by default, exact bits on request."""

import re
from statistics import median
from time import process_time

import numpy as np
import pytest
import torch
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril.models import (
    MLP,
    Bernoulli,
    Categorical,
    Dropout,
    Linear,
    Model,
    RandInt,
    Randn,
    RandUniform,
    Relu,
    Residual,
)

OWN = [kind for kind in INSTALLED if kind in ("numpy", "torch")]
KEY = np.array([3, 2**32 - 1], np.uint32)


def made(kind, **options):
    return getattr(ml, MAKERS[kind])(**options)


def drawn(block, kind="numpy", key=KEY, inputs=None, name="output", **options):
    backend = made(kind)
    model = Model()
    terminals = {"input": "input"} if inputs is not None else {}
    model |= block(**terminals, output=name)
    shapes = {"input": list(inputs.shape)} if inputs is not None else None
    compiled = ml.compile(model, backend, shapes=shapes, **options)
    given = {"key": key} if inputs is None else {"key": key, "input": inputs}
    return backend.to_numpy(compiled.evaluate({}, given)[name])


X = np.ones((200, 300), np.float32)
SHAPE = [200, 300]


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("random", ["framework", "exact"])
@pytest.mark.parametrize("dtype", [ml.float32, ml.float64, ml.float16])
def test_distributions(kind, random, dtype):
    def moments(block, inputs=None):
        values = drawn(block, kind, inputs=inputs, random=random).astype(np.float64)
        return values.mean(), values.std(), values.min(), values.max()

    near = 0.01
    mean, deviation, least, most = moments(RandUniform(SHAPE, dtype=dtype))
    assert mean == pytest.approx(0.5, abs=near) and deviation == pytest.approx(12**-0.5, abs=near)
    assert 0 <= least < 0.01 and 0.99 < most < 1
    mean, _, least, most = moments(RandUniform(SHAPE, -2.0, 6.0, dtype=dtype))
    assert mean == pytest.approx(2, abs=0.05) and -2 <= least < -1.9 and 5.9 < most < 6
    mean, deviation, least, most = moments(Randn(SHAPE, dtype=dtype))
    assert abs(mean) < near and deviation == pytest.approx(1, abs=near) and least < -3 < 3 < most
    mean, deviation, least, most = moments(RandInt(SHAPE, -3, 5))
    assert mean == pytest.approx(0.5, abs=0.05) and (least, most) == (-3, 4)
    mean, *_ = moments(Bernoulli(), inputs=X * np.float32(0.3))
    assert mean == pytest.approx(0.3, abs=near)
    mean, *_ = moments(Categorical(), inputs=np.log(X[:, :4] * np.float32([1, 2, 3, 4])))
    assert mean == pytest.approx(2, abs=0.3)
    kept = drawn(Dropout(0.2), kind, inputs=X, random=random)
    assert (kept == 0).mean() == pytest.approx(0.2, abs=near)
    np.testing.assert_allclose(kept[kept != 0], 1.25, rtol=1e-6)


@pytest.mark.parametrize("kind", OWN)
def test_key_and_path_determine_random_numbers(kind):
    first = drawn(Randn([50]), kind)
    np.testing.assert_array_equal(first, drawn(Randn([50]), kind))
    for other in ([3, 2], [4, 2**32 - 1], [2**32 - 1, 3]):
        assert not np.isin(drawn(Randn([50]), kind, np.array(other, np.uint32)), first).any()

    def model(*rates):
        own = Model()
        own |= Dropout(0.5, name="first")(input="x", output="a")
        for i, rate in enumerate(rates):
            own |= Dropout(rate, name=f"more_{i}")(input="x", output=f"b_{i}")
        backend = made(kind)
        compiled = ml.compile(own, backend, shapes={"x": SHAPE})
        outputs = compiled.evaluate({}, {"x": X, "key": KEY})
        return {name: backend.to_numpy(value) for name, value in outputs.items()}

    alone, more = model(), model(0.5, 0.5)
    np.testing.assert_array_equal(alone["a"], more["a"])
    assert (more["a"] != more["b_0"]).any() and (more["b_0"] != more["b_1"]).any()


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
def test_gradients_use_the_dropout_mask_of_the_outputs(kind, autodiff):
    model = Model()
    model += Dropout(0.5)(input="x")
    model += Residual(MLP([Relu(), None], [4, 6]))
    model += Dropout(0.3)
    backend = made(kind)
    compiled = ml.compile(
        model, backend, shapes={"x": [8, 6]}, trainable_keys=["x"], autodiff=autodiff
    )
    params = compiled.randomize_params(0)
    params["x"] = backend.array(np.random.default_rng(0).standard_normal((8, 6)))
    seeds = {"output": backend.ones((8, 6))}
    outputs, gradients = compiled.evaluate(params, {"key": KEY}, output_gradients=seeds)
    again = compiled.evaluate_gradients(params, {"key": KEY}, seeds)
    to = backend.to_numpy
    np.testing.assert_array_equal(to(gradients["x"]), to(again["x"]))
    moved = {**params, "x": params["x"] + 1e-3 * gradients["x"]}
    after = compiled.evaluate(moved, {"key": KEY})
    rise = float(to(after["output"]).sum() - to(outputs["output"]).sum())
    assert rise == pytest.approx(1e-3 * float((to(gradients["x"]) ** 2).sum()), rel=0.05)


def test_exact_random_bits_are_equal_on_every_target():
    blocks = [Randn([64]), RandUniform([64], -1.0, 2.0), RandInt([64], 0, 1000)]
    for block in blocks:
        values = [drawn(block, kind, random="exact") for kind in INSTALLED]
        for other in values[1:]:
            np.testing.assert_allclose(values[0], other, rtol=1e-5, atol=1e-6)
    values = [drawn(Dropout(0.4), kind, inputs=X, random="exact") for kind in INSTALLED]
    for other in values[1:]:
        np.testing.assert_allclose(values[0], other, rtol=1e-6)


def test_new_key_is_usable_as_a_key():
    """A block returns a key for the next draw, which any random block can use."""
    for kind in OWN:
        model = Model()
        first = Randn([30])
        model |= first(key="key", output="a", new_key="more")
        model |= Randn([30])(key="more", output="b", new_key="last")
        model.expose("more")
        backend = made(kind)
        compiled = ml.compile(model, backend)
        outputs = compiled.evaluate({}, {"key": KEY})
        key = backend.to_numpy(outputs["more"])
        assert key.shape == (2,) and key.dtype == np.uint32
        again = compiled.evaluate({}, {"key": outputs["more"]})
        a, b = (backend.to_numpy(outputs[name]) for name in "ab")
        assert not np.isin(a, b).any()
        np.testing.assert_array_equal(backend.to_numpy(again["a"]), b)


def test_difference_compares_the_same_bits():
    model = Model()
    model += Linear(8)(input="x")
    model += Dropout(0.5)
    backends = [made(kind) for kind in INSTALLED]
    found = ml.diff(model, backends, inputs={"x": np.ones((4, 6), np.float32)})
    assert found.agrees, str(found)


def dropping(backend, **options):
    model = Model()
    model |= Dropout(0.1)(input="x", output="y")
    return ml.compile(model, backend, shapes={"x": [128, 1024]}, **options)


def test_random_source_uses_framework_generators():
    code = dropping(ml.TorchBackend()).code
    assert "_threefry" not in code
    body = code[code.index("def forward") :]
    assert re.search(r"= \(\*_key_words\(key\), \d+\)\n    uniform = torch\.rand\(", body)
    code = dropping(ml.NumpyBackend(), inference=False).code
    assert "_threefry" not in code and "def _" not in code
    assert re.search(r"np\.random\.default_rng\(\(\*key, \d+\)\)\.random\(", code)
    for backend in ml.TorchBackend(), ml.NumpyBackend():
        assert "_threefry" in dropping(backend, random="exact").code


def test_written_source_draws_the_same_numbers(tmp_path):
    for kind in OWN:
        path = tmp_path / f"{kind}.py"
        compiled = dropping(made(kind), file_path=path)
        x = np.ones((128, 1024), np.float32)
        own = made(kind).to_numpy(compiled.evaluate({}, {"x": x, "key": KEY})["y"])
        space = {"__file__": str(path), "__name__": "file"}
        exec(path.read_text(), space)
        array = torch.from_numpy if kind == "torch" else np.asarray
        given = {"x": array(x), "key": array(KEY)}
        np.testing.assert_array_equal(np.asarray(space["forward"]({}, given)["y"]), own)


def test_an_unknown_source():
    with pytest.raises(ml.UsageError, match="`random` has an invalid value"):
        dropping(ml.NumpyBackend(), random="cuda")


def test_dropout_is_about_as_fast_as_torch():
    """Forward and training step take at most 1.3 times `nn.Dropout`, with slack for a busy
    machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        source = {}
        exec(dropping(ml.TorchBackend()).code, source)
        key, theirs = torch.from_numpy(KEY), torch.nn.Dropout(0.1)
        x = torch.randn(128, 1024)
        ways = {
            "own": lambda x: source["forward"]({}, {"x": x, "key": key})["y"],
            "theirs": theirs,
        }
        times = {(way, step): [] for way in ways for step in ("forward", "training")}
        for _ in range(30):
            for way, call in ways.items():
                start = process_time()
                call(x)
                middle = process_time()
                leaf = x.detach().requires_grad_()
                call(leaf).backward(x)
                times[way, "forward"].append(middle - start)
                times[way, "training"].append(process_time() - middle)
        for step in ("forward", "training"):
            own, other = (median(times[way, step]) for way in ("own", "theirs"))
            assert own < 1.3 * 1.25 * other, (step, own, other)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("shapes", [{"x": [4, 6]}, None], ids=["known", "open"])
def test_typed_keys_of_jax_are_taken(shapes):
    jax = pytest.importorskip("jax")
    model = Model()
    model += Linear(5)(input="x")
    model += Dropout(0.5)(output="y")
    compiled = ml.compile(model, ml.JaxBackend(), shapes=shapes)
    params, x = compiled.randomize_params(0), np.ones((4, 6), "f4")
    old, new = jax.random.PRNGKey(7), jax.random.key(7)
    compiled.evaluate(params, {"x": x, "key": new})
    seeds = {"y": jax.numpy.ones((4, 5))}
    found = [compiled.evaluate(params, {"x": x, "key": key}, None, seeds) for key in (old, new)]
    jax.tree.map(np.testing.assert_array_equal, *found)
    traced = jax.jit(lambda key: compiled.evaluate(params, {"x": x, "key": key})["y"])
    np.testing.assert_allclose(traced(new), found[0][0]["y"], rtol=1e-6)
    with pytest.raises(
        ml.ShapeError, match=r"`key` of inputs has the wrong rank\n  got: uint32\[3"
    ):
        compiled.evaluate(params, {"x": x, "key": jax.random.split(new, 3)})


def test_typed_keys_of_jax_are_taken_on_every_backend(backend):
    """They give what their words give, in calls and for params."""
    jax = pytest.importorskip("jax")
    key = jax.random.key(7)
    words = np.asarray(jax.random.key_data(key))
    model = Model()
    model += Linear(5)(input="x")
    model += Dropout(0.5)(output="y")
    compiled = ml.compile(model, backend, shapes={"x": [4, 6]})
    typed, plain = (compiled.randomize_params(key=own) for own in (key, words))
    np.testing.assert_array_equal(*(backend.to_numpy(p["linear.w"]) for p in (typed, plain)))
    x = backend.ones(4, 6)
    ys = [compiled.evaluate(typed, {"x": x, "key": own})["y"] for own in (key, words)]
    np.testing.assert_array_equal(*map(backend.to_numpy, ys))
