"""Names that source could not take as they are: it runs, and does no more than it should."""

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
    # Cyrillic, and wide: both read as x.
    "\u0445",
    "\uff58",
    "日本",
    "1st",
    " ",
    "\u202e",
]


def layers() -> Model:
    """A layer for each name, which its input, its block and its output have."""
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


@pytest.mark.parametrize("kind", ["NumpyBackend", "TorchBackend", "JaxBackend"])
def test_source_says_nothing_that_a_name_says(kind):
    code = ml.compile(layers(), getattr(ml, kind)()).code
    nodes = list(ast.walk(ast.parse(code)))
    imported = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    assert imported <= {"math", "numpy", "torch", "jax", "jax.numpy"}
    called = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert called <= {"outputs_and_gradients", "output_gradients"}
    # Look-alikes are told apart by what is plain ASCII.
    names = {n.id for n in nodes if isinstance(n, ast.Name)}
    assert all(name.isascii() and len(name) < 80 for name in names)
