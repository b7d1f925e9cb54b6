"""Backends of other packages: registered classes, and their mistakes."""

import json
import pickle
import sys
import types
from typing import ClassVar

import numpy as np
import pytest

import mithril as ml
from mithril import _core, backends
from mithril.backends import custom
from mithril.models import Conv2d, Linear, Model, Relu, Softmax, Sum

# A framework with the names of the array API, and nothing else: a view of NumPy.
NAMES = """abs add arange argmax asarray broadcast_to concatenate einsum exp expand_dims full log
matmul max maximum mean min minimum multiply negative ones prod reshape sqrt stack subtract sum
tanh tensordot transpose where zeros float32 float64 float16 int32 int64 bool flip argsort take
take_along_axis divide swapaxes squeeze isinf isnan"""
TINY = types.ModuleType("tiny_arrays")
for name in NAMES.split():
    setattr(TINY, name, getattr(np, name))
sys.modules["tiny_arrays"] = TINY


class TinyBackend(ml.Backend):
    """A backend that only has what the array API has."""

    kind = "tiny"
    module = package = "tiny_arrays"

    def from_numpy(self, array):
        return array


def test_a_backend_of_a_few_lines():
    model = Model()
    model += Linear(4)(input="x")
    model += Relu()
    model += Linear(2)
    model += Softmax()(output="y")
    backend = TinyBackend()
    assert backend.target.name == "tiny"
    assert repr(backend) == "TinyBackend(dtype=float32)"
    compiled = ml.compile(model, backend, shapes={"x": ["n", 3]})
    assert "import tiny_arrays\n" in compiled.code
    assert "import numpy" not in compiled.code
    params = compiled.randomize_params(0)
    x, ones = np.ones((5, 3), "f4"), np.ones((5, 2), "f4")
    found = compiled.evaluate(params, {"x": x}, output_gradients={"y": ones})
    reference = ml.compile(model, ml.NumpyBackend(), shapes={"x": ["n", 3]})
    expected = reference.evaluate(params, {"x": x}, output_gradients={"y": ones})
    for own, other in zip(found, expected):
        for name, value in other.items():
            np.testing.assert_allclose(own[name], value, rtol=1e-5, atol=1e-6)
    assert str(compiled.explain())
    assert str(compiled.cost(n=2)) == str(reference.cost(n=2))
    assert ml.diff(model, [backend, "numpy"], shapes={"x": ["n", 3]}, gradients=True).agrees


def test_what_it_lacks_is_told():
    sort = ml.load_function("""mithril 1
func @sorted(%x: tensor<n x f32>) -> (y: tensor<n x f32>) {
  %y = sort(%x)
  return %y
}
""")
    with pytest.raises(ml.BackendError, match="Backend does not support operation sort") as error:
        ml.compile(sort, TinyBackend(), shapes={"x": [3]}, inference=True)
    assert "where: block `sorted`" in str(error.value)
    assert error.value.code == "E0501"
    # A convolution is decomposed.
    ml.compile(Conv2d(3, 4), TinyBackend(), shapes={"input": [1, 2, 5, 5]}, inference=True)


def test_source_is_written_to_a_file(tmp_path):
    path = tmp_path / "model.py"
    ml.compile(Linear(2), TinyBackend(), shapes={"input": [1, 3]}, file_path=path)
    text = path.read_text()
    assert text.startswith('"""Linear, compiled for tiny by Mithril."""\n\nimport tiny_arrays\n')


def test_custom_operations_have_bodies_for_it():
    block = ml.custom(shape="(x: [n]) -> [n]", tiny="return x + 1", numpy="return x")
    compiled = ml.compile(block, TinyBackend(), shapes={"x": [2]}, inference=True)
    np.testing.assert_array_equal(compiled.evaluate({}, {"x": np.ones(2, "f4")})["output"], [2, 2])
    again = ml.Block.from_json(block.to_json(), trust_code=True)
    assert again.to_json() == block.to_json()


