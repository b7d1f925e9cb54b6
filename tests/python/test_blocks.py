"""Every block of the table, forward and gradient: NumPy, torch, JAX, native code and C against each
other, and against the function that torch or scikit-learn has for it. All in float64."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from conftest import has
from own_functions import ALONE, OWN

import mithril as ml
from mithril import _core, models

TOLERANCE = 1e-12
BACKENDS = (ml.NumpyBackend, ml.TorchBackend, ml.JaxBackend)
if has("cpu"):
    BACKENDS = (*BACKENDS, ml.CpuBackend)
if has("c"):
    BACKENDS = (*BACKENDS, ml.CBackend)
ALL_SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (), (0, 4), (2, 1, 5))


@dataclass
class Case:
    """How a block is made and fed, where that is not the default."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # Terminals, or `*` for all, whose dtype is not what the block expects of itself.
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    # The number of values of a list terminal.
    count: int = 2


def case(*shapes: tuple[int, ...], dtypes: Mapping[str, Any] | None = None, **settings: Any) -> Any:
    """Shapes by terminal, in order."""
    return settings, shapes, dtypes or {}


INT, BOOL, LABELS = {"*": ml.int64}, {"*": ml.bool}, {"target": ml.int64}
M, V = (3, 4), (4,)
# Where the defaults, (3, 4) for every terminal and no settings, do not do.
CASES: dict[str, Any] = {
    "LogicalNot": case(M, dtypes=BOOL),
    "BitwiseNot": case(M, dtypes=INT),
    "Cast": case(M, dtype=ml.float32),
    "Clamp": case(M, min=0.3, max=0.6),
    "MatrixMultiply": case((2, 3, 4), (4, 5)),
    "LogicalAnd": case(M, V, dtypes=BOOL),
    "LogicalOr": case(M, V, dtypes=BOOL),
    "LogicalXor": case(M, V, dtypes=BOOL),
    "BitwiseAnd": case(M, V, dtypes=INT),
    "BitwiseOr": case(M, V, dtypes=INT),
    "BitwiseXor": case(M, V, dtypes=INT),
    "ShiftLeft": case(M, V, dtypes=INT),
    "ShiftRight": case(M, V, dtypes=INT),
    "Any": case(M, dtypes=BOOL, axis=0),
    "All": case(M, dtypes=BOOL, axis=-1),
    "Cumsum": case(M, axis=-1),
    "Cumprod": case(M, axis=-1),
    "Unique": case(M, size=5),
    "Reshape": case(M, shape=(2, -1)),
    "SwapAxes": case((2, 3, 4), first=0, second=-1),
    "PermuteTensor": case((2, 3, 4), permutation=(2, 0, 1)),
    "Squeeze": case((3, 1, 4), axis=1),
    "ExpandDims": case(M, axis=1),
    "BroadcastTo": case(V, shape=(3, 4)),
    "Split": case(M, n=2, axis=-1),
    "Pad": case(M, pad_width=((1, 2), (0, 1))),
    "Tile": case(M, reps=(2, 3)),
    "Repeat": case(M, repeats=2, axis=1),
    "Flip": case(M, axis=1),
    "Roll": case(M, shift=1, axis=-1),
    "Slice": case(M, start=1),
    "Indexer": case(M, index=1),
    "Gather": case(M, (5,)),
    "Scatter": case(M, (3,), (3, 4)),
    "TopK": case(M, k=2),
    "OneHot": case(V, classes=4),
    "Arange": case(stop=5),
    "Linspace": case(start=0.0, stop=1.0, num=5),
    "Eye": case(n=3),
    "Ones": case(shape=(2, 3)),
    "Zeros": case(shape=(2, 3)),
    "Full": case(shape=(2, 3), value=1.5),
    "Einsum": case((2, 3), (3, 4), equation="ij,jk->ik"),
    "Randn": case(shape=(2, 3)),
    "RandUniform": case(shape=(2, 3)),
    "RandInt": case(shape=(2, 3), low=0, high=9),
    "Linear": case((2, 3, 4), dimension=5),
    "LayerNorm": case(M),
    "RMSNorm": case(M),
    "BatchNorm1d": case(M),
    "ElementWiseAffine": case(M),
    "Dropout": case(M, rate=0.5),
    "Bernoulli": case(M),
    "Categorical": case(M),
    "Embedding": case((2, 3), num_embeddings=4, dimension=5),
    "ScaledDotProduct": case((2, 3, 4), (2, 5, 4), (2, 5, 6)),
    "MultiHeadAttention": case((2, 3, 4), heads=2, kv_heads=1),
    "RotaryEmbedding": case((2, 3, 4)),
    "PositionalEncoding": case((2, 3, 4)),
    "Layer": case(M, activation=models.Relu(), dimension=5),
    "MLP": case(M, activations=[models.Tanh(), None], dimensions=[5, 2]),
    "Sequential": case(M, blocks=[models.Relu(), models.Sigmoid()]),
    "Residual": case(M, block=models.Tanh()),
    "QuantileLoss": case(M, M, q=0.3),
    "CrossEntropy": case(M, (3,)),
    "QuadraticForm": case((3, 4), (4, 4)),
    "Accuracy": case(M, (3,), dtypes=LABELS),
    "Precision": case(M, (3,), dtypes=LABELS),
    "Recall": case(M, (3,), dtypes=LABELS),
    "F1": case(M, (3,), dtypes=LABELS),
    "AUC": case((6,), (6,), dtypes=LABELS, average="binary"),
}
# Draws of normal numbers are within rounding of the inverse error function; torch divides by six in
# single precision in the gradient of its hardsigmoid.
LOOSE = {"Randn": 1e-11, "HardSigmoid": 1e-7}


