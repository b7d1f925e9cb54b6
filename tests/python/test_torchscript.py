"""`jit_compile="script"`: models that TorchScript traces, and those that it would trace wrongly."""

import warnings

import numpy as np
import pytest

import mithril as ml
from mithril.errors import BackendWarning
from mithril.models import Dropout, Linear, Model, Relu, Sequential, Tanh

torch = pytest.importorskip("torch")


def compiled(model, shapes, how="script", **options):
    return ml.compile(model, ml.TorchBackend(jit_compile=how), shapes=shapes, **options)


def looped():
    model = Model()
    model |= Linear(2, name="l")(input="q", output="lq")
    body = ml.Multiply()(left="x", right=2, output="d")
    loop = ml.While(ml.Less()(left="x", right=100, output="r"), body, carry={"x": "d"})
    model |= loop(x="x", d="d")
    return model, {"x": [], "q": [1, 2]}, [{"x": torch.tensor(v)} for v in (3.0, 60.0, 200.0)]


def chosen():
    model = Model()
    model |= ml.Cond(Linear(2), Sequential([Linear(2), Tanh()]))(
        condition="c", input="q", output="y"
    )
    return model, {"q": [1, 2]}, [{"c": torch.tensor(v)} for v in (True, False)]


def dropped():
    model = Model()
    model += Linear(4)(input="q")
    model += Dropout(0.5)(output="y")
    keys = ([0, 7], [0, 7], [5, 5])
    return model, {"q": [1, 2]}, [{"key": torch.tensor(k, dtype=torch.uint32)} for k in keys]


@pytest.mark.parametrize("make", [looped, chosen, dropped])
def test_code_that_depends_on_elements_is_not_traced(make):
    model, shapes, inputs = make()
    own, plain = (compiled(model, shapes, how) for how in ("script", False))
    params = plain.randomize_params(seed=0)
    q = torch.ones(1, 2)
    with pytest.warns(BackendWarning, match="TorchScript cannot compile a model whose code"):
        found = [own.evaluate(params, {"q": q, **given}) for given in inputs]
    for given, outputs in zip(inputs, found):
        for name, want in plain.evaluate(params, {"q": q, **given}).items():
            assert torch.equal(outputs[name], want), (given, name)


def test_starts_of_slices_are_not_kept():
    function = ml.load_function("""mithril 1

func @cut(%x: tensor<6 x f32>, %w: tensor<1 x f32> param, %i: tensor<i64>) -> (y: tensor<2 x f32>) {
  %a = dynamic_slice(%x, %i) {sizes = [2]}
  %y = mul(%a, %w)
  return %y
}
""")
    own = ml.compile(function, ml.TorchBackend(jit_compile="script"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BackendWarning)
        for at in (0, 2, 4):
            inputs = {"x": torch.arange(6.0), "i": torch.tensor(at)}
            found = own.evaluate({"w": torch.ones(1)}, inputs)["y"]
            np.testing.assert_array_equal(found, [at, at + 1])


def test_models_without_params_are_traced():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = compiled(Relu(), {"input": ["n"]})
        for size in (3, 4):
            x = torch.arange(size) - 1.5
            assert torch.equal(own.evaluate({}, {"input": x})["output"], x.relu())


def test_layers_are_traced():
    model = Sequential([Linear(4), Relu(), Linear(2)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own, plain = (compiled(model, {"input": ["n", 3]}, how) for how in ("script", False))
        params, x = plain.randomize_params(seed=0), torch.randn(5, 3)
        seed = {"output": torch.ones(5, 2)}
        found, want = (one.evaluate(params, {"input": x}, None, seed) for one in (own, plain))
    torch.testing.assert_close(found, want)
