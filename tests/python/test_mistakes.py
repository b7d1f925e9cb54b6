"""Fifty mistakes of a first day, each a short script, and the message for it: see
`records/mistakes.txt`, which `BLESS=1` rewrites."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

import mithril as ml

RECORDS = Path(__file__).parent / "records" / "mistakes.txt"

BEGIN = """
m = Model()
m |= Linear(4)(input="x", output="h")
m |= Relu()(input="h", output="r")
m |= Linear(2)(input="r", output="y")
"""
COMPILED = (
    BEGIN
    + """
c = ml.compile(m, NUMPY, shapes={"x": ["n", 3]})
p = c.randomize_params(seed=0)
"""
)
SEVERAL = """
m = Model()
m |= Linear(4, name="a")(input="x", output="h")
m |= Linear(4, name="b")(input="x", output="g")
"""

MISTAKES = {
    "both widths of a layer": "Linear(8, 3)",
    "PyTorch's names of widths": "Linear(in_features=8, out_features=3)",
    "a block of another library": "ml.Convolution2D",
    "an optimizer": "ml.Adam",
    "a block in lower case": "ml.models.sequential",
    "a word misspelt": "ml.Linaer",
    "a mode of PyTorch": "ml.no_grad()",
    "a setting misspelt": "LayerNorm(epsilion=1e-5)",
    "a setting of another kind": "Dropout('half')",
    "a setting out of range": "Dropout(1.5)",
    "the axes of a variance": "Variance(dim=1)",
    "an activation by its name": "MLP(['relu', 'relu'], [4, 2])",
    "an activation as a class": "MLP([Relu, Relu], [4, 2])",
    "blocks one by one": "Sequential(Linear(4), Relu())",
    "a model that computes at once": "Linear(3)(np.ones((2, 3)))",
    "two blocks of one name": "m = Model()\nm |= Linear(4, name='fc')(input='x', output='h')\n"
    "m |= Linear(2, name='fc')(input='h', output='y')",
    "two writers of one name": BEGIN + "m |= Sigmoid()(input='x', output='y')",
    "a keyword that is no terminal": "Linear(4)(inputs='x')",
    "a terminal that is not there": BEGIN + "m.hidden",
    "a class that is added": "m = Model()\nm += Relu",
    "a function that is added": "m = Model()\nm += np.tanh",
    "a model that is in use": BEGIN + "outer = Model()\nouter += m\nm += Relu()",
    "a connection of another model": BEGIN + "n = Model()\nn |= Relu()(input=m.h)",
    "an `if` on a connection": BEGIN + "0 if m.h > 0 else 1",
    "a loop over a connection": BEGIN + "[row for row in m.h]",
    "a function of NumPy on connections": BEGIN + "np.concatenate([m.h, m.h])",
    "a cycle": "m = Model()\nm |= Relu()(input='a', output='b')\n"
    "m |= Relu()(input='b', output='a')\nml.compile(m, NUMPY)",
    "an empty model": "ml.compile(Model(), NUMPY)",
    "a class for a backend": "ml.compile(Relu(), ml.NumpyBackend)",
    "a string for a backend": "ml.compile(Relu(), 'numpy')",
    "a keyword of compile": "ml.compile(Relu(), NUMPY, shape={'input': [2, 3]})",
    "a shape of a terminal that is not there": BEGIN
    + "ml.compile(m, NUMPY, shapes={'input': [2, 3]})",
    "widths that do not add": SEVERAL.replace('Linear(4, name="b")', 'Linear(5, name="b")')
    + "m |= Add()(left='h', right='g', output='y')\nml.compile(m, NUMPY, shapes={'x': [2, 3]})",
    "a product the wrong way round": SEVERAL
    + "m |= MatrixMultiply()(left='h', right='g', output='y')\n"
    "ml.compile(m, NUMPY, shapes={'x': [2, 3]})",
    "an axis that is not there": "ml.compile(Sum(axis=2), NUMPY, shapes={'input': [2, 3]})",
    "a reshape that does not fit": "ml.compile(Reshape((4, 2)), NUMPY, shapes={'input': [2, 3]})",
    "heads that do not divide": "ml.compile(MultiHeadAttention(3), NUMPY, "
    "shapes={'input': [2, 5, 4]})",
    "an input of another name": BEGIN.replace('input="r"', 'input="rr"')
    + "c = ml.compile(m, NUMPY)\nc.evaluate(c.randomize_params(), {'x': X})",
    "a call with another name": COMPILED + "c.evaluate(p, {'input': X})",
    "an array for a dict": COMPILED + "c.evaluate(p, X)",
    "params in the place of inputs": COMPILED + "c.evaluate({'x': X}, p)",
    "double precision": COMPILED + "c.evaluate(p, {'x': X.astype('float64')})",
    "integers for floats": COMPILED + "c.evaluate(p, {'x': X.astype('int64')})",
    "another width": COMPILED + "c.evaluate(p, {'x': X[:, :2]})",
    "an axis too few": COMPILED + "c.evaluate(p, {'x': X[0]})",
    "a list for an array": COMPILED + "c.evaluate(p, {'x': X.tolist()})",
    "params of another model": COMPILED + "c.evaluate({'fc.w': X}, {'x': X})",
    "params of PyTorch": COMPILED
    + "c.evaluate({'0.weight': np.ones((4, 3), 'float32'), '0.bias': np.ones(4, 'float32'),"
    " '2.weight': np.ones((2, 4), 'float32'), '2.bias': np.ones(2, 'float32')}, {'x': X})",
    "gradients of an output that is not there": COMPILED
    + "c.evaluate(p, {'x': X}, output_gradients={'output': X})",
    "a model without a loss": BEGIN + "ml.compile(ml.TrainModel(m), NUMPY)",
    "a loss of an output that is not there": BEGIN
    + "ml.TrainModel(m).add_loss(SquaredError(), input='output')",
    "a word for a step": BEGIN
    + "ml.TrainModel(m).add_loss(SquaredError(), input='y', reduce_steps='sum')",
    "a loss as a class": BEGIN + "ml.TrainModel(m).add_loss(SquaredError, input='y')",
    "a dtype misspelt": "ml.NumpyBackend(dtype='flaot32')",
    "an unnamed input in an expression": "IOKey() * 2",
    "a comparison against a backend that is not there": "ml.diff(Relu(), ['numpy'], "
    "shapes={'input': [2]}, against='float46')",
}


def said(script: str) -> str:
    names = {**vars(ml.models), "ml": ml, "np": np, "NUMPY": ml.NumpyBackend()}
    names |= {name: getattr(ml, name) for name in ml._core.block_names()}
    names["X"] = np.ones((2, 3), "float32")
    with pytest.raises((ml.MithrilError, AttributeError, TypeError)) as caught:
        exec(script, names)
    return f"{type(caught.value).__name__}: {caught.value}"


def record(name: str) -> str:
    script = MISTAKES[name].replace(COMPILED, "…\n").replace(BEGIN, "…\n").strip()
    return f"## {name}\n\n{script}\n\n{said(MISTAKES[name])}\n"


def records() -> dict[str, str]:
    found = re.split(r"(?m)^(?=## )", RECORDS.read_text(encoding="utf-8"))[1:]
    return {text.split("\n", 1)[0].removeprefix("## "): text.rstrip("\n") + "\n" for text in found}


def test_records_match_the_list_of_mistakes():
    if os.environ.get("BLESS") == "1":
        RECORDS.write_text("\n".join(map(record, MISTAKES)), encoding="utf-8")
    assert len(MISTAKES) >= 50
    assert list(records()) == list(MISTAKES)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name):
    assert record(name) == records()[name]
