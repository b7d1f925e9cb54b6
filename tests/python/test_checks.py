"""The checks of calls, and the messages for arrays that do not fit."""

import numpy as np
import pytest
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril.models import (
    Add,
    ArgMax,
    ArgMin,
    BatchNorm1d,
    Buffer,
    Linear,
    Max,
    Min,
    Model,
    Relu,
    Split,
    TopK,
    Zeros,
)

NUMPY = ml.NumpyBackend()
BACKENDS = [getattr(ml, MAKERS[kind]) for kind in INSTALLED if kind != "c"]
X = np.ones((2, 3), "float32")


def linear(backend):
    return ml.compile(Linear(2), backend, shapes={"input": ["batch", 3]})


CALLS = [
    (
        lambda b, p: (p, {"imput": b.ones(4, 3)}),
        ml.TerminalError,
        "Terminal not found: the model has no `imput` among its inputs\n  expected: `input`\n"
        "  hint: did you mean `input`?",
    ),
    (
        lambda b, p: (p, {}),
        ml.MithrilError,
        "`input` is missing from inputs\n  got: nothing\n  expected: `input`",
    ),
    (
        lambda b, p: ({"w": p["w"]}, {"input": b.ones(4, 3)}),
        ml.MithrilError,
        "`b` is missing from params\n  got: `w`\n  expected: `w`, `b`",
    ),
    (
        lambda b, p: (p, {"input": b.ones(4, 5)}),
        ml.ShapeError,
        "Incompatible shapes: `input` of inputs has the wrong shape\n  got: float32[4, 5]\n"
        "  expected: float32[batch, 3]",
    ),
    (
        lambda b, p: (p, {"input": b.ones(3)}),
        ml.ShapeError,
        "Incompatible shapes: `input` of inputs has the wrong rank\n  got: float32[3]\n"
        "  expected: float32[batch, 3]",
    ),
    (
        lambda b, p: (p, {"input": np.ones((4, 3))}),
        ml.ShapeError,
        "Incompatible shapes: `input` of inputs has the wrong dtype\n  got: float64[4, 3]\n"
        "  expected: float32[batch, 3]\n"
        "  hint: `backend.array(x)` casts floats to the backend's dtype",
    ),
    (
        lambda b, p: (p, {"input": [[1.0, 2.0, 3.0]]}),
        ml.MithrilError,
        "`input` of inputs is not an array of the backend\n  got: list\n"
        "  expected: float32[batch, 3]\n  hint: convert it with `backend.array(x)`",
    ),
    (
        lambda b, p: ({**p, "c": p["b"]}, {"input": b.ones(4, 3)}),
        ml.TerminalError,
        "Terminal not found: the model has no `c` among its params\n  expected: `w`, `b`",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), CALLS)
def test_calls_are_checked(backend, call, error, message):
    compiled = linear(backend)
    params = compiled.randomize_params()
    for _ in range(2):
        with pytest.raises(error) as caught:
            compiled.evaluate(*call(backend, params))
        assert str(caught.value).startswith(message)
        # A call that passes must not disable the check of later calls.
        compiled.evaluate(params, {"input": backend.ones(4, 3)})


def test_params_in_place_are_checked_again(backend):
    """An array that passed the check is checked again after it has changed in place."""
    compiled = linear(backend)
    params = compiled.randomize_params()
    inputs = {"input": backend.ones(1, 3)}
    for _ in range(5):
        compiled.evaluate(params, inputs)
    params["w"] = backend.ones(4, 2)
    with pytest.raises(ml.ShapeError, match="`w` of params has the wrong shape"):
        compiled.evaluate(params, inputs)


def test_names_may_come_in_any_order(backend):
    compiled = linear(backend)
    params = compiled.randomize_params()
    inputs = {"input": backend.ones(1, 3)}
    turned = dict(reversed(params.items()))
    # Equal names, but other string objects.
    named = {bytes(name, "ascii").decode(): value for name, value in params.items()}
    for given in (params, turned, params, named, turned, turned):
        compiled.evaluate(given, inputs)
        with pytest.raises(ml.MithrilError, match="is missing from params"):
            compiled.evaluate({"w": given["w"]}, inputs)
        with pytest.raises(ml.ShapeError, match="`w` of params has the wrong rank"):
            compiled.evaluate({**given, "w": given["b"]}, inputs)