def variants(name: str) -> list[Case]:
    """The block's cases: its own, or each shape that an elementwise block takes."""
    info = _core.block_info(name)
    terminals = [i for i in info.inputs if not i.endswith("=")]
    if name in CASES:
        settings, shapes, dtypes = CASES[name]
        if terminals == ["inputs"]:
            return [Case(settings, {"inputs": shapes}, dtypes, len(shapes))]
        return [Case(settings, dict(zip(terminals, shapes, strict=False)), dtypes)]
    if name in ("Concat", "Stack"):
        return [Case({}, {"inputs": (M, M)})]
    shapes = ALL_SHAPES if info.group in ("Elementwise", "Binary") else (M,)
    cases = [Case({}, dict.fromkeys(terminals, shape)) for shape in shapes]
    if info.group == "Binary":
        mixed = dict(zip(terminals, [(3, 1), (4,), (2, 3, 4)], strict=False))
        cases.append(Case({}, mixed))
    return cases


def build(name: str, case: Case) -> tuple[Any, dict[str, Any]]:
    """The block in a model with its terminals as inputs, and their shapes."""
    block = getattr(models, name)(**case.settings)
    shapes = dict(case.shapes)
    if "inputs" in shapes:
        given = {f"input_{i}": shape for i, shape in enumerate(shapes.pop("inputs"))}
        block = block(inputs=list(given))
        shapes = given
    model = models.Model()
    model |= block
    if case.dtypes:
        given = {n: case.dtypes.get(n, case.dtypes.get("*")) for n in shapes}
        model.set_types({n: dtype for n, dtype in given.items() if dtype})
    return model, shapes


def array(rng: np.random.Generator, name: str, argument: Any, shape: tuple[int, ...]) -> Any:
    """Numbers that every function is smooth at, and labels where labels are read."""
    dtype = argument.dtype.name
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        return np.array(rng.integers(0, 2 if name == "AUC" else 3, shape), dtype)
    return rng.uniform(0.1, 0.9, shape).astype(dtype)


