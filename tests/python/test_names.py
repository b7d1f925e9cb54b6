"""Names that are not valid in source: the source runs, and does nothing else."""

import ast

import numpy as np
import pytest

import mithril as ml
from mithril.models import Linear, Model

NAMES = [
    "x; import os",
    "__import__('os')",
    "np",
    "torch",
    "lambda",
    "None",
    "int",
    "params",
    "forward",
    "a\nimport os",
    'one "quote',
    "three '''",
    "*/ abort(); /*",
    "\\",
    "{x}",
    "x",
    # Cyrillic and full-width letters, both of which look like x.
    "\u0445",
    "\uff58",
    "日本",
    "1st",
    " ",
    "\u202e",
]


HALF = "\ud800x"
X = {"input": [1, 3]}
HALVES = {
    "a block": lambda: Linear(3, name=HALF),
    "a model": lambda: Model(name=HALF),
    "a terminal": lambda: Linear(3)(input=HALF),
    "a keyword of a call": lambda: Linear(3)(**{HALF: "x"}),
    "a keyword of a block": lambda: Linear(**{HALF: 3}),
    "a key": lambda: ml.IOKey(HALF),
    "a dim of a key": lambda: ml.IOKey("x", shape=[HALF]),
    "a dim": lambda: ml.compile(Linear(3), shapes={"input": [HALF, 3]}),
    "a shape": lambda: ml.compile(Linear(3), shapes={HALF: [1, 3]}),
    "a dtype": lambda: ml.compile(Linear(3), dtypes={HALF: "int32"}),
    "a trainable key": lambda: ml.compile(Linear(3), trainable_keys=[HALF]),
    "a constant key": lambda: ml.compile(Linear(3), constant_keys={HALF: 1}),
    "a kept value": lambda: ml.compile(Linear(3), keep=[HALF]),
    "an output": lambda: ml.compile(Linear(3), differentiate=HALF),
    "a file": lambda: ml.compile(Linear(3), ml.NumpyBackend(), shapes=X, file_path=f"{HALF}.py"),
    "a setting": lambda: ml.models.Einsum(HALF),
    "an exposed terminal": lambda: Model().expose(HALF),
    "a renamed terminal": lambda: Model().rename("a", HALF),
    "a stated shape": lambda: Model().set_shapes(**{HALF: [1]}),
}


@pytest.mark.parametrize("use", HALVES.values(), ids=HALVES)
def test_lone_surrogates_in_names_are_errors(use):
    with pytest.raises(ml.MithrilError, match="contains a lone surrogate") as caught:
        use()
    assert str(caught.value).isprintable() or "\n" in str(caught.value)
    str(caught.value).encode()


def test_no_attribute_has_a_lone_surrogate_in_its_name():
    model = Model()
    model += Linear(3)
    assert not hasattr(model, HALF)
    assert not hasattr(model.input, HALF)


def test_names_without_nul():
    for use in (
        lambda: Model(name="a\0b"),
        lambda: Linear(3, name="a\0b"),
        lambda: Linear(3)("\0"),
    ):
        with pytest.raises(ml.MithrilError, match="has a NUL character in it\n  got"):
            model = Model()
            model |= use()


def layers() -> Model:
    """A model with a layer for each name; its input, block and output have that name."""
    model = Model()
    for name in NAMES:
        model |= Linear(2, name=name)(input=f"{name}", output=f"{name} out")
    return model


def test_names_of_all_kinds_are_harmless(backend):
    compiled = ml.compile(layers(), backend, shapes={name: ["n", 3] for name in NAMES})
    assert set(compiled.inputs) == set(NAMES)
    params = compiled.randomize_params(seed=1)
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal((4, 3)).astype("float32") for name in NAMES}
    given = {name: backend.array(x) for name, x in inputs.items()}
    seeds = {f"{name} out": backend.ones(4, 2) for name in NAMES}
    outputs, gradients = compiled.evaluate(params, given, output_gradients=seeds)
    for name, x in inputs.items():
        w, b = (backend.to_numpy(params[f"{name}.{own}"]) for own in "wb")
        got = backend.to_numpy(outputs[f"{name} out"])
        np.testing.assert_allclose(got, x @ w + b, rtol=1e-4, atol=1e-5)
        got = backend.to_numpy(gradients[f"{name}.w"])
        expected = x.sum(0, keepdims=True).T @ np.ones((1, 2))
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "kind",
    [
        "NumpyBackend",
        "TorchBackend",
        "JaxBackend",
        "MlxBackend",
        "TinygradBackend",
    ],
)
def test_source_contains_only_known_calls_whatever_the_names(kind):
    code = ml.compile(layers(), getattr(ml, kind)()).code
    nodes = list(ast.walk(ast.parse(code)))
    imported = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    assert imported <= {"math", "numpy", "torch", "jax", "jax.numpy", "mlx.core"}
    called = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert called <= {"outputs_and_gradients", "output_gradients"}
    # Names in source are ASCII, so look-alikes differ visibly.
    names = {n.id for n in nodes if isinstance(n, ast.Name)}
    assert all(name.isascii() and len(name) < 80 for name in names)