def test_a_scan_and_constants():
    rows = ml.load_function("""mithril 1
func @total(%h: tensor<f32>, %xs: tensor<n x f32>) -> (ys: tensor<n x f32>) {
  %last, %ys = scan(%h, %xs) {callee = @step, carries = 1}
  return %ys
}
func @step(%h: tensor<f32>, %x: tensor<f32>) -> (h: tensor<f32>, y: tensor<f32>) {
  %0 = add(%h, %x)
  return %0, %0
}
""")
    compiled = ml.compile(rows, TinyBackend(), shapes={"xs": ["n"]}, inference=True)
    for n in (0, 3):
        inputs = {"h": np.float32(1), "xs": np.arange(n, dtype="f4")}
        expected = 1 + np.cumsum(inputs["xs"])
        np.testing.assert_array_equal(compiled.evaluate({}, inputs)["ys"], expected)
    model = Model()
    weights = np.random.default_rng(0).standard_normal((40, 30)).astype("f4")
    model |= ml.Multiply()(left="x", right=weights, output="y")
    compiled = ml.compile(model, TinyBackend(), shapes={"x": [40, 30]}, inference=True)
    x = np.full((40, 30), 2, "f4")
    np.testing.assert_array_equal(compiled.evaluate({}, {"x": x})["y"], 2 * weights)


def test_backends_are_copied_and_compared():
    backend = TinyBackend("float64")
    assert pickle.loads(pickle.dumps(backend)) == backend != TinyBackend()
    np.testing.assert_array_equal(backend.concat([backend.ones(1), backend.zeros(1)]), [1, 0])
    values, indices = backend.topk(np.array([1.0, 3.0, 2.0]), 2)
    assert (list(values), list(indices)) == ([3, 2], [1, 2])


def test_names_are_listed():
    assert "tiny" in backends.names()
    assert backends.find("tiny") is TinyBackend
    assert backends.find("numpy") is ml.NumpyBackend
    assert ml.backends.TinyBackend is TinyBackend
    assert "tiny" in [target.name for target in _core.targets()]
    with pytest.raises(ml.UsageError, match="there is no backend `tinny`") as error:
        backends.find("tinny")
    assert "did you mean `tiny`?" in str(error.value)
    with pytest.raises(ml.UsageError, match="is not a backend") as error:
        ml.compile(Linear(2), "tiny")
    assert "create one with `ml.backends.find('tiny')()`" in str(error.value)


