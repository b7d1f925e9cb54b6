"""The cases of every block in the table: settings, inputs, references, and how to compare."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import torch
from own_functions import OWN

import mithril as ml
from mithril import _core, models

ALL_SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (), (0, 4), (2, 1, 5))


@dataclass
class Case:
    """The settings and inputs of a block, where they differ from the defaults."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # Dtypes of terminals (`*` for all) that differ from what the block declares.
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    # The number of values of a list terminal.
    count: int = 2


def case(*shapes: tuple[int, ...], dtypes: Mapping[str, Any] | None = None, **settings: Any) -> Any:
    """A case from its shapes, in the order of the terminals."""
    return settings, shapes, dtypes or {}


# Ranges in which the gates of recurrent blocks do not saturate: there, gradients cancel.
CELLS = ("RNNCell", "LSTMCell", "GRUCell", "RNN", "LSTM", "GRU")
CELLS += ("ManyToOne", "OneToMany", "EncoderDecoder")
RANGES = dict.fromkeys(CELLS, (-0.4, 0.4))
# The noise of labels keeps the system of equations far from singular.
RANGES["GaussianProcessRegression"] = (0.4, 0.9)

# Blocks of symmetric positive definite matrices.
MATRICES = {"Cholesky", "TriangularSolve", "Solve", "Inverse", "Det", "LogDet", "MatrixPower"}
MATRICES |= {"Eigh", "Eigvalsh"}
COVARIANCES = {"GaussianProcessCore": ("kernel",), "GaussianProcessLoss": ("input",)}
# Blocks of which all results are compared; of others, the standard output.
SEVERAL = {"QR", "Eigh", "SVD", "GaussianProcessCore", "GaussianProcessRegression"}
# Results whose signs differ between backends: `test_orthogonal_factors.py` compares them.
SIGNED = {"Eigh", "SVD"}

