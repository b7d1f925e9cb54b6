"""Blocks with many inputs whose ranks are unknown: they compile without `shapes=`."""

import numpy as np
import pytest

import mithril as ml
from mithril.models import CTC, LSTM, LSTMCell, Model, Scan, Transformer


def drawn(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


LENGTHS = np.array([4, 2])


def ctc():
    model = Model()
    names = {"input_lengths": "lengths", "target_lengths": "sizes"}
    model |= CTC()(input="x", target="labels", **names, output="y")
    labels = np.array([[1, 2], [2, 1]])
    return model, {"x": drawn(2, 4, 5), "labels": labels, "lengths": LENGTHS, "sizes": [2, 1]}


def layer():
    model = Model()
    model |= LSTM(3)(input="x", lengths="lengths", hidden="h", cell="c", output="y")
    return model, {
        "x": drawn(2, 4, 5),
        "lengths": LENGTHS,
        "h": drawn(1, 2, 3),
        "c": drawn(1, 2, 3),
    }


def scan():
    carry = {"hidden": "output", "cell": "next_cell"}
    block = Scan(LSTMCell(4), carry=carry, over=["input"], axis=1, use_lengths=True)
    model = Model()
    model |= block(input="x", lengths="lengths", hidden="h", cell="c", output="y")
    return model, {"x": drawn(2, 4, 5), "lengths": LENGTHS, "h": drawn(2, 4), "c": drawn(2, 4)}


def transformer():
    model = Model()
    model |= Transformer(8, 2, 1, 1, 16, dropout=0.0)(input="x", target="z", output="y")
    return model, {"x": drawn(2, 3, 8), "z": drawn(2, 4, 8)}


@pytest.mark.parametrize("make", [ctc, layer, scan, transformer])
def test_ranks_are_found_at_the_first_call(make, backend):
    model, inputs = make()
    inputs = {name: np.asarray(value) for name, value in inputs.items()}
    shapes = {name: list(value.shape) for name, value in inputs.items()}
    answers = []
    for options, target in (({"shapes": shapes}, ml.NumpyBackend()), ({}, backend)):
        compiled = ml.compile(model, target, **options)
        first = ml.compile(model, ml.NumpyBackend(), shapes=shapes).randomize_params(seed=0)
        params = {name: target.array(value) for name, value in first.items()}
        seeds = {"y": target.ones_like}
        outputs, gradients = compiled.evaluate(params, inputs, output_gradients=seeds)
        answers.append({n: target.to_numpy(v) for n, v in {"y": outputs["y"], **gradients}.items()})
    want, found = answers
    for name, value in want.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=2e-5, err_msg=name)
