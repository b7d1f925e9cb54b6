"""The package mithril-autograd: models on autograd, compared with other backends."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import mithril_autograd
import numpy as np
import pytest

import mithril as ml
from mithril.models import (
    Conv2d,
    CrossEntropy,
    Flatten,
    Linear,
    Model,
    Relu,
    TransformerEncoderLayer,
)

PACKAGE = Path(mithril_autograd.__file__).parent
ROOT = PACKAGE.parents[1]


def test_the_package_is_installed():
    assert metadata.version("mithril-autograd") == "0.1.0"
    # A process of its own, as other tests may have declared the class of the guide.
    code = (
        "import sys, mithril as ml\n"
        "assert 'autograd' in ml.backends.names() and 'autograd' not in sys.modules\n"
        "print(ml.AutogradBackend('float64'), 'autograd' in sys.modules)\n"
        "import mithril_autograd\n"
        "own = mithril_autograd.AutogradBackend\n"
        "print(ml.backends.find('autograd') is own is ml.AutogradBackend)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout == "AutogradBackend(dtype=float64) True\nTrue\n", ran.stderr


def test_the_guide_shows_the_whole_file():
    text = Path(mithril_autograd.__file__).read_text(encoding="utf-8")
    guide = (ROOT / "docs" / "guide" / "custom-backends.md").read_text(encoding="utf-8")
    assert f"```python\n{text}```\n" in guide
    assert len(text.splitlines()) <= 120


def classifier():
    model = Model()
    model += Conv2d(3, 4, padding=1)(input="x")
    model += Relu()
    model += Flatten()
    model += Linear(3)(output="y")
    return model, {"x": [2, 1, 5, 5]}


def encoder():
    model = Model()
    model += TransformerEncoderLayer(dimension=8, heads=2, feedforward=5, dropout=0.0)(
        input="x", output="y"
    )
    return model, {"x": [2, 3, 8]}


@pytest.mark.parametrize("made", [classifier, encoder])
@pytest.mark.parametrize("autodiff", [None, "mithril"])
def test_models_agree_with_numpy(made, autodiff):
    model, shapes = made()
    found = ml.diff(model, ["autograd"], shapes=shapes, gradients=True, autodiff=autodiff)
    assert found.agrees, str(found)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_training_lowers_the_loss(dtype):
    backend = ml.AutogradBackend(dtype)
    model = Model()
    model += Linear(8)(input="x")
    model += Relu()
    model += Linear(3)(output="y")
    train = ml.TrainModel(model)
    train.add_loss(CrossEntropy(), input="y", target="labels", reduce_steps=[ml.Mean()])
    shapes = {"x": [6, 4], "labels": [6]}
    compiled = ml.compile(train, backend, shapes=shapes)
    params = compiled.randomize_params(seed=0)
    inputs = {"x": backend.array(np.eye(6, 4)), "labels": np.arange(6) % 3}
    losses = []
    for _ in range(30):
        outputs, gradients = compiled.evaluate(params, inputs, output_gradients=True)
        losses.append(float(outputs["final_cost"]))
        for name, gradient in gradients.items():
            assert gradient.dtype == params[name].dtype == np.dtype(dtype)
            params[name] = params[name] - gradient * params[name].dtype.type(0.5)
    assert losses[-1] < losses[0] / 2


def test_source_is_that_of_autograd(tmp_path):
    path = tmp_path / "model.py"
    model, shapes = classifier()
    compiled = ml.compile(model, ml.AutogradBackend(), shapes=shapes, file_path=path)
    assert path.read_text() == compiled.code
    assert "import autograd.numpy as np\n" in compiled.code
    model.save(tmp_path / "model.json")
    loaded = Model.load(tmp_path / "model.json")
    assert ml.compile(loaded, ml.AutogradBackend(), shapes=shapes).code == compiled.code


def test_bodies_of_custom_operations():
    """A body for NumPy serves as well, as the backend starts from NumPy. Autograd differentiates
    either."""
    x = np.array([-1, 2], "f4")
    for bodies in ({"numpy": "return np.sin(x)"}, {"autograd": "return np.sin(x)"}):
        block = ml.custom(shape="(x: [*b]) -> [*b]", **bodies)
        options = {"shapes": {"x": [2]}, "trainable_keys": ["x"]}
        compiled = ml.compile(block, ml.AutogradBackend(), **options)
        seeds = {"output": np.ones(2, "f4")}
        outputs, gradients = compiled.evaluate({"x": x}, {}, output_gradients=seeds)
        np.testing.assert_allclose(outputs["output"], np.sin(x), rtol=1e-6)
        np.testing.assert_allclose(gradients["x"], np.cos(x), rtol=1e-6)


def test_what_autograd_lacks_is_told():
    with pytest.raises(ml.BackendError, match="Backend does not support operation real_fft"):
        ml.compile(ml.RealFFT(), ml.AutogradBackend(), shapes={"input": [4]}, inference=True)
    with pytest.raises(ml.BackendError, match="needs a float dtype\n  got: bfloat16"):
        ml.AutogradBackend("bfloat16")