INT, BOOL, LABELS = {"*": ml.int64}, {"*": ml.bool}, {"target": ml.int64}
M, V = (3, 4), (4,)
SMALL = {"dimension": 4, "heads": 2, "feedforward": 5, "dropout": 0.0}
# The cases of blocks that the default (no settings, (3, 4) for every terminal) does not suit.
CASES: dict[str, Any] = {
    "LogicalNot": case(M, dtypes=BOOL),
    "BitwiseNot": case(M, dtypes=INT),
    "Cast": case(M, dtype=ml.float32),
    "Clamp": case(M, min=0.25, max=0.625),
    "Shard": case(M, tensor_split=[1]),
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
    "TakeAlongAxis": case(M, (2, 4)),
    "ScatterReduce": case(M, (2, 4), (2, 4)),
    "SegmentSum": case(M, (3,), num_segments=4),
    "SegmentMean": case(M, (3,), num_segments=4),
    "SegmentMax": case(M, (3,), num_segments=4),
    "Quantile": case(M, q=0.3, axis=-1),
    "Median": case(M, axis=0),
    "SearchSorted": case(M, (1,)),
    "Bucketize": case(M, (1,)),
    "Histogram": case(M, bins=4, min=0.0, max=1.0),
    "EmbeddingBag": case((2, 3), num_embeddings=4, dimension=5),
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
    "Conv1d": case((2, 4, 6), filters=6, kernel_size=3, padding=1, groups=2),
    "Conv2d": case((2, 3, 6, 5), filters=4, kernel_size=3, padding=1),
    "Conv3d": case((2, 7, 5, 2, 5), filters=4, kernel_size=3, padding=1),
    "ConvTranspose1d": case((2, 4, 6), filters=6, kernel_size=3, stride=2, groups=2),
    "ConvTranspose2d": case((2, 7, 6, 5), filters=4, kernel_size=3, stride=2, padding=1),
    "ConvTranspose3d": case((2, 7, 5, 2, 5), filters=4, kernel_size=2),
    "MaxPool1d": case((2, 3, 6), kernel_size=2),
    "MaxPool2d": case((2, 3, 6, 5), kernel_size=(2, 3)),
    "MaxPool3d": case((2, 7, 5, 2, 5), kernel_size=3, stride=1, padding=1),
    "AvgPool1d": case((2, 3, 6), kernel_size=2),
    "AvgPool2d": case(
        (2, 7, 6, 5), kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False
    ),
    "AvgPool3d": case((2, 7, 5, 2, 5), kernel_size=3, stride=1, padding=1),
    "LpPool": case((2, 7, 6, 5), norm=3.0, kernel_size=(2, 1)),
    "GlobalAvgPool": case((2, 3, 6, 5)),
    "GlobalMaxPool": case((2, 3, 6, 5)),
    "AdaptiveAvgPool": case((2, 7, 6, 5), output_size=(4, 2)),
    "AdaptiveMaxPool": case((2, 7, 6, 5), output_size=(4, 2)),
    "MaxUnpool1d": case((2, 7, 6), (2, 7, 6), kernel_size=2),
    "MaxUnpool2d": case((2, 7, 6, 5), (2, 7, 6, 5), kernel_size=2),
    "MaxUnpool3d": case((2, 7, 5, 2, 5), (2, 7, 5, 2, 5), kernel_size=2),
    "FractionalMaxPool2d": case((2, 7, 6, 5), (2, 7, 2), kernel_size=2, output_size=3, draw=False),
    "FractionalMaxPool3d": case(
        (2, 7, 5, 5, 6), (2, 7, 3), kernel_size=2, output_size=2, draw=False
    ),
    "ReflectionPad": case((2, 7, 6, 5), padding=((1, 2), (0, 3))),
    "ReplicationPad": case((2, 7, 6, 5), padding=((1, 2), (0, 3))),
    "CircularPad": case((2, 7, 6, 5), padding=((1, 2), (0, 3))),
    "PixelShuffle": case((2, 4, 6, 5), factor=2),
    "PixelUnshuffle": case((2, 3, 4, 4), factor=2),
    "Unfold": case((2, 7, 6, 5), kernel_size=(2, 3), stride=2, padding=1),
    "Fold": case((2, 12, 12), output_size=(5, 4), kernel_size=2),
    "Upsample": case((2, 7, 6, 5), scale=1.5, mode="bilinear"),
    "GridSample": case((7, 4, 5, 8), (7, 5, 9, 2)),
    "AffineGrid": case((5, 2, 3), size=(4, 7)),
    "BatchNorm1d": case(M),
    "BatchNorm2d": case((2, 7, 6, 5)),
    "BatchNorm3d": case((2, 7, 5, 2, 5)),
    "GroupNorm": case((2, 4, 6), groups=2),
    "InstanceNorm": case((2, 3, 6), use_scale=True, use_bias=True),
    "LocalResponseNorm": case((2, 3, 6), size=3, alpha=2.0),
    "Dropout1d": case((2, 3, 6), rate=0.5),
    "Dropout2d": case((2, 3, 6, 5), rate=0.5),
    "Dropout3d": case((2, 3, 2, 3, 5), rate=0.5),
    "FeatureAlphaDropout": case((2, 3, 5)),
    "Threshold": case(M, threshold=0.5, value=0.25),
    "PRelu": case(M),
    "RRelu": case(M),
    "GumbelSoftmax": case(M),
    "AlphaDropout": case(M),
    "Bilinear": case(M, (3, 5), dimension=2),
    "ChannelShuffle": case((2, 4, 3), groups=2),
    "Unflatten": case(M, axis=1, sizes=(2, -1)),
    "MultiMargin": case(M, (3,), dtypes=LABELS),
    "MultiLabelMargin": case(M, M, dtypes=LABELS),
    "LinearCrossEntropy": case(M, (3,), dtypes=LABELS, classes=3),
    "AdaptiveLogSoftmax": case((3, 16), (3,), dtypes=LABELS, classes=6, cutoffs=[1, 2]),
    "ElementWiseAffine": case(M),
    "Dropout": case(M, rate=0.5),
    "Bernoulli": case(M),
    "Categorical": case(M),
    "Embedding": case((2, 3), num_embeddings=4, dimension=5),
    "ScaledDotProduct": case((2, 3, 4), (2, 5, 4), (2, 5, 6)),
    "MultiHeadAttention": case((2, 3, 4), heads=2, kv_heads=1),
    "AlibiBias": case((2, 3, 4), heads=3),
    "RelativePositionBias": case((2, 3, 4), heads=3, buckets=8, max_distance=20),
    "RotaryEmbedding": case((2, 3, 4)),
    "PositionalEncoding": case((2, 3, 4)),
    "Layer": case(M, activation=models.Relu(), dimension=5),
    "MLP": case(M, activations=[models.Tanh(), None], dimensions=[5, 2]),
    "Sequential": case(M, blocks=[models.Relu(), models.Sigmoid()]),
    "Residual": case(M, block=models.Tanh()),
    "GroupedMatrixMultiply": case((6, 4), (3, 4, 5), (3,)),
    "MoE": case((2, 3, 4), experts=3, k=2),
    "TransformerEncoderLayer": case((2, 3, 4), **SMALL),
    "TransformerDecoderLayer": case((2, 3, 4), (2, 5, 4), **SMALL),
    "TransformerEncoder": case((2, 3, 4), layer=models.TransformerEncoderLayer(**SMALL), layers=1),
    "TransformerDecoder": case(
        (2, 3, 4), (2, 5, 4), layer=models.TransformerDecoderLayer(**SMALL), layers=1
    ),
    "Transformer": case((2, 3, 4), (2, 5, 4), **SMALL, encoder_layers=1, decoder_layers=1),
    "SpectralNorm": case(M, block=models.Linear(5), n_power_iterations=30),
    "WeightNorm": case(M, block=models.Linear(5)),
    "RNNCell": case(M, dimension=5),
    "LSTMCell": case(M, dimension=5),
    "GRUCell": case(M, dimension=5),
    "RNN": case((2, 3, 4), dimension=5),
    "LSTM": case((2, 3, 4), dimension=5),
    "GRU": case((2, 3, 4), dimension=5),
    "ManyToOne": case((2, 3, 4), cell=models.RNNCell(5)),
    "OneToMany": case((2, 4), cell=models.RNNCell(4), steps=3),
    "EncoderDecoder": case(
        (2, 3, 4), (2, 4), encoder=models.RNNCell(4), decoder=models.RNNCell(4), steps=3
    ),
    "Scan": case((3, 4), (2, 3, 4), body=models.Multiply(), carry={"left": "output"}),
    "Map": case((2, 3, 4), (2, 4), body=models.Multiply()),
    "Vmap": case((3, 2, 4), (4, 2), body=models.Multiply(), axis={"left": 1, "right": 1}),
    "While": case(
        (),
        condition=models.Less()(left="x", right=3.0, output="running"),
        body=models.Multiply()(left="x", right=1.5, output="next_x"),
        carry={"x": "next_x"},
        max_steps=12,
    ),
    "Cond": case((), M, then=models.Square(), otherwise=models.Negate()),
    "CTC": case((2, 6, 4), (2, 2), blank=3, zero_infinity=True),
    "CartesianDifference": case((3, 4), (2, 4)),
    "DistanceMatrix": case((3, 4), (2, 4)),
    "EncoderDistanceMatrix": case((5, 4)),
    "TransposedDiagonal": case((4, 4)),
    "EyeComplement": case(n=3),
    "RBFKernel": case((3, 4), (2, 4)),
    "PolynomialKernel": case((3, 4), (2, 4)),
    "KernelizedSVM": case((3, 4), (2, 4), kernel=models.PolynomialKernel(2)),
    "GaussianProcessCore": case((3, 3), (2, 3), (2, 2), (3,)),
    "GaussianProcessRegression": case((2, 4), (3, 4), (3,), kernel=models.RBFKernel()),
    "GaussianProcessLoss": case((3, 3), (3,)),
    "PolynomialFeatures": case(M, degree=2),
    "PolynomialRegression": case(M, degree=2),
    "MDSCore": case((3, 3), (3, 3)),
    "MDS": case((3, 3), prediction_dim=2),
    "TSNECore": case((3, 3), (3, 3), perplexity=1.5),
    "TSNE": case((3, 3), prediction_dim=2, perplexity=1.5),
    "Cholesky": case((2, 3, 3)),
    "TriangularSolve": case((4, 4), (2, 4, 3)),
    "Solve": case((2, 3, 3), (2, 3, 4)),
    "Inverse": case((2, 3, 3)),
    "Det": case((2, 3, 3)),
    "LogDet": case((2, 3, 3)),
    "MatrixPower": case((2, 3, 3), n=-3),
    "QR": case((2, 4, 3)),
    "Eigh": case((2, 3, 3)),
    "Eigvalsh": case((2, 3, 3)),
    "SVD": case((2, 4, 3)),
    "QuantileLoss": case(M, M, q=0.3),
    "CrossEntropy": case(M, (3,)),
    "NegativeLogLikelihood": case(M, (3,)),
    "QuadraticForm": case((3, 4), (4, 4)),
    "Accuracy": case(M, (3,), dtypes=LABELS),
    "Precision": case(M, (3,), dtypes=LABELS),
    "Recall": case(M, (3,), dtypes=LABELS),
    "F1": case(M, (3,), dtypes=LABELS),
    "AUC": case((6,), (6,), dtypes=LABELS, average="binary"),
}