def declared(**attributes):
    """Declares a class of backends, of which only a wrong part matters."""
    base = attributes.pop("of", ml.Backend)
    given = {"kind": "wrong", "module": "tiny_arrays", "package": "tiny_arrays", **attributes}
    return type("WrongBackend", (base,), given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "Wrong"}, "cannot be the name of a backend\n  where: backend `Wrong`"),
        ({"kind": "numpy"}, "`numpy` is the name of a built-in backend"),
        ({"kind": "cpu"}, "a backend cannot have the name `cpu`"),
        ({"kind": "mir"}, "a backend cannot have the name `mir`"),
        ({"kind": 3}, "`kind` of WrongBackend has a wrong type\n  got: 3\n  expected: a string"),
        ({"kind": "tiny", "lacks": ("int8",)}, "another backend `tiny` is registered"),
        ({"base": "nunpy"}, "no built-in backend: `nunpy`\n  where: backend `wrong`"),
        ({"base": "nunpy"}, "hint: did you mean `numpy`?"),
        ({"lacks": ("float17",)}, "`lacks` names no dtype: `float17`"),
        ({"lacks": "float16"}, "`lacks` of WrongBackend has a wrong type"),
        ({"spellings": {"exq": "{x}"}}, "names no operation: `exq`"),
        ({"spellings": {"exq": "{x}"}}, "hint: did you mean `eq` or `exp`?"),
        ({"spellings": ["exp"]}, "`spellings` of WrongBackend has a wrong type"),
        ({"spellings": {"exp": 3}}, "has a wrong type\n  got: {'exp': 3}"),
        ({"spellings": {"exp": "@exp({x}"}}, "the spelling of `exp` is not a template"),
        ({"spellings": {"exp": "@exp({y})"}}, "the spelling of `exp` has the unknown slot `{y}`"),
        ({"spellings": {"sum": "@sum({x}, {axis})"}}, "hint: did you mean `axes`?"),
        ({"spellings": {"exp": "@exp({x.tupel})"}}, "has the unknown slot `{x.tupel}`"),
        ({"spellings": {"exp": "_exp({x})"}}, "calls `_exp`, which the prelude does not define"),
        ({"spellings": {"exp": "other.exp({x})"}}, "names `other`, which is not imported"),
        ({"spellings": {"exp": "@exp({x}) if x is half"}}, "without a condition"),
        ({"spellings": {"exp": "@f({x}) if x is haft; @exp({x})"}}, "unknown word `haft`"),
        ({"spellings": {"exp": "@f({x}) if y is half; @exp({x})"}}, "on the unknown `y`"),
        ({"spellings": {"exp": "@f({x}) if x == 3; @exp({x})"}}, "on the unknown `x`"),
        ({"spellings": {"exp": "@f({x}) if so; @exp({x})"}}, "`so` is not a condition"),
        ({"creation": {"fill": "@full({shape}, {x})"}}, "`creation` has an unknown name: `fill`"),
        ({"creation": {"full": "@full({size}, {x})"}}, "has the unknown slot `{size}`"),
        ({"creation": {"full": "@full({shape}"}}, "the template of `full` is not a template"),
        ({"creation": {"full": "@f({x}); @g({x})"}}, "has several alternatives"),
        ({"imports": {"np": "numpy"}}, "`imports` does not import `np`"),
        ({"imports": {"np": "import numpy as np; import os"}}, "`imports` does not import `np`"),
        ({"imports": {"_np": "import numpy as _np"}}, "`imports` does not import `_np`"),
        ({"imports": {"path": "import os.path"}}, "`imports` does not import `path`"),
        ({"imports": {"np": "import  as np"}}, "`imports` does not import `np`"),
        ({"imports": {"np": "from . import np"}}, "`imports` does not import `np`"),
        ({"imports": {"class": "import class"}}, "`imports` does not import `class`"),
        ({"prelude": 3}, "`prelude` of WrongBackend has a wrong type"),
        (
            {"prelude": "\n    def _f(x):\n        return (x\n"},
            "`prelude` of WrongBackend is not valid Python\n  where: line 2\n  text: return (x\n",
        ),
        ({"base": 3}, "`base` of WrongBackend has a wrong type"),
        ({"module": None}, "`module` of WrongBackend has a wrong type\n  got: None"),
        ({"spellings": {"tril": "@tril({x})"}}, "`@tril`, which the array module lacks"),
        (
            {"creation": {"full": "@fill({shape}, {x})"}},
            "the template of `full` names `@fill`, which",
        ),
    ],
)
def test_mistakes_of_a_class_are_told(given, message):
    with pytest.raises(ml.UsageError) as error:
        declared(**given)
    assert message in str(error.value)
    assert "wrong" not in backends.names()