def results(name: str, case: Case, backend: Any) -> Any:
    """Outputs, gradients of a weighted sum of them, and the inputs, by name as NumPy's."""
    model, shapes = build(name, case)
    options = {"shapes": shapes, "jit": backend.kind == "c"}
    probe = ml.compile(model, backend, **options)
    floats = [n for n in probe.inputs if probe._arguments.dtypes[n].startswith("float")]
    compiled = ml.compile(model, backend, trainable_keys=floats, **options)
    rng = np.random.default_rng(7)
    arguments = {a.name: a for a in compiled._program.arguments}
    values = {}
    for n in sorted(arguments):
        if arguments[n].role in ("param", "data"):
            dims = tuple(int(d) for d in arguments[n].dims)
            values[n] = array(rng, name, arguments[n], dims)
    take = lambda names: {n: backend.array(values[n]) for n in names}  # noqa: E731
    keys = {n: np.array([1, 2], np.uint32) for n in arguments if arguments[n].role == "key"}
    params, inputs = take(compiled.params), take(set(compiled.inputs) - set(keys)) | keys
    outputs = compiled.evaluate(params, inputs)
    plain = {n: np.asarray(backend.to_numpy(v)) for n, v in outputs.items()}
    smooth = [n for n, v in plain.items() if v.dtype == np.float64]
    gradients = {}
    if params and smooth:
        weights = {n: backend.array(rng.standard_normal(plain[n].shape)) for n in smooth}
        gradients = compiled.evaluate_gradients(params, inputs, weights)
        gradients = {n: np.asarray(backend.to_numpy(g)) for n, g in gradients.items()}
        weights = {n: np.asarray(backend.to_numpy(w)) for n, w in weights.items()}
        return plain, gradients, values, weights
    return plain, gradients, values, {}


def close(got: Any, expected: Any, what: str, tolerance: float) -> None:
    assert set(got) == set(expected), what
    # A gradient that cancels is as exact as those that it is computed with.
    sizes = (np.abs(v).max() for v in expected.values() if v.size and v.dtype.kind == "f")
    scale = max(sizes, default=0)
    for name, want in expected.items():
        assert got[name].shape == want.shape, f"{what} {name}"
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(got[name], want, f"{what} {name}")
        elif want.size:
            error = np.abs(got[name] - want).max()
            bound = tolerance if want.dtype == np.float64 else 1e-5
            assert error <= bound * scale, f"{what} {name}: {error}"


@pytest.mark.parametrize("name", _core.block_names())
def test_backends_agree(name):
    for case in variants(name):
        tolerance = LOOSE.get(name, TOLERANCE)
        found = [results(name, case, make(dtype=ml.float64)) for make in BACKENDS]
        for make, (outputs, gradients, _, _) in zip(BACKENDS[1:], found[1:], strict=True):
            close(outputs, found[0][0], f"{make.__name__}, {case}: output", tolerance)
            close(gradients, found[0][1], f"{make.__name__}, {case}: gradient of", tolerance)
        if name in OWN:
            compare_with_own(name, case, found[0])


def compare_with_own(name: str, case: Case, found: Any) -> None:
    """Another library's function on the same numbers, torch's through its own autograd."""
    outputs, gradients, values, weights = found
    _, shapes = build(name, case)
    learned = (n for i in _core.block_info(name).inputs for n in values if n.endswith(f".{i}"))
    # What is learned further inside is in order of its names.
    inside = (n for n in values if n.count(".") > 1)
    order = list(dict.fromkeys([*shapes, *learned, *inside]))
    leaves = {n: torch.tensor(values[n], requires_grad=n in gradients) for n in order}
    own = OWN[name](*leaves.values())
    own = dict(zip(outputs, own if isinstance(own, tuple) else (own,), strict=True))
    plain = {n: y.detach().numpy() for n, y in own.items()}
    close(outputs, plain, f"another's own, {case}: output", TOLERANCE)
    smooth = [n for n in weights if own[n].requires_grad]
    if smooth:
        seeds = [torch.tensor(weights[n]) for n in smooth]
        torch.autograd.backward([own[n] for n in smooth], seeds)
        expected = {n: leaves[n].grad.numpy() for n in gradients}
        close(
            gradients, expected, f"another's own, {case}: gradient of", LOOSE.get(name, TOLERANCE)
        )


def test_every_block_has_another_to_be_compared_with():
    assert not set(OWN) & ALONE
    assert set(OWN) | ALONE == set(_core.block_names())


def test_settings_are_those_of_blocks():
    for name, (settings, _, _) in CASES.items():
        assert set(settings) <= set(inspect.signature(getattr(models, name)).parameters), name
    assert set(CASES) <= set(_core.block_names())