def test_tensors_with_replaced_data_are_checked_again():
    torch = pytest.importorskip("torch")
    compiled = linear(ml.TorchBackend())
    params = compiled.randomize_params()
    params["w"] = torch.nn.Parameter(params["w"])
    inputs = {"input": torch.ones(1, 3)}
    for _ in range(3):
        compiled.evaluate(params, inputs)
    params["w"].data = torch.ones(4, 2)
    with pytest.raises(ml.ShapeError, match="`w` of params has the wrong shape"):
        compiled.evaluate(params, inputs)
    params["w"].data = torch.ones(3, 2, dtype=torch.float64)
    with pytest.raises(ml.ShapeError, match="`w` of params has the wrong dtype"):
        compiled.evaluate(params, inputs)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"outputt": 1}, ml.TerminalError, "Terminal not found: the model has no output `outputt`"),
        (True, ml.TerminalError, "Terminal not found: `output_gradients=True` needs an out"),
        (lambda o: {"output": o["output"][:1]}, ml.ShapeError, "Incompatible shapes: the gradient"),
        (np.ones((3, 2), np.float32), ml.ShapeError, "Incompatible shapes: `output` of output_gr"),
        ({"output": np.full((4, 2), 1e300)}, ml.ShapeError, "Incompatible shapes: `output` of out"),
        ({1: np.ones((4, 2), np.float32)}, ml.TerminalError, "Terminal not found: the model has n"),
    ],
)
def test_output_gradients_are_checked(backend, given, error, message):
    compiled = linear(backend)
    params = compiled.randomize_params()
    with pytest.raises(error) as caught:
        compiled.evaluate(params, {"input": backend.ones(4, 3)}, output_gradients=given)
    assert str(caught.value).startswith(message)


def test_arrays_of_other_frameworks_are_errors():
    torch = pytest.importorskip("torch")
    model = ml.compile(Relu(), NUMPY, shapes={"input": [2]})
    with pytest.raises(ml.MithrilError) as caught:
        model.evaluate({}, {"input": torch.ones(2)})
    assert caught.value.args[0] == (
        "`input` of inputs is an array of another framework\n  got: torch.Tensor\n"
        "  expected: an array of the backend\n  hint: convert it with `backend.array(x)`"
    )


def test_a_guard_names_terminals_and_dims():
    model = Model()
    model |= Add()(left="x", right="z", output="y")
    model = ml.compile(model, NUMPY, shapes={"x": [None], "z": [None]})
    arrays = {"x": np.ones(2, "float32"), "z": np.ones(3, "float32")}
    with pytest.raises(ml.ShapeError) as caught:
        model.evaluate({}, arrays)
    assert caught.value.args[0] == (
        "Incompatible shapes: the dims of inputs do not fit together\n  where: block `add`\n"
        "  got: x_0 = 2, axis 0 of `x`\n  got: z_0 = 3, axis 0 of `z`\n  expected: x_0 == z_0"
    )
    namespace = {}
    exec(model.code, namespace)
    with pytest.raises(
        AssertionError, match=r"^block `add`: x_0 == z_0 does not hold: x_0=2, z_0=3"
    ):
        namespace["forward"]({}, arrays)


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_that_do_not_fit_are_told_before_gradients_of_outputs(backend):
    model = Model()
    model |= Buffer()(input="x", output="y")
    model |= Buffer()(input=model.y * model.y[:1], output="z")
    model = ml.compile(model, backend(), shapes={"x": ["n", 3]}, trainable_keys=["x"])
    x, ones = (model.backend.ones(2, 3) for _ in range(2))
    with pytest.raises(ml.ShapeError) as caught:
        model.evaluate({"x": x}, {}, output_gradients={"z": ones})
    assert caught.value.args[0] == (
        "Incompatible shapes: the dims of inputs do not fit together\n  where: block `multiply`\n"
        "  got: n = 2, axis 0 of `x` in blocks `indexer`, `multiply`\n  expected: n <= 1"
    )


def halves() -> Model:
    model = Model()
    model |= Split(2)(input="x", output="y")
    model |= Add()(left=model.y[0], right=model.y[1], output="z")
    return model


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shapes", [{}, {"a": [None, 4], "b": [None, 5]}])
def test_batches_that_differ_name_blocks_terminals_and_dims(backend, shapes):
    model = Model()
    model |= Linear(3)(input="a", output="u")
    model |= Linear(3)(input="b", output="v")
    model |= Add()(left="u", right="v", output="y")
    model = ml.compile(model, backend(), shapes=shapes)
    arrays = {"a": np.ones((2, 4), "float32"), "b": np.ones((3, 5), "float32")}
    with pytest.raises(ml.ShapeError) as caught:
        model.evaluate(model.randomize_params(seed=1), arrays)
    said = caught.value.args[0]
    guarded = (
        "Incompatible shapes: the dims of inputs do not fit together\n  where: block `add`\n"
        "  got: a_0 = 2, axis 0 of `a` in block `linear_0`\n"
        "  got: b_0 = 3, axis 0 of `b` in block `linear_1`\n  expected: a_0 == b_0"
    )
    inferred = (
        "Incompatible shapes\n  where: block `add` (Add)\n"
        "  left: tensor<2 x 3 x f32> from `linear_0.output`\n"
        "  right: tensor<3 x 3 x f32> from `linear_1.output`\n"
        "  got: [2 x 3] and [3 x 3]: 2 against 3 in axis -2\n"
        "  expected: dims that are equal or 1, aligned at the last axis"
    )
    # Ranks that are open in generated source are known to native code, compiled at the first call.
    assert said == (guarded if shapes or backend is ml.CpuBackend else inferred)