def variants(name: str) -> list[Case]:
    """The cases of a block: those in the table, or each shape that an elementwise block takes."""
    info = _core.block_info(name)
    terminals = [i for i in info.inputs if not i.endswith("=")]
    if name in CASES:
        settings, shapes, dtypes = CASES[name]
        if not info.inputs:
            terminals = getattr(models, name)(**settings).inputs
        else:
            present = list(getattr(models, name)(**settings).inputs)
            terminals = [t for t in terminals if t in present]
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
    """A model of the block with the block's terminals as inputs, and their shapes."""
    block = getattr(models, name)(**case.settings)
    shapes = dict(case.shapes)
    if "inputs" in shapes:
        given = {f"input_{i}": shape for i, shape in enumerate(shapes.pop("inputs"))}
        block = block(inputs=list(given))
        shapes = given
    if name in SEVERAL:
        block = block(**{n: n for n in block.outputs})
    model = models.Model()
    model |= block
    if case.dtypes:
        given = {n: case.dtypes.get(n, case.dtypes.get("*")) for n in shapes}
        model.set_types({n: dtype for n, dtype in given.items() if dtype})
    return model, shapes


def array(rng: np.random.Generator, name: str, argument: Any, shape: Any, most: int = 3) -> Any:
    """Random numbers at which every function is smooth; labels below `most` for integers."""
    dtype = argument.dtype.name
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        return np.array(rng.integers(0, 2 if name == "AUC" else most, shape), dtype)
    low, high = RANGES.get(name, (0.1, 0.9))
    numbers = rng.uniform(low, high, shape)
    if (name in MATRICES and argument.name != "b") or argument.name in COVARIANCES.get(name, ()):
        numbers = (numbers + np.swapaxes(numbers, -1, -2)) / max(4 * shape[-1], 1)
        # Distinct eigenvalues, if these are the result.
        own = np.arange(1, shape[-1] + 1) if name.startswith("Eig") else np.ones(shape[-1])
        numbers += np.diag(own)
    return numbers.astype(getattr(ml_dtypes, dtype, dtype))


