"""Reads in place: rows instead of one-hot products, slices of slices, reductions of broadcasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mithril as ml
from mithril.models import (
    Arange,
    BroadcastTo,
    Buffer,
    Concat,
    Embedding,
    IOKey,
    Linear,
    Model,
    OneHot,
    Split,
)

CLASSES, WIDTH = 500, 64


def with_block() -> Model:
    model = Model()
    model |= OneHot(classes=CLASSES)(input=IOKey("i", dtype="int32"), output="chosen")
    return model


def with_comparison() -> Model:
    model = Model()
    model |= Buffer()(input=IOKey("i", dtype="int32"), output="own")
    model |= Arange(CLASSES, dtype="int32")(output="classes")
    same = model.own[:, None] == model.classes
    model |= Buffer()(input=same.cast("float32"), output="chosen")
    return model


@pytest.mark.parametrize("write", [with_block, with_comparison])
def test_one_hot_matrices_read_rows(backend: Any, write: Any) -> None:
    model = write()
    model |= Linear(WIDTH, use_bias=False, name="table")(input="chosen", output="y")
    compiled = ml.compile(model, backend, shapes={"i": ["n"]}, checks=False)
    assert "one-hot-select" in [fired.rule for fired in compiled.explain().rules]

    generator = np.random.default_rng(3)
    table = generator.normal(size=(CLASSES, WIDTH)).astype(np.float32)
    # Valid indices, and some that are out of range and select nothing.
    places = np.array([0, 3, CLASSES - 1, 3, CLASSES, -1, CLASSES + 70], np.int32)
    chosen = (places[:, None] == np.arange(CLASSES)).astype(np.float32)
    cotangent = generator.normal(size=(len(places), WIDTH)).astype(np.float32)
    outputs, gradients = compiled.evaluate(
        {"table.w": backend.array(table)},
        {"i": backend.array(places)},
        output_gradients={"y": backend.array(cotangent)},
    )
    np.testing.assert_array_equal(backend.to_numpy(outputs["y"]), chosen @ table)
    expected = chosen.T @ cotangent
    np.testing.assert_allclose(backend.to_numpy(gradients["table.w"]), expected, rtol=1e-6)


def source(model: Model, **shapes: Any) -> str:
    compiled = ml.compile(model, ml.NumpyBackend(), shapes=shapes, inference=True)
    return compiled.code[compiled.code.index("def forward") :]


def test_positions_that_count_from_0_are_a_slice() -> None:
    model = Model()
    model |= Arange(7)(output="places")
    model |= Embedding(16, 4, name="table")(input="places", output="y")
    assert "table_w[:7]" in source(model)


def test_concatenated_splits_are_the_identity() -> None:
    model = Model()
    model |= Split(2, axis=-1)(input="x", output="parts")
    model |= Concat(axis=-1)(inputs=[model.parts[0], model.parts[1]], output="y")
    code = source(model, x=["n", 8])
    assert "concatenate" not in code and "[:" not in code


def test_slices_of_concatenations_read_the_operand() -> None:
    model = Model()
    model |= Concat(axis=0)(inputs=["a", "b"], output="both")
    model |= Buffer()(input=model.both[3:5], output="y")
    code = source(model, a=[3, "n"], b=[4, "n"])
    assert "b[:2]" in code and "concatenate" not in code


def test_reductions_of_broadcasts_read_the_operand_once() -> None:
    model = Model()
    model |= BroadcastTo(shape=[100, 6])(input="x", output="rows")
    model |= Buffer()(input=model.rows.max(axis=0), output="greatest")
    model |= Buffer()(input=model.rows.mean(axis=0), output="mean")
    code = source(model, x=[6])
    assert "max(" not in code and "mean(" not in code
    numbers = np.arange(6, dtype=np.float32)
    outputs = ml.compile(model, ml.NumpyBackend(), shapes={"x": [6]}).evaluate({}, {"x": numbers})
    np.testing.assert_array_equal(outputs["greatest"], numbers)
    np.testing.assert_array_equal(outputs["mean"], numbers)
