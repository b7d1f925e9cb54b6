"""A backend whose module has the functions of the Python array API and no others."""

import sys
import types

import numpy as np
import pytest

import mithril as ml
from mithril.models import Asin, Concat, Cumsum, Linear, Model, MultiHeadAttention, Transpose

NAMES = """
abs acos add all any arange argmax argmin asarray asin astype atan atan2 bool broadcast_to ceil
concat cos cosh cumulative_sum exp expand_dims expm1 eye flip float32 float64 floor full inf int32
int64 isinf isnan linalg log log1p matmul matrix_transpose max maximum mean min minimum nan ones
permute_dims prod repeat reshape round sign sin sinh sqrt square squeeze stack sum take
take_along_axis tan tanh tensordot tile tril triu uint32 where zeros
"""


@pytest.fixture(scope="module")
def standard():
    module = types.ModuleType("standard_arrays")
    for name in NAMES.split():
        setattr(module, name, getattr(np, name))
    sys.modules[module.__name__] = module

    class StandardBackend(ml.Backend):
        kind = "standard_arrays"
        module = "standard_arrays"

        def from_numpy(self, array):
            return array

    return StandardBackend


def joined():
    model = Model()
    model |= Linear(4, name="a")(input="x", output="h")
    model |= Transpose([1, 0])(input="h", output="columns")
    model |= Transpose([1, 0])(input="columns", output="rows")
    model |= Concat(axis=1)(inputs=["rows", "h"], output="both")
    model |= Cumsum(axis=0)(input="both", output="sums")
    model |= ml.Tanh()(input="sums", output="bounded")
    model |= Asin()(input="bounded", output="y")
    return model, {"x": [3, 5]}


def attention():
    model = Model()
    model |= MultiHeadAttention(2, is_causal=True)(input="x", output="y")
    return model, {"x": [2, 5, 4]}


@pytest.mark.parametrize("make", [joined, attention])
def test_blocks_run_on_the_functions_of_the_standard(make, standard):
    model, shapes = make()
    x = np.random.default_rng(0).standard_normal(shapes["x"]).astype(np.float32)
    answers = []
    for backend in (standard(), ml.NumpyBackend()):
        compiled = ml.compile(model, backend, shapes=shapes)
        params = compiled.randomize_params(seed=0)
        answers.append(compiled.evaluate(params, {"x": x}, output_gradients={"y": np.ones_like}))
    for found, want in zip(*answers):
        for name, value in want.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_an_operation_without_a_function_says_how_to_spell_it(standard):
    with pytest.raises(ml.BackendError, match="Backend does not support operation sort") as error:
        ml.compile(ml.Sort(), standard(), shapes={"input": [3]})
    assert '`spellings = {"sort": "@…"}`' in str(error.value)