@pytest.mark.parametrize("backend", BACKENDS)
def test_none_instead_of_a_dict_is_an_error(backend):
    model = ml.compile(Relu(), backend())
    for arguments, name in [((None, {"input": X}), "params"), (({}, None), "inputs")]:
        with pytest.raises(ml.MithrilError, match=f"^`{name}` must be a dict of arrays by name\n"):
            model.evaluate(*arguments)


def test_slices_of_a_varying_dim_are_checked():
    model = ml.compile(halves(), NUMPY, shapes={"x": ["n"]})
    for n in (2, 6):
        x = np.arange(n, dtype="float32")
        assert np.array_equal(model.evaluate({}, {"x": x})["z"], x[: n // 2] + x[n // 2 :])
    assert "assert n % 2 == 0" in model.code
    model = ml.compile(halves(), NUMPY, shapes={"x": [None]})
    with pytest.raises(ml.ShapeError) as caught:
        model.evaluate({}, {"x": X[0]})
    assert caught.value.args[0] == (
        "Incompatible shapes: the dims of inputs do not fit together\n  where: block `split`\n"
        "  got: x_0 = 3, axis 0 of `x`\n  expected: x_0%2 == 0"
    )


def test_a_batch_of_one_is_no_batch_at_run_time():
    model = ml.compile(BatchNorm1d(), NUMPY, shapes={"input": ["n", 3]})
    params = model.randomize_params(seed=1)
    with pytest.raises(ml.ShapeError, match="n = 1, axis 0 of `input`\n  expected: n >= 2"):
        model.evaluate(params, {"input": np.ones((1, 3), "float32")})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block", [Max(0), Min(0), ArgMax(0), ArgMin(0)])
def test_extrema_of_empty_axes_are_errors_at_run_time(backend, block):
    model = ml.compile(block, backend(), shapes={"input": ["n", 3]})
    with pytest.raises(ml.ShapeError, match="n = 0, axis 0 of `input`\n  expected: n >= 1"):
        model.evaluate({}, {"input": X[:0]})


# In tinygrad, the maximum of nothing is -inf.
@pytest.mark.parametrize("backend", [make for make in BACKENDS if make.kind != "tinygrad"])
@pytest.mark.parametrize("block", [Max(), Min(), ArgMax()])
def test_extrema_of_empty_axes_are_errors_for_unknown_ranks(backend, block):
    model = ml.compile(block, backend())
    model.evaluate({}, {"input": X})
    with pytest.raises(ml.ShapeError, match=r"where: block `\w+`(.|\n)*expected: \w+ .*"):
        model.evaluate({}, {"input": X[:0]})


@pytest.mark.parametrize("backend", BACKENDS)
def test_top_k_larger_than_the_axis_is_an_error_at_run_time(backend):
    model = ml.compile(TopK(3, axis=0), backend(), shapes={"input": ["n", 3]})
    with pytest.raises(ml.ShapeError, match="n = 2, axis 0 of `input`\n  expected: n >= 3"):
        model.evaluate({}, {"input": X})


# MLX crashes on an array of so many elements.
@pytest.mark.parametrize("backend", [make for make in BACKENDS if make.kind != "mlx"])
def test_arrays_beyond_memory(backend):
    model = ml.compile(Zeros([10**6, 10**6]), backend())
    with pytest.raises(ml.MithrilError, match=r"^Out of memory"):
        model.evaluate({}, {})


@pytest.mark.parametrize("backend", BACKENDS)
def test_scalars_of_numpy_are_arrays(backend):
    model = ml.compile(Relu(), backend(), shapes={"input": []})
    own = backend()
    output = model.evaluate({}, {"input": np.float32(2)})["output"]
    assert float(own.to_numpy(output)) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_numpy_arrays_may_have_any_strides(backend):
    model = ml.compile(Relu(), backend(), shapes={"input": [None, None]})
    x = np.arange(12, dtype="float32").reshape(3, 4) - 6
    fixed = x.copy()
    fixed.setflags(write=False)
    for own in (x[::-1], x[:, ::-2], x.T, fixed):
        got = model.backend.to_numpy(model.evaluate({}, {"input": own})["output"])
        np.testing.assert_array_equal(got, np.maximum(own, 0))
