"""Docs of blocks: formulas agree with what blocks compute, and `help` is short."""

import pydoc
from typing import Any

import numpy as np
import pytest
import scipy.special
from block_cases import array, build, variants

import mithril as ml
from mithril import _core, models

# Blocks without a short NumPy formula. Their docs and examples describe them instead.
WITHOUT = {
    "AlibiBias",
    "RelativePositionBias",
    "GaussianProcessCore",
    "GaussianProcessLoss",
    "GaussianProcessRegression",
    "CTC",
    "EncoderDecoder",
    "ManyToOne",
    "OneToMany",
    "GRU",
    "GRUCell",
    "LSTM",
    "LSTMCell",
    "Map",
    "Vmap",
    "RNN",
    "RNNCell",
    "Scan",
    "While",
    "Cond",
    "AUC",
    "Bernoulli",
    "Categorical",
    "Dropout",
    "F1",
    "FFT",
    "InverseFFT",
    "RealFFT",
    "Layer",
    "MLP",
    "MoE",
    "GroupedMatrixMultiply",
    "MultiHeadAttention",
    "PositionalEncoding",
    "Precision",
    "RandInt",
    "RandUniform",
    "Randn",
    "Recall",
    "Residual",
    "RotaryEmbedding",
    "Scatter",
    "Sequential",
    "SpectralNorm",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "WeightNorm",
    "StableReciprocal",
    "TopK",
    "Unique",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "LpPool",
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "ReflectionPad",
    "ReplicationPad",
    "CircularPad",
    "PixelShuffle",
    "PixelUnshuffle",
    "Unfold",
    "Fold",
    "Upsample",
    "GridSample",
    "AffineGrid",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm",
    "LocalResponseNorm",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "AlphaDropout",
    "FeatureAlphaDropout",
    "RRelu",
    "GumbelSoftmax",
    "ChannelShuffle",
    "MultiMargin",
    "AdaptiveLogSoftmax",
    "LinearCrossEntropy",
    "TripletMarginWithDistance",
    "MultiLabelMargin",
    "Median",
    "EncoderDistanceMatrix",
    "KernelizedSVM",
    "LinearSVM",
    "LogisticRegression",
    "MDS",
    "PolynomialFeatures",
    "PolynomialRegression",
    "ScatterReduce",
    "TSNE",
    "TSNECore",
    "SegmentMax",
    "SegmentMean",
    "SegmentSum",
}


def test_every_other_block_has_a_formula():
    assert {n for n in _core.block_names() if not _core.block_info(n).formula} == WITHOUT


@pytest.mark.parametrize("name", sorted(set(_core.block_names()) - WITHOUT))
def test_documented_formulas_match_blocks(name):
    """Evaluates the formula by NumPy and SciPy in float64, on the block's arrays and settings."""
    info = _core.block_info(name)
    for case in variants(name):
        model, shapes = build(name, case)
        compiled = ml.compile(model, ml.NumpyBackend(dtype=ml.float64), shapes=shapes)
        rng = np.random.default_rng(11)
        values: dict[str, Any] = {}
        for argument in compiled._program.arguments:
            if argument.role in ("param", "data"):
                dims = tuple(int(d) for d in argument.dims)
                values[argument.name] = array(rng, name, argument, dims)
        params = {n: values[n] for n in compiled.params}
        outputs = compiled.evaluate(params, {n: values[n] for n in compiled.inputs})
        terms = {**vars(np), **vars(scipy.special)}
        terms |= {p: default(text) for p, _, text in info.parameters if text}
        terms |= {p: settled(value) for p, value in case.settings.items()}
        terms |= {n.rsplit(".", 1)[-1]: value for n, value in values.items()}
        terms["inputs"] = [value for n, value in values.items() if n.startswith("input_")]
        expected = eval(info.formula, terms)
        expected = expected if isinstance(expected, list) else [expected]
        for output, other in zip(outputs.values(), expected, strict=True):
            np.testing.assert_allclose(output, other, rtol=1e-9, atol=1e-12, err_msg=f"{case}")


def default(text: str) -> Any:
    return settled(eval(text))


def settled(value: Any) -> Any:
    """A setting's value for NumPy."""
    return value.name if isinstance(value, ml.DType) else value


def test_help_of_the_library_is_an_index():
    text = pydoc.plain(pydoc.render_doc(models))
    assert len(text.splitlines()) < 120
    for name in _core.block_names():
        assert f" {name}" in text, name


def test_help_of_a_block_is_its_page():
    text = pydoc.plain(pydoc.render_doc(ml.Linear))
    assert len(text.splitlines()) < 40
    for part in (
        "Linear(dimension: 'int', use_bias: 'bool' = True",
        "formula: `input @ w + b`",
        "argument `dimension`: the width of the output; an integer of at least 1",
        "param `w`: (last dim of `input`, dimension)",
        "[[1.5 2.  8. ]]",
    ):
        assert part in text, part
    assert "to_json" not in text


def test_star_imports_and_completion_list_every_block():
    names: dict[str, Any] = {}
    exec("from mithril.models import *", names)
    assert set(_core.block_names()) <= set(names)
    assert set(_core.block_names()) <= set(dir(models))
    assert "connect" in dir(ml.Linear(2))


def test_dir_of_a_subclass_lists_its_methods():
    class Wide(ml.Linear):
        def double(self) -> None:
            """Twice."""

    assert "double" in dir(Wide)
    assert "Twice." in pydoc.plain(pydoc.render_doc(Wide))
