"""Generated source reads like code that an experienced user of the framework would write."""

import re

import numpy as np
import pytest
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril import models, zoo
from mithril.models import (
    Arange,
    ArgMax,
    BatchNorm1d,
    Buffer,
    CrossEntropy,
    Diagonal,
    Einsum,
    Gelu,
    LayerNorm,
    Linear,
    LogSumExp,
    Model,
    OneHot,
    Pad,
    Repeat,
    Roll,
    Sequential,
    Softplus,
    Stack,
    Tile,
    Tril,
    Triu,
)

KINDS = [kind for kind in INSTALLED if kind in ("numpy", "torch", "jax", "mlx", "tinygrad")]


def code(kind, block, shapes=None, **options):
    backend = getattr(ml, MAKERS[kind])()
    return ml.compile(block, backend, shapes=shapes or {}, **options).code


def scaled():
    model = Model()
    model |= Einsum("ab,->ab")(inputs=["x", "scale"], output="y")
    return model


def stacked():
    model = Model()
    model |= Stack(axis=1)(inputs=["a", "b"], output="y")
    return model


# The line that computes the output in each framework, by block and shapes.
LINES = {
    "tril": (
        Tril,
        {"input": [4, 4]},
        {
            "numpy": "np.tril(x)",
            "torch": "torch.tril(x)",
            "jax": "jnp.tril(x)",
            "mlx": "mx.tril(x)",
            "tinygrad": "x.tril()",
        },
    ),
    "triu": (
        lambda: Triu(1),
        {"input": ["n", "m"]},
        {
            "numpy": "np.triu(x, 1)",
            "torch": "torch.triu(x, 1)",
            "jax": "jnp.triu(x, 1)",
            "mlx": "mx.triu(x, 1)",
            "tinygrad": "x.triu(1)",
        },
    ),
    "logsumexp": (
        lambda: LogSumExp(axis=-1),
        {"input": [4, 5]},
        {
            "numpy": "np.squeeze(logs + detached, -1)",
            "torch": "torch.logsumexp(x, -1)",
            "jax": "jax.nn.logsumexp(x, axis=-1)",
            "mlx": "mx.logsumexp(x, axis=-1)",
        },
    ),
    "logsumexp of all": (
        LogSumExp,
        {"input": [4, 5]},
        {
            "torch": "torch.logsumexp(x.flatten(), 0)",
            "jax": "jax.nn.logsumexp(x)",
            "mlx": "mx.logsumexp(x)",
        },
    ),
    "stack": (
        stacked,
        {"a": [2, 3], "b": [2, 3]},
        {
            "numpy": "np.stack([a, b], axis=1)",
            "torch": "torch.stack([a, b], dim=1)",
            "jax": "jnp.stack([a, b], axis=1)",
            "mlx": "mx.stack([a, b], axis=1)",
            "tinygrad": "Tensor.stack(a, b, dim=1)",
        },
    ),
    "one hot": (
        lambda: OneHot(5),
        {"input": [4]},
        {
            "torch": "F.one_hot(x, 5).to(torch.float32)",
            "jax": "jax.nn.one_hot(x, 5, dtype=jnp.float32)",
        },
    ),
    "cross entropy": (
        CrossEntropy,
        {"input": [4, 5], "target": [4]},
        {"torch": 'F.cross_entropy(x, target, reduction="none")'},
    ),
    # `F.cross_entropy` has the classes on another axis if there are more axes.
    "cross entropy of sequences": (
        CrossEntropy,
        {"input": [2, 4, 5], "target": [2, 4]},
        {"torch": "-torch.log_softmax(x, -1).gather(-1, target.unsqueeze(-1)).squeeze(-1)"},
    ),
    "a ramp": (
        lambda: Arange(stop=5),
        {},
        {
            "numpy": "np.arange(5, dtype=np.int64)",
            "torch": "torch.arange(5, dtype=torch.int64)",
            "jax": "jnp.arange(5, dtype=jnp.int32)",
            "mlx": "mx.arange(5, dtype=mx.int64)",
            "tinygrad": "Tensor.arange(5, dtype=dtypes.int64)",
        },
    ),
    "a diagonal": (
        lambda: Diagonal(1),
        {"input": [2, 3, 4]},
        {
            "numpy": "np.diagonal(x, 1, axis1=-2, axis2=-1)",
            "torch": "torch.diagonal(x, 1, dim1=-2, dim2=-1)",
            "jax": "jnp.diagonal(x, 1, axis1=-2, axis2=-1)",
            "tinygrad": "x.diagonal(1, dim1=-2, dim2=-1)",
        },
    ),
    "a roll": (
        lambda: Roll(2, axis=1),
        {"input": [3, "n"]},
        {
            "numpy": "np.roll(x, 2, axis=1)",
            "torch": "torch.roll(x, 2, 1)",
            "jax": "jnp.roll(x, 2, axis=1)",
            "mlx": "mx.roll(x, 2, axis=1)",
            "tinygrad": "x.roll(2, 1)",
        },
    ),
    "tiles": (
        lambda: Tile((2, 3)),
        {"input": ["n", 4]},
        {
            "numpy": "np.tile(x, (2, 3))",
            "torch": "torch.tile(x, (2, 3))",
            "jax": "jnp.tile(x, (2, 3))",
            "mlx": "mx.tile(x, (2, 3))",
            "tinygrad": "x.repeat((2, 3))",
        },
    ),
    "a repeat": (
        lambda: Repeat(2, axis=0),
        {"input": [3, 4]},
        {
            "numpy": "np.repeat(x, 2, axis=0)",
            "torch": "x.repeat_interleave(2, dim=0)",
            "jax": "jnp.repeat(x, 2, axis=0)",
            "mlx": "mx.repeat(x, 2, axis=0)",
            "tinygrad": "x.repeat_interleave(2, 0)",
        },
    ),
    "a pad": (
        lambda: Pad([(1, 1), (0, 2)]),
        {"input": [3, 4]},
        {
            "numpy": "np.pad(x, ((1, 1), (0, 2)))",
            "torch": "F.pad(x, (0, 2, 1, 1))",
            "jax": "jnp.pad(x, ((1, 1), (0, 2)))",
            "mlx": "mx.pad(x, ((1, 1), (0, 2)))",
            "tinygrad": "x.pad(((1, 1), (0, 2)))",
        },
    ),
    "a pad of ones": (
        lambda: Pad([(1, 1), (0, 2)], value=1.0),
        {"input": [3, 4]},
        {
            "numpy": "np.pad(x, ((1, 1), (0, 2)), constant_values=1.0)",
            "torch": "F.pad(x, (0, 2, 1, 1), value=1.0)",
            "jax": "jnp.pad(x, ((1, 1), (0, 2)), constant_values=1.0)",
            "mlx": "mx.pad(x, ((1, 1), (0, 2)), constant_values=1.0)",
            "tinygrad": "x.pad(((1, 1), (0, 2)), value=1.0)",
        },
    ),
    "a crop": (
        lambda: Pad([(-1, 1)]),
        {"input": [3]},
        {"torch": "F.pad(x, (-1, 1))", "jax": "jax.lax.pad(x, jnp.float32(0.0), [(-1, 1, 0)])"},
    ),
    "a scaled matrix": (
        scaled,
        {"x": [2, 3], "scale": []},
        dict.fromkeys(("numpy", "torch", "jax", "mlx", "tinygrad"), "x * scale"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", LINES)
def test_blocks_become_one_line_of_source(case, kind):
    block, shapes, lines = LINES[case]
    if kind in lines:
        source = code(kind, block(), shapes, inference=True)
        made = re.findall(r"^    (?:output|y) = (.*)$", source, re.MULTILINE)
        assert made == [lines[kind]]


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_which_only_the_shape_is_read_are_not_created(kind):
    model = Model()
    model |= Buffer()(input=np.ones((3, 4), "float32"), output="c")
    model |= Buffer()(input="x", output="y")
    model |= Buffer()(input=model.y * model.c.shape[0].cast(ml.float32), output="z")
    assert ".full(" not in code(kind, model, {"x": [2]}, optimization_level="none")


def test_saved_values_of_repeated_blocks_have_telling_names():
    class Part(Model):
        def __init__(self):
            super().__init__()
            self |= Linear(3)(input="x", output="h")
            for _ in range(3):
                for block in (Gelu(), LayerNorm(), Softplus(), Linear(3)):
                    self += block

    source = code("numpy", Sequential([Part(), Part(), Part()]), {"input": [2, 3]})
    handed = source[source.index("def part_forward(") : source.index("def part_backward")]
    handed = handed[handed.index("return (") : handed.index("    )\n\n\n")].split()
    assert {"gelu_0,", "layer_norm_1,", "softplus_2,", "h,"} <= set(handed)
    assert not {"saved,", "mul,", "div,", "add,", "sub,"} & set(handed)
    # The first part needs no gradient of its input; its forward function is shared with the others.
    halves = [line for line in source.splitlines() if line.startswith("def part_")]
    assert sorted(halves) == ["def part_backward(", "def part_backward_1(", "def part_forward("]
    # Constants are repeated where they are used instead of being passed on.
    assert not [name for name in handed[2:] if not name[0].isalpha()]


@pytest.mark.parametrize("shapes", [{"input": ["n", 3]}, {"input": [4, 3]}])
def test_batch_mean_is_computed_once(shapes):
    source = code("numpy", Sequential([Linear(3), BatchNorm1d()]), shapes)
    start = source.index("def outputs_and_gradients")
    forward = source[start : source.index("    outputs = ", start)]
    assert forward.count("np.mean(linear") + forward.count("np.sum(linear") == 1
    assert "np.var" not in forward


@pytest.mark.parametrize("kind", KINDS)
def test_inner_values_are_named_by_nouns(kind):
    block = Sequential([Linear(3), BatchNorm1d(), Gelu(), LayerNorm(), LogSumExp(-1)])
    source = code(kind, block, {"input": [4, 3]})
    names = re.findall(r"^    (\w+) = ", source, re.MULTILINE)
    verbs = {"add", "sub", "mul", "div", "neg", "eq", "select", "max_", "sum_", "log", "exp"}
    assert not [n for n in names if re.sub(r"_\d+$", "", n) in verbs], source
    if kind != "numpy":
        # The operand and the result of a barrier have the same name.
        assert "running_var_1 = " in source


def test_gradient_functions_have_the_same_signature_for_all_outputs():
    model = Model()
    model |= Linear(3)(input="x", output="h")
    model |= ArgMax(axis=-1)(input="h", output="y")
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"x": [2, 4]})
    assert "def gradients(params, inputs, output_gradients):" in compiled.code
    params, inputs = compiled.randomize_params(seed=1), {"x": np.ones((2, 4), "float32")}
    outputs, gradients = compiled.evaluate(params, inputs, output_gradients={})
    assert outputs["y"].shape == (2,)
    assert all(not gradients[name].any() for name in params)
    scope: dict = {}
    exec(compiled.code, scope)
    assert not scope["gradients"](params, inputs, {})["linear.w"].any()


def test_triangles_and_stacks_of_numbers():
    x = np.arange(18, dtype="float32").reshape(2, 3, 3)
    for kind in INSTALLED:
        if kind == "c":
            continue
        backend = getattr(ml, MAKERS[kind])()
        for name, diagonal in [("Tril", 0), ("Tril", -1), ("Triu", 1)]:
            block = getattr(models, name)(diagonal)
            model = ml.compile(block, backend, shapes={"input": ["n", 3, 3]})
            got = model.evaluate({}, {"input": backend.array(x)})["output"]
            assert np.array_equal(backend.to_numpy(got), getattr(np, name.lower())(x, diagonal))


@pytest.mark.parametrize("shift", [2, -2, 7, -7])
@pytest.mark.parametrize("kind", INSTALLED)
def test_rolls_of_an_axis_that_varies(kind, shift):
    backend = getattr(ml, MAKERS[kind])()
    block = Roll(shift, axis=0)
    model = ml.compile(block, backend, shapes={"input": ["n"]}, trainable_keys=["input"])
    for n in (1, 3, 4):
        x = np.arange(n, dtype="float32")
        given = {"output": backend.array(x + 1)}
        outputs, gradients = model.evaluate({"input": backend.array(x)}, {}, output_gradients=given)
        assert np.array_equal(backend.to_numpy(outputs["output"]), np.roll(x, shift))
        assert np.array_equal(backend.to_numpy(gradients["input"]), np.roll(x + 1, -shift))


@pytest.mark.parametrize("kind", KINDS)
def test_equal_parts_are_one_call(kind):
    """The parts of an axis that slices divide; other slices stay as they are."""
    call = {
        "torch": ".chunk(3, -1)",
        "jax": "jnp.split(",
        "mlx": "mx.split(",
        "tinygrad": ".chunk(3, -1)",
    }.get(kind)
    model = Model()
    x = ml.IOKey("x")
    first, second, third = x[..., :4], x[..., 4:8], x[..., 8:]
    model |= Buffer()(input=first * second - third, output="y")
    text = code(kind, model, {"x": [2, 12]})
    assert (call in text) if call else ("[:, 4:8]" in text)
    values = np.arange(24, dtype=np.float32).reshape(2, 12)
    backend = getattr(ml, MAKERS[kind])()
    compiled = ml.compile(model, backend, shapes={"x": [2, 12]}, trainable_keys=["x"])
    outputs, gradients = compiled.evaluate(
        {"x": backend.array(values)}, {}, output_gradients={"y": backend.ones(2, 4)}
    )
    a, b, c = np.split(values, 3, axis=1)
    np.testing.assert_allclose(backend.to_numpy(outputs["y"]), a * b - c)
    want = np.concatenate([b, a, -np.ones_like(c)], axis=1)
    np.testing.assert_allclose(backend.to_numpy(gradients["x"]), want)

    unequal = Model()
    x = ml.IOKey("x")
    unequal |= Buffer()(input=x[..., :4].sum(-1) + x[..., 4:].sum(-1), output="y")
    text = code(kind, unequal, {"x": [2, 12]})
    assert "split" not in text and "chunk" not in text


# Logits whose losses are 0, infinite or undefined, and the class of each row.
SPECIAL = [
    ([1.0, -np.inf, 2.0], 0),
    ([1.0, -np.inf, 2.0], 1),
    ([4.0, 4.0, 4.0], 1),
    ([np.nan, 0.0, 1.0], 1),
    ([-np.inf, -np.inf, -np.inf], 2),
    ([3e4, -3e4, 0.0], 0),
    ([0.0, -3e4, 3e4], 1),
]
CROSS_ENTROPIES = {
    "mlx": "mx.logsumexp(x, axis=-1) - mx.squeeze(",
    "tinygrad": "output = -x.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)",
}


@pytest.mark.parametrize("kind", [kind for kind in CROSS_ENTROPIES if kind in KINDS])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("sizes", [(7,), (0,), (2, 3)], ids=str)
def test_cross_entropy_is_one_expression(kind, dtype, sizes):
    torch = pytest.importorskip("torch")
    backend = getattr(ml, MAKERS[kind])(dtype)
    shapes = {"input": [*sizes, 3], "target": list(sizes)}
    compiled = ml.compile(CrossEntropy(), backend, shapes=shapes, trainable_keys=["input"])
    if 0 not in sizes and (kind, dtype) != ("mlx", "float64"):
        assert CROSS_ENTROPIES[kind] in compiled.code
        assert "def _" not in compiled.code
    rng = np.random.default_rng(0)
    x, target = rng.standard_normal((*sizes, 3)), rng.integers(0, 3, sizes)
    if len(sizes) == 1:
        rows = SPECIAL[: sizes[0]]
        x[:], target[:] = (
            np.reshape([row for row, _ in rows], x.shape),
            [label for _, label in rows],
        )
    x = x.astype(dtype)
    outputs, gradients = compiled.evaluate(
        {"input": backend.array(x)},
        {"target": backend.array(target)},
        output_gradients={"output": backend.ones(*sizes)},
    )
    logits = torch.tensor(x).double().requires_grad_()
    logs = torch.log_softmax(logits, -1)
    want = -torch.gather(logs, -1, torch.tensor(target)[..., None])[..., 0]
    want.sum().backward()
    bound = {"float32": 1e-6, "float64": 1e-12, "float16": 2e-3}[dtype]
    close = {"rtol": bound, "atol": bound}
    np.testing.assert_allclose(backend.to_numpy(outputs["output"]), want.detach(), **close)
    np.testing.assert_allclose(backend.to_numpy(gradients["input"]), logits.grad, **close)


@pytest.mark.parametrize("kind", KINDS)
def test_class_weights_have_a_name(kind):
    block = CrossEntropy(weights=[1.0, 2.0, 3.0])
    source = code(kind, block, {"input": [4, 3], "target": [4]})
    assert "_class_weights = " in source


@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_published_models_have_telling_names(kind):
    sizes = {"layers": 2, "heads": 2, "width": 8, "vocabulary": 11}
    for model, name in (
        (zoo.GPT2(**sizes), "transformer_encoder_layer"),
        (zoo.Llama(**sizes, feedforward=16), "llama_layer"),
    ):
        source = code(kind, model, {"input": [2, 4]}, inference=True)
        assert len(re.findall(rf"^def {name}\(", source, re.MULTILINE)) == 1