def close(got: Any, expected: Any, what: str, tolerance: float, step: float = 0) -> None:
    """Compares within `tolerance` of the largest value of all, or within `step`, a subnormal
    number. A gradient that cancels is only as exact as the values it is computed from."""
    assert set(got) == set(expected), what
    finite = {n: np.isfinite(v) if v.dtype.kind == "f" else None for n, v in expected.items()}
    sizes = (
        np.abs(v[finite[n]]).max(initial=0) for n, v in expected.items() if v.dtype.kind == "f"
    )
    scale = max(sizes, default=0)
    for name, want in expected.items():
        assert got[name].shape == want.shape, f"{what} {name}"
        known = finite[name]
        if known is None:
            np.testing.assert_array_equal(got[name], want, f"{what} {name}")
        elif want.size:
            np.testing.assert_array_equal(got[name][~known], want[~known], f"{what} {name}")
            error = np.abs(got[name][known] - want[known]).max(initial=0)
            assert error <= max(tolerance * scale, step), f"{what} {name}: {error} of {scale}"


def by_another(name: str, shapes: Any, outputs: Any, values: Any, weights: Any) -> Any:
    """Outputs and gradients of another library's function; gradients are torch's autograd."""
    learned = (n for i in _core.block_info(name).inputs for n in values if n.endswith(f".{i}"))
    # Params of nested blocks come last, in the order of their names.
    # Those of a block around another one have the names of that one.
    inside = (n for n in values if n.count(".") > 1 or not _core.block_info(name).inputs)
    order = list(dict.fromkeys([*shapes, *learned, *inside]))
    floats = [n for n in order if values[n].dtype.kind == "f" and weights]
    leaves = {n: torch.tensor(values[n], requires_grad=n in floats) for n in order}
    own = OWN[name](*leaves.values())
    own = dict(zip(outputs, own if isinstance(own, tuple) else (own,), strict=True))
    smooth = [n for n in weights if own[n].requires_grad]
    if smooth:
        seeds = [torch.tensor(weights[n]) for n in smooth]
        torch.autograd.backward([own[n] for n in smooth], seeds)
    gradients = {n: leaves[n].grad for n in floats if leaves[n].grad is not None}
    plain = {n: y.detach().numpy() for n, y in own.items()}
    return plain, {n: g.numpy() for n, g in gradients.items()}