def test_what_the_framework_lacks_is_decomposed():
    """`tiny_arrays` has no `square`, which the array API has."""
    square = ml.load_function("""mithril 1
func @squared(%x: tensor<n x f32>) -> (y: tensor<n x f32>) {
  %y = square(%x)
  return %y
}
""")
    compiled = ml.compile(square, TinyBackend(), shapes={"x": ["n"]}, inference=True)
    assert "square(" not in compiled.code.split("def forward")[1]
    x = np.array([1, -2], "f4")
    np.testing.assert_array_equal(compiled.evaluate({}, {"x": x})["y"], [1, 4])
    # Nothing else can express a sine.
    sine = ml.load_function("""mithril 1
func @sine(%x: tensor<n x f32>) -> (y: tensor<n x f32>) {
  %y = sin(%x)
  return %y
}
""")
    with pytest.raises(ml.BackendError, match="Backend does not support operation sin\n") as error:
        ml.compile(sine, TinyBackend(), shapes={"x": ["n"]}, inference=True)
    assert "backend: tiny" in str(error.value) or "for tiny" in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"from_numpy": lambda self, x: None}, "`from_numpy` of OddBackend makes no array"),
        (
            {"from_numpy": lambda self, x: x.astype("f2")},
            "makes another array\n  got: float16[2, 3]\n  expected: float32[2, 3]",
        ),
        ({"from_numpy": lambda self, x: x.T}, "got: float32[3, 2]\n  expected: float32[2, 3]"),
        ({"is_array": lambda self, x: False}, "`is_array` of OddBackend is false for an array"),
        ({"to_numpy": lambda self, x: x + 1}, "`to_numpy` of OddBackend does not return the array"),
        ({"module": "nowhere.arrays"}, "OddBackend needs nowhere, which cannot be imported"),
    ],
)
def test_arrays_are_checked(given, message, request):
    kind = "odd_" + "".join(c for c in request.node.callspec.id.lower() if c.isalnum())
    base = {"kind": kind, "module": "tiny_arrays", "from_numpy": lambda self, array: array}
    odd = type("OddBackend", (ml.Backend,), {**base, **given})
    with pytest.raises(ml.BackendError) as error:
        odd()
    assert message in str(error.value)


ZEROS = {"w": np.zeros((3, 2), "f4"), "b": np.zeros(2, "f4")}


def pulled(w=ZEROS["w"], b=ZEROS["b"]):
    """A `vjp` whose pullback returns these gradients."""
    return lambda function, params: (function(params), lambda _: {"linear.w": w, "linear.b": b})


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda function, params: function(params), "expected: a pair of the results"),
        (
            lambda function, params: (function(params), lambda seeds: {}),
            "got: []\n  expected: a pullback to a dict of gradients of linear.w, linear.b",
        ),
        (
            lambda function, params: (function(params), lambda seeds: None),
            "got: None\n  expected: a pullback to a dict",
        ),
        (
            pulled(w=np.zeros((2, 3), "f4")),
            "got: float32[2, 3] for the gradient of `linear.w`\n  expected: float32[3, 2]",
        ),
        (
            pulled(b=np.float32(0)),
            "got: float32[] for the gradient of `linear.b`\n  expected: float32[2]",
        ),
        (pulled(b=np.zeros(2, "i4")), "got: int32[2] for the gradient of `linear.b`"),
        (pulled(b=None), "got: None\n  expected: an array of shape [2] for the gradient of"),
        (pulled(b=np.zeros(2, "c8")), "expected: an array of shape [2] for the gradient of"),
        (
            lambda function, params: ([*function(params).values()], lambda seeds: params),
            "expected: the results of the function: y",
        ),
        (
            lambda function, params: ({**function(params), "z": 1}, lambda seeds: params),
            "got: ['y', 'z']\n  expected: the results of the function: y",
        ),
    ],
)
def test_gradients_are_checked(answer, message, request):
    kind = "vjp_" + "".join(c for c in request.node.callspec.id.lower() if c.isalnum())

    def vjp(self, function, params):
        return answer(function, params)

    odd = type("OddBackend", (TinyBackend,), {"kind": kind, "vjp": vjp})
    model = Model()
    model += Linear(2, name="linear")(input="x", output="y")
    compiled = ml.compile(model, odd(), shapes={"x": [1, 3]})
    params = compiled.randomize_params(0)
    x, seed = np.ones((1, 3), "f4"), np.ones((1, 2), "f4")
    with pytest.raises(ml.BackendError) as error:
        compiled.evaluate(params, {"x": x}, output_gradients={"y": seed})
    assert "`vjp` of OddBackend does not return gradients" in str(error.value)
    assert message in str(error.value)


def test_a_class_may_be_declared_again():
    attributes = {"kind": "again", "module": "tiny_arrays", "__module__": __name__}
    attributes["from_numpy"] = lambda self, array: array
    first, second = (type("AgainBackend", (ml.Backend,), dict(attributes)) for _ in range(2))
    assert backends.find("again") is second
    ml.compile(Linear(2), first(), shapes={"input": [1, 3]})
    with pytest.raises(ml.UsageError, match="another backend `again` is registered"):
        type("AgainBackend", (ml.Backend,), {**attributes, "spellings": {"exp": "@exp({x})"}})
    # Another class with the same definition has other methods.
    with pytest.raises(ml.UsageError, match="another backend `again` is registered") as error:
        type("OtherBackend", (ml.Backend,), dict(attributes))
    assert "got: test_custom_backends.OtherBackend" in str(error.value)
    assert "this name: test_custom_backends.AgainBackend" in str(error.value)
    assert backends.find("again") is second


def test_a_subclass_of_a_built_in_backend_starts_from_it():
    class Shouting(ml.TorchBackend):
        kind = "shouting"
        label = "Shouting"
        spellings: ClassVar = {"relu": "_loud({x})"}
        prelude = """
            def _loud(x):
                return torch.relu(x) + 1
        """

    model = Model()
    model += Linear(2)(input="x")
    model += Relu()(output="y")
    backend = Shouting()
    compiled = ml.compile(model, backend, shapes={"x": [1, 3]})
    assert "torch.relu(x) + 1" in compiled.code
    params = compiled.randomize_params(0)
    x = backend.ones(1, 3)
    reference = ml.compile(model, ml.TorchBackend(), shapes={"x": [1, 3]})
    seeds = {"y": backend.ones(1, 2)}
    found, gradients = compiled.evaluate(params, {"x": x}, output_gradients=seeds)
    expected, others = reference.evaluate(params, {"x": x}, output_gradients=seeds)
    assert (found["y"] == expected["y"] + 1).all()
    assert all((gradients[name] == other).all() for name, other in others.items())


def test_states_and_jit():
    calls = []

    class Jitted(TinyBackend):
        kind = "jitted"

        def jit(self, function):
            calls.append(function.__name__)
            return function

        def vjp(self, function, params):
            results = function(params)

            def pullback(seeds):
                # By differences: the model is linear in each param.
                def total(params):
                    found = function(params)
                    return sum((found[n] * s).sum() for n, s in seeds.items())

                return {n: self._slopes(total, params, n) for n in params}

            return results, pullback

        def _slopes(self, total, params, name):
            slopes, base = np.zeros(params[name].shape), total(params)
            for at in np.ndindex(slopes.shape):
                moved = {**params, name: params[name].copy()}
                moved[name][at] += 1
                slopes[at] = total(moved) - base
            return slopes

    counter = ml.load_function("""mithril 1
func @counted(%x: tensor<n x f32>, %w: tensor<n x f32> param, %c: tensor<f32> state)
    -> (y: tensor<n x f32>, next: tensor<f32> state "c") {
  %0 = mul(%x, %w)
  %1 = sum(%0)
  %2 = add(%c, %1)
  return %0, %2
}
""")
    compiled = ml.compile(counter, Jitted(), shapes={"x": [2]}, jit=True)
    assert calls == ["forward"]
    x, w = np.array([1, 2], "f4"), np.array([3, 4], "f4")
    seeds = {"y": np.array([1, 10], "f4")}
    state = {"c": np.float32(5)}
    answer = compiled.evaluate({"w": w}, {"x": x}, state=state, output_gradients=seeds)
    outputs, gradients, following = answer
    np.testing.assert_array_equal(outputs["y"], [3, 8])
    np.testing.assert_array_equal(gradients["w"], [1, 20])
    assert gradients["w"].dtype == np.float32
    assert following["c"] == 16
    # Mithril's gradients in the source need nothing of the framework.
    own = ml.compile(counter, Jitted(), shapes={"x": [2]}, autodiff="mithril")
    answer = own.evaluate({"w": w}, {"x": x}, state=state, output_gradients=seeds)
    np.testing.assert_array_equal(answer[1]["w"], [1, 20])


def test_a_subclass_of_numpy_compiles_by_its_own_jit():
    calls = []

    class Traced(ml.NumpyBackend):
        def jit(self, function):
            return lambda *given: calls.append(function.__name__) or function(*given)

    compiled = ml.compile(Linear(2), Traced(), shapes={"input": [1, 3]}, jit=True)
    params = compiled.randomize_params(seed=0)
    x = np.ones((1, 3), "float32")
    result = compiled.evaluate(params, {"input": x})["output"]
    np.testing.assert_allclose(result, x @ params["w"] + params["b"], rtol=1e-6)
    assert calls == ["forward"]


def test_jit_is_a_method_that_returns_a_function():
    class Unjitted(TinyBackend):
        kind = "unjitted"

        def jit(self, function):
            return None

    with pytest.raises(ml.BackendError, match="`jit` of Unjitted does not return a fun") as error:
        ml.compile(Linear(2), Unjitted(), shapes={"input": [1, 3]}, jit=True)
    assert "got: None\n  expected: the function, compiled" in str(error.value)
    with pytest.raises(ml.UsageError, match="TinyBackend does not compile source fur") as error:
        ml.compile(Linear(2), TinyBackend(), shapes={"input": [1, 3]}, jit=True)
    assert "got: jit=True\n  hint: leave `jit=` out, or define" in str(error.value)
    ml.compile(Linear(2), TinyBackend(), shapes={"input": [1, 3]}, jit=False)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import nowhere as other", "Importing needs nowhere, which cannot be imported\n  got: No"),
        ("import os.nowhere as other", "Importing needs os.nowhere, which cannot be imported"),
        ("from os import other", "an import of the source for Importing fails\n  got: c"),
    ],
)
def test_imports_that_fail_are_told(line, message):
    kind = "importing_" + "".join(c for c in line if c.isalpha())
    attributes = {
        "kind": kind,
        "imports": {"tiny_arrays": "import tiny_arrays", "other": line},
        "spellings": {"relu": "other.relu({x})"},
    }
    cls = type("Importing", (TinyBackend,), attributes)
    ml.compile(Linear(2), cls(), shapes={"input": [1, 3]})
    with pytest.raises(ml.BackendError) as error:
        ml.compile(Relu(), cls(), shapes={"input": [1, 3]}, inference=True)
    assert message in str(error.value)
    assert ("hint: pip install nowhere" in str(error.value)) == ("import nowhere as" in line[:17])


def test_a_gradient_of_ones_own_needs_a_function_of_the_prelude():
    class Plain(TinyBackend):
        kind = "plain"

        def vjp(self, function, params):
            raise AssertionError

    block = ml.custom(
        shape="(x: [n]) -> [n]", plain="return x", gradient={"plain": "return output_gradient"}
    )
    options = {"shapes": {"x": [2]}, "trainable_keys": ["x"]}
    with pytest.raises(ml.BackendError, match="not support operation custom_gradient") as error:
        ml.compile(block, Plain(), **options)
    assert "hint: define `_custom_gradient` in the prelude of the backend" in str(error.value)
    compiled = ml.compile(block, Plain(), autodiff="mithril", **options)
    x = np.ones(2, "f4")
    _, gradients = compiled.evaluate({"x": x}, {}, output_gradients={"output": 3 * x})
    np.testing.assert_array_equal(gradients["x"], [3, 3])


def test_names_of_modules_are_kept_from_variables():
    model = Model()
    model |= Sum()(input="tiny_arrays", output="y")
    compiled = ml.compile(model, TinyBackend(), shapes={"tiny_arrays": [3]}, inference=True)
    assert compiled.evaluate({}, {"tiny_arrays": np.ones(3, "f4")})["y"] == 3


def test_a_definition_is_json():
    whole = json.loads(custom.definition(TinyBackend))
    assert whole["imports"] == [["tiny_arrays", "import tiny_arrays"]]
    with pytest.raises(ml.UsageError, match="the definition of a backend is not JSON"):
        _core.register_target("{")
    with pytest.raises(ml.UsageError, match="needs a string for `label`"):
        _core.register_target(json.dumps({**whole, "label": 3}))
    with pytest.raises(ml.UsageError, match="needs pairs of strings for `spellings`"):
        _core.register_target(json.dumps({**whole, "spellings": [["exp"]]}))
